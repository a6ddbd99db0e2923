//! URLs in normal form, and URL patterns: `scheme://host[:port]/path*`.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// Why a text is no URL or URL pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Does not parse.
    #[error("a URL has the form scheme://host[:port]/path")]
    NotUrl,
    /// Not http or https.
    #[error("the scheme is http or https")]
    Scheme,
    /// A user name or password.
    #[error("a URL holds no user name and no password")]
    UserInfo,
    /// A star in the middle of a host.
    #[error("in a host, `*.` may stand at the start and nowhere else")]
    HostStar,
    /// A star before the end of the path.
    #[error("in a path, `*` may stand at the end and nowhere else")]
    PathStar,
    /// A URL that is written otherwise than the standard writes it.
    #[error("the URL is not in its normal form")]
    NotNormal,
    /// A fragment.
    #[error("a URL pattern holds no fragment")]
    Fragment,
    /// A brace that opens or closes nothing.
    #[error("a placeholder has the form {{name}} or {{name.name}}")]
    Placeholder,
}

/// A URL that equals its own serialisation (WHATWG URL), has a special scheme and no user info, dot segment or encoded
/// `/`, `\` or `.`: what is checked is exactly what is sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NormalUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Path and query, as sent.
    target: String,
}

/// http or https.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// The scheme's own port.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl NormalUrl {
    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// A domain in ASCII, or an address; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// `host`, with the port where it is not the scheme's own.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl FromStr for NormalUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = Url::parse(text).map_err(|_| UrlError::NotUrl)?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(UrlError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() || text.contains('@') && has_user_info(text) {
            return Err(UrlError::UserInfo);
        }
        if url.as_str() != text || url.fragment().is_some() {
            return Err(UrlError::NotNormal);
        }
        let path = url.path();
        let encoded = path.to_ascii_lowercase();
        if ["%2f", "%5c", "%2e"].iter().any(|bad| encoded.contains(bad))
            || path.split('/').any(|segment| segment == "." || segment == "..")
        {
            return Err(UrlError::NotNormal);
        }
        let host = match url.host() {
            // The standard lets stars, braces and the like stand in a name; here they would read as a pattern, and no host has one.
            Some(Host::Domain(name)) if is_host_name(name) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => format!("[{address}]"),
            _ => return Err(UrlError::NotUrl),
        };
        let mut target = path.to_owned();
        if let Some(query) = url.query() {
            target.push('?');
            target.push_str(query);
        }
        Ok(Self { scheme, host, port: url.port().unwrap_or(scheme.default_port()), target })
    }
}

/// Labels of letters, digits, `-` and `_` between dots: what a name in the DNS is written with. A dot at the end, which would be
/// another way to write the same host, is not in normal form.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// An `@` before the path: the parser drops an empty user name, which would then look normal.
fn has_user_info(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

impl fmt::Display for NormalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.target)
    }
}

/// A pattern over normal URLs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UrlPattern {
    scheme: Scheme,
    host: HostPattern,
    port: u16,
    /// Path and query, literally.
    target: String,
    /// Whether anything may follow.
    prefix: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    Exact(String),
    /// `*.host`: subdomains only, `host` itself not.
    Below(String),
}

impl UrlPattern {
    /// The pattern that matches `url` alone.
    pub fn exact(url: &NormalUrl) -> Self {
        Self {
            scheme: url.scheme,
            host: HostPattern::Exact(url.host.clone()),
            port: url.port,
            target: url.target.clone(),
            prefix: false,
        }
    }

