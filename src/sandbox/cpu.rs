//! The CPU budget: time that this thread spends for a call, in the guest and in the host on its behalf.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What one call has used. The calling thread's own clock counts, so that neither waiting nor other threads are charged.
#[derive(Clone, Debug, Default)]
pub struct Cpu(Arc<Times>);

#[derive(Debug, Default)]
struct Times {
    /// In earlier polls, in nanoseconds.
    before: AtomicU64,
    /// The thread's clock when this poll began, in nanoseconds.
    began: AtomicU64,
}

fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanoseconds).unwrap_or(0)
}

impl Cpu {
    /// What was used so far. To be asked from within a poll.
    pub fn used(&self) -> Duration {
        let now = thread_time().saturating_sub(self.0.began.load(Ordering::Relaxed));
        Duration::from_nanos(self.0.before.load(Ordering::Relaxed).saturating_add(now))
    }

    /// What was used in all polls that are over.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.before.load(Ordering::Relaxed))
    }

    /// Charges `future` to this budget.
    pub fn charge<F: Future>(&self, future: F) -> Charged<F> {
        Charged { future: Box::pin(future), cpu: self.clone() }
    }
}

/// A future whose polls are charged.
pub struct Charged<F> {
    future: Pin<Box<F>>,
    cpu: Cpu,
}

impl<F: Future> Future for Charged<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let times = self.cpu.0.clone();
        let began = thread_time();
        times.began.store(began, Ordering::Relaxed);
        let polled = self.future.as_mut().poll(cx);
        times.before.fetch_add(thread_time().saturating_sub(began), Ordering::Relaxed);
        polled
    }
}
