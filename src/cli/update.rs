//! `update`

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply};
use super::{add, portrait};
use crate::descriptor::compare::Portrait;
use crate::ids::PackageName;
use crate::publication::config::Config;
use crate::publication::unusable;

#[derive(clap::Args)]
pub struct Args {
    /// The package
    name: PackageName,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let mut edit = context.edit()?;
    let tool = edit.config.tools.get(&args.name).ok_or_else(|| unknown(&args.name, &edit.config))?;
    let package = add::read(&tool.source)?;
    if let Some(why) = unusable(&package, tool.expose.as_ref()) {
        return Err(CliError::input(format!("`{}` cannot be used: {why}", tool.source.display())));
    }
    let before = edit.lock.0.get(&args.name).copied();
    if before == Some(package.digest) {
        portrait::keep(context, &edit.file, &package)?;
        let human = format!("{} is pinned to what is there already.", args.name);
        return Ok(Reply::new(json!({ "name": args.name, "sha256": package.digest, "changes": [] }), human));
    }
    let old = match &before {
        Some(digest) => portrait::kept(context, &edit.file, digest)?,
        None => None,
    };
    let changes = old.map(|old| old.changes(&Portrait::of(&package.component)));
    add::compile(context, &package).await?;
    edit.lock.0.insert(args.name.clone(), package.digest);
    edit.store(&edit.file.text, "updated", &args.name)?;
    portrait::keep(context, &edit.file, &package)?;
    let mut human = match &changes {
        Some(changes) => portrait::changes(changes),
        None => portrait::human(&package),
    };
    human.push_str(&format!("Pinned {} to sha256 {}.", args.name, package.digest.short()));
    let result = json!({ "name": args.name, "before": before, "sha256": package.digest, "changes": changes });
    Ok(Reply::new(result, human))
}

/// A package that is not there.
pub fn unknown(name: &PackageName, config: &Config) -> CliError {
    let names: Vec<&str> = config.tools.keys().map(PackageName::as_str).collect();
    let error = CliError::input(format!("no package named `{name}` is installed"));
    if names.is_empty() { error } else { error.hint(format!("installed: {}", names.join(", "))) }
}
