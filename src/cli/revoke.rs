//! `revoke`

use serde_json::json;

use super::context::{Context, local_user};
use super::output::{CliError, Reply};
use crate::ids::GrantId;

#[derive(clap::Args)]
pub struct Args {
    /// The launch grant, as `portcullis grants` lists it
    id: GrantId,
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let journal = context.journal()?;
    match journal.revoke(args.id, &format!("command line: {}", local_user()))? {
        true => Ok(Reply::new(json!({ "id": args.id }), format!("Revoked {}. No call will use it again.", args.id))),
        false => Err(CliError::input(format!("there is no grant {} that could be revoked", args.id))
            .hint("`portcullis grants --all` lists them")),
    }
}
