//! Guest paths in normal form, and path patterns.

use std::fmt;
use std::str::FromStr;

/// Longest guest path, in bytes.
pub const PATH_MAX: usize = 4096;
/// Deepest guest path, in segments. Every path is held against every pattern while a guest waits, so both are bounded.
pub const DEPTH_MAX: usize = 256;
/// Most segments of a pattern.
pub const PATTERN_SEGMENTS_MAX: usize = 64;
/// Most stars within one segment of a pattern.
pub const PATTERN_STARS_MAX: usize = 8;

/// An absolute guest path in normal form: no empty, `.` or `..` segment, no NUL, no trailing slash. `/` is the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(String);

/// Why a text is no guest path or path pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Does not start with `/`.
    #[error("a guest path starts with `/`")]
    Relative,
    /// Not in normal form.
    #[error("a guest path holds no empty, `.` or `..` segment, no NUL and no trailing slash")]
    NotNormal,
    /// Longer than [`PATH_MAX`].
    #[error("a guest path has at most {PATH_MAX} bytes and {DEPTH_MAX} segments")]
    TooLong,
    /// More than [`PATTERN_SEGMENTS_MAX`] segments, or more than [`PATTERN_STARS_MAX`] stars in one of them.
    #[error("a path pattern has at most {PATTERN_SEGMENTS_MAX} segments, and {PATTERN_STARS_MAX} stars in each")]
    TooComplex,
    /// `**` beside other characters.
    #[error("`**` stands alone between two slashes")]
    DeepStar,
    /// A brace that opens or closes nothing.
    #[error("a placeholder has the form {{name}} or {{name.name}}")]
    Placeholder,
}

impl GuestPath {
    /// `/`.
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments; none for the root.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|segment| !segment.is_empty())
    }

    /// The path of an entry of this folder; none where `name` is no single normal segment.
    pub fn child(&self, name: &str) -> Option<Self> {
        if !is_segment(name) {
            return None;
        }
        let mut text = self.0.clone();
        if !text.ends_with('/') {
            text.push('/');
        }
        text.push_str(name);
        let fits = text.len() <= PATH_MAX && text.bytes().filter(|byte| *byte == b'/').count() <= DEPTH_MAX;
        fits.then_some(Self(text))
    }

    /// The folder that holds this path; none for the root.
    pub fn parent(&self) -> Option<Self> {
        match self.0.rfind('/') {
            _ if self.0 == "/" => None,
            Some(0) => Some(Self::root()),
            Some(at) => Some(Self(self.0[..at].to_owned())),
            None => None,
        }
    }

    /// Whether `self` is `folder` or lies beneath it.
    pub fn is_within(&self, folder: &Self) -> bool {
        folder.0 == "/"
            || self.0 == folder.0
            || (self.0.starts_with(&folder.0) && self.0.as_bytes().get(folder.0.len()) == Some(&b'/'))
    }
}

