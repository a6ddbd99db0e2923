//! Who decides? Every source votes on every call, none short-circuits, and the most restrictive verdict wins.
//!
//! [`evaluate`] is pure: all that it knows comes in as [`Facts`]. What comes out is a [`Decision`], which anybody may look at;
//! only the host can seal an allow into a [`Permit`].
//!
//! | file | holds |
//! |---|---|
//! | [`policy`] | the host's rules |
//! | [`manifest`] | what a workflow or skill declares |
//! | [`grant`], [`consent`] | what answers an ask beforehand |
//! | [`schema`] | JSON Schemas over arguments |
//! | [`codes`] | the reason codes |
//! | `votes` | what each source says, in words |
//! | `permit` | the sealed proof of an allow |

pub mod codes;
pub mod consent;
pub mod grant;
pub mod manifest;
mod permit;
pub mod policy;
pub mod schema;
#[cfg(test)]
mod table;
mod votes;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use serde_json::{Value as Json, json};
use smallvec::SmallVec;

use crate::authority::Authority;
use crate::ids::{
    CallDigest, CapabilityId, ConsentDigest, GrantId, OperationId, PackageDigest, Principal, RunId, ToolId,
};
use codes::Code;
use consent::{Consent, Worth};
use grant::{Miss, StandingGrant};
use manifest::{Capability, ConsentMode, Manifest};
pub use permit::{PERMIT_LIFETIME, Permit, PermitError};
use policy::{PolicyVote, RuleVerdict, ToolPolicy};
pub(crate) use votes::suggestion;

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
    /// What the ask carried, where there was one: that a grant is for this tool and not for this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries: Option<Code>,
    /// For the operator only: what would change the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A question to a human: this call, with this authority.
#[derive(Clone, Debug)]
pub struct Confirmation {
    call: CallDigest,
    authority: Arc<Authority>,
    reason: String,
    carries: Option<Code>,
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

    /// [`Code::GrantScopeMismatch`] where a grant is for this tool and not for this call.
    pub fn carries(&self) -> Option<Code> {
        self.carries
    }

    /// For the operator: the lines that would make the call run without asking.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// A human's yes to exactly this call with exactly this authority.
    pub fn accept(&self, route: &'static str, who: String) -> Answer {
        Answer { call: self.call, shown: self.authority.clone(), route: route.into(), who }
    }
}

/// A human's yes. It answers an ask, never a deny, and for no other call.
#[derive(Clone, Debug)]
pub struct Answer {
    call: CallDigest,
    shown: Arc<Authority>,
    route: Cow<'static, str>,
    who: String,
}

impl Answer {
    /// An answer that was kept with the ticket of exactly this call.
    pub(crate) fn kept(call: CallDigest, shown: Authority, route: String, who: String) -> Self {
        Self { call, shown: Arc::new(shown), route: route.into(), who }
    }

    /// The route that the answer came by.
    pub fn route(&self) -> &Cow<'static, str> {
        &self.route
    }

    /// Who answered.
    pub fn who(&self) -> &str {
        &self.who
    }
}

/// What an allow rests on, for the records; and what it uses up when it is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The host's policy alone.
    Policy,
    /// A launch grant.
    Grant {
        /// Which.
        id: GrantId,
        /// Whether its uses are counted.
        counted: bool,
    },
    /// A consent, which this uses up.
    Consent {
        /// Which.
        token: ConsentDigest,
        /// Who gave it.
        by: String,
    },
    /// A human's answer to this very ask.
    Human {
        /// The way that it came.
        route: Cow<'static, str>,
        /// Whose it is.
        who: String,
    },
}

impl Basis {
    /// Whether committing the allow uses something up.
    pub fn is_spent(&self) -> bool {
        !matches!(self, Self::Policy | Self::Grant { counted: false, .. })
    }

