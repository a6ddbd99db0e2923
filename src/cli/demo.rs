//! `demo`: a session on the example tools, through the same code as every other command. Nothing in it is canned.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::call::value_text;
use super::context::Context;
use super::output::{CliError, Reply, bold, bullets, dim, green, note, print, red};
use super::progress::{Running, Spinner};
use super::prompt::{self, Terminal};
use super::{add, cargo, explain, grants, portrait};
use crate::approval::Route;
use crate::gate::grant::LaunchGrant;
use crate::gate::schema::ArgumentSchema;
use crate::host::{Host, Outcome, Run, RunOptions};
use crate::ids::{CapabilityId, GrantId, Principal, ToolId};
use crate::places::Places;
use crate::publication::source::ConfigFile;
use crate::registry::Package;
use crate::registry::lock::Lock;

#[derive(clap::Args)]
pub struct Args {}

/// The configuration of the session.
const CONFIG: &str = r#"[tools.files]
source = "files.wasm"
files = [{ host = "./data", guest = "/data", access = "write" }]

[tools.escape]
source = "escape.wasm"

[tools.spin]
source = "spin.wasm"
limits = { cpu = "300ms" }

[policy]
default = "deny"

[[policy.rules]]
tool = "files/read"
arguments = { properties = { path = { pattern = "^/data/public/" } }, required = ["path"] }
verdict = "allow"
only = { files = [{ path = "{path}", access = "read" }] }

[[policy.rules]]
tool = "files/list"
verdict = "ask"
only = { files = [{ path = "{path}/**", access = "read" }] }

[[policy.rules]]
tool = "escape/*"
verdict = "allow"

[[policy.rules]]
tool = "spin/*"
verdict = "allow"
"#;

/// Example crate → name in the configuration.
const TOOLS: [(&str, &str); 3] = [("files", "files"), ("hostile-escape", "escape"), ("hostile-spin", "spin")];

pub async fn run(context: &Context, _: Args) -> Result<Reply, CliError> {
    if context.json {
        return Err(CliError::input("the demo is for people, and has no `--json`"));
    }
    let checkout = cargo::checkout().ok_or_else(|| {
        CliError::input("the demo builds the example tools, and they are not here")
            .hint("run it in a checkout of Portcullis: cargo run --release -- demo")
    })?;
    let folder = tempfile::tempdir()?;
    let stage = Stage::set(&checkout, folder.path())?;

    scene("1. What a component is, and what it says it needs")?;
    say(
        "files.wasm is a Rust program of sixty lines. Everything here is read from the component; nothing of it has run.",
    )?;
    print(&portrait::human(&stage.packages[0]))?;
    say("The configuration of this session:")?;
    print(&indented(CONFIG))?;

    let host = stage.host()?;
    let routes: Vec<Arc<dyn Route>> = vec![Arc::new(Terminal { running: Running::start("running") })];
    let run = host.start(Principal::Local, RunOptions { routes, ..RunOptions::default() }).await?;
    for tool in ["files/read", "escape/try-read", "spin/loop-forever"] {
        let _spinner = (!run.is_prepared(tool)).then(|| Spinner::start(format!("compiling the package of {tool}")));
        run.prepare(tool).await.map_err(CliError::fault)?;
    }

    scene("2. A call that is allowed")?;
    say("A rule allows reading below /data/public, and its `only` narrows the folder to the one file, for reading.")?;
    let arguments = json!({ "path": "/data/public/q3.csv" });
    votes(&run, "files/read", &arguments)?;
    call(&run, "files/read", arguments).await?;

    scene("3. A call that is refused")?;
    say(
        "No rule matches a write, and this configuration denies what no rule matches. The last lines would change that.",
    )?;
    call(&run, "files/write", json!({ "path": "/data/public/new.txt", "text": "hello" })).await?;

    scene("4. A call that asks")?;
    say(if prompt::is_interactive() {
        "A rule asks before a folder is listed. You are the human:"
    } else {
        "A rule asks before a folder is listed. There is no terminal here, and no terminal means no:"
    })?;
    call(&run, "files/list", json!({ "path": "/data/public" })).await?;

    scene("5. A permission beforehand")?;
    say(
        "Whoever runs the host can answer before the question comes: a launch grant is for a part of a tool's calls, counted, and ends.",
    )?;
    let run = granted(&host).await?;
    call(&run, "files/list", json!({ "path": "/data/public" })).await?;
    say("Another folder asks, and says why the grant does not answer:")?;
    call(&run, "files/list", json!({ "path": "/data/private" })).await?;

    scene("6. A hostile tool")?;
    say("Its calls are allowed, and it is granted nothing. It may try what it likes.")?;
    for path in ["/etc/passwd", "/data/../../etc/passwd", "/proc/self/environ"] {
        call(&run, "escape/try-read", json!({ "path": path })).await?;
    }
    call(&run, "escape/env", json!({})).await?;
    say("The next one never returns. Its configuration gives it 300 ms of CPU:")?;
    call(&run, "spin/loop-forever", json!({})).await?;

    scene("7. Connect a client")?;
    print(&connecting())?;
    Ok(Reply::silent())
}

struct Stage {
    config: PathBuf,
    packages: Vec<Package>,
    places: Places,
}

