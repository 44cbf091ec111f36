//! Services that steps use (GitHub, mirrors, models), and facts about a run that are read by every stage.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OnceCell};

use super::{CommitCache, StepContext, github_error, is_default};
use crate::{
    codebase::{Index, TreeIndex},
    config::{
        BeginsWith, BudgetSettings, Filing, GateRules, PoolAssignment, Publish, REPOSITORY_FILE,
        ReloadableValue, RepoSettings, RouteMode, Routing, Search, Settings, ToolSettings, WorkflowSettings,
    },
    documents::hidden_text::{self, HiddenText},
    engine::{LedgerRecord, StepError, TextKind, TextRow},
    git::{EntryMode, GitError, Mirrors, Snapshot},
    github::{ApiCallCounter, GitHub, GitHubRepo, RepoInfo},
    providers::ModelProviders,
    runners::DependencyFetcher,
    sandbox::{self, Sandbox},
    store::Store,
    types::{Actor, Hash, IssueNo, Oid, RepoId, RunId, Timestamp},
};

/// Maximum time for which failing Git fetches are retried before the run ends.
const FETCH_RETRY_LIMIT: Duration = Duration::from_secs(600);

/// Delay before a failed Git fetch is retried.
const GIT_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Services that are available to a step.
pub struct StepServices {
    pub github: GitHub,
    pub mirrors: Mirrors,
    pub providers: Arc<ModelProviders>,
    pub store: Arc<Store>,
    pub settings: Arc<Settings>,
    /// Reviewer named in `settings`. A reload of the settings replaces it.
    pub reviewer: ReloadableValue<String>,
    pub commits: CommitCache<IndexedCommit>,
    /// Time that each run has lost to failing Git fetches since its last successful fetch. Kept in memory only, so a
    /// restart resets it.
    pub fetch_failure_time: Mutex<HashMap<RunId, Duration>>,
    /// Time at which each repository was last found to have the bot enabled. Kept in memory only.
    pub switch_checked_at: Mutex<HashMap<RepoId, Timestamp>>,
    /// Sandbox in which tests run, detected on first use.
    pub sandbox: OnceCell<Sandbox>,
    /// Metric of the time that sandboxed commands take.
    pub sandbox_time: sandbox::SandboxSeconds,
}

/// A run's base commit and its index.
#[derive(Debug)]
pub struct IndexedCommit {
    snapshot: Snapshot,
    index: Arc<Index>,
}

/// Settings of one run: the server's settings, restricted further by those of the repository. They are fixed when the
/// run starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub drafter: String,
    /// Models for roles that do not use the model in `drafter`, by role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, String>,
    pub reviewer: String,
    /// Maximum number of drafts before a person must decide.
    pub max_rounds: u32,
    /// Whether a person is asked before the draft goes to review.
    pub draft_gate: bool,
    /// Whether a person is asked after an APPROVED review. `true` is not serialized, because older versions did not
    /// serialize it and the subject of an open gate is a hash over the serialized policy.
    #[serde(default = "on", skip_serializing_if = "Clone::clone")]
    pub verdict_gate: bool,
    /// Approvers and deadlines of gates. The default is not serialized, so that the subjects of open gates do not
    /// change; see `verdict_gate`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gates: GateRules,
    /// Path of the document, in which `{issue}` is replaced by the issue's number.
    pub document_path: String,
    /// Publication mode of the document. Older runs have no such field and publish files. The mode that publishes files
    /// is not serialized, because the subject of an open gate is a hash over the serialized policy.
    #[serde(default = "as_files", skip_serializing_if = "is_as_files")]
    pub publish: Publish,
    /// Settings for documents that are filed as issues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filing: Option<Filing>,
    /// Settings for searches in other repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// Settings for questions to a small model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Settings for the models' tools. `None` if no model may use tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolSettings>,
    /// Percentage of the changed lines that the tests of a code change should execute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<u32>,
    /// Whether a missing spec is written first when code is to be made from a design.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from_design: bool,
    #[serde(default)]
    pub caps: BudgetSettings,
    /// Whether costs may be shown in the thread. Everybody can read the thread of a public repository.
    #[serde(default)]
    pub shows_cost: bool,
    /// Reason, in our own words, why the repository's settings file was not used. `None` if the file was used.
    pub complaint: Option<String>,
}

