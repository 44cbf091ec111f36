//! What a step may use: GitHub, the mirror, the models; and the facts of a run that every stage reads.

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

/// A mirror that git cannot fetch is tried again this long, then people are told.
const FETCH_RETRY_LIMIT: Duration = Duration::from_secs(600);

/// Before git is asked once more.
const GIT_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The tools of a step.
pub struct StepServices {
    pub github: GitHub,
    pub mirrors: Mirrors,
    pub providers: Arc<ModelProviders>,
    pub store: Arc<Store>,
    pub settings: Arc<Settings>,
    /// The reviewer of `settings`, or the one that a reload named since.
    pub reviewer: ReloadableValue<String>,
    pub commits: CommitCache<IndexedCommit>,
    /// What git's failures to fetch have cost each run since it last fetched. Memory alone: a new process is as patient
    /// again.
    pub fetch_failure_time: Mutex<HashMap<RunId, Duration>>,
    /// When each repository was last seen to want work of ours. Memory alone, like what is above.
    pub switch_checked_at: Mutex<HashMap<RepoId, Timestamp>>,
    /// Where tests run, found when the first are to.
    pub sandbox: OnceCell<Sandbox>,
    /// What commands in it take.
    pub sandbox_time: sandbox::SandboxSeconds,
}

/// A commit that a run works from.
#[derive(Debug)]
pub struct IndexedCommit {
    snapshot: Snapshot,
    index: Arc<Index>,
}

/// What the server's settings, tightened by the repository's, say for one run. Pinned at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub drafter: String,
    /// Models of roles that draft with another one than that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, String>,
    pub reviewer: String,
    /// Drafts before a person must decide.
    pub max_rounds: u32,
    /// Ask a person before the draft goes to review.
    pub draft_gate: bool,
    /// Ask a person about what the reviewer approved. Left out where it is so, as it always was once: an open gate's
    /// subject hangs on these bytes.
    #[serde(default = "on", skip_serializing_if = "Clone::clone")]
    pub verdict_gate: bool,
    /// Whom gates ask, and how long; left out where it is the usual, for the same reason.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gates: GateRules,
    /// Where the document goes; `{issue}` is its number.
    pub document_path: String,
    /// Where the document is published. A run that began before there was a choice publishes files, and the subject of its open
    /// gate hangs on these bytes.
    #[serde(default = "as_files", skip_serializing_if = "is_as_files")]
    pub publish: Publish,
    /// What holds where the document is filed as an issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filing: Option<Filing>,
    /// What holds where it looks at other people's repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// How a small model is asked for words that the work also goes on without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// What holds where models look at files themselves; none: no model does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolSettings>,
    /// Percent of the changed lines that tests should run, where code is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<u32>,
    /// Where code is made of a design that has no spec yet, that is written first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from_design: bool,
    #[serde(default)]
    pub caps: BudgetSettings,
    /// May the thread tell what was spent? Everybody reads a public repository's.
    #[serde(default)]
    pub shows_cost: bool,
    /// Why the repository's own file was not used, in our words.
    pub complaint: Option<String>,
}

impl Policy {
    /// What holds for a run of this workflow that begins now.
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
                "{REPOSITORY_FILE} has switched all work off here (enabled = false). Set it to true, then start anew."
            )));
        }
        let own = file.map(|text| RepoSettings::parse(&text, settings));
        let (own, complaint) = match own.transpose() {
            Ok(own) => (own, None),
            // It may quote the file, and the file may be long.
            Err(error) => (None, Some(error.to_string().chars().take(500).collect())),
        };
        let RepoSettings { budget, workflows } = own.unwrap_or_else(|| RepoSettings::from_server(settings));
        // Whatever runs may ask that model.
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
            // What the file asks for is not known: perhaps it is this.
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

/// The issue as people saw it when the run read it. A later edit is noticed by `digest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueSnapshot {
    pub number: IssueNo,
    pub title: String,
    /// The body's text, stored.
    pub body: Hash,
    /// Of title and body together, as they are on GitHub.
    pub digest: Hash,
    pub author: Actor,
    pub url: String,
    pub labels: Vec<String>,
    /// What of it people do not see on GitHub: no model is shown it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<HiddenText>,
}

/// The commit a run works from. Recorded, not bound: a busy default branch moves all day.
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
    /// Who writes in this role.
    pub fn drafter_for_role(&self, role: &str) -> &str {
        self.roles.get(role).unwrap_or(&self.drafter)
    }

    /// How the model of `[route]` is asked, if it may be. What a file that could not be used asks for is not known: perhaps that
    /// it is not.
    pub(super) fn narrator_routing(&self) -> Option<&Routing> {
        self.routing.as_ref().filter(|routing| routing.mode != RouteMode::Manual && self.complaint.is_none())
    }
}

impl StepServices {
    /// May a script answer in a run of this policy, or, where it has none yet, of the server's?
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

    /// What this machine keeps a repository's own tests apart by.
    ///
    /// # Errors
    /// `User` where nothing here does.
    pub async fn find_sandbox(&self) -> Result<Sandbox, StepError> {
        let settings = &self.settings.sandbox;
        let find = async {
            let own = match &settings.program {
                Some(program) => program.clone(),
                None => std::env::current_exe().map_err(anyhow::Error::new)?,
            };
            Box::pin(Sandbox::detect(&own, settings.level)).await.map_err(|error| {
                StepError::User(format!(
                    "Nothing may be run on the server's machine: {error}. Whoever runs the server can mend that \
                     (`countersign doctor` says how); then start anew."
                ))
            })
        };
        let sandbox = self.sandbox.get_or_try_init(|| find).await?.clone();
        Ok(sandbox.with_time_metric(self.sandbox_time.clone()))
    }