    /// Whether the allow rests on something that can be taken back, so that committing it has to look once more.
    pub fn is_claimed(&self) -> bool {
        matches!(self, Self::Grant { .. } | Self::Consent { .. })
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Grant { id, .. } => write!(f, "grant: {id}"),
            Self::Consent { token, by } => write!(f, "consent: {} of {by}", token.short()),
            Self::Human { route, who } => write!(f, "{route}: {who}"),
        }
    }
}

/// One source of the decision, in the order of the design's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Source {
    Visibility,
    Registry,
    Narrowing,
    Arguments,
    Manifest,
    Policy,
    Enforceability,
    Grant,
    Consent,
    Human,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 10] = [
        Self::Visibility,
        Self::Registry,
        Self::Narrowing,
        Self::Arguments,
        Self::Manifest,
        Self::Policy,
        Self::Enforceability,
        Self::Grant,
        Self::Consent,
        Self::Human,
    ];

    /// Whether the source answers an ask of the others, and says nothing by itself.
    pub fn answers(self) -> bool {
        matches!(self, Self::Grant | Self::Consent | Self::Human)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Visibility => "visibility",
            Self::Registry => "registry",
            Self::Narrowing => "narrowing",
            Self::Arguments => "arguments",
            Self::Manifest => "manifest",
            Self::Policy => "host policy",
            Self::Enforceability => "enforceability",
            Self::Grant => "launch grant",
            Self::Consent => "consent",
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
    /// What an ask carries on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries: Option<Code>,
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
pub enum Availability {
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
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Which tool.
    pub tool: &'a ToolId,
    /// Who asks.
    pub principal: &'a Principal,
    /// In which run.
    pub run: RunId,
    /// For which operation; none where nothing is to run.
    pub operation: Option<OperationId>,
    /// When.
    pub now: SystemTime,
    /// Whether the run shows the tool.
    pub visible: bool,
    /// None where the tool is not known.
    pub registry: Option<&'a Availability>,
    /// What the run and its plugin leave; none leaves everything.
    pub narrowing: Option<&'a Authority>,
    /// The canonical arguments, or what is wrong with them; none where the tool is not known.
    pub arguments: Option<Result<&'a Json, &'a str>>,
    /// What the package declares, the host configured and the ceiling leaves, now and when the run began.
    pub configured: Option<&'a Arc<Authority>>,
    /// What the workflow or skill declares, where the run has one.
    pub manifest: Option<&'a Manifest>,
    /// The newest policy first, then the one that the run began with where it is another.
    pub policies: &'a [&'a ToolPolicy],
    /// The axes that the executor cannot enforce here, in words.
    pub unenforceable: Option<&'a str>,
    /// The launch grants for this tool that the run may use.
    pub grants: &'a [StandingGrant],
    /// The consents that came with the run.
    pub consents: &'a [Consent],
    /// A human's yes.
    pub answer: Option<&'a Answer>,
    /// Whether a human said no to this exact call before, in this run.
    pub refused: bool,
    /// Of the exact call; none where the arguments are invalid.
    pub call: Option<CallDigest>,
}

impl<'a> Facts<'a> {
    fn canonical(&self) -> Option<&'a Json> {
        self.arguments.and_then(Result::ok)
    }
}

