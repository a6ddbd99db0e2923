//! HTTP handles: every request of a guest is checked against the call's authority and sent through [`net::Guard`].

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks,
};

use super::ledger::Ledger;
use crate::authority::Authority;
use crate::authority::credentials::{CredentialName, Credentials, Placement};
use crate::authority::http::{Allowed, Http};
use crate::authority::limits::Limits;
use crate::authority::url_pattern::NormalUrl;
use crate::credential::Custody;
use crate::credential::redact::{Forms, Redactor};
use crate::net::{self, DialError};

/// Largest head of a response, in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Largest set of headers or trailers that a guest may hold, as it lies in memory; with the number of live resources this bounds
/// what headers cost the host.
pub(super) const FIELDS_MAX: usize = 64 << 10;
/// Most bytes that a guest hands over in one write of a body.
const CHUNK_MAX: usize = 64 << 10;
/// Longest wait for the first byte and between bytes, where the guest asks for nothing shorter. The wall-clock limit of
/// the call ends it earlier in most cases.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Headers by which a guest would get an answer in parts: a credential in it could not be found any more.
const PARTIAL: [HeaderName; 3] = [header::RANGE, header::IF_RANGE, header::TE];

/// The HTTP handle of one call.
pub struct HttpHandle {
    http: Http,
    credentials: Credentials,
    custody: Arc<Custody>,
    limits: Limits,
    ledger: Arc<Ledger>,
    guard: Arc<net::Guard>,
}

type Finished = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl HttpHandle {
    /// No request.
    pub fn none(ledger: Arc<Ledger>, guard: Arc<net::Guard>) -> Self {
        Self {
            http: Http::nothing(),
            credentials: Credentials::nothing(),
            custody: Arc::default(),
            limits: Limits::default(),
            ledger,
            guard,
        }
    }

    /// The requests of `authority`, which carry credentials from `custody`.
    pub fn mint(authority: &Authority, custody: Arc<Custody>, ledger: Arc<Ledger>, guard: Arc<net::Guard>) -> Self {
        Self {
            http: authority.http.clone(),
            credentials: authority.credentials.clone(),
            custody,
            limits: authority.limits,
            ledger,
            guard,
        }
    }

    /// Checks a request, and gives what may be sent.
    fn check(&self, request: &Request<WasiBody>) -> Result<Checked, Error> {
        let uri = request.uri();
        let shown: String = format!("{} {uri}", request.method()).chars().take(300).collect();
        let refuse = |why: &str| {
            self.ledger.refusal(&format!("request {shown}{why}"));
            Error::HttpRequestDenied
        };
        // The engine normalises nothing, and neither does this: what is not in normal form is not sent.
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(refuse(" (no host)"));
        };
        let url: NormalUrl =
            format!("{scheme}://{authority}{target}").parse().map_err(|error| refuse(&format!(" ({error})")))?;
        let Some(allowed) = self.http.allows(request.method().as_str(), &url) else {
            return Err(refuse(""));
        };
        let headers = request.headers();
        if headers.get_all(header::CONTENT_LENGTH).iter().count() > 1 {
            return Err(refuse(" (more than one content-length)"));
        }
        if headers.keys().any(|name| *name != header::HOST && is_forbidden(name)) {
            return Err(refuse(" (a header that the host decides)"));
        }
        let credentials = self.credentials.for_request(&url);
        for (name, placement) in &credentials {
            let is_taken = credentials.iter().any(|(other, at)| other != name && at.header == placement.header);
            if is_taken || headers.contains_key(&placement.header) {
                return Err(refuse(&format!(
                    " (the header `{}` is where the credential `{name}` goes)",
                    placement.header
                )));
            }
        }
        if !credentials.is_empty() && headers.keys().any(|name| PARTIAL.contains(name)) {
            return Err(refuse(" (an answer in parts, where a credential goes along)"));
        }
        Ok(Checked { url, allowed, credentials })
    }
}

/// A request that may be sent.
struct Checked {
    url: NormalUrl,
    allowed: Allowed,
    credentials: BTreeSet<(CredentialName, Placement)>,
}

