//! The types of one package, as an arena: what schema, decoder and encoder all read.
//!
//! WIT types form a graph without cycles in which one node may be used many times. The arena keeps that sharing,
//! so that building it, and every plan over it, is linear in the component and not in the unfolded tree.

use std::collections::HashMap;

use wit_parser::{Handle, InterfaceId, Resolve, Type, TypeDefKind, TypeId, TypeOwner};

use super::docs::Docs;

/// Most types one package may define.
pub const NODES_MAX: usize = 20_000;
/// Deepest nesting of types.
pub const DEPTH_MAX: u32 = 64;

/// An index into [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeRef(u32);

/// The arena.
#[derive(Clone, Debug, Default)]
pub struct Types {
    nodes: Vec<Node>,
}

/// One type.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its shape.
    pub kind: Kind,
    /// Its WIT name, where it has one.
    pub name: Option<String>,
    /// Its documentation, already cleaned.
    pub docs: Option<String>,
    depth: u32,
}

/// A field of a record, in declaration order.
#[derive(Clone, Debug)]
pub struct Field {
    /// The WIT name.
    pub name: String,
    /// The type.
    pub ty: TypeRef,
    /// Whether the field may be absent: its type is an `option`.
    pub optional: bool,
    /// Its documentation, already cleaned.
    pub docs: Option<String>,
}

/// A case of a variant, enum or flags type.
#[derive(Clone, Debug)]
pub struct Case {
    /// The WIT name.
    pub name: String,
    /// The payload; enums and flags have none.
    pub payload: Option<TypeRef>,
    /// Its documentation, already cleaned.
    pub docs: Option<String>,
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Int {
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
}

impl Int {
    /// Smallest and largest value.
    pub fn range(self) -> (i128, i128) {
        match self {
            Self::S8 => (i8::MIN.into(), i8::MAX.into()),
            Self::S16 => (i16::MIN.into(), i16::MAX.into()),
            Self::S32 => (i32::MIN.into(), i32::MAX.into()),
            Self::S64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
        }
    }

    /// 64-bit integers travel as decimal strings: a JSON number loses them above 2^53.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::S64 | Self::U64)
    }
}

/// The shape of a type.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Bool,
    Int(Int),
    F32,
    F64,
    Char,
    String,
    /// `list<u8>`
    Bytes,
    List(TypeRef),
    Tuple(Vec<TypeRef>),
    Record(Vec<Field>),
    Variant(Vec<Case>),
    Enum(Vec<Case>),
    Flags(Vec<Case>),
    Option {
        inner: TypeRef,
        /// The inner type can be null itself, so a value is wrapped as `{"some": …}`.
        wrapped: bool,
    },
    Result {
        ok: Option<TypeRef>,
        err: Option<TypeRef>,
    },
}

/// Why a type cannot be part of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// A type that only makes sense between two components.
    #[error("{0}, which no caller outside the component can hold")]
    NotAValue(&'static str),
    /// A type that supported toolchains do not produce yet.
    #[error("{0}, which this host does not support")]
    Unsupported(&'static str),
    /// Too many types.
    #[error("more than {NODES_MAX} types")]
    TooMany,
    /// Too deep.
    #[error("types nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// A name that is used twice.
    #[error("two fields or cases with one name")]
    Duplicate,
}

impl Types {
    /// The node at `ty`.
    pub fn get(&self, ty: TypeRef) -> &Node {
        &self.nodes[ty.0 as usize]
    }

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no type.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn push(&mut self, node: Node) -> Result<TypeRef, TypeError> {
        if node.depth > DEPTH_MAX {
            return Err(TypeError::TooDeep);
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(TypeError::TooMany);
        }
        let index = u32::try_from(self.nodes.len()).map_err(|_| TypeError::TooMany)?;
        self.nodes.push(node);
        Ok(TypeRef(index))
    }
}

/// Builds an arena from a decoded component.
pub struct Builder<'a> {
    resolve: &'a Resolve,
    docs: &'a Docs,
    /// The name under which an interface is exported or imported: inline interfaces have no name of their own.
    names: &'a HashMap<InterfaceId, String>,
    types: Types,
    seen: HashMap<TypeId, TypeRef>,
    primitives: HashMap<&'static str, TypeRef>,
}

