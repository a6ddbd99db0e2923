//! `call`

use std::io::Read as _;
use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::launch::Launch;
use super::output::{CliError, Problem, Reply, bold, bullets, dim, note};
use super::progress::{Running, Spinner};
use super::prompt::Terminal;
use crate::approval::Route;
use crate::gate::Word;
use crate::host::{Host, Outcome, Report, RunOptions};
use crate::ids::Principal;
use crate::mcp::view;
use crate::publication::config::RouteName;
use crate::value::ARGUMENTS_MAX;

#[derive(clap::Args)]
pub struct Args {
    /// The tool, PACKAGE/FUNCTION; `portcullis show PACKAGE` lists the functions
    tool: String,
    /// The arguments: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    args: String,
    #[command(flatten)]
    launch: Launch,
    /// Also show the guest's standard error, its backtrace, and what its handles did
    #[arg(long)]
    verbose: bool,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let arguments = read_arguments(&args.args)?;
    let host = context.host()?;
    let running = Running::start(format!("running {}", args.tool));
    let options = RunOptions { routes: routes(&host, &running), ..args.launch.options()? };
    let run = host.start(Principal::Local, options).await?;
    if run.explain(&args.tool, &arguments)?.evaluation.verdict != Word::Deny && !run.is_prepared(&args.tool) {
        let _spinner = Spinner::start(format!("compiling the package of {}", args.tool));
        // What does not compile is a denial with its reason, which the call itself says.
        let _ = run.prepare(&args.tool).await;
    }
    let cancel = CancellationToken::new();
    let on_interrupt = cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.cancel();
        }
    });
    let outcome = run.call_text(&args.tool, &arguments, &cancel).await;
    running.end();
    let outcome = outcome?;
    Ok(reply(context, args, outcome))
}

/// The routes that the configuration gives to this surface.
fn routes(host: &Host, running: &Running) -> Vec<Arc<dyn Route>> {
    host.published()
        .config
        .routes
        .call
        .iter()
        .map(|name| match name {
            RouteName::Terminal => Arc::new(Terminal { running: running.clone() }) as Arc<dyn Route>,
        })
        .collect()
}

/// Arguments from where the option says.
pub fn read_arguments(text: &str) -> Result<Vec<u8>, CliError> {
    let read = |source: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        source.take(ARGUMENTS_MAX as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    if text == "-" {
        return Ok(read(&mut std::io::stdin().lock())?);
    }
    match text.strip_prefix('@') {
        Some(path) => std::fs::File::open(path)
            .and_then(|mut file| read(&mut file))
            .map_err(|error| CliError::input(format!("`{path}` cannot be read: {error}"))),
        None => Ok(text.as_bytes().to_vec()),
    }
}

fn reply(context: &Context, args: &Args, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Done(output) => {
            if args.verbose && !context.json {
                details(&output.report);
            }
            let human = output.value.as_ref().map(|value| match value.as_str() {
                Some(text) => text.to_owned(),
                None => serde_json::to_string_pretty(value).unwrap_or_default(),
            });
            let json = json!({ "value": output.value, "report": output.report });
            Reply { exact: true, ..Reply::new(json, human.unwrap_or_default()) }
        }
        Outcome::Failed(failure) => {
            if args.verbose && !context.json {
                details(&failure.report);
            }
            let refusals = &failure.report.refusals;
            let hint = (!refusals.is_empty()).then(|| {
                let lines: Vec<String> = refusals.iter().take(5).map(|refusal| format!("- {refusal}")).collect();
                format!("this call had no handle for\n{}", lines.join("\n"))
            });
            let mut details = json!({ "report": failure.report });
            if let Some(value) = failure.value {
                details["value"] = value;
            }
            let problem = Problem { code: failure.code, message: failure.text, hint, details };
            Reply { problem: Some(problem), ..Reply::silent() }
        }
        Outcome::Blocked(blocked) => {
            let denial = blocked.denial;
            let details = json!({ "operation": blocked.operation.to_string(), "carries": denial.carries });
            let problem = Problem { code: denial.code, message: denial.reason, hint: denial.hint, details };
            Reply { problem: Some(problem), ..Reply::silent() }
        }
    }
}

/// What `--verbose` adds, on standard error.
fn details(report: &Report) {
    let mut text =
        format!("{}\n{}", bold("This call had"), bullets(&report.authority, "no handle: it could touch nothing"));
    let effects: Vec<String> =
        report.effects.iter().map(|effect| format!("{} {}", effect.kind, effect.target)).collect();
    text.push_str(&format!("{}\n{}", bold("Its handles did"), bullets(&effects, "nothing")));
    if !report.refusals.is_empty() {
        text.push_str(&format!("{}\n{}", bold("Its handles refused"), bullets(&report.refusals, "nothing")));
    }
    for (name, captured) in [("standard output", &report.stdout), ("standard error", &report.stderr)] {
        if !captured.is_empty() {
            let clean = crate::text::clean_text(captured, 20_000);
            text.push_str(&format!("{}\n{clean}\n", bold(&format!("The guest's {name}"))));
        }
    }
    if let Some(backtrace) = &report.backtrace {
        text.push_str(&format!("{}\n{backtrace}\n", bold("Backtrace")));
    }
    text.push_str(&dim(&format!("operation {} · {:?} · cpu {:?}", report.operation, report.elapsed, report.cpu)));
    note(&text);
}

/// A value for people, as `call` prints it.
pub fn value_text(value: &serde_json::Value) -> String {
    view::text(value)
}
