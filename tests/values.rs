//! The table of values, proven over generated types: decode and encode are each other's inverse, and schema and decoder agree.
//!
//! `jsonschema` is the independent referee. What a schema cannot say, and the decoder adds:
//! - a duplicate key (a schema sees a parsed document);
//! - the exact range of 64-bit integers (the pattern bounds their length);
//! - the spelling `-0` of a wide integer (the pattern excludes it too) and wide integers as JSON numbers up to 2^53 − 1,
//!   which the decoder takes and the schema does not offer;
//! - the caps on the size of a document.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::sync::OnceLock;

use portcullis::descriptor::types::{Int, Kind, TypeRef, Types};
use portcullis::descriptor::{self, Function};
use portcullis::value::canonical_bytes;
use proptest::prelude::*;
use proptest::strategy::{BoxedStrategy, NewTree, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value as Json, json};
use wasmtime::component::Val;

/// A random WIT type, as text, with the declarations that it needs.
#[derive(Clone, Debug)]
enum Shape {
    Plain(&'static str),
    List(Box<Shape>),
    Option(Box<Shape>),
    Result(Option<Box<Shape>>, Option<Box<Shape>>),
    Tuple(Vec<Shape>),
    Record(Vec<Shape>),
    Variant(Vec<Option<Shape>>),
    Enum(usize),
    Flags(usize),
}

fn shape() -> impl Strategy<Value = Shape> {
    let plain = proptest::sample::select(vec![
        "bool", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64", "char", "string", "list<u8>",
    ]);
    let leaf = prop_oneof![
        6 => plain.prop_map(Shape::Plain),
        1 => (1..6usize).prop_map(Shape::Enum),
        1 => (1..33usize).prop_map(Shape::Flags),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed().prop_map(Shape::List),
            boxed().prop_map(Shape::Option),
            (proptest::option::of(boxed()), proptest::option::of(boxed())).prop_map(|(ok, err)| Shape::Result(ok, err)),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Shape::Tuple),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Shape::Record),
            proptest::collection::vec(proptest::option::of(inner.clone()), 1..4).prop_map(Shape::Variant),
        ]
    })
}

fn declare(shape: &Shape, declarations: &mut Vec<String>) -> String {
    let number = declarations.len();
    match shape {
        Shape::Plain(name) => (*name).to_owned(),
        Shape::List(inner) => format!("list<{}>", declare(inner, declarations)),
        Shape::Option(inner) => format!("option<{}>", declare(inner, declarations)),
        Shape::Result(ok, err) => {
            let ok = ok.as_ref().map(|ok| declare(ok, declarations));
            let err = err.as_ref().map(|err| declare(err, declarations));
            match (ok, err) {
                (None, None) => "result".to_owned(),
                (Some(ok), None) => format!("result<{ok}>"),
                (ok, Some(err)) => {
                    format!("result<{}, {err}>", ok.unwrap_or_else(|| "_".to_owned()))
                }
            }
        }
        Shape::Tuple(items) => {
            let items: Vec<String> = items.iter().map(|item| declare(item, declarations)).collect();
            format!("tuple<{}>", items.join(", "))
        }
        Shape::Record(fields) => {
            declarations.push(String::new());
            let fields: Vec<String> =
                fields.iter().enumerate().map(|(i, field)| format!("m{i}: {}", declare(field, declarations))).collect();
            declarations[number] = format!("record t{number} {{ {} }}", fields.join(", "));
            format!("t{number}")
        }
        Shape::Variant(cases) => {
            declarations.push(String::new());
            let cases: Vec<String> = cases
                .iter()
                .enumerate()
                .map(|(i, case)| match case {
                    Some(payload) => format!("c{i}({})", declare(payload, declarations)),
                    None => format!("c{i}"),
                })
                .collect();
            declarations[number] = format!("variant t{number} {{ {} }}", cases.join(", "));
            format!("t{number}")
        }
        Shape::Enum(count) | Shape::Flags(count) => {
            let keyword = if matches!(shape, Shape::Enum(_)) { "enum" } else { "flags" };
            let names: Vec<String> = (0..*count).map(|i| format!("n{i}")).collect();
            declarations.push(format!("{keyword} t{number} {{ {} }}", names.join(", ")));
            format!("t{number}")
        }
    }
}

