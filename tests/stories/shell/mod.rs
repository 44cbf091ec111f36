//! The program as a person at a shell meets it: processes, exit codes, files, and GitHub only by HTTP.

mod browser;
mod context;
mod demo;
mod escape;
mod login;
pub(crate) mod process;
mod runners;
mod server;
mod usage;
