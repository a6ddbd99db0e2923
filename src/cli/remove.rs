//! `remove`

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply};
use super::{add, update};
use crate::ids::PackageName;
use crate::publication::config::Config;
use crate::registry::edit;

#[derive(clap::Args)]
pub struct Args {
    /// The package
    name: PackageName,
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let (file, _) = context.trusted_config()?;
    let config = file.parse()?;
    if !config.tools.contains_key(&args.name) {
        return Err(update::unknown(&args.name, &config));
    }
    let text = edit::remove(&file.text, &args.name).map_err(CliError::input)?;
    // Rules for the package alone would then match nothing, which does not load: better said before than after.
    Config::parse(&file.path, &text).map_err(|error| {
        let mut refused = CliError::from(error);
        refused.hint = Some("remove the rules for this package first".to_owned());
        refused
    })?;
    let mut lock = file.lock()?;
    lock.0.remove(&args.name);
    add::store(context, &file, &text, &lock)?;
    let human = format!("Removed [tools.{}]. Its file was left where it is.", args.name);
    Ok(Reply::new(json!({ "name": args.name }), human))
}
