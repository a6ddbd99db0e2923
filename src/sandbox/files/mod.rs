//! File handles: a guard in front of wasmtime-wasi's own reading, writing and listing.
//!
//! A guest holds descriptors of folders and files. The guard knows the guest path of each, opens every path itself from
//! the granted folder downwards, checks type and link count on what it opened, and passes that descriptor on. No path ever
//! reaches wasmtime-wasi, so there is no second lookup of a name.

mod bindings;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{self, ErrorCode};
use wasmtime_wasi::p2::{FsError, FsResult};

pub use bindings::{FileView, HasFiles};

use super::ledger::{Ledger, LimitHit};
use crate::authority::Authority;
use crate::authority::clock::Clock;
use crate::authority::files::{Access, Files, Mount};
use crate::authority::limits::Limits;
use crate::authority::path::{GuestPath, is_segment};
use crate::gate::codes::Code;

/// Local files answer at once, and what could block (a FIFO, a device) is refused before it is opened, so the calling
/// thread does the reading itself. Handing each read to another thread costs eight times as much.
const ON_THIS_THREAD: bool = true;

/// Opens something only to look at it or to go on from it, never to block in it.
#[cfg(target_os = "linux")]
const LOOK: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const LOOK: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// Most entries of a folder that can be listed.
const LISTING_MAX: usize = 10_000;

/// Longest name that is looked at, in bytes.
const GUEST_PATH_MAX: usize = crate::authority::path::PATH_MAX;

/// The file handles of one call.
pub struct FileHandles {
    files: Files,
    mounts: Vec<OpenMount>,
    /// By the descriptor's number in the resource table.
    places: HashMap<u32, Place>,
    listings: HashMap<u32, Place>,
    /// What this call created itself, which it may then also write.
    created: HashSet<GuestPath>,
    clock: Clock,
    limits: Limits,
    ledger: Arc<Ledger>,
}

struct OpenMount {
    guest: GuestPath,
    folder: Arc<OwnedFd>,
    follows_links: bool,
}

#[derive(Clone)]
struct Place {
    mount: usize,
    path: GuestPath,
    is_folder: bool,
}

/// A path below a mount, taken apart.
struct Target {
    mount: usize,
    path: GuestPath,
    /// Relative to the mount; `.` for the mount itself.
    relative: String,
    must_be_folder: bool,
}

impl FileHandles {
    /// No file.
    pub fn none(ledger: Arc<Ledger>) -> Self {
        Self {
            files: Files::nothing(),
            mounts: Vec::new(),
            places: HashMap::new(),
            listings: HashMap::new(),
            created: HashSet::new(),
            clock: Clock::Frozen,
            limits: Limits::default(),
            ledger,
        }
    }

    /// Takes the granted folders, which `folder` opens.
    ///
    /// # Errors
    ///
    /// A granted folder is not there.
    pub fn mint(
        authority: &Authority,
        ledger: Arc<Ledger>,
        folder: impl Fn(&Path) -> std::io::Result<Arc<OwnedFd>>,
    ) -> std::io::Result<Self> {
        let mut handles = Self {
            files: authority.files.clone(),
            clock: authority.clock,
            limits: authority.limits,
            ..Self::none(ledger)
        };
        for Mount { guest, host } in authority.files.mounts() {
            let follows_links = authority.files.follows_links(&guest);
            let folder = folder(&host)?;
            handles.mounts.push(OpenMount { guest, folder, follows_links });
        }
        Ok(handles)
    }

    /// The mount that a path belongs to: the one with the longest guest path.
    fn mount_of(&self, path: &GuestPath) -> Option<usize> {
        let inside = self.mounts.iter().enumerate().filter(|(_, mount)| path.is_within(&mount.guest));
        inside.max_by_key(|(_, mount)| mount.guest.as_str().len()).map(|(index, _)| index)
    }

    fn refuse(&self, what: &str, path: &str) -> FsError {
        let shown: String = path.chars().take(200).collect();
        self.ledger.refusal(&format!("{what} {shown}"));
        ErrorCode::NotPermitted.into()
    }

