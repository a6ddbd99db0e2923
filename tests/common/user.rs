//! A user of the command line.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use super::guest;

/// A user with an empty home and a working folder.
pub struct User {
    pub home: tempfile::TempDir,
}

pub struct Ran {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn json(&self) -> Json {
        assert_eq!(self.stdout.lines().count(), 1, "one object per result: {}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.exit, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    /// Failed with this status, and one sentence that holds these words.
    #[track_caller]
    pub fn failed(self, exit: i32, words: &str) -> Self {
        assert_eq!(self.exit, exit, "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(words), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        assert!(!self.stderr.contains("panicked at src/"), "{}", self.stderr);
        self
    }
}

impl User {
    pub fn new() -> Self {
        let user = Self { home: tempfile::tempdir().unwrap() };
        std::fs::create_dir(user.path("")).unwrap();
        user
    }

    /// With a configuration and the tool `hello` in the folder.
    pub fn with_hello() -> Self {
        let user = Self::new();
        user.run(&["init"]).ok();
        std::fs::copy(guest("hello"), user.path("hello.wasm")).unwrap();
        user
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "", &[])
    }

    pub fn run_with(&self, args: &[&str], stdin: &str, environment: &[(&str, &str)]) -> Ran {
        use std::io::Write as _;
        let mut child = self
            .command(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            exit: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The program with these arguments, in the working folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli-cache");
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command
            .args(args)
            .current_dir(self.path(""))
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HOME", self.home.path())
            .env("XDG_STATE_HOME", self.home.path().join("state"))
            .env("XDG_DATA_HOME", cache.join("data"))
            .env("XDG_CACHE_HOME", cache.join("cache"));
        command
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn allow_all(&self) {
        let text = self.read("portcullis.toml");
        std::fs::write(
            self.path("portcullis.toml"),
            format!("{text}\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n"),
        )
        .unwrap();
        self.run(&["trust", "--yes"]).ok();
    }
}
