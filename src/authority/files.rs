//! Files: which guest paths a call may touch, and how.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::layers::{Layer, Layers};
use super::path::{Glob, GuestPath};

/// What may be done to a path. Each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read files, list folders.
    #[default]
    Read,
    /// Also make files and folders that were not there, and write those.
    Create,
    /// Also change and remove what is there.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
        })
    }
}

/// A folder, or a file, under one guest path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileGrant {
    /// Where the guest sees it.
    pub guest: GuestPath,
    /// The folder on the host. Only the host's configuration has one; what a package declares and what narrows has
    /// none and constrains guest paths alone.
    pub host: Option<PathBuf>,
    /// The most that may be done.
    pub access: Access,
    /// Patterns of which a path must match one; empty means every path.
    pub only: BTreeSet<Glob>,
    /// Patterns of which neither a path nor a folder above it may match one.
    pub except: BTreeSet<Glob>,
}

impl FileGrant {
    /// Everything under `guest`, with no folder behind it.
    pub fn new(guest: GuestPath, access: Access) -> Self {
        Self { guest, host: None, access, only: BTreeSet::new(), except: BTreeSet::new() }
    }

    fn allows(&self, path: &GuestPath) -> bool {
        (self.only.is_empty() || self.only.iter().any(|glob| glob.matches(path))) && !self.excludes(path)
    }

    fn excludes(&self, path: &GuestPath) -> bool {
        self.except.iter().any(|glob| glob.matches_at_or_above(path))
    }

    fn may_hold(&self, folder: &GuestPath) -> bool {
        (self.only.is_empty() || self.only.iter().any(|glob| glob.may_match_within(folder))) && !self.excludes(folder)
    }
}

impl fmt::Display for FileGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.access, self.guest)?;
        if let Some(host) = &self.host {
            write!(f, " ← {}", host.display())?;
        }
        if !self.only.is_empty() {
            write!(f, ", only {}", join(&self.only))?;
        }
        if !self.except.is_empty() {
            write!(f, ", except {}", join(&self.except))?;
        }
        Ok(())
    }
}

/// One constraint on files. The longest guest prefix alone decides for a path; no prefix means no access.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileLayer {
    grants: BTreeSet<FileGrant>,
}

impl FileLayer {
    /// A layer of grants with different guest paths.
    pub fn new(grants: impl IntoIterator<Item = FileGrant>) -> Self {
        Self { grants: grants.into_iter().collect() }
    }

    /// The grants.
    pub(super) fn grants(&self) -> impl Iterator<Item = &FileGrant> {
        self.grants.iter()
    }

    /// The grants that decide for a path: those with the longest guest path above it. A narrowing may have several.
    fn deciders(&self, path: &GuestPath) -> Vec<&FileGrant> {
        let above = |grant: &&FileGrant| path.is_within(&grant.guest);
        let length = |grant: &FileGrant| grant.guest.as_str().len();
        let longest = self.grants.iter().filter(above).map(length).max();
        self.grants.iter().filter(above).filter(|grant| Some(length(grant)) == longest).collect()
    }

    fn access(&self, path: &GuestPath) -> Option<Access> {
        self.deciders(path).into_iter().filter(|grant| grant.allows(path)).map(|grant| grant.access).max()
    }

    fn may_hold(&self, folder: &GuestPath) -> bool {
        self.deciders(folder).into_iter().any(|grant| grant.may_hold(folder))
            || self.grants.iter().any(|grant| grant.guest.is_within(folder) && grant.may_hold(&grant.guest))
    }

    fn has_host(&self) -> bool {
        self.grants.iter().any(|grant| grant.host.is_some())
    }
}

impl Layer for FileLayer {
    fn is_nothing(&self) -> bool {
        self.grants.is_empty()
    }
}

/// The axis.
pub type Files = Layers<FileLayer>;

/// A folder of the host at a guest path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mount {
    /// Where the guest sees it.
    pub guest: GuestPath,
    /// The folder on the host.
    pub host: PathBuf,
}

impl Layers<FileLayer> {
    /// The most that may be done to `path`; none where it may not even be read.
    pub fn access(&self, path: &GuestPath) -> Option<Access> {
        let mut least = Access::Write;
        for layer in self.iter() {
            least = least.min(layer.access(path)?);
        }
        Some(least)
    }

    /// Whether something that may be read can lie at or beneath `folder`, so that it may be opened on the way.
    pub fn may_hold(&self, folder: &GuestPath) -> bool {
        self.iter().all(|layer| layer.may_hold(folder))
    }

