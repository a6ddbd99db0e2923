//! `explain`

use serde_json::json;

use super::call::read_arguments;
use super::context::Context;
use super::launch::Launch;
use super::output::{CliError, Reply, bold, bullets, dim, green, red, yellow};
use crate::call::Explanation;
use crate::gate::{Ballot, Word};
use crate::ids::Principal;
use crate::publication::PublishedTool;
use crate::registry::edit;

#[derive(clap::Args)]
pub struct Args {
    /// The tool, PACKAGE/FUNCTION
    tool: String,
    /// The arguments: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    args: String,
    #[command(flatten)]
    launch: Launch,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let arguments = read_arguments(&args.args)?;
    let run = context.host()?.start(Principal::Local, args.launch.options()?).await?;
    let explanation = run.explain(&args.tool, &arguments)?;
    let mut result = explanation.evaluation.to_json();
    result["tool"] = json!(args.tool);
    result["arguments"] = json!(explanation.arguments);
    let mut text = human(&args.tool, &explanation);
    if let Some(tool) = run.snapshot().tool(&explanation.tool) {
        text.push_str(&ungranted(tool));
    }
    Ok(Reply::new(result, text))
}

/// Every vote, the verdict, and what the call would get.
pub fn human(tool: &str, explanation: &Explanation) -> String {
    let evaluation = &explanation.evaluation;
    let mut text = format!("{}\n", bold(tool));
    if let Some(arguments) = &explanation.arguments {
        let shown = crate::text::escape_text(&arguments.to_string(), 500);
        text.push_str(&format!("{} {shown}\n", dim("canonical arguments")));
    }
    text.push('\n');
    for vote in &evaluation.votes {
        let ballot = match vote.ballot {
            Ballot::Abstain => dim("abstains"),
            Ballot::Allow => green("allow   "),
            Ballot::Ask => yellow("ask     "),
            Ballot::Deny(_) => red("deny    "),
        };
        let code = match (vote.ballot, vote.carries) {
            (Ballot::Deny(code), _) | (_, Some(code)) => format!(" {code}:"),
            _ => String::new(),
        };
        text.push_str(&format!("  {:<14} {ballot}{code} {}\n", vote.source.to_string(), vote.reason));
    }
    let verdict = match evaluation.verdict {
        Word::Allow => green("allow"),
        Word::Ask => yellow("ask"),
        Word::Deny => red("deny"),
    };
    text.push_str(&format!("\n{} {verdict}\n", bold("Verdict")));
    if evaluation.verdict != Word::Deny {
        let limits: Vec<String> =
            evaluation.authority.limits.named().into_iter().map(|(n, v)| format!("{n} {v}")).collect();
        text.push_str(&format!(
            "{}\n{}",
            bold("This call would get"),
            bullets(&evaluation.authority.lines(), "no handle: it could touch nothing")
        ));
        text.push_str(&format!("  {} {}\n", dim("limits"), limits.join(", ")));
    }
    if let Some(hint) = evaluation.hint() {
        text.push_str(&format!("\n{}\n  {}\n", bold("What would change it"), hint.replace('\n', "\n  ")));
    }
    text
}

/// What the package says it needs and the configuration does not grant at all.
fn ungranted(tool: &PublishedTool) -> String {
    let Some(needs) = tool.package.component.needs.as_ref().and_then(|record| record.get("needs")) else {
        return String::new();
    };
    let lines: Vec<String> = edit::grants(needs)
        .into_iter()
        .filter(|line| match line.split(' ').next() {
            Some("files") => tool.ceiling.files.lines().is_empty(),
            Some("http") => tool.ceiling.http.lines().is_empty(),
            _ => false,
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let package = tool.descriptor.id.package();
    format!(
        "\n{}\n  {}\n",
        bold("What it says it needs and is not granted"),
        format!("[tools.{package}]\n{}", lines.join("\n")).replace('\n', "\n  ")
    )
}