/// A component whose `i.f` takes one value of each type, made without any toolchain.
fn function(shapes: &[Shape]) -> Function {
    let mut component = component(shapes);
    assert_eq!(component.refused, []);
    component.functions.remove(0)
}

fn component(shapes: &[Shape]) -> descriptor::Component {
    let mut declarations = Vec::new();
    let params: Vec<String> =
        shapes.iter().enumerate().map(|(i, shape)| format!("p{i}: {}", declare(shape, &mut declarations))).collect();
    let wit = format!(
        "package a:b;\ninterface i {{ {} f: func({}); }}\nworld w {{ export i; }}",
        declarations.iter().map(|d| format!("{d}\n")).collect::<String>(),
        params.join(", ")
    );
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("a.wit", &wit).unwrap_or_else(|error| panic!("{error:#}"));
    let world = resolve.select_world(&[package], Some("w")).unwrap();
    let mut module = wit_component::dummy_module(&resolve, world, wit_parser::ManglingAndAbi::Standard32);
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8).unwrap();
    let bytes = wit_component::ComponentEncoder::default().module(&module).unwrap().encode().unwrap();
    descriptor::read(&bytes).unwrap()
}

/// Random values of a type.
fn values(types: &Types, ty: TypeRef) -> BoxedStrategy<Val> {
    let nested = |ty: &TypeRef| values(types, *ty).prop_map(Box::new);
    match &types.get(ty).kind {
        Kind::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
        Kind::Int(Int::S8) => any::<i8>().prop_map(Val::S8).boxed(),
        Kind::Int(Int::S16) => any::<i16>().prop_map(Val::S16).boxed(),
        Kind::Int(Int::S32) => any::<i32>().prop_map(Val::S32).boxed(),
        Kind::Int(Int::S64) => {
            prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3..3i64].prop_map(Val::S64).boxed()
        }
        Kind::Int(Int::U8) => any::<u8>().prop_map(Val::U8).boxed(),
        Kind::Int(Int::U16) => any::<u16>().prop_map(Val::U16).boxed(),
        Kind::Int(Int::U32) => any::<u32>().prop_map(Val::U32).boxed(),
        Kind::Int(Int::U64) => prop_oneof![any::<u64>(), Just(u64::MAX), 0..3u64].prop_map(Val::U64).boxed(),
        Kind::F32 => prop_oneof![proptest::num::f32::ANY, Just(f32::MAX), Just(f32::MIN_POSITIVE), Just(-0.0f32)]
            .prop_map(Val::Float32)
            .boxed(),
        Kind::F64 => prop_oneof![proptest::num::f64::ANY, Just(f64::MAX), Just(-0.0f64), Just(5e-324)]
            .prop_map(Val::Float64)
            .boxed(),
        Kind::Char => any::<char>().prop_map(Val::Char).boxed(),
        Kind::String => any::<String>().prop_map(Val::String).boxed(),
        Kind::Bytes => proptest::collection::vec(any::<u8>(), 0..9)
            .prop_map(|bytes| Val::List(bytes.into_iter().map(Val::U8).collect()))
            .boxed(),
        Kind::List(inner) => proptest::collection::vec(values(types, *inner), 0..3).prop_map(Val::List).boxed(),
        Kind::Tuple(items) => {
            items.iter().map(|ty| values(types, *ty)).collect::<Vec<_>>().prop_map(Val::Tuple).boxed()
        }
        Kind::Record(fields) => {
            let names: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
            fields
                .iter()
                .map(|field| values(types, field.ty))
                .collect::<Vec<_>>()
                .prop_map(move |values| Val::Record(names.clone().into_iter().zip(values).collect()))
                .boxed()
        }
        Kind::Variant(cases) => proptest::strategy::Union::new(cases.iter().map(|case| {
            let name = case.name.clone();
            match &case.payload {
                Some(ty) => nested(ty).prop_map(move |payload| Val::Variant(name.clone(), Some(payload))).boxed(),
                None => Just(Val::Variant(name, None)).boxed(),
            }
        }))
        .boxed(),
        Kind::Enum(cases) => {
            let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
            proptest::sample::select(names).prop_map(Val::Enum).boxed()
        }
        Kind::Flags(cases) => {
            let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
            let count = names.len();
            proptest::sample::subsequence(names, 0..=count).prop_map(Val::Flags).boxed()
        }
        Kind::Option { inner, .. } => proptest::option::of(nested(inner)).prop_map(Val::Option).boxed(),
        Kind::Result { ok, err } => {
            let side = |ty: &Option<TypeRef>| match ty {
                Some(ty) => nested(ty).prop_map(Some).boxed(),
                None => Just(None).boxed(),
            };
            prop_oneof![
                side(ok).prop_map(|payload| Val::Result(Ok(payload))),
                side(err).prop_map(|payload| Val::Result(Err(payload))),
            ]
            .boxed()
        }
    }
}

