//! Repository handle, with calls for the repository itself, its issues and its labels. Calls for comments, commits,
//! pull requests and permissions are in their own files.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::OnceCell;

use super::{
    api::{ApiCallCounter, ApiIdentity, ApiRequest, ApiResponse, path_and_query},
    app::GitHub,
    error::GitHubApiError,
    graphql::{GraphQlField, GraphQlResponse},
    manifest::{
        ADD_LABELS, CHANGE_LABELS, CREATE_LABEL, GitHubEndpoint, ISSUE, LABEL, REMOVE_LABEL, REPOSITORY,
        REPOSITORY_BY_ID,
    },
    wire::{GitHubUser, author_or_ghost},
    write_pacing::WritePriority,
};
use crate::{
    documents::unix_lines,
    limits,
    types::{Actor, Hash, InstallationId, IssueNo, RepoId, RepoName, Timestamp},
};

/// A handle for a repository. The repository is identified by its id; `name` is used in routes. Cheap to create and
/// clone.
///
/// Before its first write, the handle verifies that the name still belongs to that id.
#[derive(Debug, Clone)]
pub struct GitHubRepo {
    github: GitHub,
    installation: InstallationId,
    id: RepoId,
    name: RepoName,
    known: Arc<OnceCell<RepoInfo>>,
    counter: Option<ApiCallCounter>,
    /// Priority of all writes of this handle. `None` means that each write uses its default priority.
    priority: Option<WritePriority>,
    /// Whether GitHub redirected a call of this handle, because the name is outdated.
    redirected: Arc<AtomicBool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoInfo {
    pub id: RepoId,
    /// GraphQL node id of the repository.
    pub node: String,
    /// Current name of the repository; differs from the handle's name after a rename.
    pub name: RepoName,
    pub default_branch: String,
    pub private: bool,
    pub archived: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub number: IssueNo,
    /// GraphQL node id of the issue.
    pub node: String,
    pub title: String,
    /// Body of the issue; empty if GitHub sends none.
    pub body: String,
    /// Hash of the title and body as GitHub sent them.
    pub digest: Hash,
    pub state_open: bool,
    pub author: Actor,
    pub labels: Vec<String>,
    pub locked: bool,
    pub is_pull: bool,
    pub updated_at: Timestamp,
    pub url: String,
}

#[derive(Deserialize)]
struct RepositoryResponse {
    id: u64,
    #[serde(default)]
    node_id: String,
    full_name: String,
    default_branch: String,
    /// Whether the repository is private. True if GitHub omits the field, so that a private repository is never treated
    /// as public.
    #[serde(default = "yes")]
    private: bool,
    #[serde(default)]
    archived: bool,
}

fn yes() -> bool {
    true
}

impl RepositoryResponse {
    fn into_info(self) -> Result<RepoInfo, GitHubApiError> {
        Ok(RepoInfo {
            id: RepoId(self.id),
            node: self.node_id,
            name: self
                .full_name
                .parse()
                .map_err(|e| GitHubApiError::unexpected(&REPOSITORY.to_string(), e))?,
            default_branch: self.default_branch,
            private: self.private,
            archived: self.archived,
        })
    }
}

/// A change of an issue's labels: one label is removed, one is added, or one replaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelChange<'a> {
    pub issue: IssueNo,
    pub remove: Option<&'a str>,
    pub add: Option<LabelSpec<'a>>,
}

/// Node id of a label.
#[derive(Debug, Clone, Deserialize)]
struct LabelNode {
    #[serde(default)]
    node_id: String,
}

/// State of a repository that GitHub no longer finds under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositoryAvailability {
    /// The repository is still accessible, possibly under another name.
    Available(RepoInfo),
    /// The repository was deleted or removed from the installation. GitHub does not distinguish these cases.
    Unreachable,
    Suspended,
    Uninstalled,
}

/// A label. Its colour and description are used only when the label is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelSpec<'a> {
    pub name: &'a str,
    /// Colour as six hexadecimal digits without `#`.
    pub color: &'a str,
    pub description: &'a str,
}

impl GitHubRepo {
    pub(super) fn new(github: GitHub, installation: InstallationId, id: RepoId, name: RepoName) -> Self {
        let (known, redirected) = (Arc::default(), Arc::default());
        Self { github, installation, id, name, known, counter: None, priority: None, redirected }
    }

