//! Host policy: rules over tool ids and canonical arguments. Pure: no clock, no I/O, no order of rules.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::authority::Authority;
use crate::authority::path::pieces_match;
use crate::authority::template::Only;
use crate::ids::ToolId;

/// Deepest nesting of an `arguments` schema.
pub const SCHEMA_DEPTH_MAX: usize = 32;
/// Largest `arguments` schema, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 << 10;

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

/// A compiled JSON Schema over canonical arguments.
#[derive(Clone, Debug)]
pub struct ArgumentSchema {
    source: Json,
    validator: Arc<jsonschema::Validator>,
}

/// Why a schema is refused at load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Deeper than [`SCHEMA_DEPTH_MAX`] or larger than [`SCHEMA_BYTES_MAX`].
    #[error("the schema is nested more than {SCHEMA_DEPTH_MAX} deep, or larger than {} KiB", SCHEMA_BYTES_MAX >> 10)]
    TooLarge,
    /// A keyword that the standard does not have, which a validator would pass over: the schema would accept more than it says.
    #[error("`{0}` is no keyword of JSON Schema 2020-12")]
    UnknownKeyword(String),
    /// Not a schema, or with a reference or pattern that cannot be used.
    #[error("this is no JSON Schema that can be used: {0}")]
    Invalid(String),
}

impl ArgumentSchema {
    /// Compiles a schema: draft 2020-12, no references outside of it, patterns by a linear-time engine.
    ///
    /// # Errors
    ///
    /// See [`SchemaError`].
    pub fn new(source: Json) -> Result<Self, SchemaError> {
        if depth(&source) > SCHEMA_DEPTH_MAX || source.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLarge);
        }
        check_keywords(&source)?;
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&source)
            .map_err(|error| SchemaError::Invalid(error.to_string()))?;
        Ok(Self { source, validator: Arc::new(validator) })
    }

    /// Whether the arguments fit. Validity only: collecting errors can take exponential time.
    pub fn fits(&self, arguments: &Json) -> bool {
        self.validator.is_valid(arguments)
    }

    /// The schema as it was written.
    pub fn source(&self) -> &Json {
        &self.source
    }
}

/// Refuses keywords that draft 2020-12 does not define (its vocabularies core, applicator, validation, unevaluated, format,
/// content and meta-data).
fn check_keywords(schema: &Json) -> Result<(), SchemaError> {
    const OF_VALUES: [&str; 31] = [
        "$id",
        "$schema",
        "$ref",
        "$anchor",
        "$comment",
        "$dynamicRef",
        "$dynamicAnchor",
        "$vocabulary",
        "type",
        "enum",
        "const",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxContains",
        "minContains",
        "maxProperties",
        "minProperties",
        "required",
        "dependentRequired",
        "format",
        "contentEncoding",
        "contentMediaType",
    ];
    const ABOUT: [&str; 7] = ["title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples"];
    const OF_SCHEMA: [&str; 11] = [
        "items",
        "contains",
        "additionalProperties",
        "propertyNames",
        "if",
        "then",
        "else",
        "not",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contentSchema",
    ];
    const OF_SCHEMAS: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
    const OF_NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];
    let Some(map) = schema.as_object() else { return Ok(()) };
    for (keyword, value) in map {
        let keyword = keyword.as_str();
        if OF_SCHEMA.contains(&keyword) {
            check_keywords(value)?;
        } else if OF_SCHEMAS.contains(&keyword) {
            value.as_array().into_iter().flatten().try_for_each(check_keywords)?;
        } else if OF_NAMED.contains(&keyword) {
            value.as_object().into_iter().flatten().try_for_each(|(_, schema)| check_keywords(schema))?;
        } else if !OF_VALUES.contains(&keyword) && !ABOUT.contains(&keyword) {
            return Err(SchemaError::UnknownKeyword(keyword.to_owned()));
        }
    }
    Ok(())
}

