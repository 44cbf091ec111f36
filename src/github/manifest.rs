//! The App's registration, and the table of every API call that the App makes.
//!
//! Only the table in this file can create a [`GitHubEndpoint`], and `api::send` accepts nothing else. So every call has
//! a row with its required permission, and a test compares the rows with `app-manifest.yml`.

use std::{collections::BTreeMap, fmt};

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// Permission that a call requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredPermission {
    /// No permission: anyone may make the call.
    Nothing,
    /// No permission, but a JWT signed with the App's own key.
    App,
    /// A permission of the installation, by its name in the manifest.
    Permission(&'static str, PermissionLevel),
    /// A permission that the App does not request, but that an owner may have granted. Callers must handle a refusal.
    IfGranted(&'static str, PermissionLevel),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PermissionLevel {
    Read,
    Write,
}

/// An API endpoint: method, route and required permission.
///
/// In `path`, `{name}` stands for one percent-encoded segment and `{*name}` for several.
#[derive(Debug)]
pub struct GitHubEndpoint {
    // Private, so that only the table below can create endpoints.
    method: Method,
    path: &'static str,
    needs: RequiredPermission,
}

impl fmt::Display for GitHubEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

macro_rules! calls {
    ($($name:ident: $method:ident $path:literal $needs:expr;)*) => {
        $(pub(crate) static $name: GitHubEndpoint = GitHubEndpoint { method: Method::$method, path: $path, needs: $needs };)*

        /// Every GitHub API call that this program can make.
        pub static CALLS: &[&GitHubEndpoint] = &[$(&$name),*];
    };
}

const READ_METADATA: RequiredPermission = RequiredPermission::Permission("metadata", PermissionLevel::Read);
const READ_CONTENTS: RequiredPermission = RequiredPermission::Permission("contents", PermissionLevel::Read);
const WRITE_CONTENTS: RequiredPermission = RequiredPermission::Permission("contents", PermissionLevel::Write);
const READ_ISSUES: RequiredPermission = RequiredPermission::Permission("issues", PermissionLevel::Read);
const WRITE_ISSUES: RequiredPermission = RequiredPermission::Permission("issues", PermissionLevel::Write);
const READ_PULLS: RequiredPermission = RequiredPermission::Permission("pull_requests", PermissionLevel::Read);
const READ_CHECKS: RequiredPermission = RequiredPermission::Permission("checks", PermissionLevel::Read);
const WRITE_CHECKS: RequiredPermission = RequiredPermission::Permission("checks", PermissionLevel::Write);
const READ_STATUSES: RequiredPermission = RequiredPermission::Permission("statuses", PermissionLevel::Read);
const READ_ACTIONS: RequiredPermission = RequiredPermission::Permission("actions", PermissionLevel::Read);
const WRITE_PULLS: RequiredPermission =
    RequiredPermission::Permission("pull_requests", PermissionLevel::Write);

calls! {
    APP: GET "/app" RequiredPermission::App;
    HOOK_CONFIG: GET "/app/hook/config" RequiredPermission::App;
    DELIVERIES: GET "/app/hook/deliveries" RequiredPermission::App;
    DELIVERY: GET "/app/hook/deliveries/{delivery}" RequiredPermission::App;
    INSTALLATIONS: GET "/app/installations" RequiredPermission::App;
    INSTALLATION: GET "/app/installations/{installation}" RequiredPermission::App;
    INSTALLATION_TOKEN: POST "/app/installations/{installation}/access_tokens" RequiredPermission::App;
    CONVERT_MANIFEST: POST "/app-manifests/{code}/conversions" RequiredPermission::Nothing;
    INSTALLATION_REPOSITORIES: GET "/installation/repositories" READ_METADATA;
    USER: GET "/users/{login}" RequiredPermission::Nothing;
    SEARCH: GET "/search/repositories" RequiredPermission::Nothing;
    SEARCH_CODE: GET "/search/code" RequiredPermission::Nothing;
    README: GET "/repos/{owner}/{repo}/readme" RequiredPermission::Nothing;
    OTHERS_FILE: GET "/repos/{owner}/{repo}/contents/{*path}" RequiredPermission::Nothing;
    TEAM_MEMBERS: GET "/orgs/{organization}/teams/{team}/members" RequiredPermission::IfGranted("members", PermissionLevel::Read);

    REPOSITORY: GET "/repos/{owner}/{repo}" READ_METADATA;
    REPOSITORY_BY_ID: GET "/repositories/{id}" READ_METADATA;
    RULES: GET "/repos/{owner}/{repo}/rules/branches/countersign/issue-1" READ_METADATA;
    PERMISSION: GET "/repos/{owner}/{repo}/collaborators/{login}/permission" READ_METADATA;

    ISSUES_LIST: GET "/repos/{owner}/{repo}/issues" READ_ISSUES;
    CREATE_ISSUE: POST "/repos/{owner}/{repo}/issues" WRITE_ISSUES;
    EDIT_ISSUE: PATCH "/repos/{owner}/{repo}/issues/{issue}" WRITE_ISSUES;
    ISSUE_EVENTS: GET "/repos/{owner}/{repo}/issues/{issue}/events" READ_ISSUES;
    ISSUE: GET "/repos/{owner}/{repo}/issues/{issue}" READ_ISSUES;
    COMMENTS: GET "/repos/{owner}/{repo}/issues/{issue}/comments" READ_ISSUES;
    POST_COMMENT: POST "/repos/{owner}/{repo}/issues/{issue}/comments" WRITE_ISSUES;
    EDIT_COMMENT: PATCH "/repos/{owner}/{repo}/issues/comments/{comment}" WRITE_ISSUES;
    DELETE_COMMENT: DELETE "/repos/{owner}/{repo}/issues/comments/{comment}" WRITE_ISSUES;
    REACT_COMMENT: POST "/repos/{owner}/{repo}/issues/comments/{comment}/reactions" WRITE_ISSUES;
    REACT_ISSUE: POST "/repos/{owner}/{repo}/issues/{issue}/reactions" WRITE_ISSUES;
    LABEL: GET "/repos/{owner}/{repo}/labels/{label}" READ_ISSUES;
    CREATE_LABEL: POST "/repos/{owner}/{repo}/labels" WRITE_ISSUES;
    DELETE_LABEL: DELETE "/repos/{owner}/{repo}/labels/{label}" WRITE_ISSUES;
    ADD_LABELS: POST "/repos/{owner}/{repo}/issues/{issue}/labels" WRITE_ISSUES;
    REMOVE_LABEL: DELETE "/repos/{owner}/{repo}/issues/{issue}/labels/{label}" WRITE_ISSUES;

    AUTHORS: POST "/graphql" READ_ISSUES;
    BY_EMAIL: POST "/graphql" READ_ISSUES;
    COMMIT_ON_BRANCH: POST "/graphql" WRITE_CONTENTS;
    CHANGE_LABELS: POST "/graphql" WRITE_ISSUES;
    EDIT_AND_LABEL: POST "/graphql" WRITE_ISSUES;

    REF: GET "/repos/{owner}/{repo}/git/ref/heads/{*branch}" READ_CONTENTS;
    COMMIT_OBJECT: GET "/repos/{owner}/{repo}/git/commits/{commit}" READ_CONTENTS;
    // The prefix restricts deletion to our branches.
    DELETE_BRANCH: DELETE "/repos/{owner}/{repo}/git/refs/heads/countersign/{made}" WRITE_CONTENTS;
    BLOB: GET "/repos/{owner}/{repo}/git/blobs/{blob}" READ_CONTENTS;
    CONTENTS: GET "/repos/{owner}/{repo}/contents/{*path}" READ_CONTENTS;

    PULL: GET "/repos/{owner}/{repo}/pulls/{pull}" READ_PULLS;
    PULL_COMMITS: GET "/repos/{owner}/{repo}/pulls/{pull}/commits" READ_PULLS;
    REVIEW_COMMENTS: GET "/repos/{owner}/{repo}/pulls/{pull}/reviews/{review}/comments" READ_PULLS;
    LINE_COMMENTS: GET "/repos/{owner}/{repo}/pulls/{pull}/comments" READ_PULLS;
    REPLY: POST "/repos/{owner}/{repo}/pulls/{pull}/comments/{comment}/replies" WRITE_PULLS;
    PULLS_LIST: GET "/repos/{owner}/{repo}/pulls" READ_PULLS;
    CREATE_PULL: POST "/repos/{owner}/{repo}/pulls" WRITE_PULLS;
    EDIT_PULL: PATCH "/repos/{owner}/{repo}/pulls/{pull}" WRITE_PULLS;

    CHECKS: GET "/repos/{owner}/{repo}/commits/{commit}/check-runs" READ_CHECKS;
    REMARKS: GET "/repos/{owner}/{repo}/check-runs/{check}/annotations" READ_CHECKS;
    STATUSES: GET "/repos/{owner}/{repo}/commits/{commit}/status" READ_STATUSES;
    WORKFLOW_RUNS: GET "/repos/{owner}/{repo}/actions/runs" READ_ACTIONS;
    RUN_JOBS: GET "/repos/{owner}/{repo}/actions/runs/{run}/jobs" READ_ACTIONS;
    JOB_LOG: GET "/repos/{owner}/{repo}/actions/jobs/{job}/logs" READ_ACTIONS;
    CREATE_CHECK: POST "/repos/{owner}/{repo}/check-runs" WRITE_CHECKS;
    EDIT_CHECK: PATCH "/repos/{owner}/{repo}/check-runs/{check}" WRITE_CHECKS;
}

impl GitHubEndpoint {
    pub fn method(&self) -> &Method {
        &self.method
    }

    pub fn path(&self) -> &'static str {
        self.path
    }

    pub fn needs(&self) -> RequiredPermission {
        self.needs
    }

    /// Returns the route with its placeholders filled in order. The caller must pass exactly one value per placeholder;
    /// a mistake shows in the first test of the call.
    pub(crate) fn route(&self, values: &[&str]) -> String {
        let mut values = values.iter();
        let mut route = String::new();
        for segment in self.path.split('/').skip(1) {
            route.push('/');
            match segment.strip_prefix('{') {
                None => route.push_str(segment),
                Some(name) => {
                    let value = values.next().expect("a value for every placeholder");
                    percent_encode(value, name.starts_with('*'), &mut route);
                }
            }
        }
        debug_assert!(values.next().is_none(), "a value without a placeholder: {self}");
        route
    }
}

