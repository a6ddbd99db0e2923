//! What can a tool touch? One axis a file; [`Authority::meet`] is the only way to combine two.
//!
//! | axis | file | [`Authority::NONE`](Authority::none) |
//! |---|---|---|
//! | files | [`files`] | no path |
//! | http | [`http`] | no request |
//! | environment | [`environment`] | no variable |
//! | credentials | [`credentials`] | no reference |
//! | clock | [`clock`] | frozen |
//! | random | here | seeded by the host |
//! | state | [`state`] | no state |
//! | limits | [`limits`] | unchanged: a limit is not a thing to touch |
//!
//! An axis that says nothing ("everything") is the identity of the meet. It stands for *unchanged* in a narrowing; the
//! host's configuration always says something, so it never reaches a sandbox.

pub mod clock;
pub mod credentials;
pub mod environment;
pub mod files;
pub mod grammar;
pub mod http;
pub mod layers;
pub mod limits;
pub mod path;
pub mod state;
mod stored;
pub mod template;
pub mod url_pattern;

use serde::Serialize;
use serde_json::{Value as Json, json};

use clock::Clock;
use credentials::Credentials;
use environment::Environment;
use files::{Access, Files};
use http::Http;
use limits::Limits;
use state::StateScope;

use crate::text::escape_text;

/// Most characters of one line of [`Authority::lines`].
const LINE_MAX: usize = 1_000;

/// The set of things that a sandbox may touch, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    denies_all: bool,
    /// Paths.
    pub files: Files,
    /// Requests.
    pub http: Http,
    /// Variables.
    pub environment: Environment,
    /// References to credentials.
    pub credentials: Credentials,
    /// Time.
    pub clock: Clock,
    /// Whether randomness is real.
    pub random: bool,
    /// What it keeps from call to call.
    pub state: StateScope,
    /// How much of everything.
    pub limits: Limits,
}

impl Authority {
    /// The identity: everything that the other sides say. Named `Configured` where a run or plugin may choose it.
    pub fn configured() -> Self {
        Self {
            denies_all: false,
            files: Files::everything(),
            http: Http::everything(),
            environment: Environment::Everything,
            credentials: Credentials::everything(),
            clock: Clock::Real,
            random: true,
            state: StateScope::Shared,
            limits: Limits::default(),
        }
    }

    /// Touches nothing. A pure tool still runs under it.
    pub fn none() -> Self {
        Self {
            denies_all: false,
            files: Files::nothing(),
            http: Http::nothing(),
            environment: Environment::nothing(),
            credentials: Credentials::nothing(),
            clock: Clock::Frozen,
            random: false,
            state: StateScope::None,
            limits: Limits::default(),
        }
    }

    /// Below [`Authority::none`]: denies every call, a pure one too.
    pub fn deny_all() -> Self {
        Self { denies_all: true, ..Self::none() }
    }

    /// Whether every call is denied.
    pub fn denies_all(&self) -> bool {
        self.denies_all
    }

    /// What both allow. Commutative, associative, idempotent, and never wider than either side.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            denies_all: self.denies_all || other.denies_all,
            files: self.files.meet(&other.files),
            http: self.http.meet(&other.http),
            environment: self.environment.meet(&other.environment),
            credentials: self.credentials.meet(&other.credentials),
            clock: self.clock.min(other.clock),
            random: self.random && other.random,
            state: self.state.min(other.state),
            limits: self.limits.meet(&other.limits),
        }
    }

    /// Whether a call under this authority can have no effect outside its sandbox: no writable file, no network, no
    /// credential and no state.
    pub fn is_effect_free(&self) -> bool {
        let reaches_nothing = self.http.is_nothing() && self.credentials.is_nothing();
        !self.files.can_write() && reaches_nothing && self.state == StateScope::None
    }

    /// For people: what is granted, one line each, without limits. Empty where nothing is.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.denies_all {
            lines.push("nothing: every call is denied".to_owned());
        }
        let mut axis = |name: &str, entries: Vec<String>| {
            // Paths and URLs come from arguments, packages and files that were found.
            lines.extend(entries.into_iter().map(|entry| format!("{name}: {}", escape_text(&entry, LINE_MAX))));
        };
        axis("files", self.files.lines());
        axis("http", self.http.lines());
        axis("environment", self.environment.lines());
        axis("credentials", self.credentials.lines());
        if self.clock != Clock::Frozen {
            axis("clock", vec![self.clock.to_string()]);
        }
        if self.random {
            axis("random", vec!["real".to_owned()]);
        }
        if self.state != StateScope::None {
            axis("state", vec![self.state.to_string()]);
        }
        lines
    }

    /// As data, for digests and `--json`.
    pub fn to_json(&self) -> Json {
        json!({
            "denies_all": self.denies_all,
            "files": self.files.to_json(),
            "http": self.http.to_json(),
            "environment": self.environment.to_json(),
            "credentials": self.credentials.to_json(),
            "clock": self.clock,
            "random": self.random,
            "state": self.state,
            "limits": self.limits.to_json(),
        })
    }
}

