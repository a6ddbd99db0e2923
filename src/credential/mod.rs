//! Custody of credentials: where they lie, and reading one for the moment that it is needed.
//!
//! | file | holds |
//! |---|---|
//! | here | the stores, and [`Secret`], which is wiped |
//! | [`redact`] | taking a secret out of an answer |
//!
//! Nothing that a guest can call returns a secret. It goes from here into a header of an outgoing request, and nowhere else.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the stores are the operator's own files and programs"
)]

pub mod redact;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::HeaderValue;
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

use crate::authority::credentials::{CredentialName, Placement};

/// Fewest bytes of a credential: anything shorter would turn up in answers by chance.
pub const SECRET_MIN: usize = 8;
/// Most bytes of a credential.
pub const SECRET_MAX: usize = 16 << 10;
/// How long a command may take to print a credential.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// Under which service the operating system's store has them.
const SERVICE: &str = "portcullis";

/// Where a credential lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In a variable of the host's own environment.
    Env {
        /// Its name.
        variable: String,
    },
    /// In a file that only its owner may read.
    File {
        /// Where.
        path: PathBuf,
    },
    /// In the hands of a program, which prints it.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// In the operating system's store, where `portcullis secret set` puts it.
    Keyring,
}

impl Store {
    /// Its name, as the configuration writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Env { .. } => "env",
            Self::File { .. } => "file",
            Self::Command { .. } => "command",
            Self::Keyring => "keyring",
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { variable } => write!(f, "the variable {variable}"),
            Self::File { path } => write!(f, "the file {}", path.display()),
            Self::Command { command } => write!(f, "the command {}", command.first().map_or("", String::as_str)),
            Self::Keyring => f.write_str("the system's keyring"),
        }
    }
}

/// Why there is no credential. It never holds any of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustodyError {
    /// The configuration has none of this name.
    #[error("there is no [credentials.{0}]")]
    Unknown(CredentialName),
    /// The store has none.
    #[error("{0} holds none")]
    Absent(String),
    /// What the store has is no credential.
    #[error(
        "what is in {0} is no credential: it has {SECRET_MIN} to {SECRET_MAX} bytes of visible characters, on one line"
    )]
    Unfit(String),
    /// The store cannot be used.
    #[error("{0}")]
    Store(String),
}

