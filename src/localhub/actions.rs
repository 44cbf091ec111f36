//! Actions on accounts, Apps, repositories, branches and pull requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    Hub, HubError,
    git::{BareRepository, GitSignature, TreeChange},
    json::JsonRenderer,
    keys::new_key,
    model::{
        HubAccount, HubApp, HubInstallation, HubLineComment, HubPullRequest, HubRepository, HubReview,
        RepositoryProfile,
    },
    transaction::HubTransaction,
    views::HubEventKind,
};
use crate::types::{InstallationId, IssueNo, Oid, RepoId, Role, Timestamp, UserId};

/// A GitHub App to register.
#[derive(Clone)]
pub struct AppSpec {
    pub name: String,
    pub slug: String,
    /// Granted level of each permission, such as `issues` → `write`.
    pub permissions: BTreeMap<String, String>,
    pub events: Vec<String>,
    pub webhook_url: Option<Url>,
    pub webhook_secret: SecretString,
    /// RSA key in PEM format. `None` generates a key, which takes a while.
    pub private_key: Option<SecretString>,
    pub owner: UserId,
}

/// Credentials of an App that GitHub shows to the App's owner only once.
pub struct AppCredentials {
    pub id: u64,
    pub slug: String,
    pub client_id: String,
    pub pem: SecretString,
    pub webhook_secret: SecretString,
}

/// Source of a repository's first commit.
#[derive(Debug, Clone)]
pub enum RepoSource {
    /// One commit that contains these files.
    Files(Vec<(String, Vec<u8>)>),
    /// The history of `HEAD` in the repository at this path. Its working tree is neither read nor written.
    Clone(PathBuf),
}

impl Hub {
    /// Returns the account with this login; creates the account if it does not exist.
    pub fn create_user(&self, login: &str) -> Result<UserId, HubError> {
        self.change(|c| c.account_for(login, None))
    }

    /// Registers an App and pings its webhook, if it has one.
    pub fn create_app(&self, spec: AppSpec) -> Result<AppCredentials, HubError> {
        // Outside the lock: finding primes takes a while.
        let pem = spec.private_key.clone().map_or_else(new_key, Ok)?;
        let home = self.0.base.clone();
        self.change(|c| c.create_app(spec, pem, home))
    }

    /// Returns the credentials of an App that was registered earlier, so that a demo can continue. GitHub itself would
    /// not show them again.
    pub fn credentials(&self, slug: &str) -> Option<AppCredentials> {
        self.read(|s| {
            s.app_by_slug(slug).map(|app| AppCredentials {
                id: app.id,
                slug: app.slug.clone(),
                client_id: app.client_id.clone(),
                pem: SecretString::from(app.pem.as_str()),
                webhook_secret: SecretString::from(app.webhook_secret.as_str()),
            })
        })
    }

    pub fn set_webhook(&self, app: u64, url: Option<Url>, secret: &SecretString) -> Result<(), HubError> {
        self.change(|c| {
            let row = c.state.apps.get_mut(&app).ok_or_else(|| HubError::Missing(format!("App {app}")))?;
            row.webhook_url = url.map(String::from);
            row.webhook_secret = secret.expose_secret().to_owned();
            Ok(())
        })
    }

    pub fn create_repo(
        &self,
        owner: UserId,
        name: &str,
        source: RepoSource,
        private: bool,
    ) -> Result<RepoId, HubError> {
        self.change(|c| c.create_repo(owner, name, source, private))
    }

    /// Installs the App on these repositories, which must have the same owner. A second call adds repositories to the
    /// installation.
    pub fn install(&self, app: u64, repositories: &[RepoId]) -> Result<InstallationId, HubError> {
        self.change(|c| c.install(app, repositories))
    }

    /// Suspends or resumes an installation. A suspended installation gets no tokens and no webhooks.
    pub fn suspend(&self, installation: InstallationId, suspended: bool) -> Result<(), HubError> {
        self.change(|c| c.suspend(installation, suspended))
    }

    pub fn uninstall(&self, installation: InstallationId) -> Result<(), HubError> {
        self.change(|c| c.uninstall(installation))
    }

