//! Authority as it is stored with a consent, and read back: exactly, or not at all.
//!
//! The form for people is no such form: in it a path that holds a star looks like a pattern. Values of variables are left out,
//! so that what comes back constrains their names alone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Authority;
use super::clock::Clock;
use super::credentials::{CredentialGrant, CredentialLayer, CredentialName, Credentials, Placement};
use super::environment::Environment;
use super::files::{Access, FileGrant, FileLayer, Files};
use super::grammar::LimitEntries;
use super::http::{Http, HttpGrant, HttpLayer, Private};
use super::path::Glob;
use super::state::StateScope;
use super::url_pattern::UrlPattern;

/// Most bytes of a stored authority that are read.
const STORED_MAX: usize = 4 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    denies_all: bool,
    files: Vec<Vec<StoredFile>>,
    http: Vec<Vec<StoredHttp>>,
    /// None is no constraint.
    environment: Option<BTreeSet<String>>,
    /// Absent in what was stored before there was this axis, which granted none.
    credentials: Option<Vec<Vec<StoredCredential>>>,
    clock: Clock,
    random: bool,
    #[serde(default)]
    state: StateScope,
    limits: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFile {
    guest: String,
    host: Option<std::path::PathBuf>,
    access: Access,
    only: BTreeSet<Vec<Option<Vec<String>>>>,
    except: BTreeSet<Vec<Option<Vec<String>>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHttp {
    /// Scheme, host and port with an empty path; the host with `*.` where subdomains are meant.
    origin: String,
    target: String,
    prefix: bool,
    methods: Option<BTreeSet<String>>,
    private: Option<bool>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCredential {
    name: CredentialName,
    url: Option<StoredUrl>,
    placement: Option<Placement>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredUrl {
    origin: String,
    target: String,
    prefix: bool,
}

impl StoredUrl {
    fn of(url: &UrlPattern) -> Self {
        let (origin, target, prefix) = url.parts();
        Self { origin, target, prefix }
    }

    fn pattern(&self) -> Option<UrlPattern> {
        UrlPattern::of_parts(&self.origin, &self.target, self.prefix)
    }
}

impl Authority {
    /// As text; none where it names a host folder that is no text, which cannot be stored.
    pub fn store(&self) -> Option<String> {
        let segments = |globs: &BTreeSet<Glob>| globs.iter().map(Glob::segments).collect();
        let files = self.files.iter().map(|layer| {
            let grants = layer.grants().map(|grant| StoredFile {
                guest: grant.guest.to_string(),
                host: grant.host.clone(),
                access: grant.access,
                only: segments(&grant.only),
                except: segments(&grant.except),
            });
            grants.collect()
        });
        let http = self.http.iter().map(|layer| {
            let grants = layer.grants().map(|grant| {
                let (origin, target, prefix) = grant.url.parts();
                let private = match grant.private {
                    Private::Unchanged => None,
                    Private::No => Some(false),
                    Private::Yes => Some(true),
                };
                StoredHttp { origin, target, prefix, methods: grant.methods.clone(), private }
            });
            grants.collect()
        });
        let credentials = self.credentials.iter().map(|layer| {
            let grants = layer.grants().map(|grant| StoredCredential {
                name: grant.name.clone(),
                url: grant.url.as_ref().map(StoredUrl::of),
                placement: grant.placement.clone(),
            });
            grants.collect()
        });
        let stored = Stored {
            denies_all: self.denies_all,
            files: files.collect(),
            http: http.collect(),
            environment: match &self.environment {
                Environment::Everything => None,
                Environment::These(names) => Some(names.keys().cloned().collect()),
            },
            credentials: Some(credentials.collect()),
            clock: self.clock,
            random: self.random,
            state: self.state,
            limits: self.limits.to_json(),
        };
        serde_json::to_string(&stored).ok()
    }

    /// From text; none where it is not what [`Authority::store`] writes.
    pub fn restore(text: &str) -> Option<Self> {
        if text.len() > STORED_MAX {
            return None;
        }
        let stored: Stored = serde_json::from_str(text).ok()?;
        let globs = |all: BTreeSet<Vec<Option<Vec<String>>>>| -> Option<BTreeSet<Glob>> {
            all.into_iter().map(Glob::of_segments).collect()
        };
        let mut files = Files::everything();
        for layer in stored.files {
            let mut grants = Vec::new();
            for grant in layer {
                grants.push(FileGrant {
                    guest: grant.guest.parse().ok()?,
                    host: grant.host,
                    access: grant.access,
                    only: globs(grant.only)?,
                    except: globs(grant.except)?,
                });
            }
            files = files.meet(&Files::of(FileLayer::new(grants)));
        }
        let mut http = Http::everything();
        for layer in stored.http {
            let mut grants = Vec::new();
            for grant in layer {
                grants.push(HttpGrant {
                    url: UrlPattern::of_parts(&grant.origin, &grant.target, grant.prefix)?,
                    methods: grant.methods,
                    private: match grant.private {
                        None => Private::Unchanged,
                        Some(false) => Private::No,
                        Some(true) => Private::Yes,
                    },
                });
            }
            http = http.meet(&Http::of(HttpLayer::new(grants)));
        }
        let mut credentials = match stored.credentials {
            Some(_) => Credentials::everything(),
            None => Credentials::nothing(),
        };
        for layer in stored.credentials.into_iter().flatten() {
            let mut grants = Vec::new();
            for grant in layer {
                let url = match &grant.url {
                    None => None,
                    Some(url) => Some(url.pattern()?),
                };
                grants.push(CredentialGrant { name: grant.name, url, placement: grant.placement });
            }
            credentials = credentials.meet(&Credentials::of(CredentialLayer::new(grants)));
        }
        let names = |names: BTreeSet<String>| names.into_iter().map(|name| (name, None)).collect::<BTreeMap<_, _>>();
        Some(Self {
            denies_all: stored.denies_all,
            files,
            http,
            environment: stored.environment.map_or(Environment::Everything, |it| Environment::These(names(it))),
            credentials,
            clock: stored.clock,
            random: stored.random,
            state: stored.state,
            limits: serde_json::from_value::<LimitEntries>(stored.limits).ok()?.into(),
        })
    }
}
