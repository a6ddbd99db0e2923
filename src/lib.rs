//! Portcullis hosts untrusted tools for AI agents.
//!
//! A tool is a WebAssembly component. What the model reads about it is derived from the component's WIT. What it may touch
//! is decided per call by one gate, and the sandbox receives exactly the capability handles of that call: nothing ambient,
//! nothing left over from the call before.
//!
//! | question | owner | answer |
//! |---|---|---|
//! | May the model see the tool? | [`publication::Snapshot`] | a [`descriptor::Descriptor`] |
//! | Is there exactly one implementation? | [`registry`] | one [`registry::Package`], pinned by digest |
//! | May this exact call run? | [`gate`] | a [`gate::Verdict`] |
//! | What happened? | [`sandbox`], [`journal`] | one effect, then a committed result |
//!
//! Passing one question never passes another. One call is written top to bottom in `call.rs`:
//! resolve, decode, decide, commit, mint, execute, commit, result.
//!
//! ```no_run
//! # async fn example() -> Result<(), portcullis::HostError> {
//! use portcullis::{Host, Outcome, Principal, RunOptions};
//! use serde_json::json;
//!
//! let host = Host::open("portcullis.toml").await?;
//! let run = host.start(Principal::Local, RunOptions::default()).await?;
//! match run.call("files/read", json!({ "path": "/data/public/q3.csv" })).await? {
//!     Outcome::Done(output) => println!("{:?}", output.value),
//!     Outcome::Failed(failure) => println!("{}: {}", failure.code, failure.text),
//!     Outcome::Blocked(blocked) => println!("{}: {}", blocked.denial.code, blocked.denial.reason),
//!     _ => {}
//! }
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

pub mod approval;
pub mod authority;
mod call;
pub mod credential;
pub mod descriptor;
pub mod gate;
mod host;
pub mod ids;
pub mod journal;
pub mod manual;
pub mod mcp;
pub mod net;
pub mod places;
mod private;
pub mod publication;
pub mod registry;
pub mod sandbox;
pub mod text;
pub mod value;

#[doc(hidden)]
pub mod cli;

pub use call::{AnswerError, Explanation, Repeated};
pub use host::{
    Awaiting, Blocked, Failure, Host, HostError, Indeterminate, LaunchError, LaunchProblem, Outcome, Output, Published,
    Report, Run, RunOptions,
};
pub use ids::Principal;
