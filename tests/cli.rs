//! The command line: what each command says, what it changes, and its exit status.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::guest;
use common::user::User;

#[test]
fn an_error_of_usage_is_json_where_json_is_asked_for() {
    let user = User::new();
    let wrong = user.run(&["--json", "call"]);
    assert_eq!(wrong.exit, 2);
    let told = wrong.json();
    assert_eq!((&told["ok"], &told["code"]), (&serde_json::json!(false), &serde_json::json!(null)));
    assert!(told["error"]["message"].as_str().unwrap().contains("<TOOL>"), "{told}");
    user.run(&["call"]).failed(2, "<TOOL>");
    assert!(user.run(&["--json", "call", "--help"]).ok().stdout.contains("Usage"));
    user.run(&["call", "a/b", "--thread", ""]).failed(2, "1 to 256 bytes");
}

#[test]
fn from_nothing_to_a_call_and_back() {
    let user = User::with_hello();
    let added = user.run(&["add", "hello.wasm"]).ok();
    assert!(added.stderr.contains("greet(name: string)") && added.stderr.contains("it is pure"), "{}", added.stderr);
    let listed = user.run(&["list"]).ok();
    assert!(listed.stdout.contains("hello") && listed.stdout.contains("ready"), "{}", listed.stdout);
    user.run(&["call", "hello/greet", "--args", r#"{"name":"Ada"}"#]).failed(4, "it waits as the ticket t-");
    user.allow_all();
    let called = user.run(&["call", "hello/greet", "--args", r#"{"name":"Ada"}"#]).ok();
    assert!(called.stdout.contains("Ada"), "{}", called.stdout);
    let before = user.read("portcullis.toml");
    let removed = user.run(&["remove", "hello"]).ok();
    assert!(removed.stdout.contains("Removed"));
    assert!(before.contains("[tools.hello]") && !user.read("portcullis.toml").contains("\n[tools.hello]"));
    assert!(user.read("portcullis.toml").contains("# What tools may ever touch"), "comments stay");
    assert!(user.path("hello.wasm").exists());
}

#[test]
fn arguments_come_from_the_line_a_file_or_standard_input() {
    let user = User::with_hello();
    user.run(&["add", "hello.wasm"]).ok();
    user.allow_all();
    std::fs::write(user.path("args.json"), r#"{"name":"File"}"#).unwrap();
    for (args, stdin, name) in
        [(r#"{"name":"Line"}"#, "", "Line"), ("@args.json", "", "File"), ("-", r#"{"name":"Input"}"#, "Input")]
    {
        let called = user.run_with(&["call", "hello/greet", "--args", args], stdin, &[]).ok();
        assert!(called.stdout.contains(name), "{}", called.stdout);
    }
    user.run(&["call", "hello/greet", "--args", "@missing.json"]).failed(2, "cannot be read");
    user.run(&["call", "hello/greet", "--args", r#"{"name":1}"#]).failed(2, "`name` should be a string");
    user.run(&["call", "hello/greet", "--args", r#"{"name":"a","name":"b"}"#]).failed(2, "twice");
    user.run(&["call", "hello/greet", "--args", "{"]).failed(2, "ends too early");
    user.run(&["call", "hello/other"]).failed(3, "TOOL_NOT_VISIBLE");
}

#[test]
fn json_is_one_object_with_the_same_four_keys() {
    let user = User::with_hello();
    for (args, ok) in [
        (vec!["add", "hello.wasm"], true),
        (vec!["list"], true),
        (vec!["show", "hello"], true),
        (vec!["inspect", "hello.wasm"], true),
        (vec!["explain", "hello/greet", "--args", r#"{"name":"x"}"#], true),
        (vec!["call", "hello/greet", "--args", r#"{"name":"x"}"#], false),
        (vec!["call", "hello/greet", "--args", "{}"], false),
        (vec!["show", "nothing"], false),
        (vec!["inspect", "nothing.wasm"], false),
        (vec!["update", "hello"], true),
        (vec!["remove", "hello"], true),
    ] {
        let ran = user.run(&[&["--json"], args.as_slice()].concat());
        let json = ran.json();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "error", "ok", "result"], "{args:?}");
        assert_eq!(json["ok"], ok, "{args:?}: {json}");
        assert_eq!(json["error"].is_null(), ok, "{args:?}: {json}");
        assert_eq!(ran.exit == 0, ok, "{args:?}");
    }
    let blocked = User::with_hello();
    blocked.run(&["add", "hello.wasm"]).ok();
    let json = blocked.run(&["--json", "call", "hello/greet", "--args", "{}"]).json();
    assert_eq!(json["code"], "ARGUMENTS_INVALID");
}

#[test]
fn a_configuration_that_was_found_is_used_only_if_it_is_trusted() {
    let user = User::with_hello();
    user.run(&["add", "hello.wasm"]).ok();
    let text = user.read("portcullis.toml");
    std::fs::write(user.path("portcullis.toml"), format!("{text}\n# changed\n")).unwrap();
    for args in
        [vec!["list"], vec!["call", "hello/greet"], vec!["add", "hello.wasm", "--as", "x"], vec!["remove", "hello"]]
    {
        user.run(&args).failed(2, "is not trusted");
    }
    let path = user.path("portcullis.toml");
    user.run(&["--config", path.to_str().unwrap(), "list"]).ok();
    user.run_with(&["list"], "", &[("PORTCULLIS_CONFIG", path.to_str().unwrap())]).failed(2, "is not trusted");
    user.run(&["trust"]).failed(4, "was not trusted");
    let trusted = user.run(&["trust", "--yes"]).ok();
    assert!(trusted.stderr.contains("[tools.hello]"), "{}", trusted.stderr);
    user.run(&["list"]).ok();
    std::fs::create_dir(user.path("deeper")).unwrap();

    let lock = user.read("portcullis.lock");
    std::fs::write(user.path("portcullis.lock"), format!("{lock}\n")).unwrap();
    user.run(&["list"]).failed(2, "is not trusted");
}

#[test]
fn a_granted_folder_that_was_swapped_is_not_what_was_trusted() {
    let user = User::with_hello();
    user.run(&["add", "hello.wasm"]).ok();
    std::fs::create_dir(user.path("data")).unwrap();
    std::fs::create_dir(user.home.path().join("secret")).unwrap();
    let text = user.read("portcullis.toml").replace(
        "source = \"hello.wasm\"",
        "source = \"hello.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\" }]",
    );
    std::fs::write(user.path("portcullis.toml"), text).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["list"]).ok();
    std::fs::remove_dir(user.path("data")).unwrap();
    std::os::unix::fs::symlink("../secret", user.path("data")).unwrap();
    user.run(&["list"]).failed(2, "is not trusted");
}

#[test]
fn naming_a_configuration_does_not_trust_it() {
    let user = User::with_hello();
    let text = user.read("portcullis.toml");
    std::fs::write(user.path("portcullis.toml"), format!("{text}\n# by hand\n")).unwrap();
    user.run(&["--config", "portcullis.toml", "add", "hello.wasm"]).ok();
    user.run(&["list"]).failed(2, "is not trusted");
    user.run(&["--config", "portcullis.toml", "list"]).ok();
}

#[test]
fn edits_at_once_are_all_kept() {
    let user = User::with_hello();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let user = &user;
            scope.spawn(move || user.run(&["add", "hello.wasm", "--as", name]).ok());
        }
    });
    let listed = user.run(&["--json", "list"]).ok().json();
    let names: Vec<_> =
        listed["result"].as_array().unwrap().iter().map(|row| (row["name"].clone(), row["ready"].clone())).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.iter().all(|(_, ready)| *ready == true), "{names:?}");
}

#[test]
fn first_calls_at_once_share_one_new_state() {
    let user = User::with_hello();
    user.run(&["add", "hello.wasm"]).ok();
    user.allow_all();
    let state = user.path("new-state");
    let args = [
        "--config",
        "portcullis.toml",
        "--state",
        state.to_str().unwrap(),
        "call",
        "hello/greet",
        "--args",
        r#"{"name":"x"}"#,
    ];
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| user.run(&args).ok());
        }
    });
}

#[test]
fn a_rule_that_can_never_hold_does_not_load() {
    let user = User::with_hello();
    std::fs::copy(guest("text"), user.path("text.wasm")).unwrap();
    user.run(&["add", "text.wasm"]).ok();
    let text = user.read("portcullis.toml");
    let line = text.lines().count() + 1;
    for (rule, words) in [
        ("tool = \"text/nothing-like-it\"", "matches no tool"),
        (
            "tool = \"text/words\"\narguments = { properties = { txt = { pattern = \"^a\" } } }",
            "speaks of `txt`, which is no argument",
        ),
        ("tool = \"text/words\"\narguments = { required = [\"txt\"] }", "requires `txt`"),
        ("tool = \"text/words\"\nonly = { files = [\"{path}\"] }", "a template takes `path`"),
        (
            "tool = \"text/echo-u64\"\narguments = { properties = { value = { maximum = 10 } } }",
            "`maximum` says nothing about the argument `value`",
        ),
        (
            "tool = \"text/echo-u64\"\narguments = { properties = { value = { type = \"integer\" } } }",
            "is never of the type",
        ),
        (
            "tool = \"text/echo-u8\"\narguments = { properties = { value = { pattern = \"1\" } } }",
            "`pattern` says nothing",
        ),
    ] {
        std::fs::write(user.path("rules.toml"), format!("{text}[[policy.rules]]\n{rule}\nverdict = \"allow\"\n"))
            .unwrap();
        std::fs::copy(user.path("portcullis.lock"), user.path("rules.lock")).unwrap();
        let ran =
            user.run(&["--config", "rules.toml", "call", "text/words", "--args", r#"{"text":"a"}"#]).failed(2, words);
        assert!(ran.stderr.contains(&format!("rules.toml:{line}: ")), "{}", ran.stderr);
    }
    let good = "tool = \"text/echo-u8\"\narguments = { properties = { value = { type = \"number\", maximum = 3 } } }";
    std::fs::write(user.path("rules.toml"), format!("{text}[[policy.rules]]\n{good}\nverdict = \"allow\"\n")).unwrap();
    user.run(&["--config", "rules.toml", "call", "text/echo-u8", "--args", r#"{"value":2}"#]).ok();
    user.run(&["--config", "rules.toml", "call", "text/echo-u8", "--args", r#"{"value":4}"#])
        .failed(4, "it waits as the ticket t-");
}

#[test]
fn what_could_block_is_not_opened() {
    let user = User::with_hello();
    let fifo = |name: &str| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, user.path(name), mode).unwrap();
    };
    fifo("pipe.wasm");
    user.run(&["inspect", "pipe.wasm"]).failed(2, "not a regular file");
    fifo("portcullis.lock");
    user.run(&["list"]).failed(2, "not a regular file");
}

#[test]
fn what_is_printed_for_another_program_is_exact() {
    let user = User::with_hello();
    std::fs::copy(guest("text"), user.path("text.wasm")).unwrap();
    user.run(&["add", "text.wasm"]).ok();
    user.allow_all();
    let called = user.run(&["call", "text/echo-string", "--args", r#"{"value":"a\u001b[31mb\u202ec"}"#]).ok();
    assert_eq!(called.stdout, "a\u{1b}[31mb\u{202e}c\n");
}

#[test]
fn a_file_that_others_may_write_is_refused_either_way() {
    use std::os::unix::fs::PermissionsExt as _;
    let user = User::with_hello();
    let path = user.path("portcullis.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    user.run(&["list"]).failed(2, "may be written by others");
    user.run(&["--config", path.to_str().unwrap(), "list"]).failed(2, "may be written by others");
}

#[test]
fn a_configuration_error_names_file_and_line_and_changes_nothing() {
    let user = User::with_hello();
    std::fs::write(
        user.path("bad.toml"),
        "[policy]\ndefault = \"ask\"\n\n[tools.x]\nsource = \"hello.wasm\"\nfilez = []\n",
    )
    .unwrap();
    let ran = user.run(&["--config", "bad.toml", "list"]).failed(2, "bad.toml:6: unknown field `filez`");
    assert!(ran.stderr.contains("expected one of"), "{}", ran.stderr);
    std::fs::write(
        user.path("bad.toml"),
        "[tools.x]\nsource = \"hello.wasm\"\nfiles = [{ host = \"./gone\", guest = \"/d\" }]\n",
    )
    .unwrap();
    let ran = user.run(&["--config", "bad.toml", "call", "x/greet"]).failed(2, "bad.toml:3: the folder");
    assert!(ran.stderr.contains("hint: make it with `mkdir -p"), "{}", ran.stderr);
    user.run(&["--config", "none.toml", "list"]).failed(2, "portcullis init");
    let elsewhere = User::new();
    elsewhere.run(&["list"]).failed(2, "there is no portcullis.toml here");
    user.run(&["init"]).failed(2, "is there already");
}

#[test]
fn a_changed_package_is_shown_and_pinned_again() {
    let user = User::with_hello();
    user.run(&["add", "hello.wasm", "--as", "tool"]).ok();
    user.allow_all();
    std::fs::copy(guest("text"), user.path("hello.wasm")).unwrap();
    user.run(&["call", "tool/greet", "--args", r#"{"name":"x"}"#]).failed(3, "PACKAGE_CHANGED");
    assert!(user.run(&["list"]).ok().stdout.contains("changed since it was pinned"));
    let diff = user.run(&["show", "tool", "--diff"]).ok();
    assert!(diff.stdout.contains("breaking") && diff.stdout.contains("greet: is gone"), "{}", diff.stdout);
    let updated = user.run(&["update", "tool"]).ok();
    assert!(
        updated.stdout.contains("greet: is gone") && updated.stdout.contains("change: is new"),
        "{}",
        updated.stdout
    );
    user.run(&["call", "tool/is-blank", "--args", r#"{"text":" "}"#]).ok();
}

#[test]
fn inspect_compares_with_an_older_version() {
    let user = User::with_hello();
    std::fs::copy(guest("text"), user.path("text.wasm")).unwrap();
    let same = user.run(&["--json", "inspect", "hello.wasm", "--against", "hello.wasm"]).ok().json();
    assert_eq!(same["result"]["against"]["changes"], serde_json::json!([]));
    let other = user.run(&["--json", "inspect", "text.wasm", "--against", "hello.wasm"]).ok().json();
    let changes = other["result"]["against"]["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["breaking"] == true && change["place"] == "greet"), "{changes:?}");
}

#[test]
fn a_tools_own_error_and_a_limit_have_their_exit_status() {
    let user = User::with_hello();
    for name in ["text", "hostile-spin"] {
        std::fs::copy(guest(name), user.path(&format!("{name}.wasm"))).unwrap();
    }
    user.run(&["add", "text.wasm"]).ok();
    user.run(&["add", "hostile-spin.wasm", "--as", "spin"]).ok();
    user.allow_all();
    let text = user
        .read("portcullis.toml")
        .replace("source = \"hostile-spin.wasm\"", "source = \"hostile-spin.wasm\"\nlimits = { cpu = \"100ms\" }");
    std::fs::write(user.path("portcullis.toml"), text).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["call", "text/require-ascii", "--args", r#"{"text":"ü"}"#]).failed(1, "TOOL_ERROR");
    user.run(&["call", "spin/loop-forever"]).failed(5, "LIMIT_CPU: the limit `cpu` of 100ms was reached");
}

#[test]
fn verbose_shows_what_the_call_had_and_did() {
    let user = User::with_hello();
    std::fs::copy(guest("hostile-flood"), user.path("flood.wasm")).unwrap();
    user.run(&["add", "flood.wasm", "--as", "flood"]).ok();
    user.allow_all();
    let ran =
        user.run(&["call", "flood/panic-with", "--args", r#"{"text":"last words"}"#, "--verbose"]).failed(5, "TRAPPED");
    for words in ["This call had", "standard error", "last words", "Backtrace", "wasm backtrace"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn help_is_grouped_and_names_every_command_and_status() {
    let user = User::new();
    let help = user.run(&["--help"]).ok().stdout;
    for words in [
        "Start here:",
        "Packages:",
        "Calls:",
        "For tool authors:",
        "Options:",
        "Exit status:",
        "inspect",
        "--json",
        "--config",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(user.run(&["completions", shell]).ok().stdout.contains("portcullis"));
    }
    assert_eq!(user.run(&["nonsense"]).exit, 2);
    assert_eq!(user.run(&["call"]).exit, 2);
    assert_eq!(user.run(&["serve"]).exit, 2);
}

// Wrong input

#[test]
fn what_is_no_component_is_refused_in_one_sentence_and_changes_nothing() {
    let user = User::with_hello();
    let hello = std::fs::read(guest("hello")).unwrap();
    let big = user.path("big.wasm");
    std::fs::File::create(&big).unwrap().set_len(100 << 20).unwrap();
    std::fs::write(user.path("text.wasm"), "#!/bin/sh\n").unwrap();
    std::fs::write(user.path("empty.wasm"), "").unwrap();
    std::fs::write(user.path("module.wasm"), wat::parse_str("(module)").unwrap()).unwrap();
    std::fs::write(user.path("nothing.wasm"), wat::parse_str("(component)").unwrap()).unwrap();
    std::fs::write(user.path("truncated.wasm"), &hello[..hello.len() / 2]).unwrap();
    let mut flipped = hello.clone();
    let middle = flipped.len() / 3;
    for byte in &mut flipped[middle..middle + 64] {
        *byte ^= 0x55;
    }
    std::fs::write(user.path("flipped.wasm"), flipped).unwrap();
    let import = r#"(component
        (import "acme:odd/thing@1.0.0" (instance (export "f" (func))))
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (instance $tools (export "f" (func $f)))
        (export "tools" (instance $tools)))"#;
    std::fs::write(user.path("import.wasm"), wat::parse_str(import).unwrap()).unwrap();
    std::fs::create_dir(user.path("folder.wasm")).unwrap();
    // A component type within a component type, ten thousand times.
    let mut nested = vec![0x41, 0x00];
    for _ in 0..10_000 {
        nested = [&[0x41, 0x01, 0x01], nested.as_slice()].concat();
    }
    let mut section = wasm_encoder::Component::new();
    let body = [&[0x01], nested.as_slice()].concat();
    section.section(&wasm_encoder::RawSection { id: 7, data: &body });
    std::fs::write(user.path("nested.wasm"), section.finish()).unwrap();
    let before = (user.read("portcullis.toml"), user.path("portcullis.lock").exists());
    for (file, words) in [
        ("missing.wasm", "cannot be read"),
        ("folder.wasm", "not a regular file"),
        ("big.wasm", "more than the 67108864 allowed"),
        ("text.wasm", "it is not WebAssembly"),
        ("empty.wasm", "it is not WebAssembly"),
        ("module.wasm", "a core WebAssembly module and not a component"),
        ("nothing.wasm", "it exports no functions"),
        ("truncated.wasm", "cannot be a package"),
        ("flipped.wasm", "cannot be a package"),
        ("nested.wasm", "types within each other"),
        ("import.wasm", "it imports `acme:odd/thing@1.0.0`, which this host does not offer"),
        ("https://example.com/x.wasm", "from .wasm files"),
    ] {
        let ran = user.run(&["add", file, "--as", "x"]).failed(2, words);
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{}", ran.stderr);
    }
    assert_eq!(before, (user.read("portcullis.toml"), user.path("portcullis.lock").exists()));
    user.run(&["add", "hello.wasm", "--as", "no/name"]).failed(2, "a package name starts with a letter");
    user.run(&["add", "hello.wasm"]).ok();
    user.run(&["add", "hello.wasm"]).failed(2, "is there already");
}

/// A component with the world `wit`, without any toolchain.
fn component(wit: &str) -> Vec<u8> {
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("a.wit", wit).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let mut module = wit_component::dummy_module(&resolve, world, wit_parser::ManglingAndAbi::Standard32);
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8).unwrap();
    wit_component::ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

#[test]
fn functions_that_cannot_be_tools_are_named_with_the_place() {
    let user = User::with_hello();
    for (name, wit, words) in [
        (
            "resource",
            "package a:b; interface i { resource r; f: func(x: list<r>); g: func(); } world w { export i; }",
            "its function `i.f` cannot be a tool: its argument `x` mentions a resource",
        ),
        (
            "same",
            "package a:b; world w { export tools: interface { f: func(); } export f: func(); }",
            "it exports two functions with the name `f`",
        ),
    ] {
        let file = format!("{name}.wasm");
        std::fs::write(user.path(&file), component(wit)).unwrap();
        user.run(&["add", &file]).failed(2, words);
    }
    // What the hint says installs it without that function.
    let hint = user.run(&["add", "resource.wasm", "--as", "odd"]).stderr;
    let lines: String = hint
        .lines()
        .skip_while(|line| !line.contains("[tools.odd]"))
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    let text = user.read("portcullis.toml");
    assert!(!text.contains("\n[tools."));
    std::fs::write(user.path("portcullis.toml"), format!("{text}\n{lines}")).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["update", "odd"]).ok();
    let listed = user.run(&["--json", "list"]).ok().json();
    assert_eq!(listed["result"][0]["tools"], serde_json::json!(["odd/i.g"]));
}

#[test]
fn two_tools_with_one_bare_interface_name_are_refused() {
    let user = User::with_hello();
    let wit = "package a:b; interface i { f: func(); } world w { export i; export c:d/i; }\npackage c:d { interface i { f: func(); } }";
    std::fs::write(user.path("two.wasm"), component(wit)).unwrap();
    user.run(&["add", "two.wasm"]).failed(2, "two interfaces with the name `i`");
}
