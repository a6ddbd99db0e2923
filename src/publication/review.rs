//! What a whole policy may not mean: rules that never match, rules that others stand before, allows that are wider than they
//! look, and grants of authority that the package never asked for. Warnings, each with the line and what would mend it; what is
//! certainly wrong does not load in the first place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::config::{Config, ToolConfig};
use super::{PackageState, PublishedTool, Snapshot};
use crate::gate::policy::{Rule, RuleVerdict};
use crate::gate::schema::ArgumentSchema;
use crate::ids::{PackageName, ToolId};
use crate::registry::Package;
use crate::text::escape_text;

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The configuration.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// Which kind.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
    /// What would mend it.
    pub hint: String,
}

/// The kinds of warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The rule matches no call.
    NeverMatches,
    /// Others decide every call that the rule matches.
    Shadowed,
    /// An allow that also holds where arguments are absent.
    AcceptsEmpty,
    /// An allow whose pattern matches anywhere in a text, or paths that lead elsewhere.
    LoosePattern,
    /// More authority than the package declares, which has no effect.
    WiderThanDeclared,
    /// The rule could not be held against its tools.
    NotChecked,
}

/// Reads the whole policy.
pub fn review(file: &Path, config: &Config, snapshot: &Snapshot) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |line: usize, kind: Kind, message: String, hint: String| {
        warnings.push(Warning { file: file.to_owned(), line, kind, message, hint });
    };
    for rule in &config.policy.rules {
        if let Some((message, hint)) = accepts_empty(rule, snapshot) {
            warn(rule.line, Kind::AcceptsEmpty, message, hint);
        }
        if let Some((message, hint)) = loose_pattern(rule, snapshot) {
            warn(rule.line, Kind::LoosePattern, message, hint);
        }
        let tools: Vec<(&ToolId, &PublishedTool)> = matched(rule, snapshot).collect();
        if tools.is_empty() && snapshot.packages.is_empty() {
            // A rule is right before there is anything to match.
        } else if tools.is_empty() {
            let (kind, message, hint) = unmatched(rule, snapshot);
            warn(rule.line, kind, message, hint);
        } else if !tools.iter().any(|(_, tool)| can_hold(rule, tool)) {
            let message =
                format!("the rule for `{}` never matches: no call can have the arguments that it asks for", rule.tool);
            let hint = format!("`portcullis show {} --json` prints the schemas of the arguments", tools[0].0.package());
            warn(rule.line, Kind::NeverMatches, message, hint);
        } else if let Some((message, hint)) = shadowed(rule, &config.policy.rules, &tools) {
            warn(rule.line, Kind::Shadowed, message, hint);
        }
    }
    for (name, tool) in &config.tools {
        if let Some(PackageState::Ready(package)) = snapshot.packages.get(name) {
            for message in wider(tool, package) {
                let hint = format!("grant what `portcullis show {name}` says that it needs");
                warn(tool.line, Kind::WiderThanDeclared, format!("[tools.{name}] {message}"), hint);
            }
        }
    }
    warnings.sort_by_key(|warning| warning.line);
    warnings
}

fn matched<'s>(rule: &Rule, snapshot: &'s Snapshot) -> impl Iterator<Item = (&'s ToolId, &'s PublishedTool)> {
    snapshot.tools().filter(|(id, _)| rule.tool.matches(id)).map(|(id, tool)| (id, &**tool))
}

fn unmatched(rule: &Rule, snapshot: &Snapshot) -> (Kind, String, String) {
    let unusable: BTreeMap<&PackageName, &PackageState> = snapshot
        .packages
        .iter()
        .filter(|(name, state)| {
            !matches!(state, PackageState::Ready(_))
                && rule.tool.package_literal().is_none_or(|literal| literal == name.as_str())
        })
        .collect();
    if let Some((name, _)) = unusable.first_key_value() {
        let message = format!("the rule for `{}` was not checked: the package `{name}` cannot be used", rule.tool);
        return (Kind::NotChecked, message, format!("`portcullis show {name}` says why"));
    }
    let message = format!("the rule for `{}` matches no tool", rule.tool);
    (Kind::NeverMatches, message, "`portcullis list --json` names every tool".to_owned())
}

