//! Tries to reach files and facts that were not granted.
//!
//! `std` is used directly, as an attacker would. Every function says honestly what it got.

/// Attacks on files, and on what a sandbox keeps of the world outside.
#[portcullis_guest::tools]
mod escape {
    use std::fs::{self, File};
    use std::io::{self, Read, Write};
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    /// Everything here that could tell one call from another: clocks, randomness, addresses.
    pub fn surroundings(salt: Option<String>) -> String {
        use std::hash::{BuildHasher, RandomState};
        let wall = std::time::SystemTime::now();
        let start = std::time::Instant::now();
        let waited = (0..1_000).map(|_| start.elapsed().as_nanos()).max();
        let hash = RandomState::new().hash_one(salt);
        let order: std::collections::HashSet<u32> = (0..32).collect();
        format!("{wall:?} {waited:?} {hash} {:?}", order.into_iter().collect::<Vec<_>>())
    }

    /// What one attack got, or why it got nothing.
    type Got = Result<String, String>;

    fn told<T: ToString>(result: io::Result<T>) -> Got {
        result.map(|got| got.to_string()).map_err(|error| format!("{:?}: {error}", error.kind()))
    }

    fn done(result: io::Result<()>) -> Got {
        told(result.map(|()| "done"))
    }

    // One operation on exactly one path.

    pub fn read(path: String) -> Got {
        told(fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub fn write(path: String, text: String) -> Got {
        done(fs::write(path, text))
    }

    pub fn append(path: String, text: String) -> Got {
        let opened = File::options().append(true).open(path);
        done(opened.and_then(|mut file| file.write_all(text.as_bytes())))
    }

    pub fn list(path: String) -> Got {
        let names = fs::read_dir(path).and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<Vec<_>>>()
        });
        told(names.map(|mut names| {
            names.sort();
            names.join("\n")
        }))
    }

    pub fn stat(path: String) -> Got {
        told(fs::metadata(path).map(|found| format!("{:?} {}", found.file_type(), found.len())))
    }

    pub fn stat_link(path: String) -> Got {
        told(fs::symlink_metadata(path).map(|found| format!("{:?}", found.file_type())))
    }

    pub fn make_folder(path: String) -> Got {
        done(fs::create_dir(path))
    }

    pub fn remove_folder(path: String) -> Got {
        done(fs::remove_dir(path))
    }

    pub fn remove_file(path: String) -> Got {
        done(fs::remove_file(path))
    }

    pub fn rename(from: String, to: String) -> Got {
        done(fs::rename(from, to))
    }

    pub fn hard_link(original: String, link: String) -> Got {
        done(fs::hard_link(original, link))
    }

    /// Make a symbolic link and read through it.
    pub fn symlink(original: String, link: String) -> Got {
        #[allow(deprecated, reason = "the only stable symlink function on this target")]
        done(fs::soft_link(original, &link))?;
        read(link)
    }

    pub fn read_link(path: String) -> Got {
        told(fs::read_link(path).map(|target| target.display().to_string()))
    }

    /// Empty a file while opening it.
    pub fn truncate(path: String) -> Got {
        done(File::options().write(true).truncate(true).open(path).map(drop))
    }

    /// Empty a file after opening it, for reading only if need be.
    pub fn set_length(path: String, length: u64) -> Got {
        let opened = File::options().write(true).open(&path);
        let opened = opened.or_else(|_| File::open(&path));
        done(opened.and_then(|file| file.set_len(length)))
    }

    pub fn set_times(path: String) -> Got {
        let opened = File::options().write(true).open(&path);
        let opened = opened.or_else(|_| File::open(&path));
        done(opened.and_then(|file| file.set_modified(UNIX_EPOCH)))
    }

    pub fn create_new(path: String) -> Got {
        done(File::create_new(path).map(drop))
    }

    // The same by all tricks that the author of this file knows.

    /// Read a path by every trick: the content by the first that works.
    pub fn try_read(path: String) -> Got {
        by_tricks(&path, read)
    }