    /// Returns the same handle, which also calls `counter` for each API call.
    pub fn with_counter(self, counter: ApiCallCounter) -> Self {
        Self { counter: Some(counter), ..self }
    }

    /// Returns the same handle with the highest priority for its writes. Used for questions, because a person can
    /// answer a question only after it is posted.
    pub fn with_question_priority(self) -> Self {
        Self { priority: Some(WritePriority::Question), ..self }
    }

    /// Returns the same handle with the priority of replies to a waiting person for its writes.
    pub fn with_reply_priority(self) -> Self {
        Self { priority: Some(WritePriority::Acknowledgement), ..self }
    }

    pub fn id(&self) -> RepoId {
        self.id
    }

    pub fn name(&self) -> &RepoName {
        &self.name
    }

    pub(super) fn github(&self) -> &GitHub {
        &self.github
    }

    pub fn installation(&self) -> InstallationId {
        self.installation
    }

    /// Returns the bot account of the App.
    pub async fn bot(&self) -> Result<Actor, GitHubApiError> {
        self.github.bot_for_installation(self.installation).await
    }

    /// Returns whether GitHub redirected a call of this handle because the repository's name is outdated.
    pub fn was_redirected(&self) -> bool {
        self.redirected.load(Ordering::Relaxed)
    }

    fn identity(&self) -> ApiIdentity {
        ApiIdentity::Installation(self.installation)
    }

    /// Builds a call in this repository. `rest` fills the placeholders of the route that follow owner and name.
    pub(super) fn request(&self, call: &'static GitHubEndpoint, rest: &[&str]) -> ApiRequest {
        let values: Vec<&str> = [self.name.owner.as_str(), self.name.name.as_str()]
            .into_iter()
            .chain(rest.iter().copied())
            .collect();
        ApiRequest::new(call, &values).with_counter(self.counter.clone())
    }

    /// Builds a call whose route names no repository.
    pub(super) fn request_outside_repo(&self, call: &'static GitHubEndpoint, values: &[&str]) -> ApiRequest {
        ApiRequest::new(call, values).with_counter(self.counter.clone())
    }

    /// Sends a request. Follows a redirect only if it leads to this repository under its new name. Any other redirect,
    /// such as for a transferred issue, is an error.
    pub(super) async fn send(&self, request: ApiRequest) -> Result<ApiResponse, GitHubApiError> {
        let api = self.github.api();
        match api.send(self.identity(), request.clone()).await {
            Err(GitHubApiError::Moved { call, location }) => match self.new_route(&request, &location) {
                Some(route) => api.send(self.identity(), request.with_route(route)).await,
                None => Err(GitHubApiError::Moved { call, location }),
            },
            other => other,
        }
    }

    /// Returns all items of a listing. Redirects are handled as in [`send`](Self::send).
    pub(super) async fn list_all<T: DeserializeOwned>(
        &self,
        request: ApiRequest,
    ) -> Result<Vec<T>, GitHubApiError> {
        let api = self.github.api();
        match api.list_all(self.identity(), request.clone(), None).await {
            Err(GitHubApiError::Moved { call, location }) => match self.new_route(&request, &location) {
                Some(route) => api.list_all(self.identity(), request.with_route(route), None).await,
                None => Err(GitHubApiError::Moved { call, location }),
            },
            other => other,
        }
    }

    /// Returns the number of pages of a listing. If GitHub does not report it, reads all pages to count them.
    pub(super) async fn page_count(
        &self,
        first: &ApiResponse,
        page: impl Fn(usize) -> ApiRequest,
    ) -> Result<usize, GitHubApiError> {
        if let Some(pages) = first.page_count() {
            return Ok(pages);
        }
        for number in 2..limits::GITHUB_PAGES {
            if !self.send(page(number)).await?.has_next_page() {
                return Ok(number);
            }
        }
        Ok(limits::GITHUB_PAGES)
    }

