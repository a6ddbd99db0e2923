//! Launch grants: a host-issued permission for a capability, a tool and a part of its calls. It answers an ask, and nothing
//! else.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value as Json;

use super::schema::ArgumentSchema;
use crate::authority::template::Only;
use crate::ids::{CapabilityId, GrantId, Principal, RunId, ToolId};

/// One launch grant, as it was given. It never changes; it can only expire, be used up or be revoked.
#[derive(Clone, Debug)]
pub struct LaunchGrant {
    /// Its name.
    pub id: GrantId,
    /// To whom.
    pub principal: Principal,
    /// For which capability of a manifest; the tool id where there is no manifest.
    pub capability: CapabilityId,
    /// For which tool.
    pub tool: ToolId,
    /// For which arguments; `{}` means any.
    pub arguments: ArgumentSchema,
    /// What is left of the authority of a call that uses it.
    pub only: Option<Only>,
    /// For one run alone.
    pub run: Option<RunId>,
    /// Until when.
    pub expires: Option<SystemTime>,
    /// For how many operations.
    pub uses: Option<u64>,
    /// When it was given.
    pub given: SystemTime,
    /// By whom, and on which way.
    pub by: String,
}

/// A grant with how far it is used up.
#[derive(Clone, Debug)]
pub struct StandingGrant {
    /// The grant.
    pub grant: Arc<LaunchGrant>,
    /// How many operations have used it.
    pub used: u64,
    /// Whether the operation that asks is one of them: it does not count twice.
    pub used_here: bool,
}

impl StandingGrant {
    /// Why the grant does not answer a call; none where it does. `capabilities` are those of the call.
    pub(super) fn misses(&self, capabilities: &[&CapabilityId], arguments: &Json, now: SystemTime) -> Option<Miss> {
        let grant = &self.grant;
        if grant.expires.is_some_and(|until| now >= until) {
            return Some(Miss::Expired);
        }
        if grant.uses.is_some_and(|uses| self.used >= uses) && !self.used_here {
            return Some(Miss::UsedUp);
        }
        if !capabilities.contains(&&grant.capability) {
            return Some(Miss::Capability);
        }
        (!grant.arguments.fits(arguments)).then_some(Miss::Arguments)
    }
}

/// Why a grant for the tool of a call does not answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    Expired,
    UsedUp,
    Capability,
    Arguments,
}

impl Miss {
    /// In words, without a value.
    pub(super) fn reason(self, grant: &LaunchGrant, arguments: &Json) -> String {
        let what = match self {
            Self::Expired => "it has expired".to_owned(),
            Self::UsedUp => "its uses are used up".to_owned(),
            Self::Capability => format!("it is for the capability `{}`, and the call is not", grant.capability),
            Self::Arguments => match grant.arguments.misfits(arguments) {
                misfits if misfits.is_empty() => "the arguments as a whole are outside of its scope".to_owned(),
                misfits => format!("the arguments are outside of its scope: {}", misfits.join(", ")),
            },
        };
        format!("the grant {} is for `{}`, but {what}", grant.id, grant.tool)
    }
}
