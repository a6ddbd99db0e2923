//! What `call`, `explain` and `consent` share: what a run is launched with.

use std::path::PathBuf;
use std::sync::Arc;

use super::output::CliError;
use crate::approval::ConsentToken;
use crate::host::RunOptions;
use crate::ids::GrantId;
use crate::publication::manifest;

#[derive(clap::Args, Default)]
pub struct Launch {
    /// Run under a manifest: what a workflow or skill declares that it calls. It can only keep or reduce what may run
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Launch with this launch grant and no other; may be given more than once. Without it, with all that are yours
    #[arg(long, value_name = "ID")]
    grant: Vec<GrantId>,
    /// A token that `portcullis consent` printed for this exact call; may be given more than once
    #[arg(long, value_name = "TOKEN")]
    consent: Vec<ConsentToken>,
}

impl Launch {
    pub fn options(&self) -> Result<RunOptions, CliError> {
        let manifest = self.manifest.as_deref().map(manifest::read).transpose()?;
        Ok(RunOptions {
            manifest: manifest.map(Arc::new),
            grants: (!self.grant.is_empty()).then(|| self.grant.clone()),
            consents: self.consent.clone(),
            ..RunOptions::default()
        })
    }
}
