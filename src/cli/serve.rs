//! `serve`

use std::sync::Arc;

use super::context::Context;
use super::output::{CliError, Reply, note};
use crate::approval::{LeftBehind, Route};
use crate::gate::policy::ToolGlob;
use crate::host::{Host, HostError, RunOptions};
use crate::ids::Principal;
use crate::mcp;
use crate::publication::config::RouteName;

#[derive(clap::Args)]
pub struct Args {
    /// Over standard input and output, for a client that starts this program
    #[arg(long, required = true)]
    stdio: bool,
    /// Show only tools that match; may be given more than once
    #[arg(long, value_name = "GLOB")]
    tools: Vec<ToolGlob>,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let host = context.host()?;
    reload_on_hangup(context.clone(), host.clone())?;
    let visible = (!args.tools.is_empty()).then(|| args.tools.clone());
    // Standard input belongs to the protocol, so this surface has no terminal to ask on.
    let ticket = |name: &RouteName| (*name == RouteName::Ticket).then(|| Arc::new(LeftBehind) as Arc<dyn Route>);
    let routes = host.published().config.routes.stdio.iter().filter_map(ticket).collect();
    let run = host.start(Principal::Local, RunOptions { visible, routes, ..RunOptions::default() }).await?;
    if !args.tools.is_empty() && !run.snapshot().tools().any(|(id, _)| run.shows(id)) {
        return Err(CliError::input("`--tools` matches no tool").hint("`portcullis list --json` names every tool"));
    }
    note(&format!("portcullis: serving the run {} for {}", run.id(), Principal::Local));
    mcp::serve_stdio(run).await?;
    // Whatever is printed here would be read as part of the protocol.
    std::process::exit(0);
}

/// Publishes the configuration again on SIGHUP. One that does not load, or is not trusted, changes nothing and says so.
fn reload_on_hangup(context: Context, host: Host) -> Result<(), CliError> {
    let mut hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let (context, host) = (context.clone(), host.clone());
            // Reading and checking packages takes a while, and calls go on meanwhile.
            let reloaded = tokio::task::spawn_blocking(move || {
                let (file, _) = context.trusted_config()?;
                host.republish(&file).map_err(|error: HostError| CliError::from(error))
            });
            note(&match reloaded.await {
                Ok(Ok(())) => "portcullis: the configuration was read again; a new deny holds from now on, a new allow for new runs".to_owned(),
                Ok(Err(error)) => {
                    let place = error.place.map(|place| format!("{place}: ")).unwrap_or_default();
                    format!("portcullis: the configuration was not read again, so nothing has changed: {place}{}", error.message)
                }
                Err(error) => format!("portcullis: the configuration was not read again, so nothing has changed: {error}"),
            });
        }
    });
    Ok(())
}
