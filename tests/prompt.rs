//! The prompt, on a terminal.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::guest;
use common::user::User;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const DOWN: &str = "\x1b[B";
const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";

/// The program on a terminal of its own; what it prints as a result goes to a pipe.
struct OnTerminal {
    child: Child,
    keys: File,
    seen: Arc<Mutex<String>>,
}

impl OnTerminal {
    fn start(user: &User, args: &[&str], typed_ahead: &str) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap().into_string().unwrap();
        let side = || File::options().read(true).write(true).open(&name).unwrap();
        let mut keys = File::from(main);
        keys.write_all(typed_ahead.as_bytes()).unwrap();
        let child = user
            .command(args)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(side()))
            .stderr(Stdio::from(side()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut reader, shared) = (keys.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                shared.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { child, keys, seen }
    }

    /// Waits until the terminal shows this.
    #[track_caller]
    fn shows(&self, text: &str) {
        let started = Instant::now();
        while !self.seen.lock().unwrap().contains(text) {
            assert!(started.elapsed() < Duration::from_secs(60), "{text}\n{}", self.seen.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &[&str]) {
        for key in keys {
            // One after the other, as fingers do: an escape and what follows at once is another key.
            std::thread::sleep(Duration::from_millis(100));
            self.keys.write_all(key.as_bytes()).unwrap();
        }
    }

    /// Exit status, results, and what the terminal showed.
    fn end(mut self) -> (i32, String, String) {
        let status = self.child.wait().unwrap();
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let seen = self.seen.lock().unwrap().clone();
        (status.code().unwrap(), out, seen)
    }
}

fn user() -> User {
    let user = User::new();
    std::fs::create_dir_all(user.path("data/public")).unwrap();
    std::fs::write(user.path("data/public/q3.csv"), "north,120").unwrap();
    std::fs::write(user.path("data/public/q4.csv"), "north,131").unwrap();
    user.run(&["init"]).ok();
    std::fs::copy(guest("files"), user.path("files.wasm")).unwrap();
    user.run(&["add", "files.wasm"]).ok();
    let text = user.read("portcullis.toml");
    let granted = text.replace(
        "source = \"files.wasm\"",
        "source = \"files.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\" }]",
    );
    std::fs::write(user.path("portcullis.toml"), granted).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user
}

const CALL: [&str; 4] = ["call", "files/read", "--args", r#"{"path":"/data/public/q3.csv"}"#];
const OTHER: [&str; 4] = ["call", "files/read", "--args", r#"{"path":"/data/public/q4.csv"}"#];

#[test]
fn the_question_shows_the_call_its_handles_and_hearsay_and_no_is_the_default() {
    let user = user();
    for keys in [&[ENTER][..], &[ESCAPE], &["q"], &[DOWN, DOWN, ENTER]] {
        let mut asked = OnTerminal::start(&user, &CALL, "");
        asked.shows("Run this call");
        asked.press(keys);
        if keys.len() > 1 {
            // A yes without a scope that was chosen is a no.
            asked.shows("With which arguments");
            asked.press(&[ESCAPE]);
        }
        let (exit, out, seen) = asked.end();
        assert_eq!((exit, out.as_str()), (3, ""), "{keys:?}\n{seen}");
        for words in [
            "files/read asks to run",
            r#"path: "/data/public/q3.csv""#,
            "read /data ←",
            "it can change nothing outside of its sandbox",
            "the default is to ask",
            "hearsay, unchecked",
            "Read a text file.",
            "CONSENT_REFUSED",
        ] {
            assert!(seen.contains(words), "{words}\n{seen}");
        }
    }
}

#[test]
fn yes_once_is_for_this_call() {
    let user = user();
    let mut asked = OnTerminal::start(&user, &CALL, "");
    asked.shows("Run this call");
    asked.press(&[DOWN, ENTER]);
    let (exit, out, seen) = asked.end();
    assert_eq!((exit, out.as_str()), (0, "north,120\n"), "{seen}");
    user.run(&CALL).failed(4, "it waits as the ticket t-");
}

#[test]
fn what_was_typed_before_the_question_answers_nothing() {
    let user = user();
    let mut asked = OnTerminal::start(&user, &CALL, &[DOWN, ENTER].concat().repeat(5));
    asked.shows("Run this call");
    std::thread::sleep(Duration::from_millis(500));
    asked.press(&[ENTER]);
    let (exit, out, seen) = asked.end();
    assert_eq!((exit, out.as_str()), (3, ""), "{seen}");
}

#[test]
fn a_launch_grant_is_given_with_the_scope_that_was_chosen() {
    let user = user();
    let mut asked = OnTerminal::start(&user, &CALL, "");
    asked.shows("Run this call");
    asked.press(&[DOWN, DOWN, DOWN, ENTER]);
    asked.shows("With which arguments");
    asked.press(&[DOWN, ENTER]);
    asked.shows("For how long");
    asked.press(&[DOWN, ENTER]);
    let (exit, out, seen) = asked.end();
    assert_eq!((exit, out.as_str()), (0, "north,120\n"), "{seen}");
    assert!(seen.contains("any path beneath `/data/public` in `path`"), "{seen}");
    assert!(seen.contains("every call of this tool"), "{seen}");
    user.run(&OTHER).ok();
    let grants = user.run(&["--json", "grants"]).ok().json();
    assert_eq!(grants["result"][0]["tool"], "files/read");
    assert!(grants["result"][0]["by"].as_str().unwrap().starts_with("terminal: "));
    let id = grants["result"][0]["id"].as_str().unwrap();
    user.run(&["revoke", id]).ok();
    user.run(&OTHER).failed(4, "it waits as the ticket t-");
}

#[test]
fn an_answer_from_elsewhere_takes_the_question_back_and_leaves_the_terminal_as_it_was() {
    for (answer, status, result) in [("approve", 0, "north,120\n"), ("deny", 3, "")] {
        let user = user();
        let asked = OnTerminal::start(&user, &CALL, "");
        let before = rustix::termios::tcgetattr(&asked.keys).unwrap().local_modes;
        asked.shows("Run this call");
        let pending = user.run(&["--json", "pending"]).ok().json();
        let ticket = pending["result"][0]["ticket"].as_str().unwrap().to_owned();
        asked.shows(&ticket);
        user.run(&[answer, &ticket]).ok();
        let terminal = asked.keys.try_clone().unwrap();
        let (exit, out, seen) = asked.end();
        assert_eq!((exit, out.as_str()), (status, result), "{seen}");
        assert!(seen.contains("answered elsewhere"), "{seen}");
        assert!(seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l"), "the cursor is there again: {seen}");
        assert_eq!(rustix::termios::tcgetattr(&terminal).unwrap().local_modes, before);
    }
}
