//! The author's module as it was, and a hidden module inside it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Item, ItemMod};

use crate::fault::fault;
use crate::{glue, read, sections, tool_toml, wit};

pub fn tools(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut module = match syn::parse2::<ItemMod>(item.clone()) {
        Ok(module) => module,
        Err(_) => {
            let error = fault(
                &item,
                "`#[portcullis_guest::tools]` stands on a module",
                "put the tool's functions into `mod name { … }` and the attribute in front of it",
            );
            return error.into_compile_error();
        }
    };
    match generated(&arguments, &module) {
        Ok(generated) => {
            release(&mut module, true);
            if let Some((_, items)) = &mut module.content {
                items.push(Item::Verbatim(generated));
            }
            module.into_token_stream()
        }
        // With the author's code still there, no second error says that it is missing.
        Err(error) => {
            release(&mut module, false);
            let errors = error.into_compile_error();
            if module.content.is_none() {
                return errors;
            }
            quote!(#module #errors)
        }
    }
}

fn generated(arguments: &TokenStream, module: &ItemMod) -> Result<TokenStream, syn::Error> {
    if !arguments.is_empty() {
        return Err(fault(
            arguments,
            "`#[portcullis_guest::tools]` takes no arguments",
            "titles and needs are written in `tool.toml`, beside Cargo.toml",
        ));
    }
    let interface = read::interface(module)?;
    let tool_toml = tool_toml::beside_the_manifest(&interface, module)?;
    let wit = wit::text(&interface);
    let glue = glue::tokens(&interface);
    let sections = sections::tokens(&interface, tool_toml.as_ref());
    // The compiler then knows that this file is an input of the crate.
    let watched = tool_toml.map(|file| {
        let path = file.path;
        quote!(
            const _: &[u8] = ::core::include_bytes!(#path);
        )
    });
    Ok(quote! {
        #watched

        #[cfg(target_family = "wasm")]
        #[doc(hidden)]
        #[allow(dead_code, deprecated, missing_docs, clippy::all, clippy::pedantic)]
        #[allow(unsafe_code, reason = "the component ABI passes pointers; wit-bindgen writes this code")]
        mod __portcullis {
            ::portcullis_guest::wit_bindgen::generate!({
                inline: #wit,
                path: [],
                runtime_path: "::portcullis_guest::wit_bindgen::rt",
            });
            #glue
            #sections

            // Two modules would be two worlds of one name, which only the linker would tell, and
            // not plainly. The name of this macro is the message.
            #[macro_export]
            #[doc(hidden)]
            macro_rules! only_one_module_of_a_crate_can_hold_its_tools { () => {}; }
        }
    })
}

/// Takes `#[flags]`, which only this macro knows, off the author's items.
///
/// Items that only the host calls would look unused to the compiler of a native test.
fn release(module: &mut ItemMod, used_by_the_host: bool) {
    let Some((_, items)) = &mut module.content else {
        return;
    };
    for item in items {
        let attributes = match item {
            Item::Struct(item) => {
                item.attrs.retain(|attribute| !read::is_flags(attribute));
                &mut item.attrs
            }
            Item::Enum(item) => {
                item.attrs.retain(|attribute| !read::is_flags(attribute));
                &mut item.attrs
            }
            Item::Fn(item) if read::is_public(&item.vis) => &mut item.attrs,
            _ => continue,
        };
        if used_by_the_host {
            attributes.push(syn::parse_quote!(
                #[cfg_attr(not(target_family = "wasm"), allow(dead_code))]
            ));
        }
    }
}
