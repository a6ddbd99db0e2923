//! Scopes: what a yes can be given for, between exactly these arguments and anything.
//!
//! A scope is a JSON Schema over the arguments, with a sentence on what it allows beside the call that was asked about. They are
//! proposals for a human to choose from; the gate only ever sees the schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use crate::authority::path::GuestPath;
use crate::authority::url_pattern::NormalUrl;
use crate::gate::schema::ArgumentSchema;
use crate::publication::config::Redaction;
use crate::text::escape_text;

/// Most characters of a value in a sentence.
const VALUE_MAX: usize = 120;

/// One scope.
#[derive(Clone, Debug)]
pub struct Scope {
    /// In a few words, such as `the same folder`.
    pub title: String,
    /// What it would also allow, as a sentence.
    pub also: String,
    /// The schema that the arguments must fit.
    pub schema: ArgumentSchema,
}

/// What an argument is held to.
struct Held {
    name: String,
    schema: Json,
    /// What it says of the argument, such as ``any path beneath `/data` in `path` ``.
    words: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    Host,
    Enum,
}

/// The scopes for a call, from the narrowest to the widest. `parameters` is the tool's input schema, which names every argument
/// and tells those that are one of a few names. No scope holds a value that `redact` keeps out of the records.
pub fn scopes(parameters: &Json, arguments: &Json, redact: &[Redaction]) -> Vec<Scope> {
    let is_kept_out = |name: &str| {
        let present = redact.iter().filter(|it| arguments.pointer(&it.pointer).is_some());
        let mut names = present.filter_map(|it| it.pointer.split('/').nth(1));
        names.any(|part| part.replace("~1", "/").replace("~0", "~") == name)
    };
    let held: Vec<Held> = held(parameters, arguments).into_iter().filter(|held| !is_kept_out(&held.name)).collect();
    // Also those that this call left out: another one within the scope may have them.
    let fields = |json: &Json| json.as_object().into_iter().flat_map(Map::keys).cloned().collect::<BTreeSet<_>>();
    let names = &fields(parameters.get("properties").unwrap_or(&Json::Null)) | &fields(arguments);
    let mut scopes = Vec::new();
    if !names.iter().any(|name| is_kept_out(name)) {
        scopes.push(exact(arguments));
    }
    let of = |kind: Kind| held.iter().filter(|held| held.kind == kind).collect::<Vec<_>>();
    let (folders, hosts, enums) = (of(Kind::Folder), of(Kind::Host), of(Kind::Enum));
    let kinds = [&folders, &hosts, &enums].iter().filter(|held| !held.is_empty()).count();
    if kinds > 1 {
        scopes.push(partial("the same places and choices", &held.iter().collect::<Vec<_>>(), &names));
    }
    for (title, held) in [("the same folder", folders), ("the same host", hosts), ("the same choice", enums)] {
        if !held.is_empty() {
            scopes.push(partial(title, &held, &names));
        }
    }
    scopes.push(Scope {
        title: "any arguments".to_owned(),
        also: "every call of this tool, within what the host grants it".to_owned(),
        schema: schema(json!({})),
    });
    scopes.retain(|scope| scope.schema.fits(arguments));
    // An argument without a name to hold, or an exact call of a tool without arguments, gives the same scope twice.
    scopes.dedup_by(|b, a| a.schema.source() == b.schema.source());
    scopes
}

/// Exactly these arguments. A document of any size is compared as a whole.
fn exact(arguments: &Json) -> Scope {
    let exact = ArgumentSchema::new(json!({ "const": arguments }));
    Scope {
        title: "exactly these arguments".to_owned(),
        also: "nothing else".to_owned(),
        // Too large or too deep to be a schema: then nothing but the call itself can be meant, which needs no scope.
        schema: exact.unwrap_or_else(|_| ArgumentSchema::nothing()),
    }
}

fn partial(title: &str, held: &[&Held], names: &BTreeSet<String>) -> Scope {
    let properties: Map<String, Json> = held.iter().map(|held| (held.name.clone(), held.schema.clone())).collect();
    let required: Vec<&str> = held.iter().map(|held| held.name.as_str()).collect();
    let words: Vec<&str> = held.iter().map(|held| held.words.as_str()).collect();
    let free: Vec<String> =
        names.iter().filter(|name| !properties.contains_key(name.as_str())).map(|name| format!("`{name}`")).collect();
    let free = match free.as_slice() {
        [] => String::new(),
        free => format!(", with anything in {}", free.join(", ")),
    };
    Scope {
        title: title.to_owned(),
        also: format!("{}{free}", words.join(", ")),
        schema: schema(json!({ "properties": properties, "required": required })),
    }
}

