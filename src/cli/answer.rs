//! `approve` and `deny`

use std::time::SystemTime;

use serde_json::json;

use super::call;
use super::context::{Context, local_user};
use super::output::{CliError, Reply, note};
use super::pending;
use crate::approval::LeftBehind;
use crate::call::AnswerError;
use crate::gate::codes::Code;
use crate::ids::TicketId;
use crate::journal::TicketError;
use crate::journal::ticket::Answered;

#[derive(clap::Args)]
pub struct Args {
    /// The ticket, as `portcullis pending` lists it
    ticket: TicketId,
    /// Why, for the records
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// Says yes. Prints what the call comes to, whoever runs it.
pub async fn approve(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let host = context.host()?;
    if let Some(record) = host.journal().ticket(args.ticket)?
        && let Some(kept) = &record.ticket
        && !context.json
    {
        note(&pending::describe(&record, kept));
    }
    let outcome = host.answer(args.ticket, true, answered(args), &call::until_interrupted()).await;
    let outcome = outcome.map_err(|error| refused(args.ticket, error))?;
    Ok(call::acknowledging(&host, call::reply_of(context, false, outcome)))
}

/// Says no.
pub async fn deny(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let host = context.host()?;
    let outcome = host.answer(args.ticket, false, answered(args), &call::until_interrupted()).await;
    outcome.map_err(|error| refused(args.ticket, error))?;
    let human = format!("Denied {}. The call does not run, nor does an equal one of its run.", args.ticket);
    Ok(Reply::new(json!({ "ticket": args.ticket }), human))
}

fn answered(args: &Args) -> Answered {
    Answered { route: LeftBehind::NAME.to_owned(), who: local_user(), note: args.note.clone(), at: SystemTime::now() }
}

fn refused(ticket: TicketId, error: AnswerError) -> CliError {
    match error {
        AnswerError::Host(error) => error.into(),
        AnswerError::Changed(what) => {
            let hint = "`portcullis update` accepts the package as it is now, and then the call has to be made again";
            CliError::denied(Code::PackageChanged, what).hint(hint)
        }
        AnswerError::Ticket(TicketError::Expired) => {
            CliError::denied(Code::TicketExpired, format!("{ticket}: the ticket has expired"))
        }
        AnswerError::Ticket(error) => {
            CliError::input(format!("{ticket}: {error}")).hint("`portcullis pending` lists the tickets that wait")
        }
    }
}