    pub fn set_role(&self, repo: RepoId, user: UserId, role: Role) -> Result<(), HubError> {
        self.change(|c| {
            c.repo_mut(repo)?.roles.insert(user, role);
            Ok(())
        })
    }

    /// Sets whether the repository refuses draft pull requests with 422, as private repositories of some plans do.
    pub fn refuse_draft_pulls(&self, repo: RepoId, refuse: bool) -> Result<(), HubError> {
        self.change(|c| {
            c.repo_mut(repo)?.refuses_drafts = refuse;
            Ok(())
        })
    }

    /// Sets a repository's stars, licence, description and topics.
    pub fn set_profile(&self, repo: RepoId, profile: RepositoryProfile) -> Result<(), HubError> {
        self.change(|c| {
            c.repo_mut(repo)?.fame = profile;
            Ok(())
        })
    }

    /// Deletes a repository and its content. A repository created later with the same name is a different repository.
    pub fn delete_repo(&self, repo: RepoId) -> Result<(), HubError> {
        self.change(|c| c.delete_repo(repo))
    }

    /// Renames a repository. Requests with the old name are then answered with 301.
    pub fn rename_repo(&self, repo: RepoId, new_name: &str) -> Result<(), HubError> {
        self.change(|c| c.rename_repo(repo, new_name))
    }

    /// Commits files to a branch. If the branch does not exist, it is created from the default branch.
    pub fn push_commit(
        &self,
        repo: RepoId,
        branch: &str,
        user: UserId,
        files: &[(&str, &[u8])],
        message: &str,
    ) -> Result<Oid, HubError> {
        self.change(|c| c.push_commit(repo, branch, user, files, message))
    }

    /// Moves a branch to an existing commit, even if that is not a fast-forward.
    pub fn move_branch(&self, repo: RepoId, branch: &str, user: UserId, to: &Oid) -> Result<(), HubError> {
        self.change(|c| {
            let from = c.git(repo).branch(branch);
            c.git(repo).set_reference(&format!("refs/heads/{branch}"), to)?;
            c.follow_branch_move(repo, branch, from, Some(to.clone()), user)
        })
    }

    /// Submits a review; `state` is `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`.
    pub fn review(
        &self,
        repo: RepoId,
        pull: IssueNo,
        user: UserId,
        state: &str,
        body: &str,
    ) -> Result<u64, HubError> {
        self.review_lines(repo, pull, user, state, body, &[])
    }

    /// Submits a review with line comments, each given as path, line and text.
    pub fn review_lines(
        &self,
        repo: RepoId,
        pull: IssueNo,
        user: UserId,
        state: &str,
        body: &str,
        comments: &[(&str, u64, &str)],
    ) -> Result<u64, HubError> {
        self.change(|c| c.review(repo, pull, user, (state, body), comments))
    }

    /// Replies in the thread that starts with this line comment.
    pub fn reply(
        &self,
        repo: RepoId,
        pull: IssueNo,
        user: UserId,
        to: u64,
        body: &str,
    ) -> Result<u64, HubError> {
        self.change(|c| c.reply(repo, pull, user, (to, body)).map(|reply| reply.id))
    }

    /// Returns the line comments of a pull request.
    pub fn line_comments(&self, repo: RepoId, pull: IssueNo) -> Vec<LineCommentView> {
        self.read(|s| {
            let found = s.repositories.get(&repo).and_then(|row| row.issues.get(&pull.0)?.pull.as_ref());
            let reviews = found.into_iter().flat_map(|pull| &pull.reviews);
            let view = |review: &HubReview, comment: &HubLineComment| LineCommentView {
                id: comment.id,
                author: s.login(review.user),
                body: comment.body.clone(),
                reply_to: comment.reply_to,
            };
            reviews
                .flat_map(|review| review.comments.iter().map(move |comment| view(review, comment)))
                .collect()
        })
    }

    /// Marks a pull request as ready for review, or as a draft again.
    pub fn set_draft(&self, repo: RepoId, pull: IssueNo, user: UserId, draft: bool) -> Result<(), HubError> {
        self.change(
            |c| if draft { c.convert_to_draft(repo, pull, user) } else { c.mark_ready(repo, pull, user) },
        )
    }

