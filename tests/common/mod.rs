//! A host in a temporary folder, with the example tools.
#![allow(dead_code, reason = "each test file uses a part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

pub mod user;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use portcullis::approval::{Extent, Question, Reply, Route};
use portcullis::ids::PackageDigest;
use portcullis::places::Places;
use portcullis::publication::source::ConfigFile;
use portcullis::registry::lock::Lock;
use portcullis::{Failure, Host, Outcome, Output, Principal, Run, RunOptions};
use serde_json::Value as Json;

/// The built example tool `name`, as its crate is called. Built once by each test program; cargo does nothing where there
/// is nothing to do.
pub fn guest(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let target = guest_target();
        let status = Command::new(env!("CARGO"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("example-tools"))
            .args(["build", "--quiet", "--release", "--target", "wasm32-wasip2", "--target-dir"])
            .arg(&target)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .stdin(Stdio::null())
            .status()
            .expect("cargo starts");
        assert!(
            status.success(),
            "the example tools do not build; is the target there? rustup target add wasm32-wasip2"
        );
        target.join("wasm32-wasip2/release")
    });
    folder.join(format!("{}.wasm", name.replace('-', "_")))
}

/// Where guests are built: beside the host's own builds, kept from one test run to the next.
pub fn guest_target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests")
}

/// Compiled code and its key are shared by all tests: the cache authenticates what it holds.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("host").join(name)
}

/// A configuration with its folder and state.
pub struct World {
    pub folder: tempfile::TempDir,
}

impl World {
    /// A world with `config`, in which `TOOL.wasm` is each example tool that the text names as a source, and `data/` holds
    /// some files.
    pub fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = Self { folder };
        world.file("data/public/q3.csv", "region,revenue\nnorth,120\n");
        world.file("data/public/q4.csv", "region,revenue\nnorth,131\n");
        world.file("data/private/salaries.csv", "name,salary\n");
        world.configure(config);
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Writes the configuration, fetches the tools that it names, and pins them.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("portcullis.toml"), config).unwrap();
        let mut lock = BTreeMap::new();
        let mut package = None;
        for line in config.lines() {
            if let Some(name) = line.strip_prefix("[tools.").and_then(|rest| rest.strip_suffix(']')) {
                package = Some(name.to_owned());
            }
            let source = line.strip_prefix("source = \"").and_then(|rest| rest.strip_suffix('"'));
            if let Some(source) = source
                && let Some(package) = package.take()
            {
                let path = self.path(source);
                if !path.exists() {
                    std::fs::copy(guest(source.strip_suffix(".wasm").unwrap()), &path).unwrap();
                }
                lock.insert(package.parse().unwrap(), PackageDigest::of(&std::fs::read(&path).unwrap()));
            }
        }
        std::fs::write(self.path("portcullis.lock"), Lock(lock).render()).unwrap();
    }

    pub fn places(&self) -> Places {
        Places::new(&self.path("state"), &shared("cache"), &self.keys()).unwrap()
    }

    /// The folder of the key of all tests' user: with another one, a journal is another user's.
    pub fn keys(&self) -> PathBuf {
        shared("data/portcullis/keys")
    }

    /// The journal, as another process sees it.
    pub fn journal(&self) -> portcullis::journal::Journal {
        let config = std::fs::canonicalize(self.path("portcullis.toml")).unwrap();
        let places = self.places();
        portcullis::journal::Journal::open(&places.of_config(&config).unwrap(), &places.key().unwrap()).unwrap()
    }

    pub fn host(&self) -> Host {
        let file = ConfigFile::read(&self.path("portcullis.toml")).unwrap();
        Host::publish(&file, &self.places()).unwrap()
    }

    pub async fn run(&self) -> Run {
        self.run_with(RunOptions::default()).await
    }

    pub async fn run_with(&self, options: RunOptions) -> Run {
        self.host().start(Principal::Local, options).await.unwrap()
    }

    /// One call in a run of its own.
    pub async fn call(&self, tool: &str, arguments: Json) -> Outcome {
        self.run().await.call(tool, arguments).await.unwrap()
    }
}

pub fn done(outcome: Outcome) -> Output {
    match outcome {
        Outcome::Done(output) => output,
        other => panic!("not done: {other:?}"),
    }
}

pub fn value(outcome: Outcome) -> Json {
    done(outcome).value.unwrap_or(Json::Null)
}

pub fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("not failed: {other:?}"),
    }
}

pub fn blocked(outcome: Outcome) -> portcullis::gate::Denial {
    match outcome {
        Outcome::Blocked(blocked) => blocked.denial,
        other => panic!("not blocked: {other:?}"),
    }
}

/// A human who always says the same, and remembers what was asked.
pub struct Human {
    pub says: bool,
    pub asked: std::sync::Mutex<Vec<(String, Json, Vec<String>)>>,
}

impl Human {
    pub fn saying(says: bool) -> Arc<Self> {
        Arc::new(Self { says, asked: std::sync::Mutex::default() })
    }
}

#[async_trait::async_trait]
impl Route for Human {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn ask(&self, question: &Question<'_>) -> Reply {
        let asked = (question.tool.to_string(), question.arguments.clone(), question.authority.lines());
        self.asked.lock().unwrap().push(asked);
        let who = "somebody".to_owned();
        if self.says { Reply::Yes { who, extent: Extent::Once } } else { Reply::No { who } }
    }
}

/// An HTTP server on loopback that answers each request by `answer`, given method, target and the whole head.
pub struct Server {
    pub port: u16,
    pub seen: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        use std::io::{BufRead as _, BufReader, Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let (answer, noted) = (Arc::new(answer), seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, noted) = (answer.clone(), noted.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut head = String::new();
                    let mut length = 0;
                    loop {
                        let mut line = String::new();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        if line == "\r\n" {
                            break;
                        }
                        head.push_str(&line);
                    }
                    let mut body = vec![0; length];
                    let _ = reader.read_exact(&mut body);
                    head.push_str(&String::from_utf8_lossy(&body));
                    noted.lock().unwrap().push(head.clone());
                    let mut stream = stream;
                    let _ = stream.write_all(&answer(&head));
                });
            }
        });
        Self { port, seen }
    }

    /// A server that answers with a text.
    pub fn saying(text: &'static str) -> Self {
        Self::start(move |_| answer(200, text))
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://127.0.0.1:{}{target}", self.port)
    }
}

pub fn answer(status: u16, text: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len()).into_bytes()
}