impl Policy {
    /// Builds the policy for a new run of this workflow.
    pub async fn for_workflow(
        settings: &Settings,
        workflow: &str,
        repo: &GitHubRepo,
        info: &RepoInfo,
    ) -> Result<Self, StepError> {
        let file = repo.file(REPOSITORY_FILE, &info.default_branch).await.map_err(github_error)?;
        let file = file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if file.as_deref().is_some_and(RepoSettings::switches_off) {
            return Err(StepError::User(format!(
                "{REPOSITORY_FILE} switches Countersign off here (enabled = false). Set it to true, then start again."
            )));
        }
        let own = file.map(|text| RepoSettings::parse(&text, settings));
        let (own, complaint) = match own.transpose() {
            Ok(own) => (own, None),
            // The error may quote the file, which may be long.
            Err(error) => (None, Some(error.to_string().chars().take(500).collect())),
        };
        let RepoSettings { budget, workflows } = own.unwrap_or_else(|| RepoSettings::from_server(settings));
        // Runs of every workflow may use that model.
        let routing = workflows.values().find_map(|of| of.routing.clone());
        let of_it = workflows.get(workflow).cloned().expect("a workflow that runs is one that has settings");
        let WorkflowSettings {
            max_rounds,
            draft_gate,
            verdict_gate,
            gates,
            document_path,
            publish,
            filing,
            search,
            tools,
            coverage,
            from,
            ..
        } = of_it;
        Ok(Policy {
            drafter: settings.models.drafter.clone(),
            roles: settings.models.roles.clone(),
            reviewer: settings.models.reviewer.clone(),
            max_rounds,
            draft_gate,
            // The unreadable file may ask for this gate.
            verdict_gate: verdict_gate || complaint.is_some() || gates.has_extra_rules(),
            gates,
            document_path,
            publish,
            filing,
            search,
            routing,
            tools: tools.filter(|tools| tools.drafter || tools.reviewer),
            coverage,
            from_design: from == Some(BeginsWith::Lld),
            caps: budget,
            shows_cost: settings.budget.show_on_public || info.private,
            complaint,
        })
    }
}

/// The issue with its title and body as the run read them. A later edit of the issue leads to another digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueSnapshot {
    pub number: IssueNo,
    pub title: String,
    /// Hash of the stored body text.
    pub body: Hash,
    /// Hash of the title and body as returned by GitHub.
    pub digest: Hash,
    pub author: Actor,
    pub url: String,
    pub labels: Vec<String>,
    /// Parts of the body that GitHub does not display. They are removed before models see the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<HiddenText>,
}

/// A run's base commit. The commit is recorded, but the default branch may move on, because a busy branch changes all
/// day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseCommit {
    pub branch: String,
    pub commit: Oid,
}

fn on() -> bool {
    true
}

fn as_files() -> Publish {
    Publish::PullRequest
}

fn is_as_files(publish: &Publish) -> bool {
    *publish == Publish::PullRequest
}

impl Policy {
    /// Returns the model that drafts in this role.
    pub fn drafter_for_role(&self, role: &str) -> &str {
        self.roles.get(role).unwrap_or(&self.drafter)
    }

    /// Returns the settings for the model configured in `[route]`; `None` if that model may not be used. If the
    /// repository's settings file is unreadable, the model may not be used, because the file may forbid it.
    pub(super) fn narrator_routing(&self) -> Option<&Routing> {
        self.routing.as_ref().filter(|routing| routing.mode != RouteMode::Manual && self.complaint.is_none())
    }
}

impl StepServices {
    /// Whether any model of this policy is scripted. Without a policy, the models of the server's settings are checked.
    pub fn is_rehearsal(&self, policy: Option<&Policy>) -> bool {
        let models = &self.settings.models;
        let (drafter, roles, reviewer) = policy
            .map_or((&models.drafter, &models.roles, &models.reviewer), |policy| {
                (&policy.drafter, &policy.roles, &policy.reviewer)
            });
        [drafter, reviewer]
            .into_iter()
            .chain(roles.values())
            .flat_map(|spec| models.names.models(spec))
            .any(|spec| spec.starts_with("stub:"))
    }

    /// Returns the sandbox in which the repository's own tests run.
    ///
    /// # Errors
    /// `User` if no sandbox works on this machine.
    pub async fn find_sandbox(&self) -> Result<Sandbox, StepError> {
        let settings = &self.settings.sandbox;
        let find = async {
            let own = match &settings.program {
                Some(program) => program.clone(),
                None => std::env::current_exe().map_err(anyhow::Error::new)?,
            };
            Box::pin(Sandbox::detect(&own, settings.level)).await.map_err(|error| {
                StepError::User(format!(
                    "The server cannot run commands: {error}. The operator can fix that (`countersign doctor` says \
                     how). Then start again."
                ))
            })
        };
        let sandbox = self.sandbox.get_or_try_init(|| find).await?.clone();
        Ok(sandbox.with_time_metric(self.sandbox_time.clone()))
    }

    /// Returns a fetcher for the dependencies of the tests, with its cache.
    pub fn dependencies(&self, cx: &StepContext) -> DependencyFetcher {
        let repository = cx.run().id.repo.to_string();
        // Deleted together with the repository.
        let cache = self.settings.data_dir.join("repos").join(&repository).join("dependencies");
        let own = &self.settings.sandbox;
        DependencyFetcher { repository, cache, hosts: own.hosts.clone(), home: own.home.clone() }
    }

