//! `inspect`

use std::path::PathBuf;

use serde_json::json;

use super::output::{CliError, Reply, bold};
use super::{add, portrait};
use crate::descriptor::compare::Portrait;

#[derive(clap::Args)]
pub struct Args {
    /// The component file
    file: PathBuf,
    /// Compare with an older version: what breaks its callers
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Reply, CliError> {
    let package = add::read(&args.file)?;
    let mut result = portrait::json(&package);
    let mut human = portrait::human(&package);
    if let Some(old) = &args.against {
        let old = add::read(old)?;
        let changes = Portrait::of(&old.component).changes(&Portrait::of(&package.component));
        human.push_str(&format!("\n{}\n{}", bold("Against the older version"), portrait::changes(&changes)));
        result["against"] = json!({ "sha256": old.digest, "changes": changes });
    }
    Ok(Reply::new(result, human))
}
