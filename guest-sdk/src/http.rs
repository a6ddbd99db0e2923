//! Requests to what the host granted.
//!
//! In the sandbox they go through `wasi:http`, and the host decides about each of them. In a native
//! test the answers are those of the [`testing::Host`](crate::testing::Host) that runs the test:
//!
//! ```
//! use portcullis_guest::{http, testing::Host};
//!
//! let host = Host::new().answer("GET", "https://api.example.com/v1/a", 200, "hello");
//! host.run(|| {
//!     let response = http::get("https://api.example.com/v1/a").unwrap();
//!     assert_eq!(response.body(), b"hello");
//!     assert!(http::get("https://elsewhere.example.com/").is_err());
//! });
//! assert_eq!(host.requests().len(), 2);
//! ```
//!
//! A redirect is an answer like another: to follow it, send a second request, which the host decides
//! about as it did about the first.

use std::fmt;

#[doc(no_inline)]
pub use ::http::request::Builder;
#[doc(no_inline)]
pub use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};

/// Why there was no answer. An answer that says "no" is a [`Response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Error(text.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Sends a GET request without a body and waits for the whole answer.
pub fn get(url: &str) -> Result<Response<Vec<u8>>, Error> {
    let request = Request::get(url).body(Vec::new()).map_err(Error::new)?;
    send(request)
}

/// Sends a request and waits for the whole answer.
#[cfg(target_family = "wasm")]
pub fn send(request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Error> {
    let answered = wstd::runtime::block_on(async {
        let response = wstd::http::Client::new().send(request).await?;
        let (parts, mut body) = response.into_parts();
        let body = body.contents().await?.to_vec();
        Ok::<_, wstd::http::Error>(Response::from_parts(parts, body))
    });
    // The alternate form has the causes too.
    answered.map_err(|error| Error(format!("{error:#}")))
}

/// Sends a request and waits for the whole answer.
#[cfg(not(target_family = "wasm"))]
pub fn send(request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Error> {
    crate::testing::current().map_err(Error::new)?.take_answer(request)
}
