//! File handles: a guard in front of wasmtime-wasi's own reading, writing and listing.
//!
//! A guest holds descriptors of folders and files. The guard knows the guest path of each, opens every path itself from
//! the granted folder downwards, checks type and link count on what it opened, and passes that descriptor on. No path ever
//! reaches wasmtime-wasi, so there is no second lookup of a name.

use std::collections::{HashMap, HashSet};
use std::fs::File as StdFile;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::filesystem::{Descriptor, Dir, File, FsPerms, OpenMode, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsError, FsResult, OutputStream, Pollable, StreamError, StreamResult,
};

use super::ledger::{Ledger, LimitHit};
use crate::authority::Authority;
use crate::authority::clock::Clock;
use crate::authority::files::{Access, Files, Mount};
use crate::authority::limits::Limits;
use crate::authority::path::{GuestPath, is_segment};
use crate::gate::codes::Code;
use types::ErrorCode;

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

/// What the bindings of `wasi:filesystem` are implemented for.
pub struct FileView<'a> {
    /// wasmtime-wasi's own implementation, for opened descriptors only.
    pub inner: WasiFilesystemCtxView<'a>,
    /// The guard.
    pub handles: &'a mut FileHandles,
}

/// Names [`FileView`] to the linker.
pub struct HasFiles;

impl HasData for HasFiles {
    type Data<'a> = FileView<'a>;
}

impl FileView<'_> {
    fn push(&mut self, descriptor: Descriptor, place: Place) -> FsResult<Resource<Descriptor>> {
        let resource = self.inner.table.push(descriptor)?;
        self.handles.places.insert(resource.rep(), place);
        Ok(resource)
    }

    fn folder(&self, fd: OwnedFd, path: &GuestPath) -> Descriptor {
        let perms = match self.handles.access(path) {
            Some(Access::Create | Access::Write) => FsPerms::ReadWrite,
            _ => FsPerms::ReadOnly,
        };
        Descriptor::Dir(Dir::new(StdFile::from(fd), perms, OpenMode::READ, ON_THIS_THREAD))
    }

    /// What a file grows by where writing starts behind its end.
    fn gap(&self, fd: &Resource<Descriptor>, offset: u64) -> FsResult<u64> {
        match self.inner.table.get(fd)? {
            Descriptor::File(file) => {
                let size = rustix::fs::fstat(&*file.file).map_err(errno)?.st_size;
                Ok(offset.saturating_sub(u64::try_from(size).unwrap_or(0)))
            }
            Descriptor::Dir(_) => Ok(0),
        }
    }

    /// Counts what will be written, on the stream that the inner implementation made.
    fn metered(&mut self, stream: Resource<DynOutputStream>) -> FsResult<Resource<DynOutputStream>> {
        let inner = self.inner.table.delete(stream)?;
        let metered = Metered { inner, ledger: self.handles.ledger.clone(), limit: self.handles.limits.written };
        Ok(self.inner.table.push(Box::new(metered) as DynOutputStream)?)
    }
}

impl preopens::Host for FileView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut directories = Vec::new();
        for mount in 0..self.handles.mounts.len() {
            self.handles.check_open()?;
            let guest = self.handles.mounts[mount].guest.clone();
            let fd = rustix::io::dup(self.handles.mounts[mount].folder.as_fd()).map_err(std::io::Error::from)?;
            let descriptor = self.folder(fd, &guest);
            let place = Place { mount, path: guest.clone(), is_folder: true };
            let resource = self.inner.table.push(descriptor)?;
            self.handles.places.insert(resource.rep(), place);
            directories.push((resource, guest.to_string()));
        }
        Ok(directories)
    }
}

impl types::Host for FileView<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        self.inner.convert_error_code(error)
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        self.inner.filesystem_error_code(error)
    }
}