impl<'a> Builder<'a> {
    /// A builder over `resolve`.
    pub fn new(resolve: &'a Resolve, docs: &'a Docs, names: &'a HashMap<InterfaceId, String>) -> Self {
        Self { resolve, docs, names, types: Types::default(), seen: HashMap::new(), primitives: HashMap::new() }
    }

    /// Whether `ty` is an option, so that an argument of this type may be absent.
    pub fn is_option(&self, ty: TypeRef) -> bool {
        matches!(self.types.get(ty).kind, Kind::Option { .. })
    }

    /// The finished arena.
    pub fn finish(self) -> Types {
        self.types
    }

    /// Adds `ty` and everything it mentions.
    ///
    /// # Errors
    ///
    /// The type, or one that it mentions, cannot be part of a tool.
    pub fn add(&mut self, ty: &Type) -> Result<TypeRef, TypeError> {
        let (key, kind) = match ty {
            Type::Bool => ("bool", Kind::Bool),
            Type::U8 => ("u8", Kind::Int(Int::U8)),
            Type::U16 => ("u16", Kind::Int(Int::U16)),
            Type::U32 => ("u32", Kind::Int(Int::U32)),
            Type::U64 => ("u64", Kind::Int(Int::U64)),
            Type::S8 => ("s8", Kind::Int(Int::S8)),
            Type::S16 => ("s16", Kind::Int(Int::S16)),
            Type::S32 => ("s32", Kind::Int(Int::S32)),
            Type::S64 => ("s64", Kind::Int(Int::S64)),
            Type::F32 => ("f32", Kind::F32),
            Type::F64 => ("f64", Kind::F64),
            Type::Char => ("char", Kind::Char),
            Type::String => ("string", Kind::String),
            Type::ErrorContext => return Err(TypeError::NotAValue("an error-context")),
            Type::Id(id) => return self.add_defined(*id, 0),
        };
        if let Some(found) = self.primitives.get(key) {
            return Ok(*found);
        }
        let added = self.types.push(Node { kind, name: None, docs: None, depth: 1 })?;
        self.primitives.insert(key, added);
        Ok(added)
    }

