//! Argument templates: a value is never a pattern, and never leads out of what the template says around it.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a fuzz target")]

use libfuzzer_sys::fuzz_target;
use portcullis::authority::Authority;
use portcullis::authority::path::GuestPath;
use portcullis::authority::template::Only;
use portcullis::authority::url_pattern::NormalUrl;
use serde_json::json;

fn only(axis: &str, template: &str) -> Option<Only> {
    serde_json::from_value(json!({ axis: [template] })).ok()
}

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (template, value, probe) = (next(), next(), next());
    let arguments = json!({ "v": value, "deep": { "v": value }, "n": 1 });
    for axis in ["files", "http"] {
        let Some(only) = only(axis, template) else { continue };
        let left = only.of(&arguments);
        let again: Only = serde_json::from_value(only.to_json()).unwrap();
        assert_eq!(again.of(&arguments), left, "{template}");
        assert_eq!(Authority::restore(&left.store().unwrap()).as_ref(), Some(&left), "{template} {value:?}");
        only.misses(&arguments);
    }
    // A whole value grants itself, and a folder what it holds; both only where the value is in normal form.
    let (path, probe_path) = (value.parse::<GuestPath>(), probe.parse::<GuestPath>());
    let (one, all) =
        (only("files", "{v}").unwrap().of(&arguments), only("files", "{deep.v}/**").unwrap().of(&arguments));
    if let Ok(probe) = &probe_path {
        assert_eq!(one.files.access(probe).is_some(), path.as_ref() == Ok(probe));
        assert_eq!(all.files.access(probe).is_some(), path.as_ref().is_ok_and(|path| probe.is_within(path)));
        // A value within a pattern takes one segment, and stays where it is.
        let within = only("files", "/data/{v}/x").unwrap().of(&arguments);
        let segments: Vec<&str> = probe.segments().collect();
        let wanted = segments.len() == 3 && segments[0] == "data" && segments[1] == value && segments[2] == "x";
        assert_eq!(within.files.access(probe).is_some(), wanted);
    }
    let (url, probe_url) = (value.parse::<NormalUrl>(), probe.parse::<NormalUrl>());
    let one = only("http", "{v}").unwrap().of(&arguments);
    let within = only("http", "https://a.test/x/{v}/*").unwrap().of(&arguments);
    if let Ok(probe) = &probe_url {
        assert_eq!(one.http.allows("GET", probe).is_some(), url.as_ref() == Ok(probe));
        if within.http.allows("GET", probe).is_some() {
            assert!(probe.to_string().starts_with(&format!("https://a.test/x/{value}/")), "{probe} {value}");
        }
    }
});
