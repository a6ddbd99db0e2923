//! The decision against a statement of it that is written as data: what each source can be in, and what the design says that
//! it then does. Every combination is tried, with rules, grants and consents in one order and in the other.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use itertools::iproduct;
use serde_json::{Value as Json, json};
use smallvec::SmallVec;

use super::codes::Code;
use super::consent::Consent;
use super::grant::{LaunchGrant, StandingGrant};
use super::manifest::{Capability, ConsentMode, Manifest};
use super::policy::{DefaultVerdict, Policy, Rule, RuleVerdict, ToolPolicy};
use super::schema::ArgumentSchema;
use super::{Answer, Availability, Ballot, Basis, Facts, Source, Verdict, Word, evaluate};
use crate::authority::Authority;
use crate::authority::clock::Clock;
use crate::ids::{CallDigest, ConsentDigest, GrantId, OperationId, PackageDigest, Principal, RunId, ToolId};

/// What a source in some condition does, by the design.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    Allows,
    Asks,
    Denies(Code),
    /// Answers an ask.
    Answers,
    /// Lets the ask carry a mismatch.
    Carries,
    /// Denies where there is an ask that nobody else answers.
    FailsAnAsk(Code),
}
use Does::{Allows, Answers, Asks, Carries, Denies, FailsAnAsk, Nothing};

/// Which part of the authority the condition takes away, where it has a say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Takes {
    Nothing,
    Random,
    Clock,
    Wall,
    Cpu,
    Memory,
}

type Conditions = &'static [(&'static str, Does, Takes)];

const VISIBILITY: Conditions =
    &[("shown", Nothing, Takes::Nothing), ("hidden", Denies(Code::ToolNotVisible), Takes::Nothing)];
const REGISTRY: Conditions = &[
    ("one", Nothing, Takes::Nothing),
    ("unavailable", Denies(Code::ToolUnavailable), Takes::Nothing),
    ("ambiguous", Denies(Code::ToolAmbiguous), Takes::Nothing),
    ("changed", Denies(Code::PackageChanged), Takes::Nothing),
];
const NARROWING: Conditions = &[
    ("configured", Nothing, Takes::Nothing),
    ("narrower", Nothing, Takes::Random),
    ("deny all", Denies(Code::ToolsDisabled), Takes::Nothing),
];
const ARGUMENTS: Conditions =
    &[("valid", Nothing, Takes::Nothing), ("invalid", Denies(Code::ArgumentsInvalid), Takes::Nothing)];
const MANIFEST: Conditions = &[
    ("none", Nothing, Takes::Nothing),
    ("another tool", Denies(Code::ToolNotDeclared), Takes::Nothing),
    ("other arguments", Denies(Code::ToolNotDeclared), Takes::Nothing),
    ("inherits", Nothing, Takes::Nothing),
    ("asks", Asks, Takes::Nothing),
    ("inherits and asks", Asks, Takes::Nothing),
];
const POLICY: Conditions = &[
    ("default asks", Asks, Takes::Nothing),
    ("default denies", Denies(Code::ToolDenied), Takes::Nothing),
    ("allows", Allows, Takes::Nothing),
    ("allows with only", Allows, Takes::Clock),
    ("asks", Asks, Takes::Nothing),
    ("denies", Denies(Code::ToolDenied), Takes::Nothing),
    ("allows exactly, denies by a pattern", Denies(Code::ToolDenied), Takes::Nothing),
    ("asks by a pattern, allows exactly", Allows, Takes::Nothing),
    ("equals disagree", Asks, Takes::Clock),
    ("allowed at the start, asks now", Asks, Takes::Nothing),
    ("asked at the start, allows now", Asks, Takes::Nothing),
    ("allowed at the start, denies now", Denies(Code::ToolDenied), Takes::Nothing),
    ("denied at the start, allows now", Denies(Code::ToolDenied), Takes::Nothing),
];
const ENFORCEABILITY: Conditions =
    &[("enforceable", Nothing, Takes::Nothing), ("unenforceable", Denies(Code::Unenforceable), Takes::Nothing)];
