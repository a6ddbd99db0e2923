//! `portcullis.toml`: parsed whole or not at all. Every error names the file and the line, and what would mend it.
#![allow(clippy::disallowed_methods, reason = "the configuration names folders of the host, which must be there")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use toml::Spanned;

use crate::authority::Authority;
use crate::authority::clock::Clock;
use crate::authority::credentials::{CredentialGrant, CredentialLayer, CredentialName, Credentials};
use crate::authority::environment::Environment;
use crate::authority::files::Access;
use crate::authority::grammar::{
    CredentialEntry, FileEntry, HttpEntry, LimitEntries, Unenforced, file_axis, http_axis, size,
};
use crate::authority::limits::Limits;
use crate::authority::state::StateScope;
use crate::authority::template::Only;
use crate::credential::{Custody, Store};
use crate::gate::policy::{DefaultVerdict, Policy, Rule, RuleVerdict, ToolGlob};
use crate::gate::schema::ArgumentSchema;
use crate::ids::PackageName;
use crate::sandbox;

/// How long a ticket waits, unless the configuration says otherwise.
const WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Memory of all calls together, unless the configuration says otherwise.
const MEMORY_TOTAL: u64 = 4 << 30;

/// Largest configuration file, in bytes.
pub const CONFIG_MAX: u64 = 4 << 20;

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// By name.
    pub tools: BTreeMap<PackageName, ToolConfig>,
    /// Where the credentials are.
    pub custody: Arc<Custody>,
    /// Which calls may run.
    pub policy: Policy,
    /// Arguments that no record keeps, as JSON Pointers (RFC 6901).
    pub redact: Vec<Redaction>,
    /// Routes that an ask is offered on.
    pub routes: Routes,
    /// How long a ticket may wait.
    pub wait: Duration,
    /// What the calls of one run may use together.
    pub run: RunLimits,
    /// Bytes of memory that all calls of the host have together.
    pub memory_total: u64,
    /// Calls at once.
    pub concurrent: u32,
    /// Calls that may wait for a slot.
    pub queue: u32,
    /// When a commit must be durable.
    pub durability: Durability,
}

/// One entry of `redact`.
#[derive(Clone, Debug)]
pub struct Redaction {
    /// A JSON Pointer (RFC 6901) to an argument or into one.
    pub pointer: String,
    /// The line that it stands in.
    pub line: usize,
}

/// One `[tools.NAME]`.
#[derive(Clone, Debug)]
pub struct ToolConfig {
    /// The component file.
    pub source: PathBuf,
    /// The functions that are shown; none means all.
    pub expose: Option<BTreeSet<String>>,
    /// What the host grants at most.
    pub authority: Authority,
    /// Functions that may be run again without repeating an effect, as the host says: never as the package does.
    pub idempotent: BTreeSet<String>,
    /// The limits that the file sets; the authority has the defaults for the others.
    pub limits: Limits,
    /// The line of the table.
    pub line: usize,
}

/// The routes of each surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// `portcullis call`.
    pub call: Vec<RouteName>,
    /// `portcullis serve --stdio`.
    pub stdio: Vec<RouteName>,
}

/// Where a human can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteName {
    /// The terminal that the command runs on.
    Terminal,
    /// The ticket is left to be answered later.
    Ticket,
}

/// Where a human can be asked by a server whose standard streams belong to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StdioRoute {
    Ticket,
}

/// When a commit must have reached the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Before a call that can have an effect starts, and before its result is published.
    #[default]
    Effects,
    /// Before every call starts, and before every result is published.
    Strict,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// From 1.
    pub line: Option<usize>,
    /// One sentence.
    pub message: String,
    /// What would mend it.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tools: BTreeMap<Spanned<PackageName>, Tool>,
    #[serde(default)]
    policy: PolicyTable,
    #[serde(default)]
    approval: Approval,
    #[serde(default)]
    limits: HostLimits,
    #[serde(default)]
    journal: Journal,
    #[serde(default)]
    credentials: BTreeMap<CredentialName, Spanned<CredentialTable>>,
}

