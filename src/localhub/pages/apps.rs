//! Pages about Apps: creating an App from a manifest, as `countersign setup` does, and installing it on repositories.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::{HubPageError, HubPageRequest, HubPageResult, layout::EscapedHtml, redirect};
use crate::{
    localhub::{Hub, HubError, actions::AppSpec, keys::new_key, model::HubManifestConversion, random_hex},
    types::{RepoId, UserId},
};

/// The manifest fields that localhub uses.
#[derive(Deserialize)]
struct SubmittedManifest {
    name: String,
    url: String,
    redirect_url: Option<String>,
    #[serde(default)]
    hook_attributes: SubmittedManifestHook,
    #[serde(default)]
    default_permissions: BTreeMap<String, String>,
    #[serde(default)]
    default_events: Vec<String>,
}

#[derive(Deserialize, Default)]
struct SubmittedManifestHook {
    url: Option<Url>,
}

impl SubmittedManifest {
    fn parse(text: &str) -> Result<Self, HubError> {
        let manifest: Self = serde_json::from_str(text)
            .map_err(|e| HubError::Refused(format!("The manifest is not what GitHub takes: {e}.")))?;
        if let Some(address) = &manifest.redirect_url {
            let web = Url::parse(address).is_ok_and(|u| u.scheme() == "http" || u.scheme() == "https");
            if !web {
                return Err(HubError::Refused(format!(
                    "The manifest's address `{address}` is not http or https."
                )));
            }
        }
        if manifest.name.len() > 34 || app_slug(&manifest.name).is_empty() {
            return Err(HubError::Refused(
                "An App's name has 1 to 34 characters, with letters among them.".into(),
            ));
        }
        Ok(manifest)
    }
}

/// Returns an App's slug, derived from its name by GitHub's rule.
fn app_slug(name: &str) -> String {
    let dashed: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    dashed.split('-').filter(|p| !p.is_empty()).collect::<Vec<_>>().join("-")
}

impl Hub {
    /// Acts as `owner` submitting the manifest page. Creates the App and returns the redirect URL with `code` and
    /// `state`.
    pub fn approve_manifest(&self, manifest: &str, state: &str, owner: UserId) -> Result<Url, HubError> {
        let manifest = SubmittedManifest::parse(manifest)?;
        let pem = new_key()?;
        let (code, secret) = (random_hex(20)?, random_hex(20)?);
        let webhook_secret = SecretString::from(random_hex(20)?);
        let back = manifest.redirect_url.clone().unwrap_or_else(|| format!("{}/", self.0.base));
        let mut back = Url::parse(&back).map_err(|e| HubError::Refused(format!("{back}: {e}")))?;
        back.query_pairs_mut().append_pair("code", &code);
        if !state.is_empty() {
            back.query_pairs_mut().append_pair("state", state);
        }
        self.change(|c| {
            let spec = AppSpec {
                slug: app_slug(&manifest.name),
                name: manifest.name,
                permissions: manifest.default_permissions,
                events: manifest.default_events,
                webhook_url: manifest.hook_attributes.url,
                private_key: None,
                webhook_secret,
                owner,
            };
            let made = c.create_app(spec, pem, manifest.url)?;
            let row = HubManifestConversion { app: made.id, client_secret: secret, at: c.at };
            c.state.conversions.insert(code, row);
            Ok::<_, HubError>(())
        })?;
        Ok(back)
    }
}

