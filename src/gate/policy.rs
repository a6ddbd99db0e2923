//! Host policy: rules over tool ids and canonical arguments. Pure: no clock, no I/O, no order of rules.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;
use smallvec::SmallVec;

use super::schema::ArgumentSchema;
use crate::authority::Authority;
use crate::authority::path::pieces_match;
use crate::authority::template::Only;
use crate::ids::ToolId;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleVerdict {
    /// Run it.
    Allow,
    /// Ask a human.
    Ask,
    /// Refuse it.
    Deny,
}

impl fmt::Display for RuleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

/// What holds where no rule matches. There is no `allow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultVerdict {
    /// Ask a human.
    #[default]
    Ask,
    /// Refuse.
    Deny,
}

/// A glob over tool ids: `*` within one side of the `/`, never across it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolGlob {
    text: String,
    package: Vec<String>,
    function: Vec<String>,
}

/// A tool glob that could never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool pattern has the form package/function, with `*` on either side of the one `/`; `*/*` means every tool")]
pub struct ToolGlobError;

impl ToolGlob {
    /// Whether the glob matches the whole id.
    pub fn matches(&self, tool: &ToolId) -> bool {
        pieces_match(&self.package, tool.package()) && pieces_match(&self.function, tool.function())
    }

    /// Whether the glob has no star.
    pub fn is_exact(&self) -> bool {
        !self.text.contains('*')
    }

    /// The package that the glob names, where it names one.
    pub fn package_literal(&self) -> Option<&str> {
        match self.package.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    fn literal_prefix(&self) -> usize {
        self.text.find('*').unwrap_or(self.text.len())
    }
}

impl FromStr for ToolGlob {
    type Err = ToolGlobError;

    fn from_str(text: &str) -> Result<Self, ToolGlobError> {
        // With each star replaced by a character that an id may hold, the rest must be an id.
        text.replace('*', "x").parse::<ToolId>().map_err(|_| ToolGlobError)?;
        let (package, function) = text.split_once('/').ok_or(ToolGlobError)?;
        let pieces = |side: &str| side.split('*').map(str::to_owned).collect();
        Ok(Self { text: text.to_owned(), package: pieces(package), function: pieces(function) })
    }
}

impl fmt::Display for ToolGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which tools.
    pub tool: ToolGlob,
    /// Which arguments; absent matches all.
    pub arguments: Option<ArgumentSchema>,
    /// What it says.
    pub verdict: RuleVerdict,
    /// What is left of the authority; absent leaves it as it is.
    pub only: Option<Only>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// The line of the configuration that the rule begins at.
    pub line: usize,
}

/// How specific a rule is; the greater wins. An exact id before a pattern, then the longer literal prefix, then a rule with
/// `arguments` before one without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity(bool, usize, bool);

impl Rule {
    /// See [`Specificity`].
    pub fn specificity(&self) -> Specificity {
        Specificity(self.tool.is_exact(), self.tool.literal_prefix(), self.arguments.is_some())
    }

    /// Whether the rule is about these arguments. A denial is also about those that cannot be decided.
    pub fn fits(&self, arguments: &Json) -> bool {
        self.arguments.as_ref().is_none_or(|schema| match self.verdict {
            RuleVerdict::Deny => schema.may_fit(arguments),
            RuleVerdict::Allow | RuleVerdict::Ask => schema.fits(arguments),
        })
    }
}

/// The whole policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// What holds where no rule matches.
    pub default: DefaultVerdict,
    /// In the order of the file, which never matters.
    pub rules: Vec<Arc<Rule>>,
}

/// The policy with its rules by package, so that compiling it for one tool looks at few others' rules.
#[derive(Clone, Debug)]
pub struct IndexedPolicy<'p> {
    default: DefaultVerdict,
    by_package: HashMap<&'p str, Vec<&'p Arc<Rule>>>,
    of_any: Vec<&'p Arc<Rule>>,
}

impl Policy {
    /// See [`IndexedPolicy`].
    pub fn index(&self) -> IndexedPolicy<'_> {
        let mut index = IndexedPolicy { default: self.default, by_package: HashMap::new(), of_any: Vec::new() };
        for rule in &self.rules {
            match rule.tool.package_literal() {
                Some(package) => index.by_package.entry(package).or_default().push(rule),
                None => index.of_any.push(rule),
            }
        }
        index
    }

    /// The part that concerns one tool, whose calls have at most `ceiling`.
    pub fn for_tool(&self, tool: &ToolId, ceiling: &Arc<Authority>) -> ToolPolicy {
        self.index().for_tool(tool, ceiling)
    }
}