/// A credential in plain, for as short a time as can be. Wiped when it goes.
pub struct Secret(Zeroizing<Vec<u8>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Memory that is shared with the request, and wiped when that is gone.
struct Wiped(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Secret {
    /// From what a store holds: a line break at the end belongs to the file and not to the credential.
    fn new(mut bytes: Zeroizing<Vec<u8>>, store: &Store) -> Result<Self, CustodyError> {
        while bytes.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
            bytes.pop();
        }
        if bytes.is_empty() {
            return Err(CustodyError::Absent(store.to_string()));
        }
        let is_visible = bytes.iter().all(|b| (b' '..=b'~').contains(b)) && bytes.trim_ascii().len() == bytes.len();
        if !is_visible || !(SECRET_MIN..=SECRET_MAX).contains(&bytes.len()) {
            return Err(CustodyError::Unfit(store.to_string()));
        }
        Ok(Self(bytes))
    }

    /// The value of the header that carries it.
    pub fn header(&self, placement: &Placement) -> Option<HeaderValue> {
        let (before, after) = placement.format.split_once("{}")?;
        // As large as it will be: growing would leave a copy behind.
        let mut value = Zeroizing::new(Vec::with_capacity(before.len() + self.0.len() + after.len()));
        value.extend_from_slice(before.as_bytes());
        value.extend_from_slice(&self.0);
        value.extend_from_slice(after.as_bytes());
        let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from_owner(Wiped(value))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The bytes, for what takes them out of an answer.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The credentials of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Custody {
    stores: BTreeMap<CredentialName, Store>,
}

impl Custody {
    /// These.
    pub fn new(stores: BTreeMap<CredentialName, Store>) -> Self {
        Self { stores }
    }

    /// Names and stores.
    pub fn stores(&self) -> impl Iterator<Item = (&CredentialName, &Store)> {
        self.stores.iter()
    }

    fn store(&self, name: &CredentialName) -> Result<&Store, CustodyError> {
        self.stores.get(name).ok_or_else(|| CustodyError::Unknown(name.clone()))
    }

    /// Reads a credential now.
    ///
    /// # Errors
    ///
    /// See [`CustodyError`].
    pub async fn read(&self, name: &CredentialName) -> Result<Secret, CustodyError> {
        let store = self.store(name)?;
        let bytes = match store {
            Store::Env { variable } => {
                let value = std::env::var_os(variable).ok_or_else(|| CustodyError::Absent(store.to_string()))?;
                Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value))
            }
            Store::File { path } => read_file(path, store)?,
            Store::Command { command } => run(command, store).await?,
            Store::Keyring => {
                let name = name.clone();
                // Waits for another process, and perhaps for a human who unlocks it.
                let read = tokio::task::spawn_blocking(move || {
                    keyring::Entry::new(SERVICE, name.as_str())?.get_secret().map(Zeroizing::new)
                });
                let read = tokio::time::timeout(COMMAND_TIMEOUT, read).await;
                let read = read.map_err(|_| CustodyError::Store(format!("{store} did not answer in time")))?;
                read.map_err(|error| CustodyError::Store(error.to_string()))?
                    .map_err(|error| of_keyring(&error, store))?
            }
        };
        Secret::new(bytes, store)
    }

    /// Puts a credential into its store.
    ///
    /// # Errors
    ///
    /// It is none, or the store takes none from here.
    pub fn set(&self, name: &CredentialName, value: Zeroizing<Vec<u8>>) -> Result<(), CustodyError> {
        let store = self.store(name)?;
        let secret = Secret::new(value, store)?;
        match store {
            Store::File { path } => write_file(path, &secret)
                .map_err(|error| CustodyError::Store(format!("`{}` cannot be written: {error}", path.display()))),
            Store::Keyring => keyring::Entry::new(SERVICE, name.as_str())
                .and_then(|entry| entry.set_secret(secret.bytes()))
                .map_err(|error| of_keyring(&error, store)),
            Store::Env { .. } | Store::Command { .. } => Err(elsewhere(store)),
        }
    }

    /// Takes a credential out of its store; false where there was none.
    ///
    /// # Errors
    ///
    /// The store gives none away from here.
    pub fn remove(&self, name: &CredentialName) -> Result<bool, CustodyError> {
        let store = self.store(name)?;
        match store {
            Store::File { path } => match std::fs::remove_file(path) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(CustodyError::Store(format!("`{}` cannot be removed: {error}", path.display()))),
            },
            Store::Keyring => {
                match keyring::Entry::new(SERVICE, name.as_str()).and_then(|entry| entry.delete_credential()) {
                    Ok(()) => Ok(true),
                    Err(keyring::Error::NoEntry) => Ok(false),
                    Err(error) => Err(of_keyring(&error, store)),
                }
            }
            Store::Env { .. } | Store::Command { .. } => Err(elsewhere(store)),
        }
    }
}

fn elsewhere(store: &Store) -> CustodyError {
    CustodyError::Store(format!("{store} is not kept by this program; set it where it is kept"))
}

fn of_keyring(error: &keyring::Error, store: &Store) -> CustodyError {
    match error {
        keyring::Error::NoEntry => CustodyError::Absent(store.to_string()),
        keyring::Error::NoDefaultStore => CustodyError::Store(
            "this session has no keyring (on Linux a Secret Service such as GNOME Keyring or KWallet, reached by D-Bus)".to_owned(),
        ),
        // What the library says of a value that it could not read may hold the value.
        keyring::Error::BadEncoding(_) | keyring::Error::BadDataFormat(..) => CustodyError::Unfit(store.to_string()),
        error => CustodyError::Store(format!("{store} cannot be used: {error}")),
    }
}

/// A file of credentials is a regular file of this user that nobody else may read or write.
fn read_file(path: &Path, store: &Store) -> Result<Zeroizing<Vec<u8>>, CustodyError> {
    let refuse = |why: String| CustodyError::Store(format!("`{}` {why}", path.display()));
    // Without blocking: what lies there may be no file at all.
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CustodyError::Absent(store.to_string()),
        _ => refuse(format!("cannot be read: {error}")),
    })?;
    let metadata = file.metadata().map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if !metadata.is_file() {
        return Err(refuse("is no file".to_owned()));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse("belongs to another user".to_owned()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(refuse("may be read or written by others; `chmod 600` it".to_owned()));
    }
    // Room for all that is read: growing would leave a copy behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_MAX + 3));
    file.take(SECRET_MAX as u64 + 3)
        .read_to_end(&mut bytes)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    Ok(bytes)
}

