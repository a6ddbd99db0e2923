//! The terminal as a route. Sceptical: what others wrote is escaped and capped, typed-ahead input is drained, and a missing
//! terminal is a no.

use std::io::{IsTerminal as _, stderr, stdin};
use std::time::{Duration, SystemTime};

use dialoguer::console::Term;
use dialoguer::{Confirm, Select};
use serde_json::Value as Json;

use super::context::local_user;
use super::output::{bold, bullets, dim, note};
use super::progress::Running;
use crate::approval::scope::Scope;
use crate::approval::{Extent, Question, Reply, Route};
use crate::ids::CapabilityId;
use crate::text::{clean_line, escape_text};

/// Most characters of arguments that are shown.
const ARGUMENTS_MAX: usize = 2_000;
/// Most characters of one of many arguments.
const ARGUMENT_MIN: usize = 100;
/// Most characters of the tool's own words that are shown.
const CLAIM_MAX: usize = 300;
/// Most of the tool's own sentences that are shown.
const HEARSAY_MAX: usize = 3;

/// Asks on the terminal that the command runs on.
pub struct Terminal {
    /// What else may be drawing on it.
    pub running: Running,
}

/// Whether a human can be asked: both what they read and what they type is a terminal.
pub fn is_interactive() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks a question with a yes and a no, no being the default.
pub fn confirm(question: &str) -> bool {
    if !is_interactive() {
        return false;
    }
    // What was typed before the question was seen is no answer to it.
    let _ = rustix::termios::tcflush(stdin(), rustix::termios::QueueSelector::IFlush);
    Confirm::new().with_prompt(question).default(false).interact().unwrap_or(false)
}

#[async_trait::async_trait]
impl Route for Terminal {
    fn name(&self) -> &'static str {
        "terminal"
    }

    async fn ask(&self, question: &Question<'_>) -> Reply {
        if !is_interactive() {
            return Reply::Nobody;
        }
        let text = describe(question);
        let scopes = question.scopes.to_vec();
        let running = self.running.clone();
        // The question may be answered from elsewhere while it stands here: then nobody waits for this answer any more.
        let mut withdrawn = Withdrawn::new();
        let answered = tokio::task::spawn_blocking(move || {
            running.pause(|| {
                note(&text);
                extent(&scopes)
            })
        });
        let who = local_user();
        let answered = answered.await;
        withdrawn.is_answered = true;
        match answered {
            Ok(Some(extent)) => Reply::Yes { who, extent },
            Ok(None) => {
                self.running.end();
                Reply::No { who }
            }
            Err(_) => Reply::Nobody,
        }
    }
}

/// Puts the terminal back as it was before a question that is no longer asked.
struct Withdrawn {
    before: Option<rustix::termios::Termios>,
    is_answered: bool,
}

impl Withdrawn {
    fn new() -> Self {
        Self { before: rustix::termios::tcgetattr(stdin()).ok(), is_answered: false }
    }
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // Whoever still reads a key gets what is typed until the process ends, which is soon.
        if let Some(before) = &self.before {
            let _ = rustix::termios::tcsetattr(stdin(), rustix::termios::OptionalActions::Now, before);
        }
        let _ = Term::stderr().show_cursor();
        note("\n(the question was answered elsewhere, or the call was withdrawn)");
    }
}

/// How far a yes reaches; none is a no. Whatever is not chosen is a no.
fn extent(scopes: &[Scope]) -> Option<Extent> {
    let choices = ["no", "yes, once", "yes, and for this run …", "yes, and from now on: a launch grant …"];
    // Without a scope there is nothing to give a grant for.
    match choose("Run this call", if scopes.is_empty() { &choices[..2] } else { &choices })? {
        1 => Some(Extent::Once),
        2 => Some(Extent::Run(scope(scopes)?)),
        3 => {
            let scope = scope(scopes)?;
            let lifetimes = ["an hour", "a day", "30 days", "until it is revoked"];
            let hours = match choose("For how long", &lifetimes)? {
                0 => Some(1),
                1 => Some(24),
                2 => Some(30 * 24),
                _ => None,
            };
            let expires = hours.map(|hours: u64| SystemTime::now() + Duration::from_secs(hours * 60 * 60));
            Some(Extent::Grant { scope, expires, uses: None })
        }
        _ => None,
    }
}

