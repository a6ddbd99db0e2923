//! `audit`: what was decided and what happened, and whether the records are as they were written.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::context::Context;
use super::grants::when;
use super::output::{CliError, Reply, bold, dim, green, print, print_exact, red};
use crate::gate::codes::Code;
use crate::gate::policy::ToolGlob;
use crate::ids::{OperationId, RunId};
use crate::journal::chain::{Finding, Head, Linked, verify};
use crate::journal::record::{Applied, Authorization, Change, Fact, History, Prune, Pruned};
use crate::journal::{Journal, JournalError, Sync, millis, time};
use crate::text::{clean_line, escape_text};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    filters: Filters,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check that no authorization record was edited, removed or reordered
    Verify(Verify),
    /// Print how many authorization records were written, and the link of the last: keep it elsewhere, and `verify --head` finds a
    /// cut tail
    Head,
}

#[derive(clap::Args)]
struct Verify {
    /// What `audit head` printed before: the records must still lead there
    #[arg(long, value_name = "HEAD")]
    head: Option<Head>,
}

#[derive(clap::Args)]
struct Filters {
    /// Of one run
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// Of the tools that match
    #[arg(long, value_name = "GLOB")]
    tool: Option<ToolGlob>,
    /// With one reason code, such as TOOL_DENIED
    #[arg(long, value_name = "CODE")]
    code: Option<Code>,
    /// From this time on: a day or time in UTC (RFC 3339), or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<SystemTime>,
    /// The configuration history instead: who published, trusted and granted what
    #[arg(long, conflicts_with_all = ["run", "tool", "code", "follow"])]
    configuration: bool,
    /// Go on with what is written from now on
    #[arg(long, short)]
    follow: bool,
}

/// A time, or how long ago.
fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(ago).ok_or_else(|| "it lies before all records".to_owned());
    }
    let day = || humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    humantime::parse_rfc3339_weak(text).or_else(|_| day()).map_err(|_| {
        "a day or time such as 2026-01-31 or 2026-01-31T12:00:00Z, in UTC, or how long ago, such as 90m, 2h or 7d"
            .to_owned()
    })
}

/// How often the records are looked at again.
const PERIOD: Duration = Duration::from_millis(200);
/// How many records are read at once.
const PAGE: usize = 1_000;

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    match &args.command {
        Some(Command::Verify(verify)) => check(&context.journal()?, verify.head.as_ref()),
        Some(Command::Head) => {
            let head = head(&context.journal()?)?;
            let json = json!({ "count": head.count, "link": hex::encode(head.link), "head": head.to_string() });
            Ok(Reply { exact: true, ..Reply::new(json, head.to_string()) })
        }
        None if args.filters.configuration => configuration(&context.journal()?, &args.filters, context.json),
        None => records(&context.recovered_journal()?, &args.filters, context.json).await,
    }
}

/// Every authorization record behind a number, page by page.
struct Pages<'j> {
    journal: &'j Journal,
    behind: u64,
    page: VecDeque<Linked>,
}

impl Iterator for Pages<'_> {
    type Item = Result<Linked, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() {
            match self.journal.authorizations(self.behind, PAGE) {
                Ok(page) => self.page = page.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        let linked = self.page.pop_front()?;
        self.behind = linked.number;
        Some(Ok(linked))
    }
}

fn pages(journal: &Journal) -> Pages<'_> {
    Pages { journal, behind: 0, page: VecDeque::new() }
}

fn head(journal: &Journal) -> Result<Head, CliError> {
    match find(journal, None)? {
        Finding::Whole(head) | Finding::Pruned(head) => Ok(head),
        Finding::Broken { number, what } => Err(broken(number, what)),
    }
}

fn find(journal: &Journal, kept: Option<&Head>) -> Result<Finding, CliError> {
    let checkpoint = journal.checkpoint()?;
    Ok(verify(journal.chain(), journal.id(), checkpoint.as_ref(), pages(journal), kept)?)
}

fn broken(number: u64, what: &str) -> CliError {
    let message = format!("the authorization records are not what was written: number {number}: {what}");
    CliError { exit: 6, details: Box::new(json!({ "number": number })), ..CliError::input(message) }
        .hint("what comes before it holds; compare with a backup, and look who could write to the state folder")
}

