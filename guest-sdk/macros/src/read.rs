//! From the author's module to an [`Interface`], or to errors that name the fix.

mod definitions;
mod docs;
mod types;

use std::collections::BTreeMap;

use proc_macro2::Ident;
use syn::{Attribute, FnArg, Item, ItemFn, ItemMod, Pat, ReturnType, Visibility};

use crate::fault::{Faults, fault};
use crate::interface::{Function, Interface, Param, TypeDef};
use crate::names::kebab;

pub fn interface(module: &ItemMod) -> Result<Interface, syn::Error> {
    let Some((_, items)) = &module.content else {
        return Err(fault(
            module,
            "the module has no body here",
            "write the tool's functions between the braces of `mod name { … }`",
        ));
    };
    let mut reader = Reader::new(items);
    let tools = items.iter().filter_map(|item| match item {
        Item::Fn(item) if is_public(&item.vis) => Some(item),
        _ => None,
    });
    let functions = tools.clone().filter_map(|item| reader.function(item)).collect();
    if tools.count() == 0 {
        reader.faults.add(
            &module.ident,
            "the module has no public function, so it offers no tool",
            "write `pub fn` in front of what a caller may call",
        );
    }
    reader.finish(docs::of(&module.attrs), functions)
}

/// `pub`, and nothing narrower.
pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub fn is_flags(attribute: &Attribute) -> bool {
    attribute.path().is_ident("flags")
}

struct Reader<'a> {
    /// Every type that the module defines, with its place in it.
    defined: BTreeMap<String, (usize, &'a Item)>,
    /// The types being read, outermost first: one that is met again contains itself.
    open: Vec<&'a Ident>,
    read: BTreeMap<usize, Option<TypeDef>>,
    faults: Faults,
}

impl<'a> Reader<'a> {
    fn new(items: &'a [Item]) -> Self {
        let defined = items.iter().enumerate().filter_map(|(place, item)| {
            let ident = match item {
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Union(item) => &item.ident,
                _ => return None,
            };
            Some((ident.to_string(), (place, item)))
        });
        Reader { defined: defined.collect(), open: Vec::new(), read: BTreeMap::new(), faults: Faults::default() }
    }

    fn finish(mut self, docs: String, functions: Vec<Function>) -> Result<Interface, syn::Error> {
        let types = std::mem::take(&mut self.read).into_values().flatten();
        let types = types.collect::<Vec<_>>();
        let named = types
            .iter()
            .map(|def| (&def.ident, def.name.as_str()))
            .chain(functions.iter().map(|f| (&f.ident, f.name.as_str())));
        self.distinct(named);
        self.faults.finish()?;
        Ok(Interface { docs, types, functions })
    }

    fn function(&mut self, item: &ItemFn) -> Option<Function> {
        let signature = &item.sig;
        self.unconditional(&item.attrs);
        if let Some(asyncness) = &signature.asyncness {
            self.faults.add(
                asyncness,
                "a tool cannot be an `async fn`",
                "make it a plain `fn` and wait inside it, for example with \
                 `wstd::runtime::block_on(async { … })`",
            );
        }
        if !signature.generics.params.is_empty() {
            self.faults.add(
                &signature.generics,
                "a tool cannot be generic",
                "write out the types that it is called with",
            );
        }
        if let Some(unsafety) = &signature.unsafety {
            self.faults.add(
                unsafety,
                "a tool cannot be `unsafe`",
                "a caller can promise nothing: check the arguments and return an error",
            );
        }
        if let Some(abi) = &signature.abi {
            self.faults.add(
                abi,
                "a tool has no ABI of its own",
                "remove `extern`: the component model decides how values are passed",
            );
        }
        self.distinct_params(item);
        let params = signature.inputs.iter().map(|input| self.param(input));
        let params = params.collect::<Vec<_>>();
        let result = match &signature.output {
            ReturnType::Default => None,
            ReturnType::Type(_, ty) if types::is_unit(ty) => None,
            ReturnType::Type(_, ty) => Some(self.ty(ty)?),
        };
        Some(Function {
            name: self.name(&signature.ident)?,
            ident: signature.ident.clone(),
            docs: docs::of(&item.attrs),
            params: params.into_iter().collect::<Option<_>>()?,
            result,
        })
    }

    fn param(&mut self, input: &FnArg) -> Option<Param> {
        let input = match input {
            FnArg::Typed(input) => input,
            FnArg::Receiver(receiver) => {
                self.faults.add(
                    receiver,
                    "a tool has no `self`: nothing stays between two calls",
                    "take what it needs as named arguments",
                );
                return None;
            }
        };
        let Some(ident) = param_ident(&input.pat) else {
            self.faults.add(
                &input.pat,
                "an argument of a tool needs a name",
                "write a plain name here and take it apart inside the function",
            );
            return None;
        };
        let name = self.name(ident);
        let ty = self.ty(&input.ty);
        Some(Param { name: name?, ty: ty? })
    }

    fn distinct_params(&mut self, item: &ItemFn) {
        let idents = item.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => param_ident(&input.pat),
            FnArg::Receiver(_) => None,
        });
        let named = idents.filter_map(|ident| Some((ident, kebab(ident)?))).collect::<Vec<_>>();
        self.distinct(named.iter().map(|(ident, name)| (*ident, name.as_str())));
    }

    fn name(&mut self, ident: &Ident) -> Option<String> {
        let name = kebab(ident);
        if name.is_none() {
            self.faults.add(
                ident,
                format!("`{ident}` has no name in WIT"),
                "begin with a letter and use only a-z, A-Z, 0-9 and `_`",
            );
        }
        name
    }

    /// WIT joins words by `-`, so that two names of Rust can be one there.
    fn distinct<'n>(&mut self, named: impl IntoIterator<Item = (&'n Ident, &'n str)>) {
        let mut seen = BTreeMap::<&str, &Ident>::new();
        for (ident, name) in named {
            if let Some(first) = seen.insert(name, ident) {
                self.faults.add(
                    ident,
                    format!("`{first}` and `{ident}` are both `{name}` in WIT"),
                    "rename one of the two; functions and types share their names",
                );
            }
        }
    }

    /// An attribute macro runs before the compiler knows which conditions hold.
    fn unconditional(&mut self, attributes: &[Attribute]) {
        for attribute in attributes {
            if attribute.path().is_ident("cfg") {
                self.faults.add(
                    attribute,
                    "a part of a tool's interface cannot depend on a condition",
                    "put the condition inside a function, where the interface stays the same",
                );
            }
        }
    }
}

fn param_ident(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => Some(&pattern.ident),
        _ => None,
    }
}
