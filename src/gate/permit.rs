//! The sealed proof that one exact call was allowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Basis;
use crate::authority::Authority;
use crate::ids::{CallDigest, OperationId};

/// How long a permit may lie between the decision and the sandbox. A call decides after it holds a slot to run in, so
/// this only has to cover the commit in between.
pub const PERMIT_LIFETIME: Duration = Duration::from_secs(10);

/// An Allow for one exact call, carrying its authority. Only the gate makes one, the executor uses it up.
///
/// It can be handed on, once:
///
/// ```
/// fn spend(_: portcullis::gate::Permit) {}
/// fn once(permit: portcullis::gate::Permit) { spend(permit); }
/// ```
///
/// It cannot be spent twice:
///
/// ```compile_fail,E0382
/// fn spend(_: portcullis::gate::Permit) {}
/// fn twice(permit: portcullis::gate::Permit) { spend(permit); spend(permit); }
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<portcullis::gate::Permit>();
/// ```
///
/// It cannot be made from parts:
///
/// ```compile_fail,E0451
/// use portcullis::gate::{Basis, Permit};
/// use portcullis::{authority::Authority, ids::{CallDigest, OperationId}};
/// use std::{sync::Arc, time::Instant};
///
/// fn forge(call: CallDigest, operation: OperationId, authority: Arc<Authority>, expires: Instant) -> Permit {
///     Permit { call, operation, authority, basis: Basis::Policy, expires }
/// }
/// ```
///
/// It has no default:
///
/// ```compile_fail,E0277
/// fn needs_default<T: Default>() {}
/// needs_default::<portcullis::gate::Permit>();
/// ```
///
/// It cannot be stored and read back:
///
/// ```compile_fail,E0277
/// fn needs_read<T: serde::de::DeserializeOwned>() {}
/// needs_read::<portcullis::gate::Permit>();
/// ```
///
/// ```compile_fail,E0277
/// fn needs_write<T: serde::Serialize>() {}
/// needs_write::<portcullis::gate::Permit>();
/// ```
#[derive(Debug)]
#[must_use = "an allow that is not spent runs nothing"]
pub struct Permit {
    call: CallDigest,
    operation: OperationId,
    authority: Arc<Authority>,
    basis: Basis,
    expires: Instant,
}

/// A permit that was presented for another call, or too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermitError {
    /// The values to run are not the ones that were allowed.
    #[error("the permit is for another call")]
    OtherCall,
    /// Older than [`PERMIT_LIFETIME`].
    #[error("the permit has expired")]
    Expired,
}

impl Permit {
    pub(super) fn seal(
        call: CallDigest,
        operation: OperationId,
        authority: Arc<Authority>,
        basis: Basis,
        now: Instant,
    ) -> Self {
        Self { call, operation, authority, basis, expires: now + PERMIT_LIFETIME }
    }

    /// What the allow rests on.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// The exact call that the permit is for.
    pub fn call(&self) -> CallDigest {
        self.call
    }

    /// The operation that the permit is for.
    pub fn operation(&self) -> OperationId {
        self.operation
    }

    /// What the call may touch.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Uses the permit up for `call`, and gives the authority to mint handles from.
    ///
    /// # Errors
    ///
    /// The permit is for another call, or too old.
    pub(crate) fn spend(self, call: &CallDigest, now: Instant) -> Result<Arc<Authority>, PermitError> {
        if self.call != *call {
            Err(PermitError::OtherCall)
        } else if now > self.expires {
            Err(PermitError::Expired)
        } else {
            Ok(self.authority)
        }
    }
}
