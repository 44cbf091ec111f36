//! Creation and editing of issues. If a step is retried, its issue is still created only once.

use serde::Deserialize;
use serde_json::json;

use super::{
    comments::{first_piece, marker_line},
    error::GitHubApiError,
    manifest::{ADD_LABELS, CREATE_ISSUE, EDIT_ISSUE, ISSUES_LIST},
    outbound::OutboundBody,
    repo::GitHubRepo,
    wire::GitHubUser,
    write_pacing::WritePriority,
};
use crate::{limits, types::IssueNo};

/// An open issue, for comparison with other issues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenIssue {
    pub number: IssueNo,
    pub title: String,
    pub body: String,
}

/// An issue that we created, recognized by its hidden marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedIssue {
    pub number: IssueNo,
    pub url: String,
    pub title: String,
    pub body: String,
}

#[derive(Debug, Deserialize)]
struct IssueListItem {
    number: u64,
    #[serde(default)]
    html_url: String,
    title: String,
    body: Option<String>,
    user: Option<GitHubUser>,
    pull_request: Option<serde::de::IgnoredAny>,
}

impl From<IssueListItem> for MarkedIssue {
    fn from(found: IssueListItem) -> Self {
        let (number, body) = (IssueNo(found.number), found.body.unwrap_or_default());
        Self { number, url: found.html_url, title: found.title, body }
    }
}

/// Returns an issue's body with our hidden marker appended.
///
/// # Errors
/// [`GitHubApiError::Invalid`] if the marker is empty, too long or contains characters that are not allowed.
pub fn append_marker(body: &OutboundBody, marker: &str) -> Result<String, GitHubApiError> {
    Ok(format!("{}\n\n{}", first_piece(body), marker_line(marker, 0)?))
}

impl GitHubRepo {
    /// Returns the 100 most recently updated open issues. Pull requests count towards the 100 but are left out.
    pub async fn open_issues(&self) -> Result<Vec<OpenIssue>, GitHubApiError> {
        let request = self.request(&ISSUES_LIST, &[]).query("state", "open").query("sort", "updated");
        let found: Vec<IssueListItem> = self.send(request.query("per_page", 100)).await?.items(None)?;
        let issues = found.into_iter().filter(|issue| issue.pull_request.is_none());
        let issue = |listed: IssueListItem| OpenIssue {
            number: IssueNo(listed.number),
            title: listed.title,
            body: listed.body.unwrap_or_default(),
        };
        Ok(issues.map(issue).collect())
    }

    /// Creates an issue. If `interrupted` is true, an earlier attempt may have created the issue. In that case, calls
    /// return [`GitHubApiError::Transient`] until the issue is found, or until enough time has passed that GitHub would
    /// list it. The labels must exist, because GitHub creates missing ones.
    pub async fn ensure_issue(
        &self,
        marker: &str,
        (title, body): (&str, &OutboundBody),
        labels: &[String],
        interrupted: bool,
    ) -> Result<MarkedIssue, GitHubApiError> {
        let about = format!("{} new issue {marker}", self.id());
        if interrupted {
            let (doubts, now) = (self.github().uncertain_writes(), self.github().now());
            if let Some(found) = self.find_marked_issue(marker).await? {
                doubts.resolve(&about);
                return Ok(found);
            }
            if doubts.start_or_age(&about, now) < limits::GITHUB_LAG {
                let why = "an earlier attempt may have created it; looking until GitHub would list it";
                return Err(GitHubApiError::transient(&about, why));
            }
            doubts.resolve(&about);
        }
        let text = append_marker(body, marker)?;
        let create =
            self.request(&CREATE_ISSUE, &[]).body(json!({ "title": title, "body": text, "labels": labels }));
        Ok(self.write(create.priority(WritePriority::NewComment)).await?.json::<IssueListItem>()?.into())
    }

    /// Returns our issue with this marker. If a lagging read led to duplicates, returns the oldest one. Only issues
    /// opened by our account count, because anyone can copy a marker.
    pub async fn find_marked_issue(&self, marker: &str) -> Result<Option<MarkedIssue>, GitHubApiError> {
        let (bot, line) =
            (self.github().bot_for_installation(self.installation()).await?, marker_line(marker, 0)?);
        let request = self.request(&ISSUES_LIST, &[]).query("state", "all").query("creator", &bot.login);
        let request = request.query("sort", "created").query("per_page", 100);
        let found: Vec<IssueListItem> = self.send(request).await?.items(None)?;
        let ours = found.into_iter().filter(|issue| {
            let by_us = issue.user.as_ref().is_some_and(|user| user.id == bot.id.0);
            by_us && issue.body.as_deref().is_some_and(|body| body.trim_end().ends_with(&line))
        });
        Ok(ours.min_by_key(|issue| issue.number).map(MarkedIssue::from))
    }

    /// Replaces the title and body of an issue.
    pub async fn edit_issue(
        &self,
        number: IssueNo,
        title: &str,
        text: &str,
    ) -> Result<MarkedIssue, GitHubApiError> {
        let edit =
            self.request(&EDIT_ISSUE, &[&number.to_string()]).body(json!({ "title": title, "body": text }));
        Ok(self.write(edit.priority(WritePriority::NewComment)).await?.json::<IssueListItem>()?.into())
    }

    /// Adds labels to an issue. The labels should exist, because GitHub creates missing ones.
    pub async fn add_labels(&self, number: IssueNo, labels: &[String]) -> Result<(), GitHubApiError> {
        let add = self.request(&ADD_LABELS, &[&number.to_string()]).body(json!({ "labels": labels }));
        self.write(add.priority(WritePriority::StatusUpdate)).await.map(drop)
    }
}
