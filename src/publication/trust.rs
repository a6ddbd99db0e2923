//! Which configuration files the user has trusted: by path and by digest, so that a folder that somebody sent cannot grant
//! itself anything, and a changed file is a new one.
#![allow(clippy::disallowed_methods, reason = "this checks who may write a file before it is believed")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::private;

/// The user's list of trusted files.
#[derive(Debug)]
pub struct TrustStore {
    path: PathBuf,
}

/// The digest that trust is given to: of a configuration, its lock, and the real folders that it grants. A folder that was
/// swapped for a link to another is another grant under the same text.
pub fn digest(config: &str, lock: &str, folders: &[PathBuf]) -> String {
    let mut hasher = Sha256::new();
    let folders = folders.iter().map(|folder| folder.as_os_str().as_bytes());
    for part in [config.as_bytes(), lock.as_bytes()].into_iter().chain(folders) {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex::encode(hasher.finalize())
}

impl TrustStore {
    /// The list in the state folder `state`.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join("trusted.json") }
    }

    fn read(&self) -> io::Result<BTreeMap<String, String>> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Whether the user has trusted exactly this content at this path.
    ///
    /// # Errors
    ///
    /// The list cannot be read.
    pub fn is_trusted(&self, path: &Path, digest: &str) -> io::Result<bool> {
        Ok(self.read()?.get(&key(path)).is_some_and(|trusted| trusted == digest))
    }

    /// Trusts this content at this path, and what was there before no longer.
    ///
    /// # Errors
    ///
    /// The list cannot be written.
    pub fn trust(&self, path: &Path, digest: &str) -> io::Result<()> {
        // Other processes edit the same list; each must see what the one before wrote.
        let guard = private::lock(&self.path.with_extension("lock"))?;
        let mut trusted = self.read()?;
        trusted.insert(key(path), digest.to_owned());
        private::replace(&self.path, &serde_json::to_vec_pretty(&trusted).map_err(io::Error::other)?)?;
        drop(guard);
        Ok(())
    }
}

fn key(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Why nobody else can have written `path`; an error says who could.
///
/// # Errors
///
/// The file or its folder may be written by others, or belongs to somebody else.
pub fn check_writers(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    for (place, is_folder) in [(path, false), (folder, true)] {
        let metadata = fs::metadata(place).map_err(|error| format!("`{}` cannot be read: {error}", place.display()))?;
        let user = rustix::process::geteuid().as_raw();
        if metadata.uid() != user && metadata.uid() != 0 {
            return Err(format!("`{}` belongs to another user", place.display()));
        }
        let mode = metadata.mode();
        // In a sticky folder, such as /tmp, others cannot replace what is not theirs.
        let sticky = is_folder && mode & 0o1000 != 0;
        // By convention a user's private group has the user's own number, and no other member.
        let private_group = metadata.gid() == metadata.uid();
        if !sticky && (mode & 0o002 != 0 || (mode & 0o020 != 0 && !private_group)) {
            return Err(format!("`{}` may be written by others; `chmod go-w` it", place.display()));
        }
    }
    Ok(())
}