fn check(journal: &Journal, kept: Option<&Head>) -> Result<Reply, CliError> {
    let (head, is_before) = match find(journal, kept)? {
        Finding::Whole(head) => (head, false),
        Finding::Pruned(head) => (head, true),
        Finding::Broken { number, what } => return Err(broken(number, what)),
    };
    let checkpoint = journal.checkpoint()?;
    let pruned = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.head.count);
    let are = |count: u64, were: &str| match count {
        1 => format!("1 authorization record {}", were.replace("are", "is").replace("they were", "it was")),
        count => format!("{count} authorization records {were}"),
    };
    let mut human = format!("{}.", are(head.count.saturating_sub(pruned), "are as they were written"));
    if let Some(checkpoint) = &checkpoint {
        human.push_str(&format!(
            " {pruned} before them were pruned at {} by {}, and a signed checkpoint stands for those.",
            when(time(checkpoint.at)),
            escape_text(&checkpoint.by, 100)
        ));
    }
    match (kept, is_before) {
        (None, _) => human.push_str(" That none is missing at the end shows only with `--head`."),
        (Some(_), false) => human.push_str(" They lead from the given head to the last."),
        (Some(kept), true) => {
            let message = format!(
                "the given head is that of record {}, and all up to {pruned} were pruned since: it can be held against nothing",
                kept.count
            );
            return Err(CliError::input(message).hint(
                "`portcullis audit verify` without it checks what is left, and `audit head` prints a head to keep",
            ));
        }
    }
    let json = json!({
        "count": head.count, "pruned": pruned, "head": head.to_string(), "against_head": kept.map(Head::to_string),
    });
    Ok(Reply::new(json, human))
}

fn configuration(journal: &Journal, filters: &Filters, as_json: bool) -> Result<Reply, CliError> {
    let mut shown = 0;
    for entry in journal.history()? {
        if !filters.is_in_time(entry.at) {
            continue;
        }
        shown += 1;
        let History { at, who, what, detail } = entry;
        if as_json {
            let line =
                json!({ "record": "configuration", "at": when(time(at)), "who": who, "what": what, "detail": detail });
            print_exact(&line.to_string())?;
        } else {
            let who = escape_text(&who, 100);
            let detail = escape_text(&detail.to_string(), 400);
            print(&format!("{}  {}  {who}  {}", dim(&when(time(at))), bold(&what), dim(&detail)))?;
        }
    }
    Ok(nothing(shown, as_json))
}

/// What is said where no record matched: lines are for programs, which see that for themselves.
fn nothing(shown: u64, as_json: bool) -> Reply {
    if shown > 0 || as_json { Reply::printed() } else { Reply::new(json!([]), "No record matches.") }
}

impl Filters {
    fn is_in_time(&self, at: u64) -> bool {
        self.since.is_none_or(|since| at >= millis(since)) && self.until.is_none_or(|until| at <= millis(until))
    }

    fn wants(&self, at: u64, operation: &str, tool: &str, code: Option<&str>) -> bool {
        let run = |wanted: &RunId| operation.parse::<OperationId>().is_ok_and(|operation| operation.run == *wanted);
        let tool = |glob: &ToolGlob| tool.parse().is_ok_and(|tool| glob.matches(&tool));
        self.is_in_time(at)
            && self.run.as_ref().is_none_or(run)
            && self.tool.as_ref().is_none_or(tool)
            && self.code.is_none_or(|wanted| code == Some(wanted.as_str()))
    }
}

/// One line of the merged records.
enum Line {
    Decided(u64, Box<Authorization>),
    Ended(Box<Fact>),
    /// A record that cannot be read, which is told and stops nothing.
    Malformed(u64),
}

/// Every run fact behind a number, page by page.
struct Facts<'j> {
    journal: &'j Journal,
    behind: u64,
    page: VecDeque<(u64, Fact)>,
}

impl Iterator for Facts<'_> {
    type Item = Result<Fact, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() {
            match self.journal.facts(self.behind, PAGE) {
                Ok(page) => self.page = page.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        let (number, fact) = self.page.pop_front()?;
        self.behind = number;
        Some(Ok(fact))
    }
}

/// Shows decisions and ends in the order of their times, and where following goes on with what comes.
async fn records(journal: &Journal, filters: &Filters, as_json: bool) -> Result<Reply, CliError> {
    let mut decided = pages(journal);
    let mut ended = Facts { journal, behind: 0, page: VecDeque::new() };
    let mut shown = 0;
    loop {
        let version = journal.version()?;
        let mut at = 0;
        let (mut next_decided, mut next_ended) = (decided.next().transpose()?, ended.next().transpose()?);
        loop {
            let record = next_decided.as_ref().map(|linked| serde_json::from_str::<Authorization>(&linked.record));
            at = match &record {
                Some(Ok(record)) => record.at,
                _ => at,
            };
            let is_fact = match (&record, &next_ended) {
                (None, None) => break,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(_), Some(fact)) => fact.at < at,
            };
            if is_fact {
                if let Some(fact) = next_ended.take()
                    && filters.wants(fact.at, &fact.operation, &fact.tool, fact.code.as_deref())
                {
                    shown += 1;
                    show(Line::Ended(Box::new(fact)), as_json)?;
                }
                next_ended = ended.next().transpose()?;
                continue;
            }
            let number = next_decided.as_ref().map_or(0, |linked| linked.number);
            match record {
                Some(Ok(record)) => {
                    if filters.wants(record.at, &record.operation, &record.tool, record.code.as_deref()) {
                        shown += 1;
                        show(Line::Decided(number, Box::new(record)), as_json)?;
                    }
                }
                _ => {
                    shown += 1;
                    show(Line::Malformed(number), as_json)?;
                }
            }
            next_decided = decided.next().transpose()?;
        }
        if !filters.follow {
            return Ok(nothing(shown, as_json));
        }
        while journal.version()? == version {
            tokio::time::sleep(PERIOD).await;
        }
    }
}

