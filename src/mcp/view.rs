//! What a client sees of a tool, and how outcomes look on the wire.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value as Json, json};

use crate::gate::Denial;
use crate::host::{Awaiting, Failure, Indeterminate, Outcome, Output};
use crate::publication::PublishedTool;

/// A tool as a client sees it. The hints are the host's, computed from the package's ceiling.
pub fn tool(published: &PublishedTool) -> Tool {
    let descriptor = &published.descriptor;
    let hints = published.hints();
    let mut annotations = ToolAnnotations::default();
    annotations.title.clone_from(&descriptor.title);
    annotations.read_only_hint = Some(hints.read_only);
    annotations.destructive_hint = Some(hints.destructive);
    annotations.open_world_hint = Some(hints.open_world);
    let mut tool = Tool::new(
        descriptor.wire_name.clone(),
        descriptor.description.clone().unwrap_or_default(),
        Arc::new(object(&descriptor.input_schema)),
    );
    tool.title.clone_from(&descriptor.title);
    if descriptor.description.is_none() {
        tool.description = None;
    }
    tool.output_schema = descriptor.output_schema.as_ref().map(|schema| Arc::new(object(&wrapped_schema(schema))));
    tool.annotations = Some(annotations);
    let mut meta = MetaObject::default();
    meta.insert("portcullis/id".to_owned(), json!(descriptor.id));
    tool.meta = Some(meta);
    tool
}

fn object(json: &Json) -> JsonObject {
    json.as_object().cloned().unwrap_or_default()
}

fn is_object_schema(schema: &Json) -> bool {
    schema.get("type").and_then(Json::as_str) == Some("object")
}

/// MCP wants an object; any other result is served as `{"result": …}`.
fn wrapped_schema(schema: &Json) -> Json {
    if is_object_schema(schema) {
        return schema.clone();
    }
    let mut inner = schema.clone();
    let defs = inner.as_object_mut().and_then(|map| map.remove("$defs"));
    let mut wrapped = json!({ "type": "object", "properties": { "result": inner }, "required": ["result"],
                              "additionalProperties": false });
    if let Some(defs) = defs {
        wrapped["$defs"] = defs;
    }
    wrapped
}

/// The result of a call, with its operation.
pub fn result(published: Option<&PublishedTool>, outcome: &Outcome) -> CallToolResult {
    let mut result = content(published, outcome);
    let mut meta = MetaObject::default();
    meta.insert("portcullis/operation".to_owned(), json!(outcome.operation().to_string()));
    result.meta = Some(meta);
    result
}

fn content(published: Option<&PublishedTool>, outcome: &Outcome) -> CallToolResult {
    match outcome {
        Outcome::Done(output) => done(published, output),
        Outcome::Failed(failure) => failed(failure),
        Outcome::Blocked(blocked) => denied(&blocked.denial),
        Outcome::Awaiting(awaiting) => waits(awaiting),
        Outcome::Indeterminate(known) => unknown(known),
    }
}

/// A call that waits for a human. How it is answered is for the operator and stays here.
fn waits(awaiting: &Awaiting) -> CallToolResult {
    let until = humantime::format_rfc3339_seconds(awaiting.until).to_string();
    let text = format!(
        "A human must allow this call, and has not been asked or has not answered yet: {}. It waits as the ticket {} until \
         {until}; the same call, made again, comes back with the result once there is one.",
        awaiting.reason, awaiting.ticket
    );
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let mut awaits = json!({ "ticket": awaiting.ticket, "until": until, "reason": awaiting.reason });
    if let Some(carries) = awaiting.carries {
        awaits["carries"] = json!(carries);
    }
    result.structured_content = Some(json!({ "awaiting": awaits }));
    result
}

/// A call of which nobody knows how it ended, with what is known.
fn unknown(known: &Indeterminate) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(format!("{}: {}", known.code, known.text))]);
    result.structured_content = Some(json!({
        "indeterminate": { "code": known.code, "reason": known.text, "effects": known.effects }
    }));
    result
}

fn done(published: Option<&PublishedTool>, output: &Output) -> CallToolResult {
    let Some(value) = &output.value else {
        return CallToolResult::success(vec![ContentBlock::text("done")]);
    };
    let schema = published.and_then(|tool| tool.descriptor.output_schema.as_ref());
    let structured = if schema.is_some_and(is_object_schema) { value.clone() } else { json!({ "result": value }) };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text(value))]);
    result.structured_content = Some(structured);
    result
}

fn failed(failure: &Failure) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(failure.text.clone())]);
    let mut error = json!({ "code": failure.code, "message": failure.text });
    if let Some(value) = &failure.value {
        error["value"] = value.clone();
    }
    result.structured_content = Some(json!({ "error": error }));
    result
}

/// A refusal that the model can read. What would change it is for the operator and stays here.
pub fn denied(denial: &Denial) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(format!("{}: {}", denial.code, denial.reason))]);
    let mut blocked = json!({ "code": denial.code, "reason": denial.reason });
    if let Some(carries) = denial.carries {
        blocked["carries"] = json!(carries);
    }
    result.structured_content = Some(json!({ "blocked": blocked }));
    result
}

/// A value as text: a string as it is, anything else as JSON.
pub fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
