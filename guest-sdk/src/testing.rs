//! A host for native tests: folders, canned answers, and a scope in which a tool runs.
//!
//! ```
//! use portcullis_guest::testing::Host;
//!
//! #[portcullis_guest::tools]
//! mod files {
//!     /// Count the lines of a file.
//!     pub fn lines(path: String) -> Result<u32, String> {
//!         let text = portcullis_guest::fs::read_to_string(path).map_err(|e| e.to_string())?;
//!         Ok(text.lines().count() as u32)
//!     }
//! }
//!
//! let host = Host::new().folder("/data", [("a.txt", "one\ntwo")]);
//! assert_eq!(host.run(|| files::lines("/data/a.txt".to_owned())), Ok(2));
//! assert!(host.run(|| files::lines("/other/a.txt".to_owned())).is_err());
//! ```
//!
//! It imitates what an author's own code meets, not the sandbox: only [`fs`](crate::fs),
//! [`state`](crate::state) and `http` know of it, and what `std` does directly in a test, it does on the author's machine.
#![allow(clippy::disallowed_methods, reason = "every path here lies in a temporary folder of the test host")]

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;

use crate::state::Scope;

thread_local! {
    static CURRENT: RefCell<Option<Rc<State>>> = const { RefCell::new(None) };
}

/// What a tool finds when it runs in a test. With nothing added, it may touch nothing.
#[derive(Debug, Default)]
pub struct Host(Rc<State>);

impl Host {
    /// A host that grants nothing.
    pub fn new() -> Self {
        Host::default()
    }

    /// Grants a folder at a guest path for reading and writing, with these files in it: relative
    /// paths and contents.
    ///
    /// # Panics
    ///
    /// Panics where the folder cannot be made.
    pub fn folder<P, C>(self, guest: &str, files: impl IntoIterator<Item = (P, C)>) -> Self
    where
        P: AsRef<Path>,
        C: AsRef<[u8]>,
    {
        self.mount(guest, files, Access::Write)
    }

    /// Grants a folder at a guest path for reading only.
    ///
    /// # Panics
    ///
    /// Panics where the folder cannot be made.
    pub fn read_only<P, C>(self, guest: &str, files: impl IntoIterator<Item = (P, C)>) -> Self
    where
        P: AsRef<Path>,
        C: AsRef<[u8]>,
    {
        self.mount(guest, files, Access::Read)
    }

    fn mount<P, C>(self, guest: &str, files: impl IntoIterator<Item = (P, C)>, access: Access) -> Self
    where
        P: AsRef<Path>,
        C: AsRef<[u8]>,
    {
        let made = filled(files).and_then(|real| {
            let guest = normal(Path::new(guest))?;
            let folder = Folder { guest, real, access };
            self.0.folders.borrow_mut().push(folder);
            Ok(())
        });
        #[expect(clippy::panic, reason = "a test whose host cannot be set up has failed")]
        if let Err(error) = made {
            panic!("the test host cannot make the folder `{guest}`: {error}");
        }
        self
    }

    /// Grants the tool's state, up to this scope. It is empty at first.
    pub fn state(self, up_to: Scope) -> Self {
        self.0.granted_state.set(Some(up_to));
        self
    }

    /// Grants the use of a credential, and has it.
    pub fn credential(self, name: &str) -> Self {
        self.0.credentials.borrow_mut().insert(name.to_owned());
        self
    }

    /// Answers requests of this method to exactly this URL.
    ///
    /// Several answers to one request are given in turn, and the last of them again and again.
    ///
    /// # Panics
    ///
    /// Panics where `status` is no HTTP status.
    #[cfg(feature = "http")]
    pub fn answer(self, method: &str, url: &str, status: u16, body: impl Into<Vec<u8>>) -> Self {
        let mut response = ::http::Response::new(body.into());
        #[expect(clippy::panic, reason = "a test whose host cannot be set up has failed")]
        match ::http::StatusCode::from_u16(status) {
            Ok(status) => *response.status_mut() = status,
            Err(error) => panic!("the test host cannot answer with {status}: {error}"),
        }
        self.0.answers.borrow_mut().push(Answer { method: method.to_owned(), url: url.to_owned(), response });
        self
    }

    /// Every request that was sent, also those without an answer, in their order.
    #[cfg(feature = "http")]
    pub fn requests(&self) -> Vec<::http::Request<Vec<u8>>> {
        self.0.requests.borrow().clone()
    }

