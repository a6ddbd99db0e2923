//! Credentials: which references a call may use, for which requests, and where the host puts what they stand for.
//!
//! This is data about references. What they stand for is in custody, and no authority ever holds it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value as Json, json};

use super::layers::{Layer, Layers};
use super::url_pattern::{NormalUrl, UrlPattern};

/// Longest name of a credential.
const NAME_MAX: usize = 64;

/// The reference to a credential: the name of a `[credentials.NAME]`. ASCII letters, digits, `_` and `-`, and it begins with a
/// letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CredentialName(String);

impl CredentialName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CredentialName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if first && rest && text.len() <= NAME_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err("a credential's name has 1 to 64 ASCII letters, digits, `_` and `-`, and begins with a letter")
        }
    }
}

impl TryFrom<String> for CredentialName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CredentialName> for String {
    fn from(name: CredentialName) -> String {
        name.0
    }
}

impl fmt::Display for CredentialName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the host puts a credential.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The header's name, in lower case.
    #[serde(deserialize_with = "header")]
    pub header: String,
    /// The header's value, in which `{}` stands for the credential.
    #[serde(deserialize_with = "format")]
    pub format: String,
}

/// Headers that say where a request goes, how it is framed, or what part of an answer is wanted.
const NO_PLACE: [&str; 18] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "host",
    "http2-settings",
    "if-range",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Reads the name of a header that a credential can go into.
///
/// # Errors
///
/// It is no name of a header, or of one that the host needs for itself.
pub fn header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| serde::de::Error::custom(format!("`{text}` is no name of a header")))?;
    if NO_PLACE.contains(&name.as_str()) {
        return Err(serde::de::Error::custom(format!("the header `{name}` is no place for a credential")));
    }
    Ok(name.as_str().to_owned())
}

/// Reads the format of a header's value.
///
/// # Errors
///
/// It does not hold `{}` exactly once, or what no header can hold.
pub fn format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_printable = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if text.matches("{}").count() == 1 && is_printable && text.trim() == text {
        Ok(text)
    } else {
        Err(serde::de::Error::custom(
            "a format holds `{}` once, for the credential, and beside it printable ASCII: `Bearer {}`",
        ))
    }
}

impl Placement {
    /// Where it goes unless something else is said: `authorization: Bearer …`.
    pub fn bearer() -> Self {
        Self { header: "authorization".to_owned(), format: "Bearer {}".to_owned() }
    }
}

/// One credential, for some requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CredentialGrant {
    /// Which.
    pub name: CredentialName,
    /// For requests to where; none leaves that open, which only narrowing may say.
    pub url: Option<UrlPattern>,
    /// Where it is put; none leaves that open, likewise.
    pub placement: Option<Placement>,
}

impl CredentialGrant {
    /// What both grant; none where they grant different things.
    fn meet(&self, other: &Self) -> Option<Self> {
        if self.name != other.name {
            return None;
        }
        let placement = match (&self.placement, &other.placement) {
            (Some(a), Some(b)) if a != b => return None,
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let url = match (&self.url, &other.url) {
            (Some(a), Some(b)) => Some(a.meet(b)?),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Some(Self { name: self.name.clone(), url, placement })
    }

    fn covers(&self, narrow: &Self) -> bool {
        self.meet(narrow).as_ref() == Some(narrow)
    }
}

impl fmt::Display for CredentialGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        if let Some(placement) = &self.placement {
            write!(f, " in the header `{}: {}`", placement.header, placement.format.replace("{}", "…"))?;
        }
        match &self.url {
            Some(url) => write!(f, " of requests to {url}"),
            None => Ok(()),
        }
    }
}

/// One constraint: a use of a credential must fit one of the grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CredentialLayer {
    grants: BTreeSet<CredentialGrant>,
}

impl CredentialLayer {
    /// A layer of grants.
    pub fn new(grants: impl IntoIterator<Item = CredentialGrant>) -> Self {
        Self { grants: grants.into_iter().collect() }
    }

    /// The grants.
    pub(super) fn grants(&self) -> impl Iterator<Item = &CredentialGrant> {
        self.grants.iter()
    }
}

impl Layer for CredentialLayer {
    fn is_nothing(&self) -> bool {
        self.grants.is_empty()
    }
}

/// The axis.
pub type Credentials = Layers<CredentialLayer>;

impl Layers<CredentialLayer> {
    /// What all layers together leave.
    fn left(&self) -> BTreeSet<CredentialGrant> {
        let mut layers = self.iter();
        let first = layers.next().map(|layer| layer.grants.clone()).unwrap_or_default();
        layers.fold(first, |left, layer| {
            left.iter().flat_map(|a| layer.grants.iter().filter_map(|b| a.meet(b))).collect()
        })
    }

