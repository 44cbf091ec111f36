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

/// The name of the private page's cookie. A browser sends it to every port of a host, and several servers may be there.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = text(headers, &header::HOST);
    format!("countersign_{}", host.rsplit(':').next().unwrap_or_default())
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What a boot of the server wants to hear from whoever asks it for anything but its health.
#[derive(Debug, Clone)]
pub struct Token(SecretString);

/// Where a data directory keeps it.
pub fn token_file(data: &Path) -> PathBuf {
    data.join("token")
}

impl Token {
    /// Makes a new one, and leaves it in the data directory for the command line.
    pub fn renew(data: &Path) -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let (token, path) = (hex::encode(bytes), token_file(data));
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

    /// For the private page, so that its address need not hold the token for longer than one visit.
    pub(super) fn cookie(&self, asked: &HeaderMap) -> String {
        let (name, token) = (cookie_name(asked), self.0.expose_secret());
        format!("{name}={token}; HttpOnly; SameSite=Strict; Path=/")
    }

    /// The private page's address with the token in it.
    pub fn page(&self, address: std::net::SocketAddr) -> String {
        format!("http://{address}/?token={}", self.0.expose_secret())
    }

    /// Compares without telling by its time how much of it was right.
    pub(super) fn is(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.0.expose_secret().as_bytes()).into()
    }

    /// Does a request bring it, in its header or as its cookie?
    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        let name = cookie_name(headers);
        let mut cookies = text(headers, &header::COOKIE).split(';').filter_map(|c| c.trim().split_once('='));
        text(headers, &header::AUTHORIZATION).strip_prefix("Bearer ").is_some_and(|bearer| self.is(bearer))
            || cookies.any(|(known, token)| known == name && self.is(token))
    }
}