    /// Opens a pull request from a branch.
    pub fn open_pull(&self, repo: RepoId, by: UserId, head: &str, base: &str) -> Result<IssueNo, HubError> {
        self.change(|c| {
            let tip = |branch: &str| {
                c.git(repo).branch(branch).ok_or_else(|| HubError::Missing(format!("branch {branch}")))
            };
            let (head_oid, base_oid) = (tip(head)?, tip(base)?);
            let (head, base) = (head.to_owned(), base.to_owned());
            let (title, body, draft) = (format!("From {head}"), None, false);
            c.open_pull(repo, by, NewPullRequest { title, body, draft, head, base, head_oid, base_oid })
        })
    }

    /// Changes the base branch of a pull request.
    pub fn retarget(&self, repo: RepoId, pull: IssueNo, user: UserId, base: &str) -> Result<(), HubError> {
        self.change(|c| {
            let oid = c.git(repo).branch(base).ok_or_else(|| HubError::Missing(format!("branch {base}")))?;
            if let Some(pull) = &mut c.issue_mut(repo, pull)?.pull {
                (pull.base, pull.base_oid) = (base.to_owned(), oid);
            }
            c.queue_issue_webhook(repo, pull, "edited", user, vec![]);
            Ok(())
        })
    }

    /// Merges a pull request with a merge commit. Closes the issues that the pull request closes by keyword first, then
    /// the pull request itself.
    pub fn merge(&self, repo: RepoId, pull: IssueNo, user: UserId) -> Result<(), HubError> {
        self.change(|c| c.merge(repo, pull, user))
    }
}

/// Returns the Git signature of a localhub account.
pub(super) fn signature(account: &HubAccount, at: Timestamp) -> GitSignature {
    let email = format!("{}+{}@users.noreply.localhub", account.id, account.login);
    GitSignature { name: account.login.clone(), email, at }
}