    /// The credentials that a request carries, and where.
    pub fn for_request(&self, url: &NormalUrl) -> BTreeSet<(CredentialName, Placement)> {
        let fits = |grant: &CredentialGrant| grant.url.as_ref().is_some_and(|pattern| pattern.matches(url));
        let left = self.left().into_iter().filter(fits);
        left.filter_map(|grant| Some((grant.name, grant.placement?))).collect()
    }

    /// The names that the layers mention.
    pub fn names(&self) -> BTreeSet<CredentialName> {
        self.iter().flat_map(|layer| layer.grants.iter().map(|grant| grant.name.clone())).collect()
    }

    /// Whether any request may carry it.
    pub fn grants(&self, name: &str) -> bool {
        self.left().iter().any(|grant| grant.name.as_str() == name && grant.url.is_some() && grant.placement.is_some())
    }

    /// For people: what this grants and `declared` does not leave whole.
    pub fn beyond(&self, declared: &Self) -> Vec<String> {
        let left = |grant: &&CredentialGrant| {
            declared.iter().all(|layer| layer.grants.iter().any(|declared| declared.covers(grant)))
        };
        let grants = self.iter().flat_map(|layer| &layer.grants).filter(|grant| !left(grant));
        grants.map(|grant| format!("grants the credential `{grant}`, and the package declares less")).collect()
    }

    /// For people: what all layers together leave, one line a grant.
    pub fn lines(&self) -> Vec<String> {
        if self.is_everything() {
            return vec!["any credential".to_owned()];
        }
        self.left().iter().map(ToString::to_string).collect()
    }

    /// As data, for digests and `--json`.
    pub fn to_json(&self) -> Json {
        self.iter()
            .map(|layer| {
                let grants = layer.grants.iter().map(|grant| {
                    json!({
                        "name": grant.name, "url": grant.url.as_ref().map(ToString::to_string), "placement": grant.placement,
                    })
                });
                grants.collect::<Json>()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(name: &str, url: Option<&str>, format: Option<&str>) -> CredentialGrant {
        CredentialGrant {
            name: name.parse().unwrap(),
            url: url.map(|url| url.parse().unwrap()),
            placement: format.map(|format| Placement { format: format.to_owned(), ..Placement::bearer() }),
        }
    }

    fn of(grants: &[CredentialGrant]) -> Credentials {
        Credentials::of(CredentialLayer::new(grants.iter().cloned()))
    }

    #[test]
    fn credentials_meet_only_where_name_header_and_format_are_equal() {
        let configured = of(&[grant("a", Some("https://a.test/*"), Some("Bearer {}"))]);
        let at = |credentials: &Credentials, url: &str| {
            let found = credentials.for_request(&url.parse().unwrap());
            found.into_iter().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(at(&configured, "https://a.test/x"), ["a"]);
        assert_eq!(at(&configured, "https://b.test/x"), Vec::<String>::new());
        assert_eq!(at(&configured, "http://a.test/x"), Vec::<String>::new());
        let cases = [
            (grant("a", None, None), true),
            (grant("a", Some("https://a.test/v1/*"), None), false),
            (grant("a", Some("https://a.test/x"), Some("Bearer {}")), true),
            (grant("a", None, Some("Token {}")), false),
            (grant("b", None, None), false),
        ];
        for (other, expected) in cases {
            let both = configured.meet(&of(std::slice::from_ref(&other)));
            assert_eq!(!at(&both, "https://a.test/x").is_empty(), expected, "{other}");
        }
        assert!(Credentials::nothing().for_request(&"https://a.test/".parse().unwrap()).is_empty());
        assert!(Credentials::everything().for_request(&"https://a.test/".parse().unwrap()).is_empty());
        assert!(configured.grants("a") && !configured.grants("b"));
        assert_eq!(configured.lines(), ["a in the header `authorization: Bearer …` of requests to https://a.test/*"]);
    }

    #[test]
    fn a_placement_is_a_header_that_the_host_can_spare() {
        let read = |header: &str, format: &str| {
            serde_json::from_value::<Placement>(json!({ "header": header, "format": format }))
        };
        assert_eq!(read("X-Api-Key", "{}").unwrap().header, "x-api-key");
        for (header, format) in [
            ("host", "{}"),
            ("Transfer-Encoding", "{}"),
            ("range", "{}"),
            ("a b", "{}"),
            ("a", ""),
            ("a", "Bearer"),
            ("a", "{}{}"),
            ("a", "{}\r\nhost: x"),
            ("a", " {}"),
        ] {
            assert!(read(header, format).is_err(), "{header}: {format}");
        }
    }
}
