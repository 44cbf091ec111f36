//! The secret of the operator listener and the control socket. A local connection or our user id proves nothing,
//! because model programs run locally under the same user. But model programs cannot read the token file, because the
//! sandbox keeps them out of the data directory.

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

/// Returns 64 random hexadecimal digits.
pub(super) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex::encode(bytes))
}

/// Returns whether two strings are equal. The comparison takes constant time, so that its duration reveals nothing
/// about the secret.
pub(super) fn constant_time_eq(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Bearer token, created anew at each server start. The control socket, `/metrics` and the details of `/readyz` require
/// it.
#[derive(Debug, Clone)]
pub struct ServerToken(SecretString);

/// Returns the path of a data directory's token file.
pub fn token_file(data: &Path) -> PathBuf {
    data.join("token")
}

impl ServerToken {
    /// Creates a new token and writes it to the data directory, where the command line reads it.
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

    /// Returns the token as the value of an `Authorization` header.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0.expose_secret())
    }

    /// Returns whether the request carries this token.
    pub(super) fn authorizes(&self, headers: &HeaderMap) -> bool {
        let given = header_text(headers, &header::AUTHORIZATION).strip_prefix("Bearer ");
        given.is_some_and(|given| constant_time_eq(given, self.0.expose_secret()))
    }
}
