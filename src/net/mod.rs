//! The one dialer of the process.
//!
//! What was checked is what is sent: the URL in normal form, the name resolved once, the addresses classified, and the
//! connection made to an address that passed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is the module that may open connections")]

pub mod address;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::authority::http::Allowed;
use crate::authority::url_pattern::{NormalUrl, Scheme};
use address::{Reach, reach};

/// Longest time to resolve a name and to connect, where nothing shorter was asked for.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name resolves to nothing.
    #[error("the name `{0}` does not resolve")]
    NotFound(String),
    /// The address may not be dialled.
    #[error("{address} is {what}, which the grant does not mean")]
    Prohibited {
        /// The address.
        address: IpAddr,
        /// What kind of address it is.
        what: &'static str,
    },
    /// No address answered.
    #[error("no connection: {0}")]
    Connect(io::Error),
    /// Not in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(io::Error),
}

/// A connection to a checked address.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Checks where a connection goes, and makes it.
#[derive(Debug, Default)]
pub struct Guard {
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Guard {
    /// Connects to the host of `url`, which `allowed` was given for.
    ///
    /// # Errors
    ///
    /// See [`DialError`].
    pub async fn dial(
        &self,
        url: &NormalUrl,
        allowed: Allowed,
        timeout: Duration,
    ) -> Result<Box<dyn Connection>, DialError> {
        let within = timeout.min(CONNECT_TIMEOUT);
        tokio::time::timeout(within, self.connect(url, allowed)).await.map_err(|_| DialError::Timeout(within))?
    }

    async fn connect(&self, url: &NormalUrl, allowed: Allowed) -> Result<Box<dyn Connection>, DialError> {
        let addresses = self.resolve(url, allowed).await?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let mut connected = None;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let Some(stream) = connected else {
            return Err(DialError::Connect(last));
        };
        let _ = stream.set_nodelay(true);
        match url.scheme() {
            Scheme::Http => Ok(Box::new(stream)),
            Scheme::Https => {
                let host = url.host().trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host)
                    .map_err(|_| DialError::Tls(io::Error::from(io::ErrorKind::InvalidInput)))?;
                let config = self.tls().map_err(DialError::Tls)?;
                let stream = TlsConnector::from(config).connect(name, stream).await.map_err(DialError::Tls)?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Resolves once. One prohibited address among several refuses them all: a public name that also answers with a
    /// private address is how a rebinding begins.
    async fn resolve(&self, url: &NormalUrl, allowed: Allowed) -> Result<Vec<SocketAddr>, DialError> {
        let host = url.host();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let addresses: Vec<SocketAddr> = match literal {
            Some(address) => vec![SocketAddr::new(address, url.port())],
            None => tokio::net::lookup_host((host, url.port()))
                .await
                .map_err(|_| DialError::NotFound(host.to_owned()))?
                .collect(),
        };
        if addresses.is_empty() {
            return Err(DialError::NotFound(host.to_owned()));
        }
        for address in &addresses {
            let what = match reach(address.ip()) {
                Reach::Public => continue,
                Reach::Private if allowed.private => continue,
                Reach::LinkLocal if allowed.private && literal.is_some() => continue,
                Reach::Private => "a private address",
                Reach::LinkLocal => "a link-local address",
                Reach::Never => "no address that can be dialled",
            };
            return Err(DialError::Prohibited { address: address.ip(), what });
        }
        Ok(addresses)
    }

    /// TLS with the platform's roots, read at the first use.
    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "this system has no certificate authorities (package ca-certificates)",
            ));
        }
        let provider = tokio_rustls::rustls::crypto::ring::default_provider();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}