    /// Returns the same route under `/repositories/ID` if `location`, the target of a redirect, is that route;
    /// otherwise `None`.
    fn new_route(&self, request: &ApiRequest, location: &str) -> Option<String> {
        let old = format!("/repos/{}/{}", self.name.owner, self.name.name);
        let rest = request.route().strip_prefix(&old)?;
        let new = format!("/repositories/{}{rest}", self.id);
        let target = path_and_query(location)?;
        let target = target.strip_prefix(self.github.api().base_path())?;
        if target.split('?').next() != Some(new.as_str()) {
            return None;
        }
        self.redirected.store(true, Ordering::Relaxed);
        Some(new)
    }

    /// Sends a write after verifying that the name still belongs to this repository.
    pub(super) async fn write(&self, request: ApiRequest) -> Result<ApiResponse, GitHubApiError> {
        self.verify_identity().await?;
        self.send(match self.priority {
            Some(priority) => request.priority(priority),
            None => request,
        })
        .await
    }

    pub(super) async fn verify_identity(&self) -> Result<&RepoInfo, GitHubApiError> {
        let look = || async {
            match self.github.cached_repo_info(self.id, &self.name) {
                Some(info) => Ok(info),
                None => self.info().await,
            }
        };
        self.known.get_or_try_init(look).await
    }

    /// Returns the repository's current name and settings.
    ///
    /// # Errors
    /// [`GitHubApiError::Gone`] if the name now belongs to another repository.
    pub async fn info(&self) -> Result<RepoInfo, GitHubApiError> {
        let repo: RepositoryResponse = self.send(self.request(&REPOSITORY, &[]).cacheable()).await?.json()?;
        if repo.id != self.id.0 {
            let what =
                format!("repository {} (number {}): another repository has its name now", self.name, self.id);
            return Err(GitHubApiError::Gone { what });
        }
        let info = repo.into_info()?;
        self.github.cache_repo_info(&self.name, &info);
        Ok(info)
    }