/// A function with arguments that fit it.
#[derive(Debug)]
struct Case {
    function: Function,
    arguments: Vec<Val>,
}

#[derive(Debug)]
struct CaseTree(Case);

impl ValueTree for CaseTree {
    type Value = (Function, Vec<Val>);

    fn current(&self) -> Self::Value {
        (self.0.function.clone(), self.0.arguments.clone())
    }

    fn simplify(&mut self) -> bool {
        false
    }

    fn complicate(&mut self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Cases;

impl Strategy for Cases {
    type Tree = CaseTree;
    type Value = (Function, Vec<Val>);

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let shapes = proptest::collection::vec(shape(), 1..4).new_tree(runner)?.current();
        let function = function(&shapes);
        let mut arguments = Vec::new();
        for param in function.plan.params() {
            arguments.push(values(function.plan.types(), param.ty).new_tree(runner)?.current());
        }
        Ok(CaseTree(Case { function, arguments }))
    }
}

fn encoded(function: &Function, arguments: &[Val]) -> Json {
    let mut map = serde_json::Map::new();
    for (param, value) in function.plan.params().iter().zip(arguments) {
        map.insert(param.name.clone(), function.plan.encode(param.ty, value));
    }
    Json::Object(map)
}

fn validator(function: &Function) -> jsonschema::Validator {
    jsonschema::options().with_draft(jsonschema::Draft::Draft202012).build(function.input_schema()).unwrap()
}

/// The same value, with NaN equal to itself.
fn same(a: &Val, b: &Val) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// Documents near `json`: one place of it replaced by something else.
fn mutated(json: &Json) -> Vec<Json> {
    let others = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(256),
        json!(1.5),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("0"),
        json!("-0"),
        json!("01"),
        json!("-5"),
        json!("AA=="),
        json!("AB=="),
        json!("NaN"),
        json!([]),
        json!([0]),
        json!({}),
        json!({ "some": null }),
        json!({ "tag": "c0" }),
        json!({ "tag": "c0", "val": null }),
        json!({ "ok": null }),
        json!({ "err": 1, "ok": 1 }),
        json!(["n0"]),
        json!(["n0", "n0"]),
        json!("n0"),
        json!(1e3),
        json!(2.0),
        json!(4294967296u64),
    ];
    let mut documents: Vec<Json> = others.to_vec();
    match json {
        Json::Object(map) => {
            for (key, value) in map {
                for other in mutated(value) {
                    let mut map = map.clone();
                    map.insert(key.clone(), other);
                    documents.push(Json::Object(map));
                }
                let mut map = map.clone();
                map.remove(key);
                documents.push(Json::Object(map));
            }
            let mut map = map.clone();
            map.insert("extra".to_owned(), json!(1));
            documents.push(Json::Object(map));
        }
        Json::Array(items) => {
            for (index, value) in items.iter().enumerate().take(3) {
                for other in mutated(value) {
                    let mut items = items.clone();
                    items[index] = other;
                    documents.push(Json::Array(items));
                }
            }
            let mut items = items.clone();
            items.push(items.first().cloned().unwrap_or(json!(1)));
            documents.push(Json::Array(items));
        }
        _ => {}
    }
    documents
}

