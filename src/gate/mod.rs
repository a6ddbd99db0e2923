//! Who decides? Every source votes on every call, none short-circuits, and the most restrictive verdict wins.
//!
//! `evaluate` is pure: all that it knows comes in as `Facts`. What comes out is data, until
//! `Evaluation::into_verdict` seals an allow into a `Permit`.

pub mod codes;
mod permit;
pub mod policy;

use std::fmt;
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::authority::Authority;
use crate::ids::{CallDigest, OperationId, PackageDigest, ToolId};
use codes::Code;
pub use permit::{PERMIT_LIFETIME, Permit, PermitError};
use policy::{PolicyVote, RuleVerdict, ToolPolicy};

/// The outcome of a decision.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// Run it, once.
    Allow(Permit),
    /// Do not run it.
    Deny(Denial),
    /// A human must say.
    Confirm(Confirmation),
}

/// Why a call was not run, for the model and for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The stable code.
    pub code: Code,
    /// A sentence that the model may read.
    pub reason: String,
    /// For the operator only: what would change the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A question to a human: this call, with this authority.
#[derive(Clone, Debug)]
pub struct Confirmation {
    call: CallDigest,
    authority: Authority,
    reason: String,
    hint: String,
}

impl Confirmation {
    /// The call that is asked about.
    pub fn call(&self) -> CallDigest {
        self.call
    }

    /// The handles that this call would get.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Why a human is asked.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// For the operator: the lines that would make the call run without asking.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// A human's yes to exactly this call with exactly this authority.
    pub fn accept(&self, route: &'static str, who: String) -> Answer {
        Answer { call: self.call, shown: self.authority.clone(), route, who }
    }
}

/// A human's yes. It answers an ask, never a deny, and for no other call.
#[derive(Clone, Debug)]
pub struct Answer {
    call: CallDigest,
    shown: Authority,
    route: &'static str,
    who: String,
}

impl Answer {
    /// The route that the answer came by.
    pub fn route(&self) -> &'static str {
        self.route
    }

    /// Who answered.
    pub fn who(&self) -> &str {
        &self.who
    }
}

/// One source of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Source {
    Visibility,
    Registry,
    Narrowing,
    Arguments,
    Policy,
    Enforceability,
    Human,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Visibility => "visibility",
            Self::Registry => "registry",
            Self::Narrowing => "narrowing",
            Self::Arguments => "arguments",
            Self::Policy => "host policy",
            Self::Enforceability => "enforceability",
            Self::Human => "human",
        })
    }
}

/// What one source says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vote {
    /// Who.
    pub source: Source,
    /// What; abstains where its input is missing or it has no objection.
    pub ballot: Ballot,
    /// In words.
    pub reason: String,
    /// For the operator: what would change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kinds of vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ballot {
    /// No objection, or nothing to say.
    Abstain,
    /// Allow.
    Allow,
    /// Ask a human.
    Ask,
    /// Deny, with the code.
    Deny(Code),
}

/// Whether exactly one implementation of a tool exists.
#[derive(Clone, Debug)]
pub(crate) enum Availability {
    /// Yes: this one.
    One(PackageDigest),
    /// There is none, and why.
    Unavailable(String),
    /// More than one.
    Ambiguous(String),
    /// There is one, and it is not the one that was published.
    Changed,
}

/// All that a decision knows.
pub(crate) struct Facts<'a> {
    pub tool: &'a ToolId,
    pub visible: bool,
    pub registry: Option<Availability>,
    /// What the run leaves.
    pub narrowing: &'a Authority,
    /// The canonical arguments, or what is wrong with them; none where the tool is not known.
    pub arguments: Option<Result<&'a Json, String>>,
    /// What the package declares, the host configured and the ceiling leaves.
    pub configured: Option<&'a Authority>,
    pub policy: Option<&'a ToolPolicy>,
    /// The axes that the executor cannot enforce here, in words.
    pub unenforceable: Option<String>,
    pub answer: Option<&'a Answer>,
    /// Of the exact call; none where the arguments are invalid.
    pub call: Option<CallDigest>,
}

/// The votes on one call and what follows from them.
#[derive(Debug)]
pub struct Evaluation {
    votes: Vec<Vote>,
    authority: Authority,
    call: Option<CallDigest>,
}

