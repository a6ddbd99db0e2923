//! Credentials are references: a guest sends requests that carry them, and never has one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use common::user::User;
use common::{Server, World, answer, done, failed, guest, value};
use portcullis::Outcome;
use serde_json::{Value as Json, json};

const SECRET: &str = "ghp_s3cretTokenOf/Tests+0123";

/// A world in which `net` may reach a server with a credential from a file.
fn world(server: &Server, more: &str) -> World {
    let url = server.url("/*");
    let world = World::new(&format!(
        "[tools.net]\nsource = \"hostile-net.wasm\"\n\
         http = [{{ url = \"{url}\", private = true, methods = [\"GET\", \"POST\"] }}]\n\
         credentials = [{{ name = \"forge\", url = \"{}\" }}]\n{more}\n\
         [credentials.forge]\nstore = \"file\"\npath = \"forge.token\"\n\
         [[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
        server.url("/api/*")
    ));
    keep(&world, SECRET);
    world
}

fn keep(world: &World, secret: &str) {
    let path = world.path("forge.token");
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn get(server: &Server, target: &str) -> Json {
    json!({ "method": "GET", "url": server.url(target), "headers": [] })
}

/// Everything that anybody is told of a call.
fn told(outcome: Outcome) -> String {
    format!("{outcome:?}")
}

#[tokio::test]
async fn the_host_puts_it_into_the_requests_that_it_is_for_and_no_others() {
    let server = Server::saying("hello");
    let world = world(&server, "");
    let output = done(world.call("net/exchange", get(&server, "/api/x")).await);
    let effects: Vec<String> = output.report.effects.iter().map(|it| format!("{} {}", it.kind, it.target)).collect();
    assert!(effects.contains(&format!("credential forge to 127.0.0.1:{}", server.port)), "{effects:?}");
    assert!(output.report.authority.iter().any(|line| line.starts_with("credentials: forge in the header")));
    done(world.call("net/exchange", get(&server, "/other")).await);
    let seen = server.seen.lock().unwrap().clone();
    let carried = format!("authorization: Bearer {SECRET}\r\n");
    assert!(seen[0].contains(&carried) && seen[0].contains("accept-encoding: identity\r\n"), "{}", seen[0]);
    assert!(!seen[1].contains(SECRET), "{}", seen[1]);
    // What is read is what the store has at the moment of the request.
    keep(&world, "another-secret-1");
    done(world.call("net/exchange", get(&server, "/api/y")).await);
    assert!(server.seen.lock().unwrap()[2].contains("Bearer another-secret-1"));
}

#[tokio::test]
async fn an_answer_that_echoes_it_in_any_form_and_any_pieces_is_given_without_it() {
    let encoder = base64::engine::general_purpose::STANDARD;
    let percent: String = SECRET.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let forms = [
        SECRET.to_owned(),
        format!("Bearer {SECRET}"),
        encoder.encode(SECRET),
        encoder.encode(format!("x{SECRET}y")),
        encoder.encode(format!("user:{SECRET}")),
        hex::encode(SECRET),
        percent,
        SECRET.replace('/', "%2F").replace('+', "%2B"),
    ];
    for chunk in [1_usize, 7, 1_000] {
        let sent = forms.clone();
        let server = Server::start(move |_| {
            let body = format!("[{}]", sent.join("|"));
            let mut answer = format!(
                "HTTP/1.1 200 OK\r\nx-echo: {}\r\nx-more: {}\r\ntransfer-encoding: chunked\r\ntrailer: x-late\r\n\r\n",
                sent[1], sent[2]
            );
            for part in body.as_bytes().chunks(chunk) {
                answer.push_str(&format!("{:x}\r\n{}\r\n", part.len(), std::str::from_utf8(part).unwrap()));
            }
            answer.push_str(&format!("0\r\nx-late: {SECRET}\r\n\r\n"));
            answer.into_bytes()
        });
        let unguarded = world(&server, "");
        // That there is something to find shows in a request that carries no credential.
        let open = value(unguarded.call("net/exchange", get(&server, "/open")).await);
        assert!(forms.iter().all(|form| open.as_str().unwrap().contains(form)), "{open}");
        let shown = value(unguarded.call("net/exchange", get(&server, "/api/echo")).await);
        let shown = shown.as_str().unwrap();
        for form in &forms {
            assert!(!shown.contains(form.as_str()), "{chunk}: {form}: {shown}");
        }
        assert!(!shown.contains(&SECRET[4..]) && shown.contains("[****"), "{shown}");
        assert_eq!(shown.len(), open.as_str().unwrap().len(), "lengths stay what they were");
    }
}

#[tokio::test]
async fn an_answer_in_which_it_could_not_be_found_is_refused() {
    for head in ["content-encoding: gzip", "content-encoding: br", "transfer-encoding: gzip, chunked"] {
        let server = Server::start(move |_| {
            format!("HTTP/1.1 200 OK\r\n{head}\r\nconnection: close\r\n\r\n0\r\n\r\n").into_bytes()
        });
        let world = world(&server, "");
        let text = failed(world.call("net/exchange", get(&server, "/api/x")).await).text;
        assert!(text.contains("Coding") || text.contains("coding") || text.contains("hyper"), "{head}: {text}");
    }
    let partial = Server::start(|_| {
        b"HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-3/9\r\ncontent-length: 4\r\n\r\nabcd".to_vec()
    });
    let other = world(&partial, "");
    failed(other.call("net/exchange", get(&partial, "/api/x")).await);
    // And what would bring such an answer about is not sent.
    let server = Server::saying("hello");
    let world = world(&server, "");
    for name in ["range", "if-range", "te", "authorization"] {
        let request = json!({ "method": "GET", "url": server.url("/api/x"), "headers": [[name, "bytes=0-3"]] });
        failed(world.call("net/exchange", request).await);
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn it_goes_to_no_other_host_by_redirect_host_header_or_name() {
    let thief = Server::saying("thank you");
    let to = thief.url("/api/x");
    let server = Server::start(move |_| {
        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
    });
    // The thief's server may be reached, and is not what the credential is for.
    let url = thief.url("/*");
    let world = World::new(&format!(
        "[tools.net]\nsource = \"hostile-net.wasm\"\n\
         http = [{{ url = \"{url}\", private = true }}, {{ url = \"{}\", private = true }}]\n\
         credentials = [{{ name = \"forge\", url = \"{}\" }}]\n\
         [credentials.forge]\nstore = \"file\"\npath = \"forge.token\"\n\
         [[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
        server.url("/*"),
        server.url("/*")
    ));
    keep(&world, SECRET);
    done(world.call("net/follow", json!({ "url": server.url("/api/x"), "times": 3 })).await);
    assert!(server.seen.lock().unwrap()[0].contains(SECRET), "it went where it belongs");
    let stolen = thief.seen.lock().unwrap().clone();
    assert!(stolen.len() == 1 && !stolen[0].contains(SECRET), "{stolen:?}");
    let host =
        json!({ "method": "GET", "url": server.url("/"), "headers": [["host", format!("127.0.0.1:{}", thief.port)]] });
    failed(world.call("net/exchange", host).await);
    assert_eq!(thief.count(), 1);
}

#[tokio::test]
async fn a_guest_learns_whether_it_can_be_used_and_nothing_else() {
    let server = Server::saying("hello");
    let world = world(&server, "");
    let usable = async |name: &str| value(world.call("net/usable", json!({ "name": name })).await);
    assert_eq!(usable("forge").await, json!(true));
    for name in ["another", "", "FORGE", "forge\u{0}", &"x".repeat(1_000)] {
        assert_eq!(usable(name).await, json!(false), "{name}");
    }
    let belongings = value(world.call("net/belongings", json!({})).await).to_string();
    assert!(!belongings.contains(SECRET) && !belongings.contains("forge"), "{belongings}");
    // A store that has none, or that others can read.
    std::fs::set_permissions(world.path("forge.token"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(usable("forge").await, json!(false));
    let refused = failed(world.call("net/exchange", get(&server, "/api/x")).await);
    assert!(refused.report.refusals.iter().any(|line| line.contains("chmod 600")), "{:?}", refused.report.refusals);
    assert_eq!(server.count(), 0, "and nothing is sent without it");
}

#[tokio::test]
async fn it_is_in_no_report_no_record_and_no_log() {
    let server = Server::start(|_| answer(500, SECRET));
    let world = world(&server, "");
    // As long as it lives, all that was written lies beside the journal too.
    let _host = world.host();
    for (tool, arguments) in
        [("net/exchange", get(&server, "/api/x")), ("net/try-get", json!({ "url": server.url("/api/x") }))]
    {
        let told = told(world.call(tool, arguments).await);
        assert!(!told.contains(SECRET), "{told}");
    }
    // With every log there is.
    let arguments = get(&server, "/api/x").to_string();
    let shared = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("host");
    let logged = std::process::Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["--log", "trace", "--config"])
        .arg(world.path("portcullis.toml"))
        .arg("--state")
        .arg(world.path("state"))
        .args(["call", "net/exchange", "--verbose", "--args", &arguments])
        .env("XDG_CACHE_HOME", shared.join("xdg-cache"))
        .env("XDG_DATA_HOME", shared.join("data"))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&logged.stderr).into_owned() + &String::from_utf8_lossy(&logged.stdout);
    assert!(log.contains("TRACE") && log.contains("credential forge"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
    assert!(server.seen.lock().unwrap().iter().all(|seen| seen.contains(SECRET)), "it was there to be told");
    let mut folders = vec![world.path("state")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    assert!(files > 1);
}

#[tokio::test]
async fn a_rule_that_names_no_credential_leaves_none() {
    let server = Server::saying("hello");
    let url = server.url("/*");
    let world = World::new(&format!(
        "[tools.net]\nsource = \"hostile-net.wasm\"\n\
         http = [{{ url = \"{url}\", private = true, methods = [\"GET\"] }}]\n\
         credentials = [{{ name = \"forge\", url = \"{url}\", header = \"x-key\" }}]\n\
         [credentials.forge]\nstore = \"file\"\npath = \"forge.token\"\n\
         [[policy.rules]]\ntool = \"net/exchange\"\nverdict = \"allow\"\nonly = {{ http = [\"{{url}}\"] }}\n\
         [[policy.rules]]\ntool = \"net/try-get\"\nverdict = \"allow\"\nonly = {{ http = [\"{{url}}\"], credentials = [\"forge\"] }}\n"
    ));
    keep(&world, SECRET);
    done(world.call("net/exchange", get(&server, "/x")).await);
    done(world.call("net/try-get", json!({ "url": server.url("/x") })).await);
    let seen = server.seen.lock().unwrap().clone();
    assert!(!seen[0].contains(SECRET) && seen[1].contains(&format!("x-key: {SECRET}")), "{seen:?}");
}

#[tokio::test]
async fn issues_are_listed_and_opened_with_the_hosts_credential() {
    let server = Server::start(|request| {
        if !request.contains(&format!("authorization: Bearer {SECRET}\r\n")) {
            return answer(401, "{}");
        }
        match request.starts_with("POST") {
            true => answer(201, r#"{"number":8,"title":"new","token":"secret"}"#),
            false => answer(200, r#"[{"number":7,"title":"It leaks","state":"open"}]"#),
        }
    });
    let world = World::new(&format!(
        "[tools.issues]\nsource = \"issues.wasm\"\nenvironment = {{ FORGE_URL = \"{}\" }}\n\
         http = [{{ url = \"{}\", private = true, methods = [\"GET\", \"POST\"] }}]\n\
         credentials = [{{ name = \"forge\", url = \"{}\" }}]\n\
         [credentials.forge]\nstore = \"file\"\npath = \"forge.token\"\n\
         [[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
        server.url("/")[..server.url("/").len() - 1].to_owned(),
        server.url("/repos/*"),
        server.url("/repos/*"),
    ));
    let list = json!({ "repository": "owner/name" });
    assert!(failed(world.call("issues/list", list.clone()).await).text.contains("`forge`"));
    keep(&world, SECRET);
    assert_eq!(value(world.call("issues/list", list).await), json!([{ "number": 7, "title": "It leaks" }]));
    let open = json!({ "repository": "owner/name", "title": "new", "text": "It does." });
    assert_eq!(value(world.call("issues/open", open).await), json!({ "number": 8, "title": "new" }));
}

#[test]
fn the_command_line_keeps_lists_and_removes_and_never_shows() {
    let user = User::new();
    let config = "[credentials.forge]\nstore = \"file\"\npath = \"secrets/forge.token\"\n\
                  [credentials.ci]\nstore = \"env\"\nvariable = \"CI_TOKEN\"\n\
                  [credentials.vault]\nstore = \"command\"\ncommand = [\"sh\", \"-c\", \"echo vault-secret-1\"]\n\
                  [credentials.system]\nstore = \"keyring\"\n";
    std::fs::write(user.path("portcullis.toml"), config).unwrap();
    user.run_with(&["secret", "set", "forge"], SECRET, &[]).failed(2, "is not trusted");
    user.run(&["trust", "--yes"]).ok();
    let set = user.run_with(&["secret", "set", "forge"], &format!("{SECRET}\n"), &[]).ok();
    assert!(!set.stdout.contains(SECRET) && !set.stderr.contains(SECRET));
    assert_eq!(user.read("secrets/forge.token"), SECRET);
    let listed = user.run_with(&["--json", "secret", "list"], "", &[("CI_TOKEN", "ci-secret-12")]).ok();
    for secret in [SECRET, "ci-secret-12", "vault-secret-1"] {
        assert!(!listed.stdout.contains(secret) && !listed.stderr.contains(secret));
    }
    let listed = listed.json()["result"].as_array().unwrap().clone();
    let usable = |name: &str| listed.iter().find(|it| it["name"] == name).unwrap()["usable"].as_bool().unwrap();
    assert!(usable("forge") && usable("ci") && usable("vault"));
    assert!(!usable("system"), "no session here has a keyring: {listed:?}");
    user.run_with(&["secret", "set", "ci"], "ci-secret-12", &[]).failed(2, "set it where it is kept");
    user.run_with(&["secret", "set", "system"], SECRET, &[]).failed(2, "keyring");
    user.run_with(&["secret", "set", "none"], SECRET, &[]).failed(2, "there is no [credentials.none]");
    user.run_with(&["secret", "set", "forge"], "short", &[]).failed(2, "8 to 16384 bytes");
    assert!(user.run(&["secret", "remove", "forge"]).ok().stdout.contains("Removed"));
    assert!(user.run(&["secret", "remove", "forge"]).ok().stdout.contains("There was no"));
}

#[test]
fn a_configuration_that_would_give_one_away_does_not_load() {
    let user = User::new();
    std::fs::copy(guest("hostile-net"), user.path("net.wasm")).unwrap();
    let config = |credentials: &str, table: &str| {
        std::fs::write(
            user.path("portcullis.toml"),
            format!("[tools.net]\nsource = \"net.wasm\"\ncredentials = [{credentials}]\n{table}"),
        )
        .unwrap();
        user.run(&["trust", "--yes"])
    };
    let store = "[credentials.a]\nstore = \"keyring\"\n[credentials.b]\nstore = \"keyring\"\n";
    let https = r#"{ name = "a", url = "https://a.test/*" }"#;
    config(https, store).ok();
    config(https, "").failed(2, "there is no [credentials.a]");
    config(r#"{ name = "a", url = "http://a.test/*" }"#, store).failed(2, "in plain");
    config(r#"{ name = "a" }"#, store).failed(2, "of a `url`");
    config(r#"{ name = "a", url = "https://a.test/*", header = "Host" }"#, store)
        .failed(2, "no place for a credential");
    config(r#"{ name = "a", url = "https://a.test/*", format = "Bearer" }"#, store).failed(2, "`{}` once");
    config(&format!(r#"{https}, {{ name = "b", url = "https://a.test/v1/*" }}"#), store).failed(2, "the same requests");
    config(&format!(r#"{https}, {{ name = "b", url = "https://a.test/v1/*", header = "x-key" }}"#), store).ok();
    for (table, words) in [
        ("store = \"env\"", "needs a `variable`"),
        ("store = \"file\"\nvariable = \"A\"", "does not belong"),
        ("store = \"command\"\ncommand = []", "needs a `command`"),
        ("store = \"keyring\"\npath = \"x\"", "does not belong"),
        ("store = \"plain\"", "unknown variant"),
        ("store = \"env\"\nvalue = \"x\"", "unknown field"),
    ] {
        config("", &format!("[credentials.a]\n{table}\n")).failed(2, words);
    }
}
