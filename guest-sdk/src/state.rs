//! What a tool keeps from call to call, where the host granted it.
//!
//! Keys belong to the package, to whoever calls it, and to a [`Scope`]. A call reads what was there when it first looked, and what
//! it wrote itself; what it writes is kept when the call succeeds, all of it or nothing. In a native test the state is that of the
//! [`testing::Host`](crate::testing::Host) that runs the test:
//!
//! ```
//! use portcullis_guest::{state::{self, Scope}, testing::Host};
//!
//! let host = Host::new().state(Scope::Thread);
//! host.run(|| {
//!     state::set(Scope::Thread, "name", "Ada").unwrap();
//!     assert_eq!(state::get(Scope::Thread, "name").unwrap().as_deref(), Some(b"Ada".as_slice()));
//!     assert!(state::get(Scope::Shared, "name").is_err());
//! });
//! ```
//!
//! Two calls that a model makes at once and that write the same key conflict: the later one fails, and keeps nothing.

use std::fmt;

/// How far an entry reaches. Each scope is granted together with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The run that the call belongs to.
    Run,
    /// All runs of the thread that the caller named.
    Thread,
    /// All runs of whoever calls.
    Shared,
}

/// Why there is nothing to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The call was not granted this scope.
    NotGranted,
    /// The run belongs to no thread.
    NoThread,
    /// A key has 1 to 256 bytes and no control characters.
    BadKey,
    /// A value has at most 64 KiB, and all entries of a scope with their keys 1 MiB.
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotGranted => "the call was not granted this scope of the tool's state",
            Error::NoThread => "the run belongs to no thread, so there is nothing to keep its state under",
            Error::BadKey => "a key has 1 to 256 bytes and no control characters",
            Error::Full => "there is no room: a value has at most 64 KiB, and a scope 1 MiB",
        })
    }
}

impl std::error::Error for Error {}

/// The value of a key; none where there is none.
pub fn get(scope: Scope, key: &str) -> Result<Option<Vec<u8>>, Error> {
    host::get(scope, key)
}

/// Gives a key a value.
pub fn set(scope: Scope, key: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
    host::set(scope, key, value.as_ref())
}

/// Takes a key and its value away.
pub fn remove(scope: Scope, key: &str) -> Result<(), Error> {
    host::remove(scope, key)
}

#[cfg(target_family = "wasm")]
mod host {
    use super::{Error, Scope};

    use crate::imports::state;

    fn scope(scope: Scope) -> state::Scope {
        match scope {
            Scope::Run => state::Scope::Run,
            Scope::Thread => state::Scope::Thread,
            Scope::Shared => state::Scope::Shared,
        }
    }

    fn error(error: state::Error) -> Error {
        match error {
            state::Error::NotGranted => Error::NotGranted,
            state::Error::NoThread => Error::NoThread,
            state::Error::BadKey => Error::BadKey,
            state::Error::Full => Error::Full,
        }
    }

    pub fn get(of: Scope, key: &str) -> Result<Option<Vec<u8>>, Error> {
        state::get(scope(of), key).map_err(error)
    }

    pub fn set(of: Scope, key: &str, value: &[u8]) -> Result<(), Error> {
        state::set(scope(of), key, value).map_err(error)
    }

    pub fn remove(of: Scope, key: &str) -> Result<(), Error> {
        state::remove(scope(of), key).map_err(error)
    }
}

#[cfg(not(target_family = "wasm"))]
mod host {
    use super::{Error, Scope};
    use crate::testing::current;

    const KEY_MAX: usize = 256;
    const VALUE_MAX: usize = 64 << 10;
    const SCOPE_MAX: usize = 1 << 20;

    fn checked(scope: Scope, key: &str) -> Result<std::rc::Rc<crate::testing::State>, Error> {
        let host = current().map_err(|_| Error::NotGranted)?;
        if host.granted_state() < Some(scope) {
            return Err(Error::NotGranted);
        }
        if key.is_empty() || key.len() > KEY_MAX || key.chars().any(char::is_control) {
            return Err(Error::BadKey);
        }
        Ok(host)
    }

    pub fn get(scope: Scope, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let host = checked(scope, key)?;
        Ok(host.entries().get(&(scope, key.to_owned())).cloned())
    }

    pub fn set(scope: Scope, key: &str, value: &[u8]) -> Result<(), Error> {
        let host = checked(scope, key)?;
        let mut entries = host.entries();
        let others = entries.iter().filter(|((of, other), _)| *of == scope && other != key);
        let size: usize = others.map(|((_, key), value)| key.len() + value.len()).sum();
        if value.len() > VALUE_MAX || size + key.len() + value.len() > SCOPE_MAX {
            return Err(Error::Full);
        }
        entries.insert((scope, key.to_owned()), value.to_vec());
        Ok(())
    }

    pub fn remove(scope: Scope, key: &str) -> Result<(), Error> {
        let host = checked(scope, key)?;
        host.entries().remove(&(scope, key.to_owned()));
        Ok(())
    }
}
