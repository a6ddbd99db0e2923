//! Results to standard output, everything else to standard error.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value as Json, json};

use crate::gate::codes::Code;
use crate::host::HostError;
use crate::journal::JournalError;
use crate::publication::config::ConfigError;
use crate::registry::PackageError;
use crate::text::for_terminal;

/// What a command has to say.
pub struct Reply {
    /// Under `result`.
    pub json: Json,
    /// For people; nothing is printed where it is empty.
    pub human: String,
    /// Whether `human` is a value, to be printed as it is where no terminal shows it.
    pub exact: bool,
    /// What stands in the way of plain success.
    pub problem: Option<Problem>,
    /// Whether all there is to say was printed already.
    pub printed: bool,
    /// What is to be done when all was printed, and only then.
    pub after: Option<Box<dyn FnOnce() + Send>>,
}

/// A call that was blocked, failed or waits: a result, and no success.
pub struct Problem {
    /// None for a call that simply waits.
    pub code: Option<Code>,
    pub exit: u8,
    pub message: String,
    pub hint: Option<String>,
    pub details: Json,
}

impl Reply {
    pub fn new(json: Json, human: impl Into<String>) -> Self {
        Self { json, human: human.into(), exact: false, problem: None, printed: false, after: None }
    }

    /// A command that has said all it has to say.
    pub fn silent() -> Self {
        Self::new(Json::Null, "")
    }

    /// A command that has printed line by line.
    pub fn printed() -> Self {
        Self { printed: true, ..Self::silent() }
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct CliError {
    pub exit: u8,
    /// The reason code, where it is one of a call's.
    pub code: Option<Code>,
    pub message: String,
    /// File and line, where there is one.
    pub place: Option<String>,
    pub hint: Option<String>,
    /// More, for `--json`: an object, or null.
    pub details: Box<Json>,
}

impl CliError {
    /// Usage, configuration or arguments.
    pub fn input(message: impl Into<String>) -> Self {
        Self { exit: 2, code: None, message: message.into(), place: None, hint: None, details: Box::new(Json::Null) }
    }

    /// A fault of the host.
    pub fn fault(message: impl Into<String>) -> Self {
        Self { exit: 6, ..Self::input(message) }
    }

    /// What a call would be refused for.
    pub fn denied(code: Code, message: impl Into<String>) -> Self {
        Self { exit: code.exit(), code: Some(code), ..Self::input(message) }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let place = match error.line {
            Some(line) => format!("{}:{line}", error.file.display()),
            None => error.file.display().to_string(),
        };
        Self { place: Some(place), hint: error.hint, ..Self::input(error.message) }
    }
}

impl From<PackageError> for CliError {
    fn from(error: PackageError) -> Self {
        let hint = error.hint().map(str::to_owned);
        Self { hint, ..Self::input(error.to_string()) }
    }
}

impl From<HostError> for CliError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Config(error) => error.into(),
            HostError::Launch(error) => {
                let code = error.problems.first().map_or(Code::ToolDenied, |problem| problem.code);
                let list: Vec<String> =
                    error.problems.iter().map(|problem| format!("\n  - {}: {}", problem.code, problem.what)).collect();
                let message = format!("the run cannot start, and nothing has run{}", list.concat());
                Self { details: Box::new(json!({ "problems": error.problems })), ..Self::denied(code, message) }
            }
            other => Self::fault(other.to_string()),
        }
    }
}

impl From<JournalError> for CliError {
    fn from(error: JournalError) -> Self {
        HostError::from(error).into()
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::fault(error.to_string())
    }
}

/// Prints a reply.
pub fn succeed(as_json: bool, reply: Reply) -> ExitCode {
    match say(as_json, reply) {
        Ok(exit) => ExitCode::from(exit),
        Err(error) => fail(as_json, &error),
    }
}

