//! `wasi:filesystem` on the guard: every path goes through it, and what it opened goes to wasmtime-wasi.

use std::fs::File as StdFile;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::filesystem::{Descriptor, Dir, File, FsPerms, OpenMode, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsError, FsResult, OutputStream, Pollable, StreamError, StreamResult,
};

use super::super::ledger::{Ledger, LimitHit};
use super::{FileHandles, LISTING_MAX, ON_THIS_THREAD, Place, Target, errno, trap};
use crate::authority::clock::Clock;
use crate::authority::files::Access;
use crate::authority::path::GuestPath;
use crate::gate::codes::Code;
use types::ErrorCode;

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