fn depth(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 1,
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

impl Rule {
    /// Higher is more specific.
    fn specificity(&self) -> (bool, usize, bool) {
        (self.tool.is_exact(), self.tool.literal_prefix(), self.arguments.is_some())
    }

    fn fits(&self, arguments: &Json) -> bool {
        self.arguments.as_ref().is_none_or(|schema| schema.fits(arguments))
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

/// The rules that can match one tool, compiled at publication: denials first, then the others by falling specificity.
#[derive(Clone, Debug, Default)]
pub struct ToolPolicy {
    default: DefaultVerdict,
    denials: Vec<Arc<Rule>>,
    others: Vec<Arc<Rule>>,
}

/// What host policy says of one call.
#[derive(Clone, Debug)]
pub struct PolicyVote {
    /// The verdict.
    pub verdict: RuleVerdict,
    /// The rules that made it; empty where the default did.
    pub rules: Vec<Arc<Rule>>,
    /// The meet of the rules' `only`.
    pub only: Authority,
}

impl Policy {
    /// The part that concerns one tool.
    pub fn for_tool(&self, tool: &ToolId) -> ToolPolicy {
        let matching = self.rules.iter().filter(|rule| rule.tool.matches(tool)).cloned();
        let (denials, mut others): (Vec<_>, Vec<_>) = matching.partition(|rule| rule.verdict == RuleVerdict::Deny);
        others.sort_by_key(|rule| Reverse(rule.specificity()));
        ToolPolicy { default: self.default, denials, others }
    }
}

impl ToolPolicy {
    /// The vote on one call. Any matching deny wins; among the others the most specific; among equals the strictest,
    /// under the meet of what they leave.
    pub fn vote(&self, arguments: &Json) -> PolicyVote {
        let denials: Vec<_> = self.denials.iter().filter(|rule| rule.fits(arguments)).cloned().collect();
        if !denials.is_empty() {
            return PolicyVote { verdict: RuleVerdict::Deny, rules: denials, only: Authority::none() };
        }
        let mut matching = self.others.iter().filter(|rule| rule.fits(arguments)).peekable();
        let Some(first) = matching.peek() else {
            let verdict = match self.default {
                DefaultVerdict::Ask => RuleVerdict::Ask,
                DefaultVerdict::Deny => RuleVerdict::Deny,
            };
            return PolicyVote { verdict, rules: Vec::new(), only: Authority::configured() };
        };
        let best = first.specificity();
        let rules: Vec<_> = matching.take_while(|rule| rule.specificity() == best).cloned().collect();
        let verdict = rules.iter().map(|rule| rule.verdict).max().unwrap_or(RuleVerdict::Deny);
        let only = rules
            .iter()
            .filter_map(|rule| rule.only.as_ref())
            .fold(Authority::configured(), |met, only| met.meet(&only.of(arguments)));
        PolicyVote { verdict, rules, only }
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

    fn vote(rules: &[Arc<Rule>], arguments: Json) -> PolicyVote {
        let tool = "files/read".parse().unwrap();
        let forward = Policy { default: DefaultVerdict::Ask, rules: rules.to_vec() };
        let backward = Policy { default: DefaultVerdict::Ask, rules: rules.iter().rev().cloned().collect() };
        let (a, b) = (forward.for_tool(&tool).vote(&arguments), backward.for_tool(&tool).vote(&arguments));
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

    #[test]
    fn schemas_reach_no_network_and_no_file_and_use_the_linear_engine() {
        for bad in [
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "(a)\\1" }),
            json!({ "pattern": "(" }),
            json!({ "type": "nothing" }),
        ] {
            assert!(ArgumentSchema::new(bad.clone()).is_err(), "{bad}");
        }
        let mut deep = json!({});
        for _ in 0..SCHEMA_DEPTH_MAX {
            deep = json!({ "not": deep });
        }
        assert_eq!(ArgumentSchema::new(deep).unwrap_err(), SchemaError::TooLarge);
        let slow = ArgumentSchema::new(json!({ "pattern": "^(a+)+$" })).unwrap();
        assert!(!slow.fits(&json!(format!("{}b", "a".repeat(100_000)))));
    }
}
