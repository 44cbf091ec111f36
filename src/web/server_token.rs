//! The secret of the operator's doors. To come from this machine, or as our user, proves nothing: a model's program does,
//! too. What that cannot do is read this file, for the kernel keeps it from the data directory.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use axum::http::{HeaderMap, HeaderName, header};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

pub(super) fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Sixty-four hexadecimal digits that nobody can guess.
pub(super) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex::encode(bytes))
}

/// Compares without telling by its time how much of it was right.
pub(super) fn constant_time_eq(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// What a boot of the server wants to hear on its control socket, and from whoever asks it for more than its health.
#[derive(Debug, Clone)]
pub struct ServerToken(SecretString);

/// Where a data directory keeps it.
pub fn token_file(data: &Path) -> PathBuf {
    data.join("token")
}

impl ServerToken {
    /// Makes a new one, and leaves it in the data directory for the command line.
    pub fn renew(data: &Path) -> io::Result<Self> {
        let (token, path) = (random_hex()?, token_file(data));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?
            .write_all(token.as_bytes())?;
        Ok(Self(token.into()))
    }

    pub(super) fn read(data: &Path) -> io::Result<Self> {
        Ok(Self(fs::read_to_string(token_file(data))?.into()))
    }

    /// As an `Authorization` header has it.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0.expose_secret())
    }

    /// Does a request bring it?
    pub(super) fn authorizes(&self, headers: &HeaderMap) -> bool {
        let given = header_text(headers, &header::AUTHORIZATION).strip_prefix("Bearer ");
        given.is_some_and(|given| constant_time_eq(given, self.0.expose_secret()))
    }
}