/// Headers that say where a request goes, who sends it, or how it is framed are the host's to set.
fn is_forbidden(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || name.as_str().starts_with("proxy-") || DEFAULT_FORBIDDEN_HEADERS.contains(name)
}

impl WasiHttpHooks for HttpHandle {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        is_forbidden(name)
    }

    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(is_forbidden)
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK_MAX
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Finished,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Finished), Error>> + Send> {
        let checked = self.check(&request);
        let counted = self.ledger.count_request(self.limits.requests);
        let (ledger, guard, custody) = (self.ledger.clone(), self.guard.clone(), self.custody.clone());
        let limit = self.limits.network;
        Box::new(async move {
            let checked = checked?;
            counted.map_err(|_| Error::ConnectionLimitReached)?;
            send(request, options.unwrap_or_default(), &checked, &custody, &ledger, &guard, limit).await
        })
    }
}

async fn send(
    request: Request<WasiBody>,
    options: RequestOptions,
    checked: &Checked,
    custody: &Custody,
    ledger: &Arc<Ledger>,
    guard: &net::Guard,
    limit: Option<u64>,
) -> Result<(Response<WasiBody>, Finished), Error> {
    let url = &checked.url;
    let connect = options.connect_timeout.unwrap_or(net::CONNECT_TIMEOUT);
    let stream = guard.dial(url, checked.allowed, connect).await.map_err(|error| {
        ledger.refusal(&format!("connect to {}: {error}", url.authority()));
        match error {
            DialError::NotFound(_) => Error::DnsError { rcode: None, info_code: None },
            DialError::Prohibited { .. } => Error::DestinationIpProhibited,
            DialError::Connect(error) => Error::Connect(error),
            DialError::Timeout(_) => Error::ConnectionTimeout,
            DialError::Tls(_) => Error::TlsProtocolError,
        }
    })?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_MAX).handshake::<_, WasiBody>(TokioIo::new(stream)).await?;
    // Aborted when dropped, with the response that holds it.
    let driver = wasmtime_wasi::runtime::spawn(connection);

    let (mut parts, body) = request.into_parts();
    ledger.effect("http", format!("{} {url}", parts.method));
    parts.uri = url.target().parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    let host = url.authority().parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    parts.headers.insert(header::HOST, host);
    let body = Counted::new(body, ledger.clone(), limit, READ_TIMEOUT).boxed_unsync();
    let forms = carry(&mut parts, &checked.credentials, custody, ledger).await?;

    let first_byte = options.first_byte_timeout.unwrap_or(READ_TIMEOUT);
    let response = tokio::time::timeout(first_byte, sender.send_request(Request::from_parts(parts, body)))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)??;
    let between = options.between_bytes_timeout.unwrap_or(READ_TIMEOUT);
    let ledger = ledger.clone();
    let response = match forms {
        None => response.map(|body| Counted::new(body.map_err(Error::from), ledger, limit, between).boxed_unsync()),
        Some(forms) => {
            let response = without(&forms, response, &ledger)?;
            response.map(|body| {
                let counted = Counted::new(body.map_err(Error::from), ledger, limit, between);
                Redacted { inner: counted, redactor: Redactor::new(forms.clone()), forms, ended: None }.boxed_unsync()
            })
        }
    };
    let finished = async move {
        // The sender lives as long as the connection, which would close without it.
        let _sender = sender;
        match driver.await {
            Ok(()) => Ok(()),
            Err(error) => Err(Error::Hyper(error)),
        }
    };
    Ok((response, Box::new(finished)))
}

/// Puts the credentials into a request, read at this moment; gives what is to be taken out of the answer.
async fn carry(
    request: &mut http::request::Parts,
    credentials: &BTreeSet<(CredentialName, Placement)>,
    custody: &Custody,
    ledger: &Ledger,
) -> Result<Option<Forms>, Error> {
    if credentials.is_empty() {
        return Ok(None);
    }
    let mut secrets = Vec::new();
    for (name, placement) in credentials {
        let unusable = |why: String| {
            ledger.refusal(&format!("the credential `{name}` cannot be used: {why}"));
            Error::HttpRequestDenied
        };
        let secret = custody.read(name).await.map_err(|error| unusable(error.to_string()))?;
        let header: HeaderName = placement.header.parse().map_err(|_| unusable("it has no header".to_owned()))?;
        let value = secret.header(placement).ok_or_else(|| unusable("no header can hold it".to_owned()))?;
        request.headers.insert(header, value);
        ledger.effect("credential", format!("{name} to {}", request.headers[header::HOST].to_str().unwrap_or("?")));
        secrets.push(secret);
    }
    request.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(Some(Forms::of(&secrets)))
}