/// One `[credentials.NAME]`: which store has it, and what that store needs to know.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialTable {
    store: StoreName,
    variable: Option<String>,
    path: Option<PathBuf>,
    command: Option<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoreName {
    Env,
    File,
    Command,
    Keyring,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    source: Spanned<String>,
    expose: Option<BTreeSet<String>>,
    #[serde(default)]
    files: Vec<Spanned<FileEntry>>,
    #[serde(default)]
    http: Vec<HttpEntry>,
    environment: Option<Spanned<BTreeMap<String, String>>>,
    #[serde(default)]
    clock: Clock,
    #[serde(default)]
    random: bool,
    limits: Option<Spanned<LimitEntries>>,
    #[serde(rename = "sockets")]
    _sockets: Option<Unenforced>,
    #[serde(default)]
    credentials: Vec<Spanned<CredentialEntry>>,
    #[serde(default)]
    state: StateScope,
    #[serde(default)]
    idempotent: BTreeSet<String>,
    #[serde(rename = "elicit")]
    _elicit: Option<Unenforced>,
    #[serde(rename = "sample")]
    _sample: Option<Unenforced>,
    #[serde(rename = "mcp")]
    _mcp: Option<Unenforced>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PolicyTable {
    #[serde(default)]
    default: DefaultVerdict,
    #[serde(default)]
    rules: Vec<Spanned<RuleTable>>,
    #[serde(default)]
    redact: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    tool: Glob,
    arguments: Option<Spanned<Json>>,
    verdict: RuleVerdict,
    only: Option<Only>,
    reason: Option<String>,
    #[serde(rename = "routes")]
    _routes: Option<Unenforced>,
}

/// A tool glob as it stands in the file.
struct Glob(ToolGlob);

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Glob).map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Approval {
    #[serde(default)]
    routes: RoutesTable,
    #[serde(default, deserialize_with = "waiting_time")]
    wait: Option<Duration>,
}

/// A ticket waits from a second to a year.
fn waiting_time<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(time) if time >= Duration::from_secs(1) && time <= Duration::from_secs(366 * 24 * 60 * 60) => Ok(Some(time)),
        _ => Err(serde::de::Error::custom("a time such as `30m`, `24h` or `7d`, from 1s to 366d")),
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RoutesTable {
    call: Option<Vec<RouteName>>,
    stdio: Option<Vec<StdioRoute>>,
    #[serde(rename = "http")]
    _http: Option<Unenforced>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostLimits {
    concurrent: Spanned<u32>,
    queue: u32,
    #[serde(deserialize_with = "size")]
    memory_total: Option<u64>,
    #[serde(default)]
    run: RunLimits,
}

/// `run = { … }`: what the calls of one run may use together, in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunLimits {
    /// Calls, whatever becomes of them.
    pub calls: u64,
    /// Bytes written to files.
    #[serde(deserialize_with = "some_size")]
    pub bytes_written: u64,
    /// HTTP requests and connections.
    pub requests: u64,
    /// Calls that wait for a human at once.
    pub pending: u32,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { calls: 1_000_000, bytes_written: 1 << 30, requests: 100_000, pending: 100 }
    }
}

fn some_size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(size(deserializer)?.unwrap_or(u64::MAX))
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { concurrent: Spanned::new(0..0, 64), queue: 1024, memory_total: None, run: RunLimits::default() }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Journal {
    #[serde(default)]
    durability: Durability,
}

/// The text with the place that an offset stands at.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    fn error(&self, span: Option<Range<usize>>, message: impl Into<String>, hint: Option<String>) -> ConfigError {
        ConfigError {
            file: self.path.to_owned(),
            line: span.map(|span| self.line(span.start)),
            message: message.into(),
            hint,
        }
    }
}

