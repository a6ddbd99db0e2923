//! Names and digests. Parsed once at the edge; after that nothing is a string that means something.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest package name, in bytes.
pub const PACKAGE_NAME_MAX: usize = 64;

/// The name under which a package is installed: the key of its `[tools.NAME]` table.
///
/// Shape: `[A-Za-z][A-Za-z0-9_-]*`, at most [`PACKAGE_NAME_MAX`] bytes, so that every wire name starts with
/// a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackageName(String);

impl PackageName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PackageName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if first && rest && text.len() <= PACKAGE_NAME_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::Package)
        }
    }
}

impl TryFrom<String> for PackageName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<PackageName> for String {
    fn from(name: PackageName) -> String {
        name.0
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One callable function of a package: `package/function` or `package/interface.function`.
///
/// Exactly one `/`. The part after it holds `[A-Za-z0-9_.-]` only, `%XX` for any other byte of a foreign name,
/// and a leading `@` for what the host itself adds to a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolId {
    text: String,
    slash: usize,
}

impl ToolId {
    /// The id of `function` in `package`; bytes that an id cannot hold are written `%XX`.
    pub fn new(package: &PackageName, function: &str) -> Self {
        let mut text = String::with_capacity(package.as_str().len() + 1 + function.len());
        text.push_str(package.as_str());
        let slash = text.len();
        text.push('/');
        for (index, byte) in function.bytes().enumerate() {
            if is_id_byte(byte) || (index == 0 && byte == b'@') {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        Self { text, slash }
    }

    /// Stands for a text that is no id at all, which no tool can have: a record needs a name for it, and what a caller
    /// wrote is not one.
    pub(crate) fn unknown() -> Self {
        Self { text: "?/?".to_owned(), slash: 1 }
    }

    /// Whether this is an id, and does not stand for a text that is none.
    pub(crate) fn is_known(&self) -> bool {
        self.slash > 1 || !self.text.starts_with('?')
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part before the `/`.
    pub fn package(&self) -> &str {
        &self.text[..self.slash]
    }

    /// The part after the `/`.
    pub fn function(&self) -> &str {
        &self.text[self.slash + 1..]
    }
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

impl FromStr for ToolId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (package, function) = text.split_once('/').ok_or(NameError::Tool)?;
        package.parse::<PackageName>().map_err(|_| NameError::Tool)?;
        let body = function.strip_prefix('@').unwrap_or(function);
        let bytes = body.as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            if is_id_byte(bytes[index]) {
                index += 1;
            } else if bytes[index] == b'%'
                && bytes[index + 1..].len() >= 2
                && bytes[index + 1..index + 3].iter().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(b))
            {
                index += 3;
            } else {
                return Err(NameError::Tool);
            }
        }
        if body.is_empty() {
            return Err(NameError::Tool);
        }
        Ok(Self { text: text.to_owned(), slash: package.len() })
    }
}

impl TryFrom<String> for ToolId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ToolId> for String {
    fn from(id: ToolId) -> String {
        id.text
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a package name.
    #[error("a package name starts with a letter and holds letters, digits, `-` and `_`, at most 64 of them")]
    Package,
    /// Not a tool id.
    #[error("a tool id has the form package/function or package/interface.function")]
    Tool,
    /// Not a capability id.
    #[error(
        "a capability id starts with a lower-case letter and holds lower-case letters, digits, `-` and `_`, at most 64 of them"
    )]
    Capability,
    /// Not a principal.
    #[error("a principal is `local` or `named:NAME`")]
    Principal,
    /// Not a run id.
    #[error("a run id has 32 hexadecimal digits")]
    Run,
    /// Not an operation id.
    #[error("an operation id has the form run/step/call")]
    Operation,
    /// Not the id of a launch grant.
    #[error("the id of a launch grant has the form g-0123456789ab")]
    Grant,
    /// Not the id of a ticket.
    #[error("the id of a ticket has the form t-0123456789ab")]
    Ticket,
    /// Not the id of a process that owns runs.
    #[error("the id of an owner has 32 hexadecimal digits")]
    Owner,
}