impl HubPageRequest<'_> {
    /// Returns the page that shows the App described by the manifest, with a button that creates the App.
    pub(super) fn new_app(&self) -> HubPageResult {
        let fields =
            if self.request.method == Method::POST { self.fields() } else { self.request.query.clone() };
        let Some(text) = fields.get("manifest") else {
            return Err(HubPageError::new(
                StatusCode::BAD_REQUEST,
                "Send the App's manifest in the field `manifest`.",
            ));
        };
        let manifest = SubmittedManifest::parse(text)?;
        let state = self.request.query("state").unwrap_or_default();
        let permissions: String = manifest
            .default_permissions
            .iter()
            .map(|(name, level)| {
                format!(
                    "<li class=file><span class=grow>{}</span><b>{}</b></li>",
                    EscapedHtml(name),
                    EscapedHtml(level)
                )
            })
            .collect();
        let hook = manifest.hook_attributes.url.map_or_else(|| "none".to_owned(), String::from);
        let body = format!(
            "<div class=narrow><h1>Create GitHub App for {}</h1><p>It will be called <b>{}</b>, hear of {} events at \
             <code>{}</code>, and may ask for:</p><ul class=box>{permissions}</ul>\
             <form method=post action=\"/settings/apps/create\">{}<input type=hidden name=manifest value=\"{}\">\
             <input type=hidden name=state value=\"{}\"><button class=\"go wide\">Create GitHub App</button></form></div>",
            EscapedHtml(&self.acting.map(|u| self.hub.read(|s| s.login(u))).unwrap_or_default()),
            EscapedHtml(&manifest.name),
            manifest.default_events.len(),
            EscapedHtml(&hook),
            self.csrf_field(),
            EscapedHtml(text),
            EscapedHtml(state)
        );
        self.plain_page("Create GitHub App", &body)
    }

    pub(super) fn create_app(&self, form: &BTreeMap<String, String>) -> HubPageResult {
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let back = self.hub.approve_manifest(field("manifest"), field("state"), self.user()?)?;
        Ok(redirect(back.as_str()))
    }

    pub(super) fn choose_repositories(&self, slug: &str) -> HubPageResult {
        let user = self.user()?;
        let body = self.hub.read(|s| {
            let app = s.app_by_slug(slug)?;
            let installed = |id| s.installations_on(id).any(|i| i.app == app.id);
            let mut rows = String::new();
            for repo in s.repositories.values().filter(|r| r.owner == user) {
                let checked = if installed(repo.id) { " checked disabled" } else { "" };
                rows.push_str(&format!(
                    "<li class=file><label class=grow><input type=checkbox name=repository value={}{checked}> {}</label></li>",
                    repo.id,
                    s.name_of(repo)
                ));
            }
            if rows.is_empty() {
                rows.push_str("<li class=muted>This user owns no repositories. Switch to one who does.</li>");
            }
            Some(format!(
                "<div class=narrow><h1>Install {}</h1><p>On which repositories?</p>\
                 <form method=post action=\"/apps/{}/installations/new\">{}<ul class=box>{rows}</ul>\
                 <button class=\"go wide\">Install</button></form></div>",
                EscapedHtml(&app.name),
                app.slug,
                self.csrf_field()
            ))
        });
        self.plain_page("Install", &body.ok_or_else(HubPageError::not_found)?)
    }

    pub(super) fn install(&self, slug: &str) -> HubPageResult {
        let user = self.user()?;
        let chosen: Vec<RepoId> = url::form_urlencoded::parse(&self.request.body)
            .filter(|(name, _)| name == "repository")
            .filter_map(|(_, id)| id.parse().ok().map(RepoId))
            .collect();
        if chosen.is_empty() {
            return Err(HubError::Refused("Choose at least one repository.".into()).into());
        }
        let (app, own) = self
            .hub
            .read(|s| {
                let own = chosen.iter().all(|id| s.repositories.get(id).is_some_and(|r| r.owner == user));
                s.app_by_slug(slug).map(|a| (a.id, own))
            })
            .ok_or_else(HubPageError::not_found)?;
        if !own {
            return Err(HubPageError::new(
                StatusCode::FORBIDDEN,
                "Only a repository's owner installs Apps on it.",
            ));
        }
        self.hub.install(app, &chosen)?;
        Ok(redirect("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::app_slug;

    #[test]
    fn app_slug_is_derived_from_the_app_name() {
        assert_eq!(app_slug("Countersign (Ada's)"), "countersign-ada-s");
        assert_eq!(app_slug("…"), "");
    }
}