    /// Assigns the run to a worker pool, for models that run as programs. The pool is chosen by rules for the issue's
    /// labels and for `paths`. If no rule matches, the kind of request that started the run decides.
    pub fn worker_assignment(&self, cx: &StepContext, labels: &[String], paths: &[String]) -> PoolAssignment {
        let assigned = self.settings.models.workers.assign_pool(labels, paths);
        let request = cx.run().trigger.request.as_ref().filter(|_| assigned.row.is_none());
        let by_kind = request
            .and_then(|asked| Some(PoolAssignment { pool: asked.pool?, row: Some(asked.skill.clone()) }));
        by_kind.unwrap_or(assigned)
    }

    /// Returns a handle on the run's repository. The repository is found by its id, so that a renamed repository is
    /// accessed under its current name. API calls through the handle are counted for the run.
    pub async fn repository(&self, cx: &StepContext) -> Result<GitHubRepo, StepError> {
        let known = self
            .store
            .installation_registry()
            .repository(cx.run().id.repo)
            .await
            .map_err(anyhow::Error::new)?;
        let row = known.ok_or_else(|| {
            StepError::User(
                "This repository was removed from the App's installation. Add it again in the App's settings, then \
                 start again."
                    .to_owned(),
            )
        })?;
        let tally = Arc::clone(cx.github_call_counter());
        let counter = ApiCallCounter::new(move |write| tally.count_call(write));
        Ok(self.github.repo(row.installation, row.id, row.name).with_counter(counter))
    }

    /// Whether the run's repository is private now, which may have changed since the run started. If no setting depends
    /// on the answer, returns `true`, the stricter value, without asking GitHub.
    pub async fn is_private(&self, cx: &StepContext) -> Result<bool, StepError> {
        if !self.providers.depends_on_privacy() {
            return Ok(true);
        }
        let repo = self.repository(cx).await?;
        Ok(repo.info().await.map_err(github_error)?.private)
    }

    /// Reads the issue from GitHub and stores its text.
    pub async fn read_issue(&self, cx: &StepContext, repo: &GitHubRepo) -> Result<IssueSnapshot, StepError> {
        let issue = self.find_issue(cx, repo).await?;
        if !issue.state_open {
            return Err(StepError::User("The issue is closed. Reopen it, then start again.".to_owned()));
        }
        let digest = issue.digest;
        let (title, text) = (hidden_text::visible_line(&issue.title), hidden_text::visible_text(&issue.body));
        let body = cx.put(text.text.as_bytes()).await?;
        let read = TextRow {
            title: Some(title.text.clone()),
            raw: Some(digest),
            ..TextRow::new(TextKind::Issue, body)
        };
        cx.record_later("issue", LedgerRecord::Text(read)).await?;
        Ok(IssueSnapshot {
            number: issue.number,
            title: title.text,
            body,
            digest,
            author: issue.author,
            url: issue.url,
            labels: issue.labels,
            hidden: hidden_text::merge_hidden(title.hidden.iter().chain(&text.hidden)),
        })
    }

    /// Reads the policy for a run of this workflow: the server's settings, restricted further by
    /// `.github/countersign.toml` on the default branch.
    pub async fn read_policy(
        &self,
        workflow: &str,
        repo: &GitHubRepo,
        info: &RepoInfo,
    ) -> Result<Policy, StepError> {
        let policy = Policy::for_workflow(&self.settings, workflow, repo, info).await?;
        Ok(Policy { reviewer: String::clone(&self.reviewer.get()), ..policy })
    }

    /// Fetches the default branch into the mirror and returns its head.
    pub async fn fetch_base(
        &self,
        cx: &StepContext,
        key: &str,
        repo: &GitHubRepo,
    ) -> Result<BaseCommit, StepError> {
        cx.once(key, |_| async { Ok(self.fetch_branches(cx, repo, None).await?.0) }).await
    }

