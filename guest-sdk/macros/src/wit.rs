//! The interface as WIT text.

use std::fmt::Write;

use crate::interface::{Function, Interface, Shape, Ty, TypeDef};
use crate::names::escaped;

/// One world that exports one inline interface.
///
/// Functions stand in an interface and not in the world, because a world's function named `read`
/// or `malloc` would take the place of libc's.
pub fn text(interface: &Interface) -> String {
    let mut out = String::from("package portcullis:guest;\n\nworld guest {\n  export tools: interface {\n");
    for def in &interface.types {
        type_def(&mut out, def);
    }
    for function in &interface.functions {
        signature(&mut out, function);
    }
    out.push_str("  }\n}\n");
    out
}

fn type_def(out: &mut String, def: &TypeDef) {
    let keyword = match def.shape {
        Shape::Record => "record",
        Shape::Variant => "variant",
        Shape::Enum => "enum",
        Shape::Flags => "flags",
    };
    line(out, 4, format_args!("{keyword} {} {{", escaped(&def.name)));
    for member in &def.members {
        let name = escaped(&member.name);
        match (&member.ty, def.shape) {
            (Some(ty), Shape::Record) => line(out, 6, format_args!("{name}: {},", type_use(ty))),
            (Some(ty), _) => line(out, 6, format_args!("{name}({}),", type_use(ty))),
            (None, _) => line(out, 6, format_args!("{name},")),
        }
    }
    line(out, 4, format_args!("}}"));
}

fn signature(out: &mut String, function: &Function) {
    let params = function
        .params
        .iter()
        .map(|param| format!("{}: {}", escaped(&param.name), type_use(&param.ty)))
        .collect::<Vec<_>>()
        .join(", ");
    let result = match &function.result {
        Some(ty) => format!(" -> {}", type_use(ty)),
        None => String::new(),
    };
    line(out, 4, format_args!("{}: func({params}){result};", escaped(&function.name)));
}

fn type_use(ty: &Ty) -> String {
    match ty {
        Ty::Plain { wit, .. } => (*wit).to_owned(),
        Ty::List(item) => format!("list<{}>", type_use(item)),
        Ty::Option(item) => format!("option<{}>", type_use(item)),
        Ty::Result(None, None) => "result".to_owned(),
        Ty::Result(Some(ok), None) => format!("result<{}>", type_use(ok)),
        Ty::Result(None, Some(err)) => format!("result<_, {}>", type_use(err)),
        Ty::Result(Some(ok), Some(err)) => format!("result<{}, {}>", type_use(ok), type_use(err)),
        Ty::Tuple(items) => {
            let items = items.iter().map(type_use).collect::<Vec<_>>();
            format!("tuple<{}>", items.join(", "))
        }
        Ty::Map(key, value) => format!("list<tuple<{}, {}>>", type_use(key), type_use(value)),
        Ty::Boxed(inner) => type_use(inner),
        Ty::Named(name) => escaped(name),
    }
}