const GRANT: Conditions = &[
    ("none", Nothing, Takes::Nothing),
    ("covers", Answers, Takes::Nothing),
    ("covers with only", Answers, Takes::Wall),
    ("other arguments", Carries, Takes::Nothing),
    ("other capability", Carries, Takes::Nothing),
    ("other arguments, and one that covers", Answers, Takes::Nothing),
    ("other principal", Nothing, Takes::Nothing),
    ("other run", Nothing, Takes::Nothing),
    ("other tool", Nothing, Takes::Nothing),
    ("expired", Nothing, Takes::Nothing),
    ("used up", Nothing, Takes::Nothing),
    ("used up by this operation", Answers, Takes::Nothing),
];
const CONSENT: Conditions = &[
    ("none", Nothing, Takes::Nothing),
    ("valid", Answers, Takes::Cpu),
    ("late", FailsAnAsk(Code::ConsentExpired), Takes::Nothing),
    ("used", FailsAnAsk(Code::ConsentUsed), Takes::Nothing),
    ("other call", Nothing, Takes::Nothing),
    ("other principal", Nothing, Takes::Nothing),
    ("late, and one that is valid", Answers, Takes::Cpu),
];
const HUMAN: Conditions = &[
    ("not asked", Nothing, Takes::Nothing),
    ("yes", Answers, Takes::Memory),
    ("yes to another call", Nothing, Takes::Nothing),
    ("no before", FailsAnAsk(Code::ConsentRefused), Takes::Nothing),
];

/// What the design says of a combination, in the order of its table.
fn stated(sources: &[Does; 7], grant: Does, consent: Does, human: Does) -> (Does, Option<&'static str>) {
    if let Some(denies) = sources.iter().find(|does| matches!(does, Denies(_))) {
        return (*denies, None);
    }
    if !sources.contains(&Asks) {
        let by = (human == Answers).then_some("human");
        return if sources.contains(&Allows) { (Allows, by) } else { (Denies(Code::ToolDenied), None) };
    }
    match (human, grant, consent) {
        (FailsAnAsk(code), ..) => (Denies(code), None),
        (Answers, ..) => (Allows, Some("human")),
        (_, Answers, _) => (Allows, Some("grant")),
        (_, _, Answers) => (Allows, Some("consent")),
        (_, _, FailsAnAsk(code)) => (Denies(code), None),
        (_, Carries, _) => (Carries, None),
        _ => (Asks, None),
    }
}

/// Everything that the conditions name, made once.
struct World {
    tool: ToolId,
    run: RunId,
    now: SystemTime,
    operation: OperationId,
    call: CallDigest,
    arguments: Json,
    ceiling: Arc<Authority>,
}

impl World {
    fn new() -> Self {
        let tool: ToolId = "files/read".parse().unwrap();
        let run = RunId::random().unwrap();
        Self {
            run,
            now: SystemTime::now(),
            operation: OperationId { run, step: 3, call: 0 },
            call: CallDigest::of_call(&tool, &PackageDigest::of(b"p"), b"{}"),
            arguments: json!({ "path": "/data/a" }),
            ceiling: Arc::new(Authority::configured()),
            tool,
        }
    }

    fn registry(&self, name: &str) -> Availability {
        match name {
            "one" => Availability::One(PackageDigest::of(b"p")),
            "unavailable" => Availability::Unavailable("gone".to_owned()),
            "ambiguous" => Availability::Ambiguous("twice".to_owned()),
            "changed" => Availability::Changed,
            other => panic!("{other}"),
        }
    }

    fn manifest(&self, name: &str) -> Option<Manifest> {
        let fitting = json!({ "properties": { "path": { "pattern": "^/data/" } }, "required": ["path"] });
        let capability = |id: &str, tool: &str, arguments: Json, consent: ConsentMode| Capability {
            id: id.parse().unwrap(),
            tool: tool.parse().unwrap(),
            arguments: Some(ArgumentSchema::new(arguments).unwrap()),
            consent,
            required: false,
            delegate: Default::default(),
            line: 1,
        };
        let inherits = || capability("reading", "files/read", fitting.clone(), ConsentMode::Inherit);
        let asks = || capability("careful", "files/read", fitting.clone(), ConsentMode::AlwaysAsk);
        let capabilities = match name {
            "none" => return None,
            "another tool" => vec![capability("reading", "files/list", json!({}), ConsentMode::Inherit)],
            "other arguments" => {
                vec![capability("reading", "files/read", json!({ "maxProperties": 0 }), ConsentMode::AlwaysAsk)]
            }
            "inherits" => vec![inherits()],
            "asks" => vec![asks()],
            "inherits and asks" => vec![inherits(), asks()],
            other => panic!("{other}"),
        };
        Some(Manifest {
            id: "m".to_owned(),
            name: "m".to_owned(),
            description: None,
            flow: None,
            capabilities,
            webhook: None,
        })
    }

