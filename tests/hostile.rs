//! The first rows of what a hostile tool tries: a real hostile guest against the built host. Each test shows what the
//! attacker got, and that nothing outside changed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::time::{Duration, Instant};

use common::{Server, World, answer, done, failed, value};
use portcullis::Outcome;
use portcullis::gate::codes::Code;
use serde_json::{Value as Json, json};

const ALL: &str = "\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n";

/// A world with the escape artist under a grant, and secrets beside it.
fn escape(grant: &str) -> World {
    let world = World::new(&format!("[tools.escape]\nsource = \"hostile-escape.wasm\"\n{grant}\n{ALL}"));
    world.file("secret.txt", "SECRET");
    world
}

const READ: &str = r#"files = [{ host = "./data", guest = "/data" }]"#;
const WRITE: &str = r#"files = [{ host = "./data", guest = "/data", access = "write" }]"#;

/// The error text of a call that must not get what it wants.
async fn refused(world: &World, tool: &str, arguments: Json) -> String {
    let outcome = world.call(tool, arguments.clone()).await;
    let text = match outcome {
        Outcome::Failed(failure) => failure.text,
        other => panic!("{tool} {arguments} got through: {other:?}"),
    };
    assert!(!text.contains("SECRET"), "{text}");
    text
}

// Files

#[tokio::test]
async fn paths_that_lead_outside_are_refused_by_every_trick() {
    let world = escape(READ);
    let outside = world.path("secret.txt");
    for path in ["../secret.txt", "sub/../../secret.txt", "/secret.txt", outside.to_str().unwrap(), "/etc/passwd"] {
        refused(&world, "escape/try-read", json!({ "path": path })).await;
        refused(&world, "escape/try-list", json!({ "path": "../" })).await;
    }
    let text = value(world.call("escape/try-read", json!({ "path": "public/q3.csv" })).await);
    assert!(text.as_str().unwrap().contains("north"), "the guest can read what is granted: {text}");
}

