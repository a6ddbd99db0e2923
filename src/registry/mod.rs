//! What is installed: packages by name, pinned by sha-256.
#![allow(clippy::disallowed_methods, reason = "packages are files that the operator named")]

pub mod edit;
pub mod lock;

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::authority::Authority;
use crate::authority::grammar::{Needs, PackageInfo};
use crate::descriptor::docs::TITLE_MAX;
use crate::descriptor::{self, COMPONENT_MAX, Component, ReadError};
use crate::ids::PackageDigest;
use crate::private;
use crate::text::{clean_line, clean_text};

/// A component as installed: read, described, and not yet compiled.
#[derive(Debug)]
pub struct Package {
    /// The file.
    pub path: PathBuf,
    /// Its SHA-256.
    pub digest: PackageDigest,
    /// Its size in bytes.
    pub size: u64,
    /// Functions, imports, documentation.
    pub component: Component,
    /// What the author says of it.
    pub info: PackageInfo,
    /// Titles by function name.
    pub titles: BTreeMap<String, String>,
    /// What it declares that it needs; none where it declares nothing.
    pub needs: Option<Needs>,
    /// The ceiling that follows from the declaration.
    pub ceiling: Authority,
    stamp: Stamp,
}

/// Why a file cannot be a package.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// Cannot be read.
    #[error("`{path}` cannot be read: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// Is no usable component.
    #[error("`{path}` cannot be a package: {error}")]
    Component {
        /// The file.
        path: String,
        /// Why.
        error: ReadError,
    },
    /// Declares needs that cannot be read.
    #[error("`{path}` cannot be a package: its `portcullis:needs` section is malformed: {what}")]
    Needs {
        /// The file.
        path: String,
        /// Why.
        what: String,
    },
}

impl PackageError {
    /// What can be done about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Component { error, .. } => error.hint(),
            Self::Needs { .. } => Some("mend `tool.toml` and build again"),
            Self::Io { .. } => None,
        }
    }
}

/// What tells without reading that a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeedsRecord {
    version: u32,
    #[serde(default)]
    package: PackageInfo,
    #[serde(default)]
    titles: BTreeMap<String, String>,
    needs: Option<Needs>,
}

impl Package {
    /// Reads a component file.
    ///
    /// # Errors
    ///
    /// See [`PackageError`].
    pub fn read(path: &Path) -> Result<Self, PackageError> {
        let (bytes, stamp) = read_file(path)?;
        Self::of_bytes(path, &bytes, stamp)
    }

    /// Reads a component file if its bytes are the pinned ones; nothing else is even parsed.
    ///
    /// # Errors
    ///
    /// See [`PackageError`].
    pub fn read_pinned(path: &Path, pinned: &PackageDigest) -> Result<Option<Self>, PackageError> {
        let (bytes, stamp) = read_file(path)?;
        if PackageDigest::of(&bytes) != *pinned {
            return Ok(None);
        }
        Self::of_bytes(path, &bytes, stamp).map(Some)
    }

    fn of_bytes(path: &Path, bytes: &[u8], stamp: Stamp) -> Result<Self, PackageError> {
        let shown = || path.display().to_string();
        let component = descriptor::read(bytes).map_err(|error| PackageError::Component { path: shown(), error })?;
        let needs_error = |what: String| PackageError::Needs { path: shown(), what: clean_text(&what, 300) };
        let record = match &component.needs {
            Some(json) => NeedsRecord::deserialize(json).map_err(|error| needs_error(error.to_string()))?,
            None => NeedsRecord { version: 1, package: PackageInfo::default(), titles: BTreeMap::new(), needs: None },
        };
        if record.version != 1 {
            return Err(needs_error(format!("its version is {}, and this host knows version 1", record.version)));
        }
        let ceiling = match &record.needs {
            Some(needs) => needs.ceiling().map_err(needs_error)?,
            None => Authority::configured(),
        };
        let titles = record.titles.into_iter().map(|(name, title)| (name, clean_line(&title, TITLE_MAX))).collect();
        Ok(Self {
            path: path.to_owned(),
            digest: PackageDigest::of(bytes),
            size: bytes.len() as u64,
            component,
            info: cleaned(record.package),
            titles,
            needs: record.needs,
            ceiling,
            stamp,
        })
    }

    /// The bytes again, if they are still the ones that were read.
    ///
    /// # Errors
    ///
    /// The file is gone or another one.
    pub fn bytes(path: &Path, digest: PackageDigest) -> Result<Vec<u8>, String> {
        let (bytes, _) = read_file(path).map_err(|error| error.to_string())?;
        if PackageDigest::of(&bytes) == digest { Ok(bytes) } else { Err("its file was changed".to_owned()) }
    }

    /// Whether the file still holds what was read. Its bytes are only read again where its stamp differs.
    pub fn is_unchanged(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(metadata) if Stamp::of(&metadata) == self.stamp => true,
            Ok(_) => Self::bytes(&self.path, self.digest).is_ok(),
            Err(_) => false,
        }
    }
}

fn read_file(path: &Path) -> Result<(Vec<u8>, Stamp), PackageError> {
    let io = |error| PackageError::Io { path: path.display().to_string(), error };
    let file = private::open_regular(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let too_large =
        |size| PackageError::Component { path: path.display().to_string(), error: ReadError::TooLarge(size) };
    if metadata.len() > COMPONENT_MAX {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    file.take(COMPONENT_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > COMPONENT_MAX {
        return Err(too_large(bytes.len() as u64));
    }
    Ok((bytes, Stamp::of(&metadata)))
}

fn cleaned(info: PackageInfo) -> PackageInfo {
    let line = |text: Option<String>| text.map(|text| clean_line(&text, TITLE_MAX));
    PackageInfo {
        name: line(info.name),
        version: line(info.version),
        license: line(info.license),
        authors: info.authors.iter().take(20).map(|author| clean_line(author, TITLE_MAX)).collect(),
        title: line(info.title),
    }
}