/// Appends `value` to `into`, percent-encoding all but the unreserved characters. Keeps `/` if `several` is true, which
/// means that several segments are allowed.
fn percent_encode(value: &str, several: bool, into: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(char::from(byte))
            }
            b'/' if several => into.push('/'),
            _ => into.push_str(&format!("%{byte:02X}")),
        }
    }
}

const SOURCE: &str = include_str!("../../app-manifest.yml");

/// Permissions and events that the App requests when it is installed.
#[derive(Debug, Clone, Deserialize)]
pub struct AppManifest {
    pub public: bool,
    #[serde(rename = "default_permissions")]
    pub permissions: BTreeMap<String, PermissionLevel>,
    #[serde(rename = "default_events")]
    pub events: Vec<String>,
}

/// URLs of the manifest that only `setup` knows and that are therefore not in the manifest file.
#[derive(Debug, Clone)]
pub struct AppManifestUrls {
    pub homepage: String,
    pub webhook: String,
    /// URL to which GitHub redirects after the registration, with the code appended.
    pub created: String,
}

impl AppManifest {
    /// Returns the manifest that was compiled into this program.
    pub fn embedded() -> Self {
        serde_norway::from_str(SOURCE).expect("the embedded manifest is checked by a test")
    }

    /// Returns the manifest in the form that GitHub's registration page accepts.
    pub fn registration_form(&self, name: &str, addresses: &AppManifestUrls) -> Value {
        json!({
            "name": name,
            "url": addresses.homepage,
            "hook_attributes": { "url": addresses.webhook, "active": true },
            "redirect_url": addresses.created,
            "public": self.public,
            "default_permissions": self.permissions.iter().map(|(name, level)| {
                (name.clone(), Value::from(level.as_str()))
            }).collect::<serde_json::Map<_, _>>(),
            "default_events": self.events,
        })
    }

