//! `list`

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde_json::{Value as Json, json};

use super::context::Context;
use super::output::{CliError, Reply};
use crate::publication::PackageState;

pub fn run(context: &Context) -> Result<Reply, CliError> {
    let (file, config) = context.trusted_config()?;
    let snapshot = context.snapshot(&file, &config)?;
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["PACKAGE", "VERSION", "TOOLS", "SHA-256", "STATE"]);
    let mut rows = Vec::new();
    for (name, state) in &snapshot.packages {
        let tools: Vec<&str> =
            snapshot.tools().filter(|(id, _)| id.package() == name.as_str()).map(|(id, _)| id.as_str()).collect();
        let (version, digest, word) = match state {
            PackageState::Ready(package) => (package.info.version.clone(), Some(package.digest), "ready".to_owned()),
            PackageState::Changed => {
                (None, None, format!("changed since it was pinned; see `portcullis show {name} --diff`"))
            }
            PackageState::Unavailable(why) | PackageState::Ambiguous(why) => (None, None, why.clone()),
        };
        table.add_row([
            name.to_string(),
            version.clone().unwrap_or_else(|| "–".to_owned()),
            tools.len().to_string(),
            digest.map_or_else(|| "–".to_owned(), |digest| digest.short()),
            word.clone(),
        ]);
        rows.push(json!({
            "name": name, "version": version, "tools": tools, "sha256": digest,
            "ready": matches!(state, PackageState::Ready(_)), "state": word,
        }));
    }
    let human = if rows.is_empty() {
        "No package is installed. `portcullis add FILE.wasm` installs one.".to_owned()
    } else {
        table.trim_fmt()
    };
    Ok(Reply::new(Json::Array(rows), human))
}