fn accepts_empty(rule: &Rule, snapshot: &Snapshot) -> Option<(String, String)> {
    let schema = rule.arguments.as_ref().filter(|_| rule.verdict == RuleVerdict::Allow)?;
    let names = |key: &str| -> BTreeSet<&str> {
        match schema.source().get(key) {
            Some(Json::Object(named)) => named.keys().map(String::as_str).collect(),
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => BTreeSet::new(),
        }
    };
    let (named, required) = (names("properties"), names("required"));
    let free: Vec<&str> = named.difference(&required).copied().collect();
    let accepts_empty = schema.fits(&json!({}));
    // A tool that insists on an argument cannot be called without it, until it is another version.
    let is_optional = |name: &&str| {
        matched(rule, snapshot).any(|(_, tool)| {
            let own = tool.descriptor.input_schema.get("required").and_then(Json::as_array);
            !own.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(*name)))
        })
    };
    let optional: Vec<&str> = free.iter().filter(|name| is_optional(name)).copied().collect();
    if !accepts_empty && optional.is_empty() {
        return None;
    }
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let what = match (accepts_empty, optional.is_empty()) {
        (true, true) if !free.is_empty() => {
            "also fit where they are absent: today's tools insist on them, and a later version may not".to_owned()
        }
        (true, true) => "also fit where there are none".to_owned(),
        (_, false) => format!("also fit where {} is absent", list(&optional)),
        (false, true) => return None,
    };
    let message = format!("the `arguments` of the rule that allows `{}` {what}", rule.tool);
    let all: BTreeSet<&str> = required.union(&named).copied().collect();
    let hint = match all.is_empty() {
        true => "say what the arguments must be, or leave `arguments` out".to_owned(),
        false => {
            let all = all.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            format!("write `required = [{all}]` in the schema")
        }
    };
    Some((message, hint))
}

/// An allow by a pattern that a text can fit and still mean something else.
fn loose_pattern(rule: &Rule, snapshot: &Snapshot) -> Option<(String, String)> {
    let schema = rule.arguments.as_ref().filter(|_| rule.verdict == RuleVerdict::Allow)?;
    let named = schema.source().get("properties").and_then(Json::as_object)?;
    let mut patterns = named.iter().filter_map(|(name, part)| Some((name, part.get("pattern")?.as_str()?)));
    let unanchored = patterns.clone().find(|(_, pattern)| !pattern.starts_with('^'));
    if let Some((name, pattern)) = unanchored {
        let message =
            format!("the pattern of `{name}` in the rule that allows `{}` matches anywhere in the text", rule.tool);
        let hint = format!("begin it with `^`: `^{}`", escape_text(pattern, 100));
        return Some((message, hint));
    }
    let touches_files = matched(rule, snapshot).any(|(_, tool)| !tool.ceiling.files.is_nothing());
    let (name, _) = patterns.find(|(_, pattern)| pattern.starts_with("^/") && rule.only.is_none() && touches_files)?;
    let message = format!(
        "the rule that allows `{}` looks at the beginning of the path in `{name}`, and leaves the call all files that are granted: a path with `..` in it begins alike",
        rule.tool
    );
    Some((
        message,
        format!("add `only = {{ files = [\"{{{name}}}\"] }}`: the call then gets the one path, in normal form"),
    ))
}