    /// Fetches the default branch and another branch in one Git fetch. The returned snapshot is `None` if the other
    /// branch does not exist.
    pub async fn fetch_branches(
        &self,
        cx: &StepContext,
        repo: &GitHubRepo,
        other: Option<&str>,
    ) -> Result<(BaseCommit, Option<Snapshot>), StepError> {
        let info = repo.info().await.map_err(github_error)?;
        let installation = cx.run().trigger.installation;
        let branch = info.default_branch;
        let branches: Vec<String> =
            std::iter::once(branch.as_str()).chain(other).map(str::to_owned).collect();
        let began = cx.clock().now();
        let fetched = loop {
            let (token, kept) = self.github.git_token(installation, info.id).await.map_err(github_error)?;
            let fetch = async |branches: &[String]| {
                self.mirrors.fetch(info.id, &info.name, branches, &token, cx.cancellation()).await
            };
            let fetched = match fetch(&branches).await {
                Err(GitError::NoSuchBranch { name }) if other == Some(&name) => {
                    fetch(&branches[..1]).await.map(|()| None)
                }
                fetched => fetched.map(|()| other),
            };
            if !matches!(fetched, Err(GitError::Failed { .. })) || !kept {
                break fetched;
            }
            self.github.forget_git_token(installation, info.id);
        };
        let mut failing = self.fetch_failure_time.lock().await;
        let cost = cx.clock().now().since(began)
            + GIT_RETRY_DELAY
            + failing.remove(&cx.run().id).unwrap_or_default();
        let other = match fetched {
            Ok(other) => other,
            // Nobody reads a run that waits forever. Waits that GitHub asks for do not count.
            Err(error) if error.is_transient() && cost > FETCH_RETRY_LIMIT => {
                return Err(StepError::User(format!("{error}. Fix that, then start again.")));
            }
            Err(error) => {
                if error.is_transient() {
                    failing.insert(cx.run().id, cost);
                }
                return Err(git_error(error));
            }
        };
        drop(failing);
        let at = async |branch: &str| self.mirrors.snapshot(info.id, branch).await.map_err(git_error);
        let commit = at(&branch).await?.commit;
        let other = match other {
            Some(name) => Some(at(name).await?),
            None => None,
        };
        Ok((BaseCommit { branch, commit }, other))
    }

    /// Returns a snapshot of the run's base commit.
    pub async fn snapshot(&self, cx: &StepContext, base: &BaseCommit) -> Result<Snapshot, StepError> {
        match self.commits.get(cx.run().id.repo, &base.commit) {
            Some(known) => Ok(known.snapshot.clone()),
            None => self.read_snapshot(cx, base).await,
        }
    }

    async fn read_snapshot(&self, cx: &StepContext, base: &BaseCommit) -> Result<Snapshot, StepError> {
        let look = async || self.mirrors.snapshot(cx.run().id.repo, base.commit.as_str()).await;
        match look().await {
            // Another server fetched it, or the mirror was lost: fetch again from GitHub.
            Err(GitError::NotFetched { .. }) => {
                // Boxed: rarely used, and too large for the futures of all callers.
                Box::pin(async {
                    self.fetch_branches(cx, &self.repository(cx).await?, None).await.map(drop)
                })
                .await?;
                look().await.map_err(git_error)
            }
            read => read.map_err(git_error),
        }
    }

    /// Returns the index of the run's base commit.
    pub async fn index(&self, cx: &StepContext, base: &BaseCommit) -> Result<Arc<Index>, StepError> {
        // Another run may be computing it, so a cancel of this run must not end that.
        tokio::select! {
            known = self.commits.get_or_make(cx.run().id.repo, &base.commit, self.index_commit(cx, base)) => {
                Ok(Arc::clone(&known?.index))
            }
            () = cx.cancellation().cancelled() => Err(run_stopping_error()),
        }
    }

    async fn index_commit(&self, cx: &StepContext, base: &BaseCommit) -> Result<IndexedCommit, StepError> {
        let snapshot = self.read_snapshot(cx, base).await?;
        let index = match self.store.cache(cx.run().id.repo).await {
            Ok(cache) => Index::read(&snapshot, cache, cx.cancellation()).await,
            Err(error) => {
                tracing::warn!(%error, "could not open the index cache; indexing without it");
                Index::read_uncached(&snapshot, cx.cancellation()).await
            }
        };
        Ok(IndexedCommit { index: Arc::new(index.map_err(git_error)?), snapshot })
    }

    /// Returns an index of all paths in the run's base commit.
    pub async fn file_tree(&self, cx: &StepContext, base: &BaseCommit) -> Result<TreeIndex, StepError> {
        let snapshot = self.snapshot(cx, base).await?;
        let links = snapshot.entries().iter().filter(|entry| !entry.mode.is_file()).map(|e| e.path.as_str());
        let executables = snapshot.entries().iter().filter(|entry| entry.mode == EntryMode::Executable);
        let executables = executables.map(|entry| entry.path.as_str());
        let tree = TreeIndex::new(snapshot.entries().iter().map(|e| e.path.as_str()));
        Ok(tree.with_links(links).with_executables(executables))
    }
}

pub(super) fn run_stopping_error() -> StepError {
    StepError::Later { why: "the run is stopping".to_owned(), after: Duration::from_secs(30) }
}

pub fn git_error(error: GitError) -> StepError {
    if error.is_transient() {
        StepError::Later { why: error.to_string(), after: GIT_RETRY_DELAY }
    } else {
        StepError::User(error.to_string())
    }
}