impl Config {
    /// The real folders that are granted, in a fixed order.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.tools.values().flat_map(|tool| tool.authority.files.hosts()).collect()
    }

    /// Checks the text of a configuration file. Relative paths start at the folder of `path`.
    ///
    /// # Errors
    ///
    /// See [`ConfigError`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source { path, text };
        let folder = path.parent().unwrap_or(Path::new("."));
        let file: File = toml::from_str(text).map_err(|error| {
            let message = without_unenforced(error.message().trim().replace('\n', ", "));
            source.error(error.span(), message, None)
        })?;
        let mut tools = BTreeMap::new();
        for (name, tool) in file.tools {
            let line = source.line(name.span().start);
            let name = name.into_inner();
            tools.insert(name, tool_config(&source, folder, tool, line)?);
        }
        let custody = custody(&source, folder, file.credentials)?;
        for (name, tool) in &tools {
            for credential in tool.authority.credentials.names() {
                if !custody.stores().any(|(known, _)| *known == credential) {
                    return Err(ConfigError {
                        file: path.to_owned(),
                        line: Some(tool.line),
                        message: format!(
                            "[tools.{name}] has the credential `{credential}`, and there is no [credentials.{credential}]"
                        ),
                        hint: Some(format!("[credentials.{credential}]\nstore = \"keyring\"")),
                    });
                }
            }
        }
        let rules =
            file.policy.rules.into_iter().map(|rule| policy_rule(&source, rule)).collect::<Result<Vec<_>, _>>()?;
        for rule in &rules {
            let package = rule.tool.package_literal();
            if let Some(package) = package
                && !tools.keys().any(|name| name.as_str() == package)
            {
                return Err(ConfigError {
                    file: path.to_owned(),
                    line: Some(rule.line),
                    message: format!("the rule for `{}` can never match: there is no [tools.{package}]", rule.tool),
                    hint: Some("mend the name, or remove the rule".to_owned()),
                });
            }
        }
        let redact =
            file.policy.redact.into_iter().map(|pointer| redaction(&source, pointer)).collect::<Result<_, _>>()?;
        let routes = file.approval.routes;
        let concurrent = *file.limits.concurrent.get_ref();
        if !(1..=1000).contains(&concurrent) {
            let span = Some(file.limits.concurrent.span());
            return Err(source.error(span, "`concurrent` is a number from 1 to 1000", None));
        }
        Ok(Self {
            tools,
            custody: Arc::new(custody),
            policy: Policy { default: file.policy.default, rules },
            redact,
            routes: Routes {
                call: routes.call.unwrap_or_else(|| vec![RouteName::Terminal, RouteName::Ticket]),
                stdio: match routes.stdio {
                    None => vec![RouteName::Ticket],
                    Some(routes) => routes.into_iter().map(|StdioRoute::Ticket| RouteName::Ticket).collect(),
                },
            },
            wait: file.approval.wait.unwrap_or(WAIT),
            run: file.limits.run,
            memory_total: file.limits.memory_total.unwrap_or(MEMORY_TOTAL),
            concurrent,
            queue: file.limits.queue,
            durability: file.journal.durability,
        })
    }
}

/// An unknown key is told which ones there are: those that this version accepts.
fn without_unenforced(mut message: String) -> String {
    const UNENFORCED: [&str; 6] = ["sockets", "elicit", "sample", "mcp", "routes", "http"];
    // `http` of a package is enforced, `http` of the routes is not.
    let routes = message.contains("`call`");
    for name in UNENFORCED.iter().filter(|name| **name != "http" || routes) {
        if let Some((before, after)) = message.clone().split_once("expected one of ") {
            let after = after.replace(&format!("`{name}`, "), "").replace(&format!(", `{name}`"), "");
            message = format!("{before}expected one of {after}");
        }
    }
    message
}

