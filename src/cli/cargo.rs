//! Running cargo to make components.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use super::output::CliError;

/// The target that Rust tools are built for.
pub const TARGET: &str = "wasm32-wasip2";

/// A component that cargo made.
pub struct Artifact {
    /// The crate's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

/// Builds the project in `folder` for [`TARGET`], and gives the components that it makes. Cargo's own messages go to
/// standard error where `quiet` is false, and into the error otherwise.
pub fn build(folder: &Path, target_folder: Option<&Path>, quiet: bool) -> Result<Vec<Artifact>, CliError> {
    check_target(folder)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).args([
        "build",
        "--release",
        "--target",
        TARGET,
        "--message-format=json-render-diagnostics",
    ]);
    if let Some(target_folder) = target_folder {
        cargo.arg("--target-dir").arg(target_folder);
    }
    if quiet {
        cargo.arg("--quiet");
    }
    // The lints of a surrounding build, such as that of a test run, are no business of the guest's.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let output =
        cargo.stdin(Stdio::null()).stderr(if quiet { Stdio::piped() } else { Stdio::inherit() }).output().map_err(
            |error| {
                CliError::input(format!("cargo cannot be started: {error}")).hint("install Rust: https://rustup.rs")
            },
        )?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        let error = CliError { exit: 2, ..CliError::input(format!("cargo could not build {}", folder.display())) };
        return Err(if said.is_empty() { error } else { error.hint(said) });
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok()).filter_map(artifact).collect())
}

fn artifact(message: Json) -> Option<Artifact> {
    if message.get("reason")?.as_str()? != "compiler-artifact" {
        return None;
    }
    let kinds = message.pointer("/target/kind")?.as_array()?;
    if !kinds.iter().any(|kind| kind == "cdylib") {
        return None;
    }
    let path =
        message.get("filenames")?.as_array()?.iter().filter_map(Json::as_str).find(|file| file.ends_with(".wasm"))?;
    let name = message.pointer("/target/name")?.as_str()?.replace('_', "-");
    Some(Artifact { name, path: PathBuf::from(path) })
}

/// One sentence now is better than a compiler's error later.
fn check_target(folder: &Path) -> Result<(), CliError> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let found = Command::new(rustc)
        .current_dir(folder)
        .args(["--print", "target-libdir", "--target", TARGET])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let is_there = found.is_ok_and(|output| {
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && Path::new(&folder).is_dir()
    });
    if is_there {
        Ok(())
    } else {
        Err(CliError::input(format!("the Rust target {TARGET}, which tools are built for, is not installed"))
            .hint(format!("rustup target add {TARGET}")))
    }
}

/// The folder of this project's sources, which has the example tools and the SDK: around the program or the working folder,
/// or where the program was built.
pub fn checkout() -> Option<PathBuf> {
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok();
    // Cargo tells a program that it runs where its package lies.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    // An installed program still finds the sources that it was built from, while they are there.
    let built_from = Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    [package, here, program, built_from]
        .into_iter()
        .flatten()
        .flat_map(|path| path.ancestors().map(Path::to_owned).collect::<Vec<_>>())
        .find(|folder| {
            folder.join("example-tools/Cargo.toml").is_file() && folder.join("guest-sdk/Cargo.toml").is_file()
        })
}
