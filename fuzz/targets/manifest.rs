//! A manifest loads or says why not, in bounded time; what loads has capabilities that are told apart.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a fuzz target")]

use std::collections::BTreeSet;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use portcullis::publication::manifest;
use serde_json::json;

fuzz_target!(|text: &str| {
    let manifest = match manifest::parse(Path::new("manifest.yaml"), text) {
        Ok(manifest) => manifest,
        Err(error) => {
            assert!(!error.message.is_empty());
            return;
        }
    };
    let ids: BTreeSet<_> = manifest.capabilities.iter().map(|capability| &capability.id).collect();
    assert_eq!(ids.len(), manifest.capabilities.len());
    assert!(ids.iter().all(|id| !id.is_tool_id()));
    if let Some(flow) = &manifest.flow {
        assert!(!flow.starts_with('/') && flow.split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
    }
    for capability in &manifest.capabilities {
        assert!(capability.delegate.iter().all(|id| ids.contains(id)));
        for arguments in [json!({}), json!({ "ledger": "documents" }), json!({ "a": [1, { "b": null }] })] {
            for matched in manifest.matching(&capability.tool, &arguments) {
                assert_eq!(matched.tool, capability.tool);
            }
        }
    }
});
