//! `pending`

use serde_json::{Value as Json, json};

use super::context::Context;
use super::grants::when;
use super::output::{CliError, Reply, bold, bullets, dim};
use crate::authority::Authority;
use crate::journal::record::{CallRecord, TicketRecord};
use crate::text::escape_text;

/// Most characters of one argument that are shown.
const ARGUMENT_MAX: usize = 400;

pub fn run(context: &Context) -> Result<Reply, CliError> {
    let journal = context.recovered_journal()?;
    let now = std::time::SystemTime::now();
    let mut human = String::new();
    let mut list = Vec::new();
    for record in journal.waiting()? {
        let Some(kept) = record.ticket.as_ref().filter(|kept| now < kept.ticket.deadline) else { continue };
        human.push_str(&describe(&record, kept));
        human.push('\n');
        list.push(json(&record, kept));
    }
    if list.is_empty() {
        human.push_str("No call waits for an answer.");
    } else {
        human.push_str("`portcullis approve TICKET` and `portcullis deny TICKET` answer one.");
    }
    Ok(Reply::new(Json::Array(list), human))
}

/// A waiting call, for a human to judge.
pub fn describe(record: &CallRecord, kept: &TicketRecord) -> String {
    let ticket = &kept.ticket;
    let mut text = format!("{}  {}\n", bold(&ticket.id.to_string()), record.tool);
    let fields: Vec<String> = record
        .arguments
        .as_ref()
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{}: {}", escape_text(name, 100), escape_text(&value.to_string(), ARGUMENT_MAX)))
        .collect();
    text.push_str(&format!("  {}\n{}", dim("arguments"), indented(&bullets(&fields, "none"))));
    text.push_str(&format!("  {}\n{}", dim("would get"), indented(&bullets(&handles(record, kept), "nothing"))));
    text.push_str(&format!("  {} {}\n", dim("why"), escape_text(&kept.reason, 1_000)));
    let plugin = record.plugin.as_ref().map(|plugin| format!(" for the plugin {}", escape_text(plugin, 100)));
    let asked = format!(
        "asked by {}{} in the run {}, since {}, until {}",
        record.principal,
        plugin.unwrap_or_default(),
        record.operation.run,
        when(ticket.asked),
        when(ticket.deadline),
    );
    text.push_str(&format!("  {}\n", dim(&asked)));
    if let Some(answer) = &ticket.answer {
        let who = escape_text(&answer.who, 100);
        text.push_str(&format!("  {}\n", dim(&format!("allowed by {who} at {}, and not run yet", when(answer.at)))));
    }
    text
}

/// What the call would get, as the ticket has it: nobody can have changed that.
fn handles(record: &CallRecord, kept: &TicketRecord) -> Vec<String> {
    Authority::restore(&kept.shown).map_or_else(|| record.handles.clone(), |shown| shown.lines())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn json(record: &CallRecord, kept: &TicketRecord) -> Json {
    let ticket = &kept.ticket;
    json!({
        "ticket": ticket.id,
        "tool": record.tool,
        "arguments": record.arguments,
        "handles": handles(record, kept),
        "reason": kept.reason,
        "principal": record.principal.to_string(),
        "plugin": record.plugin,
        "run": record.operation.run.to_string(),
        "operation": record.operation.to_string(),
        "since": when(ticket.asked),
        "until": when(ticket.deadline),
        "approved": ticket.answer.as_ref().map(|answer| json!({
            "who": answer.who, "route": answer.route, "note": answer.note, "at": when(answer.at),
        })),
    })
}
