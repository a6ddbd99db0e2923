//! Narrowing by arguments: `only = { files = ["{path}"] }`.
//!
//! A template takes a string value from the canonical arguments, by a dotted path. The value is never read as a pattern,
//! and a template gives nothing where the value is absent, of another type, or not in normal form. What lies outside of
//! the authority that it narrows falls away in the meet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value as Json, json};

use super::Authority;
use super::clock::Clock;
use super::credentials::{CredentialGrant, CredentialLayer, CredentialName, Credentials};
use super::environment::Environment;
use super::files::{Access, FileGrant, FileLayer, Files};
use super::grammar::{LimitEntries, Unenforced, deserialize_by_parse};
use super::http::{Http, HttpGrant, HttpLayer, Private};
use super::limits::Limits;
use super::path::{Glob, GuestPath, PathError, is_segment};
use super::state::StateScope;
use super::url_pattern::{NormalUrl, UrlError, UrlPattern};

/// The `only` of a rule: an axis that is absent becomes none, except clock, random and limits, which stay.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Only {
    files: Vec<FileTemplate>,
    http: Vec<UrlTemplate>,
    environment: BTreeSet<String>,
    credentials: BTreeSet<CredentialName>,
    clock: Option<Clock>,
    random: Option<bool>,
    state: StateScope,
    limits: LimitEntries,
    #[serde(rename = "sockets")]
    _sockets: Option<Unenforced>,
    #[serde(rename = "elicit")]
    _elicit: Option<Unenforced>,
    #[serde(rename = "sample")]
    _sample: Option<Unenforced>,
}

impl Only {
    /// The narrowing for one call.
    pub fn of(&self, arguments: &Json) -> Authority {
        let mut by_access: BTreeMap<Access, BTreeSet<Glob>> = BTreeMap::new();
        for entry in &self.files {
            if let Some(path) = entry.path.of(arguments) {
                by_access.entry(entry.access).or_default().insert(path);
            }
        }
        let grants =
            by_access.into_iter().map(|(access, only)| FileGrant { only, ..FileGrant::new(GuestPath::root(), access) });
        let files = Files::of(FileLayer::new(grants));
        let urls = self.http.iter().filter_map(|template| template.of(arguments));
        let http =
            Http::of(HttpLayer::new(urls.map(|url| HttpGrant { url, methods: None, private: Private::Unchanged })));
        let names: BTreeMap<String, Option<String>> =
            self.environment.iter().map(|name| (name.clone(), None)).collect();
        let credentials =
            self.credentials.iter().map(|name| CredentialGrant { name: name.clone(), url: None, placement: None });
        Authority {
            files,
            http,
            environment: Environment::These(names),
            credentials: Credentials::of(CredentialLayer::new(credentials)),
            clock: self.clock.unwrap_or(Clock::Real),
            random: self.random.unwrap_or(true),
            state: self.state,
            limits: self.limits.into(),
            ..Authority::configured()
        }
    }

    /// As configuration would write it, to be stored and read back.
    pub fn to_json(&self) -> Json {
        let files: Vec<Json> = self
            .files
            .iter()
            .map(|entry| match entry.access {
                Access::Write => json!(entry.path.0),
                access => json!({ "path": entry.path.0, "access": access }),
            })
            .collect();
        let http: Vec<&str> = self.http.iter().map(|template| template.0.as_str()).collect();
        let mut only = json!({});
        for (axis, entries) in [
            ("files", json!(files)),
            ("http", json!(http)),
            ("environment", json!(self.environment)),
            ("credentials", json!(self.credentials)),
        ] {
            if entries.as_array().is_some_and(|entries| !entries.is_empty()) {
                only[axis] = entries;
            }
        }
        if let Some(clock) = self.clock {
            only["clock"] = json!(clock);
        }
        if let Some(random) = self.random {
            only["random"] = json!(random);
        }
        if self.state != StateScope::None {
            only["state"] = json!(self.state);
        }
        let limits = Limits::from(self.limits);
        if limits != Limits::default() {
            only["limits"] = limits.to_json();
        }
        only
    }

