//! `add`

use std::path::{Path, PathBuf};

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply, note};
use super::portrait;
use super::progress::Spinner;
use crate::ids::PackageName;
use crate::journal::Sync;
use crate::journal::record::Change;
use crate::publication::source::ConfigFile;
use crate::publication::unusable;
use crate::registry::{self, Package};
use crate::sandbox::Sandbox;

#[derive(clap::Args)]
pub struct Args {
    /// The component file
    source: PathBuf,
    /// The name to install it under; otherwise the package's own, or the file's
    #[arg(long = "as", value_name = "NAME")]
    name: Option<PackageName>,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let mut edit = context.edit()?;
    if args.source.to_string_lossy().contains("://") {
        return Err(CliError::input("packages are added from .wasm files in this version"));
    }
    let package = read(&args.source)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(&package)?,
    };
    if edit.config.tools.contains_key(&name) {
        return Err(CliError::input(format!("a package named `{name}` is there already"))
            .hint(format!("`portcullis update {name}` pins it anew; `--as` gives another name")));
    }
    if !context.json {
        note(&portrait::human(&package));
    }
    if let Some(why) = unusable(&package, None) {
        let error = CliError::input(format!("`{}` cannot be added: {why}", args.source.display()));
        // Some of its functions can be tools all the same.
        let usable: Vec<String> = package.component.functions.iter().map(|f| format!("\"{}\"", f.name)).collect();
        return Err(if package.component.refused.is_empty() || usable.is_empty() {
            error
        } else {
            error.hint(format!(
                "to install it without that function, write this and run `portcullis trust` and `portcullis update {name}`\n\
                 [tools.{name}]\nsource = {:?}\nexpose = [{}]",
                source_text(&edit.file, &package.path),
                usable.join(", ")
            ))
        });
    }
    compile(context, &package).await?;

    let source = source_text(&edit.file, &package.path);
    let text = registry::edit::add(&edit.file.text, &name, &source).map_err(CliError::input)?;
    edit.lock.0.insert(name.clone(), package.digest);
    // What another package of this name kept is not this one's.
    context.journal_of(&edit.file)?.commit_now(Change::Forget(name.to_string()), Sync::Durable)?;
    edit.store(&text, "added", &name)?;
    portrait::keep(context, &edit.file, &package)?;

    let first = package.component.functions.first().map(|function| function.name.as_str()).unwrap_or_default();
    let mut human =
        format!("Added [tools.{name}] to {}, pinned to sha256 {}.\n", edit.file.path.display(), package.digest.short());
    let wanted = package.component.needs.as_ref().and_then(|record| record.get("needs"));
    let grants = wanted.map(registry::edit::grants).unwrap_or_default();
    if !grants.is_empty() {
        human.push_str(
            "It is granted nothing yet. To grant what it says it needs, write under it, as narrow as you can:\n",
        );
        human.extend(grants.iter().map(|line| format!("  {line}\n")));
    }
    human.push_str(&format!("Next: `portcullis explain {name}/{first}`"));
    Ok(Reply::new(json!({ "name": name, "package": portrait::json(&package) }), human))
}

/// Reads a component, with a spinner where it is large.
pub fn read(path: &Path) -> Result<Package, CliError> {
    let path = std::path::absolute(path)?;
    let _spinner = Spinner::start(format!("reading {}", path.display()));
    Ok(Package::read(&path)?)
}

/// Compiles a package now, so that what the engine refuses is refused here and the first call does not wait.
pub async fn compile(context: &Context, package: &Package) -> Result<(), CliError> {
    let places = context.places()?;
    let sandbox = Sandbox::new(1, u64::MAX, places.key()?, Some(&places.code())).map_err(CliError::fault)?;
    let _spinner = Spinner::start(format!("compiling {}", package.path.display()));
    let (path, digest) = (package.path.clone(), package.digest);
    let compiled = sandbox.program(digest, &package.component, move || Package::bytes(&path, digest)).await;
    compiled
        .map(|_| ())
        .map_err(|error| CliError::input(format!("`{}` cannot be a package: {error}", package.path.display())))
}

/// Relative to the configuration where the file lies beside or beneath it, so that the folder can move.
fn source_text(file: &ConfigFile, path: &Path) -> String {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let relative = file.path.parent().and_then(|folder| real.strip_prefix(folder).ok());
    relative.unwrap_or(&real).to_string_lossy().into_owned()
}

fn default_name(package: &Package) -> Result<PackageName, CliError> {
    let stem = package.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let candidates = [package.info.name.clone(), stem];
    candidates.into_iter().flatten().find_map(|name| name.parse().ok()).ok_or_else(|| {
        CliError::input("neither the package nor its file has a usable name").hint("give one with `--as NAME`")
    })
}
