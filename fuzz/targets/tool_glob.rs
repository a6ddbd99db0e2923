//! A tool glob means what it says: held against a matcher that tries every way to fill the stars.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a fuzz target")]

use libfuzzer_sys::fuzz_target;
use portcullis::gate::policy::ToolGlob;
use portcullis::ids::ToolId;

/// A star is any number of bytes other than `/`.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            let end = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
            (0..=end).any(|skip| naive(rest, &text[skip..]))
        }
        Some((byte, rest)) => text.first() == Some(byte) && naive(rest, &text[1..]),
    }
}

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, id) = (next(), next());
    let Ok(glob) = pattern.parse::<ToolGlob>() else { return };
    assert_eq!(glob.to_string(), pattern);
    assert_eq!(glob.to_string().parse::<ToolGlob>().unwrap(), glob);
    assert_eq!(glob.is_exact(), !pattern.contains('*'));
    let Ok(id) = id.parse::<ToolId>() else { return };
    // Trying every way takes exponential time.
    if pattern.bytes().filter(|byte| *byte == b'*').count() <= 6 && id.as_str().len() <= 40 {
        assert_eq!(glob.matches(&id), naive(pattern.as_bytes(), id.as_str().as_bytes()), "{pattern} {id}");
    }
});
