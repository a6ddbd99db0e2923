//! One function for each kind of value that a tool can take and return: first as work on texts,
//! then as an echo, which shows that a value comes back as it went.

/// Work on texts, without touching anything else.
#[portcullis_guest::tools]
mod text {
    use std::collections::BTreeMap;

    /// Which way to change the case.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Case {
        /// All capital letters.
        Upper,
        /// No capital letters.
        Lower,
    }

    /// How a text looks. Any of them can hold at once.
    #[flags]
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Style {
        /// Between `**`.
        pub bold: bool,
        /// Between `_`.
        pub italic: bool,
        /// Between backticks, inside all others.
        pub code: bool,
    }

    /// Where to cut a text.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Place {
        /// After so many characters.
        Chars(u32),
        /// Before the first place where this stands.
        Before(String),
        /// Not at all.
        Nowhere,
    }

    /// What was counted in a text.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Measurements {
        pub lines: u32,
        pub words: u32,
        /// Absent where there is no word.
        pub longest: Option<String>,
        /// Characters per word, or NaN where there is no word.
        pub mean_length: f64,
    }

    /// Change the case of a text.
    pub fn change(text: String, case: Case) -> Result<String, String> {
        if text.is_empty() {
            return Err("there is no text to change".to_owned());
        }
        Ok(match case {
            Case::Upper => text.to_uppercase(),
            Case::Lower => text.to_lowercase(),
        })
    }

    /// Say whether a text has nothing but white space.
    pub fn is_blank(text: String) -> bool {
        text.trim().is_empty()
    }

    /// Split a text into its words.
    pub fn words(text: String) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Count how often each word stands in a text.
    pub fn count_words(text: String) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for word in text.split_whitespace() {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
        counts
    }

    /// Measure a text.
    pub fn measure(text: String) -> Measurements {
        let lengths = text.split_whitespace().map(|word| word.chars().count());
        let longest = text.split_whitespace().max_by_key(|word| word.chars().count());
        let words = lengths.clone().count();
        Measurements {
            lines: text.lines().count() as u32,
            words: words as u32,
            longest: longest.map(str::to_owned),
            mean_length: lengths.sum::<usize>() as f64 / words as f64,
        }
    }

    /// Shorten a text.
    pub fn cut(text: String, at: Place) -> String {
        match at {
            Place::Chars(count) => text.chars().take(count as usize).collect(),
            Place::Before(part) => match text.split_once(&part) {
                Some((before, _)) => before.to_owned(),
                None => text,
            },
            Place::Nowhere => text,
        }
    }

    /// Mark up a text as Markdown.
    pub fn mark(text: String, style: Style) -> String {
        let marks = [(style.code, "`"), (style.italic, "_"), (style.bold, "**")];
        let marks = marks.into_iter().filter(|(wanted, _)| *wanted);
        marks.fold(text, |text, (_, mark)| format!("{mark}{text}{mark}"))
    }

    /// Fill a text up to a length.
    pub fn pad(text: String, length: u32, with: char) -> String {
        let missing = (length as usize).saturating_sub(text.chars().count());
        text.chars().chain(std::iter::repeat_n(with, missing)).collect()
    }

    /// Find the first and the last place of a part, counted in bytes.
    pub fn find(text: String, part: String) -> Option<(u64, u64)> {
        let first = text.find(&part)?;
        let last = text.rfind(&part)?;
        Some((first as u64, last as u64))
    }

    /// Read bytes as UTF-8, each line for itself.
    pub fn decode(bytes: Vec<u8>) -> Vec<Result<String, u32>> {
        let lines = bytes.split(|byte| *byte == b'\n');
        lines
            .map(|line| match std::str::from_utf8(line) {
                Ok(text) => Ok(text.to_owned()),
                Err(error) => Err(error.valid_up_to() as u32),
            })
            .collect()
    }

    /// Check that a text has only ASCII characters.
    pub fn require_ascii(text: String) -> Result<(), String> {
        match text.chars().find(|character| !character.is_ascii()) {
            Some(character) => Err(format!("{character:?} is not ASCII")),
            None => Ok(()),
        }
    }

    /// Parse a number; a failure has no details.
    pub fn parse(text: String) -> Result<f64, ()> {
        text.trim().parse().map_err(|_| ())
    }

    pub fn echo_bool(value: bool) -> bool {
        value
    }
    pub fn echo_s8(value: i8) -> i8 {
        value
    }
    pub fn echo_s16(value: i16) -> i16 {
        value
    }
    pub fn echo_s32(value: i32) -> i32 {
        value
    }
    pub fn echo_s64(value: i64) -> i64 {
        value
    }
    pub fn echo_u8(value: u8) -> u8 {
        value
    }
    pub fn echo_u16(value: u16) -> u16 {
        value
    }
    pub fn echo_u32(value: u32) -> u32 {
        value
    }
    pub fn echo_u64(value: u64) -> u64 {
        value
    }
    pub fn echo_f32(value: f32) -> f32 {
        value
    }
    pub fn echo_f64(value: f64) -> f64 {
        value
    }
    pub fn echo_char(value: char) -> char {
        value
    }
    pub fn echo_string(value: String) -> String {
        value
    }
    pub fn echo_bytes(value: Vec<u8>) -> Vec<u8> {
        value
    }
    pub fn echo_list(value: Vec<i32>) -> Vec<i32> {
        value
    }
    pub fn echo_tuple(value: (String, u8, bool)) -> (String, u8, bool) {
        value
    }
    pub fn echo_record(value: Measurements) -> Measurements {
        value
    }
    pub fn echo_records(value: Vec<Measurements>) -> Vec<Measurements> {
        value
    }
    pub fn echo_variant(value: Place) -> Place {
        value
    }
    pub fn echo_enum(value: Case) -> Case {
        value
    }
    pub fn echo_flags(value: Style) -> Style {
        value
    }
    pub fn echo_option(value: Option<u32>) -> Option<u32> {
        value
    }
    pub fn echo_nested_option(value: Option<Option<String>>) -> Option<Option<String>> {
        value
    }
    /// In a list, since a result on its own would be the tool's own success or error.
    pub fn echo_result(value: Result<String, u32>) -> Vec<Result<String, u32>> {
        vec![value]
    }
    pub fn echo_unit_result(value: Result<(), ()>) -> Vec<Result<(), ()>> {
        vec![value]
    }
    /// The result on its own: its error is the tool's error.
    pub fn echo_outcome(value: Result<Measurements, Place>) -> Result<Measurements, Place> {
        value
    }
    pub fn echo_map(value: BTreeMap<String, Measurements>) -> BTreeMap<String, Measurements> {
        value
    }
    /// Take nothing and return nothing.
    pub fn nothing() {}
}

#[cfg(test)]
mod tests {
    use super::text::*;

    #[test]
    fn a_text_is_cut_where_asked() {
        let text = || "one, two".to_owned();
        assert_eq!(cut(text(), Place::Chars(2)), "on");
        assert_eq!(cut(text(), Place::Before(",".to_owned())), "one");
        assert_eq!(cut(text(), Place::Nowhere), "one, two");
    }

    #[test]
    fn styles_add_up() {
        let style = Style { bold: true, code: true, ..Style::default() };
        assert_eq!(mark("x".to_owned(), style), "**`x`**");
    }

    #[test]
    fn words_are_counted_without_regard_to_case() {
        let counts = count_words("To be or not to be".to_owned());
        assert_eq!(counts["to"], 2);
        assert_eq!(counts["not"], 1);
    }

    #[test]
    fn an_empty_text_has_no_case_to_change() {
        assert!(change(String::new(), Case::Upper).is_err());
        assert_eq!(change("a".to_owned(), Case::Upper), Ok("A".to_owned()));
    }
}
