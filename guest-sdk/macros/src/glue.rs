//! Conversions between wit-bindgen's types and the author's own.
//!
//! *Lift* makes the author's value from wit-bindgen's, *lower* the other way round. All of it is
//! in the hidden module, where `exports::tools` holds wit-bindgen's types and `super` the author's.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::interface::{Function, Interface, Shape, Ty, TypeDef};
use crate::names::{bound_case, bound_flag, bound_type, bound_value, helper};

#[derive(Clone, Copy)]
enum Way {
    Lift,
    Lower,
}

pub fn tokens(interface: &Interface) -> TokenStream {
    let lifts = interface.types.iter().map(|def| convert_def(def, Way::Lift));
    let lowers = interface.types.iter().map(|def| convert_def(def, Way::Lower));
    let methods = interface.functions.iter().map(method);
    quote! {
        struct Tools;

        impl exports::tools::Guest for Tools {
            #(#methods)*
        }

        export!(Tools);

        #(#lifts)*
        #(#lowers)*
    }
}

fn method(function: &Function) -> TokenStream {
    let name = bound_value(&function.name);
    let called = &function.ident;
    let arguments = (0..function.params.len()).map(|index| format_ident!("a{index}")).collect::<Vec<_>>();
    let types = function.params.iter().map(|param| bound(&param.ty));
    let lifted = function
        .params
        .iter()
        .zip(&arguments)
        .map(|(param, argument)| convert(&param.ty, quote!(#argument), Way::Lift));
    let call = quote!(super::#called(#(#lifted),*));
    match &function.result {
        None => quote! {
            fn #name(#(#arguments: #types),*) { #call }
        },
        Some(ty) => {
            let result = bound(ty);
            let lowered = convert(ty, quote!(result), Way::Lower);
            quote! {
                fn #name(#(#arguments: #types),*) -> #result {
                    let result = #call;
                    #lowered
                }
            }
        }
    }
}

/// wit-bindgen's spelling of a type.
fn bound(ty: &Ty) -> TokenStream {
    match ty {
        Ty::Plain { rust: "String", .. } => quote!(::std::string::String),
        Ty::Plain { rust, .. } => {
            let name = format_ident!("{rust}");
            quote!(::core::primitive::#name)
        }
        Ty::List(item) => {
            let item = bound(item);
            quote!(::std::vec::Vec<#item>)
        }
        Ty::Option(item) => {
            let item = bound(item);
            quote!(::core::option::Option<#item>)
        }
        Ty::Result(ok, err) => {
            let [ok, err] = [ok, err].map(|ty| ty.as_ref().map_or(quote!(()), |ty| bound(ty)));
            quote!(::core::result::Result<#ok, #err>)
        }
        Ty::Tuple(items) => {
            let items = items.iter().map(bound);
            quote!((#(#items,)*))
        }
        Ty::Map(key, value) => {
            let (key, value) = (bound(key), bound(value));
            quote!(::std::vec::Vec<(#key, #value)>)
        }
        Ty::Boxed(inner) => bound(inner),
        Ty::Named(name) => {
            let name = bound_type(name);
            quote!(exports::tools::#name)
        }
    }
}

/// The converted value of an expression.
fn convert(ty: &Ty, value: TokenStream, way: Way) -> TokenStream {
    if ty.is_same_on_both_sides() {
        return value;
    }
    match ty {
        Ty::Plain { .. } => value,
        Ty::List(item) => {
            let item = convert(item, quote!(item), way);
            quote!((#value).into_iter().map(|item| #item).collect::<::std::vec::Vec<_>>())
        }
        Ty::Option(item) => {
            let item = convert(item, quote!(item), way);
            quote!((#value).map(|item| #item))
        }
        Ty::Result(ok, err) => {
            let [ok, err] = [ok, err].map(|ty| match ty {
                Some(ty) => convert(ty, quote!(value), way),
                None => quote!(value),
            });
            quote! {
                match #value {
                    ::core::result::Result::Ok(value) => ::core::result::Result::Ok(#ok),
                    ::core::result::Result::Err(value) => ::core::result::Result::Err(#err),
                }
            }
        }
        Ty::Tuple(items) => {
            let names = (0..items.len()).map(|index| format_ident!("t{index}")).collect::<Vec<_>>();
            let converted = items.iter().zip(&names).map(|(item, name)| convert(item, quote!(#name), way));
            quote!({ let (#(#names,)*) = #value; (#(#converted,)*) })
        }
        Ty::Map(key, item) => {
            let key = convert(key, quote!(key), way);
            let item = convert(item, quote!(item), way);
            quote!((#value).into_iter().map(|(key, item)| (#key, #item)).collect())
        }
        Ty::Boxed(inner) => match way {
            Way::Lift => {
                let inner = convert(inner, value, way);
                quote!(::std::boxed::Box::new(#inner))
            }
            Way::Lower => convert(inner, quote!((*#value)), way),
        },
        Ty::Named(name) => {
            let function = converter(name, way);
            quote!(#function(#value))
        }
    }
}

/// The function that converts one of the author's types.
fn convert_def(def: &TypeDef, way: Way) -> TokenStream {
    let function = converter(&def.name, way);
    let (author, bound) = (&def.ident, bound_type(&def.name));
    let (author, bound) = (quote!(super::#author), quote!(exports::tools::#bound));
    let (from, to) = match way {
        Way::Lift => (&bound, &author),
        Way::Lower => (&author, &bound),
    };
    let body = match def.shape {
        Shape::Record => record(def, to, way),
        Shape::Flags => flags(def, &author, &bound, way),
        Shape::Variant | Shape::Enum => cases(def, from, to, way),
    };
    quote!(fn #function(value: #from) -> #to { #body })
}

fn record(def: &TypeDef, to: &TokenStream, way: Way) -> TokenStream {
    let fields = def.members.iter().map(|member| {
        let (author, bound) = (&member.ident, &bound_value(&member.name));
        let (source, target) = match way {
            Way::Lift => (bound, author),
            Way::Lower => (author, bound),
        };
        let value = quote!(value.#source);
        let value = match &member.ty {
            Some(ty) => convert(ty, value, way),
            None => value,
        };
        quote!(#target: #value)
    });
    quote!(#to { #(#fields),* })
}

fn flags(def: &TypeDef, author: &TokenStream, bound: &TokenStream, way: Way) -> TokenStream {
    let fields = def.members.iter().map(|member| &member.ident);
    let flags = def.members.iter().map(|member| bound_flag(&member.name));
    match way {
        Way::Lift => quote!(#author { #(#fields: value.contains(#bound::#flags)),* }),
        Way::Lower => quote! {
            let mut flags = #bound::empty();
            #(flags.set(#bound::#flags, value.#fields);)*
            flags
        },
    }
}

fn cases(def: &TypeDef, from: &TokenStream, to: &TokenStream, way: Way) -> TokenStream {
    let arms = def.members.iter().map(|member| {
        let (author, bound) = (&member.ident, &bound_case(&member.name));
        let (source, target) = match way {
            Way::Lift => (bound, author),
            Way::Lower => (author, bound),
        };
        match &member.ty {
            Some(ty) => {
                let payload = convert(ty, quote!(payload), way);
                quote!(#from::#source(payload) => #to::#target(#payload))
            }
            None => quote!(#from::#source => #to::#target),
        }
    });
    quote!(match value { #(#arms),* })
}

fn converter(name: &str, way: Way) -> proc_macro2::Ident {
    match way {
        Way::Lift => helper("lift", name),
        Way::Lower => helper("lower", name),
    }
}
