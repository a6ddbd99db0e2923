//! A spinner for what takes longer than a second. Nothing is drawn before that, nor where standard error is no terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Spins until it is dropped.
pub struct Spinner(Running);

impl Spinner {
    pub fn start(message: impl Into<String>) -> Self {
        Self(Running::start(message))
    }
}

/// Shows that something runs, once it has run for a second. A question takes the terminal for itself meanwhile.
#[derive(Clone)]
pub struct Running {
    bar: ProgressBar,
    /// While a question has the terminal, which may be longer than anybody waits for its answer, the bar is its own.
    asking: Arc<AtomicBool>,
}

impl Running {
    pub fn start(message: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(message.into());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        let asking = Arc::new(AtomicBool::new(false));
        let (later, is_asking) = (bar.clone(), asking.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !is_asking.load(Ordering::Acquire) && !later.is_finished() {
                later.set_draw_target(ProgressDrawTarget::stderr());
                later.enable_steady_tick(Duration::from_millis(120));
            }
        });
        Self { bar, asking }
    }

    /// Runs `question` with nothing else on the terminal.
    pub fn pause<T>(&self, question: impl FnOnce() -> T) -> T {
        self.asking.store(true, Ordering::Release);
        let answer = self.bar.suspend(question);
        self.asking.store(false, Ordering::Release);
        answer
    }

    pub fn end(&self) {
        if !self.asking.load(Ordering::Acquire) {
            self.bar.finish_and_clear();
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.end();
    }
}