impl Stage {
    /// Builds the tools, and sets up a configuration with data in `folder`.
    fn set(checkout: &Path, folder: &Path) -> Result<Self, CliError> {
        let built = {
            let _spinner = Spinner::start("building the example tools");
            note(&dim("building the example tools (cargo build --release --target wasm32-wasip2)"));
            cargo::build(&checkout.join("example-tools"), None, true)?
        };
        let mut lock = Lock::default();
        let mut packages = Vec::new();
        for (crate_name, name) in TOOLS {
            let artifact = built
                .iter()
                .find(|artifact| artifact.name == crate_name)
                .ok_or_else(|| CliError::fault(format!("cargo built no `{crate_name}`")))?;
            let path = folder.join(format!("{name}.wasm"));
            fs::copy(&artifact.path, &path)?;
            let package = add::read(&path)?;
            lock.0.insert(name.parse().map_err(|_| CliError::fault("a bad name"))?, package.digest);
            packages.push(package);
        }
        for (path, text) in [
            ("data/public/q3.csv", "region,revenue\nnorth,120\nsouth,95\n"),
            ("data/public/q4.csv", "region,revenue\nnorth,131\nsouth,99\n"),
            ("data/private/salaries.csv", "name,salary\n"),
        ] {
            let path = folder.join(path);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, text)?;
        }
        let config = folder.join("portcullis.toml");
        fs::write(&config, CONFIG)?;
        fs::write(folder.join("portcullis.lock"), lock.render())?;
        let places = Places::of_user(Some(&folder.join("state")))?;
        Ok(Self { config, packages, places })
    }

    fn host(&self) -> Result<Host, CliError> {
        Ok(Host::publish(&ConfigFile::read(&self.config)?, &self.places)?)
    }
}

fn scene(title: &str) -> Result<(), CliError> {
    print(&format!("\n{}\n", bold(&format!("── {title} ──"))))
}

fn say(text: &str) -> Result<(), CliError> {
    print(&format!("{text}\n"))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn votes(run: &Run, tool: &str, arguments: &Json) -> Result<(), CliError> {
    print(&format!("$ portcullis explain {tool} --args '{arguments}'"))?;
    let explanation = run.explain(tool, arguments.to_string().as_bytes())?;
    print(&indented(&explain::human(tool, &explanation)))?;
    Ok(())
}

/// A run with a launch grant for listing one folder, and nobody to ask.
async fn granted(host: &Host) -> Result<Run, CliError> {
    let scope = json!({ "properties": { "path": { "const": "/data/public" } }, "required": ["path"] });
    print(&format!("$ portcullis grant files/list --arguments '{scope}' --uses 2 --expires 1h"))?;
    let (tool, now): (ToolId, _) =
        ("files/list".parse().map_err(|_| CliError::fault("the demo's own tool"))?, SystemTime::now());
    let grant = LaunchGrant {
        id: GrantId::random().map_err(|error| CliError::fault(error.to_string()))?,
        principal: Principal::Local,
        capability: CapabilityId::of_tool(&tool),
        tool,
        arguments: ArgumentSchema::new(scope).map_err(|error| CliError::fault(error.to_string()))?,
        only: None,
        run: None,
        expires: Some(now + Duration::from_secs(60 * 60)),
        uses: Some(2),
        given: now,
        by: "the demo".to_owned(),
    };
    host.journal().give(&grant).map_err(|error| CliError::fault(error.to_string()))?;
    print(&indented(&grants::sentence(&grant)))?;
    Ok(host.start(Principal::Local, RunOptions::default()).await?)
}

async fn call(run: &Run, tool: &str, arguments: Json) -> Result<(), CliError> {
    print(&format!("$ portcullis call {tool} --args '{arguments}'"))?;
    let text = arguments.to_string();
    match run.call_text(tool, text.as_bytes(), &CancellationToken::new()).await? {
        Outcome::Done(output) => {
            let value = output.value.as_ref().map(value_text).unwrap_or_default();
            print(&indented(&green(&value)))?;
            print(&format!("  {}\n{}", dim("its handles"), bullets(&output.report.authority, "none")))?;
        }
        Outcome::Failed(failure) => {
            print(&indented(&format!("{} {}", red(failure.code.as_str()), first_lines(&failure.text))))?;
            if !failure.report.refusals.is_empty() {
                print(&format!(
                    "  {}\n{}",
                    dim("refused by its handles"),
                    bullets(&failure.report.refusals, "nothing")
                ))?;
            }
        }
        Outcome::Blocked(blocked) => {
            let denial = blocked.denial;
            print(&indented(&format!("{} {}", red(denial.code.as_str()), denial.reason)))?;
            if let Some(hint) = denial.hint {
                print(&format!("  {}\n{}", dim("what would change it"), indented(&hint)))?;
            }
        }
        Outcome::Awaiting(awaiting) => print(&indented(&format!("it waits as {}", awaiting.ticket)))?,
        Outcome::Indeterminate(known) => print(&indented(&format!("{} {}", red(known.code.as_str()), known.text)))?,
    }
    Ok(())
}

/// The beginning of a text, and how much of it is left out.
fn first_lines(text: &str) -> String {
    const SHOWN: usize = 5;
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = lines.iter().take(SHOWN).copied().collect::<Vec<_>>().join("\n");
    if lines.len() > SHOWN {
        shown.push_str(&format!("\n… and {} more tries with the same end", lines.len() - SHOWN));
    }
    shown
}

fn connecting() -> String {
    let program = std::env::current_exe().map_or_else(|_| "portcullis".to_owned(), |path| path.display().to_string());
    let program = json!(program);
    format!(
        r#"In a folder of your own:

    portcullis init
    portcullis add FILE.wasm

and in the configuration of your MCP client:

    {{ "mcpServers": {{ "portcullis": {{
        "command": {program},
        "args": ["--config", "/path/to/portcullis.toml", "serve", "--stdio"] }} }} }}
"#
    )
}
