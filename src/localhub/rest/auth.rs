//! Authentication of API callers, and checks of their permissions.

use std::collections::BTreeMap;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::Value;

use super::{RestCall, RestError};
use crate::{
    localhub::{
        Hub, keys,
        model::{HubState, HubToken},
        server::HubRequest,
    },
    types::{Hash, InstallationId, RepoId},
};

/// Maximum lifetime of an App's JWT that GitHub accepts, in seconds.
const JWT_SECONDS: i64 = 600;

/// Clock skew that GitHub tolerates, in seconds.
const SKEW_SECONDS: i64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::localhub) enum HubPermissionLevel {
    Read,
    Write,
}

impl HubPermissionLevel {
    pub(super) fn parse(word: &str) -> Option<Self> {
        match word {
            "read" => Some(Self::Read),
            "write" | "admin" => Some(Self::Write),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

pub(in crate::localhub) enum RestCaller {
    Anonymous,
    /// An App, authenticated by its JWT.
    App(u64),
    /// An installation of an App, authenticated by a token that localhub issued.
    Installation {
        app: u64,
        id: InstallationId,
        token: HubToken,
        key: String,
    },
}

impl RestCaller {
    /// Returns the key under which the caller's requests are counted for the hourly rate limit.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Anonymous => "anonymous".into(),
            Self::App(id) => format!("app {id}"),
            Self::Installation { key, .. } => key.clone(),
        }
    }

    pub(super) fn name(&self, state: &HubState) -> String {
        let app = |id: &u64| state.apps.get(id);
        match self {
            Self::Anonymous => "anonymous".into(),
            Self::App(id) => app(id).map_or_else(String::new, |a| format!("app {}", a.slug)),
            Self::Installation { app: id, .. } => app(id).map_or_else(String::new, |a| state.login(a.bot)),
        }
    }
}

pub(super) fn authenticate(hub: &Hub, request: &HubRequest) -> Result<RestCaller, RestError> {
    let Some(header) = request.header("authorization") else { return Ok(RestCaller::Anonymous) };
    let (scheme, value) = header.split_once(' ').unwrap_or(("", header));
    let value = value.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" | "token" if value.split('.').count() == 3 && value.starts_with("ey") => {
            authenticate_jwt(hub, value).map(RestCaller::App)
        }
        "bearer" | "token" => authenticate_installation(hub, value),
        "basic" => authenticate_installation(hub, &basic_password(value).unwrap_or_default()),
        _ => Err(RestError::new(401, "Bad credentials")),
    }
}

/// Returns the password of `Basic` credentials. Git sends the token as the password.
fn basic_password(encoded: &str) -> Option<String> {
    let plain = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    plain.split_once(':').map(|(_, password)| password.to_owned())
}

/// Authenticates an installation token, for Git and REST requests.
pub(in crate::localhub) fn authenticate_installation(
    hub: &Hub,
    token: &str,
) -> Result<RestCaller, RestError> {
    let bad = || RestError::new(401, "Bad credentials");
    let key = Hash::digest(token.as_bytes()).to_string();
    let now = (hub.0.now)();
    hub.read(|s| {
        let row = s.tokens.get(&key).filter(|t| t.expires_at > now).ok_or_else(bad)?;
        let installation = s.installations.get(&row.installation).ok_or_else(bad)?;
        if installation.suspended_at.is_some() {
            return Err(RestError::new(403, "This installation has been suspended"));
        }
        let (app, id) = (installation.app, installation.id);
        Ok(RestCaller::Installation { app, id, token: row.clone(), key: key.clone() })
    })
}

/// Like [`authenticate`], but for Git requests: accepts only installation tokens.
pub(in crate::localhub) fn authenticate_git(hub: &Hub, request: &HubRequest) -> Option<RestCaller> {
    match request.header("authorization") {
        None => Some(RestCaller::Anonymous),
        Some(header) => {
            let (scheme, value) = header.split_once(' ')?;
            let basic = scheme.eq_ignore_ascii_case("basic");
            let token = if basic { basic_password(value.trim())? } else { value.trim().to_owned() };
            authenticate_installation(hub, &token).ok()
        }
    }
}

struct JwtParts<'a> {
    /// Header and claims, which are the signed part of the JWT.
    message: &'a str,
    claims: BTreeMap<String, Value>,
    signature: Vec<u8>,
}

impl<'a> JwtParts<'a> {
    /// Parses a JWT; returns `None` if it is malformed or not signed with RS256.
    fn parse(jwt: &'a str) -> Option<Self> {
        let (message, signature) = jwt.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        (header["alg"] == "RS256").then_some(Self { message, claims, signature })
    }
}

