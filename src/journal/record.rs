//! What is kept, and what can happen to it: plain data, the same for every store.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::state::{CallState, Event};
use super::ticket::{Answered, Claim, Ticket};
use crate::gate::Basis;
use crate::gate::codes::Code;
use crate::gate::consent::Consent;
use crate::gate::grant::LaunchGrant;
use crate::ids::{CallDigest, GrantId, OperationId, OwnerId, PackageDigest, Principal, RunId, TicketId, ToolId};
use crate::value::canonical_bytes;

/// Largest arguments, and largest result, that are kept of a call that has ended, in bytes of JSON.
pub const KEPT_MAX: usize = 64 << 10;

/// A JSON value that is kept under a cap, with its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// As JSON; none where it is not kept.
    pub text: Option<String>,
    /// Length of the whole in bytes of JSON.
    pub size: u64,
    /// SHA-256 of the whole, in canonical JSON.
    pub digest: [u8; 32],
}

impl Kept {
    /// The whole value, however large.
    pub fn whole(canonical: &Json) -> Self {
        let text = canonical.to_string();
        let digest = Sha256::digest(canonical_bytes(canonical)).into();
        Self { size: text.len() as u64, digest, text: Some(text) }
    }

    /// What is kept for good: `shown` stands for the value where parts of it are kept out, and nothing where it is too large.
    pub fn capped(self, shown: Option<String>) -> Self {
        let text = shown.or(self.text).filter(|text| text.len() <= KEPT_MAX);
        Self { text, ..self }
    }
}

/// What is known of a call when something is decided about it.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Which call.
    pub operation: OperationId,
    /// Who asked.
    pub principal: Principal,
    /// Which plugin of the embedding program, where one did.
    pub plugin: Option<String>,
    /// The thread that the run belongs to.
    pub thread: Option<String>,
    /// For which tool.
    pub tool: ToolId,
    /// Of which package; none where there is none.
    pub package: Option<PackageDigest>,
    /// With which arguments; none where they are invalid.
    pub call: Option<CallDigest>,
    /// The canonical arguments: whole for a call that is asked about, else without what the policy keeps out.
    pub arguments: Option<Kept>,
    /// What it may touch, as data: for the authorization record.
    pub authority: Json,
    /// What it may touch, for people.
    pub handles: Vec<String>,
    /// Whether running it again can repeat no effect: it has none, or the host declared the tool idempotent.
    pub rerunnable: bool,
}

/// Something that happens to a call.
#[derive(Clone, Debug)]
pub struct CallChange {
    /// Which call.
    pub operation: OperationId,
    /// When.
    pub at: SystemTime,
    /// What.
    pub event: Event,
    /// Who must be looking after the call, and where it must stand where that is known; else it is left as it is. What was read
    /// some time ago may be another's by now.
    pub expects: Option<(OwnerId, Option<CallState>)>,
    /// What is known of the call; needed where it may not be on record yet.
    pub decided: Option<Arc<Decided>>,
    /// Why the call does not simply succeed.
    pub code: Option<Code>,
    /// The sentence that goes with the code.
    pub text: Option<String>,
    /// For an allow what it rests on, and uses up in the same commit; for a refusal by a human whose it is.
    pub basis: Option<Basis>,
    /// For a call that is to leave its ticket: on what ground.
    pub claim: Option<Claim>,
    /// For a call that is asked about.
    pub asking: Option<Asking>,
    /// For a call that ends.
    pub ending: Option<Ending>,
    /// The arguments as they are to be kept from here on.
    pub arguments: Option<Kept>,
    /// What somebody wrote beside an answer.
    pub note: Option<String>,
    /// A launch grant that is given with the answer: only if that counts.
    pub grant: Option<Arc<LaunchGrant>>,
}

impl CallChange {
    /// A change without further terms.
    pub fn new(operation: OperationId, at: SystemTime, event: Event) -> Self {
        Self {
            operation,
            at,
            event,
            expects: None,
            decided: None,
            code: None,
            text: None,
            basis: None,
            claim: None,
            asking: None,
            ending: None,
            arguments: None,
            note: None,
            grant: None,
        }
    }
}

