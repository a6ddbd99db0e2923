//! Which configuration a command works on, and whether it may.

use std::path::{Path, PathBuf};

use super::output::CliError;
use super::progress::Spinner;
use crate::call;
use crate::host::Host;
use crate::ids::PackageName;
use crate::journal::Journal;
use crate::places::Places;
use crate::private;
use crate::publication::Snapshot;
use crate::publication::config::Config;
use crate::publication::source::ConfigFile;
use crate::publication::trust::TrustStore;
use crate::registry::lock::Lock;

/// The global options.
#[derive(Clone)]
pub struct Context {
    pub config: Option<PathBuf>,
    pub state: Option<PathBuf>,
    pub json: bool,
}

/// How a configuration was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Named by `--config`.
    Named,
    /// By the environment, or upwards from the working folder.
    Nearby,
}

impl Context {
    pub fn places(&self) -> Result<Places, CliError> {
        Places::of_user(self.state.as_deref())
            .map_err(|error| CliError::fault(format!("the state of this host cannot be used: {error}")))
    }

    pub fn trust_store(&self) -> Result<TrustStore, CliError> {
        Ok(TrustStore::new(self.places()?.state()))
    }

    /// The configuration as it is, trusted or not.
    pub fn read_config(&self) -> Result<(ConfigFile, Found), CliError> {
        let (path, found) = match (&self.config, std::env::var_os("PORTCULLIS_CONFIG")) {
            (Some(path), _) => (path.clone(), Found::Named),
            (None, Some(path)) => (PathBuf::from(path), Found::Nearby),
            (None, None) => {
                let here = std::env::current_dir()?;
                let path = ConfigFile::find(&here).ok_or_else(|| {
                    CliError::input("there is no portcullis.toml here or in a folder above")
                        .hint("`portcullis init` writes one")
                })?;
                (path, Found::Nearby)
            }
        };
        Ok((ConfigFile::read(&path)?, found))
    }

    /// The configuration, if the user named or trusted it.
    pub fn trusted_config(&self) -> Result<(ConfigFile, Config), CliError> {
        let (file, found) = self.read_config()?;
        let config = file.parse()?;
        if found == Found::Nearby && !self.is_trusted(&file, &config)? {
            let message = format!("`{}` is not trusted, or was changed since it was", file.path.display());
            return Err(CliError::input(message).hint("`portcullis trust` shows what it grants and accepts it"));
        }
        Ok((file, config))
    }

    fn is_trusted(&self, file: &ConfigFile, config: &Config) -> Result<bool, CliError> {
        Ok(self.trust_store()?.is_trusted(&file.path, &file.digest(config))?)
    }

    /// The configuration to edit, with nobody else editing it meanwhile.
    pub fn edit(&self) -> Result<Edit<'_>, CliError> {
        // The lock belongs to the file that is found first; what is in it is read under the lock.
        let (file, _) = self.read_config()?;
        let guard = private::lock(&self.places()?.of_config(&file.path)?.join("edit.lock"))?;
        let (file, config) = self.trusted_config()?;
        let lock = file.lock()?;
        let was_trusted = self.is_trusted(&file, &config)?;
        Ok(Edit { context: self, file, config, lock, was_trusted, _guard: guard })
    }

    /// Trusts what the user has just seen or written.
    pub fn trust(&self, file: &ConfigFile, config: &Config) -> Result<(), CliError> {
        let digest = file.digest(config);
        self.trust_store()?.trust(&file.path, &digest)?;
        let detail = serde_json::json!({ "config": file.path, "digest": digest });
        Ok(self.journal_of(file)?.note(&format!("command line: {}", local_user()), "trusted", detail)?)
    }

    /// The snapshot of a configuration, to look at.
    pub fn snapshot(&self, file: &ConfigFile, config: &Config) -> Result<Snapshot, CliError> {
        let _reading = Spinner::start("reading the installed packages");
        let journal = self.journal_of(file)?;
        // The names that clients were served before are the names that they will be served.
        let owner = |name: &str| journal.wire_name_owner(name).ok().flatten();
        Ok(Snapshot::publish(&file.path, config, &file.lock()?, owner)?)
    }

    /// The journal of the configuration, for taking something back: that needs no trust, and no configuration that loads.
    pub fn journal(&self) -> Result<Journal, CliError> {
        self.journal_of(&self.read_config()?.0)
    }

    /// As [`Context::journal`], with what ended hosts left finished as far as it can be: what they were doing is not shown as if they
    /// still were.
    pub fn recovered_journal(&self) -> Result<Journal, CliError> {
        let (file, _) = self.read_config()?;
        let journal = self.journal_of(&file)?;
        // Without the configuration nobody knows what is to be kept out of the records.
        if let Ok(config) = file.parse() {
            call::recover(&journal, &config.redact)?;
        }
        Ok(journal)
    }

    pub fn journal_of(&self, file: &ConfigFile) -> Result<Journal, CliError> {
        let places = self.places()?;
        Ok(Journal::open(&places.of_config(&file.path)?, &places.key()?)?)
    }

    /// The host of the trusted configuration.
    pub fn host(&self) -> Result<Host, CliError> {
        let (file, _) = self.trusted_config()?;
        let _reading = Spinner::start("reading the installed packages");
        Ok(Host::publish(&file, &self.places()?)?)
    }
}

/// The user who runs the command, for the records.
pub fn local_user() -> String {
    format!("user {}", rustix::process::getuid().as_raw())
}

/// An edit under way.
pub struct Edit<'c> {
    context: &'c Context,
    pub file: ConfigFile,
    pub config: Config,
    pub lock: Lock,
    was_trusted: bool,
    _guard: std::fs::File,
}

impl Edit<'_> {
    /// Writes lock and configuration. What was trusted before is trusted as it is now; what was only named stays so.
    /// `what` was done to which package goes into the configuration history.
    pub fn store(&self, text: &str, what: &str, name: &PackageName) -> Result<(), CliError> {
        let lock_text = self.lock.render();
        let write = |path: &Path, bytes: &str| {
            private::replace_shared(path, bytes.as_bytes())
                .map_err(|error| CliError::input(format!("`{}` cannot be written: {error}", path.display())))
        };
        let file = ConfigFile { path: self.file.path.clone(), text: text.to_owned(), lock_text };
        let config = file.parse()?;
        write(&file.lock_path(), &file.lock_text)?;
        if text != self.file.text {
            write(&file.path, text)?;
        }
        let detail = serde_json::json!({ "package": name, "sha256": self.lock.0.get(name) });
        let who = format!("command line: {}", local_user());
        self.context.journal_of(&file)?.note(&who, what, detail)?;
        if self.was_trusted { self.context.trust(&file, &config) } else { Ok(()) }
    }
}