fn held(parameters: &Json, arguments: &Json) -> Vec<Held> {
    let mut held = Vec::new();
    for (name, value) in arguments.as_object().into_iter().flatten() {
        if let Some(choice) = choice(parameters, name, value) {
            held.push(choice);
            continue;
        }
        let Some(text) = value.as_str() else { continue };
        if let Ok(path) = text.parse::<GuestPath>() {
            let Some(folder) = path.parent().filter(|folder| *folder != GuestPath::root()) else { continue };
            held.push(Held {
                name: name.clone(),
                schema: beneath(&format!("{folder}/")),
                words: format!("any path beneath `{}` in `{name}`", escape_text(folder.as_str(), VALUE_MAX)),
                kind: Kind::Folder,
            });
        } else if let Ok(url) = text.parse::<NormalUrl>() {
            let origin = format!("{}://{}/", url.scheme(), url.authority());
            held.push(Held {
                name: name.clone(),
                words: format!("any URL at `{}` in `{name}`", escape_text(&origin, VALUE_MAX)),
                schema: beneath(&origin),
                kind: Kind::Host,
            });
        }
    }
    held
}

/// Texts that begin with `prefix` and lead nowhere else: no dot segment, plain or encoded, and no backslash that some read as a
/// slash.
fn beneath(prefix: &str) -> Json {
    json!({
        "type": "string",
        "pattern": format!("^{}", regex_syntax::escape(prefix)),
        "not": { "pattern": "(^|/)\\s*([.]|%2[eE]){1,2}\\s*(/|$|[?#])|\\\\|%2[fF]|%5[cC]|[\\x00-\\x1f]" },
    })
}

/// An argument that is one of a few names: of an enum, or the case of a variant.
fn choice(parameters: &Json, name: &str, value: &Json) -> Option<Held> {
    let declared = resolve(parameters, parameters.get("properties")?.get(name)?);
    let held = |schema: Json, shown: &str, with: &str| Held {
        name: name.to_owned(),
        schema,
        words: format!("`{}`{with} in `{name}`", escape_text(shown, VALUE_MAX)),
        kind: Kind::Enum,
    };
    let texts = declared.get("enum").and_then(Json::as_array);
    if texts.is_some_and(|texts| texts.contains(value)) {
        return Some(held(json!({ "const": value }), value.as_str()?, ""));
    }
    if declared.get("oneOf").is_some() {
        let tag = value.get("tag")?;
        let with = if value.get("val").is_some() { " with any value" } else { "" };
        let schema = json!({ "properties": { "tag": { "const": tag } }, "required": ["tag"] });
        return Some(held(schema, tag.as_str()?, with));
    }
    None
}

