//! What people are shown of a package, and the portraits that `update` and `show --diff` compare with.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::context::Context;
use super::output::{CliError, bold, bullets, dim, green, red, yellow};
use crate::authority::limits::{Limits, format_bytes};
use crate::descriptor::Function;
use crate::descriptor::compare::{Change, Portrait};
use crate::ids::PackageDigest;
use crate::private;
use crate::publication::source::ConfigFile;
use crate::registry::Package;
use crate::sandbox;

/// What `inspect`, `add` and `show` say of a package, as data.
pub fn json(package: &Package) -> Json {
    let functions: Vec<Json> = package
        .component
        .functions
        .iter()
        .map(|function| {
            json!({
                "name": function.name,
                "title": package.titles.get(&function.name),
                "description": function.description,
                "input_schema": function.input_schema(),
                "output_schema": function.output_schema(),
            })
        })
        .collect();
    let refused: Vec<Json> = package
        .component
        .refused
        .iter()
        .map(|refused| json!({ "name": refused.name, "reason": refused.reason }))
        .collect();
    let declared = Limits::from(package.needs.as_ref().map(|needs| needs.limits).unwrap_or_default());
    json!({
        "file": package.path,
        "sha256": package.digest,
        "size": package.size,
        "package": package.info,
        "description": package.component.description,
        "functions": functions,
        "refused": refused,
        "imports": package.component.imports,
        "not_offered": package.component.imports.iter().filter(|import| !sandbox::offers(import)).collect::<Vec<_>>(),
        "needs": package.component.needs.as_ref().and_then(|record| record.get("needs")),
        "limits": declared.or(&Limits::DEFAULT).to_json(),
        "notes": package.component.notes,
    })
}

/// The same, for people.
pub fn human(package: &Package) -> String {
    let info = &package.info;
    let mut text = String::new();
    let title = [info.title.as_deref().or(info.name.as_deref()), info.version.as_deref()];
    let title = title.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let path = package.path.display().to_string();
    text.push_str(&format!("{}\n", bold(if title.is_empty() { &path } else { &title })));
    text.push_str(&format!("{} {} ({})\n", dim("file    "), path, size(package.size)));
    text.push_str(&format!("{} {}\n", dim("sha256  "), package.digest));
    if let Some(description) = &package.component.description {
        text.push_str(&format!("{} {}\n", dim("says    "), crate::text::clean_line(description, 160)));
    }
    if !info.authors.is_empty() {
        text.push_str(&format!("{} {}\n", dim("authors "), info.authors.join(", ")));
    }
    if let Some(license) = &info.license {
        text.push_str(&format!("{} {license}\n", dim("licence ")));
    }
    text.push_str(&format!("\n{}\n", bold("Tools")));
    for function in &package.component.functions {
        text.push_str(&signature(function));
    }
    for refused in &package.component.refused {
        text.push_str(&format!("  {} {}: {}\n", red("✗"), refused.name, refused.reason));
    }
    text.push_str(&format!("\n{}\n{}", bold("What it says it needs"), needs(package)));
    let offered: Vec<String> = package
        .component
        .imports
        .iter()
        .map(|import| {
            if sandbox::offers(import) {
                import.clone()
            } else {
                format!("{import} {}", red("(not offered by this host)"))
            }
        })
        .collect();
    text.push_str(&format!("\n{}\n{}", bold("Imports"), bullets(&offered, "nothing")));
    let declared = Limits::from(package.needs.as_ref().map(|needs| needs.limits).unwrap_or_default());
    let limits = declared.or(&Limits::DEFAULT).named();
    let limits: Vec<String> = limits.into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    text.push_str(&format!("\n{}\n  {}\n", bold("Limits of one call, unless configured otherwise"), limits.join(", ")));
    for note in &package.component.notes {
        text.push_str(&format!("{}: {note}\n", yellow("note")));
    }
    text
}

/// The declared needs, one line each.
pub fn needs(package: &Package) -> String {
    match &package.needs {
        None => format!("  {}\n", yellow("nothing is declared, so only your configuration bounds it")),
        Some(needs) => {
            let mut lines = package.ceiling.lines();
            lines.extend(
                needs.unavailable().into_iter().map(|axis| format!("{axis}: which this version grants to nobody")),
            );
            bullets(&lines, "nothing: it is pure")
        }
    }
}

/// A tool as one would write it down: name, arguments, what it says of itself.
fn signature(function: &Function) -> String {
    let arguments: Vec<String> = function
        .plan
        .params()
        .iter()
        .map(|param| {
            let schema = function.input_schema().pointer(&format!("/properties/{}", param.name));
            let optional = if param.optional { "?" } else { "" };
            format!("{}{optional}: {}", param.name, schema.map_or_else(|| "…".to_owned(), type_word))
        })
        .collect();
    let output = function.output_schema().map(|schema| format!(" → {}", type_word(schema))).unwrap_or_default();
    let mut text = format!("  {}({}){output}\n", green(&function.name), arguments.join(", "));
    if let Some(description) = &function.description {
        text.push_str(&format!("      {}\n", crate::text::clean_line(description, 160)));
    }
    text
}

fn type_word(schema: &Json) -> String {
    if let Some(name) = schema.get("$ref").and_then(Json::as_str) {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    match schema.get("type") {
        Some(Json::String(name)) if name == "array" => {
            let inner = schema.get("items").filter(|items| items.is_object()).map(type_word);
            inner.map_or_else(|| "array".to_owned(), |inner| format!("array of {inner}"))
        }
        Some(Json::String(name)) => name.clone(),
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" or "),
        _ if schema.get("oneOf").is_some() => "variant".to_owned(),
        _ => schema
            .get("anyOf")
            .and_then(Json::as_array)
            .map(|parts| parts.iter().map(type_word).collect::<Vec<_>>().join(" or "))
            .unwrap_or_else(|| "text".to_owned()),
    }
}

fn size(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes.div_ceil(1 << 10)) } else { format_bytes(bytes >> 20 << 20) }
}

/// Differences, for people.
pub fn changes(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "No difference in tools, documentation, needs or imports.\n".to_owned();
    }
    let mut text = String::new();
    for change in changes {
        let mark = if change.breaking { red("breaking  ") } else { green("compatible") };
        text.push_str(&format!("  {mark} {}: {}\n", change.place, crate::text::clean_line(&change.what, 300)));
    }
    text
}

fn file(context: &Context, config: &ConfigFile, digest: &PackageDigest) -> Result<PathBuf, CliError> {
    let folder = context.places()?.of_config(&config.path)?.join("portraits");
    private::folder(&folder)?;
    Ok(folder.join(format!("{digest}.json")))
}

/// Keeps the portrait of a package that was pinned, so that an update can show what is different.
pub fn keep(context: &Context, config: &ConfigFile, package: &Package) -> Result<(), CliError> {
    let portrait = serde_json::to_vec(&Portrait::of(&package.component)).map_err(|e| CliError::fault(e.to_string()))?;
    Ok(private::replace(&file(context, config, &package.digest)?, &portrait)?)
}

/// The portrait of the package that is pinned by `digest`, if it was kept.
pub fn kept(context: &Context, config: &ConfigFile, digest: &PackageDigest) -> Result<Option<Portrait>, CliError> {
    match fs::read(file(context, config, digest)?) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