    /// The URLs of both patterns; none where there are none. Unlike that of path patterns, it is a pattern again.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        if self.scheme != other.scheme || self.port != other.port {
            return None;
        }
        let below = |host: &str, domain: &str| {
            host.strip_suffix(domain).and_then(|sub| sub.strip_suffix('.')).is_some_and(|sub| !sub.is_empty())
        };
        let host = match (&self.host, &other.host) {
            (HostPattern::Exact(a), HostPattern::Exact(b)) => (a == b).then(|| self.host.clone()),
            (HostPattern::Exact(host), HostPattern::Below(domain)) => below(host, domain).then(|| self.host.clone()),
            (HostPattern::Below(domain), HostPattern::Exact(host)) => below(host, domain).then(|| other.host.clone()),
            (HostPattern::Below(a), HostPattern::Below(b)) if a == b || below(a, b) => Some(self.host.clone()),
            (HostPattern::Below(a), HostPattern::Below(b)) => below(b, a).then(|| other.host.clone()),
        }?;
        let (longer, shorter) = if self.target.len() >= other.target.len() { (self, other) } else { (other, self) };
        let fits =
            if shorter.prefix { longer.target.starts_with(&shorter.target) } else { longer.target == shorter.target };
        let both_exact = !shorter.prefix && longer.prefix;
        fits.then(|| Self { host, target: longer.target.clone(), prefix: longer.prefix && !both_exact, ..self.clone() })
    }

    /// Whether what is sent there can be read by nobody on the way: it is encrypted, or does not leave the machine.
    pub fn is_private_to_the_wire(&self) -> bool {
        let HostPattern::Exact(host) = &self.host else { return self.scheme == Scheme::Https };
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        self.scheme == Scheme::Https || address.is_ok_and(|address| address.is_loopback())
    }

    /// Origin, target and whether anything may follow, to be stored.
    pub(super) fn parts(&self) -> (String, String, bool) {
        let origin = Self { target: "/".to_owned(), prefix: false, ..self.clone() };
        (origin.to_string(), self.target.clone(), self.prefix)
    }

    /// From what [`UrlPattern::parts`] gives; none where that is no pattern.
    pub(super) fn of_parts(origin: &str, target: &str, prefix: bool) -> Option<Self> {
        let pattern: Self = origin.parse().ok()?;
        (pattern.target == "/" && !pattern.prefix && target.starts_with('/')).then(|| Self {
            target: target.to_owned(),
            prefix,
            ..pattern
        })
    }

    /// Whether the pattern matches `url`.
    pub fn matches(&self, url: &NormalUrl) -> bool {
        let host = match &self.host {
            HostPattern::Exact(host) => *host == url.host,
            HostPattern::Below(domain) => url
                .host
                .strip_suffix(domain.as_str())
                .and_then(|sub| sub.strip_suffix('.'))
                .is_some_and(|sub| !sub.is_empty()),
        };
        let target = if self.prefix { url.target.starts_with(&self.target) } else { url.target == self.target };
        host && target && self.scheme == url.scheme && self.port == url.port
    }
}

