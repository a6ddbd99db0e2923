//! `new`

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::cargo::checkout;
use super::output::{CliError, Reply};
use crate::ids::PackageName;

#[derive(clap::Args)]
pub struct Args {
    /// The tool's name, and the folder's
    name: PackageName,
}

const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../guest-sdk/template/Cargo.toml.tmpl")),
    ("src/lib.rs", include_str!("../../guest-sdk/template/src/lib.rs.tmpl")),
    ("tool.toml", include_str!("../../guest-sdk/template/tool.toml.tmpl")),
    (".gitignore", include_str!("../../guest-sdk/template/.gitignore.tmpl")),
];

/// Names that a Rust module cannot have.
const KEYWORDS: [&str; 16] = [
    "as", "async", "await", "const", "crate", "enum", "extern", "fn", "impl", "let", "loop", "match", "mod", "move",
    "self", "type",
];

pub fn run(args: &Args) -> Result<Reply, CliError> {
    let crate_name = args.name.as_str().to_ascii_lowercase().replace('_', "-");
    let mut module = crate_name.replace('-', "_");
    if KEYWORDS.contains(&module.as_str()) || module == "test" || module == "tests" {
        module.push_str("_tool");
    }
    let folder = PathBuf::from(args.name.as_str());
    if folder.exists() {
        return Err(CliError::input(format!("`{}` is there already", folder.display())));
    }
    // Beside these sources the SDK is taken from them, so that both always fit.
    let (sdk, note) = match checkout() {
        Some(checkout) => {
            let path = checkout.join("guest-sdk").display().to_string();
            (format!("{{ path = {path:?} }}"), format!("It uses the SDK in {path}."))
        }
        None => ("\"0.1\"".to_owned(), "It uses the published SDK.".to_owned()),
    };
    for (name, text) in FILES {
        let path = folder.join(name);
        let text = text.replace("{{name}}", &crate_name).replace("{{module}}", &module).replace("{{sdk}}", &sdk);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.map_err(|error| CliError::input(format!("`{}` cannot be written: {error}", path.display())))?;
    }
    let human = format!(
        "Made {}/ with one tool in src/lib.rs. {note}\n\nNext: cd {} && cargo test && portcullis build",
        folder.display(),
        folder.display()
    );
    Ok(Reply::new(json!({ "folder": folder, "files": FILES.map(|(name, _)| name) }), human))
}