/// Every source's ballot on one call, and what follows from them.
#[derive(Debug)]
#[must_use]
pub struct Decision<'a> {
    facts: Facts<'a>,
    ballots: [Ballot; Source::ALL.len()],
    policies: SmallVec<[PolicyVote<'a>; 2]>,
    /// Those of the manifest that the call falls under.
    capabilities: SmallVec<[&'a Capability; 4]>,
    /// The grant that answers, or the first that does not and why.
    grant: Option<Result<&'a StandingGrant, (&'a StandingGrant, Miss)>>,
    /// The consent that answers, or the best of those that do not.
    consent: Option<(&'a Consent, Worth)>,
    authority: Arc<Authority>,
}

/// Lets every source vote. Pure, and the same for a real call, a resume and `explain`.
pub fn evaluate<'a>(facts: &Facts<'a>) -> Decision<'a> {
    let canonical = facts.canonical();
    let capabilities = match (facts.manifest, canonical) {
        (Some(manifest), Some(canonical)) => manifest.matching(facts.tool, canonical),
        _ => SmallVec::new(),
    };
    let policies: SmallVec<[PolicyVote<'a>; 2]> = match canonical {
        Some(canonical) => facts.policies.iter().map(|policy| policy.vote(canonical)).collect(),
        None => SmallVec::new(),
    };
    let mut decision = Decision {
        facts: *facts,
        ballots: [
            visibility(facts),
            registry(facts),
            narrowing(facts),
            arguments(facts),
            manifest(facts, &capabilities),
            policy(&policies),
            facts.unenforceable.map_or(Ballot::Abstain, |_| Ballot::Deny(Code::Unenforceable)),
            Ballot::Abstain,
            Ballot::Abstain,
            Ballot::Abstain,
        ],
        policies,
        capabilities,
        grant: None,
        consent: None,
        authority: nothing(),
    };
    decision.answer();
    decision.authority = decision.left();
    decision
}

fn visibility(facts: &Facts<'_>) -> Ballot {
    if facts.visible { Ballot::Abstain } else { Ballot::Deny(Code::ToolNotVisible) }
}

fn registry(facts: &Facts<'_>) -> Ballot {
    match facts.registry {
        None | Some(Availability::One(_)) => Ballot::Abstain,
        Some(Availability::Unavailable(_)) => Ballot::Deny(Code::ToolUnavailable),
        Some(Availability::Ambiguous(_)) => Ballot::Deny(Code::ToolAmbiguous),
        Some(Availability::Changed) => Ballot::Deny(Code::PackageChanged),
    }
}

fn narrowing(facts: &Facts<'_>) -> Ballot {
    let denies =
        facts.narrowing.is_some_and(Authority::denies_all) || facts.configured.is_some_and(|it| it.denies_all());
    if denies { Ballot::Deny(Code::ToolsDisabled) } else { Ballot::Abstain }
}

fn arguments(facts: &Facts<'_>) -> Ballot {
    match facts.arguments {
        None | Some(Ok(_)) => Ballot::Abstain,
        Some(Err(_)) => Ballot::Deny(Code::ArgumentsInvalid),
    }
}

fn manifest(facts: &Facts<'_>, capabilities: &[&Capability]) -> Ballot {
    let Some(manifest) = facts.manifest else { return Ballot::Abstain };
    match facts.canonical() {
        // Which capability it is cannot be known; that there is none can.
        None if manifest.of_tool(facts.tool).next().is_some() => Ballot::Abstain,
        None => Ballot::Deny(Code::ToolNotDeclared),
        Some(_) => match capabilities.iter().map(|capability| capability.consent).max() {
            None => Ballot::Deny(Code::ToolNotDeclared),
            Some(ConsentMode::AlwaysAsk) => Ballot::Ask,
            Some(ConsentMode::Inherit) => Ballot::Abstain,
        },
    }
}

