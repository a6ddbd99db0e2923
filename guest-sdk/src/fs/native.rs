//! `std::fs` by guest paths. Each function is the standard library's, after the test host has
//! turned its path into one of a temporary folder.
#![allow(clippy::disallowed_methods, reason = "every path here lies in a temporary folder of the test host")]

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use std::fs::{FileType, Metadata, Permissions};

use crate::testing::Access::{self, Read as Reading, Write as Writing};
use crate::testing::current;

fn real(path: impl AsRef<Path>, access: Access) -> io::Result<PathBuf> {
    Ok(current()?.resolve(path.as_ref(), access)?.real)
}

/// See [`std::fs::read`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    std::fs::read(real(path, Reading)?)
}

/// See [`std::fs::read_to_string`].
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read_to_string(real(path, Reading)?)
}

/// See [`std::fs::write`].
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    std::fs::write(real(path, Writing)?, contents)
}

/// See [`std::fs::metadata`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    std::fs::metadata(real(path, Reading)?)
}

/// See [`std::fs::exists`].
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    std::fs::exists(real(path, Reading)?)
}

/// See [`std::fs::create_dir`].
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::create_dir(real(path, Writing)?)
}

/// See [`std::fs::create_dir_all`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::create_dir_all(real(path, Writing)?)
}

/// See [`std::fs::remove_file`].
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::remove_file(real(path, Writing)?)
}

/// See [`std::fs::remove_dir`].
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::remove_dir(real(path, Writing)?)
}

/// See [`std::fs::remove_dir_all`].
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::remove_dir_all(real(path, Writing)?)
}

/// See [`std::fs::copy`].
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    std::fs::copy(real(from, Reading)?, real(to, Writing)?)
}

/// See [`std::fs::rename`].
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let host = current()?;
    let from = host.resolve(from.as_ref(), Writing)?;
    let to = host.resolve(to.as_ref(), Writing)?;
    // In the sandbox two grants are two file systems; here they share one by accident.
    if from.folder != to.folder {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    std::fs::rename(from.real, to.real)
}

/// See [`std::fs::read_dir`].
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    Ok(ReadDir { entries: std::fs::read_dir(real(&path, Reading)?)?, guest: path.as_ref().to_owned() })
}

/// See [`std::fs::ReadDir`].
#[derive(Debug)]
pub struct ReadDir {
    entries: std::fs::ReadDir,
    guest: PathBuf,
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next()?;
        Some(entry.map(|entry| DirEntry { path: self.guest.join(entry.file_name()), entry }))
    }
}

/// See [`std::fs::DirEntry`].
#[derive(Debug)]
pub struct DirEntry {
    entry: std::fs::DirEntry,
    path: PathBuf,
}

impl DirEntry {
    /// The guest path.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The last part of the path.
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// See [`std::fs::DirEntry::metadata`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.entry.metadata()
    }

    /// See [`std::fs::DirEntry::file_type`].
    pub fn file_type(&self) -> io::Result<FileType> {
        self.entry.file_type()
    }
}

/// See [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    options: std::fs::OpenOptions,
    writes: bool,
}

impl OpenOptions {
    /// Nothing set.
    #[expect(clippy::new_without_default, reason = "std::fs::OpenOptions has no default either")]
    pub fn new() -> Self {
        OpenOptions { options: std::fs::OpenOptions::new(), writes: false }
    }

    /// Open for reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.options.read(read);
        self
    }

    /// Open for writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.options.write(write);
        self.writes |= write;
        self
    }

    /// Write at the end.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.options.append(append);
        self.writes |= append;
        self
    }

    /// Empty the file first.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.options.truncate(truncate);
        self
    }

    /// Create the file if it is missing.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.options.create(create);
        self
    }

    /// Create the file, and fail if it is there.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.options.create_new(create_new);
        self
    }

    /// Open the file at a guest path.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let access = if self.writes { Writing } else { Reading };
        Ok(File(self.options.open(real(path, access)?)?))
    }
}

/// See [`std::fs::File`].
#[derive(Debug)]
pub struct File(std::fs::File);

impl File {
    /// Open for reading.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Create or empty, and open for writing.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// No option set.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// See [`std::fs::File::metadata`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// See [`std::fs::File::set_len`].
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    /// See [`std::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}
