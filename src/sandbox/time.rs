//! Clock and randomness handles. What is not granted is inert, never a trap: language runtimes read both on their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand::rngs::StdRng;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use crate::authority::clock::Clock;

/// Step of the monotonic clock where time is not granted: enough for timeouts to work, too coarse to measure with.
const COARSE: Duration = Duration::from_millis(10);

/// Puts the granted clock into the context.
///
/// Where the call is to come out the same again, nothing in it tells how much time has passed.
pub fn grant_clock(builder: &mut WasiCtxBuilder, clock: Clock, deterministic: bool) {
    match clock {
        Clock::Frozen if deterministic => {
            builder.wall_clock(FrozenWall);
            builder.monotonic_clock(Steps::default());
        }
        Clock::Real => {}
        Clock::Coarse => {
            builder.wall_clock(CoarseWall);
            builder.monotonic_clock(CoarseMonotonic(Instant::now()));
        }
        Clock::Frozen => {
            builder.wall_clock(FrozenWall);
            builder.monotonic_clock(CoarseMonotonic(Instant::now()));
        }
    }
}

/// Seeds every generator of the context where randomness is not granted.
///
/// Each gets its own, so that what one hands out says nothing of another.
pub fn seed_random(builder: &mut WasiCtxBuilder, mut seed: impl FnMut(&[u8]) -> [u8; 32]) {
    let mut low = [0; 16];
    low.copy_from_slice(&seed(b"insecure-seed")[..16]);
    builder.secure_random(StdRng::from_seed(seed(b"random")));
    builder.insecure_random(StdRng::from_seed(seed(b"insecure")));
    builder.insecure_random_seed(u128::from_le_bytes(low));
}

struct FrozenWall;

impl HostWallClock for FrozenWall {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

struct CoarseWall;

impl HostWallClock for CoarseWall {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(now.as_secs())
    }
}

/// Goes on by one step each time that it is read: who waits for a moment gets there, and always after as many readings.
#[derive(Default)]
struct Steps(AtomicU64);

impl HostMonotonicClock for Steps {
    fn resolution(&self) -> u64 {
        u64::try_from(COARSE.as_nanos()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).saturating_mul(self.resolution())
    }
}

struct CoarseMonotonic(Instant);

impl HostMonotonicClock for CoarseMonotonic {
    fn resolution(&self) -> u64 {
        u64::try_from(COARSE.as_nanos()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        let elapsed = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        elapsed - elapsed % self.resolution()
    }
}