    fn policies(&self, name: &str) -> Vec<[ToolPolicy; 2]> {
        let rule = |tool: &str, verdict: RuleVerdict, only: Option<&str>| {
            Arc::new(Rule {
                tool: tool.parse().unwrap(),
                arguments: None,
                verdict,
                only: only.map(|text| toml::from_str(text).unwrap()),
                reason: None,
                line: 1,
            })
        };
        let allow = || rule("files/read", RuleVerdict::Allow, None);
        let ask = || rule("files/read", RuleVerdict::Ask, None);
        let deny = || rule("files/read", RuleVerdict::Deny, None);
        let both = |rules: Vec<Arc<Rule>>| vec![rules];
        let (default, policies) = match name {
            "default asks" => (DefaultVerdict::Ask, both(vec![])),
            "default denies" => (DefaultVerdict::Deny, both(vec![])),
            "allows" => (DefaultVerdict::Deny, both(vec![allow()])),
            "allows with only" => (
                DefaultVerdict::Deny,
                both(vec![rule("files/read", RuleVerdict::Allow, Some("clock = \"frozen\"\nfiles = [\"{path}\"]"))]),
            ),
            "asks" => (DefaultVerdict::Deny, both(vec![ask()])),
            "denies" => (DefaultVerdict::Ask, both(vec![deny()])),
            "allows exactly, denies by a pattern" => {
                (DefaultVerdict::Ask, both(vec![allow(), rule("files/*", RuleVerdict::Deny, None)]))
            }
            "asks by a pattern, allows exactly" => {
                (DefaultVerdict::Deny, both(vec![rule("*/*", RuleVerdict::Ask, None), allow()]))
            }
            "equals disagree" => (
                DefaultVerdict::Deny,
                both(vec![
                    rule("files/read", RuleVerdict::Allow, Some("clock = \"frozen\"\nfiles = [\"/**\"]")),
                    ask(),
                ]),
            ),
            "allowed at the start, asks now" => (DefaultVerdict::Deny, vec![vec![ask()], vec![allow()]]),
            "asked at the start, allows now" => (DefaultVerdict::Deny, vec![vec![allow()], vec![ask()]]),
            "allowed at the start, denies now" => (DefaultVerdict::Deny, vec![vec![deny()], vec![allow()]]),
            "denied at the start, allows now" => (DefaultVerdict::Deny, vec![vec![allow()], vec![deny()]]),
            other => panic!("{other}"),
        };
        let compiled = policies.into_iter().map(|rules| {
            let reversed = rules.iter().rev().cloned().collect();
            [rules, reversed].map(|rules| Policy { default, rules }.for_tool(&self.tool, &self.ceiling))
        });
        compiled.collect()
    }