fn policy(votes: &[PolicyVote<'_>]) -> Ballot {
    match votes.iter().map(PolicyVote::verdict).max() {
        None => Ballot::Abstain,
        Some(RuleVerdict::Allow) => Ballot::Allow,
        Some(RuleVerdict::Ask) => Ballot::Ask,
        Some(RuleVerdict::Deny) => Ballot::Deny(Code::ToolDenied),
    }
}

impl<'a> Decision<'a> {
    /// Whether the other sources ask, and none of them denies: only then is there something to answer.
    fn is_asked(&self) -> bool {
        self.ballots.contains(&Ballot::Ask) && !self.ballots.iter().any(|it| matches!(it, Ballot::Deny(_)))
    }

    /// Lets those vote that answer an ask. One answer is enough, and the others use nothing up: a human's to this very ask
    /// first, then a grant, then a consent.
    fn answer(&mut self) {
        let (true, Some(call), Some(canonical)) = (self.is_asked(), self.facts.call, self.facts.canonical()) else {
            return;
        };
        // A human's no stands for the run, whatever was given beforehand or after it.
        if self.facts.refused {
            self.ballots[Source::Human as usize] = Ballot::Deny(Code::ConsentRefused);
            return;
        }
        if self.facts.answer.is_some_and(|answer| answer.call == call) {
            self.ballots[Source::Human as usize] = Ballot::Allow;
            return;
        }
        self.grant = self.find_grant(canonical);
        if let Some(Ok(_)) = self.grant {
            self.ballots[Source::Grant as usize] = Ballot::Allow;
            return;
        }
        let (principal, operation, now) = (self.facts.principal, self.facts.operation, self.facts.now);
        let worths = self.facts.consents.iter().map(|it| (it, it.worth(principal, &call, operation, now)));
        self.consent = worths.min_by_key(|(_, worth)| *worth);
        self.ballots[Source::Consent as usize] = match self.consent {
            Some((_, Worth::Valid)) => Ballot::Allow,
            Some((_, Worth::Used)) => Ballot::Deny(Code::ConsentUsed),
            Some((_, Worth::Expired)) => Ballot::Deny(Code::ConsentExpired),
            Some((_, Worth::OtherCall)) | None => Ballot::Abstain,
        };
    }

    /// Of several grants that answer: one that is not counted before one that is, then the older, so that the order in which
    /// they come in never matters.
    fn find_grant(&self, canonical: &Json) -> Option<Result<&'a StandingGrant, (&'a StandingGrant, Miss)>> {
        let facts = self.facts;
        let of_tool = CapabilityId::of_tool(facts.tool);
        let capabilities: SmallVec<[&CapabilityId; 4]> = match facts.manifest {
            Some(_) => self.capabilities.iter().map(|capability| &capability.id).collect(),
            None => SmallVec::from_slice(&[&of_tool]),
        };
        let meant = facts.grants.iter().filter(|standing| {
            let grant = &standing.grant;
            grant.tool == *facts.tool
                && grant.principal == *facts.principal
                && grant.run.is_none_or(|run| run == facts.run)
        });
        let judged = meant.map(|standing| match standing.misses(&capabilities, canonical, facts.now) {
            None => Ok(standing),
            Some(miss) => Err((standing, miss)),
        });
        judged.min_by_key(|judged| {
            let (standing, rank) = match judged {
                Ok(standing) => (standing, 0),
                Err((standing, Miss::Arguments)) => (standing, 1),
                Err((standing, _)) => (standing, 2),
            };
            (rank, standing.grant.uses.is_some(), standing.grant.given, standing.grant.id)
        })
    }

    /// The meet of everything that has a say in what the call may touch; nothing where it is denied.
    fn left(&self) -> Arc<Authority> {
        let (Some(configured), Some(canonical)) = (self.facts.configured, self.facts.canonical()) else {
            return nothing();
        };
        if self.ballots.iter().any(|ballot| matches!(ballot, Ballot::Deny(_))) {
            return nothing();
        }
        // Only the policy that a ceiling was compiled with knows what it leaves of it, so the rules come first.
        let mut left = self.policies.iter().fold(configured.clone(), |left, vote| vote.narrow(&left, canonical));
        let mut meet = |with: &Authority| left = Arc::new(left.meet(with));
        if let Some(narrowing) = self.facts.narrowing {
            meet(narrowing);
        }
        if let Some(Ok(standing)) = self.grant
            && let Some(only) = &standing.grant.only
        {
            meet(&only.of(canonical));
        }
        if let Some((consent, Worth::Valid)) = self.consent {
            meet(&consent.shown);
        }
        if let Some(answer) = self.facts.answer.filter(|answer| Some(answer.call) == self.facts.call) {
            meet(&answer.shown);
        }
        left
    }

    /// What the call would get.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// What a source says.
    pub fn ballot(&self, source: Source) -> Ballot {
        self.ballots[source as usize]
    }

    /// The deciding source: the most restrictive, and the first of its kind. An answer's allow stands for the ask that it
    /// answers. None where all abstain.
    pub fn deciding(&self) -> Option<Source> {
        let first = |wanted: fn(Ballot) -> bool| Source::ALL.into_iter().find(|source| wanted(self.ballot(*source)));
        let denied = first(|ballot| matches!(ballot, Ballot::Deny(_)));
        let answered = || Source::ALL.into_iter().find(|it| it.answers() && self.ballot(*it) == Ballot::Allow);
        denied
            .or_else(|| first(|ballot| ballot == Ballot::Ask).map(|asks| answered().unwrap_or(asks)))
            .or_else(|| first(|ballot| ballot == Ballot::Allow))
    }

    /// The verdict without its terms.
    pub fn word(&self) -> Word {
        match self.deciding().map(|source| self.ballot(source)) {
            Some(Ballot::Allow) if self.facts.call.is_some() => Word::Allow,
            Some(Ballot::Ask) if self.facts.call.is_some() => Word::Ask,
            _ => Word::Deny,
        }
    }

    /// What an allow rests on.
    fn basis(&self) -> Basis {
        // A human's yes is on record also where the policy has come to allow the call meanwhile.
        if let Some(answer) = self.facts.answer.filter(|answer| Some(answer.call) == self.facts.call) {
            return Basis::Human { route: answer.route.clone(), who: answer.who.clone() };
        }
        match (self.deciding(), self.grant, self.consent) {
            (Some(Source::Grant), Some(Ok(standing)), _) => {
                Basis::Grant { id: standing.grant.id, counted: standing.grant.uses.is_some() }
            }
            (Some(Source::Consent), _, Some((consent, _))) => {
                Basis::Consent { token: consent.token, by: consent.by.clone() }
            }
            _ => Basis::Policy,
        }
    }

    /// Seals the verdict. Without an allow there is no permit: silence denies.
    pub(crate) fn into_verdict(self, operation: OperationId, now: Instant) -> Verdict {
        match (self.word(), self.facts.call) {
            (Word::Allow, Some(call)) => {
                let basis = self.basis();
                Verdict::Allow(Permit::seal(call, operation, self.authority, basis, now))
            }
            (Word::Ask, Some(call)) => {
                let (reason, carries, hint) = self.question();
                Verdict::Confirm(Confirmation { call, authority: self.authority, reason, carries, hint })
            }
            _ => Verdict::Deny(self.denial()),
        }
    }

    /// As data and in words, for `explain`.
    pub fn explain(&self) -> Evaluation {
        Evaluation {
            verdict: self.word(),
            votes: Source::ALL.into_iter().map(|source| self.vote(source)).collect(),
            deciding: self.deciding(),
            authority: self.authority.clone(),
        }
    }
}

/// A verdict as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Word {
    Allow,
    Ask,
    Deny,
}

impl Word {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The votes on one call, and what it would get.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The outcome.
    pub verdict: Word,
    /// Every source's vote, in the order of the design's table.
    pub votes: Vec<Vote>,
    /// Whose vote decides; none where all abstain, which denies.
    pub deciding: Option<Source>,
    /// What the call would get.
    pub authority: Arc<Authority>,
}

impl Evaluation {
    /// The vote of one source.
    pub fn vote(&self, source: Source) -> &Vote {
        &self.votes[source as usize]
    }

    /// What would change the answer, for the operator.
    pub fn hint(&self) -> Option<&str> {
        self.deciding.and_then(|source| self.vote(source).hint.as_deref())
    }

    /// As data, for `explain --json`.
    pub fn to_json(&self) -> Json {
        json!({
            "verdict": self.verdict,
            "deciding": self.deciding,
            "votes": self.votes,
            "authority": self.authority.to_json(),
        })
    }
}

/// One for all calls that get nothing.
fn nothing() -> Arc<Authority> {
    static NOTHING: std::sync::LazyLock<Arc<Authority>> = std::sync::LazyLock::new(|| Arc::new(Authority::none()));
    NOTHING.clone()
}