/// Authenticates an App by its JWT. Like GitHub, checks the signature, age and lifetime.
fn authenticate_jwt(hub: &Hub, jwt: &str) -> Result<u64, RestError> {
    let undecodable = || RestError::new(401, "A JSON web token could not be decoded");
    let JwtParts { message, claims, signature } = JwtParts::parse(jwt).ok_or_else(undecodable)?;
    let issuer = match claims.get("iss") {
        Some(Value::Number(n)) => n.to_string(),
        Some(Value::String(s)) => s.clone(),
        _ => return Err(RestError::new(401, "'Issuer' claim ('iss') must be an Integer")),
    };
    let app = hub.read(|s| {
        let known = s.apps.values().find(|a| a.id.to_string() == issuer || a.client_id == issuer);
        known.map(|a| (a.id, a.pem.clone()))
    });
    let (id, pem) = app.ok_or_else(|| RestError::new(404, "Integration not found"))?;
    if keys::sign(&pem, message.as_bytes()) != Some(signature) {
        return Err(undecodable());
    }
    check_times(&claims, (hub.0.now)().0.div_euclid(1000))?;
    Ok(id)
}

fn check_times(claims: &BTreeMap<String, Value>, now: i64) -> Result<(), RestError> {
    let second = |name: &str| claims.get(name).and_then(Value::as_f64).map(|s| s as i64);
    let refuse = |message: &str| Err(RestError::new(401, message));
    let Some(expires) = second("exp").filter(|exp| *exp > now - SKEW_SECONDS) else {
        return refuse(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        );
    };
    if second("iat").is_none_or(|iat| iat > now + SKEW_SECONDS) {
        return refuse(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        );
    }
    if expires > now + JWT_SECONDS + SKEW_SECONDS {
        return refuse("'Expiration time' claim ('exp') is too far in the future");
    }
    Ok(())
}

impl RestCall<'_> {
    /// Checks that the caller has at least one of the permissions in `need`.
    pub(super) fn require_permission(
        &self,
        repo: RepoId,
        need: &[(&str, HubPermissionLevel)],
    ) -> Result<(), RestError> {
        require_permission(self.hub, &self.caller, repo, need)
    }

    /// Returns the id of the calling App; fails if the caller did not authenticate with an App's JWT.
    pub(super) fn app(&self) -> Result<u64, RestError> {
        match self.caller {
            RestCaller::App(id) => Ok(id),
            _ => Err(RestError::new(401, "A JSON web token could not be decoded")),
        }
    }
}

pub(in crate::localhub) fn require_permission(
    hub: &Hub,
    caller: &RestCaller,
    repo: RepoId,
    need: &[(&str, HubPermissionLevel)],
) -> Result<(), RestError> {
    let (id, token) = match caller {
        RestCaller::Installation { id, token, .. } => (id, token),
        RestCaller::Anonymous => {
            let public = hub.read(|s| s.repositories.get(&repo).is_some_and(|r| !r.private));
            return match need.iter().any(|(_, level)| *level == HubPermissionLevel::Read) {
                _ if !public => Err(RestError::not_found()),
                true => Ok(()),
                false => Err(RestError::new(401, "Requires authentication")),
            };
        }
        RestCaller::App(_) => return Err(RestError::new(401, "Bad credentials")),
    };
    let covered = hub.read(|s| s.installations.get(id).is_some_and(|i| i.repositories.contains(&repo)))
        && token.repositories.as_ref().is_none_or(|only| only.contains(&repo));
    if !covered {
        return Err(RestError::not_found());
    }
    let granted = need.iter().any(|(name, level)| {
        let held = token.permissions.get(*name).and_then(|word| HubPermissionLevel::parse(word));
        held.or((*name == "metadata").then_some(HubPermissionLevel::Read)).is_some_and(|held| held >= *level)
    });
    if granted {
        return Ok(());
    }
    let accepted: Vec<_> = need.iter().map(|(name, level)| format!("{name}={}", level.as_str())).collect();
    Err(RestError {
        headers: vec![("x-accepted-github-permissions", accepted.join("; "))],
        ..RestError::new(403, "Resource not accessible by integration")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_jwt_must_be_fresh_short_lived_and_not_from_the_future() {
        let claims = |iat: i64, exp: i64| {
            BTreeMap::from([("iat".to_owned(), Value::from(iat)), ("exp".to_owned(), Value::from(exp))])
        };
        let refusal = |iat, exp| check_times(&claims(iat, exp), 1000).err().map(|r| r.message);
        assert_eq!(refusal(940, 1540), None);
        assert!(refusal(0, 900).unwrap().starts_with("'Expiration time' claim ('exp') must be"));
        assert!(refusal(1000, 1700).unwrap().contains("too far in the future"));
        assert!(refusal(1100, 1200).unwrap().starts_with("'Issued at'"));
    }
}
