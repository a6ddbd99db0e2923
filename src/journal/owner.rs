//! Owners: each process holds a lock of the operating system for as long as it lives, however it ends.
#![allow(clippy::disallowed_methods, reason = "these are the host's own files")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::ids::OwnerId;
use crate::private;

/// The lock files of a state folder.
#[derive(Debug)]
pub struct Owners {
    folder: PathBuf,
    own: OwnerId,
    path: PathBuf,
    _lock: File,
}

impl Owners {
    /// Becomes an owner, until the value is dropped or the process ends.
    ///
    /// # Errors
    ///
    /// The folder cannot be written.
    pub fn join(state: &Path) -> io::Result<Self> {
        let folder = state.join("owners");
        private::folder(&folder)?;
        let own = OwnerId::random().map_err(io::Error::other)?;
        let path = folder.join(own.to_string());
        loop {
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock()?;
            // Another process may have taken the new file for one whose owner has ended, and removed it.
            let held = file.metadata()?;
            match std::fs::metadata(&path) {
                Ok(named) if (named.dev(), named.ino()) == (held.dev(), held.ino()) => {
                    return Ok(Self { folder, own, path, _lock: file });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// This owner.
    pub fn own(&self) -> OwnerId {
        self.own
    }

    /// Whether an owner lives. Where that cannot be told it counts as living, so that nobody touches what is its own.
    pub fn is_alive(&self, owner: OwnerId) -> bool {
        owner == self.own || is_locked(&self.folder.join(owner.to_string()))
    }

    /// The owners that live.
    pub fn living(&self) -> Vec<OwnerId> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return vec![self.own] };
        let owner = |entry: std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse().ok());
        entries.flatten().filter_map(owner).filter(|owner| self.is_alive(*owner)).collect()
    }

    /// Removes the files of owners that have ended.
    pub fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_owner = entry.file_name().to_str().is_some_and(|name| name.parse::<OwnerId>().is_ok());
            // Held while the file is removed: one who becomes this owner meanwhile waits, and then sees that it is gone.
            if is_owner
                && path != self.path
                && let Ok(file) = OpenOptions::new().read(true).open(&path)
                && file.try_lock_shared().is_ok()
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_locked(path: &Path) -> bool {
    match OpenOptions::new().read(true).open(path) {
        // A shared lock: two that look at once do not take each other for the owner.
        Ok(file) => !matches!(file.try_lock_shared(), Ok(())),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_lives_as_long_as_it_holds_its_lock() {
        let state = tempfile::tempdir().unwrap();
        let (one, two) = (Owners::join(state.path()).unwrap(), Owners::join(state.path()).unwrap());
        assert!(one.is_alive(one.own()) && one.is_alive(two.own()) && two.is_alive(one.own()));
        one.sweep();
        let ended = two.own();
        drop(two);
        assert!(!one.is_alive(ended));
        // One that was killed leaves its file.
        std::fs::write(one.folder.join(ended.to_string()), "").unwrap();
        assert!(!one.is_alive(ended));
        one.sweep();
        assert_eq!(std::fs::read_dir(&one.folder).unwrap().count(), 1);
    }
}