/// What a ticket keeps beside its call.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Until when it may be answered.
    pub deadline: SystemTime,
    /// The exact authority that is shown, as [`Authority::store`](crate::authority::Authority::store) writes it.
    pub shown: String,
    /// Why a human is asked.
    pub reason: String,
    /// Most open tickets of one run.
    pub most: u32,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The value that it returned, or the tool's own error value.
    pub result: Option<Kept>,
    /// What the handles did outside.
    pub effects: Json,
    /// What it wrote into the state of its tool.
    pub writes: Vec<Write>,
    /// Whether the result waits for the commit of its step.
    pub held: bool,
}

/// One exclusive write into the state of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Which entry.
    pub entry: Entry,
    /// What it is from now on; none removes it.
    pub value: Option<Vec<u8>>,
}

/// The name of one entry of a tool's state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Which drawer it lies in.
    pub drawer: Drawer,
    /// Under which key.
    pub key: String,
}

/// Where entries lie: keys belong to a package, a principal and a scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Drawer {
    /// The package's name.
    pub package: String,
    /// Whose.
    pub principal: String,
    /// `run`, `thread` or `shared`.
    pub scope: String,
    /// Which run or thread; empty for what is shared.
    pub within: String,
}

/// Something that happened to the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Who.
    pub who: String,
    /// `published`, `trusted`, `granted`, `revoked`, `consented`, `pruned`.
    pub what: String,
    /// What exactly.
    pub detail: Json,
}

/// How old a record of each kind must be to be pruned; none keeps all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// When it is done.
    pub at: SystemTime,
    /// By whom.
    pub by: String,
    /// Owners that live: the calls of their runs stay.
    pub living: Vec<OwnerId>,
    /// Configuration history older than this.
    pub configuration: Option<SystemTime>,
    /// Authorization records older than this.
    pub authorizations: Option<SystemTime>,
    /// Calls that ended before this.
    pub facts: Option<SystemTime>,
}

/// How much was pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Entries of the configuration history.
    pub configuration: u64,
    /// Authorization records.
    pub authorizations: u64,
    /// Calls, with their facts.
    pub facts: u64,
}

/// One atomic change of what is kept.
#[derive(Clone, Debug)]
pub enum Change {
    /// Several calls were requested at once: the calls of a step.
    Request(Vec<Arc<Decided>>, SystemTime),
    /// Something happened to a call.
    Call(Box<CallChange>),
    /// A human said yes to a ticket; the call's owner goes on from there.
    Answer {
        /// The ticket.
        ticket: TicketId,
        /// The yes.
        answer: Answered,
        /// An owner that has ended: where the call is still its own, this store's owner looks after it from now on.
        ended: Option<OwnerId>,
        /// A launch grant that is given with the answer.
        grant: Option<Arc<LaunchGrant>>,
    },
    /// A call of a step came to nothing of its own: an equal call was asked about before, and it has that one's outcome.
    Joined {
        /// Which.
        operation: OperationId,
        /// The other.
        with: OperationId,
        /// When.
        at: SystemTime,
    },
    /// A call that waits is looked after by this store's owner from now on; counts one, or none where its owner is no longer the
    /// one that had ended.
    TakeOver {
        /// The ticket that it waits under.
        ticket: TicketId,
        /// The owner that has ended.
        from: OwnerId,
    },
    /// The calls of a step that have ended are published together.
    Step {
        /// The run.
        run: RunId,
        /// The step.
        step: u64,
        /// When.
        at: SystemTime,
    },
    /// The caller has the result; one that is over the cap need not be kept any longer.
    Acknowledge(OperationId),
    /// A launch grant is given.
    Give(Arc<LaunchGrant>),
    /// A launch grant is taken back.
    Revoke {
        /// Which.
        id: GrantId,
        /// When.
        at: SystemTime,
        /// By whom.
        by: String,
    },
    /// A consent is given.
    Consent(Box<Consent>, ToolId, SystemTime),
    /// Names under which tools are served.
    WireNames(Vec<(String, ToolId)>),
    /// Something happened to the configuration. What was published and has not changed is not written twice.
    History(History),
    /// A package is no longer installed, so its state goes.
    Forget(String),
    /// What is old goes, as much as fits into one transaction.
    Prune(Prune),
}

impl Change {
    /// Whether something that was kept is to be kept no longer, such as arguments, or a permission before it was used: no trace of it
    /// is to stay, which a damaged file could bring back.
    pub fn takes_away(&self) -> bool {
        match self {
            Self::Call(change) => {
                let is_spent = change.basis.as_ref().is_some_and(Basis::is_claimed);
                change.claim.is_some() || change.arguments.is_some() || is_spent
            }
            Self::Acknowledge(_) | Self::Forget(_) | Self::Prune(_) | Self::Revoke { .. } | Self::Answer { .. } => true,
            _ => false,
        }
    }
}