/// Lets every source vote. Pure, and the same for a real call, a resume and `explain`.
pub(crate) fn evaluate(facts: &Facts<'_>) -> Evaluation {
    let mut votes = vec![visibility(facts), registry(facts), narrowing(facts), arguments(facts)];
    let canonical = match &facts.arguments {
        Some(Ok(canonical)) => Some(*canonical),
        _ => None,
    };
    let mut authority = facts.configured.map_or_else(Authority::none, |configured| configured.meet(facts.narrowing));
    match (facts.policy, canonical) {
        (Some(policy), Some(canonical)) => {
            let vote = policy.vote(canonical);
            let before = authority.clone();
            authority = authority.meet(&vote.only);
            votes.push(policy_vote(facts.tool, &vote, canonical, &before));
        }
        _ => votes.push(abstain(Source::Policy, "the call is not known well enough to match rules")),
    }
    votes.push(match &facts.unenforceable {
        Some(what) => deny(Source::Enforceability, Code::Unenforceable, what.clone(), None),
        None => abstain(Source::Enforceability, "every granted axis can be enforced"),
    });
    let answered = facts.answer.filter(|answer| Some(answer.call) == facts.call);
    votes.push(match answered {
        Some(answer) => {
            authority = authority.meet(&answer.shown);
            Vote {
                source: Source::Human,
                ballot: Ballot::Allow,
                reason: format!("{} said yes to this exact call ({})", answer.who, answer.route),
                hint: None,
            }
        }
        None => abstain(Source::Human, "nobody was asked about this exact call"),
    });
    Evaluation { votes, authority, call: facts.call }
}

impl Evaluation {
    /// Every source's vote, in the order of DESIGN's table.
    pub fn votes(&self) -> &[Vote] {
        &self.votes
    }

    /// What the call would get.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The deciding vote: the most restrictive one, and the first of its kind. A human's allow answers an ask.
    pub fn deciding(&self) -> Option<&Vote> {
        let first = |wanted: fn(&Ballot) -> bool| self.votes.iter().find(|vote| wanted(&vote.ballot));
        if let Some(denied) = first(|ballot| matches!(ballot, Ballot::Deny(_))) {
            return Some(denied);
        }
        let human = self.votes.iter().find(|vote| vote.source == Source::Human && vote.ballot == Ballot::Allow);
        match first(|ballot| *ballot == Ballot::Ask) {
            Some(ask) => human.or(Some(ask)),
            None => first(|ballot| *ballot == Ballot::Allow),
        }
    }

    /// Seals the verdict. Without an allow there is no permit: silence denies.
    pub(crate) fn into_verdict(self, operation: OperationId, now: Instant) -> Verdict {
        let deciding = self.deciding().cloned();
        match (deciding, self.call) {
            (Some(Vote { ballot: Ballot::Deny(code), reason, hint, .. }), _) => {
                Verdict::Deny(Denial { code, reason, hint })
            }
            (Some(Vote { ballot: Ballot::Ask, reason, hint, .. }), Some(call)) => {
                let hint = hint.unwrap_or_default();
                Verdict::Confirm(Confirmation { call, authority: self.authority, reason, hint })
            }
            (Some(Vote { ballot: Ballot::Allow, .. }), Some(call)) => {
                Verdict::Allow(Permit::seal(call, operation, self.authority, now))
            }
            _ => Verdict::Deny(Denial {
                code: Code::ToolDenied,
                reason: "no source allows this call".to_owned(),
                hint: None,
            }),
        }
    }

    /// The verdict as a word.
    pub fn verdict_word(&self) -> &'static str {
        match self.deciding().map(|vote| vote.ballot) {
            Some(Ballot::Allow) => "allow",
            Some(Ballot::Ask) => "ask",
            _ => "deny",
        }
    }

    /// As data, for `explain --json`.
    pub fn to_json(&self) -> Json {
        json!({
            "verdict": self.verdict_word(),
            "votes": self.votes,
            "authority": self.authority.to_json(),
        })
    }
}

fn abstain(source: Source, reason: &str) -> Vote {
    Vote { source, ballot: Ballot::Abstain, reason: reason.to_owned(), hint: None }
}

fn deny(source: Source, code: Code, reason: String, hint: Option<String>) -> Vote {
    Vote { source, ballot: Ballot::Deny(code), reason, hint }
}

fn visibility(facts: &Facts<'_>) -> Vote {
    match facts.visible {
        true => abstain(Source::Visibility, "the run's snapshot shows the tool"),
        false => deny(
            Source::Visibility,
            Code::ToolNotVisible,
            if facts.tool.is_known() {
                format!("the tool `{}` is not among the tools of this run", facts.tool)
            } else {
                "a tool is named package/function, or package/interface.function".to_owned()
            },
            Some("`portcullis list` names the packages, `portcullis show PACKAGE` their functions; `expose` and `--tools` hide some".to_owned()),
        ),
    }
}

