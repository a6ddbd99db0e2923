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
    /// A private, loopback or other non-public address is meant. Only the host's configuration can say so; a
    /// narrowing leaves it as it is.
    pub private: bool,
}

impl HttpGrant {
    /// The methods that an absent list means.
    pub fn default_methods() -> BTreeSet<String> {
        BTreeSet::from(["GET".to_owned(), "HEAD".to_owned()])
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
        if self.private { f.write_str(" (private)") } else { Ok(()) }
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
        let mut private = true;
        for layer in self.iter() {
            let mut fitting = layer.grants.iter().filter(|grant| grant.allows(method, url)).peekable();
            fitting.peek()?;
            private &= fitting.any(|grant| grant.private);
        }
        Some(Allowed { private: private && !self.is_everything() })
    }

    /// For people: one line a grant. Where a layer names exact URLs, these are all that a call gets.
    pub fn lines(&self) -> Vec<String> {
        if self.is_everything() {
            return vec!["any request".to_owned()];
        }
        self.iter().flat_map(|layer| layer.grants.iter().map(ToString::to_string)).collect()
    }

    /// As data, for digests and `--json`.
    pub fn to_json(&self) -> Json {
        self.iter()
            .map(|layer| {
                layer
                    .grants
                    .iter()
                    .map(|grant| {
                        json!({ "url": grant.url.to_string(), "methods": grant.methods, "private": grant.private })
                    })
                    .collect::<Json>()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(url: &str, methods: Option<&[&str]>, private: bool) -> HttpGrant {
        HttpGrant {
            url: url.parse().unwrap(),
            methods: methods.map(|m| m.iter().map(|m| (*m).to_owned()).collect()),
            private,
        }
    }

    #[test]
    fn narrowing_to_one_url_keeps_methods_and_privacy() {
        let configured = Http::of(HttpLayer::new([grant("http://127.0.0.1:9/*", Some(&["GET"]), true)]));
        let narrowing = Http::of(HttpLayer::new([grant("http://127.0.0.1:9/a", None, true)]));
        let both = configured.meet(&narrowing);
        let a = "http://127.0.0.1:9/a".parse().unwrap();
        assert_eq!(both.allows("GET", &a), Some(Allowed { private: true }));
        assert_eq!(both.allows("POST", &a), None);
        assert_eq!(both.allows("GET", &"http://127.0.0.1:9/b".parse().unwrap()), None);
    }

    #[test]
    fn no_constraint_never_means_private() {
        let url = "http://127.0.0.1/".parse().unwrap();
        assert_eq!(Http::everything().allows("GET", &url), Some(Allowed { private: false }));
        assert_eq!(Http::nothing().allows("GET", &url), None);
    }
}