    fn place(&self, fd: &Resource<Descriptor>) -> FsResult<&Place> {
        self.places.get(&fd.rep()).ok_or_else(|| ErrorCode::BadDescriptor.into())
    }

    /// Takes a guest's relative path apart. `.` and empty segments fall away; `..` and absolute paths are refused, since
    /// what they mean depends on links.
    fn target(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<Target> {
        let base = self.place(fd)?;
        if !base.is_folder {
            return Err(ErrorCode::NotDirectory.into());
        }
        if path.is_empty() {
            return Err(ErrorCode::NoEntry.into());
        }
        if path.len() > GUEST_PATH_MAX {
            return Err(ErrorCode::NameTooLong.into());
        }
        if path.contains('\0') {
            return Err(ErrorCode::Invalid.into());
        }
        if path.starts_with('/') {
            return Err(self.refuse("open", path));
        }
        let mut full = base.path.clone();
        for segment in path.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
            if !is_segment(segment) {
                return Err(self.refuse("open", &format!("{}/{path}", base.path)));
            }
            full = full.child(segment).ok_or(ErrorCode::NameTooLong)?;
        }
        let mount = base.mount;
        if self.mount_of(&full) != Some(mount) {
            // Another grant lies there; it is reached through its own folder only.
            return Err(self.refuse("open", full.as_str()));
        }
        let root = self.mounts[mount].guest.as_str();
        let relative = full.as_str()[root.len()..].trim_start_matches('/');
        let relative = if relative.is_empty() { "." } else { relative };
        Ok(Target {
            mount,
            relative: relative.to_owned(),
            must_be_folder: path.ends_with('/') || path.ends_with("/.") || path == ".",
            path: full,
        })
    }

    fn access(&self, path: &GuestPath) -> Option<Access> {
        self.files.access(path)
    }

    /// What may be done to a path, counting what this call created itself as its own.
    fn may_write(&self, path: &GuestPath) -> bool {
        match self.access(path) {
            Some(Access::Write) => true,
            Some(Access::Create) => self.created.contains(path),
            _ => false,
        }
    }

    fn is_visible(&self, path: &GuestPath, is_folder: bool) -> bool {
        self.access(path).is_some() || (is_folder && self.files.may_hold(path))
    }