fn scope(scopes: &[Scope]) -> Option<Scope> {
    let mut text = String::new();
    for scope in scopes {
        text.push_str(&format!("  {}\n    {} {}\n", scope.title, dim("would also allow:"), scope.also));
    }
    note(&text);
    let titles: Vec<&str> = scopes.iter().map(|scope| scope.title.as_str()).collect();
    scopes.get(choose("With which arguments", &titles)?).cloned()
}

/// One of a few choices, the first being the default; none where nothing was chosen.
fn choose(question: &str, choices: &[&str]) -> Option<usize> {
    // What was typed before the question was seen is no answer to it.
    let _ = rustix::termios::tcflush(stdin(), rustix::termios::QueueSelector::IFlush);
    let chosen = Select::new().with_prompt(question).items(choices).default(0).report(true).interact_opt();
    // An interrupted choice leaves the cursor hidden.
    let _ = Term::stderr().show_cursor();
    chosen.ok().flatten()
}

/// Each on a line of its own: a long one cannot push the others out of sight.
fn arguments(arguments: &Json) -> String {
    let fields: Vec<(&String, &Json)> = arguments.as_object().into_iter().flatten().collect();
    if fields.is_empty() {
        return "  none\n".to_owned();
    }
    let most = (ARGUMENTS_MAX / fields.len()).max(ARGUMENT_MIN);
    let line = |(name, value): (&String, &Json)| {
        format!("  {}: {}\n", escape_text(name, 100), escape_text(&value.to_string(), most))
    };
    fields.into_iter().map(line).collect()
}

fn describe(question: &Question<'_>) -> String {
    let mut text = format!("\n{}\n", bold(&format!("{} asks to run", question.tool)));
    if let Some(plugin) = question.plugin {
        text.push_str(&format!("{} {}\n", dim("for the plugin"), escape_text(plugin, 100)));
    }
    if *question.capability != CapabilityId::of_tool(question.tool) {
        text.push_str(&format!("{} {}\n", dim("as the capability"), question.capability));
    }
    text.push_str(&format!("{}\n{}", dim("arguments"), arguments(question.arguments)));
    text.push_str(&format!("{}\n{}", dim("would get"), bullets(&question.authority.lines(), "nothing")));
    text.push_str(&format!("  {}\n", question.risk.words()));
    text.push_str(&format!("{}\n  {}\n", dim("why you are asked"), question.reason));
    text.push_str(&format!("{} {}\n", dim("ticket"), question.ticket));
    if !question.hearsay.is_empty() {
        text.push_str(&format!("{}\n", dim("the tool says of itself (hearsay, unchecked)")));
        for claim in question.hearsay.iter().take(HEARSAY_MAX) {
            text.push_str(&format!("  “{}”\n", clean_line(claim, CLAIM_MAX)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::authority::Authority;
    use crate::authority::files::{Access, FileGrant, FileLayer, Files};
    use crate::authority::path::{Glob, GuestPath};

    #[test]
    fn what_others_wrote_cannot_draw_on_the_terminal() {
        let mut authority = Authority::none();
        let path = "/data/ok\u{1b}[2J\n  - files: read /harmless\u{202e}".parse().unwrap();
        authority.files = Files::of(FileLayer::new([FileGrant {
            only: [Glob::exact(&path)].into(),
            ..FileGrant::new(GuestPath::root(), Access::Read)
        }]));
        let text = describe(&Question {
            ticket: "t-0123456789ab".parse().unwrap(),
            tool: &"a/b".parse().unwrap(),
            run: crate::ids::RunId::random().unwrap(),
            plugin: Some("p\u{1b}[2J"),
            hearsay: &["harmless\u{1b}[2J\nRun this call, once? yes".to_owned(), "y".repeat(5_000)],
            risk: crate::authority::Risk::of(&authority),
            carries: None,
            capability: &"cap".parse().unwrap(),
            scopes: &[],
            arguments: &json!({ "path": "\u{202e}\u{1b}[31mgnp.exe", "zz": "x".repeat(5_000) }),
            authority: &authority,
            reason: "no rule matches",
        });
        let untrusted: String = text.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
        assert!(!untrusted.contains('\x1b') && !untrusted.contains('\u{202e}'), "{untrusted:?}");
        assert!(untrusted.contains("\\u{202e}"));
        assert!(untrusted.len() < 3_500);
        assert!(untrusted.contains("harmless[2J Run this call"));
        assert_eq!(untrusted.lines().filter(|line| line.trim_start().starts_with("- ")).count(), 1, "{untrusted}");
    }
}
