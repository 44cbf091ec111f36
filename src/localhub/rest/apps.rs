//! API routes for an App: the App itself, its installations and its deliveries.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubPermissionLevel, RestCall, RestCaller, RestError, RestResult};
use crate::{
    localhub::{
        json::merge_json,
        model::{HubApp, HubDelivery, HubInstallation, HubToken},
        random_hex,
        server::HubReply,
    },
    types::{Hash, InstallationId, RepoId, Timestamp},
};

/// Lifetime of an installation token in milliseconds: one hour.
const TOKEN_MILLISECONDS: i64 = 3_600_000;

#[derive(Deserialize, Default)]
struct AccessTokenRequest {
    repositories: Option<Vec<String>>,
    repository_ids: Option<Vec<u64>>,
    permissions: Option<BTreeMap<String, String>>,
}

impl RestCall<'_> {
    pub(super) fn app_route(&self, method: &str, segments: &[&str]) -> RestResult {
        match (method, segments) {
            ("GET", ["app"]) => self.with_own_app(|call, app| call.state(|s| call.json(s).own_app(app))),
            ("GET", ["app", "installations"]) => self.installations(),
            ("GET", ["app", "installations", id]) => {
                let row = self.own_installation(id)?;
                Ok(self.ok(&self.state(|s| self.json(s).installation(&row))))
            }
            ("POST", ["app", "installations", id, "access_tokens"]) => self.access_token(id),
            ("GET", ["app", "hook", "config"]) => self.with_own_app(|_, app| hook_config(app)),
            ("GET", ["app", "hook", "deliveries"]) => self.deliveries(),
            ("GET", ["app", "hook", "deliveries", id]) => self.delivery(id),
            ("GET", ["installation", "repositories"]) => self.installation_repositories(),
            ("POST", ["app-manifests", code, "conversions"]) => self.convert_manifest(code),
            _ => self.unknown_route(),
        }
    }

    fn with_own_app(&self, show: impl FnOnce(&Self, &HubApp) -> Value) -> RestResult {
        let id = self.app()?;
        let app = self.state(|s| s.apps.get(&id).cloned()).ok_or_else(RestError::not_found)?;
        Ok(self.ok(&show(self, &app)))
    }

    fn own_installation(&self, id: &str) -> Result<HubInstallation, RestError> {
        let app = self.app()?;
        let id = id.parse().map(InstallationId).map_err(|_| RestError::not_found())?;
        let row = self.state(|s| s.installations.get(&id).filter(|i| i.app == app).cloned());
        row.ok_or_else(RestError::not_found)
    }

    fn installations(&self) -> RestResult {
        let app = self.app()?;
        let rows = self.state(|s| {
            let own = s.installations.values().filter(|i| i.app == app);
            own.map(|i| self.json(s).installation(i)).collect()
        });
        Ok(self.list(rows))
    }

    fn access_token(&self, id: &str) -> RestResult {
        let installation = self.own_installation(id)?;
        if installation.suspended_at.is_some() {
            return Err(RestError::new(403, "This installation has been suspended"));
        }
        let requested: AccessTokenRequest =
            if self.request.body.is_empty() { AccessTokenRequest::default() } else { self.body()? };
        let repositories = self.narrowed_repositories(&installation, &requested)?;
        let permissions = self.narrowed_permissions(&installation, requested.permissions)?;
        let token = format!("ghs_{}", random_hex(18)?);
        let expires_at = Timestamp((self.hub.0.now)().0 + TOKEN_MILLISECONDS);
        let row = HubToken {
            installation: installation.id,
            expires_at,
            permissions: permissions.clone(),
            repositories: repositories.clone(),
        };
        let key = Hash::digest(token.as_bytes()).to_string();
        self.hub.change(|c| {
            let now = c.at;
            c.state.tokens.retain(|_, t| t.expires_at > now);
            c.state.tokens.insert(key, row);
            Ok::<_, RestError>(())
        })?;
        let mut body = json!({
            "token": token, "expires_at": expires_at.to_string(), "permissions": permissions,
            "repository_selection": "selected",
        });
        if let Some(only) = repositories {
            body["repositories"] = self.state(|s| {
                let rows = only.iter().filter_map(|id| s.repositories.get(id));
                rows.map(|r| self.json(s).repository(r)).collect()
            });
        }
        Ok(HubReply::json(StatusCode::CREATED, &body))
    }

    fn narrowed_repositories(
        &self,
        installation: &HubInstallation,
        requested: &AccessTokenRequest,
    ) -> Result<Option<BTreeSet<RepoId>>, RestError> {
        if requested.repository_ids.is_none() && requested.repositories.is_none() {
            return Ok(None);
        }
        let by_id = requested.repository_ids.iter().flatten().map(|id| Some(RepoId(*id)));
        let by_name = requested.repositories.iter().flatten().map(|name| {
            self.state(|s| s.repository_named(&s.login(installation.account), name).map(|r| r.id))
        });
        let ids: Option<BTreeSet<RepoId>> = by_id.chain(by_name).collect();
        let ids = ids.filter(|ids| ids.is_subset(&installation.repositories)).ok_or_else(|| {
            RestError::new(
                422,
                "There is at least one repository that does not exist or is not accessible to the parent installation.",
            )
        })?;
        Ok(Some(ids))
    }

    fn narrowed_permissions(
        &self,
        installation: &HubInstallation,
        requested: Option<BTreeMap<String, String>>,
    ) -> Result<BTreeMap<String, String>, RestError> {
        let granted = self.state(|s| s.apps.get(&installation.app).map(|a| a.permissions.clone()));
        let mut granted = granted.unwrap_or_default();
        granted.entry("metadata".into()).or_insert_with(|| "read".into());
        let Some(mut requested) = requested else { return Ok(granted) };
        let held = |name: &str| granted.get(name).and_then(|word| HubPermissionLevel::parse(word));
        let fits = requested
            .iter()
            .all(|(name, level)| HubPermissionLevel::parse(level).is_some_and(|l| held(name) >= Some(l)));
        if !fits {
            let message = "The permissions requested are not granted to this installation.";
            return Err(RestError::new(422, message));
        }
        requested.entry("metadata".into()).or_insert_with(|| "read".into());
        Ok(requested)
    }

    fn deliveries(&self) -> RestResult {
        let app = self.app()?;
        let before = match self.request.query("cursor") {
            None => u64::MAX,
            Some(cursor) => cursor
                .strip_prefix("v1_")
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| RestError::new(422, "Invalid cursor"))?,
        };
        let size = self.page().1;
        let mut rows: Vec<HubDelivery> = self.state(|s| {
            let own = s.deliveries.iter().rev().filter(|d| d.app == app && d.id < before);
            own.take(size + 1).cloned().collect()
        });
        let more = rows.len() > size;
        rows.truncate(size);
        let reply = self.ok(&rows.iter().map(delivery_item).collect());
        let Some(oldest) = rows.last().filter(|_| more) else { return Ok(reply) };
        let url = format!("{}/api/v3/app/hook/deliveries", self.hub.0.base);
        Ok(reply
            .with_header("link", &format!("<{url}?per_page={size}&cursor=v1_{}>; rel=\"next\"", oldest.id)))
    }

    fn own_delivery(&self, id: &str) -> Result<HubDelivery, RestError> {
        let (app, id) = (self.app()?, id.parse::<u64>().map_err(|_| RestError::not_found())?);
        let row = self.state(|s| s.deliveries.iter().find(|d| d.id == id && d.app == app).cloned());
        row.ok_or_else(RestError::not_found)
    }

    fn delivery(&self, id: &str) -> RestResult {
        let row = self.own_delivery(id)?;
        let url = self.state(|s| s.apps.get(&row.app).and_then(|a| a.webhook_url.clone()));
        let payload: Value = self
            .hub
            .delivery_body(&row.guid)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let mut body = delivery_item(&row);
        let headers = json!({ "X-GitHub-Delivery": row.guid, "X-GitHub-Event": row.event });
        merge_json(
            &mut body,
            json!({
                "url": url, "request": { "headers": headers, "payload": payload },
                "response": { "headers": {}, "payload": null },
            }),
        );
        Ok(self.ok(&body))
    }

    fn installation_repositories(&self) -> RestResult {
        let RestCaller::Installation { id, token, .. } = &self.caller else {
            return Err(RestError::new(401, "Bad credentials"));
        };
        let rows = self.state(|s| {
            let all = s.installations.get(id).map(|i| i.repositories.clone()).unwrap_or_default();
            let seen = all.iter().filter(|r| token.repositories.as_ref().is_none_or(|only| only.contains(r)));
            seen.filter_map(|r| s.repositories.get(r)).map(|r| self.json(s).repository(r)).collect()
        });
        Ok(self.list_in_object("repositories", json!({ "repository_selection": "selected" }), rows))
    }

    /// Returns the credentials of an App created from a manifest. They are returned only once, to a caller who has the
    /// code.
    fn convert_manifest(&self, code: &str) -> RestResult {
        let hour_ago = (self.hub.0.now)().0 - TOKEN_MILLISECONDS;
        let (app, secret) = self.hub.change(|c| {
            let conversion = c.state.conversions.remove(code).filter(|x| x.at.0 > hour_ago);
            let conversion = conversion.ok_or_else(RestError::not_found)?;
            let app = c.state.apps.get(&conversion.app).cloned().ok_or_else(RestError::not_found)?;
            Ok::<_, RestError>((app, conversion.client_secret))
        })?;
        let mut body = self.state(|s| self.json(s).app(&app));
        merge_json(
            &mut body,
            json!({ "client_secret": secret, "webhook_secret": app.webhook_secret, "pem": app.pem }),
        );
        Ok(HubReply::json(StatusCode::CREATED, &body))
    }
}

fn hook_config(app: &HubApp) -> Value {
    let mut body = json!({ "content_type": "json", "insecure_ssl": "0", "secret": "********" });
    if let Some(url) = &app.webhook_url {
        body["url"] = json!(url);
    }
    body
}

fn delivery_item(row: &HubDelivery) -> Value {
    let (status, code) = match row.status {
        None => ("pending", 0),
        Some(0) => ("failed to connect to host", 0),
        Some(code @ 200..300) => ("OK", code),
        Some(code) => ("Invalid HTTP Response", code),
    };
    json!({
        "id": row.id, "guid": row.guid, "delivered_at": row.at.to_string(), "redelivery": row.redelivery,
        "duration": 0.01, "status": status, "status_code": code, "event": row.event, "action": row.action,
        "installation_id": row.installation, "repository_id": row.repository, "throttled_at": null,
    })
}