#[tokio::test]
async fn symlinks_out_of_the_grant_are_refused_for_every_operation() {
    for (grant, patterned) in [
        (WRITE, false),
        (r#"files = [{ host = "./data", guest = "/data", access = "write", only = ["/data/**"] }]"#, true),
    ] {
        let world = escape(grant);
        for (link, target) in [
            ("up", ".."),
            ("root", "/"),
            ("file", "../secret.txt"),
            ("abs", world.path("secret.txt").to_str().unwrap()),
        ] {
            symlink(target, world.path(&format!("data/{link}"))).unwrap();
        }
        for path in ["up/secret.txt", "root/etc/passwd", "file", "abs", "up/", "file/", "abs/", "up/./secret.txt"] {
            let path = format!("/data/{path}");
            for tool in ["read", "list", "make-folder", "create-new", "set-times"] {
                if tool == "make-folder" && path.ends_with("up/") || tool == "set-times" && !path.ends_with('/') {
                    continue;
                }
                refused(&world, &format!("escape/{tool}"), json!({ "path": path })).await;
            }
            refused(&world, "escape/write", json!({ "path": path, "text": "x" })).await;
        }
        refused(&world, "escape/rename", json!({ "from": "/data/public/q3.csv", "to": "/data/up/stolen" })).await;
        refused(&world, "escape/rename", json!({ "from": "/data/up/secret.txt", "to": "/data/mine" })).await;
        refused(&world, "escape/remove-file", json!({ "path": "/data/up/secret.txt" })).await;
        assert_eq!(world.read("secret.txt"), "SECRET");
        assert!(!world.path("stolen").exists() && !world.path("data/mine").exists());

        // A link inside of the grant is followed only where no name decides anything.
        symlink("public/q3.csv", world.path("data/inside")).unwrap();
        let inside = world.call("escape/read", json!({ "path": "/data/inside" })).await;
        assert_eq!(matches!(inside, Outcome::Done(_)), !patterned, "{inside:?}");
    }
}

#[tokio::test]
async fn links_of_proc_are_refused() {
    let world = escape(WRITE);
    symlink("/proc/self/root", world.path("data/proc")).unwrap();
    symlink("/proc/self/fd", world.path("data/fds")).unwrap();
    for path in
        ["/data/proc/etc/passwd", "/data/fds/0", "/proc/self/root/etc/passwd", "/proc/self/environ", "/dev/fd/3"]
    {
        refused(&world, "escape/try-read", json!({ "path": path })).await;
    }
}

#[tokio::test]
async fn a_file_with_a_second_hard_link_is_not_opened() {
    let world = escape(WRITE);
    std::fs::hard_link(world.path("secret.txt"), world.path("data/hard")).unwrap();
    refused(&world, "escape/read", json!({ "path": "/data/hard" })).await;
    refused(&world, "escape/write", json!({ "path": "/data/hard", "text": "x" })).await;
    refused(&world, "escape/truncate", json!({ "path": "/data/hard" })).await;
    assert_eq!(world.read("secret.txt"), "SECRET");
}

#[tokio::test]
async fn what_is_read_only_cannot_be_moved_or_linked_into_what_is_not() {
    std::fs::create_dir_all(std::env::temp_dir()).unwrap();
    let world = World::new(&format!("[tools.x]\nsource = \"hello.wasm\"\n{ALL}"));
    world.file("out/own.txt", "own");
    world.configure(&format!(
        "[tools.escape]\nsource = \"hostile-escape.wasm\"\nfiles = [{{ host = \"./data\", guest = \"/data\" }}, {{ host = \"./out\", guest = \"/out\", access = \"write\" }}]\n{ALL}"
    ));
    refused(&world, "escape/hard-link", json!({ "original": "/data/public/q3.csv", "link": "/out/q3" })).await;
    refused(&world, "escape/rename", json!({ "from": "/data/public/q3.csv", "to": "/out/q3" })).await;
    refused(&world, "escape/symlink", json!({ "original": "/data/public/q3.csv", "link": "/out/q3" })).await;
    assert!(world.path("data/public/q3.csv").exists() && !world.path("out/q3").exists());
    done(world.call("escape/rename", json!({ "from": "/out/own.txt", "to": "/out/renamed.txt" })).await);
}

#[tokio::test]
async fn a_read_only_grant_changes_nothing() {
    let world = escape(READ);
    let before = std::fs::metadata(world.path("data/public/q3.csv")).unwrap();
    let file = "/data/public/q3.csv";
    for (tool, arguments) in [
        ("truncate", json!({ "path": file })),
        ("create-new", json!({ "path": "/data/new" })),
        ("set-length", json!({ "path": file, "length": "3" })),
        ("set-times", json!({ "path": file })),
        ("remove-file", json!({ "path": file })),
        ("remove-folder", json!({ "path": "/data/public" })),
        ("make-folder", json!({ "path": "/data/new" })),
        ("append", json!({ "path": file, "text": "x" })),
        ("write", json!({ "path": file, "text": "x" })),
        ("try-write", json!({ "path": file })),
        ("rename", json!({ "from": file, "to": "/data/new" })),
        ("hard-link", json!({ "original": file, "link": "/data/new" })),
        ("symlink", json!({ "original": file, "link": "/data/new" })),
    ] {
        refused(&world, &format!("escape/{tool}"), arguments).await;
    }
    let after = std::fs::metadata(world.path("data/public/q3.csv")).unwrap();
    assert_eq!(
        (before.mtime(), before.mtime_nsec(), before.len(), before.ino()),
        (after.mtime(), after.mtime_nsec(), after.len(), after.ino())
    );
    assert!(!world.path("data/new").exists());
}

#[tokio::test]
async fn special_files_are_refused_before_they_can_block() {
    let world = escape(WRITE);
    let fifo = world.path("data/fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("data/socket")).unwrap();
    assert!(std::fs::metadata(&fifo).unwrap().file_type().is_fifo());
    let run = world.run().await;
    let started = Instant::now();
    for _ in 0..600 {
        failed(run.call("escape/read", json!({ "path": "/data/fifo" })).await.unwrap());
    }
    for tool in ["write", "append"] {
        refused(&world, &format!("escape/{tool}"), json!({ "path": "/data/fifo", "text": "x" })).await;
    }
    refused(&world, "escape/read", json!({ "path": "/data/socket" })).await;
    refused(&world, "escape/stat", json!({ "path": "/data/fifo" })).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    done(run.call("escape/read", json!({ "path": "/data/public/q3.csv" })).await.unwrap());
    let listed = value(run.call("escape/list", json!({ "path": "/data" })).await.unwrap()).to_string();
    assert!(listed.contains("public") && !listed.contains("fifo") && !listed.contains("socket"), "{listed}");
}

#[tokio::test]
async fn odd_names_are_errors_and_nothing_worse() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = escape(WRITE);
    std::fs::write(world.path("data").join(std::ffi::OsStr::from_bytes(b"bad\xff")), "x").unwrap();
    for path in [
        "",
        "/data/\0",
        "/data//",
        "/data/.",
        &format!("/data/{}", "x".repeat(70_000)),
        &format!("/data{}", "/x".repeat(3000)),
    ] {
        refused(&world, "escape/read", json!({ "path": path })).await;
    }
    let listed = value(world.call("escape/list", json!({ "path": "/data" })).await).to_string();
    assert!(listed.contains("public") && !listed.contains("bad"), "{listed}");
}

#[tokio::test]
async fn filling_the_disk_stops_at_the_quotas() {
    let world = escape(&format!("{WRITE}\nlimits = {{ written = \"1MiB\", entries = 20, files = 5 }}"));
    let failure = failed(world.call("escape/fill", json!({ "path": "/data/big", "bytes": "100000000" })).await);
    assert_eq!((failure.code, failure.text.contains("`written`")), (Code::LimitFiles, true), "{}", failure.text);
    assert!(std::fs::metadata(world.path("data/big")).unwrap().len() <= 1 << 20);
    let failure = failed(world.call("escape/create-many", json!({ "folder": "/data", "count": 1000 })).await);
    assert_eq!((failure.code, failure.text.contains("`entries`")), (Code::LimitFiles, true), "{}", failure.text);
    assert!(std::fs::read_dir(world.path("data")).unwrap().count() <= 24);
    let failure = failed(world.call("escape/open-many", json!({ "path": "/data/public/q3.csv", "count": 1000 })).await);
    assert_eq!((failure.code, failure.text.contains("`files`")), (Code::LimitFiles, true), "{}", failure.text);
}

#[tokio::test]
async fn a_call_narrowed_to_one_file_cannot_reach_or_see_the_next() {
    let world = escape(WRITE);
    world.configure(&format!(
        "[tools.escape]\nsource = \"hostile-escape.wasm\"\n{WRITE}\n[[policy.rules]]\ntool = \"escape/*\"\nverdict = \"allow\"\nonly = {{ files = [\"/data/public/q3.csv\"] }}\n"
    ));
    done(world.call("escape/read", json!({ "path": "/data/public/q3.csv" })).await);
    refused(&world, "escape/read", json!({ "path": "/data/public/q4.csv" })).await;
    refused(&world, "escape/stat", json!({ "path": "/data/public/q4.csv" })).await;
    refused(&world, "escape/list", json!({ "path": "/data/private" })).await;
    let listed = value(world.call("escape/list", json!({ "path": "/data/public" })).await).to_string();
    assert!(listed.contains("q3.csv") && !listed.contains("q4.csv"), "{listed}");
    let listed = value(world.call("escape/list", json!({ "path": "/data" })).await).to_string();
    assert!(listed.contains("public") && !listed.contains("private"), "{listed}");
}

#[tokio::test]
async fn create_makes_new_files_and_leaves_old_ones() {
    let world = escape(r#"files = [{ host = "./data", guest = "/data", access = "create" }]"#);
    done(world.call("escape/write", json!({ "path": "/data/new.txt", "text": "fresh" })).await);
    assert_eq!(world.read("data/new.txt"), "fresh");
    refused(&world, "escape/write", json!({ "path": "/data/new.txt", "text": "changed" })).await;
    refused(&world, "escape/append", json!({ "path": "/data/public/q3.csv", "text": "x" })).await;
    refused(&world, "escape/remove-file", json!({ "path": "/data/new.txt" })).await;
    refused(&world, "escape/rename", json!({ "from": "/data/new.txt", "to": "/data/public/q3.csv" })).await;
    assert_eq!((world.read("data/new.txt").as_str(), world.read("data/public/q3.csv").len()), ("fresh", 25));
}

#[tokio::test]
async fn a_link_cannot_be_moved_to_where_it_leads_elsewhere() {
    let world = escape(WRITE);
    std::fs::create_dir_all(world.path("data/a/b")).unwrap();
    symlink("../../public/q3.csv", world.path("data/a/b/link")).unwrap();
    refused(&world, "escape/rename", json!({ "from": "/data/a/b/link", "to": "/data/link" })).await;
    assert!(world.path("data/a/b/link").is_symlink() && !world.path("data/link").is_symlink());
    let fifo = world.path("data/fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    refused(&world, "escape/rename", json!({ "from": "/data/public/q3.csv", "to": "/data/fifo" })).await;
    assert!(std::fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
}

#[tokio::test]
async fn what_may_not_be_read_is_the_same_whether_it_is_there_or_not() {
    let world = escape(r#"files = [{ host = "./data", guest = "/data", only = ["/data/public/*.csv"] }]"#);
    for tool in ["stat", "stat-link", "read"] {
        let there = refused(&world, &format!("escape/{tool}"), json!({ "path": "/data/private" })).await;
        let not_there = refused(&world, &format!("escape/{tool}"), json!({ "path": "/data/nothing" })).await;
        assert_eq!(there.replace("private", ""), not_there.replace("nothing", ""), "{tool}");
    }
    world.file("data/public/notes.txt", "x");
    let there = refused(&world, "escape/stat", json!({ "path": "/data/public/notes.txt" })).await;
    let not_there = refused(&world, "escape/stat", json!({ "path": "/data/public/other.txt" })).await;
    assert_eq!(there.replace("notes", ""), not_there.replace("other", ""));
}

#[tokio::test]
async fn a_very_large_folder_is_not_listed_into_memory() {
    let world = escape(READ);
    std::fs::create_dir(world.path("data/many")).unwrap();
    for number in 0..10_001 {
        std::fs::File::create(world.path(&format!("data/many/{number}"))).unwrap();
    }
    let failure = failed(world.call("escape/list", json!({ "path": "/data/many" })).await);
    assert_eq!(failure.code, Code::LimitFiles, "{}", failure.text);
    std::fs::remove_file(world.path("data/many/0")).unwrap();
    done(world.call("escape/list", json!({ "path": "/data/many" })).await);
}

#[tokio::test]
async fn a_file_that_is_made_long_without_writing_counts_as_written() {
    let world = escape(&format!("{WRITE}\nlimits = {{ written = \"1MiB\" }}"));
    let arguments = json!({ "path": "/data/public/q3.csv", "length": "1099511627776" });
    let failure = failed(world.call("escape/set-length", arguments).await);
    assert_eq!(failure.code, Code::LimitFiles, "{}", failure.text);
    assert!(std::fs::metadata(world.path("data/public/q3.csv")).unwrap().len() < 1 << 20);
}

#[tokio::test]
async fn a_granted_folder_is_the_one_that_was_opened_at_publication() {
    let world = escape(READ);
    world.file("other/public/q3.csv", "SECRET");
    let run = world.run().await;
    std::fs::rename(world.path("data"), world.path("data.old")).unwrap();
    symlink(world.path("other"), world.path("data")).unwrap();
    let read = value(run.call("escape/read", json!({ "path": "/data/public/q3.csv" })).await.unwrap());
    assert!(read.as_str().unwrap().contains("north"), "{read}");
}

// Nothing ambient

#[tokio::test]
async fn nothing_ambient_is_inert_and_no_trap() {
    let world = escape("");
    assert_eq!(value(world.call("escape/env", json!({})).await), json!([]));
    assert_eq!(value(world.call("escape/args", json!({})).await), json!([]));
    assert_eq!(value(world.call("escape/stdin", json!({})).await), json!(""));
    assert_eq!(value(world.call("escape/now", json!({})).await), json!("0"));
    let run = world.run().await;
    let first = value(run.call("escape/random", json!({})).await.unwrap());
    let second = value(run.call("escape/random", json!({})).await.unwrap());
    assert_ne!(first, second, "each operation has a seed of its own");
    refused(&world, "escape/try-read", json!({ "path": "/etc/passwd" })).await;

    let world = escape("environment = { TZ = \"UTC\" }\nclock = \"coarse\"");
    assert_eq!(value(world.call("escape/env", json!({})).await), json!([["TZ", "UTC"]]));
    let now: u128 = value(world.call("escape/now", json!({})).await).as_str().unwrap().parse().unwrap();
    assert!(now > 1_600_000_000_000_000_000 && now.is_multiple_of(1_000_000_000), "{now}");
}

// Network

fn net(grant: &str) -> World {
    World::new(&format!("[tools.net]\nsource = \"hostile-net.wasm\"\n{grant}\n{ALL}"))
}

#[tokio::test]
async fn only_the_granted_host_port_scheme_method_and_path_are_reached() {
    let server = Server::saying("hello");
    let other = Server::saying("SECRET");
    let world = net(&format!("http = [{{ url = \"{}\", private = true }}]", server.url("/v1/*")));
    let got = value(world.call("net/try-get", json!({ "url": server.url("/v1/x") })).await).to_string();
    assert!(got.contains("hello"), "{got}");
    for url in [
        server.url("/v2/x"),
        server.url("/v1/../v2"),
        server.url("/v1/%2e%2e/v2"),
        server.url("/v1/a%2fb"),
        other.url("/v1/x"),
        format!("https://127.0.0.1:{}/v1/x", server.port),
        format!("http://localhost:{}/v1/x", server.port),
        format!("http://127.1:{}/v1/x", server.port),
        format!("http://0x7f000001:{}/v1/x", server.port),
        format!("http://2130706433:{}/v1/x", server.port),
        format!("http://0177.0.0.1:{}/v1/x", server.port),
        format!("http://[::ffff:127.0.0.1]:{}/v1/x", server.port),
        format!("http://0.0.0.0:{}/v1/x", server.port),
        format!("http://127.0.0.1:{}@127.0.0.1:{}/v1/x", server.port, other.port),
    ] {
        refused(&world, "net/try-get", json!({ "url": url })).await;
    }
    let post = json!({ "method": "POST", "url": server.url("/v1/x"), "headers": [], "body": "x" });
    refused(&world, "net/request", post).await;
    assert_eq!((server.count(), other.count()), (1, 0));
}

#[tokio::test]
async fn a_private_address_is_refused_unless_it_is_meant() {
    let server = Server::saying("SECRET");
    let world = net(&format!(
        "http = [{{ url = \"{}\" }}, {{ url = \"http://localhost:{}/*\" }}, {{ url = \"http://169.254.169.254/*\" }}]",
        server.url("/*"),
        server.port
    ));
    for url in
        [server.url("/"), format!("http://localhost:{}/", server.port), "http://169.254.169.254/latest".to_owned()]
    {
        let failure = failed(world.call("net/try-get", json!({ "url": url })).await);
        assert!(
            failure.report.refusals.iter().any(|refusal| refusal.contains("address")),
            "{:?}",
            failure.report.refusals
        );
    }
    assert_eq!(server.count(), 0);
    let world = net(&format!("http = [{{ url = \"http://localhost:{}/*\", private = true }}]", server.port));
    done(world.call("net/try-get", json!({ "url": format!("http://localhost:{}/", server.port) })).await);
}

#[tokio::test]
async fn a_redirect_comes_back_as_a_new_request() {
    let target = Server::saying("SECRET");
    let location = target.url("/stolen");
    let server = Server::start(move |_| {
        format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .into_bytes()
    });
    let world = net(&format!("http = [{{ url = \"{}\", private = true }}]", server.url("/*")));
    refused(&world, "net/follow", json!({ "url": server.url("/"), "times": 3 })).await;
    assert_eq!((server.count(), target.count()), (1, 0));
}

#[tokio::test]
async fn headers_that_the_host_decides_cannot_be_set() {
    let server = Server::saying("hello");
    let world = net(&format!("http = [{{ url = \"{}\", private = true, methods = [\"POST\"] }}]", server.url("/*")));
    let request = |headers: Json| json!({ "method": "POST", "url": server.url("/"), "headers": headers, "body": "" });
    for (name, text) in [
        ("host", "evil.test"),
        ("Host", "evil.test"),
        ("authorization", "Bearer x"),
        ("proxy-authorization", "x"),
        ("Proxy-Connection", "x"),
        ("connection", "upgrade"),
        ("transfer-encoding", "chunked"),
        ("x-a", "b\r\nhost: evil.test"),
        ("x\r\ny", "z"),
    ] {
        refused(&world, "net/request", request(json!([[name, text]]))).await;
    }
    assert_eq!(server.count(), 0);
    done(world.call("net/request", request(json!([["x-mine", "yes"]]))).await);
    let seen = server.seen.lock().unwrap()[0].to_ascii_lowercase();
    assert!(seen.contains("x-mine: yes") && seen.contains(&format!("host: 127.0.0.1:{}", server.port)), "{seen}");
}

#[tokio::test]
async fn sockets_and_names_are_out_of_reach_with_only_http() {
    let server = Server::saying("SECRET");
    let world = net(&format!("http = [{{ url = \"{}\", private = true }}]", server.url("/*")));
    let address = format!("127.0.0.1:{}", server.port);
    refused(&world, "net/tcp-connect", json!({ "address": address })).await;
    refused(&world, "net/tcp-exchange", json!({ "address": address, "text": "GET / HTTP/1.0\r\n\r\n" })).await;
    refused(&world, "net/tcp-listen", json!({ "address": "127.0.0.1:0" })).await;
    refused(&world, "net/udp-send", json!({ "address": address, "text": "x" })).await;
    refused(&world, "net/udp-connect-send", json!({ "address": address, "text": "x" })).await;
    refused(&world, "net/lookup", json!({ "name": "localhost" })).await;
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn an_answer_that_never_ends_meets_the_cap_and_one_that_drips_the_deadline() {
    let flood = Server::start(|_| {
        let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..64 {
            answer.extend_from_slice(b"10000\r\n");
            answer.extend_from_slice(&vec![b'x'; 0x10000]);
            answer.extend_from_slice(b"\r\n");
        }
        answer
    });
    let world = net(&format!(
        "http = [{{ url = \"{}\", private = true }}]\nlimits = {{ network = \"1MiB\" }}",
        flood.url("/*")
    ));
    let failure = failed(world.call("net/try-get", json!({ "url": flood.url("/") })).await);
    assert_eq!(failure.code, Code::LimitNetwork, "{}", failure.text);

    let slow = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(20));
        answer(200, "late")
    });
    let world =
        net(&format!("http = [{{ url = \"{}\", private = true }}]\nlimits = {{ wall = \"500ms\" }}", slow.url("/*")));
    let started = Instant::now();
    let failure = failed(world.call("net/try-get", json!({ "url": slow.url("/") })).await);
    assert_eq!(failure.code, Code::LimitWall, "{}", failure.text);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn requests_stop_at_their_number() {
    let target = std::sync::Arc::new(std::sync::OnceLock::new());
    let own: std::sync::Arc<std::sync::OnceLock<String>> = target.clone();
    let server = Server::start(move |_| {
        let again = own.get().unwrap();
        format!("HTTP/1.1 302 Found\r\nlocation: {again}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .into_bytes()
    });
    target.set(server.url("/again")).unwrap();
    let grant = format!("http = [{{ url = \"{}\", private = true }}]", server.url("/*"));
    let world = net(&format!("{grant}\nlimits = {{ requests = 3 }}"));
    let arguments = json!({ "url": server.url("/"), "times": 50 });
    let failure = failed(world.call("net/follow", arguments).await);
    assert_eq!(failure.code, Code::LimitNetwork, "{}", failure.text);
    assert_eq!(server.count(), 3);
}

// Resources

fn spin() -> World {
    World::new(&format!(
        "[tools.spin]\nsource = \"hostile-spin.wasm\"\nlimits = {{ cpu = \"300ms\", wall = \"1s\" }}\n[tools.hello]\nsource = \"hello.wasm\"\n{ALL}"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_and_sleeps_end_and_the_host_serves_others_meanwhile() {
    let world = spin();
    let run = std::sync::Arc::new(world.run().await);
    done(run.call("hello/greet", json!({ "name": "warm" })).await.unwrap());
    failed(run.call("spin/recurse", json!({})).await.unwrap());
    let mut spins = Vec::new();
    for tool in ["spin/loop-forever", "spin/loop-forever", "spin/ask-forever", "spin/sleep-forever"] {
        let run = run.clone();
        spins.push(tokio::spawn(async move {
            let started = Instant::now();
            let failure = failed(run.call(tool, json!({})).await.unwrap());
            (tool, failure.code, started.elapsed())
        }));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    done(run.call("hello/greet", json!({ "name": "meanwhile" })).await.unwrap());
    let meanwhile = started.elapsed();
    assert!(spins.iter().any(|spin| !spin.is_finished()), "the spins ended before they could be in the way");
    assert!(meanwhile < Duration::from_millis(250), "{meanwhile:?}");
    for spin in spins {
        let (tool, code, elapsed) = spin.await.unwrap();
        // What the host does on a guest's behalf is charged to it; what sleeps uses no CPU. On busy cores the wall may come first.
        let wanted =
            if tool == "spin/sleep-forever" { vec![Code::LimitWall] } else { vec![Code::LimitCpu, Code::LimitWall] };
        assert!(wanted.contains(&code), "{tool}: {code}");
        assert!(elapsed < Duration::from_secs(5), "{tool}: {elapsed:?}");
    }
}

#[tokio::test]
async fn memory_stops_at_its_limit() {
    let world = World::new(&format!(
        "[tools.memory]\nsource = \"hostile-memory.wasm\"\nlimits = {{ memory = \"32MiB\", output = \"64KiB\" }}\n{ALL}"
    ));
    // The guest copes with the refusal, and tells how far it got.
    let failure = failed(world.call("memory/grow", json!({ "mib": 4000 })).await);
    let reached = failure.text.trim_start_matches("after ").split(' ').next().unwrap().parse::<u64>();
    assert!(reached.clone().is_ok_and(|mib| (8..=32).contains(&mib)), "{}", failure.text);
    for (tool, arguments) in [
        ("big-return", json!({ "mib": 8 })),
        ("big-text", json!({ "mib": 8 })),
        ("many-items", json!({ "count": 200_000 })),
    ] {
        let failure = failed(world.call(&format!("memory/{tool}"), arguments).await);
        assert_eq!(failure.code, Code::LimitOutput, "{tool}: {}", failure.text);
    }
    done(world.call("memory/big-text", json!({ "mib": 0 })).await);
}

#[tokio::test]
async fn floods_are_truncated_and_a_crash_keeps_its_last_words() {
    let world =
        World::new(&format!("[tools.flood]\nsource = \"hostile-flood.wasm\"\nlimits = {{ log = \"4KiB\" }}\n{ALL}"));
    for stream in ["stdout", "stderr"] {
        let outcome = world.call(&format!("flood/{stream}"), json!({ "bytes": "10000000" })).await;
        let report = done(outcome).report;
        let captured = if stream == "stdout" { report.stdout } else { report.stderr };
        assert!(captured.len() < 5_000 && captured.contains("left out"), "{} bytes", captured.len());
    }
    let failure = failed(world.call("flood/panic-with", json!({ "text": "the last words \u{1b}[2J" })).await);
    assert_eq!(failure.code, Code::Trapped);
    assert!(failure.text.contains("the last words") && !failure.text.contains('\u{1b}'), "{:?}", failure.text);
    assert!(failure.report.backtrace.is_some());
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_and_frees_its_slot() {
    let world = World::new(&format!(
        "[tools.spin]\nsource = \"hostile-spin.wasm\"\n{ALL}\n[limits]\nconcurrent = 1\nqueue = 1\n"
    ));
    let run = std::sync::Arc::new(world.run().await);
    run.prepare("spin/work").await.unwrap();
    for _ in 0..5 {
        let cancel = tokio_util::sync::CancellationToken::new();
        let (other, token) = (run.clone(), cancel.clone());
        let call = tokio::spawn(async move { other.call_until("spin/loop-forever", json!({}), &token).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(30)).await;
        cancel.cancel();
        assert_eq!(failed(call.await.unwrap()).code, Code::Cancelled);
    }
    done(run.call("spin/work", json!({ "rounds": "10" })).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_told_and_loses_nothing() {
    let world = World::new(&format!(
        "[tools.spin]\nsource = \"hostile-spin.wasm\"\nlimits = {{ wall = \"1s\" }}\n{ALL}\n[limits]\nconcurrent = 2\nqueue = 3\n"
    ));
    let run = std::sync::Arc::new(world.run().await);
    run.prepare("spin/sleep-forever").await.unwrap();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let run = run.clone();
            tokio::spawn(async move { failed(run.call("spin/sleep-forever", json!({})).await.unwrap()).code })
        })
        .collect();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap());
    }
    let count = |code| codes.iter().filter(|c| **c == code).count();
    assert_eq!(count(Code::LimitWall) + count(Code::LimitHost), 20, "{codes:?}");
    assert_eq!(count(Code::LimitWall), 5, "two run, three wait: {codes:?}");
}