fn write_file(path: &Path, secret: &Secret) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(secret.bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Runs the operator's own program. It has the host's environment, as such programs need it; what it prints beside the credential
/// is nobody's business.
async fn run(command: &[String], store: &Store) -> Result<Zeroizing<Vec<u8>>, CustodyError> {
    let failed = |why: String| CustodyError::Store(format!("{store} {why}"));
    let (program, arguments) = command.split_first().ok_or_else(|| failed("is empty".to_owned()))?;
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_MAX + 3));
    let work = async {
        if let Some(out) = child.stdout.take() {
            out.take(SECRET_MAX as u64 + 3).read_to_end(&mut bytes).await?;
        }
        child.wait().await
    };
    match tokio::time::timeout(COMMAND_TIMEOUT, work).await {
        Ok(Ok(status)) if status.success() => Ok(bytes),
        Ok(Ok(status)) => Err(failed(format!("failed ({status})"))),
        Ok(Err(error)) => Err(failed(format!("failed: {error}"))),
        Err(_) => Err(failed(format!("took longer than {COMMAND_TIMEOUT:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn custody(store: Store) -> (CredentialName, Custody) {
        let name: CredentialName = "tracker".parse().unwrap();
        (name.clone(), Custody::new([(name, store)].into()))
    }

    fn plain(text: &str) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/token");
        let (name, custody) = custody(Store::File { path: path.clone() });
        assert!(matches!(custody.read(&name).await, Err(CustodyError::Absent(_))));
        custody.set(&name, plain("s3cret-value\n")).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(custody.read(&name).await.unwrap().bytes(), b"s3cret-value");
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(custody.read(&name).await.unwrap_err().to_string().contains("chmod 600"), "{mode:o}");
        }
        assert!(custody.remove(&name).unwrap());
        assert!(!custody.remove(&name).unwrap());
        std::fs::create_dir(&path).unwrap();
        assert!(custody.read(&name).await.is_err());
    }

    #[tokio::test]
    async fn what_is_no_credential_is_refused_without_being_shown() {
        let folder = tempfile::tempdir().unwrap();
        let (name, custody) = custody(Store::File { path: folder.path().join("token") });
        for text in
            ["short", "two\nlines-of-text", "nul\0nul\0nul", " padded-value", "umlautäöü", &"x".repeat(SECRET_MAX + 1)]
        {
            let error = custody.set(&name, plain(text)).unwrap_err().to_string();
            assert!(!error.contains(text), "{error}");
        }
        assert_eq!(format!("{:?}", Secret(plain("hidden-value"))), "Secret(…)");
    }

    #[tokio::test]
    async fn a_command_prints_it_in_time_or_there_is_none() {
        let shell = |script: &str| Store::Command { command: ["sh", "-c", script].map(str::to_owned).to_vec() };
        let (name, good) = custody(shell("echo s3cret-value; echo noise >&2"));
        assert_eq!(good.read(&name).await.unwrap().bytes(), b"s3cret-value");
        for script in ["echo s3cret-value; exit 3", "true", "yes s3cret-value"] {
            let (name, bad) = custody(shell(script));
            let error = bad.read(&name).await.unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let (name, none) = custody(Store::Command { command: vec!["/no/such/program".to_owned()] });
        assert!(none.read(&name).await.unwrap_err().to_string().contains("cannot be started"));
        assert!(matches!(none.set(&name, plain("s3cret-value")), Err(CustodyError::Store(_))));
    }

    #[test]
    fn a_header_holds_it_where_the_format_says_and_shows_it_to_no_log() {
        let placement = Placement { header: "x".to_owned(), format: "a {} b".to_owned() };
        let value = Secret(plain("s3cret-value")).header(&placement).unwrap();
        assert_eq!(value.as_bytes(), b"a s3cret-value b");
        assert_eq!(format!("{value:?}"), "Sensitive");
    }
}
