//! Stories that run the program from a shell, with processes, exit codes and files. GitHub is reached only by HTTP.

mod archive;
mod browser;
mod cluster;
mod context;
mod demo;
mod escape;
mod hidden_peers;
mod init;
mod lists;
mod live;
mod login;
mod moved;
pub(crate) mod process;
mod prometheus;
mod relay;
mod reload;
mod runners;
mod server;
mod simulate;
mod stages;
mod toolchains;
mod upgrade;
mod usage;
