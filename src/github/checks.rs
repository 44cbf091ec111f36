//! Check runs that show a run's state on one of our commits. A check carries a marker, by which a retried step
//! recognises the check that it created before.
//!
//! GitHub never reopens or deletes a completed check, so a new check is created in its place. If several checks have
//! the same name, GitHub shows only the newest.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    comments::first_piece,
    error::GitHubApiError,
    manifest::{CHECKS, CREATE_CHECK, EDIT_CHECK},
    outbound::OutboundBody,
    repo::GitHubRepo,
    write_pacing::WritePriority,
};
use crate::{
    limits,
    types::{Hash, IssueNo, Oid, RunId},
};

/// Maximum number of annotations that GitHub accepts per request.
pub const MAX_ANNOTATIONS: usize = 50;

/// Commit, branch and name of a check.
#[derive(Debug, Clone)]
pub struct CheckRunTarget {
    pub branch: String,
    pub head: Oid,
    pub name: String,
    pub run: RunId,
    /// Identifier that distinguishes this check from the run's other checks.
    pub turn: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckRunStatus {
    InProgress,
    Success,
    ActionRequired,
    Failure,
    Cancelled,
}

/// Content of a check.
#[derive(Debug, Clone)]
pub struct CheckRunContent {
    pub state: CheckRunStatus,
    /// Title of the check: one line without Markdown.
    pub title: String,
    pub summary: OutboundBody,
    /// URL of the details page.
    pub url: Option<String>,
    pub annotations: Vec<Annotation>,
}

/// An annotation on a line of a file; its texts are not Markdown.
#[derive(Debug, Clone)]
pub struct Annotation {
    pub path: String,
    pub line: usize,
    pub level: AnnotationLevel,
    pub title: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationLevel {
    Notice,
    Warning,
    Failure,
}

/// One of our checks, as GitHub shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct PostedCheckRun {
    id: u64,
    external_id: Option<String>,
    status: String,
    conclusion: Option<String>,
}

impl CheckRunTarget {
    fn marker(&self) -> String {
        format!("{}/{}", self.run, self.turn)
    }
}

impl PostedCheckRun {
    /// Returns the run whose state this check shows.
    pub fn run_id(&self) -> Option<RunId> {
        self.external_id.as_ref()?.split_once('/')?.0.parse().ok()
    }

    fn is_in_progress(&self) -> bool {
        self.status != "completed"
    }
}

impl CheckRunStatus {
    /// Returns GitHub's conclusion for this state; `None` while the run is in progress.
    fn conclusion(self) -> Option<&'static str> {
        match self {
            Self::InProgress => None,
            Self::Success => Some("success"),
            Self::ActionRequired => Some("action_required"),
            Self::Failure => Some("failure"),
            Self::Cancelled => Some("cancelled"),
        }
    }

    pub fn is_in_progress(self) -> bool {
        self.conclusion().is_none()
    }
}

impl CheckRunContent {
    /// Returns a hash of everything except the annotations.
    pub fn digest(&self) -> Hash {
        Hash::digest(Self { annotations: Vec::new(), ..self.clone() }.body().to_string().as_bytes())
    }

    fn body(&self) -> Value {
        let level = |level| match level {
            AnnotationLevel::Notice => "notice",
            AnnotationLevel::Warning => "warning",
            AnnotationLevel::Failure => "failure",
        };
        let annotations = self.annotations.iter().take(MAX_ANNOTATIONS).map(|a| {
            json!({ "path": a.path, "start_line": a.line, "end_line": a.line, "annotation_level": level(a.level),
                    "title": a.title, "message": a.message })
        });
        let output = json!({ "title": self.title, "summary": first_piece(&self.summary),
                             "annotations": annotations.collect::<Value>() });
        let mut body = match self.state.conclusion() {
            None => json!({ "status": "in_progress", "output": output }),
            Some(conclusion) => {
                json!({ "status": "completed", "conclusion": conclusion, "output": output })
            }
        };
        if let Some(url) = &self.url {
            body["details_url"] = json!(url);
        }
        body
    }
}

