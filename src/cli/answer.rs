//! `approve` and `deny`

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::call;
use super::context::{Context, local_user};
use super::output::{CliError, Reply, note};
use super::pending;
use crate::approval::LeftBehind;
use crate::call::AnswerError;
use crate::gate::codes::Code;
use crate::host::Host;
use crate::ids::TicketId;
use crate::journal::ticket::Answered;
use crate::journal::{CallState, TicketError};

/// How long a call that was allowed may take to go on, before something is said.
const PATIENCE: Duration = Duration::from_secs(3);

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
        && let (CallState::Awaiting { .. }, Some(kept)) = (record.state, &record.ticket)
        && !context.json
    {
        note(&pending::describe(&record, kept));
    }
    let cancel = call::until_interrupted();
    let outcome = tokio::select! {
        biased;
        outcome = host.answer(args.ticket, true, answered(args), &cancel) => outcome,
        never = tell_of_waiting(&host, args.ticket) => match never {},
    };
    // Who made the call is yet to get the result: that it was shown here acknowledges nothing.
    Ok(call::reply(context, false, outcome.map_err(|error| refused(&host, args.ticket, error))?))
}

/// After a while, tells of a call that was allowed and that nobody goes on with.
async fn tell_of_waiting(host: &Host, ticket: TicketId) -> Infallible {
    tokio::time::sleep(PATIENCE).await;
    if let Ok(Some(record)) = host.journal().ticket(ticket)
        && matches!(record.state, CallState::Awaiting { .. })
    {
        note(
            "allowed, and waiting for the process that made the call to go on with it; Ctrl-C waits no longer and takes nothing back",
        );
    }
    std::future::pending().await
}

/// Says no.
pub async fn deny(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let host = context.host()?;
    let outcome = host.answer(args.ticket, false, answered(args), &call::until_interrupted()).await;
    outcome.map_err(|error| refused(&host, args.ticket, error))?;
    let human = format!("Denied {}. The call does not run, nor does an equal one of its run.", args.ticket);
    Ok(Reply::new(json!({ "ticket": args.ticket }), human))
}

fn answered(args: &Args) -> Answered {
    let note = args.note.clone().filter(|note| !note.is_empty());
    Answered { route: LeftBehind::NAME.to_owned(), who: local_user(), note, at: SystemTime::now() }
}

fn refused(host: &Host, ticket: TicketId, error: AnswerError) -> CliError {
    match error {
        AnswerError::Host(error) => error.into(),
        AnswerError::Changed(_) => {
            let hint = "where the package is as it was again, the ticket can be answered; `portcullis update` accepts it as it is \
                        now, and then the call has to be made again";
            CliError::denied(Code::PackageChanged, format!("{ticket}: {error}")).hint(hint)
        }
        AnswerError::Ticket(TicketError::Expired) => {
            CliError::denied(Code::TicketExpired, format!("{ticket}: the ticket has expired"))
        }
        AnswerError::Ticket(TicketError::Unknown) => CliError::input(format!("{ticket}: {}", TicketError::Unknown))
            .hint("`portcullis pending` lists the tickets that wait"),
        AnswerError::Ticket(error) => {
            let mut message = format!("{ticket}: {error}");
            let mut details = json!({});
            if let Ok(Some(record)) = host.journal().ticket(ticket) {
                let code = record.code.map(|code| format!(" ({code})")).unwrap_or_default();
                message.push_str(&format!("; the call {} is {}{code}", record.operation, record.state.as_str()));
                details = json!({
                    "operation": record.operation.to_string(), "state": record.state.as_str(), "call": record.code,
                });
            }
            let hint = "`portcullis pending` lists the tickets that wait, and `portcullis audit --run RUN` what became of others";
            CliError { details: Box::new(details), ..CliError::input(message) }.hint(hint)
        }
    }
}