    /// The grants of a condition, for the capability that the call falls under.
    fn grants(&self, name: &str, capability: &str) -> Vec<StandingGrant> {
        let standing = |change: &dyn Fn(&mut LaunchGrant), used: u64, used_here: bool| {
            let mut grant = LaunchGrant {
                id: GrantId::random().unwrap(),
                principal: Principal::Local,
                capability: capability.parse().unwrap(),
                tool: self.tool.clone(),
                arguments: ArgumentSchema::new(
                    json!({ "properties": { "path": { "const": "/data/a" } }, "required": ["path"] }),
                )
                .unwrap(),
                only: None,
                run: Some(self.run),
                expires: Some(self.now + Duration::from_secs(1)),
                uses: Some(2),
                given: self.now,
                by: "t".to_owned(),
            };
            change(&mut grant);
            StandingGrant { grant: Arc::new(grant), used, used_here }
        };
        let other =
            ArgumentSchema::new(json!({ "properties": { "path": { "const": "/b" } }, "required": ["path"] })).unwrap();
        let misfit = || standing(&|grant| grant.arguments = other.clone(), 0, false);
        match name {
            "none" => vec![],
            "covers" => vec![standing(&|_| {}, 1, false)],
            "covers with only" => {
                let only = "limits = { wall = \"1s\" }\nfiles = [\"/**\"]\nhttp = []";
                vec![standing(&|grant| grant.only = Some(toml::from_str(only).unwrap()), 0, false)]
            }
            "other arguments" => vec![misfit()],
            "other capability" => vec![standing(&|grant| grant.capability = "something".parse().unwrap(), 0, false)],
            "other arguments, and one that covers" => vec![misfit(), standing(&|_| {}, 0, false)],
            "other principal" => vec![standing(&|grant| grant.principal = Principal::Named("x".to_owned()), 0, false)],
            "other run" => vec![standing(&|grant| grant.run = Some(RunId::random().unwrap()), 0, false)],
            "other tool" => vec![standing(&|grant| grant.tool = "files/list".parse().unwrap(), 0, false)],
            "expired" => vec![standing(&|grant| grant.expires = Some(self.now), 0, false)],
            "used up" => vec![standing(&|_| {}, 2, false)],
            "used up by this operation" => vec![standing(&|_| {}, 2, true)],
            other => panic!("{other}"),
        }
    }

    fn consents(&self, name: &str) -> Vec<Consent> {
        let consent = |change: &dyn Fn(&mut Consent)| {
            let mut consent = Consent {
                token: ConsentDigest::of(b"t"),
                principal: Principal::Local,
                call: self.call,
                shown: with(|it| it.limits.cpu = Some(Duration::from_secs(1))),
                expires: self.now + Duration::from_secs(1),
                used_by: None,
                by: "t".to_owned(),
            };
            change(&mut consent);
            consent
        };
        let late = || consent(&|consent| consent.expires = self.now);
        match name {
            "none" => vec![],
            "valid" => vec![consent(&|_| {})],
            "late" => vec![late()],
            "used" => vec![consent(&|it| it.used_by = Some(OperationId { step: 1, ..self.operation }))],
            "other call" => {
                vec![consent(&|it| it.call = CallDigest::of_call(&self.tool, &PackageDigest::of(b"q"), b"{}"))]
            }
            "other principal" => vec![consent(&|it| it.principal = Principal::Named("x".to_owned()))],
            "late, and one that is valid" => vec![late(), consent(&|_| {})],
            other => panic!("{other}"),
        }
    }

    fn answer(&self, name: &str) -> Option<Answer> {
        let shown = Arc::new(with(|it| it.limits.memory = Some(1)));
        let other = CallDigest::of_call(&self.tool, &PackageDigest::of(b"q"), b"{}");
        match name {
            "not asked" | "no before" => None,
            "yes" => Some(Answer { call: self.call, shown, route: "t".into(), who: "w".to_owned() }),
            "yes to another call" => Some(Answer { call: other, shown, route: "t".into(), who: "w".to_owned() }),
            other => panic!("{other}"),
        }
    }
}

/// Everything but for one change.
fn with(change: impl FnOnce(&mut Authority)) -> Authority {
    let mut authority = Authority::configured();
    change(&mut authority);
    authority
}

fn narrowing(name: &str) -> Option<Authority> {
    match name {
        "configured" => None,
        "narrower" => Some(with(|it| it.random = false)),
        "deny all" => Some(Authority::deny_all()),
        other => panic!("{other}"),
    }
}

fn backwards<T: Clone>(list: &[T]) -> Vec<T> {
    list.iter().rev().cloned().collect()
}

