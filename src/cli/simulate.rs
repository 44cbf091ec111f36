//! `countersign simulate`: what a label or a comment would do.

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

/// Show what a label or a comment on an issue would do, and do nothing.
///
/// GitHub is only read, no model is asked, and the data directory stays as it is: the decisions are made on a copy of its
/// databases, which is removed at the end. Also while the server works. Told is whether the installation is allowed, what
/// the person may do there, which run would begin or which gate would hear it, what GitHub would be told, and of a run that
/// would begin: the models, what they would be shown of the repository, about what the first draft would cost, and what
/// room the caps leave.
#[derive(clap::Args)]
pub(super) struct SimulateCommand {
    #[command(flatten)]
    asked: SimulationRequest,
    #[command(flatten)]
    config: ConfigFlag,
}

/// Who would do what, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct SimulationRequest {
    /// The repository.
    #[arg(long, value_name = "OWNER/REPO")]
    pub repo: RepoName,
    /// The number of the issue, or of its pull request.
    #[arg(long, value_name = "N")]
    pub issue: u64,
    /// What happens: `label:NAME`, or `comment:TEXT`.
    #[arg(long, value_name = "EVENT", value_parser = event, default_value = "label:countersign:lld")]
    pub event: SimulatedAction,
    /// Who does it; the issue's author where nobody is named.
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
        let [mut ended, mut asked_to] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        tokio::select! {
            lines = simulate_event(settings, Arc::new(SystemClock), &self.asked) => lines?.iter().for_each(print_line),
            Some(()) = async { ended.as_mut().ok()?.recv().await } => bail!("ended on the way; the copy is gone"),
            Some(()) = async { asked_to.as_mut().ok()?.recv().await } => bail!("ended on the way; the copy is gone"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What there is to tell, in lines.
///
/// # Errors
/// The data cannot be read, GitHub cannot be asked, or there is no such repository, issue or person.
pub async fn simulate_event(
    mut settings: Settings,
    clock: SharedClock,
    asked: &SimulationRequest,
) -> anyhow::Result<Vec<String>> {
    let Some(data) = app::find_source(&settings)? else { bail!("no server ever started on these settings") };
    let known = store::repository_named(&data, &asked.repo)?;
    // Gone with this call, however it ends.
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
            None => bail!("GitHub knows nobody called {login}; correct --as"),
        },
    };
    let state = if issue.state_open { "open" } else { "closed, so a run would end at once" };
    let mut lines = vec![format!("{}#{}, {state}: {}", here.name, issue.number, issue.title)];
    let imagined = app.intake.simulate(&at, &by, &asked.event).await?;
    lines.extend(imagined.sentences);
    if let Some(run) = imagined.started_run {
        lines.extend(describe_started_run(&app, &run, &repo, &issue).await?);
    }
    Ok(lines)
}

/// Where the App has this repository, as GitHub says now.
async fn find_repository(app: &Application, name: &RepoName) -> anyhow::Result<(InstallationId, RepoRef)> {
    for installation in app.github.installations().await?.into_iter().filter(|found| !found.suspended) {
        let mut repositories = app.github.repositories(installation.id).await?.into_iter();
        if let Some(found) = repositories.find(|found| found.name == *name) {
            return Ok((installation.id, found));
        }
    }
    Err(anyhow!("the App is not installed on {name}, or is suspended there; install it, or correct --repo"))
}

/// What a run that begins would be made of.
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
        lines.push(format!("{model} would be asked which workflow is meant"));
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
        "of the repository the drafter is shown about {} tokens: {}",
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
    // Into the copy: the server's own mirror is the server's.
    let mirrors = Mirrors::new(app.store.repos_dir(), app.settings.github.git_url.clone());
    let (token, _) = app.github.git_token(run.trigger.installation, info.id).await?;
    let cancel = CancellationToken::new();
    let branch = std::slice::from_ref(&info.default_branch);
    mirrors.fetch(info.id, &info.name, branch, &token, &cancel).await?;
    let snapshot = mirrors.snapshot(info.id, &info.default_branch).await?;
    let index = Arc::new(Index::read_uncached(&snapshot, &cancel).await?);
    let text = format!("{}\n{}", issue.title, issue.body);
    let asked = codebase::ContextRequest { text, files: Vec::new(), budget: limits::CONTEXT_TOKENS };
    Ok(codebase::gather_context(index, &snapshot, asked).await?)
}

/// What the first draft would cost. No bound: what we say to the model around this is not in it, and services count tokens
/// each in their own way.
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
        "issue and repository alone are about {tokens} tokens of the first prompt; with the longest answer that is an \
         estimated {most}"
    );
    if estimate.may_be_free {
        line += ", and nothing where its way that is not billed answers";
    }
    if estimate.unpriced {
        line += "; a way to it has no price that we know";
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

/// What the shared caps leave, with what all other runs spent or hold.
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
                format!(
                    "{what} has spent {spent} of {cap}, which leaves no room for it, so the run would pause"
                )
            }
            Some(cap) => format!("{what} has spent {spent} of {cap}"),
            None => format!("{what} has spent {spent} and has no cap"),
        }
    });
    Ok(line.join("; "))
}