    fn add_defined(&mut self, id: TypeId, aliases: u32) -> Result<TypeRef, TypeError> {
        if let Some(found) = self.seen.get(&id) {
            return Ok(*found);
        }
        // The recursion below follows the component's own nesting; the parser bounds it at 100 and this counts
        // aliases too, so that no chain of them can outgrow the stack.
        if aliases > DEPTH_MAX {
            return Err(TypeError::TooDeep);
        }
        let resolve = self.resolve;
        let def = &resolve.types[id];
        let name = def.name.clone();
        let home = match def.owner {
            TypeOwner::Interface(interface) => self.names.get(&interface).cloned(),
            _ => None,
        };
        let docs = self.docs;
        let type_docs = name.as_deref().and_then(|name| docs.of_type(home.as_deref(), name));
        let item_docs = |item: &str| type_docs.and_then(|d| d.items.get(item).cloned());
        let kind = match &def.kind {
            TypeDefKind::Type(Type::Id(inner)) => {
                let found = self.add_defined(*inner, aliases + 1)?;
                self.seen.insert(id, found);
                return Ok(found);
            }
            TypeDefKind::Type(inner) => {
                let found = self.add(inner)?;
                self.seen.insert(id, found);
                return Ok(found);
            }
            TypeDefKind::Record(record) => {
                let mut fields = Vec::with_capacity(record.fields.len());
                for field in &record.fields {
                    let ty = self.nested(&field.ty, aliases)?;
                    fields.push(Field {
                        name: field.name.clone(),
                        optional: matches!(self.types.get(ty).kind, Kind::Option { .. }),
                        ty,
                        docs: item_docs(&field.name),
                    });
                }
                distinct(fields.iter().map(|f| f.name.as_str()))?;
                Kind::Record(fields)
            }
            TypeDefKind::Variant(variant) => {
                let mut cases = Vec::with_capacity(variant.cases.len());
                for case in &variant.cases {
                    let payload = match &case.ty {
                        Some(ty) => Some(self.nested(ty, aliases)?),
                        None => None,
                    };
                    cases.push(Case { name: case.name.clone(), payload, docs: item_docs(&case.name) });
                }
                distinct(cases.iter().map(|c| c.name.as_str()))?;
                Kind::Variant(cases)
            }
            TypeDefKind::Enum(enumeration) => {
                let cases = names_as_cases(enumeration.cases.iter().map(|c| &c.name), item_docs)?;
                Kind::Enum(cases)
            }
            TypeDefKind::Flags(flags) => {
                let cases = names_as_cases(flags.flags.iter().map(|f| &f.name), item_docs)?;
                Kind::Flags(cases)
            }
            TypeDefKind::Tuple(tuple) => {
                Kind::Tuple(tuple.types.iter().map(|ty| self.nested(ty, aliases)).collect::<Result<_, _>>()?)
            }
            TypeDefKind::List(Type::U8) => Kind::Bytes,
            TypeDefKind::List(inner) => {
                let inner = self.nested(inner, aliases)?;
                // An alias of u8 is still u8.
                match self.types.get(inner).kind {
                    Kind::Int(Int::U8) => Kind::Bytes,
                    _ => Kind::List(inner),
                }
            }
            TypeDefKind::Option(inner) => {
                let inner = self.nested(inner, aliases)?;
                let wrapped = matches!(self.types.get(inner).kind, Kind::Option { .. });
                Kind::Option { inner, wrapped }
            }
            TypeDefKind::Result(result) => {
                let mut part = |ty: &Option<Type>| ty.as_ref().map(|ty| self.nested(ty, aliases)).transpose();
                Kind::Result { ok: part(&result.ok)?, err: part(&result.err)? }
            }
            TypeDefKind::Resource => return Err(TypeError::NotAValue("a resource")),
            TypeDefKind::Handle(Handle::Own(_) | Handle::Borrow(_)) => {
                return Err(TypeError::NotAValue("a resource"));
            }
            TypeDefKind::Future(_) => return Err(TypeError::NotAValue("a future")),
            TypeDefKind::Stream(_) => return Err(TypeError::NotAValue("a stream")),
            TypeDefKind::Map(..) => return Err(TypeError::Unsupported("a map")),
            TypeDefKind::FixedLengthList(..) => {
                return Err(TypeError::Unsupported("a list of fixed length"));
            }
            TypeDefKind::Unknown => return Err(TypeError::Unsupported("a type of unknown shape")),
        };
        let depth = 1 + self.deepest(&kind);
        let docs = type_docs.and_then(|d| d.docs.clone());
        let added = self.types.push(Node { kind, name, docs, depth })?;
        self.seen.insert(id, added);
        Ok(added)
    }

    fn nested(&mut self, ty: &Type, aliases: u32) -> Result<TypeRef, TypeError> {
        match ty {
            Type::Id(id) => self.add_defined(*id, aliases + 1),
            other => self.add(other),
        }
    }

    fn deepest(&self, kind: &Kind) -> u32 {
        let depth = |ty: &TypeRef| self.types.get(*ty).depth;
        match kind {
            Kind::List(inner) | Kind::Option { inner, .. } => depth(inner),
            Kind::Tuple(items) => items.iter().map(depth).max().unwrap_or(0),
            Kind::Record(fields) => fields.iter().map(|f| depth(&f.ty)).max().unwrap_or(0),
            Kind::Variant(cases) => cases.iter().filter_map(|c| c.payload.as_ref()).map(depth).max().unwrap_or(0),
            Kind::Result { ok, err } => ok.iter().chain(err).map(depth).max().unwrap_or(0),
            Kind::Bool
            | Kind::Int(_)
            | Kind::F32
            | Kind::F64
            | Kind::Char
            | Kind::String
            | Kind::Bytes
            | Kind::Enum(_)
            | Kind::Flags(_) => 0,
        }
    }
}

fn names_as_cases<'n>(
    names: impl Iterator<Item = &'n String>,
    docs: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Case>, TypeError> {
    let cases: Vec<Case> = names.map(|name| Case { name: name.clone(), payload: None, docs: docs(name) }).collect();
    distinct(cases.iter().map(|c| c.name.as_str()))?;
    Ok(cases)
}

fn distinct<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), TypeError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(TypeError::Duplicate);
        }
    }
    Ok(())
}
