//! A consent: a human's permission for one exact call, given beforehand.

use std::time::{Duration, SystemTime};

use crate::authority::Authority;
use crate::ids::{CallDigest, ConsentDigest, OperationId, Principal};

/// How long a consent holds.
pub const CONSENT_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// What is kept of a consent. The token itself is with whoever it was given to.
///
/// The call's digest binds the tool, the package and the arguments.
#[derive(Clone, Debug)]
pub struct Consent {
    /// The digest of the token.
    pub token: ConsentDigest,
    /// To whom.
    pub principal: Principal,
    /// For which call.
    pub call: CallDigest,
    /// What the human was shown that the call would get.
    pub shown: Authority,
    /// Until when.
    pub expires: SystemTime,
    /// The operation that used it up.
    pub used_by: Option<OperationId>,
    /// Who gave it.
    pub by: String,
}

/// What a consent is worth for a call that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    Valid,
    Used,
    Expired,
    OtherCall,
}

impl Consent {
    pub(super) fn worth(
        &self,
        principal: &Principal,
        call: &CallDigest,
        operation: Option<OperationId>,
        now: SystemTime,
    ) -> Worth {
        if self.principal != *principal || self.call != *call {
            Worth::OtherCall
        } else if self.used_by.is_some() && self.used_by != operation {
            Worth::Used
        } else if self.used_by.is_none() && now >= self.expires {
            Worth::Expired
        } else {
            Worth::Valid
        }
    }
}