impl types::HostDescriptor for FileView<'_> {
    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: types::PathFlags,
        path: String,
        open_flags: types::OpenFlags,
        flags: types::DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        use types::{DescriptorFlags, OpenFlags, PathFlags};
        let handles = &mut *self.handles;
        handles.check_open().map_err(trap)?;
        let mut target = handles.target(&fd, &path)?;
        target.must_be_folder |= open_flags.contains(OpenFlags::DIRECTORY);
        let follow = path_flags.contains(PathFlags::SYMLINK_FOLLOW);
        let writes = flags.contains(DescriptorFlags::WRITE) || open_flags.contains(OpenFlags::TRUNCATE);
        let access = handles.access(&target.path);
        if access.is_none() && !handles.files.may_hold(&target.path) {
            return Err(handles.refuse(if writes { "write" } else { "read" }, target.path.as_str()));
        }

        if open_flags.contains(OpenFlags::CREATE) {
            if open_flags.contains(OpenFlags::DIRECTORY) {
                return Err(ErrorCode::Invalid.into());
            }
            if access >= Some(Access::Create) {
                handles.check_entries()?;
                let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                match handles.open(&target, create, Mode::from_raw_mode(0o666)) {
                    Ok(file) => {
                        handles.count_entry()?;
                        handles.created.insert(target.path.clone());
                        handles.ledger.effect("file.create", target.path.to_string());
                        let mode = open_mode(flags);
                        let file = Descriptor::File(File::new(file.into(), FsPerms::ReadWrite, mode, ON_THIS_THREAD));
                        let place = Place { mount: target.mount, path: target.path, is_folder: false };
                        return self.push(file, place);
                    }
                    Err(Errno::EXIST) if !open_flags.contains(OpenFlags::EXCLUSIVE) => {}
                    Err(error) => return Err(errno(error)),
                }
            } else if open_flags.contains(OpenFlags::EXCLUSIVE) || handles.look(&target, follow).is_err() {
                return Err(handles.refuse("create", target.path.as_str()));
            }
        }

        let (_, seen) = handles.look_visible(&target, follow)?;
        let kind = FileType::from_raw_mode(seen.st_mode);
        if kind == FileType::Directory {
            if writes {
                return Err(ErrorCode::IsDirectory.into());
            }
            let opened = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
            let folder = handles.open(&target, opened, Mode::empty()).map_err(errno)?;
            let mutates = flags.contains(DescriptorFlags::MUTATE_DIRECTORY);
            if mutates && access < Some(Access::Create) {
                return Err(handles.refuse("write", target.path.as_str()));
            }
            let descriptor = self.folder(folder, &target.path);
            let place = Place { mount: target.mount, path: target.path, is_folder: true };
            return self.push(descriptor, place);
        }
        if kind == FileType::Symlink {
            return Err(ErrorCode::Loop.into());
        }
        if target.must_be_folder {
            return Err(ErrorCode::NotDirectory.into());
        }
        if access.is_none() {
            return Err(handles.refuse(if writes { "write" } else { "read" }, target.path.as_str()));
        }
        if writes && !handles.may_write(&target.path) {
            return Err(handles.refuse("write", target.path.as_str()));
        }
        let mut opened = match (flags.contains(DescriptorFlags::READ), writes) {
            (_, false) => OFlags::RDONLY,
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
        };
        opened |= OFlags::NONBLOCK;
        if !follow {
            opened |= OFlags::NOFOLLOW;
        }
        let file = handles.open(&target, opened, Mode::empty()).map_err(errno)?;
        // The name may have been given to something else since it was looked at.
        let stat = rustix::fs::fstat(&file).map_err(errno)?;
        if (stat.st_dev, stat.st_ino) != (seen.st_dev, seen.st_ino) {
            handles.check_type(&stat, &target)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(ErrorCode::NotPermitted.into());
            }
        }
        if open_flags.contains(OpenFlags::TRUNCATE) {
            rustix::fs::ftruncate(&file, 0).map_err(errno)?;
        }
        handles.ledger.effect(if writes { "file.write" } else { "file.read" }, target.path.to_string());
        let perms = if writes { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
        let file = Descriptor::File(File::new(file.into(), perms, open_mode(flags), ON_THIS_THREAD));
        let place = Place { mount: target.mount, path: target.path, is_folder: false };
        self.push(file, place)
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: types::PathFlags,
        path: String,
    ) -> FsResult<types::DescriptorStat> {
        let target = self.handles.target(&fd, &path)?;
        let follow = path_flags.contains(types::PathFlags::SYMLINK_FOLLOW);
        let (_, stat) = self.handles.look_visible(&target, follow)?;
        Ok(self.handles.stat(&stat))
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<types::DescriptorStat> {
        let mut stat = types::HostDescriptor::stat(&mut self.inner, fd).await?;
        for time in
            [&mut stat.data_access_timestamp, &mut stat.data_modification_timestamp, &mut stat.status_change_timestamp]
        {
            match self.handles.clock {
                Clock::Frozen => *time = None,
                Clock::Coarse => {
                    if let Some(time) = time {
                        time.nanoseconds = 0;
                    }
                }
                Clock::Real => {}
            }
        }
        Ok(stat)
    }

    async fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        let target = self.handles.target(&fd, &path)?;
        if self.handles.access(&target.path) < Some(Access::Create) {
            return Err(self.handles.refuse("create", target.path.as_str()));
        }
        self.handles.check_entries()?;
        let (parent, name) = self.handles.open_parent(&target)?;
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)).map_err(errno)?;
        self.handles.count_entry()?;
        self.handles.created.insert(target.path.clone());
        self.handles.ledger.effect("file.create", target.path.to_string());
        Ok(())
    }

    async fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        let target = self.handles.target(&fd, &path)?;
        self.remove(&target, AtFlags::REMOVEDIR)
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        let target = self.handles.target(&fd, &path)?;
        if target.must_be_folder {
            return Err(ErrorCode::NotDirectory.into());
        }
        self.remove(&target, AtFlags::empty())
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        old_path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        let old = self.handles.target(&fd, &old_path)?;
        let new = self.handles.target(&new_fd, &new_path)?;
        if !self.handles.may_write(&old.path) {
            return Err(self.handles.refuse("rename", old.path.as_str()));
        }
        // Under `create` a new name may be given, as long as nothing has it.
        let replaces = self.handles.may_write(&new.path);
        if !replaces && self.handles.access(&new.path) != Some(Access::Create) {
            return Err(self.handles.refuse("rename", new.path.as_str()));
        }
        let (_, stat) = self.handles.look(&old, false)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            // Everything beneath gets another name, which is only harmless where no name decides anything.
            let plain = |target: &Target| self.handles.mounts[target.mount].follows_links;
            if !plain(&old) || !plain(&new) {
                return Err(self.handles.refuse("rename a folder under a pattern:", old.path.as_str()));
            }
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // From another folder the same link may lead elsewhere, out of the grant too.
            return Err(self.handles.refuse("move a symbolic link:", old.path.as_str()));
        }
        let (old_parent, old_name) = self.handles.open_parent(&old)?;
        let (new_parent, new_name) = self.handles.open_parent(&new)?;
        match rustix::fs::statat(&new_parent, new_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.handles.check_type(&stat, &new)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(errno(error)),
        }
        let flags = if replaces { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(old_parent, old_name, new_parent, new_name, flags) {
            Err(Errno::EXIST) if !replaces => return Err(self.handles.refuse("replace", new.path.as_str())),
            renamed => renamed.map_err(errno)?,
        }
        if self.handles.created.remove(&old.path) {
            self.handles.created.insert(new.path.clone());
        }
        self.handles.ledger.effect("file.remove", old.path.to_string());
        self.handles.ledger.effect("file.create", new.path.to_string());
        Ok(())
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: types::PathFlags,
        old_path: String,
        _: Resource<Descriptor>,
        _: String,
    ) -> FsResult<()> {
        // A file with two names could be reached under the one that allows more.
        let target = self.handles.target(&fd, &old_path)?;
        Err(self.handles.refuse("make a hard link to", target.path.as_str()))
    }

    async fn symlink_at(&mut self, fd: Resource<Descriptor>, _: String, new_path: String) -> FsResult<()> {
        // What follows the link later may be a program of the host, outside of any grant.
        let target = self.handles.target(&fd, &new_path)?;
        Err(self.handles.refuse("make a symbolic link at", target.path.as_str()))
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        let target = self.handles.target(&fd, &path)?;
        if !self.handles.mounts[target.mount].follows_links || !self.handles.is_visible(&target.path, false) {
            return Err(self.handles.refuse("read", target.path.as_str()));
        }
        let (parent, name) = self.handles.open_parent(&target)?;
        let link = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(errno)?;
        let text = link.into_string().map_err(|_| ErrorCode::IllegalByteSequence)?;
        // Where an absolute link points is a fact of the host.
        if text.starts_with('/') { Err(ErrorCode::NotPermitted.into()) } else { Ok(text) }
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: types::PathFlags,
        path: String,
        access: types::NewTimestamp,
        modification: types::NewTimestamp,
    ) -> FsResult<()> {
        let target = self.handles.target(&fd, &path)?;
        if !self.handles.may_write(&target.path) {
            return Err(self.handles.refuse("write", target.path.as_str()));
        }
        self.handles.look(&target, false)?;
        let (parent, name) = self.handles.open_parent(&target)?;
        let times = Timestamps { last_access: timespec(access), last_modification: timespec(modification) };
        rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: types::PathFlags,
        path: String,
    ) -> FsResult<types::MetadataHashValue> {
        let target = self.handles.target(&fd, &path)?;
        let follow = path_flags.contains(types::PathFlags::SYMLINK_FOLLOW);
        let (file, _) = self.handles.look_visible(&target, follow)?;
        let file = Descriptor::File(File::new(file.into(), FsPerms::ReadOnly, OpenMode::READ, ON_THIS_THREAD));
        let looked = self.inner.table.push(file)?;
        let hash = self.inner.metadata_hash(Resource::new_borrow(looked.rep())).await;
        self.inner.table.delete(looked)?;
        hash
    }

    async fn read_directory(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<types::DirectoryEntryStream>> {
        let place = self.handles.place(&fd)?.clone();
        self.handles.check_open().map_err(trap)?;
        if let Descriptor::Dir(folder) = self.inner.table.get(&fd)? {
            // The whole listing is held in memory.
            let entries = rustix::fs::Dir::read_from(&*folder.dir).map_err(errno)?;
            // With `.` and `..`.
            if entries.take(LISTING_MAX + 3).count() > LISTING_MAX + 2 {
                let text = format!("a folder with more than {LISTING_MAX} entries cannot be listed");
                return Err(trap(self.handles.ledger.hit(LimitHit::new(Code::LimitFiles, text))));
            }
        }
        self.handles.ledger.effect("folder.list", place.path.to_string());
        let stream = self.inner.read_directory(fd).await?;
        self.handles.listings.insert(stream.rep(), place);
        Ok(stream)
    }

    async fn write(
        &mut self,
        fd: Resource<Descriptor>,
        buffer: Vec<u8>,
        offset: types::Filesize,
    ) -> FsResult<types::Filesize> {
        let gap = self.gap(&fd, offset)?;
        let bytes = gap.saturating_add(buffer.len() as u64);
        self.handles.ledger.count_written(bytes, self.handles.limits.written).map_err(trap)?;
        self.inner.write(fd, buffer, offset).await
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: types::Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        let gap = self.gap(&fd, offset)?;
        self.handles.ledger.count_written(gap, self.handles.limits.written).map_err(trap)?;
        let stream = self.inner.write_via_stream(fd, offset)?;
        self.metered(stream)
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<DynOutputStream>> {
        let stream = self.inner.append_via_stream(fd)?;
        self.metered(stream)
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: types::Filesize) -> FsResult<()> {
        let now = types::HostDescriptor::stat(&mut self.inner, Resource::new_borrow(fd.rep())).await?.size;
        let more = size.saturating_sub(now);
        self.handles.ledger.count_written(more, self.handles.limits.written).map_err(trap)?;
        self.inner.set_size(fd, size).await
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        access: types::NewTimestamp,
        modification: types::NewTimestamp,
    ) -> FsResult<()> {
        let place = self.handles.place(&fd)?;
        if !self.handles.may_write(&place.path) {
            return Err(self.handles.refuse("write", place.path.as_str()));
        }
        self.inner.set_times(fd, access, modification).await
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.handles.places.remove(&fd.rep());
        types::HostDescriptor::drop(&mut self.inner, fd)
    }

    // What follows works on an opened descriptor alone, so the inner implementation does it.

    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        offset: types::Filesize,
        length: types::Filesize,
        advice: types::Advice,
    ) -> FsResult<()> {
        self.inner.advise(fd, offset, length, advice).await
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.inner.sync_data(fd).await
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.inner.sync(fd).await
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<types::DescriptorFlags> {
        self.inner.get_flags(fd).await
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<types::DescriptorType> {
        self.inner.get_type(fd).await
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        length: types::Filesize,
        offset: types::Filesize,
    ) -> FsResult<(Vec<u8>, bool)> {
        self.inner.read(fd, length, offset).await
    }

    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: types::Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        self.inner.read_via_stream(fd, offset)
    }

    async fn is_same_object(&mut self, a: Resource<Descriptor>, b: Resource<Descriptor>) -> wasmtime::Result<bool> {
        self.inner.is_same_object(a, b).await
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<types::MetadataHashValue> {
        self.inner.metadata_hash(fd).await
    }
}

impl FileView<'_> {
    fn remove(&mut self, target: &Target, flags: AtFlags) -> FsResult<()> {
        if !self.handles.may_write(&target.path) {
            return Err(self.handles.refuse("remove", target.path.as_str()));
        }
        let (parent, name) = self.handles.open_parent(target)?;
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Directory | FileType::Symlink => {}
            _ => return Err(self.handles.refuse("remove", target.path.as_str())),
        }
        rustix::fs::unlinkat(parent, name, flags).map_err(errno)?;
        self.handles.created.remove(&target.path);
        self.handles.ledger.effect("file.remove", target.path.to_string());
        Ok(())
    }
}