    /// Returns the state of the repository. Used after GitHub responded 404 to a call with the repository's name.
    pub async fn availability(&self) -> Result<RepositoryAvailability, GitHubApiError> {
        match self.github.installation(self.installation).await? {
            None => return Ok(RepositoryAvailability::Uninstalled),
            Some(installation) if installation.suspended => return Ok(RepositoryAvailability::Suspended),
            Some(_) => {}
        }
        let by_id =
            ApiRequest::new(&REPOSITORY_BY_ID, &[&self.id.to_string()]).with_counter(self.counter.clone());
        match self.github.api().send(self.identity(), by_id).await {
            Ok(answer) => {
                Ok(RepositoryAvailability::Available(answer.json::<RepositoryResponse>()?.into_info()?))
            }
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => {
                Ok(RepositoryAvailability::Unreachable)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Removes the record that says that this write is uncertain, and returns `known` unchanged.
    pub fn resolve_uncertain_write<T>(&self, about: &str, known: T) -> T {
        self.github.uncertain_writes().resolve(&format!("{} {about}", self.id));
        known
    }

    /// Returns the error to report for a refusal that GitHub's current state does not explain. Until
    /// [`limits::GITHUB_LAG`] has passed, it is a temporary error, because GitHub's reads may lag its writes. After
    /// that, it is the refusal itself.
    pub fn unless_reads_lag(&self, about: &str, refusal: GitHubApiError) -> GitHubApiError {
        let (doubts, now) = (self.github.uncertain_writes(), self.github.now());
        let about = format!("{} {about}", self.id);
        if doubts.start_or_age(&about, now) < limits::GITHUB_LAG {
            return GitHubApiError::transient(
                &about,
                format!("GitHub refused it, and its current state does not explain why ({refusal})"),
            );
        }
        doubts.resolve(&about);
        refusal
    }

    /// Returns an issue.
    ///
    /// # Errors
    /// [`GitHubApiError::Gone`] if the issue was deleted, [`GitHubApiError::Moved`] if it was transferred.
    pub async fn issue(&self, number: IssueNo) -> Result<Issue, GitHubApiError> {
        #[derive(Deserialize)]
        struct IssueResponse {
            number: u64,
            #[serde(default)]
            node_id: String,
            title: String,
            body: Option<String>,
            state: String,
            user: Option<GitHubUser>,
            #[serde(default)]
            labels: Vec<LabelResponse>,
            #[serde(default)]
            locked: bool,
            pull_request: Option<serde_json::Value>,
            updated_at: String,
            #[serde(default)]
            html_url: String,
        }
        // GitHub's REST description allows both forms.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum LabelResponse {
            Name(String),
            Whole { name: Option<String> },
        }
        let found: IssueResponse =
            self.send(self.request(&ISSUE, &[&number.to_string()]).cacheable()).await?.json_verbatim()?;
        self.github.cache_node_id(self.issue_key(number), &found.node_id);
        let body = found.body.unwrap_or_default();
        let label = |label| match label {
            LabelResponse::Name(name) => Some(name),
            LabelResponse::Whole { name } => name,
        };
        Ok(Issue {
            number: IssueNo(found.number),
            node: found.node_id,
            digest: Hash::digest_parts([found.title.as_bytes(), body.as_bytes()]),
            title: unix_lines(found.title),
            body: unix_lines(body),
            state_open: found.state == "open",
            author: author_or_ghost(found.user),
            labels: found.labels.into_iter().filter_map(label).collect(),
            locked: found.locked,
            is_pull: found.pull_request.is_some(),
            updated_at: parse_time(&ISSUE, &found.updated_at)?,
            url: found.html_url,
        })
    }

    /// Adds a label to an issue. Creates the label in the repository if it does not exist.
    pub async fn ensure_label(&self, issue: IssueNo, label: LabelSpec<'_>) -> Result<(), GitHubApiError> {
        self.define_label(label).await?;
        let add = self.request(&ADD_LABELS, &[&issue.to_string()]).body(json!({ "labels": [label.name] }));
        self.write(add.priority(WritePriority::StatusUpdate)).await.map(drop)
    }

    /// Removes a label if the issue has it, and adds another one. Never replaces the whole set of labels, since
    /// somebody may be changing it at the same time.
    pub async fn change_label(&self, change: &LabelChange<'_>) -> Result<(), GitHubApiError> {
        if let LabelChange { issue, remove: None, add: Some(on) } = *change {
            return self.ensure_label(issue, on).await;
        }
        let fields = self.label_mutations(change).await?;
        if fields.is_empty() {
            return Ok(());
        }
        let about = format!("labels of issue {}", change.issue);
        let done = self.mutate(&CHANGE_LABELS, &fields, WritePriority::StatusUpdate).await?;
        match self.finish_label_change(&CHANGE_LABELS, &done, &fields, change).await {
            Ok(()) => {
                self.resolve_uncertain_write(&about, ());
                Ok(())
            }
            // GitHub may not show a new label everywhere yet.
            Err(missing @ GitHubApiError::NotFound { .. }) => Err(self.unless_reads_lag(&about, missing)),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the mutations for a label change. If the label to remove does not exist in the repository, no removal is
    /// needed, because no issue can have it.
    pub(super) async fn label_mutations(
        &self,
        change: &LabelChange<'_>,
    ) -> Result<Vec<GraphQlField>, GitHubApiError> {
        let add = match change.add {
            Some(on) => Some(match self.github.node_id(&self.label_key(on.name)) {
                Some(node) => node,
                None => self.define_label(on).await?,
            }),
            None => None,
        };
        let remove = match change.remove {
            Some(off) => self.cached_label_id(off).await?,
            None => None,
        };
        if add.is_none() && remove.is_none() {
            return Ok(Vec::new());
        }
        let issue = match self.github.node_id(&self.issue_key(change.issue)) {
            Some(node) => node,
            None => self.issue(change.issue).await?.node,
        };
        let field = |alias, mutation, takes, label: String| GraphQlField {
            alias,
            mutation,
            input_type: takes,
            selection: "clientMutationId",
            input: json!({ "labelableId": issue, "labelIds": [label] }),
        };
        let add = add.map(|label| field("add", "addLabelsToLabelable", "AddLabelsToLabelableInput", label));
        let (mutation, takes) = ("removeLabelsFromLabelable", "RemoveLabelsFromLabelableInput");
        let remove = remove.map(|label| field("remove", mutation, takes, label));
        Ok(add.into_iter().chain(remove).collect())
    }

    /// Checks the result of each label mutation. After a failure, drops the cached node ids. If the removal by node id
    /// failed, removes the label by name, because someone may have deleted and recreated the label.
    pub(super) async fn finish_label_change(
        &self,
        call: &GitHubEndpoint,
        done: &GraphQlResponse,
        fields: &[GraphQlField],
        change: &LabelChange<'_>,
    ) -> Result<(), GitHubApiError> {
        let mut failed = None;
        for field in fields {
            let Err(fault) = done.field(call, field.alias) else { continue };
            let labels = change.remove.into_iter().chain(change.add.map(|on| on.name));
            labels.for_each(|name| self.github.forget_node_id(&self.label_key(name)));
            self.github.forget_node_id(&self.issue_key(change.issue));
            match (fault, change.remove) {
                (GitHubApiError::NotFound { .. } | GitHubApiError::Rejected { .. }, Some(off))
                    if field.alias == "remove" =>
                {
                    self.remove_label(change.issue, off).await?;
                }
                (fault, _) => drop(failed.get_or_insert(fault)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Creates a label in the repository if it does not exist, and returns its node id. An existing label keeps its
    /// colour and description.
    pub async fn define_label(&self, label: LabelSpec<'_>) -> Result<String, GitHubApiError> {
        let LabelSpec { name, color, description } = label;
        if let Some(found) = self.fetch_label_id(name).await? {
            return Ok(found);
        }
        let body = json!({ "name": name, "color": color, "description": description });
        let create = self.request(&CREATE_LABEL, &[]).body(body).priority(WritePriority::StatusUpdate);
        match self.write(create).await {
            Ok(answer) => Ok(self.cache_label_id(name, answer.json()?)),
            // Someone else may have created it meanwhile, or the refusal has another reason.
            Err(fault @ GitHubApiError::Rejected { status: 422, .. }) => {
                match self.fetch_label_id(name).await? {
                    Some(found) => Ok(self.resolve_uncertain_write(&format!("label {name}"), found)),
                    None => Err(self.unless_reads_lag(&format!("label {name}"), fault)),
                }
            }
            Err(fault) => Err(fault),
        }
    }

    fn label_key(&self, name: &str) -> String {
        format!("{} label {}", self.id, name.to_lowercase())
    }

    fn issue_key(&self, number: IssueNo) -> String {
        format!("{} issue {number}", self.id)
    }

    fn cache_label_id(&self, name: &str, label: LabelNode) -> String {
        self.github.cache_node_id(self.label_key(name), &label.node_id);
        label.node_id
    }

    /// Returns the node id of a label. The cached id is used if it is younger than an hour.
    async fn cached_label_id(&self, name: &str) -> Result<Option<String>, GitHubApiError> {
        match self.github.node_id(&self.label_key(name)) {
            Some(node) => Ok(Some(node)),
            None => self.fetch_label_id(name).await,
        }
    }

    /// Returns whether the repository has this label.
    pub async fn has_label(&self, name: &str) -> Result<bool, GitHubApiError> {
        Ok(self.fetch_label_id(name).await?.is_some())
    }

    async fn fetch_label_id(&self, name: &str) -> Result<Option<String>, GitHubApiError> {
        match self.send(self.request(&LABEL, &[name]).cacheable()).await {
            Ok(answer) => Ok(Some(self.cache_label_id(name, answer.json()?))),
            Err(GitHubApiError::NotFound { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Removes a label from an issue. Succeeds also if the issue does not have the label.
    pub async fn remove_label(&self, issue: IssueNo, name: &str) -> Result<(), GitHubApiError> {
        let remove =
            self.request(&REMOVE_LABEL, &[&issue.to_string(), name]).priority(WritePriority::Acknowledgement);
        match self.write(remove).await {
            Ok(_) | Err(GitHubApiError::NotFound { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// Parses a time from the response to `call`.
pub(super) fn parse_time(call: &GitHubEndpoint, text: &str) -> Result<Timestamp, GitHubApiError> {
    Timestamp::parse(text).map_err(|e| GitHubApiError::unexpected(&call.to_string(), e))
}

#[cfg(test)]
mod tests {
    use super::RepositoryResponse;

    #[test]
    fn repository_counts_as_private_when_the_private_field_is_missing() {
        for (field, private) in [("", true), (", \"private\": true", true), (", \"private\": false", false)] {
            let text =
                format!("{{\"id\": 1, \"full_name\": \"maya/tally\", \"default_branch\": \"main\"{field}}}");
            let found: RepositoryResponse = serde_json::from_str(&text).unwrap();
            assert_eq!(found.into_info().unwrap().private, private, "{text}");
        }
    }
}
