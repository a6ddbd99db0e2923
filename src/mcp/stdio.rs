//! MCP over standard input and output. The protocol owns both streams; guest output can reach neither.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use rmcp::ServiceExt as _;
use rmcp::model::RequestId;
use serde::Deserialize as _;
use tokio::io::{AsyncRead, ReadBuf};

use super::server::Server;
use crate::host::{HostError, Run};
use crate::value::strict_json;

/// Longest line that is looked at; the transport drops longer ones.
const LINE_MAX: usize = 16 << 20;

/// Serves a run until the client closes the stream.
///
/// # Errors
///
/// The streams cannot be used, or the client does not speak the protocol.
pub async fn serve_stdio(run: Run) -> Result<(), HostError> {
    let not_strict = NotStrict::default();
    let server = Server { run: Arc::new(run), not_strict: not_strict.clone() };
    let (read, write) = rmcp::transport::io::stdio_pipes();
    let read = Tap { inner: read, line: Vec::new(), not_strict };
    let service = match server.serve((read, write)).await {
        Ok(service) => service,
        // A client that looks and leaves is no fault.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => {
            return Err(HostError::Fault(format!("the client does not speak MCP: {error}")));
        }
    };
    service.waiting().await.map_err(|error| HostError::Fault(error.to_string()))?;
    Ok(())
}

/// Requests whose text is not strict JSON, with the reason. The SDK's parser keeps the last of two equal keys without a word,
/// so the text is looked at on its way to it.
#[derive(Clone, Debug, Default)]
pub(super) struct NotStrict(Arc<Mutex<HashMap<RequestId, String>>>);

/// Most requests that are remembered. An honest client has none; one that sends more than this without waiting for answers
/// loses the reasons and not the refusals, since the oldest answers are given by then.
const REMEMBERED: usize = 10_000;

impl NotStrict {
    /// Why the text of this request was not strict JSON.
    pub(super) fn take(&self, id: &RequestId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    fn look(&self, line: &[u8]) {
        let Err(error) = strict_json(line) else { return };
        // What the SDK does not parse either never becomes a request.
        let id = serde_json::from_slice::<serde_json::Value>(line).ok().and_then(|mut message| {
            // Only a call looks its id up again.
            if message.get("method")? != "tools/call" {
                return None;
            }
            let id = message.get_mut("id").map(serde_json::Value::take)?;
            RequestId::deserialize(id).ok()
        });
        if let Some(id) = id {
            let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() >= REMEMBERED {
                remembered.clear();
            }
            remembered.insert(id, error.to_string());
        }
    }
}

/// Passes bytes on unchanged, and looks at each line.
struct Tap<R> {
    inner: R,
    line: Vec<u8>,
    not_strict: NotStrict,
}

impl<R: AsyncRead + Unpin> AsyncRead for Tap<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = polled {
            let mut rest = &buffer.filled()[before..];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line = std::mem::take(&mut self.line);
                if line.len() <= LINE_MAX {
                    line.extend_from_slice(&rest[..end]);
                    self.not_strict.look(&line);
                }
                rest = &rest[end + 1..];
            }
            if self.line.len() <= LINE_MAX {
                self.line.extend_from_slice(rest);
            }
        }
        polled
    }
}
