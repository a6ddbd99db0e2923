//! A spinner for what takes longer than a second. Nothing is drawn before that, nor where standard error is no terminal.

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
pub struct Running(ProgressBar);

impl Running {
    pub fn start(message: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(message.into());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        let later = bar.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !later.is_finished() {
                later.set_draw_target(ProgressDrawTarget::stderr());
                later.enable_steady_tick(Duration::from_millis(120));
            }
        });
        Self(bar)
    }

    /// Runs `question` with nothing else on the terminal.
    pub fn pause<T>(&self, question: impl FnOnce() -> T) -> T {
        self.0.suspend(question)
    }

    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.end();
    }
}
