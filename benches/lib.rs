//! Benchmarks: see the targets of this package. `cargo bench -p bench --bench gate` times decisions.
