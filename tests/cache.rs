//! Compiled code runs as native code, so what the cache holds is authenticated, and what is not authentic is compiled again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use common::{World, done};
use portcullis::places::Places;
use portcullis::publication::source::ConfigFile;
use portcullis::{Host, Principal, RunOptions};
use serde_json::json;

struct Cached {
    world: World,
}

impl Cached {
    fn new() -> Self {
        Self {
            world: World::new(
                "[tools.hello]\nsource = \"hello.wasm\"\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
            ),
        }
    }

    async fn call(&self) {
        self.call_as("state", "keys").await;
    }

    async fn call_as(&self, state: &str, keys: &str) {
        let folder = |name: &str| self.world.path(name);
        let places = Places::new(&folder(state), &folder("cache"), &folder(keys)).unwrap();
        let file = ConfigFile::read(&self.world.path("portcullis.toml")).unwrap();
        let run = Host::publish(&file, &places).unwrap().start(Principal::Local, RunOptions::default()).await.unwrap();
        let output = done(run.call("hello/greet", json!({ "name": "Ada" })).await.unwrap());
        assert!(output.value.unwrap().as_str().unwrap().contains("Ada"));
    }

    /// The one file of compiled code.
    fn file(&self) -> PathBuf {
        let files: Vec<_> =
            std::fs::read_dir(self.world.path("cache/code")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

fn modified(path: &Path) -> std::time::SystemTime {
    std::fs::metadata(path).unwrap().modified().unwrap()
}

#[tokio::test]
async fn what_is_authentic_is_used_again() {
    let cached = Cached::new();
    cached.call().await;
    let first = modified(&cached.file());
    cached.call().await;
    assert_eq!(modified(&cached.file()), first);
}

#[tokio::test]
async fn what_is_torn_changed_or_foreign_is_compiled_again() {
    let cached = Cached::new();
    cached.call().await;
    let path = cached.file();
    let good = std::fs::read(&path).unwrap();
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let mut tagless = vec![0; 32];
    tagless.extend_from_slice(&good[32..]);
    for bad in [flipped, good[..good.len() / 2].to_vec(), good[..16].to_vec(), Vec::new(), tagless] {
        std::fs::write(&path, &bad).unwrap();
        cached.call().await;
        assert_eq!(std::fs::read(&path).unwrap().len(), good.len(), "rebuilt");
        assert_ne!(std::fs::read(&path).unwrap(), bad);
    }
    // Another user's key authenticates nothing here.
    let before = std::fs::read(&path).unwrap();
    cached.call_as("other-state", "other-keys").await;
    assert_ne!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn state_keys_and_code_are_for_this_user_alone() {
    let cached = Cached::new();
    cached.call().await;
    for name in ["state", "cache", "cache/code", "keys"] {
        let mode = std::fs::metadata(cached.world.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
    let key = cached.world.path("keys/key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o077, 0);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let places =
        Places::new(&cached.world.path("state"), &cached.world.path("cache"), &cached.world.path("keys")).unwrap();
    assert!(places.key().unwrap_err().to_string().contains("may be read by others"));
    std::fs::set_permissions(cached.world.path("cache"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Places::new(&cached.world.path("state"), &cached.world.path("cache"), &cached.world.path("keys"));
    assert!(refused.unwrap_err().to_string().contains("may be written by others"));
}
