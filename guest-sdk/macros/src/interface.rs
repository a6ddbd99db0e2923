//! What a module offers: the one description that WIT text, glue and sections are made from.

use proc_macro2::Ident;

/// The interface `tools` of one component.
#[derive(Debug)]
pub struct Interface {
    pub docs: String,
    /// Only types that a function reaches, in the order of the module.
    pub types: Vec<TypeDef>,
    pub functions: Vec<Function>,
}

/// A type that the author defined.
#[derive(Debug)]
pub struct TypeDef {
    pub ident: Ident,
    /// In kebab-case, as are all fields called `name` here.
    pub name: String,
    pub docs: String,
    pub shape: Shape,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Record,
    Variant,
    Enum,
    Flags,
}

/// A record's field, a variant's or an enum's case, or a flag.
#[derive(Debug)]
pub struct Member {
    pub ident: Ident,
    pub name: String,
    pub docs: String,
    /// A field's type or a case's payload.
    pub ty: Option<Ty>,
}

#[derive(Debug)]
pub struct Function {
    pub ident: Ident,
    pub name: String,
    pub docs: String,
    pub params: Vec<Param>,
    pub result: Option<Ty>,
}

#[derive(Debug)]
pub struct Param {
    pub name: String,
    pub ty: Ty,
}

/// A type as it is used in a signature, a field or a payload.
#[derive(Debug, Clone)]
pub enum Ty {
    /// The same on both sides, for example `u32`: Rust's name and WIT's.
    Plain {
        rust: &'static str,
        wit: &'static str,
    },
    List(Box<Ty>),
    Option(Box<Ty>),
    /// `None` is the unit type.
    Result(Option<Box<Ty>>, Option<Box<Ty>>),
    Tuple(Vec<Ty>),
    /// WIT has no map: it crosses as a list of pairs.
    Map(Box<Ty>, Box<Ty>),
    /// `Box<T>` in Rust, `T` in WIT.
    Boxed(Box<Ty>),
    /// Defined in the module, by its name in WIT.
    Named(String),
}

/// Rust's name and WIT's for every type that needs no conversion.
const PLAIN: [(&str, &str); 13] = [
    ("bool", "bool"),
    ("char", "char"),
    ("String", "string"),
    ("u8", "u8"),
    ("u16", "u16"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("i8", "s8"),
    ("i16", "s16"),
    ("i32", "s32"),
    ("i64", "s64"),
    ("f32", "f32"),
    ("f64", "f64"),
];

impl Ty {
    pub fn plain(name: &str) -> Option<Ty> {
        let (rust, wit) = PLAIN.into_iter().find(|(rust, _)| *rust == name)?;
        Some(Ty::Plain { rust, wit })
    }

    /// True where wit-bindgen's type is the author's, so that a value passes as it is.
    pub fn is_same_on_both_sides(&self) -> bool {
        match self {
            Ty::Plain { .. } => true,
            Ty::List(item) | Ty::Option(item) => item.is_same_on_both_sides(),
            Ty::Result(ok, err) => [ok, err].into_iter().flatten().all(|ty| ty.is_same_on_both_sides()),
            Ty::Tuple(items) => items.iter().all(Ty::is_same_on_both_sides),
            Ty::Map(..) | Ty::Boxed(_) | Ty::Named(_) => false,
        }
    }
}