fn registry(facts: &Facts<'_>) -> Vote {
    let package = facts.tool.package();
    match &facts.registry {
        None => abstain(Source::Registry, "the tool is not visible, so no package was looked for"),
        Some(Availability::One(digest)) => Vote {
            source: Source::Registry,
            ballot: Ballot::Abstain,
            reason: format!("one package provides it, sha256 {}", digest.short()),
            hint: None,
        },
        Some(Availability::Unavailable(why)) => deny(
            Source::Registry,
            Code::ToolUnavailable,
            format!("the package `{package}` cannot be used: {why}"),
            Some(format!("`portcullis show {package}` tells more; `portcullis update {package}` pins what is there")),
        ),
        Some(Availability::Ambiguous(why)) => deny(
            Source::Registry,
            Code::ToolAmbiguous,
            format!("more than one implementation claims `{}`: {why}", facts.tool),
            Some(format!("hide one of them with `expose` under [tools.{package}]")),
        ),
        Some(Availability::Changed) => deny(
            Source::Registry,
            Code::PackageChanged,
            format!("the package `{package}` is not the one that was published"),
            Some(format!(
                "`portcullis show {package} --diff` shows what is different; `portcullis update {package}` pins what is there now"
            )),
        ),
    }
}

fn narrowing(facts: &Facts<'_>) -> Vote {
    if facts.narrowing.denies_all() || facts.configured.is_some_and(Authority::denies_all) {
        return deny(
            Source::Narrowing,
            Code::ToolsDisabled,
            "this run was started with all tools disabled".to_owned(),
            None,
        );
    }
    abstain(Source::Narrowing, "the run does not disable tools")
}

fn arguments(facts: &Facts<'_>) -> Vote {
    match &facts.arguments {
        None => abstain(Source::Arguments, "the tool is not known, so its arguments have no types"),
        Some(Ok(_)) => abstain(Source::Arguments, "the arguments fit the tool's types"),
        Some(Err(what)) => deny(
            Source::Arguments,
            Code::ArgumentsInvalid,
            what.clone(),
            Some(format!("`portcullis show {} --json` prints the schema", facts.tool.package())),
        ),
    }
}

fn policy_vote(tool: &ToolId, vote: &PolicyVote, arguments: &Json, configured: &Authority) -> Vote {
    let places = || {
        vote.rules.iter().map(|rule| format!("`{}` at line {}", rule.tool, rule.line)).collect::<Vec<_>>().join(", ")
    };
    let missed: Vec<String> =
        vote.rules.iter().filter_map(|rule| rule.only.as_ref()).flat_map(|only| only.misses(arguments)).collect();
    let missed = if missed.is_empty() { String::new() } else { format!("; but {}", missed.join(", ")) };
    let why =
        vote.rules.iter().find_map(|rule| rule.reason.as_deref()).map(|why| format!(": {why}")).unwrap_or_default();
    let by_default = vote.rules.is_empty();
    match vote.verdict {
        RuleVerdict::Allow => Vote {
            source: Source::Policy,
            ballot: Ballot::Allow,
            reason: format!("allowed by the rule {}{missed}", places()),
            hint: None,
        },
        RuleVerdict::Ask => Vote {
            source: Source::Policy,
            ballot: Ballot::Ask,
            reason: if by_default {
                format!("no rule matches `{tool}` with these arguments, and the default is to ask")
            } else {
                format!("the rule {} asks{why}{missed}", places())
            },
            // A rule that allows would not win over an equal one that asks.
            hint: Some(if by_default {
                suggestion(tool, arguments, configured)
            } else {
                format!("the rule is {}; set its `verdict` to \"allow\" there", places())
            }),
        },
        RuleVerdict::Deny if by_default => deny(
            Source::Policy,
            Code::ToolDenied,
            format!("no rule allows `{tool}` with these arguments, and the default is to deny"),
            Some(suggestion(tool, arguments, configured)),
        ),
        RuleVerdict::Deny => deny(
            Source::Policy,
            Code::ToolDenied,
            format!("a rule of this host denies `{tool}` with these arguments{why}"),
            Some(format!("the rule is {}; a deny wins over every allow, so change or remove it there", places())),
        ),
    }
}

/// The lines of configuration that would allow this call, as narrow as its arguments make it.
fn suggestion(tool: &ToolId, arguments: &Json, configured: &Authority) -> String {
    let mut parts = Vec::new();
    let names_where = |test: &dyn Fn(&str) -> bool| -> Vec<String> {
        arguments
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| value.as_str().is_some_and(test))
            .map(|(name, _)| format!("\"{{{name}}}\""))
            .collect()
    };
    if !configured.files.is_nothing() {
        let named = names_where(&|text| text.parse().is_ok_and(|path| configured.files.access(&path).is_some()));
        let folders = || configured.files.mounts().iter().map(|m| format!("\"{}/**\"", m.guest)).collect();
        let entries = if named.is_empty() { folders() } else { named };
        parts.push(format!("files = [{}]", entries.join(", ")));
    }
    if !configured.http.is_nothing() {
        let named = names_where(&|text| text.parse::<crate::authority::url_pattern::NormalUrl>().is_ok());
        if !named.is_empty() {
            parts.push(format!("http = [{}]", named.join(", ")));
        }
    }
    let only = if parts.is_empty() { String::new() } else { format!("\nonly = {{ {} }}", parts.join(", ")) };
    format!("[[policy.rules]]\ntool = \"{tool}\"\nverdict = \"allow\"{only}")
}
