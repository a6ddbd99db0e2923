//! `portcullis.lock`: which bytes each package is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::ids::{PackageDigest, PackageName};

/// Which bytes each package is, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock(pub BTreeMap<PackageName, PackageDigest>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    packages: BTreeMap<PackageName, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sha256: PackageDigest,
}

impl Lock {
    /// Parses the file's text.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if file.version != 1 {
            return Err(format!("its version is {}, and this host knows version 1", file.version));
        }
        Ok(Self(file.packages.into_iter().map(|(name, entry)| (name, entry.sha256)).collect()))
    }

    /// The file's text.
    pub fn render(&self) -> String {
        let mut text =
            "# Written by portcullis: which bytes each package is. Keep it beside portcullis.toml.\nversion = 1\n"
                .to_owned();
        for (name, digest) in &self.0 {
            let _ = write!(text, "\n[packages.{name}]\nsha256 = \"{digest}\"\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rendered_parses_to_the_same() {
        let lock = Lock(BTreeMap::from([
            ("a".parse().unwrap(), PackageDigest::of(b"a")),
            ("b-2".parse().unwrap(), PackageDigest::of(b"b")),
        ]));
        assert_eq!(Lock::parse(&lock.render()).unwrap(), lock);
        assert!(Lock::parse("version = 2").is_err());
        assert!(Lock::parse("version = 1\n[packages.a]\nsha256 = \"12\"").is_err());
    }
}
