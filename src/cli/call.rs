//! `call`

use std::io::Read as _;
use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::grants::when;
use super::launch::Launch;
use super::output::{CliError, Problem, Reply, bold, bullets, dim, note};
use super::progress::{Running, Spinner};
use super::prompt::Terminal;
use crate::approval::{LeftBehind, Route};
use crate::call::Repeated;
use crate::gate::Word;
use crate::gate::codes::Code;
use crate::host::{Host, Outcome, Report, RunOptions, is_thread_name};
use crate::ids::{OperationId, Principal};
use crate::journal::Sync;
use crate::journal::record::Change;
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
    /// Where nobody answers at once, wait for the ticket's answer instead of coming back with the ticket
    #[arg(long)]
    wait: bool,
    /// The thread that the call belongs to: its tools keep state under this name from run to run
    #[arg(long, value_name = "NAME", value_parser = thread)]
    thread: Option<String>,
    /// Freeze the clock and seed the randomness by the call, so that an equal call comes out the same
    #[arg(long)]
    deterministic: bool,
    /// Present this operation once more, with the same tool and arguments: the same result, and never a second effect
    #[arg(long, value_name = "RUN/STEP/CALL", conflicts_with = "thread")]
    operation: Option<OperationId>,
    /// Also show the guest's standard error, its backtrace, and what its handles did
    #[arg(long)]
    verbose: bool,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let arguments = read_arguments(&args.args)?;
    let host = context.host()?;
    let running = Running::start(format!("running {}", args.tool));
    let options = RunOptions {
        routes: routes(&host, &running),
        wait: args.wait,
        thread: args.thread.clone(),
        deterministic: args.deterministic,
        ..args.launch.options()?
    };
    let cancel = until_interrupted();
    if let Some(operation) = args.operation {
        let call = (args.tool.as_str(), arguments.as_slice());
        let outcome = host.repeat(Principal::Local, options, operation, call, &cancel).await;
        running.end();
        return match outcome? {
            Repeated::Outcome(outcome) => Ok(acknowledging(context, &host, args.verbose, outcome)),
            Repeated::Different(state) => {
                let message = format!(
                    "the operation is on record and {state}, and cannot be told to be this call: tool or arguments are \
                     others, or the tool is not as it was"
                );
                Err(CliError::input(message).hint("`portcullis audit --run RUN` shows what is known of it"))
            }
            Repeated::Unknown => Err(CliError::input("no such operation of yours is on record")
                .hint("unless its record was pruned, nothing of it has run: make the call without `--operation`")),
        };
    }
    let run = host.start(Principal::Local, options).await?;
    if run.explain(&args.tool, &arguments)?.evaluation.verdict != Word::Deny && !run.is_prepared(&args.tool) {
        let _spinner = Spinner::start(format!("compiling the package of {}", args.tool));
        // What does not compile is a denial with its reason, which the call itself says.
        let _ = run.prepare(&args.tool).await;
    }
    let outcome = run.call_text(&args.tool, &arguments, &cancel).await;
    running.end();
    Ok(acknowledging(context, &host, args.verbose, outcome?))
}

/// What became of a call, for who made it: when the result was printed, its caller has it.
fn acknowledging(context: &Context, host: &Host, verbose: bool, outcome: Outcome) -> Reply {
    let operation = outcome.operation();
    let journal = host.journal().clone();
    let after = move || drop(journal.commit_now(Change::Acknowledge(operation), Sync::Committed));
    Reply { after: Some(Box::new(after)), ..reply(context, verbose, outcome) }
}

fn thread(name: &str) -> Result<String, &'static str> {
    if is_thread_name(name) { Ok(name.to_owned()) } else { Err("1 to 256 bytes, and no control characters") }
}

/// Cancelled by Ctrl-C.
pub fn until_interrupted() -> CancellationToken {
    let cancel = CancellationToken::new();
    let on_interrupt = cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.cancel();
        }
    });
    cancel
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
            RouteName::Ticket => Arc::new(LeftBehind) as Arc<dyn Route>,
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

/// What became of a call.
pub fn reply(context: &Context, verbose: bool, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Done(output) => {
            if verbose && !context.json {
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
            if verbose && !context.json {
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
            problem(failure.code, failure.text, hint, details)
        }
        Outcome::Blocked(blocked) => {
            let denial = blocked.denial;
            let details = json!({ "operation": blocked.operation.to_string(), "carries": denial.carries });
            problem(denial.code, denial.reason, denial.hint, details)
        }
        Outcome::Awaiting(awaiting) => {
            let until = when(awaiting.until);
            let result = json!({
                "ticket": awaiting.ticket, "until": until, "operation": awaiting.operation.to_string(),
                "reason": awaiting.reason,
            });
            let message = format!(
                "a human must allow this call: {}; it waits as the ticket {} until {until}",
                awaiting.reason, awaiting.ticket
            );
            let mut hint =
                format!("`portcullis approve {0}` runs it, `portcullis deny {0}` refuses it", awaiting.ticket);
            if let Some(lines) = awaiting.hint {
                hint.push_str(&format!("\nto run such calls without asking:\n{lines}"));
            }
            let problem = Problem { code: awaiting.carries, exit: 4, message, hint: Some(hint), details: json!({}) };
            Reply { problem: Some(problem), ..Reply::new(result, "") }
        }
        Outcome::Indeterminate(known) => {
            let effects: Vec<String> =
                known.effects.iter().map(|effect| format!("- {} {}", effect.kind, effect.target)).collect();
            let hint =
                (!effects.is_empty()).then(|| format!("its handles are known to have done\n{}", effects.join("\n")));
            let details = json!({ "operation": known.operation.to_string(), "effects": known.effects });
            problem(known.code, known.text, hint, details)
        }
    }
}

fn problem(code: Code, message: String, hint: Option<String>, details: serde_json::Value) -> Reply {
    let problem = Problem { code: Some(code), exit: code.exit(), message, hint, details };
    Reply { problem: Some(problem), ..Reply::silent() }
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
    let mut last = format!("operation {}", report.operation);
    if let (Some(elapsed), Some(cpu)) = (report.elapsed, report.cpu) {
        last.push_str(&format!(" · {elapsed:?} · cpu {cpu:?}"));
    }
    text.push_str(&dim(&last));
    note(&text);
}

/// A value for people, as `call` prints it.
pub fn value_text(value: &serde_json::Value) -> String {
    view::text(value)
}
