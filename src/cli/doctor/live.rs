//! `doctor --live` and `--scratch`: what the tests only imitate, looked at on the GitHub of the settings.

use super::{DoctorReport, github::InstalledApp};
use crate::{
    app,
    config::Settings,
    github::{self, AssumptionCheck, AssumptionOutcome, RepoRef, check_read_assumptions},
    store,
    types::{InstallationId, RepoName},
};

pub(super) async fn check(report: &mut DoctorReport, known: &InstalledApp, settings: &Settings) {
    for (installation, repositories) in list_served_repositories(report, known, settings).await {
        match repositories.first() {
            Some(repo) => report_assumptions(
                report,
                "live",
                check_read_assumptions(&known.github, installation, repo).await,
            ),
            None => {
                report.note("live", format!("{installation}: no repository is there to look at"));
            }
        }
    }
}

/// Writes to the repository of this name, which runs must not have been in.
pub(super) async fn check_writes(
    report: &mut DoctorReport,
    known: &InstalledApp,
    settings: &Settings,
    name: &RepoName,
) {
    let served = list_served_repositories(report, known, settings).await;
    let named = |(at, repositories): &(InstallationId, Vec<RepoRef>)| {
        Some((*at, repositories.iter().find(|repo| repo.name == *name)?.clone()))
    };
    let Some((installation, repo)) = served.iter().find_map(named) else {
        let why =
            "is no repository of an installation that [installations] allows; install the App there first";
        return report.bad("scratch", format!("{name} {why}"));
    };
    // Before the first start there is nothing to read.
    let used = app::find_source(settings)
        .and_then(|place| place.map_or(Ok(Vec::new()), |place| store::repositories(&place)));
    match used {
        Ok(used) if used.iter().all(|(id, _)| *id != repo.id) => {}
        Ok(_) => {
            let why = "has runs of this server's; name one that is there for trials alone";
            return report.bad("scratch", format!("nothing was written: {name} {why}"));
        }
        Err(error) => return report.bad("scratch", format!("nothing was written: {error}")),
    }
    let scratch = match super::super::setup::random_hex() {
        Ok(random) => format!("scratch-{}", &random[..8]),
        Err(error) => return report.bad("scratch", error.to_string()),
    };
    report.note("scratch", format!("what is made in {name} now has {scratch} in its name"));
    let (made, taken_away) =
        github::check_write_assumptions(&known.github, installation, &repo, &scratch).await;
    report_assumptions(report, "scratch", made);
    let failed = |looked: &AssumptionCheck| !matches!(looked.seen, AssumptionOutcome::Confirmed(_));
    let left: Vec<_> = taken_away.iter().filter(|looked| failed(looked)).map(|l| l.call.clone()).collect();
    report_assumptions(report, "scratch", taken_away);
    match left.is_empty() {
        true => report.note("scratch", "what stays: an issue and a pull request, both closed, and a check"),
        false => report.bad(
            "scratch",
            format!(
                "left behind in {name}: look for {scratch} there and undo it by hand; refused was {}",
                left.join(", ")
            ),
        ),
    }
}

/// The repositories of every installation that is allowed.
async fn list_served_repositories(
    report: &mut DoctorReport,
    known: &InstalledApp,
    settings: &Settings,
) -> Vec<(InstallationId, Vec<RepoRef>)> {
    let mut served = Vec::new();
    for at in known.installations.iter().filter(|at| settings.allowed_installations.contains(&at.id)) {
        match known.github.repositories(at.id).await {
            Ok(repositories) => served.push((at.id, repositories)),
            Err(fault) => report.bad("live", fault.to_string()),
        }
    }
    served
}

fn report_assumptions(report: &mut DoctorReport, what: &'static str, rows: Vec<AssumptionCheck>) {
    for AssumptionCheck { call, why, seen } in rows {
        match seen {
            AssumptionOutcome::Confirmed(seen) => report.good(what, format!("{call}: {seen} ({why})")),
            AssumptionOutcome::NotObserved(nothing) => {
                report.note(what, format!("{call}: not seen, {nothing} ({why})"))
            }
            AssumptionOutcome::Differs(differs) => report
                .bad(what, format!("{call}: {differs} ({why}); report it with the version of this program")),
        }
    }
}
