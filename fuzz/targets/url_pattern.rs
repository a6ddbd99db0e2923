//! URL patterns: what is written reads back as the same, and a meet is exactly both.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a fuzz target")]

use libfuzzer_sys::fuzz_target;
use portcullis::authority::url_pattern::{NormalUrl, UrlPattern};

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (a, b, url) = (next(), next(), next());
    let url = url.parse::<NormalUrl>();
    if let Ok(url) = &url {
        assert_eq!(url.to_string().parse::<NormalUrl>().as_ref(), Ok(url));
        let path = url.target().split('?').next().unwrap_or_default();
        assert!(!path.split('/').any(|part| part == "." || part == ".."), "{url}");
        assert!(!url.host().contains(['*', '@', '/', '\\']) && url.target().starts_with('/'), "{url}");
        let exact = UrlPattern::exact(url);
        assert!(exact.matches(url));
        assert_eq!(exact.meet(&exact), Some(exact.clone()));
    }
    let Ok(a) = a.parse::<UrlPattern>() else { return };
    assert_eq!(a.to_string().parse::<UrlPattern>().as_ref(), Ok(&a), "{a}");
    assert_eq!(a.meet(&a).as_ref(), Some(&a));
    let Ok(b) = b.parse::<UrlPattern>() else { return };
    let meet = a.meet(&b);
    assert_eq!(meet.as_ref().map(ToString::to_string), b.meet(&a).as_ref().map(ToString::to_string));
    if let Ok(url) = &url {
        let both = a.matches(url) && b.matches(url);
        assert_eq!(meet.is_some_and(|meet| meet.matches(url)), both, "{a} {b} {url}");
    }
});
