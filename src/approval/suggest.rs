//! Rules that the answers of the past would justify: proposals to read and paste, never applied by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize as _;
use serde_json::Value as Json;

use super::scope::{Scope, scopes};
use crate::authority::template::Only;
use crate::gate::policy::{Policy, Rule, RuleVerdict};
use crate::gate::suggestion;
use crate::ids::ToolId;
use crate::journal::PastAnswer;
use crate::publication::config::Config;
use crate::publication::{PublishedTool, Snapshot};

/// What stands in place of an argument that no record keeps.
pub const NOT_KEPT: &str = "(not kept)";

/// One proposal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Suggestion {
    /// For which tool.
    pub tool: ToolId,
    /// How wide, in a few words.
    pub scope: String,
    /// How many different calls a human said yes to and this would have allowed.
    pub answers: usize,
    /// What it would also allow.
    pub also: String,
    /// The lines to paste.
    pub rule: String,
}

/// Proposes rules. A scope is justified where no human ever said no within it, and where several different calls point to it:
/// one for exactly its own arguments, two for a folder, a host or a choice, three for anything. Of scopes that the same answers
/// point to, the narrowest is proposed. A proposal leaves a call what the rule that asked left it, and is made only where it
/// would win over that rule.
pub fn suggest(past: &[PastAnswer], config: &Config, snapshot: &Snapshot) -> Vec<Suggestion> {
    let mut by_tool: BTreeMap<&ToolId, Vec<&PastAnswer>> = BTreeMap::new();
    for answer in past {
        by_tool.entry(&answer.tool).or_default().push(answer);
    }
    let mut suggestions = Vec::new();
    for (id, answers) in by_tool {
        let Some(tool) = snapshot.tool(id) else { continue };
        let whole = |answer: &PastAnswer| answer.arguments.as_ref().is_some_and(|arguments| !holds_not_kept(arguments));
        let (whole, partial): (Vec<&PastAnswer>, Vec<&PastAnswer>) =
            answers.into_iter().partition(|answer| whole(answer));
        // The same call is one reason, however often it was allowed. What was not kept whole points to nothing.
        let yes: BTreeMap<String, &Json> = whole
            .iter()
            .filter(|answer| answer.yes)
            .filter_map(|answer| answer.arguments.as_ref())
            .filter(|arguments| tool.policy.vote(arguments).verdict() == RuleVerdict::Ask)
            .map(|arguments| (arguments.to_string(), arguments))
            .collect();
        // A no that was not kept whole may lie within any scope but that of one other call.
        let unknown_no = partial.iter().any(|answer| !answer.yes);
        let no: Vec<&Json> =
            whole.iter().filter(|answer| !answer.yes).filter_map(|answer| answer.arguments.as_ref()).collect();
        let mut candidates = Vec::new();
        for arguments in yes.values() {
            let proposed = scopes(&tool.descriptor.input_schema, arguments, &config.redact);
            let last = proposed.len().saturating_sub(1);
            for (index, scope) in proposed.into_iter().enumerate() {
                let is_exact = scope.schema.source().get("const").is_some();
                let needed = if is_exact {
                    1
                } else if index == last {
                    3
                } else {
                    2
                };
                candidates.push((index, needed, is_exact, scope, *arguments));
            }
        }
        candidates.sort_by_key(|(index, ..)| *index);
        let mut seen: BTreeSet<Vec<&String>> = BTreeSet::new();
        for (_, needed, is_exact, scope, arguments) in candidates {
            let covered: Vec<(&String, &Json)> = yes
                .iter()
                .filter(|(_, arguments)| scope.schema.fits(arguments))
                .map(|(text, it)| (text, *it))
                .collect();
            let refused = (unknown_no && !is_exact) || no.iter().any(|arguments| scope.schema.may_fit(arguments));
            if covered.len() < needed || refused || !seen.insert(covered.iter().map(|(text, _)| *text).collect()) {
                continue;
            }
            let covered: Vec<&Json> = covered.into_iter().map(|(_, arguments)| arguments).collect();
            if let Some(rule) = rule(config, tool, &scope, arguments, &covered) {
                let (scope, also, answers) = (scope.title, scope.also, covered.len());
                suggestions.push(Suggestion { tool: id.clone(), scope, answers, also, rule });
            }
        }
    }
    suggestions
}

/// The lines of a rule for a scope; none where it would not allow what was answered, or where the rules that asked leave
/// different things.
fn rule(config: &Config, tool: &PublishedTool, scope: &Scope, arguments: &Json, covered: &[&Json]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Pasted {
        only: Option<Only>,
    }
    let id = &tool.descriptor.id;
    let asked = |arguments: &Json| -> Vec<usize> {
        let vote = tool.policy.vote(arguments);
        vote.rules().filter(|rule| rule.only.is_some()).map(|rule| rule.line).collect()
    };
    let left = asked(arguments);
    if left.len() > 1 || covered.iter().any(|other| asked(other) != left) {
        return None;
    }
    let vote = tool.policy.vote(arguments);
    let only = match vote.rules().find_map(|rule| rule.only.as_ref()) {
        Some(only) => Some(inline(&only.to_json())?),
        None => None,
    };
    let schema = match scope.schema.source() {
        Json::Object(schema) if schema.is_empty() => None,
        schema => Some(inline(schema)?),
    };
    let text = suggestion(id, schema.as_deref(), only.as_deref(), arguments, &tool.ceiling);
    // What is proposed is tried first: on the policy as it would be then.
    let table = text.split_once("]]\n").map(|(_, table)| table)?;
    let pasted: Pasted = toml::from_str(table).ok()?;
    let rule = Rule {
        tool: id.as_str().parse().ok()?,
        arguments: schema.is_some().then(|| scope.schema.clone()),
        verdict: RuleVerdict::Allow,
        only: pasted.only,
        reason: None,
        line: 0,
    };
    let rules = config.policy.rules.iter().cloned().chain([Arc::new(rule)]).collect();
    let policy = Policy { default: config.policy.default, rules }.for_tool(id, &tool.ceiling);
    covered.iter().all(|arguments| policy.vote(arguments).verdict() == RuleVerdict::Allow).then_some(text)
}

fn holds_not_kept(value: &Json) -> bool {
    match value {
        Json::String(text) => text == NOT_KEPT,
        Json::Array(items) => items.iter().any(holds_not_kept),
        Json::Object(fields) => fields.values().any(holds_not_kept),
        _ => false,
    }
}

/// JSON as a TOML value on one line; none where TOML cannot say it, since it has no null.
fn inline(json: &Json) -> Option<String> {
    let mut text = String::new();
    json.serialize(toml::ser::ValueSerializer::new(&mut text)).ok()?;
    Some(text).filter(|text| !text.contains('\n'))
}
