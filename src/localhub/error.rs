//! Errors of localhub's Rust API. Over HTTP, the same errors are reported as status codes.

use std::{net::SocketAddr, path::PathBuf};

use super::git::HubGitError;

#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("cannot listen on {address}: {source}; choose another port")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{0} is not a loopback address; localhub serves this machine only, use 127.0.0.1")]
    NotLoopback(SocketAddr),
    #[error("cannot use {}: {source}", path.display())]
    Data { path: PathBuf, source: std::io::Error },
    #[error("{} is damaged ({message}); move it away to start with an empty one", path.display())]
    Damaged { path: PathBuf, message: String },
    #[error("localhub has no {0}")]
    Missing(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Git(#[from] HubGitError),
}