/// What a change came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is as it was to be.
    Done,
    /// An equal call of the run waits already, under this ticket.
    Joined(TicketId),
    /// A human said no to an equal call of the run.
    Refused,
    /// The run has as many open tickets as it may.
    Crowded,
    /// These calls of a step failed, since others of it had written the same state before.
    Conflicts(Vec<OperationId>),
    /// How much was changed.
    Count(u64),
    /// How much was pruned.
    Pruned(Pruned),
}

/// Whether a stored result can be had again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptResult {
    /// There is none: the function returns nothing, or the call ended otherwise.
    None,
    /// Here it is.
    Value(Json),
    /// It was too large to be kept after its caller had it.
    NotKept,
}

/// A call as it is kept.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Which call.
    pub operation: OperationId,
    /// Who is to finish it.
    pub owner: OwnerId,
    /// Who asked.
    pub principal: Principal,
    /// Which plugin.
    pub plugin: Option<String>,
    /// The thread that the run belongs to.
    pub thread: Option<String>,
    /// For which tool.
    pub tool: ToolId,
    /// Of which package.
    pub package: Option<PackageDigest>,
    /// With which arguments.
    pub call: Option<CallDigest>,
    /// The arguments as they are kept.
    pub arguments: Option<Json>,
    /// The digest of the whole arguments.
    pub arguments_digest: Option<[u8; 32]>,
    /// What it may touch, for people.
    pub handles: Vec<String>,
    /// Where it stands.
    pub state: CallState,
    /// Why it did not simply succeed.
    pub code: Option<Code>,
    /// The sentence that goes with the code.
    pub text: Option<String>,
    /// What it returned, or the tool's own error.
    pub result: KeptResult,
    /// What its handles did outside.
    pub effects: Json,
    /// Whether running it again can repeat no effect.
    pub rerunnable: bool,
    /// Whether it waits for the commit of its step.
    pub held: bool,
    /// The call that it joined, whose outcome it has.
    pub joined: Option<OperationId>,
    /// When it was requested or decided.
    pub decided: SystemTime,
    /// When it ended.
    pub ended: Option<SystemTime>,
    /// The ticket that it waits or waited under.
    pub ticket: Option<TicketRecord>,
}

/// A ticket as it is kept.
#[derive(Clone, Debug)]
pub struct TicketRecord {
    /// The ticket.
    pub ticket: Ticket,
    /// The exact authority that was shown.
    pub shown: String,
    /// Why a human is asked.
    pub reason: String,
}

/// Why a request was allowed or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// `ask`, `allow`, `refuse`, `answer` or `join`.
    pub event: String,
    /// Run, step and call.
    pub operation: String,
    /// Who asked.
    pub principal: String,
    /// Which plugin.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plugin: Option<String>,
    /// For which tool.
    pub tool: String,
    /// Of which package.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub package: Option<String>,
    /// The digest of the exact call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call: Option<String>,
    /// The ticket.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ticket: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// In a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What it rests on: the policy, a grant, a consent, or who answered on which route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub basis: Option<String>,
    /// What a human wrote beside the answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// What the call may touch.
    #[serde(skip_serializing_if = "Json::is_null", default)]
    pub authority: Json,
}

/// How a call ended, as one line of the run facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Run, step and call.
    pub operation: String,
    /// Which tool.
    pub tool: String,
    /// `completed`, `indeterminate` or `abandoned`.
    pub state: String,
    /// Why it did not simply succeed.
    pub code: Option<String>,
    /// What its handles did outside.
    pub effects: Json,
    /// The digest of its result.
    pub result: Option<String>,
}

/// An answer of the past.
#[derive(Clone, Debug)]
pub struct PastAnswer {
    /// Which tool was asked about.
    pub tool: ToolId,
    /// With which arguments, as kept; none where they were too large.
    pub arguments: Option<Json>,
    /// Whether a human said yes.
    pub yes: bool,
}

/// A grant as it is listed.
#[derive(Clone, Debug)]
pub struct KeptGrant {
    /// The grant.
    pub grant: Arc<LaunchGrant>,
    /// How many operations have used it.
    pub used: u64,
    /// When it was revoked.
    pub revoked: Option<SystemTime>,
}
