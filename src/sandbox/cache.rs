//! Compiled code, cached by (component digest, engine fingerprint).
//!
//! It runs as native code, so a file is only used if this user's key authenticates it. What is torn, foreign or of another
//! engine is compiled again, never trusted.
#![allow(clippy::disallowed_methods, reason = "the cache is a folder of this user's own")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::ids::PackageDigest;
use crate::private;

const TAG: usize = 32;

/// The folder and the key.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    key: [u8; 32],
}

impl Cache {
    /// Opens the folder, made owner-only if it is not there. `key` is this user's own.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, or others may write to it.
    pub fn open(folder: &Path, key: [u8; 32]) -> std::io::Result<Self> {
        private::folder(folder)?;
        Ok(Self { folder: folder.to_owned(), key })
    }

    fn path(&self, digest: &PackageDigest, fingerprint: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{digest}-{}.bin", hex::encode(&fingerprint[..8])))
    }

    fn tag(&self, digest: &PackageDigest, fingerprint: &[u8; 32], code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(b"portcullis-code-1");
        mac.update(digest.as_bytes());
        mac.update(fingerprint);
        mac.update(code);
        Some(mac)
    }

    /// The compiled component, if the cache has one that can be trusted.
    pub fn load(&self, engine: &Engine, fingerprint: &[u8; 32], digest: &PackageDigest) -> Option<Component> {
        let path = self.path(digest, fingerprint);
        let file = fs::read(&path).ok()?;
        let (tag, code) = file.split_at_checked(TAG)?;
        if self.tag(digest, fingerprint, code)?.verify_slice(tag).is_err() {
            tracing::warn!(path = %path.display(), "compiled code in the cache is not authentic; compiling again");
            return None;
        }
        // SAFETY: the bytes are what `Engine::precompile_component` of an engine with this fingerprint returned: the tag
        // over digest, fingerprint and code was made with a key that only this user can read.
        #[allow(unsafe_code, reason = "loading native code that the tag above authenticates")]
        let loaded = unsafe { Component::deserialize(engine, code) };
        loaded.map_err(|error| tracing::warn!(%error, "compiled code in the cache does not load; compiling again")).ok()
    }

    /// Keeps compiled code. A cache that cannot be written costs time and nothing else.
    pub fn store(&self, fingerprint: &[u8; 32], digest: &PackageDigest, code: &[u8]) {
        let path = self.path(digest, fingerprint);
        let write = || -> std::io::Result<()> {
            let tag = self.tag(digest, fingerprint, code).ok_or(std::io::ErrorKind::InvalidInput)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(&tag.finalize().into_bytes())?;
            file.write_all(code)?;
            file.persist(&path)?;
            Ok(())
        };
        if let Err(error) = write() {
            tracing::warn!(%error, path = %path.display(), "compiled code could not be cached");
        }
    }

    /// Whether compiled code for `digest` is there, without checking it.
    pub fn has(&self, fingerprint: &[u8; 32], digest: &PackageDigest) -> bool {
        self.path(digest, fingerprint).exists()
    }
}
