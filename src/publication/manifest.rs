//! A manifest as it is written: YAML, parsed whole or not at all. Whoever wrote it is not trusted, so everything in it is bounded.
#![allow(clippy::disallowed_methods, reason = "the manifest is a file that the user named")]

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;
use serde_saphyr::Spanned;

use super::config::ConfigError;
use crate::gate::manifest::{Capability, ConsentMode, Endpoint, Manifest, Webhook};
use crate::gate::schema::{ArgumentSchema, SCHEMA_WEIGHT_MAX, SchemaError};
use crate::ids::{CapabilityId, ToolId};
use crate::private;
use crate::text::clean_text;

/// Largest manifest, in bytes.
pub const MANIFEST_MAX: u64 = 256 << 10;
/// Most capabilities of a manifest.
pub const CAPABILITIES_MAX: usize = 256;
/// Longest text for people.
const TEXT_MAX: usize = 4_096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    schema_version: Spanned<u64>,
    id: Spanned<String>,
    name: String,
    description: Option<String>,
    flow: Option<Spanned<String>>,
    #[serde(default)]
    permissions: Permissions,
    webhook: Option<WebhookTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Permissions {
    #[serde(default)]
    tools: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: Spanned<String>,
    tool: Spanned<String>,
    #[serde(default, deserialize_with = "given")]
    arguments: Option<Spanned<Json>>,
    #[serde(default)]
    consent: ConsentMode,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    delegate: Vec<Spanned<String>>,
}

