//! `policy check` and `policy suggest`

use serde_json::{Value as Json, json};

use super::context::Context;
use super::output::{CliError, Reply, bold, dim, yellow};
use crate::approval::suggest::suggest;
use crate::publication::review::review;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Warn of rules that never match, that others stand before, or that allow more than they seem to; and of grants of
    /// authority that a package never asked for
    Check,
    /// Propose rules that past answers would justify, to read and paste
    Suggest(Suggest),
}

#[derive(clap::Args)]
struct Suggest {
    /// From what humans answered to asks
    #[arg(long, required = true)]
    from_audit: bool,
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    match &args.command {
        Command::Check => check(context),
        Command::Suggest(_) => suggestions(context),
    }
}

fn check(context: &Context) -> Result<Reply, CliError> {
    // A configuration that is only looked at need not be trusted.
    let (file, _) = context.read_config()?;
    let config = file.parse()?;
    let snapshot = context.snapshot(&file, &config)?;
    let warnings = review(&file.path, &config, &snapshot);
    let rules = config.policy.rules.len();
    let mut human = String::new();
    for it in &warnings {
        let place = format!("{}:{}", it.file.display(), it.line);
        human.push_str(&format!("{}: {place}: {}\n  {} {}\n", yellow("warning"), it.message, dim("hint:"), it.hint));
    }
    human.push_str(&match warnings.len() {
        0 => format!("{rules} rules, nothing to warn of."),
        count => format!("{rules} rules, {count} warnings."),
    });
    Ok(Reply::new(json!({ "rules": rules, "warnings": warnings }), human))
}

fn suggestions(context: &Context) -> Result<Reply, CliError> {
    let host = context.host()?;
    let past = host.journal().past_answers().map_err(|error| CliError::fault(error.to_string()))?;
    let published = host.published();
    let suggestions = suggest(&past, &published.config, &published.snapshot);
    let mut human = String::new();
    for it in &suggestions {
        human.push_str(&format!("{}\n", bold(&format!("{}, {}", it.tool, it.scope))));
        human.push_str(&format!("  {} {} said yes to\n", dim("justified by"), calls(it.answers)));
        human.push_str(&format!("  {} {}\n\n", dim("would also allow"), it.also));
        human.push_str(&format!("{}\n\n", it.rule));
    }
    if suggestions.is_empty() {
        human.push_str(&format!(
            "{} on record, and none that a new rule would spare.",
            match past.len() {
                0 => "No answer is".to_owned(),
                1 => "1 answer is".to_owned(),
                count => format!("{count} answers are"),
            }
        ));
    }
    Ok(Reply::new(Json::Array(suggestions.iter().map(|it| json!(it)).collect()), human))
}

fn calls(count: usize) -> String {
    if count == 1 { "1 call that a human".to_owned() } else { format!("{count} different calls that a human") }
}
