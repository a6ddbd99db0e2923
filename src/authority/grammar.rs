//! How configuration, `tool.toml` and `only` write authority. Every text is parsed into its type while it is read, so
//! that an error carries the line of the value that caused it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::Authority;
use super::clock::Clock;
use super::credentials::{self, CredentialGrant, CredentialLayer, CredentialName, Credentials, Placement};
use super::environment::Environment;
use super::files::{Access, FileGrant, FileLayer, Files};
use super::http::{Http, HttpGrant, HttpLayer, Private};
use super::limits::Limits;
use super::path::{Glob, GuestPath};
use super::state::StateScope;
use super::url_pattern::UrlPattern;

macro_rules! deserialize_by_parse {
    ($($ty:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $ty {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(super) use deserialize_by_parse;

deserialize_by_parse!(GuestPath, Glob, UrlPattern);

/// Most entries of one kind, and most path patterns, that a package may declare: they are held against every path and
/// request of its calls.
pub const ENTRIES_MAX: usize = 64;

/// `files = [{ … }]` of a package, or of what a package declares.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { host = \"./data\", guest = \"/data\" }")]
pub struct FileEntry {
    /// A folder of the host, relative to the configuration file; needs have none.
    pub host: Option<PathBuf>,
    /// Where the guest sees it.
    pub guest: GuestPath,
    /// Read where absent.
    #[serde(default)]
    pub access: Access,
    /// Patterns, relative to the root of the guest.
    #[serde(default)]
    pub only: BTreeSet<Glob>,
    /// Patterns, relative to the root of the guest.
    #[serde(default)]
    pub except: BTreeSet<Glob>,
}

/// `http = [{ … }]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { url = \"https://api.example.com/*\" }")]
pub struct HttpEntry {
    /// Where to.
    pub url: UrlPattern,
    /// GET and HEAD where absent.
    #[serde(default = "HttpGrant::default_methods", deserialize_with = "methods")]
    pub methods: BTreeSet<String>,
    /// A private address is meant.
    #[serde(default)]
    pub private: bool,
}

fn methods<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let names = BTreeSet::<String>::deserialize(deserializer)?;
    if names.is_empty() {
        return Err(D::Error::custom("an empty list of methods grants nothing; leave the whole entry out"));
    }
    for name in &names {
        if !KNOWN.contains(&name.as_str()) {
            return Err(D::Error::custom(format!("`{name}` is no method that can be granted: {}", KNOWN.join(", "))));
        }
    }
    Ok(names)
}

/// `credentials = [{ … }]`: a reference, and where the host puts what it stands for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { name = \"tracker\", url = \"https://api.example.com/*\" }")]
pub struct CredentialEntry {
    /// The name of a `[credentials.NAME]`.
    pub name: CredentialName,
    /// For which requests; a package may leave that open.
    pub url: Option<UrlPattern>,
    /// The header that it is put into; `authorization` where absent.
    #[serde(default, deserialize_with = "some_header")]
    pub header: Option<String>,
    /// The header's value, with `{}` for the credential; `Bearer {}` for `authorization` where absent, else `{}`.
    #[serde(default, deserialize_with = "some_format")]
    pub format: Option<String>,
}

fn some_header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    credentials::header(deserializer).map(Some)
}

fn some_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    credentials::format(deserializer).map(Some)
}

impl CredentialEntry {
    /// Where it is put, with what is left out as it is by default.
    pub fn placement(&self) -> Placement {
        let bearer = Placement::bearer();
        let header = self.header.clone().unwrap_or(bearer.header);
        let format = self.format.clone();
        let format = format.unwrap_or_else(|| if header == "authorization" { bearer.format } else { "{}".to_owned() });
        Placement { header, format }
    }
}

/// `limits = { … }`: times such as `5s`, sizes such as `32MiB`, counts as integers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { wall = \"5s\", memory = \"32MiB\" }")]
#[allow(missing_docs)]
pub struct LimitEntries {
    #[serde(deserialize_with = "time")]
    pub wall: Option<Duration>,
    #[serde(deserialize_with = "time")]
    pub cpu: Option<Duration>,
    #[serde(deserialize_with = "size")]
    pub memory: Option<u64>,
    #[serde(deserialize_with = "size")]
    pub output: Option<u64>,
    #[serde(deserialize_with = "size")]
    pub log: Option<u64>,
    pub files: Option<u64>,
    pub entries: Option<u64>,
    #[serde(deserialize_with = "size")]
    pub written: Option<u64>,
    pub requests: Option<u64>,
    #[serde(deserialize_with = "size")]
    pub network: Option<u64>,
}

impl From<LimitEntries> for Limits {
    fn from(entries: LimitEntries) -> Self {
        let LimitEntries { wall, cpu, memory, output, log, files, entries, written, requests, network } = entries;
        Self { wall, cpu, memory, output, log, files, entries, written, requests, network }
    }
}

/// Reads a time such as `5s`, from a millisecond to a day.
///
/// # Errors
///
/// The text is no such time.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(time) if time >= Duration::from_millis(1) && time <= Duration::from_secs(24 * 60 * 60) => Ok(Some(time)),
        _ => Err(D::Error::custom("a time such as `500ms`, `5s` or `2m`, from 1ms to 24h")),
    }
}

