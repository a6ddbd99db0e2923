//! Files of the folders that the host granted.
//!
//! In the sandbox this is `std::fs`. In a native test it has the same names, and the paths lead into
//! the folders of the [`testing::Host`](crate::testing::Host) that runs the test:
//!
//! ```
//! use portcullis_guest::{fs, testing::Host};
//!
//! let host = Host::new().folder("/data", [("a.txt", "x")]);
//! host.run(|| {
//!     assert_eq!(fs::read_to_string("/data/a.txt").unwrap(), "x");
//!     assert!(fs::read_to_string("/etc/passwd").is_err());
//! });
//! ```

#[cfg(target_family = "wasm")]
pub use std::fs::*;

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(not(target_family = "wasm"))]
pub use native::*;
