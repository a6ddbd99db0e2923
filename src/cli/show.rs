//! `show`

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply, bold, bullets, dim};
use super::{add, portrait, update};
use crate::descriptor::compare::Portrait;
use crate::ids::PackageName;

#[derive(clap::Args)]
pub struct Args {
    /// The package
    name: PackageName,
    /// Only what is different from what is pinned
    #[arg(long)]
    diff: bool,
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let (file, config) = context.trusted_config()?;
    let lock = file.lock()?;
    let tool = config.tools.get(&args.name).ok_or_else(|| update::unknown(&args.name, &config))?;
    let package = add::read(&tool.source)?;
    let pinned = lock.0.get(&args.name).copied();
    if args.diff {
        let same = pinned == Some(package.digest);
        let old = match &pinned {
            Some(digest) => portrait::kept(context, &file, digest)?,
            None => None,
        };
        let Some(old) = old else {
            return Err(CliError::input("what was pinned is not known any more")
                .hint(format!("`portcullis show {}` shows what is there now", args.name)));
        };
        let changes = old.changes(&Portrait::of(&package.component));
        let mut human = portrait::changes(&changes);
        human.push_str(if same {
            "The file is the one that is pinned."
        } else {
            "The file is not the one that is pinned."
        });
        let result = json!({ "name": args.name, "pinned": pinned, "sha256": package.digest, "changes": changes });
        return Ok(Reply::new(result, human));
    }
    let snapshot = context.snapshot(&file, &config)?;
    let tools: Vec<_> = snapshot
        .tools()
        .filter(|(id, _)| id.package() == args.name.as_str())
        .map(|(_, tool)| json!({ "descriptor": tool.descriptor, "hints": tool.hints() }))
        .collect();
    let mut result = portrait::json(&package);
    result["name"] = json!(args.name);
    result["pinned"] = json!(pinned);
    result["tools"] = json!(tools);
    result["granted"] = tool.authority.to_json();
    let mut human = portrait::human(&package);
    human.push_str(&format!(
        "\n{}\n{}",
        bold("What the configuration grants at most"),
        bullets(&tool.authority.lines(), "nothing")
    ));
    let limits: Vec<String> = tool.authority.limits.named().into_iter().map(|(n, v)| format!("{n} {v}")).collect();
    human.push_str(&format!("  {} {}\n", dim("limits"), limits.join(", ")));
    human.push_str(&match pinned {
        Some(pinned) if pinned == package.digest => {
            format!("\nPinned to these bytes; {} tools are shown.", tools.len())
        }
        Some(pinned) => format!(
            "\nPinned to sha256 {}, which these bytes are not: its tools cannot be called. `portcullis show {} --diff`",
            pinned.short(),
            args.name
        ),
        None => format!("\nNot pinned: its tools cannot be called. `portcullis update {}`", args.name),
    });
    Ok(Reply::new(result, human))
}
