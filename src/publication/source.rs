//! A configuration file on disk, with its lock: read once, checked for who may write it, and digested for trust.
#![allow(clippy::disallowed_methods, reason = "the configuration is a file that the user named or trusted")]

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::config::{CONFIG_MAX, Config, ConfigError};
use super::trust;
use crate::private;
use crate::registry::lock::Lock;

/// The name that is looked for.
pub const CONFIG_NAME: &str = "portcullis.toml";

/// A configuration as read, before anything of it is believed.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The real path.
    pub path: PathBuf,
    /// The text.
    pub text: String,
    /// The text of the lock; empty where there is none.
    pub lock_text: String,
}

impl ConfigFile {
    /// Reads the file at `path` and the lock beside it.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no text, or may be written by others.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let error = |file: &Path, message: String, hint: Option<String>| ConfigError {
            file: file.to_owned(),
            line: None,
            message,
            hint,
        };
        let real = fs::canonicalize(path).map_err(|e| {
            let hint = (e.kind() == io::ErrorKind::NotFound).then(|| "`portcullis init` writes one".to_owned());
            error(path, format!("the configuration cannot be read: {e}"), hint)
        })?;
        trust::check_writers(&real).map_err(|message| error(&real, message, None))?;
        let text =
            read_text(&real).map_err(|e| error(&real, format!("the configuration cannot be read: {e}"), None))?;
        let lock_path = lock_path(&real);
        let lock_text = match read_text(&lock_path) {
            Ok(text) => {
                trust::check_writers(&lock_path).map_err(|message| error(&lock_path, message, None))?;
                text
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => {
                return Err(error(&lock_path, format!("the lock cannot be read: {e}"), None));
            }
        };
        Ok(Self { path: real, text, lock_text })
    }

    /// The nearest configuration at or above `folder`.
    pub fn find(folder: &Path) -> Option<PathBuf> {
        folder.ancestors().map(|folder| folder.join(CONFIG_NAME)).find(|path| path.is_file())
    }

    /// The digest that trust is given to.
    pub fn digest(&self, config: &Config) -> String {
        trust::digest(&self.text, &self.lock_text, &config.folders())
    }

    /// The file of the lock.
    pub fn lock_path(&self) -> PathBuf {
        lock_path(&self.path)
    }

    /// The pinned digests.
    ///
    /// # Errors
    ///
    /// The lock is malformed.
    pub fn lock(&self) -> Result<Lock, ConfigError> {
        if self.lock_text.is_empty() {
            return Ok(Lock::default());
        }
        Lock::parse(&self.lock_text).map_err(|message| ConfigError {
            file: self.lock_path(),
            line: None,
            message: format!("the lock is malformed: {message}"),
            hint: Some("restore it, or remove it and run `portcullis update` for each package".to_owned()),
        })
    }

    /// The configuration, checked.
    ///
    /// # Errors
    ///
    /// See [`Config::parse`].
    pub fn parse(&self) -> Result<Config, ConfigError> {
        Config::parse(&self.path, &self.text)
    }
}

fn lock_path(config: &Path) -> PathBuf {
    config.with_extension("lock")
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = private::open_regular(path)?.take(CONFIG_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > CONFIG_MAX {
        return Err(io::Error::other("it is larger than 4 MiB"));
    }
    Ok(text)
}