    /// Whether links inside the folder mounted at `mount` may be followed: only where every path beneath it is decided
    /// alike, since elsewhere a link's name could be allowed where its target is not.
    pub fn follows_links(&self, mount: &GuestPath) -> bool {
        self.iter().all(|layer| {
            let nested = layer.grants.iter().any(|grant| grant.guest != *mount && grant.guest.is_within(mount));
            let plain = |grant: &FileGrant| grant.only.is_empty() && grant.except.is_empty();
            let deciders = layer.deciders(mount);
            !nested && !deciders.is_empty() && deciders.into_iter().all(plain)
        })
    }

    /// The host folders to open: those on which every layer with host folders agrees, and which can hold something.
    pub fn mounts(&self) -> Vec<Mount> {
        let with_host: Vec<&FileLayer> = self.iter().filter(|layer| layer.has_host()).collect();
        let Some((first, others)) = with_host.split_first() else {
            return Vec::new();
        };
        first
            .grants
            .iter()
            .filter_map(|grant| {
                let host = grant.host.clone()?;
                let agreed = others
                    .iter()
                    .all(|layer| layer.grants.iter().any(|g| g.guest == grant.guest && g.host.as_ref() == Some(&host)));
                let mount = Mount { guest: grant.guest.clone(), host };
                (agreed && self.may_hold(&grant.guest)).then_some(mount)
            })
            .collect()
    }

    /// For people: what this grants of host folders and `declared` leaves nothing or less of.
    pub fn beyond(&self, declared: &Self) -> Vec<String> {
        let grants = self.iter().flat_map(|layer| &layer.grants).filter(|grant| grant.host.is_some());
        let judged = grants.filter_map(|grant| {
            let guest = &grant.guest;
            if !declared.may_hold(guest) {
                return Some(format!("grants files at `{guest}`, which the package does not declare"));
            }
            let touching = |other: &&FileGrant| guest.is_within(&other.guest) || other.guest.is_within(guest);
            let most = |layer: &FileLayer| layer.grants.iter().filter(touching).map(|other| other.access).max();
            let most = declared.iter().map(most).min().flatten().unwrap_or(Access::Write);
            (grant.access > most)
                .then(|| format!("grants {} at `{guest}`, and the package declares {most}", grant.access))
        });
        judged.collect()
    }

    /// Every host folder that a layer names.
    pub fn hosts(&self) -> Vec<PathBuf> {
        self.iter().flat_map(|layer| &layer.grants).filter_map(|grant| grant.host.clone()).collect()
    }

    /// Whether anything may be written.
    pub fn can_write(&self) -> bool {
        self.can_do(Access::Create)
    }

    /// Whether there can be a path with at least `access`.
    pub fn can_do(&self, access: Access) -> bool {
        !self.is_nothing() && self.iter().all(|layer| layer.grants.iter().any(|grant| grant.access >= access))
    }

    /// For people: one line a grant.
    pub fn lines(&self) -> Vec<String> {
        if self.is_everything() {
            return vec!["any file".to_owned()];
        }
        let exact = self.exact_paths();
        if let Some(paths) = exact {
            return paths
                .iter()
                .map(|path| match self.access(path) {
                    Some(access) => format!("{access} {path}"),
                    None => format!("nothing at {path}, which lies outside of the grant"),
                })
                .collect();
        }
        let mounts = self.mounts();
        if self.iter().any(FileLayer::has_host) {
            return mounts.iter().map(|mount| self.mount_line(mount)).collect();
        }
        self.iter().flat_map(|layer| &layer.grants).map(ToString::to_string).collect()
    }

    /// What all layers together leave of one folder.
    fn mount_line(&self, mount: &Mount) -> String {
        let mut access = Access::Write;
        let mut only = Vec::new();
        let mut except = BTreeSet::new();
        for layer in self.iter() {
            let deciders = layer.deciders(&mount.guest);
            if deciders.is_empty() {
                let inside: Vec<&FileGrant> = layer.grants.iter().filter(|g| g.guest.is_within(&mount.guest)).collect();
                access = access.min(inside.iter().map(|grant| grant.access).max().unwrap_or_default());
                only.push(inside.iter().map(|grant| format!("{}/**", grant.guest)).collect::<Vec<_>>().join(", "));
                continue;
            }
            let most = deciders.iter().map(|grant| grant.access).max().unwrap_or_default();
            access = access.min(most);
            except.extend(deciders.iter().flat_map(|grant| &grant.except).map(ToString::to_string));
            if deciders.iter().all(|grant| !grant.only.is_empty()) {
                let pattern = |grant: &FileGrant, glob: &Glob| {
                    if grant.access < most { format!("{glob} ({})", grant.access) } else { glob.to_string() }
                };
                let patterns = deciders.iter().flat_map(|grant| grant.only.iter().map(|glob| pattern(grant, glob)));
                only.push(patterns.collect::<Vec<_>>().join(", "));
            }
        }
        let mut line = format!("{access} {} ← {}", mount.guest, mount.host.display());
        for (index, patterns) in only.iter().enumerate() {
            line.push_str(&format!(", {}only {patterns}", if index == 0 { "" } else { "and of these " }));
        }
        if !except.is_empty() {
            line.push_str(&format!(", except {}", except.into_iter().collect::<Vec<_>>().join(", ")));
        }
        line
    }

