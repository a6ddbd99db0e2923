//! `init`

use serde_json::json;

use super::context::Context;
use super::output::{CliError, Reply};
use crate::private;
use crate::publication::source::{CONFIG_NAME, ConfigFile};

#[derive(clap::Args)]
pub struct Args {}

/// What `init` writes. It runs as it stands: no package, and a question before every call.
pub const TEMPLATE: &str = r#"# What tools may ever touch, and which calls may run. An unknown key is an error.
# `portcullis add FILE.wasm` adds a [tools.NAME]; what follows it is for you to write.

# [tools.files]
# source = "tools/files.wasm"
# expose = ["read", "list"]                 # absent: every function
# files  = [{ host = "./data", guest = "/data", access = "read",     # read | create | write
#             only = ["/data/**/*.csv"], except = ["**/.env"] }]
# http   = [{ url = "https://api.example.com/v1/*", methods = ["GET", "POST"] }]     # absent methods: GET, HEAD
# environment = { TZ = "UTC" }
# credentials = [{ name = "forge", url = "https://api.example.com/v1/*" }]           # what stands for it is put in by the host
# clock  = "real"                           # absent: frozen | coarse | real
# random = true
# state  = "run"                            # absent: none | run | thread | shared: what the tool keeps from call to call
# idempotent = ["read"]                     # may be run again after a crash, by your word
# limits = { wall = "5s", cpu = "2s", memory = "32MiB", output = "256KiB" }

[policy]
default = "ask"                             # ask | deny: what holds where no rule matches
# redact = ["/password"]                    # arguments that are not kept

# [[policy.rules]]
# tool = "files/read"                       # `*` within one side of the `/`; `*/*` is every tool
# arguments = { properties = { path = { pattern = "^/data/public/" } }, required = ["path"] }   # JSON Schema
# verdict = "allow"                         # allow | ask | deny; any matching deny wins
# only = { files = ["{path}"] }             # this call's handle: the one file that it names

# [approval]
# wait = "24h"                              # how long a call waits for your answer
# routes = { call = ["terminal", "ticket"], stdio = ["ticket"] }

# [limits]
# concurrent = 64                           # calls at once; `queue` more wait
# queue = 1024
# memory_total = "4GiB"                     # of all calls together
# run = { pending = 100, calls = 1000000, bytes_written = "1GiB", requests = 100000 }   # of all calls of one run

# [credentials.forge]
# store = "keyring"                         # or file (path = …), env (variable = …), command (command = […])

# [journal]
# durability = "effects"                    # strict: what has no effect waits for the disk, too
"#;

pub fn run(context: &Context, _: &Args) -> Result<Reply, CliError> {
    let path = match &context.config {
        Some(path) => path.clone(),
        None => std::env::current_dir()?.join(CONFIG_NAME),
    };
    if path.exists() {
        return Err(CliError::input(format!("`{}` is there already", path.display())));
    }
    private::replace_shared(&path, TEMPLATE.as_bytes())
        .map_err(|error| CliError::input(format!("`{}` cannot be written: {error}", path.display())))?;
    let file = ConfigFile::read(&path)?;
    context.trust(&file, &file.parse()?)?;
    let human = format!(
        "Wrote {} and trusted it. It grants nothing yet.\n\nNext: `portcullis add FILE.wasm`, or `portcullis new NAME` to write a tool.",
        file.path.display()
    );
    Ok(Reply::new(json!({ "config": file.path }), human))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::publication::config::Config;

    #[test]
    fn the_template_loads_and_its_examples_do_too() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let path = folder.path().join(CONFIG_NAME);
        Config::parse(&path, TEMPLATE).unwrap();
        let uncommented: String =
            TEMPLATE.lines().skip(3).map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line))).collect();
        let config = Config::parse(Path::new(&path), &uncommented).unwrap();
        assert_eq!((config.tools.len(), config.policy.rules.len()), (1, 1));
    }
}
