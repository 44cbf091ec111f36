//! `doctor --live`: what the tests only imitate, looked at on the GitHub of the settings.

use super::{Report, github::Known};
use crate::{
    config::Settings,
    github::{Looked, Seen, look},
};

pub(super) async fn check(report: &mut Report, known: &Known, settings: &Settings) {
    let served = known.installations.iter().filter(|i| settings.allowed_installations.contains(&i.id));
    for installation in served {
        let repositories = match known.github.repositories(installation.id).await {
            Ok(repositories) => repositories,
            Err(fault) => {
                report.bad("live", fault.to_string());
                continue;
            }
        };
        let Some(repo) = repositories.first() else {
            report.note("live", format!("{}: no repository is there to look at", installation.account));
            continue;
        };
        for Looked { call, why, seen } in look(&known.github, installation.id, repo).await {
            match seen {
                Seen::AsAssumed(seen) => report.good("live", format!("{call}: {seen} ({why})")),
                Seen::Nothing(nothing) => report.note("live", format!("{call}: not seen, {nothing} ({why})")),
                Seen::Differs(differs) => report.bad(
                    "live",
                    format!("{call}: {differs} ({why}); report it with the version of this program"),
                ),
            }
        }
    }
}
