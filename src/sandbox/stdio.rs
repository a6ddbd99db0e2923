//! Standard streams: output is captured with a cap and never reaches the host's own; input is empty.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// Keeps the first and the last part of what was written: the beginning says what happened, the end why it stopped.
#[derive(Clone, Debug)]
pub struct Capture {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Capture {
    /// A capture of at most `cap` bytes.
    pub fn new(cap: u64) -> Self {
        let half = usize::try_from(cap / 2).unwrap_or(usize::MAX);
        let inner = Inner { half, head: Vec::new(), tail: VecDeque::new(), dropped: 0 };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    fn push(&self, bytes: &[u8]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let to_head = bytes.len().min(inner.half - inner.head.len());
        inner.head.extend_from_slice(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        let (half, held) = (inner.half, inner.tail.len());
        let overflow = (held + rest.len()).saturating_sub(half);
        inner.dropped += overflow as u64;
        if rest.len() >= half {
            inner.tail.clear();
            inner.tail.extend(&rest[rest.len() - half..]);
        } else {
            inner.tail.drain(..overflow.min(held));
            inner.tail.extend(rest);
        }
    }

    /// What was captured, as text, with a note where something is missing.
    pub fn text(&self) -> String {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = inner.head.clone();
        if inner.dropped > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes left out …]\n", inner.dropped).as_bytes());
        }
        bytes.extend_from_slice(inner.tail.make_contiguous());
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Capture {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[async_trait::async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_head_and_its_tail() {
        let capture = Capture::new(8);
        for chunk in [b"ab".as_slice(), b"cdef", b"ghijklmnop", b"q"] {
            capture.push(chunk);
        }
        assert_eq!(capture.text(), "abcd\n[… 9 bytes left out …]\nnopq");
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let capture = Capture::new(8);
        capture.push(b"abcde");
        capture.push(b"fgh");
        assert_eq!(capture.text(), "abcdefgh");
    }
}
