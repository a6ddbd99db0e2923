//! References to credentials.
//!
//! A tool never sees a credential: it sends its requests without one, and the host puts it into those that the operator meant it
//! for. What a tool can ask is whether that would happen, to say what is missing before it tries. In a native test the answer is that
//! of the [`testing::Host`](crate::testing::Host) that runs the test:
//!
//! ```
//! use portcullis_guest::{credential, testing::Host};
//!
//! let host = Host::new().credential("github");
//! host.run(|| {
//!     assert!(credential::usable("github"));
//!     assert!(!credential::usable("another"));
//! });
//! ```

/// Whether this call may use the credential of this name, and the host has it at hand.
pub fn usable(name: &str) -> bool {
    #[cfg(target_family = "wasm")]
    return crate::imports::credential::usable(name);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::current().is_ok_and(|host| host.has_credential(name));
}