#[test]
fn every_combination_is_decided_as_stated() {
    let world = World::new();
    let registry: Vec<_> = REGISTRY.iter().map(|it| (it, world.registry(it.0))).collect();
    let narrowings: Vec<_> = NARROWING.iter().map(|it| (it, narrowing(it.0))).collect();
    let manifests: Vec<_> = MANIFEST.iter().map(|it| (it, world.manifest(it.0))).collect();
    let policies: Vec<_> = POLICY.iter().map(|it| (it, world.policies(it.0))).collect();
    let grants = |capability: &str| -> Vec<_> {
        GRANT
            .iter()
            .map(|it| {
                let grants = world.grants(it.0, capability);
                (it, backwards(&grants), grants)
            })
            .collect()
    };
    let (of_tool, of_reading, of_careful) = (grants("files/read"), grants("reading"), grants("careful"));
    let consents: Vec<_> = CONSENT
        .iter()
        .map(|it| {
            let consents = world.consents(it.0);
            (it, backwards(&consents), consents)
        })
        .collect();
    let answers: Vec<_> = HUMAN.iter().map(|it| (it, world.answer(it.0))).collect();
    let mut tried = 0_u64;
    let combinations = iproduct!(
        VISIBILITY,
        &registry,
        &narrowings,
        ARGUMENTS,
        &manifests,
        &policies,
        ENFORCEABILITY,
        0..GRANT.len(),
        &consents,
        &answers,
        [0, 1]
    );
    for (
        visible,
        (registered, availability),
        (narrowed, narrowing),
        argued,
        (declared, manifest),
        (ruled, policies),
        enforced,
        granted,
        (consented, consents_back, consents),
        (answered, answer),
        order,
    ) in combinations
    {
        let valid = argued.0 == "valid";
        let (granted, grants_back, grants) = match declared.0 {
            "none" | "another tool" => &of_tool[granted],
            "asks" => &of_careful[granted],
            _ => &of_reading[granted],
        };
        let base = [
            visible.1,
            registered.1,
            narrowed.1,
            argued.1,
            // Without arguments, only that a tool is not declared at all is known.
            if valid || declared.0 == "another tool" { declared.1 } else { Nothing },
            if valid { ruled.1 } else { Nothing },
            enforced.1,
        ];
        let policies: SmallVec<[&ToolPolicy; 2]> = policies.iter().map(|it| &it[order]).collect();
        let facts = Facts {
            tool: &world.tool,
            principal: &Principal::Local,
            run: world.run,
            operation: Some(world.operation),
            now: world.now,
            visible: visible.0 == "shown",
            registry: Some(availability),
            narrowing: narrowing.as_ref(),
            arguments: Some(if valid { Ok(&world.arguments) } else { Err("no") }),
            configured: Some(&world.ceiling),
            manifest: manifest.as_ref(),
            policies: &policies,
            unenforceable: (enforced.0 == "unenforceable").then_some("no"),
            grants: if order == 0 { grants } else { grants_back },
            consents: if order == 0 { consents } else { consents_back },
            answer: answer.as_ref(),
            refused: answered.0 == "no before",
            call: valid.then_some(world.call),
        };
        let stated = stated(&base, granted.1, consented.1, answered.1);
        let takes = [narrowed.2, ruled.2, granted.2, consented.2, answered.2];
        if let Err(why) = check(&facts, stated, takes, answered.1, &world) {
            let names = [visible.0, registered.0, narrowed.0, argued.0, declared.0, ruled.0, enforced.0];
            panic!("{why}: {names:?}, {:?}, order {order}", [granted.0, consented.0, answered.0]);
        }
        tried += 1;
    }
    assert_eq!(tried, 2 * 2 * 4 * 3 * 2 * 6 * 13 * 2 * 12 * 7 * 4, "{tried} combinations");
}

