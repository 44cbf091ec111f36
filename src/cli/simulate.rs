//! `countersign simulate`: previews the effect of a label or a comment.

use std::{process::ExitCode, sync::Arc};

use anyhow::{anyhow, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{ConfigFlag, print_line};
use crate::{
    app::{self, Application},
    clock::{SharedClock, SystemClock},
    codebase::{self, Index},
    commands::ROUTE,
    config::Settings,
    engine::RunView,
    git::Mirrors,
    github::{GitHubRepo, Issue, RepoInfo, RepoRef},
    intake::{IssueRef, SimulatedAction},
    limits, proc,
    providers::{CallRole, ModelCall},
    rounds::Policy,
    store::{self, SharedCap},
    types::{InstallationId, IssueNo, MicroUsd, RepoName},
    workflows,
};

/// Show what a label or a comment on an issue would do, without doing it.
///
/// The command only reads from GitHub, calls no model, and does not change the data directory, because decisions are
/// made on a temporary copy of the databases. Works while the server runs. Prints whether the installation is allowed,
/// what the person may do there, which run would start or which gate would take the answer, and what would be posted on
/// GitHub. If a run would start, also prints the run's models, the repository context that they would see, the
/// estimated cost of the first draft, and the remaining budget.
#[derive(clap::Args)]
pub(super) struct SimulateCommand {
    #[command(flatten)]
    asked: SimulationRequest,
    #[command(flatten)]
    config: ConfigFlag,
}

/// A simulated event: the repository, the issue, the action and the person.
#[derive(Debug, Clone, clap::Args)]
pub struct SimulationRequest {
    /// Repository in which the event is simulated.
    #[arg(long, value_name = "OWNER/REPO")]
    pub repo: RepoName,
    /// Number of the issue, or of the issue's pull request.
    #[arg(long, value_name = "N")]
    pub issue: u64,
    /// Event: `label:NAME` or `comment:TEXT`.
    #[arg(long, value_name = "EVENT", value_parser = event, default_value = "label:countersign:lld")]
    pub event: SimulatedAction,
    /// Login of the person who causes the event; default: the issue's author.
    #[arg(long = "as", value_name = "LOGIN")]
    pub by: Option<String>,
}

fn event(text: &str) -> Result<SimulatedAction, String> {
    match text.split_once(':') {
        Some(("label", name)) if !name.is_empty() => Ok(SimulatedAction::Label(name.to_owned())),
        Some(("comment", text)) if !text.is_empty() => Ok(SimulatedAction::Comment(text.to_owned())),
        _ => Err("write label:NAME or comment:TEXT".to_owned()),
    }
}

impl SimulateCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let [mut interrupted, mut terminated] =
            [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        tokio::select! {
            lines = simulate_event(settings, Arc::new(SystemClock), &self.asked) => lines?.iter().for_each(print_line),
            Some(()) = async { interrupted.as_mut().ok()?.recv().await } => bail!("interrupted; the copy was removed"),
            Some(()) = async { terminated.as_mut().ok()?.recv().await } => bail!("interrupted; the copy was removed"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Simulates the event on a copy of the data. Returns the lines of the report.
///
/// # Errors
/// Returns an error if the data cannot be read, if GitHub does not answer, or if the repository, issue or person does
/// not exist.
pub async fn simulate_event(
    mut settings: Settings,
    clock: SharedClock,
    asked: &SimulationRequest,
) -> anyhow::Result<Vec<String>> {
    let Some(data) = app::find_source(&settings)? else {
        bail!("no server has started with these settings yet")
    };
    let known = store::repository_named(&data, &asked.repo)?;
    // Removed when this function returns, on errors too.
    let copy = proc::private_dir("countersign-", &std::env::temp_dir())?;
    store::copy_databases(&data, known, copy.path())?;
    drop(data);
    (settings.data_dir, settings.postgres) = (copy.path().to_owned(), None);
    let app = Application::build(settings, clock).await?;
    app.github.set_read_only();
    let (installation, here) = find_repository(&app, &asked.repo).await?;
    let at = IssueRef { repo: &here, installation, issue: IssueNo(asked.issue) };
    let repo = app.github.repo(installation, here.id, here.name.clone());
    let issue = repo.issue(at.issue).await?;
    let by = match &asked.by {
        None => issue.author.clone(),
        Some(login) => match repo.find_user(login).await? {
            Some(account) => account,
            None => bail!("GitHub has no user {login}; correct --as"),
        },
    };
    let state = if issue.state_open { "open" } else { "closed, so a run would end at once" };
    let mut lines = vec![format!("{}#{}, {state}: {}", here.name, issue.number, issue.title)];
    let outcome = app.intake.simulate(&at, &by, &asked.event).await?;
    lines.extend(outcome.sentences);
    if let Some(run) = outcome.started_run {
        lines.extend(describe_started_run(&app, &run, &repo, &issue).await?);
    }
    Ok(lines)
}

/// Looks up a repository by its current name on GitHub. Returns the repository's installation and its reference.
async fn find_repository(app: &Application, name: &RepoName) -> anyhow::Result<(InstallationId, RepoRef)> {
    for installation in app.github.installations().await?.into_iter().filter(|found| !found.suspended) {
        let mut repositories = app.github.repositories(installation.id).await?.into_iter();
        if let Some(found) = repositories.find(|found| found.name == *name) {
            return Ok((installation.id, found));
        }
    }
    Err(anyhow!("the App is not installed on {name}, or is suspended there; install it, or correct --repo"))
}

/// Describes the run that the event would start: its models, context, estimated cost and budgets.
async fn describe_started_run(
    app: &Application,
    run: &RunView,
    repo: &GitHubRepo,
    issue: &Issue,
) -> anyhow::Result<Vec<String>> {
    let info = repo.info().await?;
    let policy = Policy::for_workflow(&app.settings, &run.workflow, repo, &info).await?;
    let mut lines = Vec::new();
    if let Some(complaint) = &policy.complaint {
        lines.push(format!("the repository's own settings would not be used: {complaint}"));
    }
    if run.workflow == ROUTE {
        let model = policy.routing.as_ref().map_or("no model", |routing| &routing.model);
        lines.push(format!("{model} would choose the workflow"));
        return Ok(lines);
    }
    let drafter = app.settings.models.drafter_of(&run.workflow);
    lines.push(format!(
        "drafter {drafter}, reviewer {}, at most {} before a person decides",
        policy.reviewer,
        crate::types::count(policy.max_rounds as usize, "draft", "drafts")
    ));
    let context = run_context(app, run, &info, issue).await?;
    lines.push(format!(
        "the drafter would see about {} tokens of the repository: {}",
        context.report.tokens,
        crate::types::count(context.report.included.len(), "file", "files")
    ));
    let prompt = format!("{}{}{}", issue.body, context.shown.paths, context.shown.files.concat());
    let (line, estimated) = estimate_first_call(app, drafter, (prompt, info.private), &policy)?;
    lines.extend([line, describe_cap_room(app, run, &policy, estimated).await?]);
    Ok(lines)
}

async fn run_context(
    app: &Application,
    run: &RunView,
    info: &RepoInfo,
    issue: &Issue,
) -> anyhow::Result<codebase::CodebaseContext> {
    // Fetched into the copy; the server's own mirror stays untouched.
    let mirrors = Mirrors::new(app.store.repos_dir(), app.settings.github.git_url.clone());
    let (token, _) = app.github.git_token(run.trigger.installation, info.id).await?;
    let cancel = CancellationToken::new();
    let branch = std::slice::from_ref(&info.default_branch);
    mirrors.fetch(info.id, &info.name, branch, &token, &cancel).await?;
    let snapshot = mirrors.snapshot(info.id, &info.default_branch).await?;
    let index = Arc::new(Index::read_uncached(&snapshot, &cancel).await?);
    let text = format!("{}\n{}", issue.title, issue.body);
    let request = codebase::ContextRequest { text, files: Vec::new(), budget: limits::CONTEXT_TOKENS };
    Ok(codebase::gather_context(index, &snapshot, request).await?)
}

/// Estimates the cost of the first draft. The real cost can be higher, because the estimate excludes our own prompt
/// text and because services count tokens differently.
fn estimate_first_call(
    app: &Application,
    drafter: &str,
    (prompt, private): (String, bool),
    policy: &Policy,
) -> anyhow::Result<(String, MicroUsd)> {
    let (provider, model) = app.providers.resolve(drafter)?;
    let call = ModelCall {
        role: CallRole::Drafter,
        system: String::new(),
        prompt,
        schema: None,
        tools: None,
        deadline: app.providers.deadline(&model),
        model: model.model,
        max_output_tokens: limits::DOCUMENT_TOKENS,
        counted_prompt_tokens: None,
        budget: None,
        private,
        excluded_families: Vec::new(),
        successors: Vec::new(),
        workers: Default::default(),
        facts: Default::default(),
    };
    let estimate = provider.estimate(&call);
    let tokens = (call.prompt.len() as u64).div_ceil(limits::USUAL_BYTES_A_TOKEN);
    let most = estimate.most;
    let mut line = format!(
        "issue and repository are about {tokens} tokens of the first prompt; with the longest response it costs \
         an estimated {most}"
    );
    if estimate.may_be_free {
        line += ", or nothing if a provider that does not bill answers";
    }
    if estimate.unpriced {
        line += "; the price at one of its providers is unknown";
    }
    let caps = [("a call", policy.caps.call), ("a stage", policy.caps.stage), ("a run", policy.caps.run)];
    for (what, cap) in caps {
        line += &match cap {
            Some(cap) if most > cap => format!("; {what} may cost {cap}, so the run would pause"),
            Some(cap) => format!("; {what} may cost {cap}"),
            None => format!("; {what} has no cap"),
        };
    }
    Ok((line, most))
}

/// Describes the amounts spent so far and the budgets that all runs share. Also says so if the estimated cost exceeds
/// the remaining amount.
async fn describe_cap_room(
    app: &Application,
    run: &RunView,
    policy: &Policy,
    estimated: MicroUsd,
) -> anyhow::Result<String> {
    let spent = app.store.shared_spend(run.id.repo, run.trigger.installation).await?;
    let line = spent.map(|(cap, spent)| {
        let (what, cap) = match cap {
            SharedCap::RepositoryDay => ("the repository today", policy.caps.repository_day),
            SharedCap::InstallationMonth => ("its installation this month", policy.caps.installation_month),
        };
        match cap {
            Some(cap) if spent.plus(estimated) > cap => {
                format!("{what} has spent {spent} of {cap}; the rest is too little, so the run would pause")
            }
            Some(cap) => format!("{what} has spent {spent} of {cap}"),
            None => format!("{what} has spent {spent} and has no cap"),
        }
    });
    Ok(line.join("; "))
}
