//! The test host: what a tool finds in a native test, and what it does not.

use std::io::{ErrorKind, Read, Write};

use portcullis_guest::fs;
use portcullis_guest::testing::Host;

#[test]
fn a_granted_folder_is_read_and_written() {
    let host = Host::new().folder("/data", [("sub/a.txt", "x")]);
    host.run(|| {
        assert_eq!(fs::read("/data/sub/a.txt").unwrap(), b"x");
        assert_eq!(fs::read_to_string("/data/./other/../sub/a.txt").unwrap(), "x");
        fs::create_dir_all("/data/b/c").unwrap();
        fs::write("/data/b/c/d.txt", "y").unwrap();
        fs::rename("/data/b/c/d.txt", "/data/e.txt").unwrap();
        assert!(fs::metadata("/data/e.txt").unwrap().is_file());
        fs::remove_file("/data/e.txt").unwrap();
        assert!(!fs::exists("/data/e.txt").unwrap());
    });
}

#[test]
fn a_listing_has_guest_paths() {
    let host = Host::new().folder("/data", [("a.txt", ""), ("sub/b.txt", "")]);
    host.run(|| {
        let entries = fs::read_dir("/data").unwrap().map(|entry| entry.unwrap().path());
        let mut entries = entries.collect::<Vec<_>>();
        entries.sort();
        assert_eq!(entries, ["/data/a.txt", "/data/sub"].map(std::path::PathBuf::from));
    });
}

#[test]
fn a_file_is_opened_and_appended_to() {
    let host = Host::new().folder("/data", [("log", "a")]);
    host.run(|| {
        let mut log = fs::OpenOptions::new().append(true).open("/data/log").unwrap();
        log.write_all(b"b").unwrap();
        let mut text = String::new();
        fs::File::open("/data/log").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "ab");
    });
}

#[test]
fn outside_a_granted_folder_nothing_is_reached() {
    let host = Host::new().folder("/data", [("a.txt", "x")]);
    host.run(|| {
        for path in ["/etc/passwd", "/data/../etc/passwd", "/", "/database/a.txt", "../x"] {
            let error = fs::read(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}");
        }
        assert_eq!(fs::read("/data/missing").unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_read_only_folder_is_not_changed() {
    let host = Host::new().read_only("/data", [("a.txt", "x")]).folder("/data/out", [("b", "")]);
    host.run(|| {
        let refused = |result: std::io::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
        };
        refused(fs::write("/data/a.txt", "y"));
        refused(fs::remove_file("/data/a.txt"));
        refused(fs::rename("/data/a.txt", "/data/out/a.txt"));
        refused(fs::File::create("/data/a.txt").map(drop));
        refused(fs::OpenOptions::new().append(true).open("/data/a.txt").map(drop));
        assert_eq!(fs::read("/data/a.txt").unwrap(), b"x");
        // The longest prefix decides.
        fs::write("/data/out/b", "y").unwrap();
    });
}

#[test]
fn two_folders_are_two_file_systems() {
    let none: [(&str, &str); 0] = [];
    let host = Host::new().folder("/a", [("x", "")]).folder("/b", none);
    host.run(|| {
        let error = fs::rename("/a/x", "/b/x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CrossesDevices);
    });
}

#[test]
fn without_a_host_the_error_says_what_to_do() {
    let error = fs::read("/data/a.txt").unwrap_err();
    assert!(error.to_string().contains("testing::Host"), "{error}");
}

#[test]
fn a_panic_in_a_run_leaves_no_host_behind() {
    let host = Host::new().folder("/data", [("a.txt", "x")]);
    let run = std::panic::AssertUnwindSafe(|| host.run(|| -> () { std::panic::resume_unwind(Box::new(())) }));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(fs::read("/data/a.txt").is_err());
}

#[cfg(feature = "http")]
mod http {
    use super::Host;
    use portcullis_guest::http::{Request, get, send};

    #[test]
    fn a_request_gets_its_canned_answer_and_is_recorded() {
        let host = Host::new().answer("POST", "https://a.example/x?y=1", 201, "made");
        let response = host.run(|| {
            let request = Request::post("https://a.example/x?y=1").header("x-a", "b");
            send(request.body(b"body".to_vec()).unwrap()).unwrap()
        });
        assert_eq!((response.status().as_u16(), response.body().as_slice()), (201, &b"made"[..]));
        let sent = host.requests();
        assert_eq!(sent[0].headers()["x-a"], "b");
        assert_eq!(sent[0].body(), b"body");
    }

    #[test]
    fn answers_are_given_in_turn_and_the_last_stays() {
        let url = "https://a.example/";
        let host = Host::new().answer("GET", url, 503, "").answer("GET", url, 200, "");
        let statuses = host.run(|| [get(url), get(url), get(url)]);
        assert_eq!(statuses.map(|s| s.unwrap().status().as_u16()), [503, 200, 200]);
    }

    #[test]
    fn a_request_without_an_answer_is_an_error_that_says_so() {
        let host = Host::new().answer("GET", "https://a.example/x", 200, "");
        let error = host.run(|| get("https://a.example/y")).unwrap_err();
        assert!(error.to_string().contains("`GET https://a.example/y`"), "{error}");
        assert_eq!(host.requests().len(), 1);
        assert!(get("https://a.example/x").unwrap_err().to_string().contains("testing::Host"));
    }
}
