//! `remove`

use std::sync::Arc;

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply};
use super::update;
use crate::gate::policy::Rule;
use crate::ids::PackageName;
use crate::journal::Sync;
use crate::journal::record::Change;
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
    let of_it = |rule: &&Arc<Rule>| rule.tool.package_literal() == Some(args.name.as_str());
    let lines: Vec<String> = config.policy.rules.iter().filter(of_it).map(|rule| rule.line.to_string()).collect();
    if !lines.is_empty() {
        let message = format!("rules for `{}` would match nothing without it: at line {}", args.name, lines.join(", "));
        return Err(CliError::input(message).hint("remove these rules first"));
    }
    let text = registry::edit::remove(&edit.file.text, &args.name).map_err(CliError::input)?;
    edit.lock.0.remove(&args.name);
    // What comes under this name later is another package, and must not find what this one kept.
    let journal = context.journal_of(&edit.file)?;
    let forget = || journal.commit_now(Change::Forget(args.name.to_string()), Sync::Durable);
    forget()?;
    edit.store(&text, "removed", &args.name)?;
    // A call may have been under way.
    forget()?;
    let human =
        format!("Removed [tools.{}]. Its file was left where it is, and what it kept as state is gone.", args.name);
    Ok(Reply::new(json!({ "name": args.name }), human))
}
