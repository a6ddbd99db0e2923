//! Where the host keeps its own things: state, compiled code, keys. Owner-only, and never beside a project.
#![allow(clippy::disallowed_methods, reason = "these are the host's own folders")]

use std::io;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use sha2::{Digest, Sha256};

use crate::private;

/// The folders of one user.
#[derive(Clone, Debug)]
pub struct Places {
    state: PathBuf,
    cache: PathBuf,
    keys: PathBuf,
}

impl Places {
    /// The user's own folders (XDG base directories), with `state` for the state folder where it is given.
    ///
    /// # Errors
    ///
    /// The user has no home, or a folder cannot be made or may be written by others.
    pub fn of_user(state: Option<&Path>) -> io::Result<Self> {
        let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
        let state = match state {
            Some(folder) => std::path::absolute(folder)?,
            None => base.state_dir().unwrap_or_else(|| base.data_dir()).join("portcullis"),
        };
        // Not within the state folder: who can write there must not be able to sign what is there.
        Self::new(&state, &base.cache_dir().join("portcullis"), &base.data_dir().join("portcullis/keys"))
    }

    /// Folders that the embedding program names: state, compiled code, and keys.
    ///
    /// # Errors
    ///
    /// A folder cannot be made, or may be written by others.
    pub fn new(state: &Path, cache: &Path, keys: &Path) -> io::Result<Self> {
        let places = Self {
            state: std::path::absolute(state)?,
            cache: std::path::absolute(cache)?,
            keys: std::path::absolute(keys)?,
        };
        for folder in [&places.state, &places.keys, &places.cache] {
            private::folder(folder)?;
        }
        Ok(places)
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The folder of compiled code.
    pub fn code(&self) -> PathBuf {
        self.cache.join("code")
    }

    /// This user's key, for compiled code and seeds. It belongs to the user and not to a state folder, so that all state
    /// folders share one cache.
    ///
    /// # Errors
    ///
    /// It cannot be read or made.
    pub fn key(&self) -> io::Result<[u8; 32]> {
        private::key(&self.keys.join("key"))
    }

    /// The folder that keeps what belongs to one configuration, keyed by its real path.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn of_config(&self, config: &Path) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = hex::encode(&Sha256::digest(config.as_os_str().as_bytes())[..8]);
        let folder = self.state.join("hosts").join(digest);
        private::folder(&folder)?;
        Ok(folder)
    }
}
