//! One repository: what it is, its issues and their labels. Comments, commits, pull requests and
//! permissions are in their own files, all on the same handle.

use std::sync::Arc;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::OnceCell;

use super::{
    api::{Answer, As, Request, path_and_query},
    app::GitHub,
    error::Fault,
    manifest::{ADD_LABELS, CREATE_LABEL, Call, ISSUE, LABEL, REMOVE_LABEL, REPOSITORY},
    wire::{User, author},
};
use crate::types::{Actor, InstallationId, IssueNo, RepoId, RepoName, Timestamp};

/// A repository, by its number; `name` is how it is addressed. Cheap to make and to clone.
///
/// Before its first write a handle makes sure that the name still means that number.
#[derive(Debug, Clone)]
pub struct Repo {
    github: GitHub,
    installation: InstallationId,
    id: RepoId,
    name: RepoName,
    known: Arc<OnceCell<RepoInfo>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoInfo {
    pub id: RepoId,
    /// The name it has now, which is not the handle's after a rename.
    pub name: RepoName,
    pub default_branch: String,
    pub private: bool,
    pub archived: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub number: IssueNo,
    pub title: String,
    /// Empty where GitHub has none.
    pub body: String,
    pub state_open: bool,
    pub author: Actor,
    pub labels: Vec<String>,
    pub locked: bool,
    pub is_pull: bool,
    pub updated_at: Timestamp,
    pub url: String,
}

/// A label and how it looks; colour and description are used when it does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelSpec<'a> {
    pub name: &'a str,
    /// Six hexadecimal digits without `#`.
    pub color: &'a str,
    pub description: &'a str,
}

impl Repo {
    pub(super) fn new(github: GitHub, installation: InstallationId, id: RepoId, name: RepoName) -> Self {
        Self { github, installation, id, name, known: Arc::default() }
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

    pub(super) fn installation(&self) -> InstallationId {
        self.installation
    }

    fn who(&self) -> As {
        As::Installation(self.installation)
    }

    /// A call in this repository; `rest` fills the route's placeholders after owner and name.
    pub(super) fn request(&self, call: &'static Call, rest: &[&str]) -> Request {
        let values: Vec<&str> = [self.name.owner.as_str(), self.name.name.as_str()]
            .into_iter()
            .chain(rest.iter().copied())
            .collect();
        Request::to(call, &values)
    }

    /// Sends, and follows a redirect that leads to this same repository under its new name. Any
    /// other redirect (an issue that went elsewhere) is the caller's to know.
    pub(super) async fn send(&self, request: Request) -> Result<Answer, Fault> {
        let api = self.github.api();
        match api.send(self.who(), request.clone()).await {
            Err(Fault::Moved { call, location }) => match self.new_route(&request, &location) {
                Some(route) => api.send(self.who(), request.moved_to(route)).await,
                None => Err(Fault::Moved { call, location }),
            },
            other => other,
        }
    }

    /// All items of a listing, as [`send`](Self::send) sends.
    pub(super) async fn paged<T: DeserializeOwned>(&self, request: Request) -> Result<Vec<T>, Fault> {
        let api = self.github.api();
        match api.paged(self.who(), request.clone(), None).await {
            Err(Fault::Moved { call, location }) => match self.new_route(&request, &location) {
                Some(route) => api.paged(self.who(), request.moved_to(route), None).await,
                None => Err(Fault::Moved { call, location }),
            },
            other => other,
        }
    }

    /// `/repositories/ID/…` if `location` is that and the rest of the route is unchanged.
    fn new_route(&self, request: &Request, location: &str) -> Option<String> {
        let old = format!("/repos/{}/{}", self.name.owner, self.name.name);
        let rest = request.route().strip_prefix(&old)?;
        let new = format!("/repositories/{}{rest}", self.id);
        let target = path_and_query(location)?;
        let target = target.strip_prefix(self.github.api().base_path())?;
        (target.split('?').next() == Some(new.as_str())).then_some(new)
    }

    /// Sends a write, once the name is known to mean this repository still.
    pub(super) async fn write(&self, request: Request) -> Result<Answer, Fault> {
        self.known().await?;
        self.send(request).await
    }

    pub(super) async fn known(&self) -> Result<&RepoInfo, Fault> {
        let look = || async {
            match self.github.described(self.id, &self.name) {
                Some(info) => Ok(info),
                None => self.info().await,
            }
        };
        self.known.get_or_try_init(look).await
    }

    /// What the repository is now. [`Fault::Gone`] when its name belongs to another one.
    pub async fn info(&self) -> Result<RepoInfo, Fault> {
        #[derive(Deserialize)]
        struct Repository {
            id: u64,
            full_name: String,
            default_branch: String,
            #[serde(default)]
            private: bool,
            #[serde(default)]
            archived: bool,
        }
        let repo: Repository = self.send(self.request(&REPOSITORY, &[])).await?.json()?;
        if repo.id != self.id.0 {
            let what = format!("repository {} (number {}): another has its name now", self.name, self.id);
            return Err(Fault::Gone { what });
        }
        let info = RepoInfo {
            id: self.id,
            name: repo.full_name.parse().map_err(|e| Fault::unexpected(&REPOSITORY.to_string(), e))?,
            default_branch: repo.default_branch,
            private: repo.private,
            archived: repo.archived,
        };
        self.github.describe(&self.name, &info);
        Ok(info)
    }

    /// [`Fault::Gone`] when it was deleted, [`Fault::Moved`] when it was transferred.
    pub async fn issue(&self, number: IssueNo) -> Result<Issue, Fault> {
        #[derive(Deserialize)]
        struct Found {
            number: u64,
            title: String,
            body: Option<String>,
            state: String,
            user: Option<User>,
            #[serde(default)]
            labels: Vec<LabelText>,
            #[serde(default)]
            locked: bool,
            pull_request: Option<serde_json::Value>,
            updated_at: String,
            #[serde(default)]
            html_url: String,
        }
        // The REST description allows both forms.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum LabelText {
            Name(String),
            Whole { name: Option<String> },
        }
        let found: Found = self.send(self.request(&ISSUE, &[&number.to_string()])).await?.json()?;
        let label = |label| match label {
            LabelText::Name(name) => Some(name),
            LabelText::Whole { name } => name,
        };
        Ok(Issue {
            number: IssueNo(found.number),
            title: found.title,
            body: found.body.unwrap_or_default(),
            state_open: found.state == "open",
            author: author(found.user),
            labels: found.labels.into_iter().filter_map(label).collect(),
            locked: found.locked,
            is_pull: found.pull_request.is_some(),
            updated_at: time(&ISSUE, &found.updated_at)?,
            url: found.html_url,
        })
    }