/// The head of an answer without the credentials that went along, where they can be found in it and in what follows.
fn without<B>(forms: &Forms, mut response: Response<B>, ledger: &Ledger) -> Result<Response<B>, Error> {
    let names = |header: HeaderName, plain: &str| {
        let values = response.headers().get_all(header);
        values.iter().all(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(plain.as_bytes()))
    };
    if !names(header::CONTENT_ENCODING, "identity") {
        ledger.refusal("an encoded answer to a request that carried a credential");
        return Err(Error::HttpResponseContentCoding(None));
    }
    if !names(header::TRANSFER_ENCODING, "chunked") {
        ledger.refusal("an encoded answer to a request that carried a credential");
        return Err(Error::HttpResponseTransferCoding(None));
    }
    if response.status() == http::StatusCode::PARTIAL_CONTENT {
        ledger.refusal("a part of an answer to a request that carried a credential");
        return Err(Error::HttpResponseIncomplete);
    }
    let headers = std::mem::take(response.headers_mut());
    *response.headers_mut() = clean(forms, headers);
    Ok(response)
}

/// Headers or trailers without the credentials. A name that holds one is left out.
fn clean(forms: &Forms, headers: HeaderMap) -> HeaderMap {
    let mut cleaned = HeaderMap::with_capacity(headers.len());
    let mut last = None;
    for (name, value) in headers {
        // The name of a repeated header is given once.
        let Some(name) = name.or_else(|| last.clone()) else { continue };
        last = Some(name.clone());
        if forms.are_in_name(name.as_str()) {
            continue;
        }
        if let Ok(value) = HeaderValue::from_bytes(&forms.take_out(value.as_bytes())) {
            cleaned.append(name, value);
        }
    }
    cleaned
}

/// A body without the credentials that went along with its request.
struct Redacted<B> {
    inner: B,
    redactor: Redactor,
    forms: Forms,
    /// What comes when the last data has been given.
    ended: Option<Option<HeaderMap>>,
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for Redacted<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            if let Some(trailers) = &mut this.ended {
                return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let rest = match std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.redactor.feed(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().ok();
                        this.ended = Some(trailers.map(|trailers| clean(&this.forms, trailers)));
                        this.redactor.finish()
                    }
                },
                None => {
                    this.ended = Some(None);
                    this.redactor.finish()
                }
            };
            if !rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.ended, Some(None))
    }

    fn size_hint(&self) -> SizeHint {
        // The same bytes come out as go in, and some of them may be in here.
        SizeHint::new()
    }
}

/// A body that counts its bytes, and does not wait for ever for the next.
struct Counted<B> {
    inner: Pin<Box<B>>,
    ledger: Arc<Ledger>,
    limit: Option<u64>,
    between: Duration,
    deadline: Pin<Box<tokio::time::Sleep>>,
}

impl<B> Counted<B> {
    fn new(inner: B, ledger: Arc<Ledger>, limit: Option<u64>, between: Duration) -> Self {
        let deadline = Box::pin(tokio::time::sleep(between));
        Self { inner: Box::pin(inner), ledger, limit, between, deadline }
    }
}

impl<B: Body<Data = Bytes, Error = Error>> Body for Counted<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        match this.inner.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref()
                    && this.ledger.count_network(data.len() as u64, this.limit).is_err()
                {
                    return Poll::Ready(Some(Err(Error::HttpResponseBodySize(this.limit))));
                }
                let next = tokio::time::Instant::now() + this.between;
                this.deadline.as_mut().reset(next);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending => match this.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(Error::ConnectionReadTimeout))),
                Poll::Pending => Poll::Pending,
            },
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
