//! The `portcullis` program: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis::cli::main()
}
