//! Never ends, in several ways. None of its functions returns by itself.

/// Attacks on the time that a call has.
#[portcullis_guest::tools]
mod spin {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    /// Compute for ever.
    pub fn loop_forever() -> Result<String, String> {
        let mut count = 0_u64;
        loop {
            count = black_box(count.wrapping_add(1));
        }
    }

    /// Sleep for ever.
    pub fn sleep_forever() -> Result<String, String> {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }

    /// Ask the host for the time, for ever.
    pub fn ask_forever() -> Result<String, String> {
        loop {
            black_box(Instant::now());
        }
    }

    /// Call itself for ever.
    pub fn recurse() -> Result<String, String> {
        Ok(deeper(0).to_string())
    }

    #[allow(unconditional_recursion, reason = "that is the attack")]
    fn deeper(depth: u64) -> u64 {
        let frame = black_box([depth; 64]);
        black_box(deeper(depth + 1)) + frame[0]
    }

    /// Compute this many rounds and end: an honest neighbour of the others.
    pub fn work(rounds: u64) -> u64 {
        (0..rounds).fold(0, |sum, round| black_box(sum ^ round))
    }
}