/// What could be done under an authority, for people and for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// It cannot act outside of its sandbox.
    pub read_only: bool,
    /// It can change or remove what is there.
    pub destructive: bool,
    /// It can reach others.
    pub open_world: bool,
}

impl Risk {
    /// Of a call with this authority.
    pub fn of(authority: &Authority) -> Self {
        let reaches = !authority.http.is_nothing();
        Self {
            read_only: authority.is_effect_free(),
            destructive: authority.files.can_do(Access::Write) || reaches,
            open_world: reaches,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match (self.read_only, self.destructive, self.open_world) {
            (true, ..) => "it can change nothing outside of its sandbox",
            (_, _, true) => "it can reach others, and change what they let it",
            (_, true, _) => "it can change and remove what is there",
            _ => "it can add to what is there",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::credentials::{CredentialGrant, CredentialLayer, Placement};
    use super::files::{FileGrant, FileLayer};
    use super::http::{HttpGrant, HttpLayer, Private};
    use super::path::{Glob, GuestPath};
    use super::url_pattern::{NormalUrl, UrlPattern};
    use super::*;

    const PATHS: [&str; 9] = [
        "/data/a*v",
        "/",
        "/data",
        "/data/a.csv",
        "/data/b.txt",
        "/data/sub",
        "/data/sub/a.csv",
        "/data/sub/.env",
        "/other/a.csv",
    ];
    const SCOPES: [StateScope; 4] = [StateScope::None, StateScope::Run, StateScope::Thread, StateScope::Shared];
    const GLOBS: [&str; 8] =
        ["/data/**", "/data/*", "/data/**/*.csv", "**/.env", "/data/a.csv", "/data/sub/**", "/**/a*", "/data/a*v"];
    const URLS: [&str; 10] = [
        "http://a.test/",
        "http://a.test/v1/x",
        "http://a.test/z*",
        "http://a.test/zz",
        "https://a.test/v1/x",
        "http://b.a.test/",
        "http://c.b.a.test/v1/x",
        "http://xa.test/",
        "http://a.test:81/v1/",
        "https://a.test:80/",
    ];
    const URL_GLOBS: [&str; 9] = [
        "http://a.test/z*",
        "http://*.b.a.test/*",
        "https://a.test:80/*",
        "http://a.test/*",
        "http://a.test/v1/*",
        "https://a.test/*",
        "http://*.a.test/*",
        "http://a.test:81/*",
        "http://a.test/",
    ];

    fn grant() -> impl Strategy<Value = FileGrant> {
        let globs = || proptest::collection::btree_set(proptest::sample::select(&GLOBS[..]), 0..3);
        let access = proptest::sample::select(vec![Access::Read, Access::Create, Access::Write]);
        (proptest::sample::select(vec!["/", "/data", "/data/sub"]), access, globs(), globs()).prop_map(
            |(guest, access, only, except)| FileGrant {
                only: only.iter().map(|g| pattern(g)).collect(),
                except: except.iter().map(|g| pattern(g)).collect(),
                ..FileGrant::new(guest.parse().unwrap(), access)
            },
        )
    }

    /// A pattern; of one of them the path that is written like it, as a template makes it.
    fn pattern(text: &str) -> Glob {
        if text == "/data/a*v" { Glob::exact(&text.parse().unwrap()) } else { text.parse().unwrap() }
    }

    fn files() -> impl Strategy<Value = Files> {
        let layer = proptest::collection::vec(grant(), 0..3).prop_map(|grants| {
            let by_guest: BTreeMap<_, _> = grants.into_iter().map(|g| (g.guest.clone(), g)).collect();
            Files::of(FileLayer::new(by_guest.into_values()))
        });
        prop_oneof![1 => Just(Files::everything()), 4 => layer]
    }

    fn http() -> impl Strategy<Value = Http> {
        let methods = proptest::option::of(proptest::collection::btree_set(
            proptest::sample::select(vec!["GET".to_owned(), "POST".to_owned()]),
            1..3,
        ));
        let grant = (
            proptest::sample::select(&URL_GLOBS[..]),
            methods,
            proptest::sample::select(vec![Private::Unchanged, Private::No, Private::Yes]),
        )
            .prop_map(|(url, methods, private)| HttpGrant { url: url_pattern(url), methods, private });
        let layer = proptest::collection::vec(grant, 0..3).prop_map(|g| Http::of(HttpLayer::new(g)));
        prop_oneof![1 => Just(Http::everything()), 4 => layer]
    }

    /// As [`pattern`].
    fn url_pattern(text: &str) -> UrlPattern {
        if text == "http://a.test/z*" { UrlPattern::exact(&text.parse().unwrap()) } else { text.parse().unwrap() }
    }

    fn environment() -> impl Strategy<Value = Environment> {
        let value = proptest::option::of(proptest::sample::select(vec!["1".to_owned(), "2".to_owned()]));
        let names = proptest::collection::btree_map(
            proptest::sample::select(vec!["A".to_owned(), "B".to_owned()]),
            value,
            0..3,
        );
        prop_oneof![1 => Just(Environment::Everything), 4 => names.prop_map(Environment::These)]
    }

    fn credentials() -> impl Strategy<Value = Credentials> {
        let name = proptest::sample::select(vec!["a", "b"]);
        let url = proptest::option::of(proptest::sample::select(&URL_GLOBS[..]));
        let format = proptest::option::of(proptest::sample::select(vec!["Bearer {}", "{}"]));
        let grant = (name, url, format).prop_map(|(name, url, format)| CredentialGrant {
            name: name.parse().unwrap(),
            url: url.map(url_pattern),
            placement: format.map(|format| Placement { format: format.to_owned(), ..Placement::bearer() }),
        });
        let layer = proptest::collection::vec(grant, 0..4);
        prop_oneof![
            1 => Just(Credentials::everything()),
            4 => layer.prop_map(|grants| Credentials::of(CredentialLayer::new(grants))),
        ]
    }

    /// Whether a request to `url` may carry a credential in this place, by one side alone: what is left open fits everything.
    fn carries(credentials: &Credentials, name: &str, format: &str, url: &NormalUrl) -> bool {
        credentials.iter().all(|layer| {
            layer.grants().any(|grant| {
                grant.name.as_str() == name
                    && grant.placement.as_ref().is_none_or(|placement| placement.format == format)
                    && grant.url.as_ref().is_none_or(|pattern| pattern.matches(url))
            })
        })
    }

    fn authority() -> impl Strategy<Value = Authority> {
        let clock = proptest::sample::select(vec![Clock::Frozen, Clock::Coarse, Clock::Real]);
        let limit = || proptest::option::of(1..5u64);
        let limits = ((limit(), limit(), limit(), limit(), limit()), (limit(), limit(), limit(), limit(), limit()))
            .prop_map(|((wall, cpu, memory, output, log), (files, entries, written, requests, network))| Limits {
                wall: wall.map(Duration::from_secs),
                cpu: cpu.map(Duration::from_secs),
                memory,
                output,
                log,
                files,
                entries,
                written,
                requests,
                network,
            });
        let state = proptest::sample::select(SCOPES.to_vec());
        let held = (environment(), credentials());
        (proptest::bool::weighted(0.1), files(), http(), held, clock, any::<bool>(), state, limits).prop_map(
            |(denies_all, files, http, (environment, credentials), clock, random, state, limits)| Authority {
                denies_all,
                files,
                http,
                environment,
                credentials,
                clock,
                random,
                state,
                limits,
            },
        )
    }

    /// Whether a use of `amount` of every limit, for that many seconds, stays within all of them.
    fn within(limits: &Limits, amount: u64) -> [bool; 10] {
        let time = |limit: Option<Duration>| limit.is_none_or(|limit| Duration::from_secs(amount) <= limit);
        let count = |limit: Option<u64>| limit.is_none_or(|limit| amount <= limit);
        let Limits { wall, cpu, memory, output, log, files, entries, written, requests, network } = *limits;
        let counts = [memory, output, log, files, entries, written, requests, network].map(count);
        let [a, b, c, d, e, f, g, h] = counts;
        [time(wall), time(cpu), a, b, c, d, e, f, g, h]
    }

    fn clocks(clock: Clock) -> Vec<Clock> {
        [Clock::Frozen, Clock::Coarse, Clock::Real].into_iter().filter(|probe| *probe <= clock).collect()
    }

    /// The laws, on one axis.
    macro_rules! semilattice {
        ($a:expr, $b:expr, $c:expr, $everything:expr, $nothing:expr) => {{
            let (a, b, c) = (&$a, &$b, &$c);
            prop_assert_eq!(a.meet(b), b.meet(a), "commutative");
            prop_assert_eq!(a.meet(b).meet(c), a.meet(&b.meet(c)), "associative");
            prop_assert_eq!(&a.meet(a), a, "idempotent");
            prop_assert_eq!(a.meet(b).meet(a), a.meet(b), "below both sides");
            prop_assert_eq!(&a.meet(&$everything), a, "everything is the identity");
            if let Some(nothing) = $nothing {
                prop_assert_eq!(a.meet(&nothing), nothing, "nothing absorbs");
            }
        }};
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn every_axis_is_a_semilattice(a in authority(), b in authority(), c in authority()) {
            semilattice!(a.files, b.files, c.files, Files::everything(), Some(Files::nothing()));
            semilattice!(a.http, b.http, c.http, Http::everything(), Some(Http::nothing()));
            semilattice!(a.environment, b.environment, c.environment, Environment::Everything, Some(Environment::nothing()));
            semilattice!(a.limits, b.limits, c.limits, Limits::default(), None::<Limits>);
            prop_assert_eq!(a.clock.min(b.clock).min(c.clock), c.clock.min(a.clock.min(b.clock)));
            prop_assert_eq!(a.state.min(b.state).min(c.state), c.state.min(a.state.min(b.state)));
        }

        #[test]
        fn meet_is_a_semilattice(a in authority(), b in authority(), c in authority()) {
            semilattice!(a, b, c, Authority::configured(), None::<Authority>);
        }

        #[test]
        fn none_absorbs_all_but_deny_all_and_limits(a in authority()) {
            let met = a.meet(&Authority::none());
            prop_assert_eq!(met.denies_all, a.denies_all);
            prop_assert_eq!(
                Authority { denies_all: false, limits: Limits::default(), ..met },
                Authority::none()
            );
            prop_assert!(a.meet(&Authority::deny_all()).denies_all());
        }

        /// What a consent keeps is what a human was shown, to the last star.
        #[test]
        fn what_is_stored_restores_to_the_same_but_for_the_values_of_variables(a in authority(), b in authority()) {
            let a = a.meet(&b);
            let restored = Authority::restore(&a.store().unwrap()).unwrap();
            let names = |environment: &Environment| match environment {
                Environment::Everything => Environment::Everything,
                Environment::These(names) => {
                    Environment::These(names.keys().map(|name| (name.clone(), None)).collect())
                }
            };
            let expected = Authority { environment: names(&a.environment), ..a.clone() };
            prop_assert_eq!(&restored, &expected);
            // Met with what holds, it leaves exactly that.
            prop_assert_eq!(a.meet(&restored), a);
        }

        /// The oracle: a probe succeeds under the meet exactly when it succeeds under both.
        #[test]
        fn a_probe_succeeds_under_the_meet_exactly_when_under_both(a in authority(), b in authority()) {
            let both = a.meet(&b);
            for path in PATHS.map(|p| p.parse::<GuestPath>().unwrap()) {
                let wanted = match (a.files.access(&path), b.files.access(&path)) {
                    (Some(x), Some(y)) => Some(x.min(y)),
                    _ => None,
                };
                prop_assert_eq!(both.files.access(&path), wanted, "{}", path);
                if wanted.is_some() {
                    let mut above = Some(path.clone());
                    while let Some(folder) = above {
                        prop_assert!(both.files.may_hold(&folder), "{} on the way to {}", folder, path);
                        above = folder.parent();
                    }
                }
            }
            for url in URLS.map(|u| u.parse::<NormalUrl>().unwrap()) {
                let found = both.credentials.for_request(&url);
                for (name, format) in ["a", "b"].into_iter().flat_map(|name| [(name, "Bearer {}"), (name, "{}")]) {
                    let under = |x: &Authority| carries(&x.credentials, name, format, &url);
                    let is_found = found.iter().any(|(n, at)| n.as_str() == name && at.format == format);
                    // What both leave open is granted by neither.
                    prop_assert!(!is_found || (under(&a) && under(&b)), "{} {} {}", name, format, url);
                    let says = |x: &Authority| {
                        x.credentials.iter().flat_map(|layer| layer.grants()).any(|grant| {
                            let all = grant.url.as_ref().is_some_and(|pattern| pattern.matches(&url)) && grant.placement.is_some();
                            all && grant.name.as_str() == name && grant.placement.as_ref().is_some_and(|at| at.format == format)
                        })
                    };
                    if under(&a) && under(&b) && (says(&a) || says(&b)) {
                        prop_assert!(is_found, "{} {} {}", name, format, url);
                    }
                }
                for method in ["GET", "POST"] {
                    let under = |x: &Authority| x.http.allows(method, &url).is_some();
                    prop_assert_eq!(under(&both), under(&a) && under(&b), "{} {}", method, url);
                }
            }
            let has = |x: &Authority, name: &str| match &x.environment {
                Environment::Everything => None,
                Environment::These(names) => Some(names.get(name).cloned()),
            };
            for name in ["A", "B", "C"] {
                let wanted = match (has(&a, name), has(&b, name)) {
                    (None, other) | (other, None) => other,
                    (Some(Some(Some(x))), Some(Some(Some(y)))) => Some((x == y).then_some(Some(x))),
                    (Some(Some(x)), Some(Some(y))) => Some(Some(x.or(y))),
                    _ => Some(None),
                };
                prop_assert_eq!(has(&both, name), wanted, "{}", name);
            }
            for amount in 0..6 {
                let (x, y) = (within(&a.limits, amount), within(&b.limits, amount));
                let wanted: Vec<bool> = x.iter().zip(y).map(|(x, y)| *x && y).collect();
                prop_assert_eq!(within(&both.limits, amount).to_vec(), wanted, "{}", amount);
            }
            let shared = |x: &Clock| clocks(a.clock).contains(x) && clocks(b.clock).contains(x);
            prop_assert_eq!(clocks(both.clock), clocks(Clock::Real).into_iter().filter(shared).collect::<Vec<_>>());
            prop_assert_eq!(both.random, a.random && b.random);
            for scope in &SCOPES[1..] {
                prop_assert_eq!(*scope <= both.state, *scope <= a.state && *scope <= b.state);
            }
            prop_assert_eq!(both.denies_all(), a.denies_all() || b.denies_all());
        }
    }
}