/// Whether some call of the tool can fit the rule, as far as fixed values and required names tell.
fn can_hold(rule: &Rule, tool: &PublishedTool) -> bool {
    let Some(schema) = &rule.arguments else { return true };
    let source = schema.source();
    if *source == Json::Bool(false) {
        return false;
    }
    let empty = Map::new();
    let input = &tool.descriptor.input_schema;
    let parameters = input.get("properties").and_then(Json::as_object).unwrap_or(&empty);
    let required = source.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    if required.into_iter().any(|name| !parameters.contains_key(name)) {
        return false;
    }
    let is_required = |name: &str| {
        let all = source.get("required").and_then(Json::as_array).into_iter().flatten();
        let own = input.get("required").and_then(Json::as_array).into_iter().flatten();
        all.chain(own).any(|it| it.as_str() == Some(name))
    };
    let named = source.get("properties").and_then(Json::as_object).into_iter().flatten();
    named.into_iter().filter(|(name, _)| is_required(name)).all(|(name, wanted)| {
        let Some(parameter) = parameters.get(name) else { return true };
        let values: Vec<&Json> = match (wanted, wanted.get("const"), wanted.get("enum").and_then(Json::as_array)) {
            (Json::Bool(false), ..) => return false,
            (_, Some(value), _) => vec![value],
            (_, None, Some(values)) => values.iter().collect(),
            (_, None, None) => return true,
        };
        let mut whole = parameter.clone();
        if let (Some(whole), Some(defs)) = (whole.as_object_mut(), input.get("$defs")) {
            whole.insert("$defs".to_owned(), defs.clone());
        }
        // A schema of ours that is too large to be compiled here tells nothing.
        ArgumentSchema::new(whole).map_or(true, |parameter| values.into_iter().any(|value| parameter.fits(value)))
    })
}

/// Whether other rules decide every call that the rule matches.
fn shadowed(rule: &Arc<Rule>, all: &[Arc<Rule>], tools: &[(&ToolId, &PublishedTool)]) -> Option<(String, String)> {
    let others = || all.iter().filter(|other| !Arc::ptr_eq(other, rule) && other.arguments.is_none());
    let before = |id: &ToolId| {
        others().find(|other| {
            other.tool.matches(id)
                && match (other.verdict, rule.verdict) {
                    // Of two that deny the same, the first to stand in the file is the one that is meant.
                    (RuleVerdict::Deny, RuleVerdict::Deny) => {
                        rule.arguments.is_some() || other.tool != rule.tool || other.line < rule.line
                    }
                    (RuleVerdict::Deny, _) => true,
                    (_, RuleVerdict::Deny) => false,
                    _ => {
                        other.specificity() > rule.specificity()
                            || (other.specificity() == rule.specificity()
                                && other.verdict > rule.verdict
                                && rule.only.is_none())
                    }
                }
        })
    };
    let mut lines = Vec::new();
    for (id, _) in tools {
        lines.push(before(id)?.line);
    }
    lines.sort_unstable();
    lines.dedup();
    let lines = lines.iter().map(|line| format!("line {line}")).collect::<Vec<_>>().join(", ");
    let message = format!(
        "the rule for `{}` decides nothing: every call of a tool that it matches today is decided by {lines}",
        rule.tool
    );
    Some((
        message,
        "a deny wins over all, then the more specific; remove one of them, or give it `arguments`".to_owned(),
    ))
}

/// What a configuration grants beyond what the package declares: it has no effect, and may not be what was meant.
fn wider(tool: &ToolConfig, package: &Package) -> Vec<String> {
    let Some(needs) = &package.needs else { return Vec::new() };
    let (granted, declared) = (&tool.authority, &package.ceiling);
    let mut found = granted.files.beyond(&declared.files);
    found.extend(granted.http.beyond(&declared.http));
    let declared_names = declared.environment.lines();
    let names = granted.environment.lines().into_iter().filter(|name| !declared_names.contains(name));
    found.extend(names.map(|name| format!("grants the variable `{name}`, which the package does not declare")));
    found.extend(granted.credentials.beyond(&declared.credentials));
    if granted.clock > declared.clock {
        found.push(format!("grants the clock `{}`, and the package declares `{}`", granted.clock, declared.clock));
    }
    if granted.random && !declared.random {
        found.push("grants randomness, which the package does not declare".to_owned());
    }
    if granted.state > declared.state {
        found.push(format!("grants the state `{}`, and the package declares `{}`", granted.state, declared.state));
    }
    let least = tool.limits.meet(&needs.limits.into()).named();
    let above = tool.limits.named().into_iter().filter(|set| !least.contains(set));
    found.extend(above.map(|(name, value)| format!("sets the limit {name} to {value}, and the package declares less")));
    found
}
