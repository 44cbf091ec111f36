//! Checks the App on GitHub: its key, clock, permissions, events, webhook and installations.

use std::{sync::Arc, time::Duration};

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use secrecy::SecretString;

use super::{super::wrong_app_message, DoctorReport, DoctorScope};
use crate::{
    clock::SystemClock,
    config::Settings,
    github::{AppManifest, GitHub, GitHubApiError, InstallationInfo},
};

/// Client of the App, and the list of the App's installations. Exists only if GitHub accepts our key.
pub(super) struct InstalledApp {
    pub(super) github: GitHub,
    pub(super) installations: Vec<InstallationInfo>,
}

/// Maximum clock skew without a warning. GitHub rejects our tokens if the skew is only a little larger.
const SKEW: Duration = Duration::from_secs(30);

pub(super) async fn check(
    report: &mut DoctorReport,
    settings: &Settings,
    expected: DoctorScope,
) -> Option<InstalledApp> {
    let path = &settings.app.private_key_file;
    let pem = match std::fs::read_to_string(path) {
        Ok(pem) => pem,
        Err(error) => {
            report.bad(
                "private key",
                format!(
                    "{} cannot be read ({error}); download a new one from the App's settings page",
                    path.display()
                ),
            );
            return None;
        }
    };
    let key = SecretString::from(pem);
    let github = match GitHub::without_pacing(&settings.github, settings.app.id, key, Arc::new(SystemClock)) {
        Ok(github) => github,
        Err(error) => {
            report.bad("private key", error.to_string());
            return None;
        }
    };
    let app = github.app().await;
    clock(report, &github);
    let app = match app {
        Ok(app) => app,
        Err(fault) => {
            report.bad("App", wrong_app_message(settings, &fault));
            return None;
        }
    };
    report.good("App", format!("{} (id {}) at {}", app.slug, app.id, settings.github.web_url));
    let manifest = AppManifest::embedded();
    let missing = manifest.missing_permissions(&app.permissions);
    if missing.is_empty() {
        report.good("permissions", "all that the manifest asks for");
    } else {
        report.bad(
            "permissions",
            format!(
                "the App lacks {}; add them on its settings page and accept them on each installation",
                missing.join(", ")
            ),
        );
    }
    let missing = manifest.missing_events(&app.events);
    if missing.is_empty() {
        report.good("events", "all that the manifest asks for");
    } else {
        report.bad(
            "events",
            format!("the App does not receive {}; subscribe it on its settings page", missing.join(", ")),
        );
    }
    webhook(report, &github, expected).await;
    deliveries(report, &github, settings).await;
    let installations = installations(report, &github, settings).await?;
    Some(InstalledApp { github, installations })
}

fn clock(report: &mut DoctorReport, github: &GitHub) {
    let Some(ahead) = github.clock_ahead() else { return };
    let seconds = ahead.unsigned_abs() / 1000;
    if seconds <= SKEW.as_secs() {
        return report.good("clock", "within 30 s of GitHub's");
    }
    let direction = if ahead > 0 { "behind" } else { "ahead of" };
    report.bad(
        "clock",
        format!("this machine is {seconds} s {direction} GitHub; set it by NTP (`timedatectl set-ntp true`)"),
    );
}