/// What a launch grant is given for: a capability that a manifest declares, or, without a manifest, a tool id.
///
/// The two cannot be mistaken for each other: only a tool id holds a `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapabilityId(String);

impl CapabilityId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The capability of a call that no manifest speaks of.
    pub fn of_tool(tool: &ToolId) -> Self {
        Self(tool.as_str().to_owned())
    }

    /// Whether it is a tool id.
    pub fn is_tool_id(&self) -> bool {
        self.0.contains('/')
    }
}

impl FromStr for CapabilityId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if (first && rest && text.len() <= 64) || text.parse::<ToolId>().is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::Capability)
        }
    }
}

impl TryFrom<String> for CapabilityId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<CapabilityId> for String {
    fn from(id: CapabilityId) -> String {
        id.0
    }
}

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! short_id {
    ($(#[$doc:meta])* $name:ident $prefix:literal $error:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 6]);

        impl $name {
            /// A new random id.
            ///
            /// # Errors
            ///
            /// The operating system has no randomness to give.
            pub fn random() -> Result<Self, getrandom::Error> {
                let mut bytes = [0; 6];
                getrandom::fill(&mut bytes)?;
                Ok(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, hex::encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let mut bytes = [0; 6];
                let digits = text.strip_prefix($prefix).ok_or(NameError::$error)?;
                hex::decode_to_slice(digits, &mut bytes).map_err(|_| NameError::$error)?;
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

short_id! {
    /// The id of a launch grant: a name to revoke it by, and no secret.
    GrantId "g-" Grant
}
short_id! {
    /// The id of a ticket: the durable record that a call awaits an answer. A name to answer it by, and no secret.
    TicketId "t-" Ticket
}

macro_rules! digest_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The SHA-256 of `bytes`.
            pub fn of(bytes: &[u8]) -> Self {
                Self(Sha256::digest(bytes).into())
            }

            /// The 32 bytes.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Wraps 32 bytes that are already a digest.
            pub fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The first 8 hexadecimal digits, for people.
            pub fn short(&self) -> String {
                hex::encode(&self.0[..4])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }

        impl FromStr for $name {
            type Err = hex::FromHexError;

            fn from_str(text: &str) -> Result<Self, hex::FromHexError> {
                let mut bytes = [0; 32];
                hex::decode_to_slice(text, &mut bytes)?;
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(|_| serde::de::Error::custom("expected 64 hexadecimal digits"))
            }
        }
    };
}

digest_type! {
    /// The SHA-256 of a package's bytes: what `portcullis.lock` pins.
    PackageDigest
}
digest_type! {
    /// The digest of one descriptor: what the model was shown.
    DescriptorDigest
}
digest_type! {
    /// The digest of one exact call: tool id, package digest and canonical arguments.
    CallDigest
}
digest_type! {
    /// The digest of a whole snapshot.
    Fingerprint
}
digest_type! {
    /// The digest of a consent's token: all that is kept of it.
    ConsentDigest
}

impl CallDigest {
    /// Binds tool, package and canonical arguments. Each part is length-prefixed, so that no two calls share
    /// an encoding.
    pub fn of_call(tool: &ToolId, package: &PackageDigest, canonical: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        for part in [b"portcullis-call-1".as_slice(), tool.as_str().as_bytes(), package.as_bytes(), canonical] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

/// Who asks. Made by the host at the protocol edge, never read from arguments, text or tool output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// The user who runs the process.
    Local,
    /// A key or identity with a name.
    Named(String),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Named(name) => write!(f, "named:{name}"),
        }
    }
}

impl FromStr for Principal {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix("named:") {
            Some(name) if !name.is_empty() && !name.chars().any(char::is_control) => Ok(Self::Named(name.to_owned())),
            None if text == "local" => Ok(Self::Local),
            _ => Err(NameError::Principal),
        }
    }
}

macro_rules! long_id {
    ($(#[$doc:meta])* $name:ident $error:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// A new random id.
            ///
            /// # Errors
            ///
            /// The operating system has no randomness to give.
            pub fn random() -> Result<Self, getrandom::Error> {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes)?;
                Ok(Self(u128::from_le_bytes(bytes)))
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let id = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
                id.map(Self).ok_or(NameError::$error)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

long_id! {
    /// One `call` on the command line, or one MCP session: 128 random bits.
    RunId Run
}
long_id! {
    /// One process, or one host in it, that owns runs while it lives: 128 random bits.
    OwnerId Owner
}

/// Run, step and call index: the idempotency key everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    /// The run.
    pub run: RunId,
    /// The step of the run, from 0.
    pub step: u64,
    /// The call of the step, from 0.
    pub call: u32,
}

impl FromStr for OperationId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut parts = text.splitn(3, '/');
        let mut next = || parts.next().ok_or(NameError::Operation);
        Ok(Self {
            run: next()?.parse()?,
            step: next()?.parse().map_err(|_| NameError::Operation)?,
            call: next()?.parse().map_err(|_| NameError::Operation)?,
        })
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.step, self.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_id_has_exactly_one_slash() {
        for good in ["files/read", "a/b.c", "p/@start", "p/x%2Fy", "P-1_/f"] {
            assert_eq!(good.parse::<ToolId>().unwrap().as_str(), good);
        }
        for bad in ["", "files", "files/", "/read", "a/b/c", "a/b c", "a/%2", "a/%2f", "1a/b", "a/@", "a/b@", "a/é"] {
            assert_eq!(bad.parse::<ToolId>(), Err(NameError::Tool), "{bad}");
        }
    }

    #[test]
    fn foreign_bytes_are_escaped_and_the_result_parses() {
        let package: PackageName = "p".parse().unwrap();
        let id = ToolId::new(&package, "läs/fil @x");
        assert_eq!(id.as_str(), "p/l%C3%A4s%2Ffil%20%40x");
        assert_eq!(id.as_str().parse::<ToolId>().unwrap(), id);
        assert_eq!((id.package(), id.function()), ("p", "l%C3%A4s%2Ffil%20%40x"));
    }

    #[test]
    fn ids_survive_being_written_and_read() {
        let grant = GrantId::random().unwrap();
        assert_eq!(grant.to_string().parse(), Ok(grant));
        let run = RunId::random().unwrap();
        assert_eq!(run.to_string().parse(), Ok(run));
        let operation = OperationId { run, step: 7, call: 2 };
        assert_eq!(operation.to_string().parse(), Ok(operation));
        for principal in [Principal::Local, Principal::Named("a b:c".to_owned())] {
            assert_eq!(principal.to_string().parse(), Ok(principal));
        }
        for bad in ["g-", "g-12", "g-0123456789abcd", "0123456789ab", "g-zzzzzzzzzzzz"] {
            assert_eq!(bad.parse::<GrantId>(), Err(NameError::Grant), "{bad}");
        }
        for bad in ["", "+1", "local ", "named:", "root"] {
            assert!(bad.parse::<Principal>().is_err() && bad.parse::<RunId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_capability_is_no_tool_id_by_accident() {
        assert!(!"accounting-read".parse::<CapabilityId>().unwrap().is_tool_id());
        assert!("accounting/read".parse::<CapabilityId>().unwrap().is_tool_id());
        for bad in ["", "-a", "A", "a.b", "a b", "1a", "/a"] {
            assert_eq!(bad.parse::<CapabilityId>(), Err(NameError::Capability), "{bad}");
        }
    }

    #[test]
    fn calls_that_differ_in_one_part_differ_in_digest() {
        let tool: ToolId = "a/b".parse().unwrap();
        let other: ToolId = "a/bc".parse().unwrap();
        let package = PackageDigest::of(b"x");
        let digest = CallDigest::of_call(&tool, &package, b"{}");
        assert_ne!(digest, CallDigest::of_call(&other, &package, b"{}"));
        assert_ne!(digest, CallDigest::of_call(&tool, &PackageDigest::of(b"y"), b"{}"));
        assert_ne!(digest, CallDigest::of_call(&tool, &package, b"{ }"));
    }
}
