//! The author's own types.

use proc_macro2::Ident;
use syn::{Attribute, Fields, Generics, Item, ItemEnum, ItemStruct, Type};

use super::{Reader, docs, is_flags};
use crate::interface::{Member, Shape, Ty, TypeDef};

/// WIT's limit.
const MAX_FLAGS: usize = 32;

impl<'a> Reader<'a> {
    /// Reads the definition of a type that a signature uses, once.
    pub(super) fn define(&mut self, place: usize, item: &'a Item) {
        if self.read.contains_key(&place) {
            return;
        }
        // Also a definition with faults counts as read, so that each fault is told once.
        self.read.insert(place, None);
        let def = match item {
            Item::Struct(item) => self.record(item),
            Item::Enum(item) => self.variant(item),
            Item::Union(item) => {
                self.faults.add(
                    &item.ident,
                    "a `union` cannot cross to a tool",
                    "use an enum, which says which of its cases it holds",
                );
                None
            }
            _ => None,
        };
        self.read.insert(place, def);
    }

    fn record(&mut self, item: &'a ItemStruct) -> Option<TypeDef> {
        self.concrete(&item.generics)?;
        self.unconditional(&item.attrs);
        let fields = match &item.fields {
            Fields::Named(fields) if !fields.named.is_empty() => &fields.named,
            Fields::Unnamed(_) => {
                self.faults.add(
                    &item.fields,
                    format!("`{}` is a tuple struct, and a record has named fields", item.ident),
                    "name them, for example `pub struct Point { pub x: u32, pub y: u32 }`",
                );
                return None;
            }
            Fields::Named(_) | Fields::Unit => {
                self.faults.add(
                    &item.ident,
                    format!("`{}` has no fields, and WIT has no empty record", item.ident),
                    "give it a field, or leave it out of the signature",
                );
                return None;
            }
        };
        let flags = item.attrs.iter().any(is_flags);
        let mut members = Vec::new();
        self.open.push(&item.ident);
        for field in fields {
            self.unconditional(&field.attrs);
            let Some(ident) = &field.ident else { continue };
            let ty = match flags {
                true => self.flag(&field.ty).then_some(None),
                false => self.ty(&field.ty).map(Some),
            };
            members.push(self.member(ident, &field.attrs, ty));
        }
        self.open.pop();
        if flags && members.len() > MAX_FLAGS {
            self.faults.add(
                &item.ident,
                format!("`{}` has more than {MAX_FLAGS} flags", item.ident),
                "split it into two types",
            );
        }
        let shape = if flags { Shape::Flags } else { Shape::Record };
        self.type_def(&item.ident, &item.attrs, shape, members)
    }

    fn flag(&mut self, ty: &Type) -> bool {
        let is_bool = matches!(ty, Type::Path(path) if path.path.is_ident("bool"));
        if !is_bool {
            self.faults.add(
                ty,
                "a field of `#[flags]` is not a `bool`",
                "make it a `bool`, or remove `#[flags]` to have a record",
            );
        }
        is_bool
    }

    fn variant(&mut self, item: &'a ItemEnum) -> Option<TypeDef> {
        self.concrete(&item.generics)?;
        self.unconditional(&item.attrs);
        if let Some(attribute) = item.attrs.iter().find(|attribute| is_flags(attribute)) {
            self.faults.add(
                attribute,
                "`#[flags]` stands on an enum",
                "flags are a struct of `bool` fields, since several can hold at once",
            );
        }
        if item.variants.is_empty() {
            self.faults.add(
                &item.ident,
                format!("`{}` has no cases, so it has no values", item.ident),
                "give it a case, or leave it out of the signature",
            );
        }
        let mut members = Vec::new();
        self.open.push(&item.ident);
        for case in &item.variants {
            self.unconditional(&case.attrs);
            let payload = match &case.fields {
                Fields::Unit => Some(None),
                Fields::Unnamed(fields) if fields.unnamed.len() == 1 => self.ty(&fields.unnamed[0].ty).map(Some),
                fields => {
                    self.faults.add(
                        fields,
                        format!("`{}` holds something else than one unnamed value", case.ident),
                        format!(
                            "put the fields into a `pub struct` of this module and write \
                             `{}(ThatStruct)`",
                            case.ident
                        ),
                    );
                    None
                }
            };
            members.push(self.member(&case.ident, &case.attrs, payload));
        }
        self.open.pop();
        let all_unit = item.variants.iter().all(|case| case.fields.is_empty());
        let shape = if all_unit { Shape::Enum } else { Shape::Variant };
        self.type_def(&item.ident, &item.attrs, shape, members)
    }

    fn member(&mut self, ident: &Ident, attributes: &[Attribute], ty: Option<Option<Ty>>) -> Option<Member> {
        Some(Member { name: self.name(ident)?, ident: ident.clone(), docs: docs::of(attributes), ty: ty? })
    }

    fn type_def(
        &mut self,
        ident: &Ident,
        attributes: &[Attribute],
        shape: Shape,
        members: Vec<Option<Member>>,
    ) -> Option<TypeDef> {
        let members = members.into_iter().collect::<Option<Vec<_>>>()?;
        self.distinct(members.iter().map(|m| (&m.ident, m.name.as_str())));
        Some(TypeDef { name: self.name(ident)?, ident: ident.clone(), docs: docs::of(attributes), shape, members })
    }

    fn concrete(&mut self, generics: &Generics) -> Option<()> {
        if generics.params.is_empty() {
            return Some(());
        }
        self.faults.add(generics, "a type that a tool uses cannot be generic", "write out the types that it holds");
        None
    }
}