async fn webhook(report: &mut DoctorReport, github: &GitHub, expected: DoctorScope) {
    let hook = match github.hook_config().await {
        Ok(hook) => hook,
        Err(GitHubApiError::NotFound { .. }) => {
            return report
                .bad("webhook", "the App has no webhook; set its address on the App's settings page");
        }
        Err(fault) => return report.bad("webhook", fault.to_string()),
    };
    let Some(url) = hook.url.filter(|url| !url.is_empty()) else {
        return report.bad("webhook", "the App has no webhook address; set it on the App's settings page");
    };
    if hook.content_type.as_deref().is_some_and(|kind| kind != "json") {
        report.bad(
            "webhook",
            "its content type is not JSON; choose application/json on the App's settings page",
        );
    }
    if expected == DoctorScope::NoServerYet {
        return report.note("webhook", format!("{url} not checked: no server runs yet"));
    }
    let health = match url::Url::parse(&url).and_then(|u| u.join("healthz")) {
        Ok(health) => health,
        Err(error) => return report.bad("webhook", format!("{url} is not an address: {error}")),
    };
    let client = match reqwest::Client::builder().timeout(Duration::from_secs(10)).build() {
        Ok(client) => client,
        Err(error) => return report.bad("webhook", error.to_string()),
    };
    // A relay's channel is an event stream; its /healthz says nothing about this server.
    if let Ok(answer) = client.get(&url).header(ACCEPT, "text/event-stream").send().await
        && let Some(Ok(kind)) = answer.headers().get(CONTENT_TYPE).map(|kind| kind.to_str())
        && kind.starts_with("text/event-stream")
    {
        return report.note("webhook", format!("{url} is a relay's channel; start serve with --relay {url}"));
    }
    match client.get(health.clone()).send().await {
        Ok(answer) if answer.status().is_success() => report.good("webhook", format!("{url} answers")),
        Ok(answer) => report.bad(
            "webhook",
            format!("{health} answers {}; point the webhook at this server's /webhook", answer.status()),
        ),
        Err(_) => report.bad(
            "webhook",
            format!("{health} does not answer; start `countersign serve`, or correct the address on the App's settings page"),
        ),
    }
}

/// Checks the result of the most recent delivery in GitHub's log. Only this log reveals a wrong secret, because to this
/// server a delivery with a wrong secret looks like a forged one.
async fn deliveries(report: &mut DoctorReport, github: &GitHub, settings: &Settings) {
    let log = match github.deliveries(None).await {
        Ok(log) => log,
        Err(fault) => {
            return report.note("deliveries", format!("cannot read GitHub's delivery log: {fault}"));
        }
    };
    let Some(last) = log.attempts.first() else { return };
    let (id, at) = (&last.id, last.at);
    match last.status {
        200..=299 => report.good("deliveries", format!("GitHub's last delivery arrived ({at})")),
        401 => report.bad(
            "deliveries",
            format!(
                "GitHub's last delivery ({id}, {at}) was refused with 401: the webhook secret on the App's settings page is not \
                 COUNTERSIGN_WEBHOOK_SECRET in {}; make them the same, run `countersign reload`, and redeliver it from \
                 the page's Advanced tab",
                settings.file.with_file_name(".env").display()
            ),
        ),
        0 => report.note("deliveries", format!("GitHub's last delivery ({id}, {at}) got no connection")),
        status => report.note("deliveries", format!("GitHub's last delivery ({id}, {at}) was answered with {status}")),
    }
}

async fn installations(
    report: &mut DoctorReport,
    github: &GitHub,
    settings: &Settings,
) -> Option<Vec<InstallationInfo>> {
    let found = match github.installations().await {
        Ok(found) => found,
        Err(fault) => {
            report.bad("installations", fault.to_string());
            return None;
        }
    };
    let allow = &settings.allowed_installations;
    if allow.is_empty() {
        let known: Vec<_> = found.iter().map(|i| format!("{} ({})", i.id, i.account)).collect();
        report.bad(
            "installations",
            if known.is_empty() {
                "the App is not installed anywhere; `countersign init` prints the link and waits for it"
                    .to_owned()
            } else {
                format!(
                    "[installations] allow is empty, so every delivery is ignored; add one of {}",
                    known.join(", ")
                )
            },
        );
    }
    for id in allow {
        match found.iter().find(|i| i.id == *id) {
            None => report.bad("installations", format!("{id} is allowed but the App is not installed there; remove it from [installations] allow or install the App again")),
            Some(i) if i.suspended => report.bad("installations", format!("{id} ({}) is suspended; its owner can lift that", i.account)),
            Some(i) => report.good("installations", format!("{id} ({})", i.account)),
        }
    }
    for other in found.iter().filter(|i| !allow.contains(&i.id)) {
        report.note(
            "installations",
            format!("{} ({}) is not allowed and will be ignored", other.id, other.account),
        );
    }
    Some(found)
}
