//! Types as they are used in signatures, fields and payloads.

use syn::{GenericArgument, Item, ItemType, Path, PathArguments, Type};

use super::{Reader, is_public};
use crate::interface::Ty;
use crate::names::kebab;

pub fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

impl<'a> Reader<'a> {
    /// Nothing where a fault was told.
    pub(super) fn ty(&mut self, ty: &Type) -> Option<Ty> {
        let (what, hint) = match ty {
            Type::Path(path) if path.qself.is_none() => return self.path(ty, &path.path),
            Type::Paren(inner) => return self.ty(&inner.elem),
            Type::Group(inner) => return self.ty(&inner.elem),
            Type::Tuple(tuple) if !tuple.elems.is_empty() => {
                let items = tuple.elems.iter().map(|item| self.ty(item));
                let items = items.collect::<Vec<_>>();
                return items.into_iter().collect::<Option<_>>().map(Ty::Tuple);
            }
            Type::Tuple(_) => (
                "the unit type `()` has no value to pass here",
                "use it only as the result of a function or inside `Result<…>`",
            ),
            Type::Reference(reference) => (
                "a reference cannot cross to a tool, whose memory is its own",
                match &*reference.elem {
                    Type::Path(path) if path.path.is_ident("str") => "use `String`",
                    Type::Slice(_) => "use `Vec<…>`",
                    _ => "take or return the value itself, without `&`",
                },
            ),
            Type::Array(_) | Type::Slice(_) => {
                ("an array cannot cross to a tool", "use `Vec<…>`, or a tuple where the length is part of the meaning")
            }
            Type::ImplTrait(_) | Type::TraitObject(_) => {
                ("a trait is not a type that a caller can send or read", "write the concrete type")
            }
            Type::Never(_) => {
                ("a tool that never returns has no result", "leave the result out, or return a `Result<…>`")
            }
            _ => (
                "this type has no counterpart in WIT",
                "use numbers, `bool`, `char`, `String`, `Vec`, `Option`, `Result`, tuples, \
                 maps, or structs and enums of this module",
            ),
        };
        self.faults.add(ty, what, hint);
        None
    }

    fn path(&mut self, ty: &Type, path: &Path) -> Option<Ty> {
        let mut names = path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>();
        if names.first().is_some_and(|first| first == "self") {
            names.remove(0);
        }
        let last = path.segments.last()?;
        if let [name] = names.as_slice()
            && let Some(&(place, item)) = self.defined.get(name)
        {
            return self.defined_here(ty, place, item);
        }
        let in_std = matches!(names[0].as_str(), "std" | "core" | "alloc");
        if names.len() > 1 && !in_std {
            return self.unknown(ty, &last.ident.to_string());
        }
        let name = last.ident.to_string();
        if let (Some(plain), PathArguments::None) = (Ty::plain(&name), &last.arguments) {
            return Some(plain);
        }
        match (name.as_str(), arguments(&last.arguments).as_slice()) {
            ("Vec", [item]) => Some(Ty::List(Box::new(self.ty(item)?))),
            ("Option", [item]) => Some(Ty::Option(Box::new(self.ty(item)?))),
            ("Box", [inner]) => Some(Ty::Boxed(Box::new(self.ty(inner)?))),
            ("Result", [ok, err]) => {
                let [ok, err] = [ok, err].map(|side| self.side(side));
                Some(Ty::Result(ok?, err?))
            }
            ("BTreeMap" | "HashMap", [key, value]) => {
                let [key, value] = [key, value].map(|ty| self.ty(ty));
                Some(Ty::Map(Box::new(key?), Box::new(value?)))
            }
            _ => self.unknown(ty, &name),
        }
    }

    /// One side of a `Result`, where the unit type may stand.
    fn side(&mut self, ty: &Type) -> Option<Option<Box<Ty>>> {
        if is_unit(ty) {
            return Some(None);
        }
        self.ty(ty).map(|ty| Some(Box::new(ty)))
    }

    fn defined_here(&mut self, used: &Type, place: usize, item: &'a Item) -> Option<Ty> {
        let (keyword, ident, visibility) = match item {
            Item::Struct(item) => ("struct", &item.ident, &item.vis),
            Item::Enum(item) => ("enum", &item.ident, &item.vis),
            Item::Union(item) => ("union", &item.ident, &item.vis),
            Item::Type(item) => ("type", &item.ident, &item.vis),
            _ => return None,
        };
        if self.open.contains(&ident) {
            self.faults.add(
                used,
                format!("`{ident}` contains itself, and WIT has no recursive types"),
                "flatten it: keep the items in one `Vec` and let them name each other by index",
            );
            return None;
        }
        if let Item::Type(alias) = item {
            return self.alias(used, alias);
        }
        if !is_public(visibility) {
            self.faults.add(
                used,
                format!("`{ident}` is private, but a tool takes or returns it"),
                format!("write `pub {keyword} {ident}`"),
            );
            return None;
        }
        self.define(place, item);
        // Where it has no name in WIT, its definition told so.
        kebab(ident).map(Ty::Named)
    }

    /// An alias has no name of its own in WIT: it stands for what it names.
    fn alias(&mut self, used: &Type, alias: &'a ItemType) -> Option<Ty> {
        if !alias.generics.params.is_empty() {
            self.faults.add(
                used,
                format!("`{}` is a generic alias, which hides the types", alias.ident),
                "write the full type here, for example `Result<String, String>`",
            );
            return None;
        }
        self.open.push(&alias.ident);
        let ty = self.ty(&alias.ty);
        self.open.pop();
        ty
    }

    fn unknown(&mut self, ty: &Type, name: &str) -> Option<Ty> {
        let what = format!("`{name}` is not a type that a tool can take or return");
        let hint = match name {
            "usize" => "use `u32` or `u64`, which have one size everywhere",
            "isize" => "use `i32` or `i64`, which have one size everywhere",
            "u128" => "use `u64`, or a `String` of digits",
            "i128" => "use `i64`, or a `String` of digits",
            "str" | "OsString" | "PathBuf" | "Path" | "Cow" => "use `String`",
            "HashSet" | "BTreeSet" | "VecDeque" => "use `Vec<…>`",
            "Rc" | "Arc" | "RefCell" | "Cell" | "Mutex" => "use the value itself",
            "Vec" | "Option" | "Box" => "give it one type, as in `Vec<String>`",
            "Result" => "write both types, as in `Result<String, String>`",
            "HashMap" | "BTreeMap" => "write two types, as in `BTreeMap<String, u32>`",
            "Error" => {
                "return the error's text, as in `Result<T, String>` with \
                 `.map_err(|error| error.to_string())`"
            }
            "Self" => "write the type's name",
            _ => {
                "define it in this module as a `pub struct` or `pub enum`; types from elsewhere \
                 cannot be read by the macro"
            }
        };
        self.faults.add(ty, what, hint);
        None
    }
}

/// The types between `<` and `>`; lifetimes and constants are no types of a tool.
fn arguments(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else {
        return Vec::new();
    };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}