    /// Opens a path of a mount with `flags`, beneath the mount whatever the path holds.
    fn open(&self, target: &Target, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let mount = &self.mounts[target.mount];
        let flags = flags | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            if !mount.follows_links {
                resolve |= ResolveFlags::NO_SYMLINKS;
            }
            match rustix::fs::openat2(mount.folder.as_fd(), target.relative.as_str(), flags, mode, resolve) {
                // An old kernel, or a filter around this process that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => {}
                opened => return opened,
            }
        }
        open_by_steps(mount.folder.as_fd(), &target.relative, flags, mode)
    }

    /// The folder that holds the target, and the target's name in it.
    fn open_parent<'t>(&self, target: &'t Target) -> FsResult<(OwnedFd, &'t str)> {
        let (parent, name) = target.relative.rsplit_once('/').unwrap_or((".", &target.relative));
        if name == "." {
            return Err(ErrorCode::Invalid.into());
        }
        let above = Target {
            mount: target.mount,
            path: target.path.parent().unwrap_or_else(GuestPath::root),
            relative: parent.to_owned(),
            must_be_folder: true,
        };
        let folder = self.open(&above, LOOK | OFlags::DIRECTORY, Mode::empty()).map_err(errno)?;
        Ok((folder, name))
    }

    /// Looks at what a path names without opening it for anything. Only regular files with one name, and folders, pass;
    /// a link passes where links are followed and this one is not to be.
    fn look(&self, target: &Target, follow: bool) -> FsResult<(OwnedFd, Stat)> {
        let mut flags = LOOK;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        let fd = self.open(target, flags, Mode::empty()).map_err(errno)?;
        let stat = rustix::fs::fstat(&fd).map_err(errno)?;
        self.check_type(&stat, target)?;
        Ok((fd, stat))
    }

    /// Looks at what a guest may know of: what it may read, and the folders on the way to that. For everything else the answer
    /// is the same whether it is there or not.
    fn look_visible(&self, target: &Target, follow: bool) -> FsResult<(OwnedFd, Stat)> {
        let readable = self.access(&target.path).is_some();
        if !readable && !self.files.may_hold(&target.path) {
            return Err(self.refuse("read", target.path.as_str()));
        }
        match self.look(target, follow) {
            Ok((fd, stat)) if readable || FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                Ok((fd, stat))
            }
            Err(error) if readable => Err(error),
            _ => Err(self.refuse("read", target.path.as_str())),
        }
    }

    fn check_type(&self, stat: &Stat, target: &Target) -> FsResult<()> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(()),
            FileType::RegularFile if target.must_be_folder => Err(ErrorCode::NotDirectory.into()),
            FileType::RegularFile if stat.st_nlink > 1 => {
                Err(self.refuse("open a file that has more than one hard link:", target.path.as_str()))
            }
            FileType::RegularFile => Ok(()),
            FileType::Symlink if self.mounts[target.mount].follows_links => Ok(()),
            _ => Err(self.refuse("open something that is neither a file nor a folder:", target.path.as_str())),
        }
    }

    fn stat(&self, stat: &Stat) -> types::DescriptorStat {
        let time = |seconds: i64, nanoseconds: u64| match self.clock {
            // The time of a file that was just written is a clock.
            Clock::Frozen => None,
            clock => Some(Datetime {
                seconds: u64::try_from(seconds).unwrap_or(0),
                nanoseconds: if clock == Clock::Real { u32::try_from(nanoseconds).unwrap_or(0) } else { 0 },
            }),
        };
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the widths differ by platform")]
        types::DescriptorStat {
            type_: descriptor_type(FileType::from_raw_mode(stat.st_mode)),
            link_count: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            data_access_timestamp: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
            data_modification_timestamp: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            status_change_timestamp: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    /// Before something is opened: whether the limit has room for it.
    fn check_open(&self) -> Result<(), LimitHit> {
        match self.limits.files {
            Some(limit) if (self.places.len() + self.listings.len()) as u64 >= limit => {
                let text = format!("the limit `files` of {limit} open files and folders was reached");
                Err(self.ledger.hit(LimitHit::new(Code::LimitFiles, text)))
            }
            _ => Ok(()),
        }
    }

    /// Before something is created: whether the quota has room for it.
    fn check_entries(&self) -> FsResult<()> {
        self.ledger.check_entries(self.limits.entries).map_err(trap)
    }

    fn count_entry(&self) -> FsResult<()> {
        self.ledger.count_entry(self.limits.entries).map_err(trap)
    }
}

fn trap(hit: LimitHit) -> FsError {
    FsError::trap(hit)
}

fn errno(error: Errno) -> FsError {
    match error {
        // What a path that leads out of its folder, or over a link where none is followed, ends in.
        Errno::XDEV | Errno::LOOP | Errno::MLINK => ErrorCode::NotPermitted.into(),
        error => std::io::Error::from(error).into(),
    }
}

/// For kernels without `openat2`: one component at a time, following no link at all.
fn open_by_steps(mount: BorrowedFd<'_>, relative: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut at: Option<OwnedFd> = None;
    let mut names = relative.split('/').peekable();
    while let Some(name) = names.next() {
        let here = at.as_ref().map_or(mount, OwnedFd::as_fd);
        if names.peek().is_none() {
            return rustix::fs::openat(here, name, flags | OFlags::NOFOLLOW, mode);
        }
        let step = LOOK | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = Some(rustix::fs::openat(here, name, step, Mode::empty())?);
    }
    Err(Errno::NOENT)
}

fn descriptor_type(kind: FileType) -> types::DescriptorType {
    match kind {
        FileType::RegularFile => types::DescriptorType::RegularFile,
        FileType::Directory => types::DescriptorType::Directory,
        FileType::Symlink => types::DescriptorType::SymbolicLink,
        _ => types::DescriptorType::Unknown,
    }
}
