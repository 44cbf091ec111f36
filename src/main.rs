//! The binary, which only calls the library's `cli::main`.

use std::process::ExitCode;

fn main() -> ExitCode {
    countersign::cli::main()
}