    /// Returns the permissions of the manifest that were not granted, such as `issues: write`.
    pub fn missing_permissions(&self, granted: &BTreeMap<String, String>) -> Vec<String> {
        missing_grants(self.permissions.iter().map(|(name, level)| (name.as_str(), *level)), granted)
    }

    /// Returns the events of the manifest that the App is not subscribed to.
    pub fn missing_events(&self, subscribed: &[String]) -> Vec<String> {
        self.events.iter().filter(|event| !subscribed.contains(event)).cloned().collect()
    }
}

/// Returns the permissions that a run needs and that were not granted. `on_branch` is true for a run with a branch and
/// a pull request, and false for a run that writes only on its issue.
pub(crate) fn missing_permissions_for_run(
    on_branch: bool,
    granted: &BTreeMap<String, String>,
) -> Vec<String> {
    let needs: &[RequiredPermission] =
        if on_branch { &[WRITE_ISSUES, WRITE_CONTENTS, WRITE_PULLS] } else { &[WRITE_ISSUES, READ_CONTENTS] };
    let permission = |needs: &RequiredPermission| match needs {
        RequiredPermission::Permission(name, level) => Some((*name, *level)),
        _ => None,
    };
    missing_grants(needs.iter().filter_map(permission), granted)
}

fn missing_grants<'n>(
    needs: impl Iterator<Item = (&'n str, PermissionLevel)>,
    granted: &BTreeMap<String, String>,
) -> Vec<String> {
    let enough = |name: &str, level: PermissionLevel| match granted.get(name).map(String::as_str) {
        Some("write" | "admin") => true,
        Some("read") => level == PermissionLevel::Read,
        _ => false,
    };
    needs
        .filter(|(name, level)| !enough(name, *level))
        .map(|(name, level)| format!("{name}: {}", level.as_str()))
        .collect()
}