    /// Write a path by every trick.
    pub fn try_write(path: String) -> Got {
        by_tricks(&path, |path| write(path, "written by an attacker".to_owned()))
    }

    /// List a path by every trick.
    pub fn try_list(path: String) -> Got {
        by_tricks(&path, list)
    }

    /// Spellings of one path, with `/data` as the folder that was granted.
    fn spellings(path: &str) -> Vec<String> {
        let relative = path.trim_start_matches('/');
        vec![
            path.to_owned(),
            relative.to_owned(),
            format!("{path}/"),
            format!("{path}/."),
            format!("/{path}"),
            format!("/data/{relative}"),
            format!("/data/../{relative}"),
            format!("data/../{relative}"),
            format!("/data/../../../../../../../../{relative}"),
            format!("/data/./x/../../../{relative}"),
            format!("/data//../{relative}"),
            format!("/proc/self/root/{relative}"),
            format!("/data/../proc/self/root/{relative}"),
            format!("/proc/self/cwd/{relative}"),
            format!("/proc/self/fd/3/../{relative}"),
            format!("/dev/fd/3/../{relative}"),
            format!("{path}\0"),
            format!("/data\\..\\{relative}"),
        ]
    }

    fn by_tricks(path: &str, attack: impl Fn(String) -> Got) -> Got {
        let mut refusals = Vec::new();
        for spelling in spellings(path) {
            match attack(spelling.clone()) {
                Ok(got) => return Ok(got),
                Err(refusal) => refusals.push(format!("{spelling:?}: {refusal}")),
            }
        }
        Err(refusals.join("\n"))
    }

    // Quotas.

    /// Write a file until this many bytes are in it: how many were written.
    pub fn fill(path: String, bytes: u64) -> Got {
        let block = [b'x'; 64 * 1024];
        let mut file = File::create(path).map_err(|error| error.to_string())?;
        let mut written = 0;
        while written < bytes {
            let next = block.len().min((bytes - written) as usize);
            if let Err(error) = file.write_all(&block[..next]) {
                return Err(format!("after {written} bytes: {:?}: {error}", error.kind()));
            }
            written += next as u64;
        }
        Ok(format!("{written} bytes"))
    }

    /// Create many empty files in a folder.
    pub fn create_many(folder: String, count: u32) -> Got {
        for number in 0..count {
            if let Err(error) = File::create(format!("{folder}/{number}")) {
                return Err(format!("after {number} files: {:?}: {error}", error.kind()));
            }
        }
        Ok(format!("{count} files"))
    }

    /// Hold a file open many times at once.
    pub fn open_many(path: String, count: u32) -> Got {
        let mut held = Vec::new();
        for number in 0..count {
            match File::open(&path) {
                Ok(file) => held.push(file),
                Err(error) => return Err(format!("after {number}: {:?}: {error}", error.kind())),
            }
        }
        Ok(format!("{} open", held.len()))
    }

    // Facts of the world outside.

    /// Every environment variable.
    pub fn env() -> Vec<(String, String)> {
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect()
    }

    /// Every argument of the process.
    pub fn args() -> Vec<String> {
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    /// All that stdin gives.
    pub fn stdin() -> Got {
        let mut bytes = Vec::new();
        let read = io::stdin().read_to_end(&mut bytes);
        told(read.map(|_| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The wall clock, in nanoseconds since 1970.
    pub fn now() -> Got {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map(|now| now.as_nanos().to_string()).map_err(|error| error.to_string())
    }

    /// The monotonic clock, as `std` prints it.
    pub fn monotonic() -> String {
        format!("{:?}", Instant::now())
    }

    /// Two numbers that nobody should be able to guess.
    pub fn random() -> Result<(u64, u64), String> {
        let first = getrandom::u64().map_err(|error| error.to_string())?;
        let second = getrandom::u64().map_err(|error| error.to_string())?;
        Ok((first, second))
    }

    /// The seed of `std`'s hash maps, hashed.
    pub fn seed() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(0)
    }
}
