//! The MCP server: a run of the snapshot's tools for one client.

mod server;
mod stdio;
pub mod view;

pub use stdio::serve_stdio;
