//! The program as a person at a shell meets it: processes, exit codes, files, and GitHub only by HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod browser;
mod demo;
mod process;
mod server;
mod usage;
