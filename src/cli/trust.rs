//! `trust`

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply, bold, bullets, note};
use super::prompt;
use crate::authority::template::Only;
use crate::publication::config::Config;
use crate::text::escape_text;

#[derive(clap::Args)]
pub struct Args {
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let (file, _) = context.read_config()?;
    // What does not load cannot be shown, and what cannot be shown is not trusted.
    let config = file.parse()?;
    file.lock()?;
    let store = context.trust_store()?;
    let result = json!({ "config": file.path, "digest": file.digest(&config) });
    if store.is_trusted(&file.path, &file.digest(&config))? {
        return Ok(Reply::new(result, format!("{} is trusted already.", file.path.display())));
    }
    note(&format!("{}\n{}", bold(&file.path.display().to_string()), describe(&config)));
    if !args.yes && !prompt::confirm("Trust this file as it is now?") {
        let error = CliError { exit: 4, ..CliError::input("the file was not trusted") };
        return Err(if prompt::is_interactive() {
            error
        } else {
            error.hint("without a terminal, say so with `--yes`")
        });
    }
    context.trust(&file, &config)?;
    Ok(Reply::new(result, format!("Trusted {}.", file.path.display())))
}

/// What a configuration grants, for a human to judge.
fn describe(config: &Config) -> String {
    let mut text = String::new();
    if config.tools.is_empty() {
        text.push_str("It installs no package.\n");
    }
    for (name, tool) in &config.tools {
        text.push_str(&format!(
            "\n[tools.{name}] from {} may ever touch\n",
            escape_text(&tool.source.display().to_string(), 300)
        ));
        text.push_str(&bullets(&tool.authority.lines(), "nothing"));
    }
    let policy = &config.policy;
    text.push_str(&format!(
        "\nWithout a rule, a call is {}.\n",
        match policy.default {
            crate::gate::policy::DefaultVerdict::Ask => "asked about",
            crate::gate::policy::DefaultVerdict::Deny => "denied",
        }
    ));
    for rule in &policy.rules {
        let arguments = match &rule.arguments {
            Some(schema) => format!(" where the arguments fit {}", schema.source()),
            None => String::new(),
        };
        let only = match rule.only.as_ref().map(Only::lines) {
            Some(lines) if lines.is_empty() => ", under which nothing may be touched".to_owned(),
            Some(lines) => format!(", under which only this may be touched: {}", escape_text(&lines.join("; "), 1_000)),
            None => String::new(),
        };
        text.push_str(&format!("  - line {}: {} {}{arguments}{only}\n", rule.line, rule.verdict, rule.tool));
    }
    text
}