impl HubTransaction<'_> {
    pub(super) fn account_for(&mut self, login: &str, app: Option<u64>) -> Result<UserId, HubError> {
        if let Some(known) = self.state.account_named(login) {
            return Ok(known.id);
        }
        let plain = login.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !login.is_empty();
        if app.is_none() && !plain {
            return Err(HubError::Refused(format!("`{login}` is not a login: use letters, digits and -")));
        }
        let id = UserId(self.state.fresh_id());
        let row = HubAccount { id, login: login.to_owned(), app, created_at: self.at };
        self.state.accounts.insert(id, row);
        Ok(id)
    }

    pub(super) fn create_app(
        &mut self,
        spec: AppSpec,
        pem: SecretString,
        external_url: String,
    ) -> Result<AppCredentials, HubError> {
        self.account(spec.owner)?;
        if self.state.app_by_slug(&spec.slug).is_some() {
            return Err(HubError::Refused(format!(
                "an App called `{}` exists; choose another name",
                spec.slug
            )));
        }
        let (id, hook_id) = (self.state.fresh_id(), self.state.fresh_id());
        let bot = self.account_for(&format!("{}[bot]", spec.slug), Some(id))?;
        let client_id = format!("Iv23li{}", super::random_hex(7)?);
        let app = HubApp {
            id,
            slug: spec.slug.clone(),
            name: spec.name,
            owner: spec.owner,
            bot,
            client_id: client_id.clone(),
            permissions: spec.permissions,
            events: spec.events.into_iter().collect(),
            webhook_url: spec.webhook_url.map(String::from),
            webhook_secret: spec.webhook_secret.expose_secret().to_owned(),
            hook_id,
            external_url,
            pem: pem.expose_secret().to_owned(),
            created_at: self.at,
        };
        let ping = json!({
            "zen": "Keep it logically awesome.",
            "hook_id": hook_id,
            "hook": { "created_at": self.at.to_string(), "updated_at": self.at.to_string(), "type": "App", "id": hook_id, "name": "web", "active": true, "app_id": id,
                      "events": app.events, "config": { "content_type": "json", "insecure_ssl": "0", "url": app.webhook_url } },
        });
        self.state.apps.insert(id, app);
        self.queue_app_webhook(id, "ping", None, None, into_object(ping));
        Ok(AppCredentials { id, slug: spec.slug, client_id, pem, webhook_secret: spec.webhook_secret })
    }

    fn create_repo(
        &mut self,
        owner: UserId,
        name: &str,
        source: RepoSource,
        private: bool,
    ) -> Result<RepoId, HubError> {
        let login = self.account(owner)?.login.clone();
        format!("{login}/{name}")
            .parse::<crate::types::RepoName>()
            .map_err(|e| HubError::Refused(format!("{e}; use letters, digits, -, _ and .")))?;
        if self.state.repository_named(&login, name).is_some() {
            return Err(HubError::Refused(format!("{login}/{name} exists already")));
        }
        let id = RepoId(self.state.fresh_id());
        let default_branch = self.create_git_repository(id, owner, source).inspect_err(|_| {
            // The incomplete repository is useless; the error matters.
            drop(std::fs::remove_dir_all(self.hub.git_dir(id)));
        })?;
        let row = HubRepository {
            id,
            owner,
            name: name.to_owned(),
            private,
            default_branch,
            created_at: self.at,
            updated_at: self.at,
            pushed_at: self.at,
            roles: BTreeMap::new(),
            labels: vec![],
            last_number: 0,
            issues: BTreeMap::new(),
            deleted: BTreeSet::new(),
            refuses_drafts: false,
            checks: vec![],
            statuses: vec![],
            fame: RepositoryProfile::default(),
        };
        self.state.renamed.remove(&format!("{login}/{name}").to_ascii_lowercase());
        self.state.repositories.insert(id, row);
        Ok(id)
    }

    /// Creates the bare repository and its first commits. Returns the name of the default branch.
    fn create_git_repository(
        &self,
        id: RepoId,
        owner: UserId,
        source: RepoSource,
    ) -> Result<String, HubError> {
        // The id is new, so an existing directory was left by a killed hub.
        drop(std::fs::remove_dir_all(self.hub.git_dir(id)));
        let git = BareRepository::init(self.hub.git_dir(id), "main")?;
        match source {
            RepoSource::Files(files) => {
                let files: Vec<_> = files.iter().map(|(p, b)| (p.as_str(), b.as_slice())).collect();
                let author = signature(self.account(owner)?, self.at);
                commit_files(&git, "main", None, &files, "Initial commit", &author)?;
                Ok("main".to_owned())
            }
            RepoSource::Clone(path) => git.fetch_head(&path, &self.hub.data),
        }
    }

    pub(super) fn install(&mut self, app: u64, repositories: &[RepoId]) -> Result<InstallationId, HubError> {
        let owner = self.state.apps.get(&app).ok_or_else(|| HubError::Missing(format!("App {app}")))?.owner;
        let account = match repositories.first() {
            Some(first) => self.repo(*first)?.owner,
            None => owner,
        };
        for repo in repositories {
            if self.repo(*repo)?.owner != account {
                return Err(HubError::Refused("an installation covers repositories of one owner".into()));
            }
        }
        let known = self.state.installations.values().find(|i| i.app == app && i.account == account);
        if let Some(known) = known.map(|i| i.id) {
            self.add_to_installation(known, account, repositories);
            return Ok(known);
        }
        let id = InstallationId(self.state.fresh_id());
        let row = HubInstallation {
            id,
            app,
            account,
            repositories: repositories.iter().copied().collect(),
            suspended_at: None,
            created_at: self.at,
            updated_at: self.at,
        };
        self.state.installations.insert(id, row);
        let repositories = self.short_repositories(repositories);
        self.queue_installation_webhook(
            id,
            "installation",
            "created",
            account,
            vec![("repositories", repositories)],
        );
        Ok(id)
    }

    fn add_to_installation(&mut self, id: InstallationId, by: UserId, repositories: &[RepoId]) {
        let Some(row) = self.state.installations.get_mut(&id) else { return };
        let added: Vec<_> = repositories.iter().copied().filter(|r| row.repositories.insert(*r)).collect();
        if added.is_empty() {
            return;
        }
        let added = self.short_repositories(&added);
        let extra = vec![
            ("repository_selection", json!("selected")),
            ("repositories_added", added),
            ("repositories_removed", json!([])),
        ];
        self.queue_installation_webhook(id, "installation_repositories", "added", by, extra);
    }

    fn suspend(&mut self, id: InstallationId, suspended: bool) -> Result<(), HubError> {
        let at = self.at;
        let row = self.state.installations.get_mut(&id);
        let row = row.ok_or_else(|| HubError::Missing(format!("installation {id}")))?;
        row.suspended_at = suspended.then_some(at);
        let by = row.account;
        let action = if suspended { "suspend" } else { "unsuspend" };
        self.queue_installation_webhook(id, "installation", action, by, vec![]);
        Ok(())
    }

    fn uninstall(&mut self, id: InstallationId) -> Result<(), HubError> {
        let row = self.state.installations.get(&id);
        let by = row.ok_or_else(|| HubError::Missing(format!("installation {id}")))?.account;
        self.queue_installation_webhook(id, "installation", "deleted", by, vec![]);
        self.state.installations.remove(&id);
        Ok(())
    }

    fn queue_installation_webhook(
        &mut self,
        id: InstallationId,
        event: &str,
        action: &str,
        by: UserId,
        extra: Vec<(&str, Value)>,
    ) {
        let Some(row) = self.state.installations.get(&id) else { return };
        let (app, json) = (row.app, self.json());
        let mut body =
            into_object(json!({ "installation": json.installation(row), "sender": json.account(by) }));
        body.extend(extra.into_iter().map(|(k, v)| (k.to_owned(), v)));
        self.queue_app_webhook(app, event, Some(action), Some(id), body);
    }

    fn short_repositories(&self, ids: &[RepoId]) -> Value {
        let rows = ids.iter().filter_map(|id| self.state.repositories.get(id));
        rows.map(|r| self.json().short_repository(r)).collect()
    }

    fn delete_repo(&mut self, repo: RepoId) -> Result<(), HubError> {
        let owner = self.repo(repo)?.owner;
        self.queue_webhook(repo, "repository", Some("deleted"), owner, vec![]);
        self.state.repositories.remove(&repo);
        self.state.renamed.retain(|_, to| *to != repo);
        for installation in self.state.installations.values_mut() {
            installation.repositories.remove(&repo);
        }
        std::fs::remove_dir_all(self.hub.git_dir(repo))
            .map_err(|source| HubError::Data { path: self.hub.git_dir(repo), source })
    }

    fn rename_repo(&mut self, repo: RepoId, new_name: &str) -> Result<(), HubError> {
        let row = self.repo(repo)?;
        let (owner, old, was) = (row.owner, self.state.name_of(row), row.name.clone());
        if self.state.repository_named(&old.owner, new_name).is_some() {
            return Err(HubError::Refused(format!("{}/{new_name} exists already", old.owner)));
        }
        self.state.renamed.insert(old.to_string().to_ascii_lowercase(), repo);
        self.repo_mut(repo)?.name = new_name.to_owned();
        let changes = json!({ "repository": { "name": { "from": was } } });
        self.queue_webhook(repo, "repository", Some("renamed"), owner, vec![("changes", changes)]);
        Ok(())
    }

    fn push_commit(
        &mut self,
        repo: RepoId,
        branch: &str,
        by: UserId,
        files: &[(&str, &[u8])],
        message: &str,
    ) -> Result<Oid, HubError> {
        let git = self.git(repo);
        let from = git.branch(branch);
        let default_branch = &self.repo(repo)?.default_branch;
        let parent = from.clone().or_else(|| git.branch(default_branch));
        let author = signature(self.account(by)?, self.at);
        let oid = commit_files(&git, branch, parent.as_ref(), files, message, &author)?;
        self.follow_branch_move(repo, branch, from, Some(oid.clone()), by)?;
        Ok(oid)
    }

    pub(super) fn open_pull(
        &mut self,
        repo: RepoId,
        by: UserId,
        new: NewPullRequest,
    ) -> Result<IssueNo, HubError> {
        let number = self.new_issue(repo, by, &new.title, new.body)?;
        self.git(repo).set_reference(&format!("refs/pull/{number}/head"), &new.head_oid)?;
        let id = self.state.fresh_id();
        let (draft, head) = (new.draft, new.head.clone());
        self.issue_mut(repo, number)?.pull = Some(HubPullRequest {
            id,
            draft,
            head: new.head,
            base: new.base,
            head_oid: new.head_oid,
            base_oid: new.base_oid,
            merged_at: None,
            merged_by: None,
            merge_commit: None,
            reviews: vec![],
        });
        self.publish_event(
            repo,
            Some(number),
            by,
            HubEventKind::PullOpened { title: new.title, draft, head },
        );
        self.queue_issue_webhook(repo, number, "opened", by, vec![]);
        Ok(number)
    }

    /// Marks a draft pull request as ready for review.
    pub(super) fn mark_ready(&mut self, repo: RepoId, number: IssueNo, by: UserId) -> Result<(), HubError> {
        let issue = self.issue_mut(repo, number)?;
        let title = issue.title.clone();
        match &mut issue.pull {
            Some(pull) if pull.draft => pull.draft = false,
            _ => return Ok(()),
        }
        let event = self.new_timeline_event("ready_for_review", by);
        self.add_timeline_event(repo, number, event);
        self.publish_event(repo, Some(number), by, HubEventKind::PullEdited { title });
        self.queue_issue_webhook(repo, number, "ready_for_review", by, vec![]);
        Ok(())
    }

    fn convert_to_draft(&mut self, repo: RepoId, number: IssueNo, by: UserId) -> Result<(), HubError> {
        if let Some(pull) = &mut self.issue_mut(repo, number)?.pull {
            pull.draft = true;
        }
        let event = self.new_timeline_event("convert_to_draft", by);
        self.add_timeline_event(repo, number, event);
        self.queue_issue_webhook(repo, number, "converted_to_draft", by, vec![]);
        Ok(())
    }

    pub(super) fn review(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        (state, body): (&str, &str),
        comments: &[(&str, u64, &str)],
    ) -> Result<u64, HubError> {
        let (id, at) = (self.state.fresh_id(), self.at);
        let comments = comments.iter().map(|(path, line, body)| HubLineComment {
            id: self.state.fresh_id(),
            path: (*path).to_owned(),
            line: *line,
            body: (*body).to_owned(),
            reply_to: None,
        });
        let comments = comments.collect();
        self.submit_review(repo, number, (by, id, at), (state, body), comments)
    }

    /// Replies in a review thread. As on GitHub, the reply becomes part of a new review.
    pub(super) fn reply(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        (to, body): (u64, &str),
    ) -> Result<HubLineComment, HubError> {
        let reviews = self.issue(repo, number)?.pull.iter().flat_map(|pull| &pull.reviews);
        let mut comments = reviews.flat_map(|review| &review.comments);
        let root = comments.find(|comment| comment.id == to && comment.reply_to.is_none());
        let root = root.ok_or_else(|| HubError::Missing(format!("review comment {to}")))?.clone();
        let (id, review) = (self.state.fresh_id(), self.state.fresh_id());
        let reply = HubLineComment { id, body: body.to_owned(), reply_to: Some(to), ..root };
        self.submit_review(repo, number, (by, review, self.at), ("COMMENTED", ""), vec![reply.clone()])?;
        Ok(reply)
    }

    fn submit_review(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        (by, id, at): (UserId, u64, Timestamp),
        (state, body): (&str, &str),
        comments: Vec<HubLineComment>,
    ) -> Result<u64, HubError> {
        let missing = || HubError::Missing(format!("pull request {number}"));
        let pull = self.issue_mut(repo, number)?.pull.as_mut().ok_or_else(missing)?;
        let review = HubReview {
            id,
            user: by,
            state: state.to_owned(),
            body: body.to_owned(),
            commit: pull.head_oid.clone(),
            at,
            comments,
        };
        pull.reviews.push(review.clone());
        self.publish_event(
            repo,
            Some(number),
            by,
            HubEventKind::Reviewed { state: state.to_owned(), body: body.to_owned() },
        );
        let (row, issue) = (self.repo(repo)?, self.issue(repo, number)?);
        let mut shown = self.json().review(row, issue, &review);
        // The event has the state in lower case, the API in upper case.
        shown["state"] = json!(state.to_ascii_lowercase());
        let body = vec![("review", shown), ("pull_request", self.json().pull(row, issue))];
        self.queue_webhook(repo, "pull_request_review", Some("submitted"), by, body);
        Ok(id)
    }

    pub(super) fn merge(&mut self, repo: RepoId, number: IssueNo, by: UserId) -> Result<(), HubError> {
        let at = self.at;
        let issue = self.issue(repo, number)?;
        let pull = issue.pull.clone().ok_or_else(|| HubError::Missing(format!("pull request {number}")))?;
        let issue_text = issue.body.clone();
        if !issue.open || pull.draft {
            return Err(HubError::Refused(format!("#{number} is closed or a draft and can't be merged")));
        }
        let git = self.git(repo);
        let base =
            git.branch(&pull.base).ok_or_else(|| HubError::Missing(format!("branch {}", pull.base)))?;
        let tree = git.merge_trees(&base, &pull.head_oid);
        let tree =
            tree.ok_or_else(|| HubError::Refused(format!("#{number} conflicts with {}", pull.base)))?;
        let who = signature(self.account(by)?, at);
        let message = format!("Merge pull request #{number} from {}\n\n{}", pull.head, issue.title);
        let commit = git.commit(&tree, &[base.clone(), pull.head_oid], &who, &who, &message)?;
        git.set_reference(&format!("refs/heads/{}", pull.base), &commit)?;
        if let Some(pull) = &mut self.issue_mut(repo, number)?.pull {
            pull.merged_at = Some(at);
            pull.merged_by = Some(by);
            pull.merge_commit = Some(commit.clone());
        }
        self.publish_event(repo, Some(number), by, HubEventKind::PullMerged);
        let text = issue_text.unwrap_or_default();
        let named = text.split("Closes #").skip(1);
        let number_of = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        for closed in named.filter_map(number_of).map(IssueNo).filter(|n| *n != number) {
            self.set_open(repo, closed, by, false, Some("completed"))?;
        }
        self.set_open(repo, number, by, false, None)?;
        self.follow_branch_move(repo, &pull.base, Some(base), Some(commit), by)
    }
}

