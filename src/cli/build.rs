//! `build`

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use notify::Watcher as _;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use wit_parser::{PackageMetadata, Resolve};

use super::cargo::{self, Artifact};
use super::output::{CliError, Reply, fail, note, print};
use super::{add, portrait};
use crate::authority::grammar::{Needs, PackageInfo};
use crate::descriptor::docs;
use crate::private;
use crate::publication::unusable;

#[derive(clap::Args)]
pub struct Args {
    /// Add the documentation of this WIT folder, and the needs of tool.toml, to a component of any language
    #[arg(long, value_name = "DIR", requires = "component")]
    wit: Option<PathBuf>,
    /// The component to add to
    #[arg(requires = "wit")]
    component: Option<PathBuf>,
    /// The file that declares needs and titles; otherwise tool.toml here, if it is there
    #[arg(long, value_name = "FILE", requires = "wit")]
    tool: Option<PathBuf>,
    /// Where to write the result; otherwise target/portcullis/NAME.wasm, or COMPONENT itself
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Build again whenever a file changes
    #[arg(long)]
    watch: bool,
}

pub async fn run(args: &Args) -> Result<Reply, CliError> {
    if args.watch {
        return watch(args);
    }
    once(args)
}

fn once(args: &Args) -> Result<Reply, CliError> {
    match (&args.wit, &args.component) {
        (Some(wit), Some(component)) => describe(args, wit, component),
        _ => compile(args),
    }
}

/// Builds the Rust project in this folder. The SDK has put documentation and needs into it already.
fn compile(args: &Args) -> Result<Reply, CliError> {
    let folder = std::env::current_dir()?;
    if !folder.join("Cargo.toml").is_file() {
        return Err(CliError::input("there is no Cargo.toml here")
            .hint("`portcullis new NAME` makes a project; for another language, use `--wit DIR COMPONENT`"));
    }
    let artifacts = cargo::build(&folder, None, false)?;
    if artifacts.is_empty() {
        return Err(CliError::input("this project makes no component")
            .hint("its Cargo.toml needs\n[lib]\ncrate-type = [\"cdylib\"]"));
    }
    if args.out.is_some() && artifacts.len() > 1 {
        return Err(CliError::input("`--out` names one file, and this project makes several components"));
    }
    let mut human = String::new();
    let mut results = Vec::new();
    for artifact in artifacts {
        let out = args.out.clone().unwrap_or_else(|| default_out(&artifact));
        let bytes = fs::read(&artifact.path)?;
        write(&out, &bytes)?;
        let (text, json) = finished(&out)?;
        human.push_str(&text);
        results.push(json);
    }
    let result = if results.len() == 1 { results.remove(0) } else { Json::Array(results) };
    Ok(Reply::new(result, human))
}

/// `target/portcullis/NAME.wasm` beside cargo's own `target/wasm32-wasip2/release/NAME.wasm`.
fn default_out(artifact: &Artifact) -> PathBuf {
    let target = artifact.path.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("portcullis").join(format!("{}.wasm", artifact.name))
}

fn write(out: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::input(format!("`{}` cannot be written: {error}", out.display()));
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    private::replace_shared(out, bytes).map_err(failed)
}

/// Reads what was written, as a host will.
fn finished(out: &Path) -> Result<(String, Json), CliError> {
    let package = add::read(out)?;
    if let Some(why) = unusable(&package, None) {
        return Err(CliError::input(format!("`{}` was built, and no host will take it: {why}", out.display())));
    }
    let mut human = portrait::human(&package);
    human.push_str(&format!("\nBuilt {}\nNext: portcullis add {}\n", out.display(), out.display()));
    Ok((human, portrait::json(&package)))
}