impl types::HostDirectoryEntryStream for FileView<'_> {
    /// Shows what may be opened, and nothing else.
    async fn read_directory_entry(
        &mut self,
        stream: Resource<types::DirectoryEntryStream>,
    ) -> FsResult<Option<types::DirectoryEntry>> {
        let Some(place) = self.handles.listings.get(&stream.rep()).cloned() else {
            return Err(ErrorCode::BadDescriptor.into());
        };
        loop {
            let next = self.inner.read_directory_entry(Resource::new_borrow(stream.rep())).await;
            let entry = match next {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(None),
                // A name that is not UTF-8, or an entry that is gone by now, can't be opened either.
                Err(error) => match error.downcast_ref() {
                    Some(ErrorCode::IllegalByteSequence | ErrorCode::NoEntry | ErrorCode::Access) => continue,
                    _ => return Err(error),
                },
            };
            let Some(path) = place.path.child(&entry.name) else {
                continue;
            };
            if self.handles.mount_of(&path) != Some(place.mount) {
                continue;
            }
            let shown = match entry.type_ {
                types::DescriptorType::RegularFile => self.handles.is_visible(&path, false),
                types::DescriptorType::Directory => self.handles.is_visible(&path, true),
                types::DescriptorType::SymbolicLink => {
                    self.handles.mounts[place.mount].follows_links && self.handles.is_visible(&path, false)
                }
                _ => false,
            };
            if shown {
                return Ok(Some(entry));
            }
        }
    }

    fn drop(&mut self, stream: Resource<types::DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.handles.listings.remove(&stream.rep());
        types::HostDirectoryEntryStream::drop(&mut self.inner, stream)
    }
}

fn open_mode(flags: types::DescriptorFlags) -> OpenMode {
    let mut mode = OpenMode::empty();
    if flags.contains(types::DescriptorFlags::READ) {
        mode |= OpenMode::READ;
    }
    if flags.contains(types::DescriptorFlags::WRITE) {
        mode |= OpenMode::WRITE;
    }
    mode
}

fn timespec(time: types::NewTimestamp) -> Timespec {
    match time {
        types::NewTimestamp::NoChange => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        types::NewTimestamp::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        types::NewTimestamp::Timestamp(time) => Timespec {
            tv_sec: i64::try_from(time.seconds).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.nanoseconds.min(999_999_999)),
        },
    }
}

/// An output stream that counts.
struct Metered {
    inner: DynOutputStream,
    ledger: Arc<Ledger>,
    limit: Option<u64>,
}

#[async_trait::async_trait]
impl Pollable for Metered {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[async_trait::async_trait]
impl OutputStream for Metered {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.ledger
            .count_written(bytes.len() as u64, self.limit)
            .map_err(|hit| StreamError::Trap(wasmtime::Error::from(hit)))?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}