    /// The paths that are all a call gets, where a layer names single paths.
    fn exact_paths(&self) -> Option<Vec<GuestPath>> {
        self.iter().find_map(|layer| {
            let mut paths = Vec::new();
            for grant in &layer.grants {
                if grant.only.is_empty() {
                    return None;
                }
                for glob in &grant.only {
                    paths.push(glob.as_exact()?);
                }
            }
            (!paths.is_empty()).then_some(paths)
        })
    }

    /// As data, for digests and `--json`.
    pub fn to_json(&self) -> Json {
        let layers: Vec<Json> = self
            .iter()
            .map(|layer| {
                let grants: Vec<Json> = layer
                    .grants
                    .iter()
                    .map(|grant| {
                        json!({
                            "guest": grant.guest.as_str(),
                            "host": grant.host.as_ref().map(|host| host.display().to_string()),
                            "access": grant.access,
                            "only": grant.only.iter().map(ToString::to_string).collect::<Vec<_>>(),
                            "except": grant.except.iter().map(ToString::to_string).collect::<Vec<_>>(),
                        })
                    })
                    .collect();
                Json::Array(grants)
            })
            .collect();
        Json::Array(layers)
    }
}

fn join(globs: &BTreeSet<Glob>) -> String {
    globs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> GuestPath {
        text.parse().unwrap()
    }

    fn grant(guest: &str, access: Access, only: &[&str], except: &[&str]) -> FileGrant {
        FileGrant {
            only: only.iter().map(|g| g.parse().unwrap()).collect(),
            except: except.iter().map(|g| g.parse().unwrap()).collect(),
            ..FileGrant::new(path(guest), access)
        }
    }

    fn files(grants: &[FileGrant]) -> Files {
        Files::of(FileLayer::new(grants.iter().cloned()))
    }

    #[test]
    fn the_longest_guest_prefix_alone_decides() {
        let files = files(&[grant("/data", Access::Write, &[], &[]), grant("/data/fixed", Access::Read, &[], &[])]);
        assert_eq!(files.access(&path("/data/a")), Some(Access::Write));
        assert_eq!(files.access(&path("/data/fixed/a")), Some(Access::Read));
        assert_eq!(files.access(&path("/other")), None);
    }

    #[test]
    fn what_is_beneath_an_excepted_folder_is_excepted() {
        let files = files(&[grant("/data", Access::Read, &[], &["**/.git"])]);
        assert_eq!(files.access(&path("/data/x/.git/config")), None);
        assert!(!files.may_hold(&path("/data/x/.git")));
        assert_eq!(files.access(&path("/data/x/.gitignore")), Some(Access::Read));
    }

    #[test]
    fn a_narrowed_folder_can_be_opened_only_on_the_way() {
        let narrowed = files(&[grant("/data", Access::Write, &[], &[])]).meet(&files(&[grant(
            "/",
            Access::Write,
            &["/data/public/q3.csv"],
            &[],
        )]));
        assert_eq!(narrowed.access(&path("/data/public/q3.csv")), Some(Access::Write));
        assert_eq!(narrowed.access(&path("/data/public/q4.csv")), None);
        assert_eq!(narrowed.access(&path("/data/public")), None);
        assert!(narrowed.may_hold(&path("/data/public")));
        assert!(!narrowed.may_hold(&path("/data/private")));
        assert_eq!(narrowed.lines(), ["write /data/public/q3.csv"]);
    }

    #[test]
    fn people_are_shown_what_all_constraints_together_leave() {
        let configured = FileGrant { host: Some("/srv".into()), ..grant("/data", Access::Read, &[], &["**/.env"]) };
        let needs = files(&[grant("/data", Access::Write, &[], &[])]);
        let narrowed = files(&[configured]).meet(&needs);
        assert_eq!(narrowed.lines(), ["read /data ← /srv, except /**/.env"]);
        let again = narrowed.meet(&files(&[grant("/", Access::Write, &["/data/**/*.csv"], &[])]));
        assert_eq!(again.lines(), ["read /data ← /srv, only /data/**/*.csv, except /**/.env"]);
        let inside = narrowed.meet(&files(&[grant("/data/sub", Access::Write, &[], &[])]));
        assert_eq!(inside.lines(), ["read /data ← /srv, only /data/sub/**, except /**/.env"]);
    }
}