fn tool_config(source: &Source<'_>, folder: &Path, tool: Tool, line: usize) -> Result<ToolConfig, ConfigError> {
    let text = tool.source.get_ref();
    if text.contains("://") {
        let hint = "name a .wasm file".to_owned();
        return Err(source.error(
            Some(tool.source.span()),
            format!("`{text}` is no source that this version can fetch"),
            Some(hint),
        ));
    }
    if text.is_empty() {
        return Err(source.error(Some(tool.source.span()), "`source` names a .wasm file", None));
    }
    let mut hosts: BTreeMap<PathBuf, Access> = BTreeMap::new();
    let mut resolved: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut entries = Vec::new();
    for entry in tool.files {
        let span = Some(entry.span());
        let entry = entry.into_inner();
        let Some(host) = &entry.host else {
            let hint = "files = [{ host = \"./data\", guest = \"/data\" }]".to_owned();
            return Err(source.error(span, "a file grant names a `host` folder", Some(hint)));
        };
        let host = expand(folder, host);
        let missing = |what: &str| {
            let hint = format!("make it with `mkdir -p {}`, or name another", host.display());
            source.error(span.clone(), format!("the folder `{}` {what}", host.display()), Some(hint))
        };
        let real = fs::canonicalize(&host).map_err(|_| missing("is not there"))?;
        if !real.is_dir() {
            let message = format!("`{}` is a file, and a grant names a folder", host.display());
            let hint = "grant its folder, and name the file with `only`".to_owned();
            return Err(source.error(span, message, Some(hint)));
        }
        // Also where one lies inside of the other: what is in both would have the wider of the two by its other name.
        let overlaps = |(other, access): (&PathBuf, &Access)| {
            (real.starts_with(other) || other.starts_with(&real)) && *access != entry.access
        };
        if hosts.iter().any(overlaps) {
            let hint = "give it one access; `only` and `except` say which paths".to_owned();
            return Err(source.error(
                span,
                format!("the folder `{}` is granted twice, with two kinds of access", host.display()),
                Some(hint),
            ));
        }
        hosts.insert(real.clone(), entry.access);
        if let Some(glob) = entry.only.iter().chain(&entry.except).find(|glob| !glob.may_match_within(&entry.guest)) {
            let hint =
                format!("patterns start at the guest's root: `{}/*.csv`, or `**/*.csv` for any depth", entry.guest);
            return Err(source.error(
                span,
                format!("the pattern `{glob}` matches nothing under `{}`", entry.guest),
                Some(hint),
            ));
        }
        resolved.insert(entry.guest.to_string(), real);
        entries.push(entry);
    }
    let files = file_axis(&entries, |entry| resolved.get(entry.guest.as_str()).cloned())
        .map_err(|message| source.error(Some(tool.source.span()), message, None))?;
    let environment_span = tool.environment.as_ref().map(Spanned::span);
    let environment = tool.environment.map(Spanned::into_inner).unwrap_or_default();
    if let Some(name) = environment.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(source.error(environment_span, format!("`{name}` is no name of a variable"), None));
    }
    if environment.values().any(|value| value.contains('\0')) {
        return Err(source.error(environment_span, "a variable's value holds no NUL", None));
    }
    let limits_span = tool.limits.as_ref().map(Spanned::span);
    let limits = Limits::from(tool.limits.map(Spanned::into_inner).unwrap_or_default());
    if limits.memory.is_some_and(|memory| memory > sandbox::MEMORY_MAX) {
        return Err(source.error(limits_span, "a call can have at most 4GiB of memory", None));
    }
    let mut authority = Authority::none();
    authority.files = files;
    authority.http = http_axis(&tool.http, false);
    authority.environment =
        Environment::These(environment.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect());
    authority.credentials = credential_axis(source, tool.credentials)?;
    authority.clock = tool.clock;
    authority.random = tool.random;
    authority.state = tool.state;
    authority.limits = limits.or(&Limits::DEFAULT);
    let (expose, idempotent) = (tool.expose, tool.idempotent);
    Ok(ToolConfig { source: folder.join(text), expose, authority, idempotent, limits, line })
}

/// The credentials of a package: each for which requests, and no two in one header of one request.
fn credential_axis(source: &Source<'_>, entries: Vec<Spanned<CredentialEntry>>) -> Result<Credentials, ConfigError> {
    let mut grants: Vec<CredentialGrant> = Vec::new();
    for entry in entries {
        let span = Some(entry.span());
        let entry = entry.into_inner();
        let placement = entry.placement();
        let Some(url) = entry.url else {
            let hint = format!("credentials = [{{ name = \"{}\", url = \"https://api.example.com/*\" }}]", entry.name);
            return Err(source.error(span, "a credential is for the requests of a `url`", Some(hint)));
        };
        if !url.is_private_to_the_wire() {
            let hint = "name an https:// URL, or http:// with a loopback address".to_owned();
            return Err(source.error(
                span,
                format!("the credential `{}` would go over `{url}` in plain", entry.name),
                Some(hint),
            ));
        }
        let in_the_same_place = |other: &&CredentialGrant| {
            let header = other.placement.as_ref().map(|placement| &placement.header);
            header == Some(&placement.header) && other.url.as_ref().is_some_and(|other| other.meet(&url).is_some())
        };
        if let Some(other) = grants.iter().find(in_the_same_place) {
            let message = format!(
                "the credentials `{}` and `{}` go into the header `{}` of the same requests",
                other.name, entry.name, placement.header
            );
            return Err(source.error(span, message, Some("give each its own `url`, or its own `header`".to_owned())));
        }
        grants.push(CredentialGrant { name: entry.name, url: Some(url), placement: Some(placement) });
    }
    Ok(Credentials::of(CredentialLayer::new(grants)))
}