fn check(
    facts: &Facts<'_>,
    (wanted, by): (Does, Option<&str>),
    takes: [Takes; 5],
    answered: Does,
    world: &World,
) -> Result<(), String> {
    let decision = evaluate(facts);
    let authority = decision.authority().clone();
    let verdict = decision.into_verdict(world.operation, Instant::now());
    let found = match &verdict {
        Verdict::Allow(_) => Allows,
        Verdict::Deny(denial) => Denies(denial.code),
        Verdict::Confirm(confirmation) if confirmation.carries().is_some() => Carries,
        Verdict::Confirm(_) => Asks,
    };
    if found != wanted {
        return Err(format!("{found:?} and not {wanted:?}"));
    }
    if let Verdict::Allow(permit) = &verdict {
        let basis = match permit.basis() {
            Basis::Policy => None,
            Basis::Grant { .. } => Some("grant"),
            Basis::Consent { .. } => Some("consent"),
            Basis::Human { .. } => Some("human"),
        };
        if basis != by {
            return Err(format!("rests on {basis:?} and not on {by:?}"));
        }
    }
    if matches!(found, Denies(_)) {
        return if *authority == Authority::none() {
            Ok(())
        } else {
            Err("a denied call would get something".to_owned())
        };
    }
    let [narrowed, ruled, grant, consent, human] = takes;
    let taken = |what: Takes| {
        [narrowed, ruled].contains(&what)
            || (grant == what && by == Some("grant"))
            || (consent == what && by == Some("consent"))
            // What a human was shown bounds the call also where the policy has come to allow it.
            || (human == what && answered == Answers)
    };
    let second = Duration::from_secs(1);
    let found = [
        !authority.random,
        authority.clock == Clock::Frozen,
        authority.limits.wall == Some(second),
        authority.limits.cpu == Some(second),
        authority.limits.memory == Some(1),
    ];
    let wanted = [Takes::Random, Takes::Clock, Takes::Wall, Takes::Cpu, Takes::Memory].map(taken);
    if found == wanted { Ok(()) } else { Err(format!("takes {found:?} and not {wanted:?}")) }
}

#[test]
fn an_ask_never_hides_a_deny_and_no_answer_lifts_one() {
    let world = World::new();
    let one = world.registry("one");
    let manifest = world.manifest("asks");
    let policies = world.policies("asks");
    let (grants, consents, answer) = (world.grants("covers", "careful"), world.consents("valid"), world.answer("yes"));
    let facts = Facts {
        tool: &world.tool,
        principal: &Principal::Local,
        run: world.run,
        operation: Some(world.operation),
        now: world.now,
        visible: true,
        registry: Some(&one),
        narrowing: None,
        arguments: Some(Ok(&world.arguments)),
        configured: Some(&world.ceiling),
        manifest: manifest.as_ref(),
        policies: &[&policies[0][0]],
        unenforceable: None,
        grants: &grants,
        consents: &consents,
        answer: answer.as_ref(),
        refused: false,
        call: Some(world.call),
    };
    let word = |facts: &Facts<'_>| evaluate(facts).word();
    assert_eq!(word(&facts), Word::Allow, "answered");
    assert_eq!(word(&Facts { grants: &[], consents: &[], answer: None, ..facts }), Word::Ask, "asked by two sources");
    let (changed, nobody) = (world.registry("changed"), Authority::deny_all());
    let undeclared = world.manifest("other arguments");
    let denies = world.policies("denies");
    let denied = [
        (Facts { visible: false, ..facts }, Source::Visibility, Code::ToolNotVisible),
        (Facts { registry: Some(&changed), ..facts }, Source::Registry, Code::PackageChanged),
        (Facts { narrowing: Some(&nobody), ..facts }, Source::Narrowing, Code::ToolsDisabled),
        (Facts { arguments: Some(Err("no")), ..facts }, Source::Arguments, Code::ArgumentsInvalid),
        (Facts { manifest: undeclared.as_ref(), ..facts }, Source::Manifest, Code::ToolNotDeclared),
        (Facts { policies: &[&denies[0][0]], ..facts }, Source::Policy, Code::ToolDenied),
        (Facts { unenforceable: Some("no"), ..facts }, Source::Enforceability, Code::Unenforceable),
    ];
    for (facts, source, code) in denied {
        let decision = evaluate(&facts);
        assert_eq!(decision.deciding(), Some(source));
        assert_eq!(decision.ballot(source), Ballot::Deny(code));
        // Whoever else asks still says so: no vote is left out because another one decides.
        let asking = Source::ALL.into_iter().filter(|it| decision.ballot(*it) == Ballot::Ask).count();
        assert!(asking >= 1 || source == Source::Arguments, "{source}");
        assert_eq!(decision.word(), Word::Deny, "{source}");
    }
}