    /// Where what its tests depend on is fetched from, and kept.
    pub fn dependencies(&self, cx: &StepContext) -> DependencyFetcher {
        let repository = cx.run().id.repo.to_string();
        // Forgotten with the repository.
        let cache = self.settings.data_dir.join("repos").join(&repository).join("dependencies");
        let own = &self.settings.sandbox;
        DependencyFetcher { repository, cache, hosts: own.hosts.clone(), home: own.home.clone() }
    }

    /// Where the run belongs if its models run as programs: by these labels of the issue and these files; where neither says
    /// anything, by the kind of request it was begun for.
    pub fn worker_assignment(&self, cx: &StepContext, labels: &[String], paths: &[String]) -> PoolAssignment {
        let assigned = self.settings.models.workers.assign_pool(labels, paths);
        let request = cx.run().trigger.request.as_ref().filter(|_| assigned.row.is_none());
        let by_kind = request
            .and_then(|asked| Some(PoolAssignment { pool: asked.pool?, row: Some(asked.skill.clone()) }));
        by_kind.unwrap_or(assigned)
    }

    /// A handle on the run's repository, by its number; the name is whatever it is called now. What is asked by
    /// it is counted with the run.
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
                 start anew."
                    .to_owned(),
            )
        })?;
        let tally = Arc::clone(cx.github_call_counter());
        let counter = ApiCallCounter::new(move |write| tally.count_call(write));
        Ok(self.github.repo(row.installation, row.id, row.name).with_counter(counter))
    }

    /// Is the run's repository private, as of now? It may have become so since the run began. Where the settings make
    /// no difference GitHub is not asked, and the answer is the careful one.
    pub async fn is_private(&self, cx: &StepContext) -> Result<bool, StepError> {
        if !self.providers.depends_on_privacy() {
            return Ok(true);
        }
        let repo = self.repository(cx).await?;
        Ok(repo.info().await.map_err(github_error)?.private)
    }

    /// Reads the issue and stores its text.
    pub async fn read_issue(&self, cx: &StepContext, repo: &GitHubRepo) -> Result<IssueSnapshot, StepError> {
        let issue = self.find_issue(cx, repo).await?;
        if !issue.state_open {
            return Err(StepError::User("The issue is closed. Reopen it, then start anew.".to_owned()));
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

    /// The policy of a run of this workflow: the server's, tightened by `.github/countersign.toml` on the default
    /// branch.
    pub async fn read_policy(
        &self,
        workflow: &str,
        repo: &GitHubRepo,
        info: &RepoInfo,
    ) -> Result<Policy, StepError> {
        let policy = Policy::for_workflow(&self.settings, workflow, repo, info).await?;
        Ok(Policy { reviewer: String::clone(&self.reviewer.get()), ..policy })
    }

    /// Brings the default branch into the mirror and says where it stands.
    pub async fn fetch_base(
        &self,
        cx: &StepContext,
        key: &str,
        repo: &GitHubRepo,
    ) -> Result<BaseCommit, StepError> {
        cx.once(key, |_| async { Ok(self.fetch_branches(cx, repo, None).await?.0) }).await
    }

    /// Brings the default branch and another into the mirror, as both are at one moment. None: there is no such other.
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
            // Nobody reads a run that waits for ever. What GitHub makes it wait for is no part of this.
            Err(error) if error.is_transient() && cost > FETCH_RETRY_LIMIT => {
                return Err(StepError::User(format!("{error}. Mend that, then start anew.")));
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

    /// The files of the commit a run works from.
    pub async fn snapshot(&self, cx: &StepContext, base: &BaseCommit) -> Result<Snapshot, StepError> {
        match self.commits.get(cx.run().id.repo, &base.commit) {
            Some(known) => Ok(known.snapshot.clone()),
            None => self.read_snapshot(cx, base).await,
        }
    }

    async fn read_snapshot(&self, cx: &StepContext, base: &BaseCommit) -> Result<Snapshot, StepError> {
        let look = async || self.mirrors.snapshot(cx.run().id.repo, base.commit.as_str()).await;
        match look().await {
            // Another server fetched it, or the mirror was lost: what is on GitHub can be fetched again.
            Err(GitError::NotFetched { .. }) => {
                // Seldom, and too large to lie in every future that reads a commit.
                Box::pin(async {
                    self.fetch_branches(cx, &self.repository(cx).await?, None).await.map(drop)
                })
                .await?;
                look().await.map_err(git_error)
            }
            read => read.map_err(git_error),
        }
    }

    /// What is known of the files of the commit a run works from.
    pub async fn index(&self, cx: &StepContext, base: &BaseCommit) -> Result<Arc<Index>, StepError> {
        // Perhaps another run makes it, of which a stop of this one is no business.
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
                tracing::warn!(%error, "there is no cache for the index of a repository");
                Index::read_uncached(&snapshot, cx.cancellation()).await
            }
        };
        Ok(IndexedCommit { index: Arc::new(index.map_err(git_error)?), snapshot })
    }

    /// The paths of the commit a run works from.
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
