//! HTTP: which requests a call may make.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value as Json, json};

use super::layers::{Layer, Layers};
use super::url_pattern::{NormalUrl, UrlPattern};

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpGrant {
    /// Where to.
    pub url: UrlPattern,
    /// Upper-case method names; none means that this grant does not constrain methods, which only narrowing may say.
    pub methods: Option<BTreeSet<String>>,
    /// Whether a private, loopback or other non-public address is meant.
    pub private: Private,
}

/// Whether a non-public address is meant. Only the host's configuration says so; what a package declares and what narrows
/// leaves it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Private {
    Unchanged,
    No,
    Yes,
}

impl Private {
    fn meet(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::Unchanged, Self::Unchanged) => Self::Unchanged,
        }
    }
}

impl HttpGrant {
    /// The methods that an absent list means.
    pub fn default_methods() -> BTreeSet<String> {
        BTreeSet::from(["GET".to_owned(), "HEAD".to_owned()])
    }

    /// The requests of both; none where there are none.
    fn meet(&self, other: &Self) -> Option<Self> {
        let methods = match (&self.methods, &other.methods) {
            (Some(a), Some(b)) => Some(a.intersection(b).cloned().collect::<BTreeSet<_>>()),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        if methods.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        Some(Self { url: self.url.meet(&other.url)?, methods, private: self.private.meet(other.private) })
    }

    fn allows(&self, method: &str, url: &NormalUrl) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method)) && self.url.matches(url)
    }
}

impl fmt::Display for HttpGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.methods {
            Some(methods) => write!(f, "{} ", methods.iter().cloned().collect::<Vec<_>>().join(" "))?,
            None => f.write_str("any method ")?,
        }
        write!(f, "{}", self.url)?;
        if self.private == Private::Yes { f.write_str(" (private)") } else { Ok(()) }
    }
}

/// One constraint on requests: a request must fit one of the grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpLayer {
    grants: BTreeSet<HttpGrant>,
}

impl HttpLayer {
    /// A layer of grants.
    pub fn new(grants: impl IntoIterator<Item = HttpGrant>) -> Self {
        Self { grants: grants.into_iter().collect() }
    }

    /// The grants.
    pub(super) fn grants(&self) -> impl Iterator<Item = &HttpGrant> {
        self.grants.iter()
    }
}

impl Layer for HttpLayer {
    fn is_nothing(&self) -> bool {
        self.grants.is_empty()
    }
}

/// The axis.
pub type Http = Layers<HttpLayer>;

/// That a request may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Also to a private address.
    pub private: bool,
}

impl Layers<HttpLayer> {
    /// Whether the request may be made; none where it may not.
    pub fn allows(&self, method: &str, url: &NormalUrl) -> Option<Allowed> {
        let mut private = Private::Unchanged;
        for layer in self.iter() {
            let fitting = layer.grants.iter().filter(|grant| grant.allows(method, url)).map(|grant| grant.private);
            // Of several fitting grants the one that says the most counts.
            private = private.meet(fitting.max_by_key(|private| (*private != Private::No, *private))?);
        }
        Some(Allowed { private: private == Private::Yes })
    }

    /// For people: what this grants and `declared` does not leave whole.
    pub fn beyond(&self, declared: &Self) -> Vec<String> {
        let covers = |wide: &HttpGrant, narrow: &HttpGrant| {
            let methods = match (&wide.methods, &narrow.methods) {
                (None, _) => true,
                (Some(wide), Some(narrow)) => narrow.is_subset(wide),
                (Some(_), None) => false,
            };
            methods && wide.url.meet(&narrow.url).as_ref() == Some(&narrow.url)
        };
        let left = |grant: &&HttpGrant| {
            declared.iter().all(|layer| layer.grants.iter().any(|declared| covers(declared, grant)))
        };
        let grants = self.iter().flat_map(|layer| &layer.grants).filter(|grant| !left(grant));
        grants.map(|grant| format!("grants `{grant}`, and the package declares less")).collect()
    }

    /// For people: what all layers together leave, one line a grant.
    pub fn lines(&self) -> Vec<String> {
        if self.is_everything() {
            return vec!["any request".to_owned()];
        }
        let mut layers = self.iter();
        let first: Vec<HttpGrant> =
            layers.next().map(|layer| layer.grants.iter().cloned().collect()).unwrap_or_default();
        let left = layers.fold(first, |left, layer| {
            left.iter().flat_map(|a| layer.grants.iter().filter_map(|b| a.meet(b))).collect()
        });
        let lines: BTreeSet<String> = left.iter().map(ToString::to_string).collect();
        lines.into_iter().collect()
    }

    /// As data, for digests and `--json`.
    pub fn to_json(&self) -> Json {
        self.iter()
            .map(|layer| {
                layer
                    .grants
                    .iter()
                    .map(|grant| {
                        json!({ "url": grant.url.to_string(), "methods": grant.methods, "private": grant.private == Private::Yes })
                    })
                    .collect::<Json>()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(url: &str, methods: Option<&[&str]>, private: Private) -> HttpGrant {
        HttpGrant {
            url: url.parse().unwrap(),
            methods: methods.map(|m| m.iter().map(|m| (*m).to_owned()).collect()),
            private,
        }
    }

    #[test]
    fn narrowing_to_one_url_keeps_methods_and_privacy() {
        let configured = Http::of(HttpLayer::new([grant("http://127.0.0.1:9/*", Some(&["GET"]), Private::Yes)]));
        let narrowing = Http::of(HttpLayer::new([grant("http://127.0.0.1:9/a", None, Private::Unchanged)]));
        let both = configured.meet(&narrowing);
        let a = "http://127.0.0.1:9/a".parse().unwrap();
        assert_eq!(both.allows("GET", &a), Some(Allowed { private: true }));
        assert_eq!(both.allows("POST", &a), None);
        assert_eq!(both.allows("GET", &"http://127.0.0.1:9/b".parse().unwrap()), None);
    }

    #[test]
    fn people_are_shown_what_both_sides_leave() {
        let lines = |a: &str, b: &str| {
            let granted = Http::of(HttpLayer::new([grant(a, Some(&["GET", "POST"]), Private::No)]));
            granted.meet(&Http::of(HttpLayer::new([grant(b, Some(&["GET"]), Private::Unchanged)]))).lines()
        };
        assert_eq!(lines("https://a.test/*", "https://a.test/v1/*"), ["GET https://a.test/v1/*"]);
        assert_eq!(lines("https://*.a.test/*", "https://b.a.test/x"), ["GET https://b.a.test/x"]);
        assert_eq!(lines("https://*.a.test/*", "https://*.b.a.test/*"), ["GET https://*.b.a.test/*"]);
        for (a, b) in [
            ("https://a.test/*", "https://b.test/*"),
            ("https://a.test/*", "http://a.test/*"),
            ("https://a.test/v1/*", "https://a.test/v2/*"),
            ("https://a.test/x", "https://a.test/y"),
            ("https://*.a.test/*", "https://a.test/*"),
            ("https://a.test/*", "https://a.test:8443/*"),
        ] {
            assert_eq!(lines(a, b), Vec::<String>::new(), "{a} {b}");
        }
    }

    #[test]
    fn no_constraint_never_means_private() {
        let url = "http://127.0.0.1/".parse().unwrap();
        assert_eq!(Http::everything().allows("GET", &url), Some(Allowed { private: false }));
        assert_eq!(Http::nothing().allows("GET", &url), None);
    }
}
