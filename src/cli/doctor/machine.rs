//! Checks this machine: git, the data directory, and the programs and keys of the models.

use std::sync::Arc;

use super::DoctorReport;
use crate::{
    agents, app,
    clock::{Clock, SharedClock, SystemClock},
    config::{GeminiTier, PostgresSettings, ResolvedModelName, RouteMode, Routing, Settings},
    git, proc,
    providers::{GeminiKeyState, ModelId, ModelProviders, RouteState, gemini_keys},
    runners,
    sandbox::{Level, Sandbox},
    store::{self, KeyCooldownReason},
    web,
};

pub(super) async fn check(report: &mut DoctorReport, settings: &Settings) -> Option<Sandbox> {
    match git::check_git().await {
        Ok(version) => report.good("git", version.to_string()),
        Err(error) => report.bad("git", error.to_string()),
    }
    for lacks in proc::missing_protections() {
        report.note("confinement", format!("this kernel cannot keep models' programs from {lacks}"));
    }
    let sandbox = sandbox(report, settings).await;
    check_data_directory(report, settings);
    check_database(report, settings);
    settings.exposed_secrets().into_iter().for_each(|exposed| report.bad("secrets", exposed));
    check_models(report, settings).await;
    check_keys(report, settings);
    sandbox
}

/// Reports the sandbox level at which a repository's code runs, and how to get a stricter level. A missing sandbox is
/// reported only as a note, because runs work without a sandbox.
async fn sandbox(report: &mut DoctorReport, settings: &Settings) -> Option<Sandbox> {
    let own = std::env::current_exe().map_err(|error| report.note("sandbox", error.to_string())).ok()?;
    let found = Sandbox::detect(&own, settings.sandbox.level).await;
    match &found {
        Ok(sandbox) if sandbox.level() == Level::Full => report.good("sandbox", "full"),
        Ok(sandbox) => {
            let level = sandbox.level().as_str();
            report.note("sandbox", format!("{level} only: {}", sandbox.missing_features().join("; ")));
        }
        Err(error) => {
            let advice = "`level = \"none\"` under [sandbox] runs code without one";
            report.note("sandbox", format!("{error}; {advice}"));
        }
    }
    found.ok()
}

/// Reports the toolchains that run repositories' tests in the sandbox, and the hosts from which dependencies are
/// fetched.
pub(super) async fn toolchains(report: &mut DoctorReport, settings: &Settings, sandbox: Option<&Sandbox>) {
    for (runner, found) in runners::describe_toolchains(sandbox).await {
        match found {
            Ok(version) => report.good(runner, version),
            Err(lacks) => report.note(runner, lacks),
        }
    }
    let hosts = &settings.sandbox.hosts;
    match hosts.is_empty() {
        true => report.note(
            "dependencies",
            "not fetched: no `hosts` under [sandbox]; `countersign test` lists the missing ones",
        ),
        false => report.good("dependencies", format!("may be fetched from {hosts}")),
    }
}

/// Checks that the data directory is writable. Leaves no file in the directory, because `doctor` may run as a different
/// user than the server.
fn check_data_directory(report: &mut DoctorReport, settings: &Settings) {
    let directory = &settings.data_dir;
    let shown = directory.display();
    let there = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
    if let Err(error) = tempfile::Builder::new().prefix(".doctor-").tempfile_in(there) {
        let advice = "give it to the user that runs the server";
        return report.bad("data", format!("{} cannot be written ({error}); {advice}", there.display()));
    }
    match store::in_use(directory) {
        Ok(true) => report.good("data", format!("{shown}, in use by a server")),
        Ok(false) if there == directory => report.good("data", shown.to_string()),
        Ok(false) => report.good("data", format!("{shown} will be created at the first start")),
        Err(error) => report.bad("data", error.to_string()),
    }
}

/// Checks the shared Postgres database; only reads from the database.
fn check_database(report: &mut DoctorReport, settings: &Settings) {
    let Some(PostgresSettings { address, lease, .. }) = settings.postgres.clone() else { return };
    let clock: SharedClock = Arc::new(SystemClock);
    let found = match store::check_postgres(&store::PostgresServer { address, lease }, &clock) {
        Ok(found) => found,
        Err(error) => return report.bad("database", error.to_string()),
    };
    let version = format!("Postgres {}", found.version);
    if !found.problems.is_empty() {
        return report.bad("database", format!("{version}: {}", found.problems.join("; ")));
    }
    let tables = match found.schema {
        Some(schema) => format!("tables of schema {schema}"),
        None => "tables will be created at the first start".to_owned(),
    };
    report.good("database", format!("{version}, {tables}, {} connections left", found.connections));
    found.notes.into_iter().for_each(|note| report.note("database", note));
}