/// A comment on a line of a file in a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineCommentView {
    pub id: u64,
    pub author: String,
    pub body: String,
    pub reply_to: Option<u64>,
}

/// A pull request to open, whose branches have already been resolved.
pub(super) struct NewPullRequest {
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) draft: bool,
    pub(super) head: String,
    pub(super) base: String,
    pub(super) head_oid: Oid,
    pub(super) base_oid: Oid,
}

fn into_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn commit_files(
    git: &BareRepository,
    branch: &str,
    parent: Option<&Oid>,
    files: &[(&str, &[u8])],
    message: &str,
    author: &GitSignature,
) -> Result<Oid, HubError> {
    let mut entries = Vec::new();
    for (path, bytes) in files {
        let oid = Some(git.write_blob(bytes)?);
        entries.push(TreeChange { path: (*path).to_owned(), mode: "100644".into(), oid });
    }
    let base = parent.and_then(|p| git.tree_of(p.as_str()));
    let tree = git.make_tree(base.as_ref(), &entries)?;
    let parents: Vec<Oid> = parent.cloned().into_iter().collect();
    let commit = git.commit(&tree, &parents, author, author, message)?;
    git.set_reference(&format!("refs/heads/{branch}"), &commit)?;
    Ok(commit)
}

impl JsonRenderer<'_> {
    /// Returns the installation in the short form used in webhook payloads.
    pub(super) fn installation_stub(id: InstallationId) -> Value {
        json!({ "id": id, "node_id": super::json::node_id("I", id.0) })
    }
}