    /// The narrowing, where it is the same for every call.
    pub fn constant(&self) -> Option<Authority> {
        self.argument_paths().is_empty().then(|| self.of(&Json::Null))
    }

    /// For people: templates that grant nothing for these arguments although they name a value, and why.
    pub fn misses(&self, arguments: &Json) -> Vec<String> {
        let files = self.files.iter().filter(|entry| entry.path.of(arguments).is_none()).map(|entry| &entry.path.0);
        let urls = self.http.iter().filter(|url| url.of(arguments).is_none()).map(|url| &url.0);
        let missed = files
            .chain(urls)
            .map(|template| format!("`{template}` grants nothing, since its value is missing or not in normal form"));
        missed.collect()
    }

    /// For people: what is left, one line an entry.
    pub fn lines(&self) -> Vec<String> {
        let files = self.files.iter().map(|entry| match entry.access {
            Access::Write => format!("files {}", entry.path),
            access => format!("files {}, {access} only", entry.path),
        });
        let http = self.http.iter().map(|url| format!("http {url}"));
        let environment = self.environment.iter().map(|name| format!("environment {name}"));
        let credentials = self.credentials.iter().map(|name| format!("credentials {name}"));
        let clock = self.clock.iter().map(|clock| format!("clock {clock}"));
        let random = self.random.iter().map(|random| format!("random {random}"));
        let state = (self.state != StateScope::None).then(|| format!("state {}", self.state));
        let limits = Limits::from(self.limits).named().into_iter().map(|(name, value)| format!("{name} {value}"));
        files
            .chain(http)
            .chain(environment)
            .chain(credentials)
            .chain(clock)
            .chain(random)
            .chain(state)
            .chain(limits)
            .collect()
    }

    /// The argument paths that the templates read, to be checked against a tool's arguments.
    pub fn argument_paths(&self) -> Vec<&str> {
        let files = self.files.iter().flat_map(|entry| placeholders(&entry.path.0));
        let urls = self.http.iter().flat_map(|template| placeholders(&template.0));
        files.chain(urls).collect()
    }
}

/// An entry of `files`: a template alone leaves the access as it is; `{ path = "…", access = "read" }` narrows it too.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileTemplate {
    path: PathTemplate,
    access: Access,
}

impl<'de> Deserialize<'de> for FileTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            path: PathTemplate,
            access: Access,
        }
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = FileTemplate;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path template, or a table with `path` and `access`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FileTemplate, E> {
                Ok(FileTemplate { path: text.parse().map_err(E::custom)?, access: Access::Write })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileTemplate, A::Error> {
                let Table { path, access } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(FileTemplate { path, access })
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

/// `{path}`: the one path that the argument names. `{path}/**`: that path and everything beneath it, for a folder. Or a path
/// pattern with placeholders that each take exactly one segment, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate(String);

impl PathTemplate {
    fn of(&self, arguments: &Json) -> Option<Glob> {
        if let Some(name) = whole(&self.0) {
            let path: GuestPath = text_at(arguments, name)?.parse().ok()?;
            return Some(Glob::exact(&path));
        }
        if let Some(name) = self.0.strip_suffix("/**").and_then(whole) {
            let path: GuestPath = text_at(arguments, name)?.parse().ok()?;
            return Some(Glob::beneath(&path));
        }
        let value = |name: &str| text_at(arguments, name).filter(|text| is_segment(text)).map(str::to_owned);
        Glob::with_values(&self.0, value).ok().flatten()
    }
}

impl FromStr for PathTemplate {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if !placeholders(text).iter().all(|name| is_argument_path(name)) {
            return Err(PathError::Placeholder);
        }
        if whole(text.strip_suffix("/**").unwrap_or(text)).is_none() {
            Glob::with_values(text, |_| Some("x".to_owned()))?;
            if !text.starts_with('/') && !text.starts_with("**") {
                return Err(PathError::Relative);
            }
        }
        Ok(Self(text.to_owned()))
    }
}

/// `{url}`, or a URL pattern with placeholders in its path that each take one segment, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate(String);

impl UrlTemplate {
    fn of(&self, arguments: &Json) -> Option<UrlPattern> {
        if let Some(name) = whole(&self.0) {
            let url: NormalUrl = text_at(arguments, name)?.parse().ok()?;
            return Some(UrlPattern::exact(&url));
        }
        let filled = fill(&self.0, |name| text_at(arguments, name).filter(|text| is_url_segment(text)))?;
        filled.parse().ok()
    }
}

impl FromStr for UrlTemplate {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if !placeholders(text).iter().all(|name| is_argument_path(name)) {
            return Err(UrlError::Placeholder);
        }
        if whole(text).is_none() {
            let authority = text.split_once("://").and_then(|(_, rest)| rest.split('/').next()).unwrap_or(text);
            if authority.contains('{') {
                return Err(UrlError::Placeholder);
            }
            fill(text, |_| Some("x")).ok_or(UrlError::Placeholder)?.parse::<UrlPattern>()?;
        }
        Ok(Self(text.to_owned()))
    }
}