impl IndexedPolicy<'_> {
    /// As [`Policy::for_tool`].
    pub fn for_tool(&self, tool: &ToolId, ceiling: &Arc<Authority>) -> ToolPolicy {
        let named = self.by_package.get(tool.package()).into_iter().flatten();
        let matching = named.chain(&self.of_any).filter(|rule| rule.tool.matches(tool));
        let compiled = matching.map(|rule| Compiled {
            rule: Arc::clone(rule),
            met: rule.only.as_ref().and_then(Only::constant).map(|only| Arc::new(ceiling.meet(&only))),
        });
        let (denials, mut others): (Vec<_>, Vec<_>) = compiled.partition(|it| it.rule.verdict == RuleVerdict::Deny);
        others.sort_by_key(|it| Reverse(it.rule.specificity()));
        ToolPolicy { default: self.default, ceiling: ceiling.clone(), denials, others }
    }
}

/// A rule with what follows from it for one tool.
#[derive(Clone, Debug)]
struct Compiled {
    rule: Arc<Rule>,
    /// What is left of the tool's ceiling, where the rule's `only` does not depend on the arguments.
    met: Option<Arc<Authority>>,
}

/// The rules that can match one tool, compiled at publication: denials first, then the others by falling specificity.
#[derive(Clone, Debug)]
pub struct ToolPolicy {
    default: DefaultVerdict,
    ceiling: Arc<Authority>,
    denials: Vec<Compiled>,
    others: Vec<Compiled>,
}

/// What host policy says of one call.
#[derive(Clone, Debug)]
pub struct PolicyVote<'p> {
    policy: &'p ToolPolicy,
    verdict: RuleVerdict,
    matched: SmallVec<[&'p Compiled; 4]>,
}

impl ToolPolicy {
    /// The vote on one call. Any matching deny wins; among the others the most specific; among equals the strictest,
    /// under the meet of what they leave.
    pub fn vote(&self, arguments: &Json) -> PolicyVote<'_> {
        let denials: SmallVec<[_; 4]> = self.denials.iter().filter(|it| it.rule.fits(arguments)).collect();
        if !denials.is_empty() {
            return PolicyVote { policy: self, verdict: RuleVerdict::Deny, matched: denials };
        }
        let mut matching = self.others.iter().filter(|it| it.rule.fits(arguments)).peekable();
        let Some(first) = matching.peek() else {
            return PolicyVote { policy: self, verdict: self.by_default(), matched: SmallVec::new() };
        };
        let best = first.rule.specificity();
        let matched: SmallVec<[_; 4]> = matching.take_while(|it| it.rule.specificity() == best).collect();
        let verdict = matched.iter().map(|it| it.rule.verdict).max().unwrap_or(RuleVerdict::Deny);
        PolicyVote { policy: self, verdict, matched }
    }

    /// Whether every call of the tool is denied, whatever its arguments are; and by which rule, or by the default.
    pub fn denies_always(&self) -> Option<Option<&Rule>> {
        let always = self.denials.iter().find(|it| it.rule.arguments.is_none());
        match always {
            Some(it) => Some(Some(&it.rule)),
            None => (self.others.is_empty() && self.default == DefaultVerdict::Deny).then_some(None),
        }
    }

    fn by_default(&self) -> RuleVerdict {
        match self.default {
            DefaultVerdict::Ask => RuleVerdict::Ask,
            DefaultVerdict::Deny => RuleVerdict::Deny,
        }
    }
}

impl<'p> PolicyVote<'p> {
    /// The verdict.
    pub fn verdict(&self) -> RuleVerdict {
        self.verdict
    }

