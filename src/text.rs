//! Untrusted text, made safe to show.

/// Untrusted text made safe to show: control and bidirectional characters gone, line breaks kept, length capped.
pub fn clean_text(text: &str, max_chars: usize) -> String {
    let mut clean = String::new();
    let mut count = 0;
    for character in text.trim().chars() {
        let keep = match character {
            '\n' | '\t' => true,
            c if c.is_control() => false,
            c => !is_invisible_format(c),
        };
        if !keep {
            continue;
        }
        if count == max_chars {
            clean.push('…');
            break;
        }
        clean.push(character);
        count += 1;
    }
    clean.truncate(clean.trim_end().len());
    clean
}

/// One line of untrusted text for a terminal.
pub fn clean_line(text: &str, max_chars: usize) -> String {
    clean_text(text, max_chars).replace(['\n', '\t'], " ")
}

/// Untrusted text for one line of a terminal, with nothing of it lost: what cannot be seen, or moves other text, is
/// written as `\u{…}`.
pub fn escape_text(text: &str, max_chars: usize) -> String {
    let mut escaped = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == max_chars {
            escaped.push_str(&format!("… ({} characters in all)", text.chars().count()));
            break;
        }
        if character.is_control() || is_invisible_format(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Characters that change how their neighbours are shown, or hide text: bidirectional controls (UAX #9), zero-width
/// characters, line and paragraph separators, tags.
fn is_invisible_format(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}')
}

/// The styles that this program itself uses (ECMA-48, select graphic rendition). None of them hides text or moves it.
const STYLES: [&str; 9] =
    ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[4m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m", "\x1b[1;36m"];

/// Text on its way to a terminal: line breaks, tabs and the program's own styles stay, and whatever else could draw is
/// escaped. The last of several nets: what others wrote is escaped or cleaned where it is put into a sentence, too.
pub fn for_terminal(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(style) = STYLES.iter().find(|style| rest.starts_with(**style)) {
            safe.push_str(style);
            rest = &rest[style.len()..];
            continue;
        }
        match character {
            '\n' | '\t' => safe.push(character),
            c if c.is_control() || is_invisible_format(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
        rest = &rest[character.len_utf8()..];
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_loses_escapes_and_directions_and_is_capped() {
        assert_eq!(clean_text("a\u{1b}[31mb\u{202e}c\u{200b}\r\nd ", 100), "a[31mbc\nd");
        assert_eq!(clean_text("abcdef", 3), "abc…");
        assert_eq!(clean_line("a\nb", 10), "a b");
    }

    #[test]
    fn nothing_but_the_programs_own_styles_reaches_a_terminal() {
        assert_eq!(for_terminal("\x1b[1mbold\x1b[0m\n\ttext ü"), "\x1b[1mbold\x1b[0m\n\ttext ü");
        assert_eq!(
            for_terminal("a\x1b[2J\x1b[8mb\u{202e}\r\u{9b}1m"),
            "a\\u{1b}[2J\\u{1b}[8mb\\u{202e}\\u{d}\\u{9b}1m"
        );
        assert_eq!(for_terminal("\x1b[1"), "\\u{1b}[1");
    }
}