fn resolve<'j>(root: &'j Json, schema: &'j Json) -> &'j Json {
    let target = schema.get("$ref").and_then(Json::as_str).and_then(|target| target.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

/// A schema of our own making.
fn schema(source: Json) -> ArgumentSchema {
    // What does not compile, such as a pattern over a folder whose name is huge, is a scope that holds nothing.
    ArgumentSchema::new(source).unwrap_or_else(|_| ArgumentSchema::nothing())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(scopes: &[Scope]) -> Vec<&str> {
        scopes.iter().map(|scope| scope.title.as_str()).collect()
    }

    fn found<'s>(scopes: &'s [Scope], title: &str) -> &'s Scope {
        scopes.iter().find(|scope| scope.title == title).unwrap_or_else(|| panic!("{title}: {:?}", titles(scopes)))
    }

    #[test]
    fn a_path_can_be_allowed_with_its_folder_and_no_way_out_of_it() {
        let arguments = json!({ "path": "/data/public/q3.csv", "text": "x" });
        let scopes = scopes(&json!({}), &arguments, &[]);
        assert_eq!(titles(&scopes), ["exactly these arguments", "the same folder", "any arguments"]);
        assert_eq!(scopes[1].also, "any path beneath `/data/public` in `path`, with anything in `text`");
        let fits = |path: &str| scopes[1].schema.fits(&json!({ "path": path, "text": "other" }));
        for yes in ["/data/public/q4.csv", "/data/public/sub/a", "/data/public/..a", "/data/public/a..b"] {
            assert!(fits(yes), "{yes}");
        }
        for no in [
            "/data/public",
            "/data/publicity/a",
            "/data/public/../private/a",
            "/data/public/..",
            "/data/public/./a",
            "/data/public/sub/../../private",
            "/x/data/public/a",
            "/data/public/a\\..\\b",
            "/data/public/a\0b",
            "/data/public/..\n/x",
            "/data/public/.. /x",
            "/data/public/ ../x",
        ] {
            assert!(!fits(no), "{no:?}");
        }
        assert!(!scopes[1].schema.fits(&json!({ "text": "x" })), "an absent path is not beneath the folder");
        assert!(!scopes[0].schema.fits(&json!({ "path": "/data/public/q3.csv", "text": "y" })));
        assert!(scopes[2].schema.fits(&json!({ "path": "/etc/passwd" })));
    }

    #[test]
    fn a_url_can_be_allowed_with_its_host_and_port() {
        let scopes = scopes(&json!({}), &json!({ "url": "https://api.example.com:8443/v1/x?q=1" }), &[]);
        let host = found(&scopes, "the same host");
        assert_eq!(host.also, "any URL at `https://api.example.com:8443/` in `url`");
        assert!(host.schema.fits(&json!({ "url": "https://api.example.com:8443/other" })));
        for no in [
            "https://api.example.com/v1",
            "http://api.example.com:8443/v1",
            "https://api-example.com:8443/v1",
            "https://api.example.com:8443@evil.test/",
            "https://api.example.com:8443/../x",
            "https://api.example.com:8443/a/%2e%2e/x",
            "https://evil.test/https://api.example.com:8443/",
        ] {
            assert!(!host.schema.fits(&json!({ "url": no })), "{no}");
        }
    }

    #[test]
    fn a_choice_can_be_allowed_with_anything_beside_it() {
        let parameters = json!({ "properties": { "case": { "$ref": "#/$defs/case" }, "how": { "$ref": "#/$defs/how" } },
            "$defs": { "case": { "enum": ["upper", "lower"] }, "how": { "oneOf": [{}] } } });
        let arguments = json!({ "case": "upper", "text": "a", "how": { "tag": "all", "val": 1 } });
        let scopes = scopes(&parameters, &arguments, &[]);
        let choice = found(&scopes, "the same choice");
        assert_eq!(choice.also, "`upper` in `case`, `all` with any value in `how`, with anything in `text`");
        assert!(choice.schema.fits(&json!({ "case": "upper", "text": "b", "how": { "tag": "all", "val": 2 } })));
        assert!(!choice.schema.fits(&json!({ "case": "lower", "text": "a", "how": { "tag": "all", "val": 1 } })));
        assert!(!choice.schema.fits(&json!({ "case": "upper", "text": "a", "how": { "tag": "one", "val": 1 } })));
    }

    #[test]
    fn a_sentence_names_the_arguments_that_the_call_left_out() {
        let parameters = json!({ "properties": { "path": { "type": "string" }, "recursive": { "type": "boolean" } } });
        let scopes = scopes(&parameters, &json!({ "path": "/data/a" }), &[]);
        assert_eq!(
            found(&scopes, "the same folder").also,
            "any path beneath `/data` in `path`, with anything in `recursive`"
        );
    }

    #[test]
    fn no_scope_holds_what_no_record_keeps() {
        let redact = |pointer: &str| Redaction { pointer: pointer.to_owned(), line: 1 };
        let arguments = json!({ "path": "/data/a", "url": "https://a.test/?token=hunter2" });
        let scopes = scopes(&json!({}), &arguments, &[redact("/url"), redact("/absent")]);
        assert_eq!(titles(&scopes), ["the same folder", "any arguments"]);
        assert!(!scopes.iter().any(|scope| scope.schema.source().to_string().contains("a.test")));
    }

    #[test]
    fn every_scope_holds_the_call_that_was_asked_about() {
        for arguments in [
            json!({}),
            json!({ "path": "/a", "url": "https://a.test/x", "n": 1 }),
            json!({ "path": "/a (b)+[c]/d$", "to": "/x.y/z" }),
            json!({ "deep": [[[[{ "a": [1] }]]]] }),
            json!({ "text": "x".repeat(100_000) }),
            json!({ "path": format!("/{}/x", "é".repeat(1_500)) }),
        ] {
            let scopes = scopes(&json!({}), &arguments, &[]);
            assert!(!scopes.is_empty());
            assert!(scopes.iter().all(|scope| scope.schema.fits(&arguments)));
        }
    }
}
