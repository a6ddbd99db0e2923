//! `remove`

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply};
use super::update;
use crate::ids::PackageName;
use crate::publication::config::Config;
use crate::registry;

#[derive(clap::Args)]
pub struct Args {
    /// The package
    name: PackageName,
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let mut edit = context.edit()?;
    let config = &edit.config;
    if !config.tools.contains_key(&args.name) {
        return Err(update::unknown(&args.name, config));
    }
    let text = registry::edit::remove(&edit.file.text, &args.name).map_err(CliError::input)?;
    // Rules for the package alone would then match nothing, which does not load: better said before than after.
    Config::parse(&edit.file.path, &text).map_err(|error| {
        let mut refused = CliError::from(error);
        refused.hint = Some("remove the rules for this package first".to_owned());
        refused
    })?;
    edit.lock.0.remove(&args.name);
    edit.store(&text)?;
    let human = format!("Removed [tools.{}]. Its file was left where it is.", args.name);
    Ok(Reply::new(json!({ "name": args.name }), human))
}
