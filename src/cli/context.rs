//! Which configuration a command works on, and whether it may.

use std::path::PathBuf;

use super::output::CliError;
use crate::host::Host;
use crate::places::Places;
use crate::publication::source::ConfigFile;
use crate::publication::trust::TrustStore;

/// The global options.
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
    pub fn trusted_config(&self) -> Result<(ConfigFile, Found), CliError> {
        let (file, found) = self.read_config()?;
        if found == Found::Nearby && !self.trust_store()?.is_trusted(&file.path, &file.digest())? {
            let message = format!("`{}` is not trusted, or was changed since it was", file.path.display());
            return Err(CliError::input(message).hint("`portcullis trust` shows what it grants and accepts it"));
        }
        Ok((file, found))
    }

    /// After an edit of this program's own: what was trusted before is trusted as it is now.
    pub fn keep_trust(&self, file: &ConfigFile) -> Result<(), CliError> {
        Ok(self.trust_store()?.trust(&file.path, &file.digest())?)
    }

    /// The host of the trusted configuration.
    pub fn host(&self) -> Result<Host, CliError> {
        let (file, _) = self.trusted_config()?;
        Ok(Host::publish(&file, &self.places()?)?)
    }
}
