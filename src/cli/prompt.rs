//! The terminal as a route. Sceptical: what others wrote is escaped and capped, typed-ahead input is drained, and a missing
//! terminal is a no.

use std::io::{IsTerminal as _, stderr, stdin};

use dialoguer::Confirm;

use super::output::{bold, bullets, dim, note};
use super::progress::Running;
use crate::approval::{Question, Reply, Route};
use crate::text::{clean_line, escape_text};

/// Most characters of arguments that are shown.
const ARGUMENTS_MAX: usize = 2_000;
/// Most characters of the tool's own words that are shown.
const CLAIM_MAX: usize = 300;

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
        let running = self.running.clone();
        let answered = tokio::task::spawn_blocking(move || {
            running.pause(|| {
                note(&text);
                confirm("Run this call, once?")
            })
        });
        let who = rustix::process::getuid().as_raw().to_string();
        match answered.await {
            Ok(true) => Reply::Yes { who },
            Ok(false) => Reply::No { who },
            Err(_) => Reply::Nobody,
        }
    }
}

fn describe(question: &Question<'_>) -> String {
    let mut text = format!("\n{}\n", bold(&format!("{} asks to run", question.tool)));
    text.push_str(&format!(
        "{}\n  {}\n",
        dim("arguments"),
        escape_text(&question.arguments.to_string(), ARGUMENTS_MAX)
    ));
    text.push_str(&format!("{}\n{}", dim("would get"), bullets(&question.authority.lines(), "nothing")));
    text.push_str(&format!("{}\n  {}\n", dim("why you are asked"), question.reason));
    if let Some(claim) = question.claim {
        text.push_str(&format!(
            "{}\n  “{}”\n",
            dim("the tool says of itself (unchecked)"),
            clean_line(claim, CLAIM_MAX)
        ));
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
            tool: &"a/b".parse().unwrap(),
            claim: Some("harmless\u{1b}[2J\nRun this call, once? yes"),
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