impl GitHubRepo {
    /// Creates a check and returns its id.
    ///
    /// With `interrupted`, an earlier attempt may have created the check, so it is looked up first. This is done twice,
    /// because GitHub may not list a new check yet. With `lost`, the run may have another check that was never
    /// recorded. If that check is in progress or has the same conclusion, it is updated and its id is returned.
    ///
    /// # Errors
    /// [`GitHubApiError::Invalid`] for a branch that is not ours, or for the head of the default branch.
    pub async fn ensure_check(
        &self,
        place: &CheckRunTarget,
        text: &CheckRunContent,
        interrupted: bool,
        lost: bool,
    ) -> Result<u64, GitHubApiError> {
        let marker = place.marker();
        if interrupted || lost {
            let (doubts, now) = (self.github().uncertain_writes(), self.github().now());
            let about = format!("{} check {marker} on {}", self.id(), place.head);
            let same = |check: &&PostedCheckRun| {
                let comes_to =
                    check.is_in_progress() || check.conclusion.as_deref() == text.state.conclusion();
                check.external_id.as_ref() == Some(&marker)
                    || (lost && check.run_id() == Some(place.run) && comes_to)
            };
            let there = self.our_checks(&place.head, &place.name).await?;
            if let Some(check) = there.iter().filter(same).max_by_key(|check| check.id) {
                doubts.resolve(&about);
                self.edit_check(check.id, text, interrupted || !check.is_in_progress()).await?;
                return Ok(check.id);
            }
            if interrupted && doubts.start_or_age(&about, now) < limits::LOOKUP_INTERVAL {
                let why = "an earlier attempt may have created it; will look once more";
                return Err(GitHubApiError::transient(&about, why));
            }
            doubts.resolve(&about);
        }
        let refuse = |why: &str| Err(GitHubApiError::Invalid(format!("a check on {why}")));
        if IssueNo::from_branch(&place.branch).is_none() {
            return refuse("a branch that is not ours");
        }
        let default = self.verify_identity().await?.default_branch.clone();
        if self.branch(&default).await?.as_ref() == Some(&place.head) {
            return refuse("the head of the default branch");
        }
        let mut body = text.body();
        body["name"] = json!(place.name);
        body["head_sha"] = json!(place.head);
        body["external_id"] = json!(marker);
        let create = self.request(&CREATE_CHECK, &[]).body(body).priority(WritePriority::StatusUpdate);
        Ok(self.write(create).await?.json::<PostedCheckRun>()?.id)
    }

    /// Replaces the content of a check. GitHub adds annotations at each edit and never removes any. If `again` is true,
    /// an earlier edit may have taken effect, so this edit sends no annotations.
    pub async fn edit_check(
        &self,
        id: u64,
        text: &CheckRunContent,
        again: bool,
    ) -> Result<(), GitHubApiError> {
        let mut body = text.body();
        if again {
            body["output"]["annotations"] = json!([]);
        }
        let edit = self.request(&EDIT_CHECK, &[&id.to_string()]).body(body);
        self.write(edit.priority(WritePriority::StatusUpdate)).await.map(drop)
    }

    /// Sends a check's current state again. After somebody asks to rerun the check, GitHub treats the check suite as
    /// unfinished until this call.
    pub async fn resend_check(&self, check: &PostedCheckRun) -> Result<(), GitHubApiError> {
        let mut body = json!({ "status": check.status });
        if let Some(conclusion) = &check.conclusion {
            body["conclusion"] = json!(conclusion);
        }
        self.write(self.request(&EDIT_CHECK, &[&check.id.to_string()]).body(body)).await.map(drop)
    }

    /// Returns our checks on a commit that have this name, or all our checks on the commit if `name` is empty.
    pub async fn our_checks(&self, head: &Oid, name: &str) -> Result<Vec<PostedCheckRun>, GitHubApiError> {
        let request = self.request(&CHECKS, &[head.as_str()]).query("app_id", self.github().app_id());
        let request = request.query("filter", "all").query("per_page", 100);
        let request = if name.is_empty() { request } else { request.query("check_name", name) };
        self.send(request).await?.items(Some("check_runs"))
    }
}
