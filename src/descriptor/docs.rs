//! Documentation and declared needs: what a component says about itself in custom sections.
//!
//! All of it is untrusted text. Documentation that does not parse, is doubled or does not match is dropped and
//! noted; needs that do not parse are an error, since they are a ceiling that somebody meant.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value as Json;
use wasmparser::{Parser, Payload};

use crate::text::clean_text;

/// The section that WIT tooling writes.
pub const PACKAGE_DOCS: &str = "package-docs";
/// The section that the guest SDK writes.
pub const SDK_DOCS: &str = "portcullis:docs";
/// The section with what a package declares of itself.
pub const NEEDS: &str = "portcullis:needs";

/// Longest documentation of one item, in characters.
pub const DOCS_MAX: usize = 4096;
/// Longest title, in characters.
pub const TITLE_MAX: usize = 120;
/// Largest section that is read at all, in bytes.
pub const SECTION_MAX: usize = 1 << 20;

/// Documentation by interface and name. The interface `None` holds what the world exports directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Docs {
    functions: BTreeMap<(Option<String>, String), String>,
    types: BTreeMap<(Option<String>, String), TypeDocs>,
    interfaces: BTreeMap<String, String>,
}

/// Documentation of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeDocs {
    /// Of the type itself.
    pub docs: Option<String>,
    /// Of its fields or cases.
    pub items: BTreeMap<String, String>,
}

impl Docs {
    /// Documentation of a function.
    pub fn of_function(&self, interface: Option<&str>, name: &str) -> Option<&str> {
        self.functions.get(&(interface.map(str::to_owned), name.to_owned())).map(String::as_str)
    }

    /// Documentation of a type.
    pub fn of_type(&self, interface: Option<&str>, name: &str) -> Option<&TypeDocs> {
        self.types.get(&(interface.map(str::to_owned), name.to_owned()))
    }

    /// Documentation of an interface.
    pub fn of_interface(&self, name: &str) -> Option<&str> {
        self.interfaces.get(name).map(String::as_str)
    }

    /// Reads the JSON of a `package-docs` section after its version byte, or of one `portcullis:docs` record: the
    /// two differ only in the names `funcs` and `functions`.
    fn from_json(json: &Json) -> Self {
        let mut docs = Self::default();
        if let Some(interfaces) = json.get("interfaces").and_then(Json::as_object) {
            for (name, interface) in interfaces {
                docs.read_interface(name, interface);
            }
        }
        if let Some(worlds) = json.get("worlds").and_then(Json::as_object) {
            for world in worlds.values() {
                for key in ["interface_exports", "interface_import_or_exports", "interface_imports"] {
                    if let Some(interfaces) = world.get(key).and_then(Json::as_object) {
                        for (name, interface) in interfaces {
                            docs.read_interface(name, interface);
                        }
                    }
                }
                for key in ["func_exports", "func_import_or_exports"] {
                    if let Some(functions) = world.get(key).and_then(Json::as_object) {
                        docs.read_functions(None, functions);
                    }
                }
            }
        }
        docs
    }

    fn read_interface(&mut self, name: &str, interface: &Json) {
        if let Some(text) = text_of(interface) {
            self.interfaces.insert(name.to_owned(), text);
        }
        for key in ["funcs", "functions"] {
            if let Some(functions) = interface.get(key).and_then(Json::as_object) {
                self.read_functions(Some(name), functions);
            }
        }
        if let Some(types) = interface.get("types").and_then(Json::as_object) {
            for (type_name, ty) in types {
                let mut found = TypeDocs { docs: text_of(ty), items: BTreeMap::new() };
                if let Some(items) = ty.get("items").and_then(Json::as_object) {
                    for (item, value) in items {
                        if let Some(text) = text_of(value) {
                            found.items.insert(item.clone(), text);
                        }
                    }
                }
                self.types.insert((Some(name.to_owned()), type_name.clone()), found);
            }
        }
    }

    fn read_functions(&mut self, interface: Option<&str>, functions: &serde_json::Map<String, Json>) {
        for (name, function) in functions {
            if let Some(text) = text_of(function) {
                self.functions.insert((interface.map(str::to_owned), name.clone()), text);
            }
        }
    }
}