fn show(line: Line, as_json: bool) -> Result<(), CliError> {
    if as_json {
        let line = match line {
            Line::Decided(number, record) => {
                let mut line = json!(record);
                line["record"] = json!("authorization");
                line["number"] = json!(number);
                line["at"] = json!(when(time(record.at)));
                line
            }
            Line::Ended(fact) => {
                let mut line = json!(fact);
                line["record"] = json!("fact");
                line["at"] = json!(when(time(fact.at)));
                line
            }
            Line::Malformed(number) => json!({ "record": "malformed", "number": number }),
        };
        return print_exact(&line.to_string());
    }
    let text = match line {
        Line::Decided(_, record) => {
            let mut text = format!("{}  ", dim(&when(time(record.at))));
            let event = match record.event.as_str() {
                "allow" => green("allowed"),
                "refuse" => red("refused"),
                "ask" => bold("asked"),
                "answer" => bold("answered"),
                "join" => bold("joined"),
                other => bold(other),
            };
            text.push_str(&format!("{event}  {}", escape_text(&record.tool, 200)));
            let mut more = Vec::new();
            more.extend(record.code.clone());
            more.extend(record.reason.as_deref().map(|reason| clean_line(reason, 200)));
            more.extend(record.basis.as_deref().map(|basis| format!("by {}", escape_text(basis, 100))));
            more.extend(record.ticket.clone());
            more.extend(record.note.as_deref().map(|note| format!("“{}”", clean_line(note, 200))));
            if !more.is_empty() {
                text.push_str(&format!("  {}", more.join(" · ")));
            }
            text.push_str(&format!("  {}", dim(&record.operation)));
            text
        }
        Line::Ended(fact) => {
            let effects: Vec<String> = fact
                .effects
                .as_array()
                .into_iter()
                .flatten()
                .take(3)
                .filter_map(|effect| Some(format!("{} {}", effect["kind"].as_str()?, effect["target"].as_str()?)))
                .collect();
            let mut more: Vec<String> = fact.code.iter().cloned().collect();
            more.extend(effects.iter().map(|effect| escape_text(effect, 120)));
            let more = if more.is_empty() { String::new() } else { format!("  {}", more.join(" · ")) };
            format!(
                "{}  {}  {}{more}  {}",
                dim(&when(time(fact.at))),
                bold(&fact.state),
                escape_text(&fact.tool, 200),
                dim(&fact.operation)
            )
        }
        Line::Malformed(number) => red(&format!("the authorization record {number} is malformed")),
    };
    print(&text)
}

/// What `prune` takes.
#[derive(clap::Args)]
pub struct PruneArgs {
    /// Calls with their results that ended longer ago than this, such as 30d
    #[arg(long, value_name = "AGE", value_parser = age)]
    facts: Option<Duration>,
    /// Authorization records older than this, up to the first of a call that still waits; a signed checkpoint stands for them
    #[arg(long, value_name = "AGE", value_parser = age)]
    authorizations: Option<Duration>,
    /// Configuration history older than this, but for what is in force: what is published and trusted, which packages are
    /// installed, and the grants that hold
    #[arg(long, value_name = "AGE", value_parser = age)]
    configuration: Option<Duration>,
}

fn age(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "an age is a number and a unit, such as 12h, 30d or 1y")
}

pub fn prune(context: &Context, args: &PruneArgs) -> Result<Reply, CliError> {
    let now = SystemTime::now();
    let before = |age: Option<Duration>| age.map(|age| now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH));
    if args.configuration.is_none() && args.authorizations.is_none() && args.facts.is_none() {
        let error = CliError::input("nothing was said of what is to be pruned");
        return Err(error.hint("for example `portcullis prune --facts 30d --authorizations 365d`"));
    }
    let journal = context.journal()?;
    let prune = Prune {
        at: now,
        by: format!("command line: {}", super::context::local_user()),
        living: journal.living(),
        configuration: before(args.configuration),
        authorizations: before(args.authorizations),
        facts: before(args.facts),
    };
    // In pieces, so that others get in between.
    let mut all = Pruned::default();
    while let Applied::Pruned(pruned) = journal.commit_now(Change::Prune(prune.clone()), Sync::Durable)? {
        if pruned == Pruned::default() {
            break;
        }
        all.facts += pruned.facts;
        all.authorizations += pruned.authorizations;
        all.configuration += pruned.configuration;
    }
    let human = format!(
        "Pruned {} calls, {} authorization records and {} entries of the configuration history.",
        all.facts, all.authorizations, all.configuration
    );
    Ok(Reply::new(json!(all), human))
}