impl FromStr for UrlPattern {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.contains(['{', '}']) {
            return Err(UrlError::Placeholder);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotUrl)?;
        let (authority, below) = match rest.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let end = authority.find(['/', '?', '#']).ok_or(UrlError::NotUrl)?;
        if authority[..end].contains('*') {
            return Err(UrlError::HostStar);
        }
        let (path, prefix) = match authority[end..].strip_suffix('*') {
            Some(path) => (path, true),
            None => (&authority[end..], false),
        };
        if path.contains('*') {
            return Err(UrlError::PathStar);
        }
        if path.contains('#') {
            return Err(UrlError::Fragment);
        }
        let url: NormalUrl = format!("{scheme}://{}{path}", &authority[..end]).parse()?;
        let is_domain = !url.host.starts_with('[') && url.host.parse::<std::net::Ipv4Addr>().is_err();
        if below && !is_domain {
            return Err(UrlError::HostStar);
        }
        let host = if below { HostPattern::Below(url.host) } else { HostPattern::Exact(url.host) };
        Ok(Self { scheme: url.scheme, host, port: url.port, target: url.target, prefix })
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match &self.host {
            HostPattern::Exact(host) => host.clone(),
            HostPattern::Below(domain) => format!("*.{domain}"),
        };
        write!(f, "{}://{host}", self.scheme)?;
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        write!(f, "{}{}", self.target, if self.prefix { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> NormalUrl {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_has_labels_and_each_is_written_one_way() {
        let long = format!("https://{}.test/", "a".repeat(64));
        for bad in ["https://a..test/", "https://.a.test/", "https://a.test./", "https://./", &long] {
            assert!(bad.parse::<NormalUrl>().is_err() && bad.parse::<UrlPattern>().is_err(), "{bad}");
        }
        assert!("https://*..a.test/*".parse::<UrlPattern>().is_err());
    }

    #[test]
    fn only_normal_urls_are_urls() {
        for good in ["https://a.example/", "http://127.0.0.1:9000/x?q=1", "http://[::1]/", "https://a.example/a/b;c"] {
            assert_eq!(url(good).to_string(), good);
        }
        for bad in [
            "https://A.example/",
            "https://a.example",
            "https://a.example:443/",
            "https://u@a.example/",
            "https://@a.example/",
            "https://a.example/../x",
            "https://a.example/a/%2e%2E/x",
            "https://a.example/a%2Fb",
            "https://a.example/a%5cb",
            "https://a.example/a\\b",
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "ftp://a.example/",
            "https://a.example/#f",
            "https:/a.example/",
            "https://a.example/a b",
            "https://a.example\t/",
            " https://a.example/",
            "https://ü.example/",
            "https://a.example/.%2e/x",
            "file:///etc/passwd",
            "https://*.a.example/",
            "https://a.{b}.example/",
            "https://a!b.example/",
            "https://a'b.example/",
            "https://a,b.example/",
        ] {
            assert!(bad.parse::<NormalUrl>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_match_their_own_host_scheme_port_and_path() {
        let pattern: UrlPattern = "https://api.example.com/v1/*".parse().unwrap();
        assert!(pattern.matches(&url("https://api.example.com/v1/x?y=1")));
        for no in [
            "http://api.example.com/v1/x",
            "https://api.example.com:8443/v1/x",
            "https://api.example.com/v2/x",
            "https://xapi.example.com/v1/x",
            "https://api.example.com.evil.test/v1/x",
            "https://api.example.com/v1",
        ] {
            assert!(!pattern.matches(&url(no)), "{no}");
        }
        let exact: UrlPattern = "https://api.example.com/v1".parse().unwrap();
        assert!(exact.matches(&url("https://api.example.com/v1")));
        assert!(!exact.matches(&url("https://api.example.com/v1?x")));
    }

    #[test]
    fn a_url_fits_the_meet_exactly_when_it_fits_both() {
        let patterns = [
            "https://a.test/*",
            "https://a.test/v1/*",
            "https://a.test/v1/x",
            "https://a.test/v1",
            "https://*.a.test/*",
            "https://*.b.a.test/v1/*",
            "https://b.a.test/*",
            "http://a.test/*",
            "https://a.test:8443/*",
            "https://*.test/*",
        ];
        let urls = [
            "https://a.test/",
            "https://a.test/v1",
            "https://a.test/v1/",
            "https://a.test/v1/x",
            "https://a.test/v1/x?y",
            "https://b.a.test/v1/x",
            "https://c.b.a.test/v1/x",
            "http://a.test/v1/x",
            "https://a.test:8443/v1/x",
        ];
        for (a, b) in patterns.iter().flat_map(|a| patterns.iter().map(move |b| (a, b))) {
            let (a, b): (UrlPattern, UrlPattern) = (a.parse().unwrap(), b.parse().unwrap());
            let meet = a.meet(&b);
            for url in urls.map(url) {
                let both = a.matches(&url) && b.matches(&url);
                assert_eq!(meet.as_ref().is_some_and(|meet| meet.matches(&url)), both, "{a} {b} {url}");
            }
        }
    }

    #[test]
    fn a_leading_star_means_subdomains_only() {
        let pattern: UrlPattern = "https://*.granted.test/*".parse().unwrap();
        assert!(pattern.matches(&url("https://a.granted.test/")));
        assert!(pattern.matches(&url("https://a.b.granted.test/")));
        for no in ["https://granted.test/", "https://xgranted.test/", "https://granted.evil.test/"] {
            assert!(!pattern.matches(&url(no)), "{no}");
        }
    }

    #[test]
    fn what_cannot_be_a_pattern_is_refused() {
        for (bad, why) in [
            ("https://a.*.test/", UrlError::HostStar),
            ("https://*a.test/", UrlError::HostStar),
            ("https://*/", UrlError::HostStar),
            ("https://*.127.0.0.1/", UrlError::HostStar),
            ("https://a.test/*/b", UrlError::PathStar),
            ("https://u:p@a.test/*", UrlError::UserInfo),
            ("https://a.test", UrlError::NotUrl),
            ("gopher://a.test/", UrlError::Scheme),
            ("https://a.test/../x*", UrlError::NotNormal),
            ("a.test/*", UrlError::NotUrl),
        ] {
            assert_eq!(bad.parse::<UrlPattern>(), Err(why), "{bad}");
        }
    }
}