/// An item's documentation is a string, or an object with a string under `docs`.
fn text_of(item: &Json) -> Option<String> {
    let text = item.as_str().or_else(|| item.get("docs").and_then(Json::as_str))?;
    let clean = clean_text(text, DOCS_MAX);
    (!clean.is_empty()).then_some(clean)
}

/// What the custom sections of a component hold.
#[derive(Debug, Default)]
pub struct Sections {
    /// The documentation, empty where there is none that can be used.
    pub docs: Docs,
    /// The one `portcullis:needs` record.
    pub needs: Option<Json>,
    /// What was dropped, in words for the operator.
    pub notes: Vec<String>,
}

/// Why the declared needs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeedsError {
    /// Not the JSON that it should be.
    #[error("its `{NEEDS}` section is malformed: {0}")]
    Malformed(String),
    /// More than one record: two linked modules each declared their own.
    #[error("it has {0} `{NEEDS}` records, of which at most one can hold")]
    Doubled(usize),
}

/// Reads the sections of `bytes`. Code is skipped, so this is fast also for large components.
///
/// # Errors
///
/// The declared needs are malformed or doubled. A component that does not parse ends the reading early; the
/// decoder that follows says what is wrong with it.
pub fn read_sections(bytes: &[u8]) -> Result<Sections, NeedsError> {
    let mut sections = Sections::default();
    let mut package_docs = Vec::new();
    let mut sdk_docs = Vec::new();
    let mut needs = Vec::new();
    visit_custom(bytes, |section| match section.name {
        PACKAGE_DOCS if section.depth == 0 => package_docs.push(section.data),
        SDK_DOCS => sdk_docs.push(section.data),
        NEEDS => needs.push(section.data),
        _ => {}
    });

    let (from_package, note) = one_package_docs(&package_docs);
    sections.notes.extend(note);
    sections.docs = match from_package {
        Some(docs) => docs,
        None => {
            let (docs, note) = one_sdk_docs(&sdk_docs);
            sections.notes.extend(note);
            docs.unwrap_or_default()
        }
    };

    let mut records = Vec::new();
    for data in needs {
        let text = section_text(data).map_err(|e| NeedsError::Malformed(e.to_owned()))?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let json =
                crate::value::strict_json(line.as_bytes()).map_err(|error| NeedsError::Malformed(error.to_string()))?;
            records.push(json);
        }
    }
    match records.len() {
        0 => {}
        1 => sections.needs = records.pop(),
        many => return Err(NeedsError::Doubled(many)),
    }
    Ok(sections)
}

fn section_text(data: &[u8]) -> Result<&str, &'static str> {
    if data.len() > SECTION_MAX {
        return Err("it is larger than 1 MiB");
    }
    std::str::from_utf8(data).map_err(|_| "it is not UTF-8")
}

fn one_package_docs(found: &[&[u8]]) -> (Option<Docs>, Option<String>) {
    let dropped = |why: &str| (None, Some(format!("its `{PACKAGE_DOCS}` section was dropped: {why}")));
    match found {
        [] => (None, None),
        [data] => {
            // One version byte (0 or 1, with the same JSON for what is read here), then JSON.
            let Some((version, json)) = data.split_first() else {
                return dropped("it is empty");
            };
            if *version > 1 {
                return dropped("its version is unknown");
            }
            match section_text(json).map(serde_json::from_str::<Json>) {
                Ok(Ok(json)) => (Some(Docs::from_json(&json)), None),
                Ok(Err(_)) => dropped("it is not JSON"),
                Err(why) => dropped(why),
            }
        }
        _ => dropped("there is more than one"),
    }
}

fn one_sdk_docs(found: &[&[u8]]) -> (Option<Docs>, Option<String>) {
    let dropped = |why: &str| (None, Some(format!("its `{SDK_DOCS}` section was dropped: {why}")));
    let mut records = Vec::new();
    for data in found {
        match section_text(data) {
            Ok(text) => records.extend(text.lines().filter(|line| !line.trim().is_empty())),
            Err(why) => return dropped(why),
        }
    }
    match records.as_slice() {
        [] => (None, None),
        [line] => match serde_json::from_str::<Json>(line) {
            Ok(json) => (Some(Docs::from_json(&json)), None),
            Err(_) => dropped("it is not JSON"),
        },
        _ => dropped("there is more than one record"),
    }
}