impl PermissionLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::github::event::WebhookEvent;

    #[test]
    fn manifest_grants_every_permission_that_api_calls_require() {
        let manifest = AppManifest::embedded();
        for call in CALLS {
            if let RequiredPermission::Permission(name, level) = call.needs {
                let granted = manifest.permissions.get(name);
                assert!(granted.is_some_and(|granted| *granted >= level), "{call} needs {name}={level:?}");
            }
        }
    }

    #[test]
    fn manifest_events_match_subscribed_events() {
        let manifest = AppManifest::embedded();
        assert_eq!(manifest.events, WebhookEvent::SUBSCRIBED);
        assert!(!manifest.public);
    }

    #[test]
    fn every_manifest_permission_and_event_has_a_comment_with_its_reason() {
        for line in SOURCE.lines().skip_while(|line| *line != "default_permissions:") {
            if line.starts_with("  ") {
                assert!(line.split_once(" # ").is_some_and(|(_, why)| why.len() > 20), "no reason: {line}");
            }
        }
    }

    #[test]
    fn app_registration_form_contains_urls_and_permissions() {
        let addresses = AppManifestUrls {
            homepage: "https://h/".into(),
            webhook: "https://h/webhook".into(),
            created: "http://127.0.0.1:1/created".into(),
        };
        let form = AppManifest::embedded().registration_form("countersign-acme", &addresses);
        assert_eq!(form["hook_attributes"]["url"], "https://h/webhook");
        assert_eq!(form["default_permissions"]["issues"], "write");
        assert!(!form.to_string().contains(".invalid"), "{form}");
        assert!(form.get("setup_url").is_none(), "it would stay with the App when setup has ended");
    }

    #[test]
    fn api_route_percent_encodes_its_values() {
        assert_eq!(
            REMOVE_LABEL.route(&["o", "r", "7", "needs you/now"]),
            "/repos/o/r/issues/7/labels/needs%20you%2Fnow"
        );
        assert_eq!(
            REF.route(&["o", "r", "countersign/issue-42?x"]),
            "/repos/o/r/git/ref/heads/countersign/issue-42%3Fx"
        );
    }

    #[test]
    fn missing_permissions_are_listed() {
        let manifest = AppManifest::embedded();
        let mut granted: BTreeMap<_, _> =
            manifest.permissions.iter().map(|(n, l)| (n.clone(), l.as_str().to_owned())).collect();
        assert!(manifest.missing_permissions(&granted).is_empty());
        granted.insert("issues".into(), "read".into());
        granted.remove("checks");
        assert_eq!(manifest.missing_permissions(&granted), ["checks: write", "issues: write"]);
    }
}
