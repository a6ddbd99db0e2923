//! `completions`

use clap_complete::Shell;
use serde_json::json;

use super::output::{CliError, Reply};

#[derive(clap::Args)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(args: &Args) -> Result<Reply, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "portcullis", &mut script);
    let script = String::from_utf8(script).map_err(|error| CliError::fault(error.to_string()))?;
    Ok(Reply::new(json!({ "script": script }), script))
}
