//! The command line: one file per command.
#![allow(missing_docs, reason = "an internal part of the binary; its help texts are its documentation")]
#![allow(clippy::disallowed_methods, reason = "commands work with files that the user named")]

mod add;
mod answer;
mod audit;
mod build;
mod call;
mod cargo;
mod completions;
mod consent;
mod context;
mod demo;
mod explain;
mod grant;
mod grants;
mod init;
mod inspect;
mod launch;
mod list;
mod new;
mod output;
mod pending;
mod policy;
mod portrait;
mod progress;
mod prompt;
mod remove;
mod revoke;
mod secret;
mod serve;
mod show;
mod trust;
mod update;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use context::Context;
use output::{CliError, Reply};

#[derive(Parser)]
#[command(name = "portcullis", version, about, disable_help_subcommand = true)]
struct Cli {
    /// The configuration file; otherwise PORTCULLIS_CONFIG, or portcullis.toml here or above, if it is trusted
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Another folder for the host's state than the user's own
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print one JSON object per result
    #[arg(long, global = true)]
    json: bool,
    /// What to log to standard error: off, error, warn, info, debug, trace
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn")]
    log: tracing_subscriber::filter::LevelFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Walk through a session on the example tools
    Demo(demo::Args),
    /// Write a commented portcullis.toml
    Init(init::Args),
    /// Accept a configuration file that was found, after showing what it grants
    Trust(trust::Args),
    /// Install a package: shows what it wants, then pins it
    Add(add::Args),
    /// Pin a package as it is now: shows what is different
    Update(update::Args),
    /// Remove a package
    Remove(remove::Args),
    /// List what is installed
    List,
    /// Show one package: what it declares, what it is granted, its tools
    Show(show::Args),
    /// Show what a component is and wants, without installing it
    Inspect(inspect::Args),
    /// Make one call through the gate
    Call(call::Args),
    /// Show every source's vote on a call, and what it would get, running nothing
    Explain(explain::Args),
    /// Read the whole policy and warn of what it may not mean; propose rules from past answers
    Policy(policy::Args),
    /// Permit one exact call beforehand, once and for five minutes: prints a token
    Consent(consent::Args),
    /// Give a launch grant: calls of a tool that run without asking
    Grant(grant::Args),
    /// List launch grants
    Grants(grants::Args),
    /// Take a launch grant back
    Revoke(revoke::Args),
    /// List the calls that wait for an answer
    Pending,
    /// Let a call that waits run, and print what it comes to
    Approve(answer::Args),
    /// Refuse a call that waits
    Deny(answer::Args),
    /// Keep, list and remove credentials; no value is ever shown
    Secret(secret::Args),
    /// Show what was decided and what happened; check the records
    Audit(audit::Args),
    /// Remove old records, each kind by its own age
    Prune(audit::PruneArgs),
    /// Serve the tools to an MCP client
    Serve(serve::Args),
    /// Make a project for a new tool
    New(new::Args),
    /// Build the tool in this folder, or add documentation and needs to any component
    Build(build::Args),
    /// Print completions for a shell
    Completions(completions::Args),
}

/// The groups of the help. Every command stands in exactly one; a test says so.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start here", &["demo", "init", "trust"]),
    ("Packages", &["add", "update", "remove", "list", "show", "inspect"]),
    ("Calls", &["call", "explain", "serve"]),
    ("Who may call what", &["policy", "pending", "approve", "deny", "consent", "grant", "grants", "revoke", "secret"]),
    ("What happened", &["audit", "prune"]),
    ("For tool authors", &["new", "build"]),
    ("Other", &["completions"]),
];

/// The command with its subcommands listed by group.
fn command() -> clap::Command {
    let command = Cli::command();
    let about = |name: &str| {
        command.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let mut listing = String::new();
    for (title, names) in GROUPS {
        listing.push_str(&format!("\x1b[1m\x1b[4m{title}:\x1b[0m\n"));
        for name in names {
            listing.push_str(&format!("  \x1b[1m{name:<12}\x1b[0m {}\n", about(name)));
        }
        listing.push('\n');
    }
    listing.push_str(
        "\x1b[1m\x1b[4mExit status:\x1b[0m\n  0 done   1 the tool's own error   2 usage, configuration or arguments   3 denied\n  \
         4 a human's answer is needed   5 a limit, trap or cancellation   6 fault of the host",
    );
    command
        .help_template(
            "{about-with-newline}\n{usage-heading} {usage}\n{after-help}\n\n\x1b[1m\x1b[4mOptions:\x1b[0m\n{options}",
        )
        .after_help(listing)
}

/// Parses, runs, and says how it went.
pub fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") => {
            let text = error.render().to_string();
            let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            return output::fail(true, &CliError::input(message));
        }
        Err(error) => error.exit(),
    };
    start_log(cli.log, cli.json);
    let json = cli.json;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::fail(json, &CliError::fault(format!("no runtime: {error}"))),
    };
    let ended = runtime.block_on(run(cli));
    // A read of standard input that never ends must not keep the process.
    runtime.shutdown_background();
    match ended {
        Ok(reply) => output::succeed(json, reply),
        Err(error) => output::fail(json, &error),
    }
}

async fn run(cli: Cli) -> Result<Reply, CliError> {
    let context = Context { config: cli.config, state: cli.state, json: cli.json };
    match cli.command {
        Command::Demo(args) => demo::run(&context, args).await,
        Command::Init(args) => init::run(&context, &args),
        Command::Trust(args) => trust::run(&context, &args),
        Command::Add(args) => add::run(&context, &args).await,
        Command::Update(args) => update::run(&context, &args).await,
        Command::Remove(args) => remove::run(&context, &args),
        Command::List => list::run(&context),
        Command::Show(args) => show::run(&context, &args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Call(args) => call::run(&context, &args).await,
        Command::Explain(args) => explain::run(&context, &args).await,
        Command::Policy(args) => policy::run(&context, &args),
        Command::Consent(args) => consent::run(&context, &args).await,
        Command::Grant(args) => grant::run(&context, &args),
        Command::Grants(args) => grants::run(&context, &args),
        Command::Revoke(args) => revoke::run(&context, &args),
        Command::Pending => pending::run(&context),
        Command::Approve(args) => answer::approve(&context, &args).await,
        Command::Deny(args) => answer::deny(&context, &args).await,
        Command::Secret(args) => secret::run(&context, &args).await,
        Command::Audit(args) => audit::run(&context, &args).await,
        Command::Prune(args) => audit::prune(&context, &args),
        Command::Serve(args) => serve::run(&context, &args).await,
        Command::New(args) => new::run(&args),
        Command::Build(args) => build::run(&args).await,
        Command::Completions(args) => completions::run(&args),
    }
}

/// To standard error, as text or, beside results as JSON, as JSON lines.
fn start_log(level: tracing_subscriber::filter::LevelFilter, as_json: bool) {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    let _ = if as_json {
        builder.json().finish().try_init()
    } else {
        builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).finish().try_init()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_exactly_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }
}