    /// The rules that made it; none where the default did.
    pub fn rules(&self) -> impl Iterator<Item = &'p Rule> {
        self.matched.iter().map(|it| &*it.rule)
    }

    /// What the matched rules leave of `authority`.
    pub fn narrow(&self, authority: &Arc<Authority>, arguments: &Json) -> Arc<Authority> {
        if let [one] = self.matched.as_slice()
            && let Some(met) = &one.met
            && Arc::ptr_eq(authority, &self.policy.ceiling)
        {
            return met.clone();
        }
        let onlys = self.matched.iter().filter_map(|it| it.rule.only.as_ref());
        onlys.fold(authority.clone(), |left, only| Arc::new(left.meet(&only.of(arguments))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(tool: &str, arguments: Option<Json>, verdict: RuleVerdict, only: Option<&str>) -> Arc<Rule> {
        Arc::new(Rule {
            tool: tool.parse().unwrap(),
            arguments: arguments.map(|schema| ArgumentSchema::new(schema).unwrap()),
            verdict,
            only: only.map(|text| toml::from_str(text).unwrap()),
            reason: None,
            line: 1,
        })
    }

    struct Voted {
        verdict: RuleVerdict,
        only: Arc<Authority>,
    }

    fn vote(rules: &[Arc<Rule>], arguments: Json) -> Voted {
        let tool = "files/read".parse().unwrap();
        let ceiling = Arc::new(Authority::configured());
        let voted = |rules: Vec<Arc<Rule>>| {
            let policy = Policy { default: DefaultVerdict::Ask, rules }.for_tool(&tool, &ceiling);
            let vote = policy.vote(&arguments);
            let only = vote.narrow(&ceiling, &arguments);
            // What was met at publication is what meeting at the decision gives.
            assert_eq!(*only, *vote.narrow(&Arc::new(Authority::configured()), &arguments));
            Voted { verdict: vote.verdict, only }
        };
        let (a, b) = (voted(rules.to_vec()), voted(rules.iter().rev().cloned().collect()));
        assert_eq!((a.verdict, &a.only), (b.verdict, &b.only), "the order of rules matters");
        a
    }

    #[test]
    fn a_call_without_a_rule_gets_the_default() {
        assert_eq!(vote(&[], json!({})).verdict, RuleVerdict::Ask);
        assert_eq!(vote(&[rule("other/*", None, RuleVerdict::Allow, None)], json!({})).verdict, RuleVerdict::Ask);
    }

    #[test]
    fn any_matching_deny_wins_over_a_more_specific_allow() {
        let rules = [rule("files/read", None, RuleVerdict::Allow, None), rule("*/*", None, RuleVerdict::Deny, None)];
        assert_eq!(vote(&rules, json!({})).verdict, RuleVerdict::Deny);
    }

    #[test]
    fn a_deny_that_cannot_be_decided_matches_and_an_allow_does_not() {
        let secret = |verdict| {
            let schema = json!({ "properties": { "path": { "pattern": "/secret/" } }, "required": ["path"] });
            rule("files/read", Some(schema), verdict, None)
        };
        let long = json!({ "path": "/".repeat(crate::gate::schema::TEXT_MAX + 1) });
        let allow = rule("files/read", None, RuleVerdict::Allow, None);
        assert_eq!(vote(&[allow.clone(), secret(RuleVerdict::Deny)], long.clone()).verdict, RuleVerdict::Deny);
        assert_eq!(vote(&[allow, secret(RuleVerdict::Deny)], json!({ "path": "/a" })).verdict, RuleVerdict::Allow);
        assert_eq!(vote(&[secret(RuleVerdict::Allow)], long).verdict, RuleVerdict::Ask);
    }

    #[test]
    fn the_most_specific_wins_among_the_rest() {
        let with = Some(json!({ "properties": { "path": { "const": "/a" } }, "required": ["path"] }));
        let rules = [
            rule("*/*", None, RuleVerdict::Ask, None),
            rule("files/*", None, RuleVerdict::Allow, None),
            rule("files/read", with, RuleVerdict::Ask, None),
        ];
        assert_eq!(vote(&rules, json!({ "path": "/a" })).verdict, RuleVerdict::Ask);
        assert_eq!(vote(&rules, json!({ "path": "/b" })).verdict, RuleVerdict::Allow);
    }

    #[test]
    fn among_equals_the_stricter_verdict_and_the_meet_hold() {
        let rules = [
            rule("files/read", None, RuleVerdict::Allow, Some(r#"files = ["/data/**"]"#)),
            rule("files/read", None, RuleVerdict::Ask, Some(r#"files = ["/**/*.csv"]"#)),
        ];
        let vote = vote(&rules, json!({}));
        assert_eq!(vote.verdict, RuleVerdict::Ask);
        let access = |path: &str| vote.only.files.access(&path.parse().unwrap());
        assert!(access("/data/a.csv").is_some());
        assert!(access("/data/a.txt").is_none());
        assert!(access("/other/a.csv").is_none());
    }

    #[test]
    fn globs_do_not_cross_the_slash_and_what_cannot_match_is_refused() {
        let glob: ToolGlob = "f*s/*.read".parse().unwrap();
        assert!(glob.matches(&"files/text.read".parse().unwrap()));
        assert!(!glob.matches(&"files/read".parse().unwrap()));
        for bad in ["*", "files", "files/", "/x", "a/b/c", "a b/*", ""] {
            assert_eq!(bad.parse::<ToolGlob>(), Err(ToolGlobError), "{bad}");
        }
    }
}
