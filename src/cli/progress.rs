//! A spinner for what takes longer than a moment. Nothing is drawn where standard error is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Spins until it is dropped.
pub struct Spinner(ProgressBar);

impl Spinner {
    pub fn start(message: impl Into<String>) -> Self {
        let bar = ProgressBar::new_spinner().with_message(message.into());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
