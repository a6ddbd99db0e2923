//! `serve`

use super::context::Context;
use super::output::{CliError, Reply};
use crate::gate::policy::ToolGlob;
use crate::host::RunOptions;
use crate::ids::Principal;
use crate::mcp;

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
    let visible = (!args.tools.is_empty()).then(|| args.tools.clone());
    // Standard input belongs to the protocol, so this surface has no terminal to ask on.
    let run = host.start(Principal::Local, RunOptions { visible, ..RunOptions::default() }).await?;
    if !args.tools.is_empty() && !run.snapshot().tools().any(|(id, _)| run.shows(id)) {
        return Err(CliError::input("`--tools` matches no tool").hint("`portcullis list --json` names every tool"));
    }
    mcp::serve_stdio(run).await?;
    // Whatever is printed here would be read as part of the protocol.
    std::process::exit(0);
}
