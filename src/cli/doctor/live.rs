//! `doctor --live` and `--scratch`: check our assumptions about the real GitHub. Our tests only use an imitation of
//! GitHub.

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
                report.note("live", format!("{installation}: no repository to check"));
            }
        }
    }
}

/// Checks write access in the repository `name`. Writes nothing and reports a failure if this server has ever had a run
/// in the repository.
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
        let why = "belongs to no installation in [installations] allow; install the App there first";
        return report.bad("scratch", format!("{name} {why}"));
    };
    // The first start creates the database.
    let used = app::find_source(settings)
        .and_then(|place| place.map_or(Ok(Vec::new()), |place| store::repositories(&place)));
    match used {
        Ok(used) if used.iter().all(|(id, _)| *id != repo.id) => {}
        Ok(_) => {
            let why = "has runs of this server; name a repository used only for trials";
            return report.bad("scratch", format!("nothing was written: {name} {why}"));
        }
        Err(error) => return report.bad("scratch", format!("nothing was written: {error}")),
    }
    let scratch = match super::super::setup::random_hex() {
        Ok(random) => format!("scratch-{}", &random[..8]),
        Err(error) => return report.bad("scratch", error.to_string()),
    };
    report.note("scratch", format!("everything created in {name} has {scratch} in its name"));
    let (created, removed) =
        github::check_write_assumptions(&known.github, installation, &repo, &scratch).await;
    report_assumptions(report, "scratch", created);
    let failed = |row: &AssumptionCheck| !matches!(row.seen, AssumptionOutcome::Confirmed(_));
    let left: Vec<_> = removed.iter().filter(|row| failed(row)).map(|l| l.call.clone()).collect();
    report_assumptions(report, "scratch", removed);
    match left.is_empty() {
        true => report.note("scratch", "left behind: an issue and a pull request, both closed, and a check"),
        false => report.bad(
            "scratch",
            format!(
                "left behind in {name}: look for {scratch} there and remove it by hand; GitHub refused {}",
                left.join(", ")
            ),
        ),
    }
}

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
                report.note(what, format!("{call}: not observed, {nothing} ({why})"))
            }
            AssumptionOutcome::Differs(differs) => report
                .bad(what, format!("{call}: {differs} ({why}); report it with the version of this program")),
        }
    }
}