/// A key that is there without a value is a slip, and not the same as no key.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Spanned<Json>>, D::Error> {
    Spanned::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookTable {
    endpoints: Endpoints,
    #[serde(rename = "request")]
    _request: Request,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoints {
    base: Endpoint,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(rename = "type")]
    _type: RequestType,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RequestType {
    Json,
}

/// Reads the manifest at `path`.
///
/// # Errors
///
/// It cannot be read, or as [`parse`].
pub fn read(path: &Path) -> Result<Manifest, ConfigError> {
    let error = |message: String| ConfigError { file: path.to_owned(), line: None, message, hint: None };
    let mut text = String::new();
    let read = private::open_regular(path)
        .and_then(|file| file.take(MANIFEST_MAX + 1).read_to_string(&mut text))
        .map_err(|why| error(format!("the manifest cannot be read: {why}")))?;
    if read as u64 > MANIFEST_MAX {
        return Err(error("the manifest is larger than 256 KiB".to_owned()));
    }
    parse(path, &text)
}

/// Checks the text of a manifest. `path` is for error messages.
///
/// # Errors
///
/// What is wrong, with its line and what would mend it.
pub fn parse(path: &Path, text: &str) -> Result<Manifest, ConfigError> {
    let error = |line: Option<u64>, message: String, hint: Option<&str>| ConfigError {
        file: path.to_owned(),
        line: line.and_then(|line| usize::try_from(line).ok()),
        message,
        hint: hint.map(str::to_owned),
    };
    if text.len() as u64 > MANIFEST_MAX {
        return Err(error(None, "the manifest is larger than 256 KiB".to_owned(), None));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 64, max_nodes: 50_000, max_aliases: 100 },
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|why| {
        let line = why.location().map(|location| location.line());
        let message = clean_text(&why.without_snippet().to_string(), 500).replace('\n', ", ");
        if message.starts_with("multiple YAML documents") {
            return error(line, "a manifest is one YAML document".to_owned(), Some("remove what follows the `---`"));
        }
        // The place stands before the message already.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message).to_owned();
        error(line, message, None)
    })?;
    let line = |span: &serde_saphyr::Location| Some(span.line());
    if file.schema_version.value != 1 {
        let message = format!("`schemaVersion` {} is not known here", file.schema_version.value);
        return Err(error(line(&file.schema_version.referenced), message, Some("schemaVersion: 1")));
    }
    let is_name = |name: &str| name.parse::<CapabilityId>().is_ok_and(|id| !id.is_tool_id());
    if !is_name(&file.id.value) {
        let message =
            "`id` starts with a lower-case letter and holds lower-case letters, digits, `-` and `_`".to_owned();
        return Err(error(line(&file.id.referenced), message, Some("id: post-document")));
    }
    if let Some(flow) = &file.flow {
        let beneath = format!("/{}", flow.value).parse::<crate::authority::path::GuestPath>();
        if flow.value.is_empty() || flow.value.contains('\\') || beneath.is_err() {
            let message = format!(
                "`flow` is a path beneath the manifest's folder, and `{}` is none",
                clean_text(&flow.value, 200)
            );
            return Err(error(line(&flow.referenced), message, Some("flow: flow.yaml")));
        }
    }
    if file.permissions.tools.len() > CAPABILITIES_MAX {
        let message = format!("a manifest declares at most {CAPABILITIES_MAX} capabilities");
        return Err(error(line(&file.permissions.tools[CAPABILITIES_MAX].referenced), message, None));
    }
    let mut capabilities: Vec<Capability> = Vec::new();
    let mut delegated = Vec::new();
    let mut weight = 0;
    for entry in file.permissions.tools {
        let at = line(&entry.referenced);
        let entry = entry.value;
        let id: CapabilityId = match entry.id.value.parse() {
            Ok(id) if is_name(&entry.id.value) => id,
            _ => {
                let message = crate::ids::NameError::Capability.to_string();
                return Err(error(line(&entry.id.referenced), message, Some("id: accounting-read")));
            }
        };
        if let Some(other) = capabilities.iter().find(|other| other.id == id) {
            let message = format!("the capability `{id}` is declared twice, first at line {}", other.line);
            return Err(error(line(&entry.id.referenced), message, Some("give one of them another `id`")));
        }
        let tool: ToolId = entry.tool.value.parse().map_err(|why: crate::ids::NameError| {
            let hint = "a manifest names each tool that it calls; there are no patterns";
            error(line(&entry.tool.referenced), why.to_string(), Some(hint))
        })?;
        let arguments = match entry.arguments {
            None => None,
            Some(schema) => {
                let at = line(&schema.referenced);
                let refuse = |why: SchemaError| {
                    error(
                        at,
                        why.to_string(),
                        Some("`arguments` is a JSON Schema, draft 2020-12, over the tool's arguments"),
                    )
                };
                Some(ArgumentSchema::new(schema.value).map_err(refuse)?)
            }
        };
        weight += arguments.as_ref().map_or(0, ArgumentSchema::weight);
        if weight > SCHEMA_WEIGHT_MAX {
            let message =
                "the patterns of the manifest together are heavier than those of one schema may be".to_owned();
            return Err(error(at, message, Some("make them shorter, with fewer repetitions")));
        }
        let mut delegate = BTreeSet::new();
        for other in entry.delegate {
            let at = line(&other.referenced);
            let other: CapabilityId = other.value.parse().map_err(|why: crate::ids::NameError| {
                error(at, why.to_string(), Some("`delegate` names capabilities of this manifest"))
            })?;
            delegated.push((at, other.clone()));
            delegate.insert(other);
        }
        let at = at.and_then(|line| usize::try_from(line).ok()).unwrap_or_default();
        let (consent, required) = (entry.consent, entry.required);
        capabilities.push(Capability { id, tool, arguments, consent, required, delegate, line: at });
    }
    if let Some((at, other)) = delegated.iter().find(|(_, id)| !capabilities.iter().any(|it| it.id == *id)) {
        let message = format!("`delegate` names `{other}`, which this manifest does not declare");
        return Err(error(*at, message, Some("declare it under `permissions.tools`, or leave it out")));
    }
    Ok(Manifest {
        id: file.id.value,
        name: clean_text(&file.name, TEXT_MAX),
        description: file.description.map(|text| clean_text(&text, TEXT_MAX)),
        flow: file.flow.map(|flow| flow.value),
        capabilities,
        webhook: file.webhook.map(|webhook| Webhook { base: webhook.endpoints.base }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WHOLE: &str = "\
schemaVersion: 1
id: post-document
name: Post document
description: Posts one document and reads its accounting record.
flow: flow.yaml
permissions:
  tools:
    - id: accounting-read
      tool: accounting/read
      arguments:
        type: object
        properties:
          ledger: { const: documents }
      consent: inherit
      required: true
webhook:
  endpoints: { base: sync }
  request: { type: json }
";

    fn read(text: &str) -> Result<Manifest, ConfigError> {
        parse(Path::new("manifest.yaml"), text)
    }

    #[test]
    fn a_whole_manifest_loads_as_it_stands() {
        let manifest = read(WHOLE).unwrap();
        assert_eq!((manifest.id.as_str(), manifest.flow.as_deref()), ("post-document", Some("flow.yaml")));
        assert_eq!(manifest.webhook, Some(Webhook { base: Endpoint::Sync }));
        let [capability] = manifest.capabilities.as_slice() else { panic!("{manifest:?}") };
        assert!(capability.required && capability.consent == ConsentMode::Inherit && capability.line == 8);
        let tool = "accounting/read".parse().unwrap();
        assert_eq!(manifest.matching(&tool, &json!({ "ledger": "documents" })).len(), 1);
        assert!(manifest.matching(&tool, &json!({ "ledger": "salaries" })).is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let with = |from: &str, to: &str| WHOLE.replace(from, to);
        for (text, line, words) in [
            (with("schemaVersion: 1", "schemaVersion: 2"), 1, "`schemaVersion` 2"),
            (with("schemaVersion: 1\n", ""), 15, "missing field `schemaVersion`"),
            (with("id: post-document", "id: Post Document"), 2, "`id` starts"),
            (with("flow: flow.yaml", "flow: ../flow.yaml"), 5, "`flow` is a path beneath"),
            (with("flow: flow.yaml", "flow: /etc/flow.yaml"), 5, "`flow` is a path beneath"),
            (with("flow: flow.yaml", "flows: flow.yaml"), 5, "flows"),
            (with("id: accounting-read", "id: accounting/read"), 8, "a capability id"),
            (with("tool: accounting/read", "tool: accounting"), 9, "a tool id has the form"),
            (with("tool: accounting/read", "tool: accounting/*"), 9, "a tool id has the form"),
            (with("consent: inherit", "consent: never-ask"), 14, "never-ask"),
            (with("consent: inherit", "only: {}"), 14, "only"),
            (
                with(
                    "      arguments:\n        type: object\n        properties:\n          ledger: { const: documents }\n",
                    "      arguments:\n",
                ),
                10,
                "no JSON Schema",
            ),
            (with("required: true", "required: yes"), 15, "bool"),
            (with("required: true", "delegate: [other]"), 15, "does not declare"),
            (with("type: object", "tipe: object"), 11, "`tipe` is no keyword"),
            (with("type: object", "type: objekt"), 11, "no JSON Schema"),
            (with("base: sync", "base: later"), 17, "later"),
            (with("type: json", "type: xml"), 18, "xml"),
            (with("name: Post document", "name: a\nname: b"), 4, "uplicate"),
            (
                with("      required: true\n", "      required: true\n    - id: accounting-read\n      tool: a/b\n"),
                16,
                "declared twice",
            ),
            (with("          ledger: {", "          ledger: { const: a }\n          ledger: {"), 14, "uplicate"),
            (with("name: Post document", "name: &a [x]\nother: *a"), 3, ""),
            (format!("{WHOLE}---\n{WHOLE}"), 20, "one YAML document"),
            ("[".repeat(1_000), 1, ""),
            (String::new(), 1, ""),
        ] {
            let error = read(&text).expect_err(&text);
            assert!(error.message.contains(words), "{text}\n→ {error}");
            assert!(error.line == Some(line) || words.is_empty(), "{text}\n→ {error}");
        }
    }

    #[test]
    fn aliases_cannot_blow_it_up() {
        let mut text = "schemaVersion: 1\nid: a\nname: b\npermissions:\n  tools:\n    - id: x\n      tool: a/b\n      arguments:\n".to_owned();
        text.push_str("        enum:\n          - &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            text.push_str(&format!("          - &a{level} [{}]\n", vec![below; 10].join(", ")));
        }
        let started = std::time::Instant::now();
        assert!(read(&text).is_err());
        assert!(started.elapsed() < std::time::Duration::from_secs(2));
    }

    #[test]
    fn several_capabilities_may_match_one_call() {
        let text = WHOLE.replace(
            "webhook:",
            "    - { id: any-read, tool: accounting/read, consent: always-ask, delegate: [accounting-read] }\nwebhook:",
        );
        let manifest = read(&text).unwrap();
        let tool = "accounting/read".parse().unwrap();
        assert_eq!(manifest.matching(&tool, &json!({ "ledger": "documents" })).len(), 2);
        assert_eq!(
            manifest.matching(&tool, &json!({})).len(),
            2,
            "an absent argument fits a schema that requires none"
        );
        assert!(manifest.capabilities[1].delegate.contains(&"accounting-read".parse().unwrap()));
    }
}