/// Adds sections to a component that exists.
fn describe(args: &Args, wit: &Path, component: &Path) -> Result<Reply, CliError> {
    let before = add::read(component)?;
    let bytes = fs::read(component)?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_path(wit)
        .map_err(|error| CliError::input(format!("the WIT in `{}` cannot be read: {error:#}", wit.display())))?;
    let documentation = PackageMetadata::extract(&resolve, package)
        .encode()
        .map_err(|error| CliError::fault(format!("documentation cannot be encoded: {error:#}")))?;
    let mut described = docs::without_root_sections(&bytes, &[docs::PACKAGE_DOCS]).into_owned();
    append(&mut described, docs::PACKAGE_DOCS, &documentation);

    let here = PathBuf::from("tool.toml");
    let tool = args.tool.clone().or_else(|| here.is_file().then_some(here));
    if let Some(tool) = &tool {
        let names: Vec<&str> = before.component.functions.iter().map(|function| function.name.as_str()).collect();
        let record = needs_record(tool, &names)?;
        described = docs::without_root_sections(&described, &[docs::NEEDS]).into_owned();
        append(&mut described, docs::NEEDS, format!("{record}\n").as_bytes());
    }
    let out = args.out.as_deref().unwrap_or(component);
    write(out, &described)?;
    let (mut human, json) = finished(out)?;
    let documented =
        json["functions"].as_array().is_some_and(|all| all.iter().any(|one| one["description"].is_string()));
    if !documented {
        human.push_str(&format!("None of its functions is documented by the WIT in {}.\n", wit.display()));
    }
    if tool.is_none() {
        human.push_str(
            "There is no tool.toml here, so it declares no needs, and nothing but a host's configuration bounds it.\n",
        );
    }
    Ok(Reply::new(json, human))
}

fn append(component: &mut Vec<u8>, name: &str, data: &[u8]) {
    use wasm_encoder::ComponentSection as _;
    let section = wasm_encoder::CustomSection { name: Cow::Borrowed(name), data: Cow::Borrowed(data) };
    section.append_to_component(component);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolFile {
    /// Only checked here: the record carries the table as it is written.
    #[serde(default, rename = "package")]
    _package: PackageInfo,
    #[serde(default)]
    titles: std::collections::BTreeMap<toml::Spanned<String>, String>,
    needs: Option<Needs>,
}

/// The `portcullis:needs` record that `tool.toml` stands for.
fn needs_record(path: &Path, functions: &[&str]) -> Result<Json, CliError> {
    let text = fs::read_to_string(path)
        .map_err(|error| CliError::input(format!("`{}` cannot be read: {error}", path.display())))?;
    let at = |offset: usize| {
        let line = 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
        Some(format!("{}:{line}", path.display()))
    };
    let malformed = |error: toml::de::Error| CliError {
        place: error.span().and_then(|span| at(span.start)),
        ..CliError::input(error.message().trim().replace('\n', ", "))
    };
    let file: ToolFile = toml::from_str(&text).map_err(malformed)?;
    if let Some(title) = file.titles.keys().find(|title| !functions.contains(&title.get_ref().as_str())) {
        let error =
            CliError::input(format!("a title is given to `{}`, which the component does not export", title.get_ref()))
                .hint(format!("it exports: {}", functions.join(", ")));
        return Err(CliError { place: at(title.span().start), ..error });
    }
    if let Some(needs) = &file.needs {
        needs
            .ceiling()
            .map_err(|what| CliError { place: Some(path.display().to_string()), ..CliError::input(what) })?;
    }
    let mut record: Json = toml::from_str(&text).map_err(malformed)?;
    record["version"] = json!(1);
    Ok(record)
}

/// Builds, waits for a change, and builds again, until it is interrupted.
fn watch(args: &Args) -> Result<Reply, CliError> {
    let folder = std::env::current_dir()?;
    let (sender, changes) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(sender)
        .map_err(|error| CliError::fault(format!("changes cannot be watched: {error}")))?;
    let mut places = vec![folder.clone()];
    places.extend(args.wit.clone());
    for place in &places {
        watcher
            .watch(place, notify::RecursiveMode::Recursive)
            .map_err(|error| CliError::fault(format!("`{}` cannot be watched: {error}", place.display())))?;
    }
    loop {
        match once(args) {
            Ok(reply) => print(reply.human.trim_end())?,
            Err(error) => {
                fail(false, &error);
            }
        }
        note("watching for changes; Ctrl-C ends");
        // A build writes files itself; what it wrote is no reason for the next one.
        while changes.recv_timeout(Duration::from_millis(200)).is_ok() {}
        loop {
            match changes.recv() {
                Ok(Ok(event)) if is_source(&event, &folder, args) => break,
                Ok(_) => {}
                Err(_) => return Ok(Reply::silent()),
            }
        }
        while changes.recv_timeout(Duration::from_millis(200)).is_ok() {}
    }
}

fn is_source(event: &notify::Event, folder: &Path, args: &Args) -> bool {
    if event.kind.is_access() {
        return false;
    }
    event.paths.iter().any(|path| {
        let inside = path.strip_prefix(folder).unwrap_or(path);
        let first = inside.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let generated = matches!(first.as_deref(), Some("target" | ".git" | "node_modules" | "Cargo.lock"));
        let written = args.component.as_ref().is_some_and(|component| path.ends_with(component)) && args.out.is_none();
        !generated && !written
    })
}
