//! Clock and randomness.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What time a call can read. Each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The wall clock stands at the epoch; the monotonic clock starts at zero and moves in coarse steps.
    #[default]
    Frozen,
    /// The real time, in steps of a second.
    Coarse,
    /// The real time.
    Real,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frozen => "frozen",
            Self::Coarse => "coarse",
            Self::Real => "real",
        })
    }
}