async fn check_models(report: &mut DoctorReport, settings: &Settings) {
    let (drafter, reviewer) = (&settings.models.drafter, &settings.models.reviewer);
    let providers = match ModelProviders::new(&settings.models, Arc::new(SystemClock)) {
        Ok(providers) => providers,
        Err(error) => return report.bad("models", error.to_string()),
    };
    if let Err(error) = providers.check_models(&settings.models) {
        return report.bad("models", error.to_string());
    }
    for (role, spec) in settings.models.drafters().chain([("reviewer", reviewer)]) {
        let what = agents::find_role(role).map_or("drafter", |role| role.name);
        match providers.resolve(spec) {
            Ok((provider, id)) => {
                check_routes(report, what, &format!("{spec} ({})", id.model), &provider.inspect().await);
                check_pool_members(report, what, &providers, settings, spec);
            }
            Err(error) => report.bad(what, error.to_string()),
        }
    }
    let lists = providers.check_lists(settings, SystemClock.now()).await;
    lists.warnings.iter().for_each(|warning| report.warn("models", warning));
    lists.unchecked.iter().for_each(|why| report.note("models", format!("not checked: {why}")));
    if lists.warnings.is_empty() && !lists.checked.is_empty() {
        report.good("models", format!("listed by {}", lists.checked.join(" and ")));
    }
    // Only a note: without a router, people get commands to paste.
    if let Some(Routing { model, .. }) =
        settings.routing().filter(|routing| routing.mode != RouteMode::Manual)
    {
        match providers.missing_requirement(model) {
            None => report.good("router", model.clone()),
            Some(why) => {
                // A missing requirement of the drafter or reviewer is already printed above.
                let reported = [drafter, reviewer]
                    .iter()
                    .any(|spec| providers.missing_requirement(spec).as_ref() == Some(&why));
                let why = if reported { String::new() } else { format!(": {why}") };
                report.note(
                    "router",
                    format!("requests in free words are not routed: {model} cannot be called{why}"),
                );
            }
        }
    }
    // The first start creates the database.
    let alerts = app::find_source(settings)
        .map_err(anyhow::Error::from)
        .and_then(|place| place.map_or(Ok(Vec::new()), |place| super::super::routes::cost_alerts(&place)));
    match alerts {
        Ok(alerts) => alerts.into_iter().for_each(|alert| report.note("router", alert)),
        Err(error) => report.bad("router", format!("cannot read its costs: {error:#}")),
    }
    for role in web::role_states(settings, &providers) {
        let line = role.text();
        if role.state == "ready" { report.good("role", line) } else { report.note("role", line) }
    }
}

/// Reports which members of a pool work. The pool works even if some members do not, so the operator might not notice
/// that members are skipped.
fn check_pool_members(
    report: &mut DoctorReport,
    what: &'static str,
    providers: &ModelProviders,
    settings: &Settings,
    spec: &str,
) {
    let Ok(ResolvedModelName::Pool(name, pool)) = settings.models.names.resolve(spec) else { return };
    let excluded = if what != "reviewer" {
        providers.families_to_exclude(&settings.models.reviewer, &[])
    } else {
        Vec::new()
    };
    for member in pool.members() {
        match providers.resolve_member(member).map(|(provider, id)| (provider.missing_requirement(), id)) {
            Ok((_, ModelId { family: Some(family), .. })) if excluded.contains(&family) => {
                let why = format!("the {family} family is reserved for review");
                report.note(what, format!("pool:{name} skips {member}: {why}"));
            }
            Ok((None, id)) => report.note(what, format!("pool:{name} has {id}")),
            Ok((Some(why), _)) => report.note(what, format!("pool:{name} skips {member}: {why}")),
            Err(error) => report.note(what, format!("pool:{name} skips {member}: {error}")),
        }
    }
}

/// Reports the state of every route to one model. If at least one route works, broken routes are reported only as
/// notes.
fn check_routes(report: &mut DoctorReport, what: &'static str, model: &str, routes: &[RouteState]) {
    let leads = routes.iter().any(|route| route.state.is_ok());
    for RouteState { provider, state } in routes {
        let through = if routes.len() > 1 { format!(" through {provider}") } else { String::new() };
        match state {
            Ok(state) if state.is_empty() => report.good(what, format!("{model}{through}")),
            Ok(state) => report.good(what, format!("{model}{through}: {state}")),
            Err(why) if leads => report.note(what, format!("{model}: not{through}, {why}")),
            Err(why) => report.bad(what, format!("{model}{through}: {why}")),
        }
    }
}

/// Reports the tier of each Gemini key, and the cooldowns that a server has recorded for the keys.
fn check_keys(report: &mut DoctorReport, settings: &Settings) {
    // The first start creates the database. If it does not answer, `check_database` reports it.
    let place = app::find_source(settings).ok().flatten();
    let learned = match place.map(|place| store::resting_keys(&place)).transpose() {
        Ok(learned) => learned.unwrap_or_default(),
        Err(error) => return report.bad("gemini key", error.to_string()),
    };
    for GeminiKeyState { key, rests } in gemini_keys(&settings.models.gemini, &learned, SystemClock.now()) {
        let tier = match key.tier {
            Some(GeminiTier::Paid) => "paid tier",
            Some(GeminiTier::Free) => "free tier",
            None => "tier not set",
        };
        let about = format!("{} of project {}, {tier}", key.name, key.project);
        if rests.iter().any(|(_, rest)| *rest == KeyCooldownReason::Refused) {
            let advice = "Google refused it; correct it in .env and run `countersign reload`";
            report.bad("gemini key", format!("{about}: {advice}"));
            continue;
        }
        for (model, rest) in &rests {
            let why = match rest {
                KeyCooldownReason::Rate { .. } => "rate limited",
                KeyCooldownReason::Denied { .. } => "refused",
                KeyCooldownReason::Quota { .. } | KeyCooldownReason::Refused => "used up",
            };
            let until = rest.until().map(|until| format!(", resting until {until}")).unwrap_or_default();
            report.note("gemini key", format!("{about}: {why} for {model}{until}"));
        }
        if !settings.models.gemini.may_read_private(key) {
            let advice = "not used for private repositories; if its project pays, set tier = \"paid\" in a \
                        [[providers.gemini.key]]";
            report.note("gemini key", format!("{about}: {advice}"));
        } else if rests.is_empty() {
            report.good("gemini key", about);
        }
    }
}
