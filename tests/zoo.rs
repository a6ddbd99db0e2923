//! Every kind of value through a real component and back.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::{Server, World, blocked, failed, value};
use portcullis::gate::codes::Code;
use serde_json::{Value as Json, json};

fn world() -> World {
    World::new("[tools.text]\nsource = \"text.wasm\"\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n")
}

#[tokio::test]
async fn what_goes_in_comes_out() {
    let world = world();
    let run = world.run().await;
    let record = json!({ "bytes": 3, "characters": 3, "words": 1, "longest": "abc", "average": 3.0 });
    let measured = value(run.call("text/measure", json!({ "text": "abc" })).await.unwrap());
    let record = if measured.is_object() { measured } else { record };
    let cases: Vec<(&str, Vec<Json>)> = vec![
        ("bool", vec![json!(true), json!(false)]),
        ("s8", vec![json!(-128), json!(127)]),
        ("s16", vec![json!(-32768), json!(32767)]),
        ("s32", vec![json!(-2147483648i64), json!(2147483647)]),
        ("s64", vec![json!("-9223372036854775808"), json!("9223372036854775807"), json!("0")]),
        ("u8", vec![json!(0), json!(255)]),
        ("u16", vec![json!(65535)]),
        ("u32", vec![json!(4294967295u32)]),
        ("u64", vec![json!("18446744073709551615"), json!("9007199254740993")]),
        ("f32", vec![json!(0.1), json!(-0.0), json!("NaN"), json!("Infinity"), json!(3.4028234663852886e38)]),
        ("f64", vec![json!(0.1), json!(1e308), json!("-Infinity"), json!(5e-324), json!("NaN")]),
        ("char", vec![json!("ü"), json!("🜁"), json!("\u{0}")]),
        ("string", vec![json!(""), json!("e\u{301} \u{202e} \u{0} 🜁")]),
        ("bytes", vec![json!(""), json!("AP8="), json!("AAEC")]),
        ("list", vec![json!([]), json!([-1, 0, 1])]),
        ("tuple", vec![json!(["a", 1, true])]),
        ("record", vec![record.clone()]),
        ("records", vec![json!([]), json!([record.clone(), record.clone()])]),
        ("enum", vec![json!("upper"), json!("lower")]),
        ("flags", vec![json!([])]),
        ("option", vec![json!(null), json!(7)]),
        ("nested-option", vec![json!(null), json!({ "some": null }), json!({ "some": "x" })]),
        ("map", vec![json!([]), json!([["a", record.clone()]])]),
    ];
    for (kind, values) in cases {
        for sent in values {
            let came = value(run.call(&format!("text/echo-{kind}"), json!({ "value": sent })).await.unwrap());
            assert_eq!(came, sent, "{kind}");
        }
    }
    for sent in [json!({ "ok": "x" }), json!({ "err": 7 })] {
        let came = value(run.call("text/echo-result", json!({ "value": sent })).await.unwrap());
        assert_eq!(came, json!([sent]));
    }
    for sent in [json!({ "ok": null }), json!({ "err": null })] {
        let came = value(run.call("text/echo-unit-result", json!({ "value": sent })).await.unwrap());
        assert_eq!(came, json!([sent]));
    }
    assert_eq!(value(run.call("text/echo-outcome", json!({ "value": { "ok": record } })).await.unwrap()), record);
    assert_eq!(value(run.call("text/nothing", json!({})).await.unwrap()), json!(null));
    assert_eq!(value(run.call("text/nothing", json!(null)).await.unwrap()), json!(null));
}

#[tokio::test]
async fn an_err_at_the_top_is_the_tools_own_error() {
    let world = world();
    let run = world.run().await;
    let failure = failed(run.call("text/require-ascii", json!({ "text": "ü" })).await.unwrap());
    assert_eq!(failure.code, Code::ToolError);
    assert_eq!(failure.value, Some(json!(failure.text)));
    let failure = failed(run.call("text/parse", json!({ "text": "x" })).await.unwrap());
    assert_eq!(failure.value, Some(json!(null)), "an error without a payload");
}

#[tokio::test]
async fn flags_come_out_in_declaration_order() {
    let world = world();
    let run = world.run().await;
    let schema = run.snapshot().tool(&"text/echo-flags".parse().unwrap()).unwrap().descriptor.input_schema.clone();
    let names = schema["properties"]["value"]["items"]["enum"].clone();
    let mut reversed = names.as_array().unwrap().clone();
    reversed.reverse();
    assert!(reversed.len() > 1);
    let came = value(run.call("text/echo-flags", json!({ "value": reversed })).await.unwrap());
    assert_eq!(came, names);
    let denial = blocked(run.call("text/echo-flags", json!({ "value": [names[0], names[0]] })).await.unwrap());
    assert_eq!(denial.code, Code::ArgumentsInvalid);
}

#[tokio::test]
async fn documentation_reaches_the_descriptor() {
    let world = world();
    let run = world.run().await;
    let change = &run.snapshot().tool(&"text/change".parse().unwrap()).unwrap().descriptor;
    assert_eq!(change.description.as_deref(), Some("Change the case of a text."));
    let case = &change.input_schema["properties"]["case"];
    assert!(case["description"].as_str().unwrap().starts_with("Which way to change the case."), "{case}");
    assert_eq!(case["enum"][0], "upper");
}

#[tokio::test]
async fn the_http_example_reaches_what_its_needs_and_the_host_both_name() {
    // Its declared needs name one public API; a grant for anything else is none.
    let server = Server::saying("hello");
    let world = World::new(&format!(
        "[tools.fetch]\nsource = \"fetch.wasm\"\nhttp = [{{ url = \"{}\", private = true }}]\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
        server.url("/*")
    ));
    failed(world.call("fetch/get", json!({ "url": server.url("/") })).await);
    assert_eq!(server.count(), 0);
    // Without a declaration only the host decides, and a rule narrows to the argument.
    let world = World::new(&format!(
        "[tools.net]\nsource = \"hostile-net.wasm\"\nhttp = [{{ url = \"{}\", private = true }}]\n[[policy.rules]]\ntool = \"net/*\"\nverdict = \"allow\"\nonly = {{ http = [\"{{url}}\"] }}\n",
        server.url("/*")
    ));
    let output = common::done(world.call("net/try-get", json!({ "url": server.url("/a?b=c") })).await);
    assert!(output.report.authority.iter().any(|line| line.contains("/a?b=c")), "{:?}", output.report.authority);
    failed(world.call("net/follow", json!({ "url": server.url("/../a"), "times": 1 })).await);
    assert_eq!(server.count(), 1);
}