/// Nothing that comes after is done where nobody could be told.
fn say(as_json: bool, reply: Reply) -> Result<u8, CliError> {
    let code = reply.problem.as_ref().and_then(|problem| problem.code);
    let exit = reply.problem.as_ref().map_or(0, |problem| problem.exit);
    if reply.printed {
        return Ok(exit);
    }
    if as_json {
        let error = reply.problem.map(|problem| {
            let mut error = json!({ "message": problem.message, "hint": problem.hint });
            if let (Some(error), Json::Object(details)) = (error.as_object_mut(), problem.details) {
                error.extend(details);
            }
            error
        });
        print_exact(&json!({ "ok": error.is_none(), "code": code, "result": reply.json, "error": error }).to_string())?;
    } else {
        if !reply.human.is_empty() {
            let print = if reply.exact { print_exact } else { print };
            print(reply.human.trim_end_matches('\n'))?;
        }
        if let Some(problem) = &reply.problem {
            let message = match problem.code {
                Some(code) => format!("{code}: {}", problem.message),
                None => problem.message.clone(),
            };
            report(&message, None, problem.hint.as_deref());
        }
    }
    if let Some(after) = reply.after {
        after();
    }
    Ok(exit)
}

/// Prints an error.
pub fn fail(as_json: bool, error: &CliError) -> ExitCode {
    let is_told = as_json && {
        let mut said = json!({ "message": error.message, "place": error.place, "hint": error.hint });
        if let (Some(said), Json::Object(details)) = (said.as_object_mut(), &*error.details) {
            said.extend(details.clone());
        }
        print_exact(&json!({ "ok": false, "code": error.code, "result": null, "error": said }).to_string()).is_ok()
    };
    // Where standard output cannot be written, that is told as well.
    if !is_told && !error.message.is_empty() {
        let code = error.code.map(|code| format!("{code}: ")).unwrap_or_default();
        report(&format!("{code}{}", error.message), error.place.as_deref(), error.hint.as_deref());
    }
    ExitCode::from(error.exit)
}

fn report(message: &str, place: Option<&str>, hint: Option<&str>) {
    let mut text = format!("{}: ", bold_red("error"));
    if let Some(place) = place {
        text.push_str(&format!("{place}: "));
    }
    text.push_str(message);
    if let Some(hint) = hint {
        text.push_str(&format!("\n\n{}: {}", bold_cyan("hint"), indent_after_first(hint)));
    }
    note(&text);
}

fn indent_after_first(text: &str) -> String {
    if text.contains('\n') { format!("\n  {}", text.replace('\n', "\n  ")) } else { text.to_owned() }
}

/// A line of results.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout();
    written(writeln!(out, "{}", for_terminal(text)).and_then(|()| out.flush()))
}

/// A result exactly as it is, for whoever reads it by a pipe; on a terminal, made safe to show.
pub fn print_exact(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout();
    if out.is_terminal() { print(text) } else { written(writeln!(out, "{text}").and_then(|()| out.flush())) }
}

/// Whoever closed the pipe has read enough, and needs no words for it.
fn written(result: std::io::Result<()>) -> Result<(), CliError> {
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::fault(""),
        _ => CliError::fault(format!("standard output cannot be written: {error}")),
    })
}

/// A line of everything else.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{}", for_terminal(text));
}

pub fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

pub fn dim(text: &str) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

pub fn green(text: &str) -> String {
    format!("\x1b[32m{text}\x1b[0m")
}

pub fn red(text: &str) -> String {
    format!("\x1b[31m{text}\x1b[0m")
}

pub fn yellow(text: &str) -> String {
    format!("\x1b[33m{text}\x1b[0m")
}

fn bold_red(text: &str) -> String {
    format!("\x1b[1;31m{text}\x1b[0m")
}

fn bold_cyan(text: &str) -> String {
    format!("\x1b[1;36m{text}\x1b[0m")
}

/// A list with a dash before each line; `nothing` where it is empty.
pub fn bullets(lines: &[String], nothing: &str) -> String {
    if lines.is_empty() {
        return format!("  {nothing}\n");
    }
    // One line stays one line, whoever wrote it.
    lines.iter().map(|line| format!("  - {}\n", line.replace('\n', "\\n"))).collect()
}