/// One path segment: not empty, not `.` or `..`, without `/` and NUL.
pub fn is_segment(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

impl FromStr for GuestPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PathError::Relative);
        };
        if text.len() > PATH_MAX || rest.split('/').count() > DEPTH_MAX {
            return Err(PathError::TooLong);
        }
        if !rest.is_empty() && !rest.split('/').all(is_segment) {
            return Err(PathError::NotNormal);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pattern over guest paths: `*` within a segment, `**` across segments. Nothing else is special.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Glob {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Segment {
    /// `**`: any number of segments, none included.
    Deep,
    /// Literal pieces with a `*` between each two of them.
    Pieces(Vec<String>),
}

impl Glob {
    /// The pattern that matches `path` alone, whatever characters it holds.
    pub fn exact(path: &GuestPath) -> Self {
        Self { segments: path.segments().map(|segment| Segment::Pieces(vec![segment.to_owned()])).collect() }
    }

    /// The pattern that matches `path` and everything beneath it.
    pub fn beneath(path: &GuestPath) -> Self {
        let mut glob = Self::exact(path);
        glob.segments.push(Segment::Deep);
        glob
    }

    /// Parses a pattern, with each `{name}` taken from `value` as text that is never a pattern itself.
    ///
    /// A relative pattern, such as `**/.env`, is taken to begin with `/`.
    pub(super) fn with_values(
        text: &str,
        mut value: impl FnMut(&str) -> Option<String>,
    ) -> Result<Option<Self>, PathError> {
        if text.len() > PATH_MAX {
            return Err(PathError::TooLong);
        }
        let relative = text.strip_prefix('/').unwrap_or(text);
        let mut segments = Vec::new();
        let mut given = true;
        for part in split_outside_braces(relative) {
            if part == "**" {
                // Two in a row mean the same as one; keeping one bounds the matcher.
                if segments.last() != Some(&Segment::Deep) {
                    segments.push(Segment::Deep);
                }
                continue;
            }
            if part.contains("**") {
                return Err(PathError::DeepStar);
            }
            let mut pieces = vec![String::new()];
            let mut rest = part;
            while let Some(at) = rest.find(['*', '{', '}']) {
                push(&mut pieces, &rest[..at]);
                match rest.as_bytes()[at] {
                    b'*' => {
                        pieces.push(String::new());
                        rest = &rest[at + 1..];
                    }
                    b'{' => {
                        let end = rest[at..].find('}').ok_or(PathError::Placeholder)? + at;
                        match value(&rest[at + 1..end]) {
                            Some(text) => push(&mut pieces, &text),
                            None => given = false,
                        }
                        rest = &rest[end + 1..];
                    }
                    _ => return Err(PathError::Placeholder),
                }
            }
            push(&mut pieces, rest);
            if let [only] = pieces.as_slice()
                && given
                && !is_segment(only)
            {
                return Err(PathError::NotNormal);
            }
            if pieces.iter().any(|piece| piece.contains('\0')) {
                return Err(PathError::NotNormal);
            }
            if pieces.len() > PATTERN_STARS_MAX + 1 {
                return Err(PathError::TooComplex);
            }
            segments.push(Segment::Pieces(pieces));
        }
        if segments.len() > PATTERN_SEGMENTS_MAX {
            return Err(PathError::TooComplex);
        }
        Ok(given.then_some(Self { segments }))
    }

    /// Whether the pattern matches the whole of `path`.
    pub fn matches(&self, path: &GuestPath) -> bool {
        self.run(path, |_| {})[self.segments.len()]
    }

    /// Whether the pattern matches `path` or a folder above it, in one pass.
    pub fn matches_at_or_above(&self, path: &GuestPath) -> bool {
        let mut matched = false;
        self.run(path, |alive| matched |= alive[self.segments.len()]);
        matched
    }

    /// Whether the pattern can match `folder` or something beneath it.
    pub fn may_match_within(&self, folder: &GuestPath) -> bool {
        let reached = self.run(folder, |_| {});
        // Any state that is alive after the folder's segments can go on to match below, the final one included.
        reached.iter().any(|alive| *alive)
    }

    /// States alive after the path: state `i` means that the first `i` segments of the pattern are used up. Time is
    /// the product of the two lengths, whatever the pattern.
    /// `seen` is shown the states at the root and after each segment.
    fn run(&self, path: &GuestPath, mut seen: impl FnMut(&[bool])) -> Vec<bool> {
        let mut alive = vec![false; self.segments.len() + 1];
        alive[0] = true;
        self.skip_deep(&mut alive);
        seen(&alive);
        for name in path.segments() {
            let mut next = vec![false; alive.len()];
            for (index, segment) in self.segments.iter().enumerate() {
                if !alive[index] {
                    continue;
                }
                match segment {
                    Segment::Deep => next[index] = true,
                    Segment::Pieces(pieces) if pieces_match(pieces, name) => next[index + 1] = true,
                    Segment::Pieces(_) => {}
                }
            }
            self.skip_deep(&mut next);
            alive = next;
            seen(&alive);
        }
        alive
    }

    fn skip_deep(&self, alive: &mut [bool]) {
        for (index, segment) in self.segments.iter().enumerate() {
            if alive[index] && *segment == Segment::Deep {
                alive[index + 1] = true;
            }
        }
    }

    /// The segments, to be stored: none is `**`, and in others a star stands between each two pieces.
    pub(super) fn segments(&self) -> Vec<Option<Vec<String>>> {
        let stored = |segment: &Segment| match segment {
            Segment::Deep => None,
            Segment::Pieces(pieces) => Some(pieces.clone()),
        };
        self.segments.iter().map(stored).collect()
    }

    /// From what [`Glob::segments`] gives; none where that is no pattern.
    pub(super) fn of_segments(stored: Vec<Option<Vec<String>>>) -> Option<Self> {
        let fits = |pieces: &[String]| {
            !pieces.is_empty()
                && pieces.len() <= PATTERN_STARS_MAX + 1
                && pieces.iter().all(|piece| !piece.contains(['/', '\0']))
                && (pieces.len() > 1 || is_segment(&pieces[0]))
        };
        let bounded = stored.len() <= DEPTH_MAX + 1 && stored.iter().flatten().all(|pieces| fits(pieces));
        let segments = stored.into_iter().map(|pieces| pieces.map_or(Segment::Deep, Segment::Pieces));
        bounded.then(|| Self { segments: segments.collect() })
    }

    /// The path that the pattern matches, where it is only one.
    pub fn as_exact(&self) -> Option<GuestPath> {
        let mut path = GuestPath::root();
        for segment in &self.segments {
            match segment {
                Segment::Pieces(pieces) if pieces.len() == 1 => path = path.child(&pieces[0])?,
                _ => return None,
            }
        }
        Some(path)
    }
}

/// `*` between pieces: the first is a prefix, the last a suffix, the others follow in order, leftmost first.
pub(crate) fn pieces_match(pieces: &[String], name: &str) -> bool {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return false;
    };
    if pieces.len() == 1 {
        return name == first;
    }
    let Some(mut rest) = name.strip_prefix(first.as_str()) else {
        return false;
    };
    for piece in &pieces[1..pieces.len() - 1] {
        match rest.find(piece.as_str()) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

fn push(pieces: &mut [String], text: &str) {
    if let Some(last) = pieces.last_mut() {
        last.push_str(text);
    }
}

/// Splits at `/`, but not within a placeholder.
fn split_outside_braces(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => inside = true,
            b'}' => inside = false,
            b'/' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl FromStr for Glob {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.contains(['{', '}']) {
            return Err(PathError::Placeholder);
        }
        match Self::with_values(text, |_| None)? {
            Some(glob) => Ok(glob),
            None => Err(PathError::Placeholder),
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str("/");
        }
        for segment in &self.segments {
            match segment {
                Segment::Deep => f.write_str("/**")?,
                Segment::Pieces(pieces) => write!(f, "/{}", pieces.join("*"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> GuestPath {
        text.parse().unwrap()
    }

    fn glob(text: &str) -> Glob {
        text.parse().unwrap()
    }

    #[test]
    fn only_normal_form_is_a_guest_path() {
        for good in ["/", "/a", "/a/b.c", "/a b/ü", "/..a/...", "/a*b"] {
            assert_eq!(path(good).as_str(), good);
        }
        for bad in ["", "a", "a/b", "//", "/a/", "/a//b", "/a/./b", "/a/../b", "/..", "/a\0b"] {
            assert!(bad.parse::<GuestPath>().is_err(), "{bad:?}");
        }
        assert_eq!(format!("/{}", "a".repeat(PATH_MAX)).parse::<GuestPath>(), Err(PathError::TooLong));
    }

    #[test]
    fn within_is_by_segment() {
        assert!(path("/data/x").is_within(&path("/data")));
        assert!(path("/data").is_within(&path("/data")));
        assert!(path("/data").is_within(&path("/")));
        assert!(!path("/database").is_within(&path("/data")));
        assert!(!path("/").is_within(&path("/data")));
    }

    #[test]
    fn stars_stay_in_their_segment_and_double_stars_cross() {
        assert!(glob("/data/*.csv").matches(&path("/data/q3.csv")));
        assert!(!glob("/data/*.csv").matches(&path("/data/sub/q3.csv")));
        assert!(glob("/data/**/*.csv").matches(&path("/data/sub/deep/q3.csv")));
        assert!(glob("/data/**/*.csv").matches(&path("/data/q3.csv")));
        assert!(glob("/data/**").matches(&path("/data")));
        assert!(glob("**/.env").matches(&path("/a/b/.env")));
        assert!(!glob("**/.env").matches(&path("/a/b.env")));
        assert!(glob("/a*b*c").matches(&path("/aXbYc")));
        assert!(!glob("/ab*b").matches(&path("/ab")));
        assert!(glob("/a[b]?").matches(&path("/a[b]?")));
        assert!("/a/x**".parse::<Glob>().is_err());
        assert!("/a//b".parse::<Glob>().is_err());
        assert!("/a/../b".parse::<Glob>().is_err());
    }

    #[test]
    fn a_folder_may_hold_what_a_pattern_can_still_reach() {
        let pattern = glob("/data/public/*.csv");
        for yes in ["/", "/data", "/data/public", "/data/public/x.csv"] {
            assert!(pattern.may_match_within(&path(yes)), "{yes}");
        }
        for no in ["/etc", "/data/private", "/data/public/sub"] {
            assert!(!pattern.may_match_within(&path(no)), "{no}");
        }
        assert!(glob("/data/**/x").may_match_within(&path("/data/any/thing")));
    }

    #[test]
    fn a_value_in_a_pattern_is_text() {
        let made = Glob::with_values("/data/{name}.txt", |_| Some("*".to_owned())).unwrap().unwrap();
        assert!(made.matches(&path("/data/*.txt")));
        assert!(!made.matches(&path("/data/a.txt")));
    }

    #[test]
    fn paths_and_patterns_are_bounded() {
        assert_eq!(format!("/{}b", "a*".repeat(9)).parse::<Glob>(), Err(PathError::TooComplex));
        assert_eq!("/*".repeat(65).parse::<Glob>(), Err(PathError::TooComplex));
        assert_eq!("/a".repeat(257).parse::<GuestPath>(), Err(PathError::TooLong));
        let deep = glob(&"/**/a".repeat(32));
        assert!(deep.matches(&path(&"/a".repeat(256))));
        assert!(!deep.matches(&path(&"/a".repeat(31))));
        assert!(path("/a".repeat(256).as_str()).child("a").is_none());
    }

    #[test]
    fn one_pass_sees_what_stands_above() {
        let pattern = glob("**/.git");
        assert!(pattern.matches_at_or_above(&path("/a/.git/config")));
        assert!(pattern.matches_at_or_above(&path("/.git")));
        assert!(!pattern.matches_at_or_above(&path("/a/.gitignore")));
        assert!(glob("/a").matches_at_or_above(&path("/a/b/c")));
    }
}