deserialize_by_parse!(PathTemplate, UrlTemplate);

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A placeholder that is the whole template.
fn whole(text: &str) -> Option<&str> {
    text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).filter(|name| !name.contains(['{', '}']))
}

fn placeholders(text: &str) -> Vec<&str> {
    text.split('{').skip(1).map(|rest| rest.split('}').next().unwrap_or(rest)).collect()
}

fn is_argument_path(name: &str) -> bool {
    let is_name =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    name.split('.').all(is_name)
}

/// A value that stands for itself in a URL's path: unreserved characters of RFC 3986 only, and no dot segment.
fn is_url_segment(text: &str) -> bool {
    is_segment(text) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'))
}

fn fill<'v>(text: &str, value: impl Fn(&str) -> Option<&'v str>) -> Option<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        let end = rest[at..].find('}')? + at;
        filled.push_str(value(&rest[at + 1..end])?);
        rest = &rest[end + 1..];
    }
    if rest.contains('}') {
        return None;
    }
    filled.push_str(rest);
    Some(filled)
}

fn text_at<'a>(arguments: &'a Json, path: &str) -> Option<&'a str> {
    path.split('.').try_fold(arguments, |at, name| at.as_object()?.get(name))?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Only {
        toml::from_str(text).unwrap()
    }

    fn reads(authority: &Authority, path: &str) -> bool {
        authority.files.access(&path.parse().unwrap()).is_some()
    }

    #[test]
    fn a_template_grants_the_path_it_is_given_and_nothing_else() {
        let narrowed = only(r#"files = ["{path}"]"#).of(&json!({ "path": "/data/q3.csv" }));
        assert!(reads(&narrowed, "/data/q3.csv"));
        assert!(!reads(&narrowed, "/data/q4.csv"));
        assert!(!reads(&narrowed, "/data"));
        assert!(narrowed.http.is_nothing());
        assert_eq!(narrowed.clock, Clock::Real);
    }

    #[test]
    fn what_is_stored_reads_back_as_the_same() {
        let written = only(
            r#"files = ["{path}", { path = "/a/*", access = "read" }]
http = ["{u.url}", "https://a.test/*"]
environment = ["A"]
credentials = ["tracker"]
clock = "coarse"
random = false
limits = { wall = "1500ms", memory = "1000B", files = 3 }"#,
        );
        let read: Only = serde_json::from_value(written.to_json()).unwrap();
        assert_eq!(read.to_json(), written.to_json());
        let arguments = json!({ "path": "/x", "u": { "url": "https://b.test/" } });
        assert_eq!(read.of(&arguments), written.of(&arguments));
        let nothing: Only = serde_json::from_value(only("").to_json()).unwrap();
        assert_eq!(nothing.of(&arguments), only("").of(&arguments));
    }

    #[test]
    fn an_entry_can_narrow_the_access_too() {
        let arguments = json!({ "path": "/data/a", "to": "/data/b" });
        let narrowed = only(r#"files = [{ path = "{path}", access = "read" }, "{to}"]"#).of(&arguments);
        let access = |path: &str| narrowed.files.access(&path.parse().unwrap());
        assert_eq!(access("/data/a"), Some(Access::Read));
        assert_eq!(access("/data/b"), Some(Access::Write));
        let both = only(r#"files = [{ path = "{path}", access = "read" }, "{path}"]"#).of(&arguments);
        assert_eq!(both.files.access(&"/data/a".parse().unwrap()), Some(Access::Write), "one entry may say more");
    }

    #[test]
    fn a_folder_is_granted_with_what_it_holds_only_where_the_template_says_so() {
        let narrowed = only(r#"files = ["{path}/**"]"#).of(&json!({ "path": "/data/public" }));
        for yes in ["/data/public", "/data/public/a", "/data/public/sub/b"] {
            assert!(reads(&narrowed, yes), "{yes}");
        }
        for no in ["/data", "/data/publicity", "/data/private/a"] {
            assert!(!reads(&narrowed, no), "{no}");
        }
        let template = only(r#"files = ["{path}/**"]"#);
        assert!(template.of(&json!({ "path": "/data/.." })).files.is_nothing());
    }

    #[test]
    fn a_value_that_is_absent_or_not_normal_gives_nothing() {
        let template = only(r#"files = ["{path}"]"#);
        for arguments in [
            json!({}),
            json!({ "path": null }),
            json!({ "path": 1 }),
            json!({ "path": ["/data/a"] }),
            json!({ "path": "data/a" }),
            json!({ "path": "/data/../etc" }),
            json!({ "path": "/data//a" }),
            json!({ "path": "/data/a/" }),
            json!({ "path": "/data/./a" }),
            json!({ "path": "/a\0" }),
            json!({ "path": "" }),
        ] {
            assert!(template.of(&arguments).files.is_nothing(), "{arguments}");
        }
        let template = only(r#"http = ["{request.url}"]"#);
        for url in ["https://a.test/../x", "HTTPS://a.test/", "https://u@a.test/", "https://a.test/%2e%2e/x"] {
            assert!(template.of(&json!({ "request": { "url": url } })).http.is_nothing(), "{url}");
        }
        assert!(!template.of(&json!({ "request": { "url": "https://a.test/x" } })).http.is_nothing());
    }

    #[test]
    fn a_value_is_never_a_pattern() {
        let narrowed = only(r#"files = ["{path}"]"#).of(&json!({ "path": "/data/**" }));
        assert!(reads(&narrowed, "/data/**"));
        assert!(!reads(&narrowed, "/data/a"));
    }

    #[test]
    fn a_placeholder_in_a_pattern_takes_exactly_one_segment() {
        let template = only(r#"files = ["/data/{name}/*.txt"]"#);
        assert!(reads(&template.of(&json!({ "name": "x" })), "/data/x/a.txt"));
        for name in ["..", ".", "", "a/b", "a/../b"] {
            assert!(template.of(&json!({ "name": name })).files.is_nothing(), "{name}");
        }
        let template = only(r#"http = ["https://a.test/repos/{owner}/*"]"#);
        let url = "https://a.test/repos/me/x".parse().unwrap();
        assert!(template.of(&json!({ "owner": "me" })).http.allows("GET", &url).is_some());
        for owner in ["..", "a/b", "a%2fb", "*", "a?b", ""] {
            assert!(template.of(&json!({ "owner": owner })).http.is_nothing(), "{owner}");
        }
    }

    #[test]
    fn what_can_never_match_does_not_load() {
        for bad in [
            r#"files = ["{path"]"#,
            r#"files = ["{}"]"#,
            r#"files = ["{a b}"]"#,
            r#"files = ["data/x"]"#,
            r#"files = ["/data/../x"]"#,
            r#"files = ["/a/x**"]"#,
            r#"http = ["https://{host}/x"]"#,
            r#"http = ["{url"]"#,
            r#"http = ["https://a.test/}"]"#,
            r#"unknown = []"#,
            r#"files = [{ path = "{a}" }]"#,
            r#"files = [{ path = "{a}", access = "all" }]"#,
            r#"files = [{ path = "{a}", access = "read", more = 1 }]"#,
            r#"files = [1]"#,
            r#"sockets = []"#,
        ] {
            assert!(toml::from_str::<Only>(bad).is_err(), "{bad}");
        }
    }
}