    /// Runs a tool's functions on this host. Only this thread is meant: one that `test` starts
    /// finds no host.
    pub fn run<T>(&self, test: impl FnOnce() -> T) -> T {
        let _restored = Restore(CURRENT.replace(Some(Rc::clone(&self.0))));
        test()
    }
}

/// Puts the outer host back, also after a panic.
struct Restore(Option<Rc<State>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The host that runs now on this thread.
pub(crate) fn current() -> io::Result<Rc<State>> {
    CURRENT.with_borrow(Clone::clone).ok_or_else(|| {
        io::Error::other(
            "no host runs this test: call the tool inside \
             `portcullis_guest::testing::Host::new().run(|| …)`",
        )
    })
}

#[derive(Debug, Default)]
pub(crate) struct State {
    folders: RefCell<Vec<Folder>>,
    granted_state: Cell<Option<Scope>>,
    credentials: RefCell<BTreeSet<String>>,
    entries: RefCell<BTreeMap<(Scope, String), Vec<u8>>>,
    #[cfg(feature = "http")]
    answers: RefCell<Vec<Answer>>,
    #[cfg(feature = "http")]
    requests: RefCell<Vec<::http::Request<Vec<u8>>>>,
}

#[derive(Debug)]
struct Folder {
    guest: PathBuf,
    real: TempDir,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Where a guest path leads.
pub(crate) struct Place {
    /// Which of the host's folders it is in.
    pub folder: usize,
    pub real: PathBuf,
}

impl State {
    pub(crate) fn has_credential(&self, name: &str) -> bool {
        self.credentials.borrow().contains(name)
    }

    pub(crate) fn granted_state(&self) -> Option<Scope> {
        self.granted_state.get()
    }

    pub(crate) fn entries(&self) -> RefMut<'_, BTreeMap<(Scope, String), Vec<u8>>> {
        self.entries.borrow_mut()
    }

    pub(crate) fn resolve(&self, guest: &Path, access: Access) -> io::Result<Place> {
        let guest = normal(guest)?;
        let folders = self.folders.borrow();
        // As on the real host, the longest prefix alone decides.
        let found = folders
            .iter()
            .enumerate()
            .filter(|(_, folder)| guest.starts_with(&folder.guest))
            .max_by_key(|(_, folder)| folder.guest.components().count());
        let Some((index, folder)) = found else {
            return Err(denied(&guest, "is in no folder that was granted"));
        };
        if folder.access < access {
            return Err(denied(&guest, "is in a folder that was granted for reading only"));
        }
        let inner = guest.strip_prefix(&folder.guest).unwrap_or(&guest);
        Ok(Place { folder: index, real: folder.real.path().join(inner) })
    }
}

#[cfg(feature = "http")]
#[derive(Debug)]
struct Answer {
    method: String,
    url: String,
    response: ::http::Response<Vec<u8>>,
}

#[cfg(feature = "http")]
impl State {
    pub(crate) fn take_answer(
        &self,
        request: ::http::Request<Vec<u8>>,
    ) -> Result<::http::Response<Vec<u8>>, crate::http::Error> {
        let (method, url) = (request.method().to_string(), request.uri().to_string());
        self.requests.borrow_mut().push(request);
        let mut answers = self.answers.borrow_mut();
        let mut fitting = answers
            .iter()
            .enumerate()
            .filter_map(|(index, answer)| (answer.method == method && answer.url == url).then_some(index));
        match (fitting.next(), fitting.next()) {
            (Some(first), Some(_)) => Ok(answers.remove(first).response),
            (Some(only), None) => Ok(answers[only].response.clone()),
            (None, _) => Err(crate::http::Error::new(format!(
                "the test host has no answer to `{method} {url}`: add one with `Host::answer`"
            ))),
        }
    }
}

fn filled<P, C>(files: impl IntoIterator<Item = (P, C)>) -> io::Result<TempDir>
where
    P: AsRef<Path>,
    C: AsRef<[u8]>,
{
    let folder = TempDir::new()?;
    for (path, content) in files {
        let path = normal(path.as_ref())?;
        let path = folder.path().join(path.strip_prefix("/").unwrap_or(&path));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(folder)
}

/// The path from the root, without `.` and `..`.
fn normal(path: &Path) -> io::Result<PathBuf> {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if !normal.pop() => {
                return Err(denied(path, "leads out of the root folder"));
            }
            _ => {}
        }
    }
    Ok(normal)
}

fn denied(path: &Path, why: &str) -> io::Error {
    let text = format!("`{}` {why}", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}