fn line(out: &mut String, indent: usize, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:indent$}{text}", "");
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    /// The lines inside the interface, or the errors. What is expected must itself be WIT.
    fn wit(module: syn::ItemMod) -> String {
        let interface = match crate::read::interface(&module) {
            Ok(interface) => interface,
            Err(error) => return error.to_string(),
        };
        let text = text(&interface);
        if let Err(error) = wit_parser::Resolve::default().push_str("test.wit", &text) {
            return format!("{error:#}\n{text}");
        }
        let lines = text.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
        let inside = lines.skip(4).take_while(|line| !line.starts_with("  }"));
        inside.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_interface_is_called_tools_and_stands_inside_the_world() {
        let module = parse_quote!(
            mod tool {
                pub fn run() {}
            }
        );
        let text = crate::read::interface(&module).map(|read| text(&read));
        let expected = "package portcullis:guest;\n\nworld guest {\n  export tools: interface {\n    \
                        run: func();\n  }\n}\n";
        assert_eq!(text.ok().as_deref(), Some(expected));
    }

    #[test]
    fn plain_types_have_wit_names() {
        let text = wit(parse_quote! {
            mod tool {
                pub fn unsigned(a: u8, b: u16, c: u32, d: u64) {}
                pub fn signed(a: i8, b: i16, c: i32, d: i64) {}
                pub fn others(a: f32, b: f64, c: bool, d: char, e: String) -> () {}
            }
        });
        let expected = "\
unsigned: func(a: u8, b: u16, c: u32, d: u64);
signed: func(a: s8, b: s16, c: s32, d: s64);
others: func(a: f32, b: f64, c: bool, d: char, e: string);";
        assert_eq!(text, expected);
    }

    #[test]
    fn containers_nest() {
        let text = wit(parse_quote! {
            mod tool {
                use std::collections::{BTreeMap, HashMap};
                type Names = Vec<String>;
                pub fn lists(a: Vec<u8>, b: Vec<Vec<char>>, c: Names) -> Option<Option<u8>> { None }
                pub fn tuples(a: (u8,), b: (u8, (bool, String))) -> Box<u8> { Box::new(1) }
                pub fn maps(a: BTreeMap<String, u8>, b: std::collections::HashMap<u8, Names>) {}
            }
        });
        let expected = "\
lists: func(a: list<u8>, b: list<list<char>>, c: list<string>) -> option<option<u8>>;
tuples: func(a: tuple<u8>, b: tuple<u8, tuple<bool, string>>) -> u8;
maps: func(a: list<tuple<string, u8>>, b: list<tuple<u8, list<string>>>);";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_side_of_a_result_may_be_unit() {
        let text = wit(parse_quote! {
            mod tool {
                pub fn both() -> Result<u8, String> { Ok(1) }
                pub fn ok() -> std::result::Result<u8, ()> { Ok(1) }
                pub fn err() -> Result<(), String> { Ok(()) }
                pub fn none(inner: Vec<Result<(), ()>>) -> Result<(), ()> { Ok(()) }
            }
        });
        let expected = "\
both: func() -> result<u8, string>;
ok: func() -> result<u8>;
err: func() -> result<_, string>;
none: func(inner: list<result>) -> result;";
        assert_eq!(text, expected);
    }

    #[test]
    fn types_of_the_module_keep_its_order_and_unused_ones_stay_out() {
        let text = wit(parse_quote! {
            mod tool {
                pub struct Unused { pub path: PathBuf }
                pub struct Hit { pub line_number: u32, pub kind: Kind }
                #[flags]
                pub struct Style { pub bold: bool, pub underlined: bool }
                pub enum Kind { Exact, LowerCase }
                pub enum Shape { Circle(f64), At((u8, u8)), Nothing }
                pub fn find(shape: Shape, style: Style) -> Vec<Hit> { vec![] }
                fn helper(path: &Path) {}
            }
        });
        let expected = "\
record hit {
  line-number: u32,
  kind: kind,
}
flags style {
  bold,
  underlined,
}
enum kind {
  exact,
  lower-case,
}
variant shape {
  circle(f64),
  at(tuple<u8, u8>),
  nothing,
}
find: func(shape: shape, style: style) -> list<hit>;";
        assert_eq!(text, expected);
    }

    #[test]
    fn keywords_of_wit_are_escaped_and_raw_names_are_not_raw_there() {
        let text = wit(parse_quote! {
            mod tool {
                pub struct Record { pub r#type: u8, pub from: u8 }
                pub enum Result_ { Ok, List }
                pub fn list(stream: Record, r#loop: Result_) {}
            }
        });
        let expected = "\
record %record {
  %type: u8,
  %from: u8,
}
enum %result {
  ok,
  %list,
}
%list: func(%stream: %record, loop: %result);";
        assert_eq!(text, expected);
    }
}