/// Reads a size such as `32MiB`.
///
/// # Errors
///
/// The text is no size.
pub fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // A bare number says nothing of its unit.
    match text.parse::<bytesize::ByteSize>() {
        Ok(size) if text.ends_with('B') && size.as_u64() > 0 => Ok(Some(size.as_u64())),
        _ => Err(D::Error::custom("a size such as `64KiB`, `32MiB` or `1GiB`")),
    }
}

/// An axis that has a name in the configuration and no enforcement in this version. What would not be enforced does not
/// parse.
#[derive(Clone, Debug)]
pub struct Unenforced;

impl<'de> Deserialize<'de> for Unenforced {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("this version cannot enforce this key, so it does not accept it; remove it"))
    }
}

/// What a package declares that it needs: a ceiling and a request, never a grant. An axis that is absent needs nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// Guest paths; a `host` is refused.
    pub files: Vec<FileEntry>,
    /// Requests.
    pub http: Vec<HttpEntry>,
    /// Names of variables.
    pub environment: BTreeSet<String>,
    /// References to credentials; where neither `header` nor `format` is said, any will do.
    pub credentials: Vec<CredentialEntry>,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub random: bool,
    /// What it keeps from call to call.
    pub state: StateScope,
    /// The most that the package expects to use.
    pub limits: LimitEntries,
    // Axes that a package may already ask for and that this version grants to nobody.
    sockets: Option<IgnoredAny>,
    elicit: Option<IgnoredAny>,
    sample: Option<IgnoredAny>,
}

impl Needs {
    /// As a ceiling.
    ///
    /// # Errors
    ///
    /// A `host`, or one guest path twice.
    pub fn ceiling(&self) -> Result<Authority, String> {
        let patterns: usize = self.files.iter().map(|entry| entry.only.len() + entry.except.len()).sum();
        let entries = [self.files.len(), self.http.len(), self.environment.len(), self.credentials.len()];
        let entries = entries.into_iter().max().unwrap_or(0);
        if entries > ENTRIES_MAX || patterns > ENTRIES_MAX {
            return Err(format!(
                "a package declares at most {ENTRIES_MAX} entries of a kind and {ENTRIES_MAX} path patterns"
            ));
        }
        if self.files.iter().any(|entry| entry.host.is_some()) {
            return Err("what a package needs names guest paths only, never a `host`".to_owned());
        }
        Ok(Authority {
            files: file_axis(&self.files, |_| None)?,
            http: http_axis(&self.http, true),
            environment: Environment::These(self.environment.iter().map(|name| (name.clone(), None)).collect()),
            credentials: Credentials::of(CredentialLayer::new(self.credentials.iter().map(|entry| {
                let is_open = entry.header.is_none() && entry.format.is_none();
                let placement = (!is_open).then(|| entry.placement());
                CredentialGrant { name: entry.name.clone(), url: entry.url.clone(), placement }
            }))),
            clock: self.clock,
            random: self.random,
            state: self.state,
            limits: self.limits.into(),
            ..Authority::none()
        })
    }

    /// The axes that the package asks for and this version does not have.
    pub fn unavailable(&self) -> Vec<&'static str> {
        [("sockets", self.sockets.is_some()), ("elicit", self.elicit.is_some()), ("sample", self.sample.is_some())]
            .into_iter()
            .filter_map(|(name, asked)| asked.then_some(name))
            .collect()
    }
}

/// Files from entries; `host` gives the folder behind an entry.
///
/// # Errors
///
/// One guest path twice.
pub fn file_axis(entries: &[FileEntry], host: impl Fn(&FileEntry) -> Option<PathBuf>) -> Result<Files, String> {
    let mut grants: BTreeMap<GuestPath, FileGrant> = BTreeMap::new();
    for entry in entries {
        let grant = FileGrant {
            guest: entry.guest.clone(),
            host: host(entry),
            access: entry.access,
            only: entry.only.clone(),
            except: entry.except.clone(),
        };
        if grants.insert(entry.guest.clone(), grant).is_some() {
            return Err(format!("the guest path `{}` is granted twice", entry.guest));
        }
    }
    Ok(Files::of(FileLayer::new(grants.into_values())))
}

/// Requests from entries. A declaration leaves privacy as it is, so `private` is taken as said.
pub fn http_axis(entries: &[HttpEntry], declared: bool) -> Http {
    Http::of(HttpLayer::new(entries.iter().map(|entry| HttpGrant {
        url: entry.url.clone(),
        methods: Some(entry.methods.clone()),
        private: match (declared, entry.private) {
            (true, _) => Private::Unchanged,
            (false, true) => Private::Yes,
            (false, false) => Private::No,
        },
    })))
}

/// The package part of a `portcullis:needs` record: what an author says of the package.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PackageInfo {
    /// The author's name for it; the host's name for it is the operator's choice.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its licence, as SPDX.
    pub license: Option<String>,
    /// Who wrote it.
    pub authors: Vec<String>,
    /// A short title.
    pub title: Option<String>,
}