fn custody(
    source: &Source<'_>,
    folder: &Path,
    tables: BTreeMap<CredentialName, Spanned<CredentialTable>>,
) -> Result<Custody, ConfigError> {
    let mut stores = BTreeMap::new();
    for (name, table) in tables {
        let span = Some(table.span());
        let CredentialTable { store, variable, path, command } = table.into_inner();
        let keys = [("variable", variable.is_some()), ("path", path.is_some()), ("command", command.is_some())];
        let (wanted, store) = match store {
            StoreName::Env => ("variable", variable.map(|variable| Store::Env { variable })),
            StoreName::File => ("path", path.map(|path| Store::File { path: expand(folder, &path) })),
            StoreName::Command => ("command", command.map(|command| Store::Command { command })),
            StoreName::Keyring => ("", Some(Store::Keyring)),
        };
        if let Some((key, _)) = keys.into_iter().find(|(key, is_set)| *is_set && *key != wanted) {
            let hint = "env has a `variable`, file a `path`, command a `command`, keyring nothing".to_owned();
            return Err(source.error(span, format!("`{key}` does not belong to the store of `{name}`"), Some(hint)));
        }
        let is_sound = match &store {
            None => false,
            Some(Store::Env { variable }) => !variable.is_empty() && !variable.contains(['=', '\0']),
            Some(Store::Command { command }) => {
                command.first().is_some_and(|program| !program.is_empty())
                    && !command.iter().any(|it| it.contains('\0'))
            }
            Some(_) => true,
        };
        match store.filter(|_| is_sound) {
            Some(store) => stores.insert(name, store),
            None => {
                let hint = match wanted {
                    "variable" => "variable = \"TRACKER_TOKEN\"",
                    "path" => "path = \"~/.config/portcullis/tracker.token\"",
                    _ => "command = [\"pass\", \"show\", \"tracker\"]",
                };
                return Err(source.error(
                    span,
                    format!("the store of `{name}` needs a `{wanted}`"),
                    Some(hint.to_owned()),
                ));
            }
        };
    }
    Ok(Custody::new(stores))
}

/// A leading `~` means the user's home, as in a shell.
fn expand(folder: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) => etcetera::home_dir().map_or_else(|_| folder.join(path), |home| home.join(rest)),
        Err(_) => folder.join(path),
    }
}

fn redaction(source: &Source<'_>, pointer: Spanned<String>) -> Result<Redaction, ConfigError> {
    let span = pointer.span();
    let pointer = pointer.into_inner();
    let escaped = |part: &str| part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if pointer.len() > 1 && pointer.starts_with('/') && escaped(&pointer) {
        return Ok(Redaction { pointer, line: source.line(span.start) });
    }
    let hint = "redact = [\"/password\", \"/request/token\"]".to_owned();
    Err(source.error(Some(span), format!("`{pointer}` is no JSON Pointer to an argument"), Some(hint)))
}

const SCHEMA_HINT: &str = "`arguments` is a JSON Schema, draft 2020-12, over the tool's arguments: \
    { properties = { path = { pattern = \"^/data/\" } }, required = [\"path\"] }";