/// Whether a document holds a number or an over-long decimal where a wide integer stands: what the schema cannot say.
fn has_wide_exception(types: &Types, ty: TypeRef, json: &Json) -> bool {
    let nested = |ty: &TypeRef, json: &Json| has_wide_exception(types, *ty, json);
    match (&types.get(ty).kind, json) {
        (Kind::Int(int), Json::Number(_)) => int.is_wide(),
        (Kind::Int(int), Json::String(text)) if int.is_wide() => {
            text.parse::<i128>().is_ok_and(|value| value < int.range().0 || value > int.range().1)
        }
        (Kind::List(inner), Json::Array(items)) => items.iter().any(|item| nested(inner, item)),
        (Kind::Tuple(types), Json::Array(items)) => types.iter().zip(items).any(|(ty, item)| nested(ty, item)),
        (Kind::Record(fields), Json::Object(map)) => {
            fields.iter().any(|field| map.get(&field.name).is_some_and(|value| nested(&field.ty, value)))
        }
        (Kind::Variant(cases), Json::Object(map)) => {
            let case = cases.iter().find(|case| map.get("tag") == Some(&json!(case.name)));
            case.and_then(|case| case.payload).is_some_and(|ty| map.get("val").is_some_and(|value| nested(&ty, value)))
        }
        (Kind::Option { inner, wrapped: true }, Json::Object(map)) => {
            map.get("some").is_some_and(|value| nested(inner, value))
        }
        (Kind::Option { inner, .. }, json) => nested(inner, json),
        (Kind::Result { ok, err }, Json::Object(map)) => {
            let side = |key: &str, ty: &Option<TypeRef>| {
                ty.as_ref().is_some_and(|ty| map.get(key).is_some_and(|v| nested(ty, v)))
            };
            side("ok", ok) || side("err", err)
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_decodes_to_the_same_and_fits_the_schema((function, arguments) in Cases) {
        let json = encoded(&function, &arguments);
        let decoded = function.plan.decode(&json).unwrap_or_else(|error| panic!("{json}\n{error}"));
        for (before, after) in arguments.iter().zip(&decoded.values) {
            prop_assert!(same(before, after), "{:?}\n{:?}\n{}", before, after, json);
        }
        prop_assert!(validator(&function).is_valid(&json), "{}\n{}", json, function.input_schema());
        // The canonical form is a fixed point, and its text parses strictly to itself.
        let again = function.plan.decode(&decoded.canonical).unwrap();
        let bytes = canonical_bytes(&decoded.canonical);
        prop_assert_eq!(&bytes, &canonical_bytes(&again.canonical));
        prop_assert_eq!(&bytes, &canonical_bytes(&portcullis::value::strict_json(&bytes).unwrap()));
    }

    #[test]
    fn schema_and_decoder_accept_the_same_documents((function, arguments) in Cases) {
        let validator = validator(&function);
        for document in mutated(&encoded(&function, &arguments)).into_iter().take(4_000) {
            let decodes = function.plan.decode(&document).is_ok();
            let fits = validator.is_valid(&document);
            if decodes != fits {
                let params = function.plan.params();
                let excepted = document.as_object().is_some_and(|map| params.iter().any(|param| {
                    map.get(&param.name).is_some_and(|value| has_wide_exception(function.plan.types(), param.ty, value))
                })) || document.is_null();
                prop_assert!(excepted, "decodes {} fits {}\n{}\n{}", decodes, fits, document, function.input_schema());
            }
        }
    }
}

fn table() -> &'static Function {
    static TABLE: OnceLock<Function> = OnceLock::new();
    TABLE.get_or_init(|| {
        function(&[Shape::Record(vec![Shape::Plain("u64"), Shape::Option(Box::new(Shape::Plain("u8")))])])
    })
}

#[test]
fn one_value_has_one_canonical_encoding() {
    let canonical = |text: &str| {
        let json = portcullis::value::strict_json(text.as_bytes()).unwrap();
        table().plan.decode(&json).map(|arguments| arguments.canonical.to_string())
    };
    let wanted = r#"{"p0":{"m0":"42"}}"#;
    for text in
        [r#"{"p0":{"m0":42}}"#, r#"{"p0":{"m0":42.0}}"#, r#"{"p0":{"m0":"42"}}"#, r#"{"p0":{"m0":4.2e1,"m1":null}}"#]
    {
        assert_eq!(canonical(text).unwrap(), wanted, "{text}");
    }
    for text in [
        r#"{"p0":{"m0":"042"}}"#,
        r#"{"p0":{"m0":"+42"}}"#,
        r#"{"p0":{"m0":" 42"}}"#,
        r#"{"p0":{"m0":9007199254740992}}"#,
        r#"{"p0":{"m0":18446744073709551615}}"#,
        r#"{"p0":{"m0":"18446744073709551616"}}"#,
        r#"{"p0":{"m0":-1}}"#,
        r#"{"p0":{"m0":"-0"}}"#,
        r#"{"p0":{"m0":1.5}}"#,
        r#"{"p0":{"m0":true}}"#,
        r#"{"p0":{"m0":null}}"#,
        r#"{"p0":{"m0":1,"m1":256}}"#,
        r#"{"p0":{"m0":1,"m2":1}}"#,
        r#"{"p0":null}"#,
        r#"{}"#,
        r#"{"p0":{"m0":1},"p1":1}"#,
    ] {
        assert!(canonical(text).is_err(), "{text}");
    }
    assert_eq!(canonical(r#"{"p0":{"m0":9007199254740991}}"#).unwrap(), r#"{"p0":{"m0":"9007199254740991"}}"#);
    assert_eq!(
        canonical(r#"{"p0":{"m0":"18446744073709551615"}}"#).unwrap(),
        r#"{"p0":{"m0":"18446744073709551615"}}"#
    );
}

#[test]
fn a_mismatch_names_the_place_and_echoes_nothing() {
    let error = table().plan.decode(&json!({ "p0": { "m0": "hunter2" } })).unwrap_err();
    assert_eq!(error.path, "p0.m0");
    assert!(!error.to_string().contains("hunter2"));
    let error = table().plan.decode(&json!({ "p0": { "m0": 1, "hunter2": 1 } })).unwrap_err();
    assert_eq!(error.path, "p0");
    assert!(!error.to_string().contains("hunter2"));
}

fn nested(depth: usize, mut shape: Shape, wrap: fn(Box<Shape>) -> Shape) -> Shape {
    for _ in 0..depth {
        shape = wrap(Box::new(shape));
    }
    shape
}

#[test]
fn options_forty_deep_keep_every_level_apart() {
    let function = function(&[nested(40, Shape::Plain("u8"), Shape::Option)]);
    let param = &function.plan.params()[0];
    let mut document = json!(7);
    for _ in 0..39 {
        document = json!({ "some": document });
    }
    let arguments = json!({ "p0": document });
    let decoded = function.plan.decode(&arguments).unwrap();
    assert_eq!(decoded.canonical, arguments);
    assert!(validator(&function).is_valid(&arguments));
    let none = function.plan.decode_value(param.ty, &json!({ "some": null })).unwrap();
    assert_ne!(format!("{none:?}"), format!("{:?}", Val::Option(None)));
}

#[test]
fn types_beyond_the_budget_are_refused_with_the_reason() {
    for (shape, words) in [
        (nested(70, Shape::Plain("u8"), Shape::List), "nested more than 64 deep"),
        (Shape::Record(vec![Shape::Plain("string"); 10_000]), "its schema would be larger than 256 KiB"),
    ] {
        let component = component(&[shape]);
        assert!(component.functions.is_empty());
        assert!(component.refused[0].reason.contains(words), "{}", component.refused[0].reason);
    }
}