/// Most component and instance types that one section may open within each other.
pub const NESTING_MAX: usize = 1_000;

/// Whether the types of a component nest so deeply that reading them could outgrow a stack.
///
/// Readers of the binary format recurse into a type that is declared inside of another. Each level spends the two bytes that
/// declare it, so their number bounds the depth; whatever else these bytes may be only makes the count larger.
pub fn nests_too_deeply(bytes: &[u8]) -> bool {
    let mut too_deep = false;
    visit(bytes, |_, payload, span| {
        if let Payload::ComponentTypeSection(_) | Payload::CoreTypeSection(_) = payload {
            let section = bytes.get(span).unwrap_or_default();
            // A type declaration (1) of a component (0x41), instance (0x42) or core module (0x50) type.
            let opened = section.windows(2).filter(|pair| matches!(pair, [1 | 0, 0x41 | 0x42 | 0x50])).count();
            too_deep |= opened > NESTING_MAX;
        }
    });
    too_deep
}

/// A custom section, wherever in the component it stands.
struct Custom<'a> {
    name: &'a str,
    data: &'a [u8],
    /// 0 for the outermost component.
    depth: u32,
    /// Where the name's bytes start in the whole file.
    name_at: usize,
    /// The whole section with its header, in the whole file.
    span: Range<usize>,
}

/// Calls `seen` for each custom section at any depth; stops at the first byte that does not parse.
fn visit_custom<'a>(bytes: &'a [u8], mut seen: impl FnMut(Custom<'a>)) {
    visit(bytes, |depth, payload, span| {
        if let Payload::CustomSection(section) = payload {
            // The name stands directly before the data.
            let name_at = section.data_offset().saturating_sub(section.name().len());
            seen(Custom { name: section.name(), data: section.data(), depth, name_at, span });
        }
    });
}

/// Calls `seen` with depth and place of each part of the binary; stops at the first byte that does not parse. The
/// bodies of functions are passed over.
fn visit<'a>(bytes: &'a [u8], mut seen: impl FnMut(u32, &Payload<'a>, Range<usize>)) {
    let mut stack: Vec<Parser> = Vec::new();
    let mut parser = Parser::new(0);
    let mut rest = bytes;
    loop {
        let Ok(wasmparser::Chunk::Parsed { payload, consumed }) = parser.parse(rest, true) else {
            return;
        };
        let here = bytes.len() - rest.len();
        let depth = u32::try_from(stack.len()).unwrap_or(u32::MAX);
        seen(depth, &payload, here..here + consumed);
        match payload {
            Payload::CodeSectionStart { size, .. } => {
                parser.skip_section();
                let Some(after) = rest.get(consumed + size as usize..) else {
                    return;
                };
                rest = after;
                continue;
            }
            Payload::ModuleSection { parser: inner, .. } | Payload::ComponentSection { parser: inner, .. } => {
                stack.push(std::mem::replace(&mut parser, inner));
            }
            Payload::End(_) => match stack.pop() {
                Some(outer) => parser = outer,
                None => return,
            },
            _ => {}
        }
        rest = &rest[consumed..];
    }
}

/// `bytes` with every `package-docs` section given another name of the same length.
///
/// The WIT decoder reads that section at any depth and fails on one that it does not expect, which would let a
/// tool's documentation decide whether the tool loads.
pub fn hide_package_docs(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut places = Vec::new();
    visit_custom(bytes, |section| {
        if section.name == PACKAGE_DOCS {
            places.push(section.name_at);
        }
    });
    if places.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let mut copy = bytes.to_vec();
    for at in places {
        if let Some(byte) = copy.get_mut(at) {
            *byte = b'P';
        }
    }
    Cow::Owned(copy)
}