fn policy_rule(source: &Source<'_>, rule: Spanned<RuleTable>) -> Result<Arc<Rule>, ConfigError> {
    let span = rule.span();
    let line = source.line(span.start);
    let rule = rule.into_inner();
    if rule.verdict == RuleVerdict::Deny && rule.only.is_some() {
        let hint = "remove `only`; a rule that denies grants nothing".to_owned();
        return Err(source.error(Some(span), "`only` belongs to rules that allow or ask", Some(hint)));
    }
    let arguments = match rule.arguments {
        Some(schema) => {
            let span = schema.span();
            let schema = ArgumentSchema::new(schema.into_inner())
                .map_err(|error| source.error(Some(span), error.to_string(), Some(SCHEMA_HINT.to_owned())))?;
            Some(schema)
        }
        None => None,
    };
    Ok(Arc::new(Rule {
        tool: rule.tool.0,
        arguments,
        verdict: rule.verdict,
        only: rule.only,
        reason: rule.reason,
        line,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        Config::parse(&folder.path().join("portcullis.toml"), text)
    }

    fn error(text: &str) -> (Option<usize>, String) {
        let error = parse(text).expect_err(text);
        (error.line, error.message)
    }

    #[test]
    fn an_empty_file_asks_about_everything_and_grants_nothing() {
        let config = parse("").unwrap();
        assert!(config.tools.is_empty());
        assert_eq!(config.policy.default, DefaultVerdict::Ask);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            ("\n[tool.x]\nsource = \"a\"", 2, "unknown field `tool`"),
            ("[tools.x]\nsource = \"a\"\nfile = []", 3, "unknown field `file`"),
            ("[tools.\"x y\"]\nsource = \"a\"", 1, "a package name"),
            ("[tools.x]\nsource = \"oci://a/b\"", 2, "no source that this version"),
            ("[tools.x]\nsource = \"a\"\nfiles = [{ guest = \"/d\" }]", 3, "names a `host`"),
            ("[tools.x]\nsource = \"a\"\nfiles = [{ host = \"./none\", guest = \"/d\" }]", 3, "is not there"),
            ("[tools.x]\nsource = \"a\"\nfiles = [{ host = \"./data\", guest = \"d\" }]", 3, "starts with `/`"),
            (
                "[tools.x]\nsource = \"a\"\nfiles = [{ host = \"./data\", guest = \"/d/../e\" }]",
                3,
                "no empty, `.` or `..`",
            ),
            (
                "[tools.x]\nsource = \"a\"\nfiles = [{ host = \"./data\", guest = \"/a\" },\n{ host = \"data\", guest = \"/b\", access = \"write\" }]",
                4,
                "two kinds of access",
            ),
            (
                "[tools.x]\nsource = \"a\"\nfiles = [{ host = \".\", guest = \"/a\", access = \"write\" },\n{ host = \"data\", guest = \"/b\" }]",
                4,
                "two kinds of access",
            ),
            (
                "[tools.x]\nsource = \"a\"\nfiles = [{ host = \"./data\", guest = \"/data\", only = [\"*.csv\"] }]",
                3,
                "matches nothing under `/data`",
            ),
            ("[tools.x]\nsource = \"a\"\nfiles = [\"./data\"]", 3, "expected a table such as { host"),
            ("[tools.x]\nsource = \"a\"\nhttp = [\"https://a.test/\"]", 3, "expected a table such as { url"),
            (
                "[[policy.rules]]\ntool = \"*/*\"\nverdict = \"ask\"\narguments = { propertes = {} }",
                4,
                "`propertes` is no keyword of JSON Schema",
            ),
            ("[tools.x]\nsource = \"a\"\nhttp = [{ url = \"https://u:p@a.test/*\" }]", 3, "no user name"),
            ("[tools.x]\nsource = \"a\"\nhttp = [{ url = \"https://a.*.test/*\" }]", 3, "nowhere else"),
            ("[tools.x]\nsource = \"a\"\nhttp = [{ url = \"https://a.test/*\", methods = [\"get\"] }]", 3, "no method"),
            ("[tools.x]\nsource = \"a\"\nsockets = []", 3, "cannot enforce"),
            ("[tools.x]\nsource = \"a\"\nlimits = { memory = \"lots\" }", 3, "a size such as"),
            ("[tools.x]\nsource = \"a\"\nlimits = { memory = \"5GiB\" }", 3, "at most 4GiB"),
            ("[tools.x]\nsource = \"a\"\nlimits = { wall = \"0s\" }", 3, "a time such as"),
            ("[policy]\ndefault = \"allow\"", 2, "unknown variant `allow`"),
            ("[[policy.rules]]\ntool = \"x\"\nverdict = \"allow\"", 2, "a tool pattern has the form"),
            ("[[policy.rules]]\ntool = \"x/y\"\nverdict = \"allow\"", 1, "can never match"),
            ("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"maybe\"", 3, "unknown variant"),
            ("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"deny\"\nonly = {}", 1, "`only` belongs"),
            ("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"ask\"\narguments = { type = 1 }", 4, "no JSON Schema"),
            ("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"ask\"\nonly = { files = [\"{path\"] }", 4, "a placeholder"),
            ("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"ask\"\nonly = { disk = [] }", 4, "unknown field `disk`"),
            ("[policy]\nredact = [\"password\"]", 2, "no JSON Pointer"),
            ("[policy]\nredact = [\"/a~2\"]", 2, "no JSON Pointer"),
            ("[limits]\nconcurrent = 0", 2, "from 1 to 1000"),
            ("[tools.x]\nsource = \"a\"\nsource = \"b\"", 3, "duplicate key"),
            ("[tools.x\n", 1, ""),
        ];
        for (text, line, message) in cases {
            let (found_line, found) = error(text);
            assert!(found.contains(message), "{text}\n→ {found}");
            assert_eq!(found_line, Some(line), "{text}\n→ {found}");
        }
    }
}
