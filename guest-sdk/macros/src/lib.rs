//! The attribute macro behind `portcullis_guest::tools`.
//!
//! One expansion is five steps, each in its own file:
//!
//! 1. `read`: the module's items become an `interface::Interface`, or errors that name the fix;
//! 2. `wit`: the interface as WIT text, which wit-bindgen turns into the component's ABI;
//! 3. `glue`: conversions between wit-bindgen's types and the author's own;
//! 4. `sections`: documentation and needs, as custom sections that the host reads;
//! 5. `expand`: the author's module as it was, with all this in a hidden module inside it.

mod expand;
mod fault;
mod glue;
mod interface;
mod names;
mod read;
mod sections;
mod tool_toml;
mod wit;

/// Turns the public functions of a module into the tools of a component.
///
/// The documentation of `portcullis_guest` shows how to use it.
#[proc_macro_attribute]
pub fn tools(arguments: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::tools(arguments.into(), item.into()).into()
}