/// `bytes` without the outermost component's custom sections of these names.
pub fn without_root_sections<'b>(bytes: &'b [u8], names: &[&str]) -> Cow<'b, [u8]> {
    let mut spans = Vec::new();
    visit_custom(bytes, |section| {
        if section.depth == 0 && names.contains(&section.name) {
            spans.push(section.span);
        }
    });
    if spans.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let mut kept = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for span in spans {
        kept.extend_from_slice(&bytes[from..span.start]);
        from = span.end;
    }
    kept.extend_from_slice(&bytes[from..]);
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut component = wasm_encoder::Component::new();
        for (name, data) in sections {
            component.section(&wasm_encoder::CustomSection { name: (*name).into(), data: (*data).into() });
        }
        component.finish()
    }

    #[test]
    fn docs_of_the_sdk_are_read_and_package_docs_win() {
        let sdk = br#"{"version":1,"interfaces":{"tools":{"functions":{"f":{"docs":"from sdk"}}}}}
"#;
        let sections = read_sections(&component(&[(SDK_DOCS, sdk)])).unwrap();
        assert_eq!(sections.docs.of_function(Some("tools"), "f"), Some("from sdk"));
        let package =
            b"\x01{\"worlds\":{\"w\":{\"interface_exports\":{\"tools\":{\"funcs\":{\"f\":{\"docs\":\"from wit\"}}}}}}}";
        let sections = read_sections(&component(&[(SDK_DOCS, sdk), (PACKAGE_DOCS, package)])).unwrap();
        assert_eq!(sections.docs.of_function(Some("tools"), "f"), Some("from wit"));
        assert_eq!(sections.notes, Vec::<String>::new());
    }

    #[test]
    fn doubled_or_broken_docs_are_dropped_and_noted() {
        for sections in [
            vec![(PACKAGE_DOCS, b"\x01{}".as_slice()), (PACKAGE_DOCS, b"\x01{}")],
            vec![(PACKAGE_DOCS, b"\x01{".as_slice())],
            vec![(PACKAGE_DOCS, b"".as_slice())],
            vec![(PACKAGE_DOCS, b"\x09{}".as_slice())],
            vec![(SDK_DOCS, b"{}\n{}\n".as_slice())],
            vec![(SDK_DOCS, b"\xff".as_slice())],
        ] {
            let read = read_sections(&component(&sections)).unwrap();
            assert_eq!(read.docs, Docs::default());
            assert_eq!(read.notes.len(), 1, "{sections:?}");
        }
    }

    #[test]
    fn doubled_or_broken_needs_are_refused() {
        assert!(matches!(read_sections(&component(&[(NEEDS, b"{}\n{}\n")])), Err(NeedsError::Doubled(2))));
        assert!(matches!(read_sections(&component(&[(NEEDS, b"{}"), (NEEDS, b"{}")])), Err(NeedsError::Doubled(2))));
        for broken in [b"{".as_slice(), b"\xff", b"{\"a\":1,\"a\":2}"] {
            assert!(matches!(read_sections(&component(&[(NEEDS, broken)])), Err(NeedsError::Malformed(_))));
        }
    }

    #[test]
    fn sections_can_be_taken_out_and_put_back() {
        let bytes = component(&[("a", b"1"), (NEEDS, b"x"), ("b", b"2"), (NEEDS, b"y")]);
        let without = without_root_sections(&bytes, &[NEEDS]);
        assert_eq!(*without, component(&[("a", b"1"), ("b", b"2")]));
        assert_eq!(*without_root_sections(&without, &[NEEDS]), *without);
    }

    #[test]
    fn hidden_package_docs_keep_the_length_and_are_hidden_at_any_depth() {
        let mut outer = wasm_encoder::Component::new();
        let mut inner = wasm_encoder::Component::new();
        inner.section(&wasm_encoder::CustomSection { name: PACKAGE_DOCS.into(), data: b"x".as_slice().into() });
        outer.section(&wasm_encoder::NestedComponentSection(&inner));
        outer.section(&wasm_encoder::CustomSection { name: PACKAGE_DOCS.into(), data: b"x".as_slice().into() });
        let bytes = outer.finish();
        let hidden = hide_package_docs(&bytes);
        assert_eq!(hidden.len(), bytes.len());
        let mut names = Vec::new();
        visit_custom(&hidden, |section| names.push(section.name.to_owned()));
        assert_eq!(names, ["Package-docs", "Package-docs"]);
    }
}