    /// Puts a label on an issue; creates it in the repository at its first use.
    pub async fn ensure_label(&self, issue: IssueNo, label: LabelSpec<'_>) -> Result<(), Fault> {
        self.define_label(label).await?;
        let add = self.request(&ADD_LABELS, &[&issue.to_string()]).body(json!({ "labels": [label.name] }));
        self.write(add).await.map(drop)
    }

    /// Makes a label known in the repository. One that is there keeps the look people gave it.
    pub async fn define_label(&self, label: LabelSpec<'_>) -> Result<(), Fault> {
        match self.send(self.request(&LABEL, &[label.name])).await {
            Ok(_) => Ok(()),
            Err(Fault::NotFound { .. }) => self.create_label(label).await,
            Err(fault) => Err(fault),
        }
    }

    async fn create_label(&self, label: LabelSpec<'_>) -> Result<(), Fault> {
        let LabelSpec { name, color, description } = label;
        let body = json!({ "name": name, "color": color, "description": description });
        match self.write(self.request(&CREATE_LABEL, &[]).body(body)).await {
            // Someone was faster; adding it will tell if it was something else.
            Ok(_) | Err(Fault::Rejected { status: 422, .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Takes a label off an issue. That it is not there is fine.
    pub async fn remove_label(&self, issue: IssueNo, name: &str) -> Result<(), Fault> {
        match self.write(self.request(&REMOVE_LABEL, &[&issue.to_string(), name])).await {
            Ok(_) | Err(Fault::NotFound { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// A time in an answer of `call`.
pub(super) fn time(call: &Call, text: &str) -> Result<Timestamp, Fault> {
    Timestamp::parse(text).map_err(|e| Fault::unexpected(&call.to_string(), e))
}
