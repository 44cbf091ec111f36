//! Files an approved text as an issue: either in place of the original issue's text or as a new issue. The text is
//! filed only once, and later edits by people are never overwritten.

use serde::{Deserialize, Serialize};

use crate::{
    documents::findings::Finding,
    engine::{ArtifactRow, LedgerRecord, StepError},
    github::{append_marker, none_if_refused},
    messages::{self, IssueOrigin, Provenance},
    rounds::{IssueSnapshot, StepContext, github_error, is_issue_unchanged, load_text},
    types::{Hash, IssueNo},
};

/// Content of an issue to file, and how to file it.
pub struct IssueFiling<'a> {
    pub title: &'a str,
    /// Body text below the title.
    pub text: &'a str,
    /// Labels to set. Labels that do not exist in the repository are left out.
    pub labels: Vec<String>,
    /// The original issue as it was when people approved the text.
    pub issue: &'a IssueSnapshot,
    /// Whether to replace the original issue's text instead of filing a new issue.
    pub in_place: bool,
    pub provenance: Provenance,
    /// Findings of the reviewer that are still open.
    pub open: Vec<Finding>,
}

/// The filed issue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FiledIssue {
    pub issue: IssueNo,
    pub url: String,
}

/// Returns the marker at the end of the text that this run filed.
fn filing_marker(cx: &StepContext) -> String {
    format!("issue-{}", cx.run().id)
}

fn issue_digest(title: &str, text: &str) -> Hash {
    Hash::digest_parts([title.as_bytes(), text.as_bytes()])
}

/// Files the issue. If somebody edited the original issue, leaves the issue unchanged and returns `None`.
///
/// # Errors
/// GitHub errors.
pub async fn file_issue(cx: &StepContext, filing: IssueFiling<'_>) -> Result<Option<FiledIssue>, StepError> {
    let IssueFiling { title, text, labels, issue, in_place, provenance, open } = filing;
    let labels: Vec<String> = cx.once("labels", |_| existing_labels(cx, &labels)).await?;
    let body = load_text(cx, &issue.body).await?;
    let origin = match in_place {
        true => IssueOrigin::InPlaceOf(issue.title.clone(), body),
        false => IssueOrigin::From(issue.number),
    };
    let title = messages::filed_title(title);
    let filed = messages::filed_issue(text.trim(), &origin, &provenance, &open);
    let (repo, marker) = (cx.tools().repository(cx).await?, filing_marker(cx));
    if !in_place {
        return cx
            .once("filed", |entry| {
                let (repo, marker, labels) = (&repo, &marker, &labels);
                let new = (title.as_str(), &filed);
                async move {
                    let written = repo.ensure_issue(marker, new, labels, entry.interrupted).await;
                    written
                        .map(|issue| Some(FiledIssue { issue: issue.number, url: issue.url }))
                        .map_err(github_error)
                }
            })
            .await;
    }
    let text = append_marker(&filed, &marker).map_err(github_error)?;
    let at: Option<FiledIssue> = cx
        .once("filed", |_| async {
            let now = cx.tools().read_issue(cx, &repo).await?;
            let ours = issue_digest(&title, &text);
            if now.digest != ours {
                if !is_issue_unchanged(cx, issue.digest, now.digest).await? {
                    return Ok(None);
                }
                // Record our text before the edit, so that our own edit makes no gate stale.
                record_own_text(cx, issue.number, ours).await?;
                let written = repo.edit_issue(issue.number, &title, &text).await.map_err(github_error)?;
                record_own_text(cx, issue.number, issue_digest(&written.title, &written.body)).await?;
            }
            Ok(Some(FiledIssue { issue: issue.number, url: issue.url.clone() }))
        })
        .await?;
    if at.is_some() && !labels.is_empty() {
        let number = issue.number;
        cx.once("labelled", |_| async {
            none_if_refused(repo.add_labels(number, &labels).await).map(drop).map_err(github_error)
        })
        .await?;
    }
    Ok(at)
}

async fn record_own_text(cx: &StepContext, issue: IssueNo, hash: Hash) -> Result<(), StepError> {
    let kind = ArtifactRow::OWN_TEXT.to_owned();
    cx.record("own-text", LedgerRecord::Artifact(ArtifactRow { issue, kind, hash })).await
}

/// Returns the issue that this run filed. Used in case the run was interrupted before it recorded the issue.
///
/// # Errors
/// GitHub errors.
pub async fn find_filed_issue(cx: &StepContext) -> Result<Option<FiledIssue>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    cx.once("filed-already", |_| async {
        let number = cx.run().trigger.issue;
        let now = repo.issue(number).await.map_err(github_error)?;
        let line = format!("countersign:{} -->", filing_marker(cx));
        let own = is_issue_unchanged(cx, Hash::digest(b""), issue_digest(&now.title, &now.body)).await?;
        // Require marker and text: anyone can write the marker, and another run of ours may have written the text.
        if own && now.body.ends_with(&line) {
            return Ok(Some(FiledIssue { issue: number, url: now.url }));
        }
        let new = repo.find_marked_issue(&filing_marker(cx)).await.map_err(github_error)?;
        Ok(new.map(|issue| FiledIssue { issue: issue.number, url: issue.url }))
    })
    .await
}

/// Returns the given labels that exist in the repository. Missing labels are left out, because GitHub would create
/// them.
///
/// # Errors
/// GitHub errors.
pub async fn existing_labels(cx: &StepContext, labels: &[String]) -> Result<Vec<String>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    let mut there = Vec::new();
    for label in labels {
        if repo.has_label(label).await.map_err(github_error)? {
            there.push(label.clone());
        }
    }
    Ok(there)
}
