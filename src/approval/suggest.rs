//! Rules that the answers of the past would justify: proposals to read and paste, never applied by themselves.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize as _;
use serde_json::Value as Json;

use super::scope::{Scope, scopes};
use crate::gate::policy::RuleVerdict;
use crate::gate::suggestion;
use crate::ids::ToolId;
use crate::journal::PastAnswer;
use crate::publication::Snapshot;

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
/// point to, the narrowest is proposed; of calls that the policy allows by now, none.
pub fn suggest(past: &[PastAnswer], snapshot: &Snapshot) -> Vec<Suggestion> {
    let mut by_tool: BTreeMap<&ToolId, Vec<&PastAnswer>> = BTreeMap::new();
    for answer in past {
        by_tool.entry(&answer.tool).or_default().push(answer);
    }
    let mut suggestions = Vec::new();
    for (id, answers) in by_tool {
        let Some(tool) = snapshot.tool(id) else { continue };
        let open = |answer: &&&PastAnswer| tool.policy.vote(&answer.arguments).verdict() == RuleVerdict::Ask;
        // The same call is one reason, however often it was allowed.
        let yes: BTreeMap<String, &Json> = answers
            .iter()
            .filter(|answer| answer.yes)
            .filter(open)
            .map(|answer| (answer.arguments.to_string(), &answer.arguments))
            .collect();
        let no: Vec<&Json> = answers.iter().filter(|answer| !answer.yes).map(|answer| &answer.arguments).collect();
        let mut seen: BTreeSet<Vec<&String>> = BTreeSet::new();
        let candidates = yes.values().flat_map(|arguments| {
            let proposed = scopes(&tool.descriptor.input_schema, arguments);
            let last = proposed.len().saturating_sub(1);
            let needed = move |index: usize| {
                if index == 0 {
                    1
                } else if index == last {
                    3
                } else {
                    2
                }
            };
            proposed.into_iter().enumerate().map(move |(index, scope)| (index, needed(index), scope, *arguments))
        });
        let mut candidates: Vec<(usize, usize, Scope, &Json)> = candidates.collect();
        candidates.sort_by_key(|(index, ..)| *index);
        for (_, needed, scope, arguments) in candidates {
            let covered: Vec<&String> =
                yes.iter().filter(|(_, arguments)| scope.schema.fits(arguments)).map(|(text, _)| text).collect();
            if covered.len() < needed
                || no.iter().any(|arguments| scope.schema.fits(arguments))
                || !seen.insert(covered.clone())
            {
                continue;
            }
            // A value that was not kept cannot be asked for.
            if scope.schema.source().to_string().contains(NOT_KEPT) {
                continue;
            }
            let schema = match scope.schema.source() {
                Json::Object(schema) if schema.is_empty() => None,
                schema => match inline(schema) {
                    Some(schema) => Some(schema),
                    None => continue,
                },
            };
            suggestions.push(Suggestion {
                tool: id.clone(),
                scope: scope.title,
                answers: covered.len(),
                also: scope.also,
                rule: suggestion(id, schema.as_deref(), arguments, &tool.ceiling),
            });
        }
    }
    suggestions
}

/// JSON as a TOML value on one line; none where TOML cannot say it, since it has no null.
fn inline(json: &Json) -> Option<String> {
    let mut text = String::new();
    json.serialize(toml::ser::ValueSerializer::new(&mut text)).ok()?;
    Some(text).filter(|text| !text.contains('\n'))
}
