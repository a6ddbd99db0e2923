//! Files and folders that only this user may read: state, keys, compiled code.
#![allow(clippy::disallowed_methods, reason = "these are the host's own files, opened before any tool runs")]

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Makes `path` a folder with mode 0700, or checks that it is one.
///
/// # Errors
///
/// It cannot be made, is no folder, belongs to somebody else, or others may write to it.
pub fn folder(path: &Path) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(named)?;
    let metadata = fs::metadata(path).map_err(named)?;
    let refuse =
        |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{}` {why}", path.display())));
    if !metadata.is_dir() {
        return refuse("is no folder");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refuse("belongs to another user");
    }
    if metadata.mode() & 0o022 != 0 {
        return refuse("may be written by others; `chmod 700` it");
    }
    Ok(())
}

/// Makes an empty file with mode 0600, unless there is one.
///
/// # Errors
///
/// It cannot be made.
pub fn file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Reads the 32-byte key at `path`, made from the operating system's randomness if it is not there.
///
/// # Errors
///
/// It cannot be read or made, others may read it, or it has another length.
pub fn key(path: &Path) -> io::Result<[u8; 32]> {
    match OpenOptions::new().read(true).open(path) {
        Ok(mut file) => {
            if file.metadata()?.mode() & 0o077 != 0 {
                let why = format!("`{}` may be read by others; `chmod 600` it", path.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            let mut key = [0; 32];
            file.read_exact(&mut key)?;
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut key = [0; 32];
            getrandom::fill(&mut key).map_err(io::Error::other)?;
            let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
            // Linked into place whole, so that two processes that start at once agree on one key.
            let mut file = tempfile::Builder::new().permissions(mode(0o600)).tempfile_in(folder)?;
            file.write_all(&key)?;
            match file.persist_noclobber(path) {
                Ok(_) => Ok(key),
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => self::key(path),
                Err(error) => Err(error.error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Opens a regular file for reading, and nothing that could block.
///
/// # Errors
///
/// It cannot be opened, or is something else.
pub fn open_regular(path: &Path) -> io::Result<fs::File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Holds the lock file at `path`, made if it is not there, until the value is dropped.
///
/// # Errors
///
/// It cannot be opened or locked.
pub fn lock(path: &Path) -> io::Result<fs::File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Replaces `path` by `bytes` in one step, readable by this user alone.
///
/// # Errors
///
/// The folder of `path` cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with_mode(path, bytes, 0o600)
}

/// Replaces `path` by `bytes` in one step, keeping the permissions of a file that was there.
///
/// # Errors
///
/// The folder of `path` cannot be written.
pub fn replace_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(0o644, |metadata| metadata.mode() & 0o777);
    write_with_mode(path, bytes, mode)
}

fn write_with_mode(path: &Path, bytes: &[u8], bits: u32) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new().permissions(mode(bits)).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn mode(bits: u32) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt as _;
    fs::Permissions::from_mode(bits)
}
