//! Between the document and the people: propose it on the branch, ask, hear the answer, publish.
//!
//! What is approved is bytes. A gate's subject covers the document, the files it speaks of and the policy
//! of the gate; the approval is checked against all three again when it comes. [`publish`] takes a
//! [`Countersigned`], which can only be made from stored rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Base, Cx, IssueSnapshot, Policy, fault};
use crate::{
    engine::{Answer, Countersigned, StepError},
    github::{Body, Comment, CommitSpec, PullSpec, Repo},
    limits,
    messages::{self, ApproveLine},
    types::{Hash, IssueNo, Oid, Timestamp},
};

/// A document on its way to people.
pub struct Publication<'a> {
    /// The word people type: "lld".
    pub stage: &'static str,
    /// The step that asks. Two gates about the same bytes ask different things, and an answer to the first is
    /// none to the second.
    pub gate: &'static str,
    pub issue: &'a IssueSnapshot,
    pub base: &'a Base,
    /// Where the document goes in the repository.
    pub path: &'a str,
    pub document: Hash,
    /// The files the document speaks of; what they hold now is part of what is approved.
    pub paths: &'a [String],
    pub policy: &'a Policy,
}

/// What people see of a proposal on the pull request and in the log.
pub struct Shown<'a> {
    pub commit: &'a str,
    pub pull_title: &'a str,
    pub pull_body: &'a Body,
}

/// A document as it stands on the issue's branch, with the pull request that shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    pub branch: String,
    pub path: String,
    pub commit: Oid,
    pub document: Hash,
    pub pull: IssueNo,
    /// The pull request is a draft; where the plan knows none, its title says so.
    pub draft: bool,
    pub pull_url: String,
    pub file_url: String,
}

/// What a person's answer came to, after another look at the world.
pub enum Heard {
    /// It stands; the subject is what it was.
    Yes,
    /// It does not count: the world has moved. People were told; ask again for this subject.
    Again { subject: Hash, shown_at: Timestamp },
    /// A maintainer's own commit on the branch changed the document: the next version, to be reviewed.
    Theirs(Hash),
}

/// The branch of an issue.
pub fn branch(issue: IssueNo) -> String {
    format!("countersign/issue-{issue}")
}

/// What an approval binds: the gate and its policy, the document, what the files it names hold.
pub async fn subject(cx: &Cx, base: &Base, publication: &Publication<'_>) -> Result<Hash, StepError> {
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let held: BTreeMap<&str, &str> =
        snapshot.entries().iter().map(|e| (e.path.as_str(), e.oid.as_str())).collect();
    let files: Vec<(&str, Option<&str>)> =
        publication.paths.iter().map(|p| (p.as_str(), held.get(p.as_str()).copied())).collect();
    let files = serde_json::to_vec(&files).map_err(anyhow::Error::new)?;
    let policy = serde_json::to_vec(publication.policy).map_err(anyhow::Error::new)?;
    let (gate, document) = (publication.gate.as_bytes(), publication.document.to_string());
    Ok(Hash::of_parts([gate, document.as_bytes(), files.as_slice(), policy.as_slice()]))
}

/// Puts the document on the issue's branch and opens the pull request, or moves both on.
pub async fn propose(
    cx: &Cx,
    publication: &Publication<'_>,
    before: Option<&Proposal>,
    shown: &Shown<'_>,
) -> Result<Proposal, StepError> {
    let repo = cx.tools().repo(cx.run()).await?;
    let name = branch(publication.issue.number);
    let head: Option<Oid> = cx.once("head", |_| async { repo.branch(&name).await.map_err(fault) }).await?;
    if let Some(before) = before
        && head.as_ref() == Some(&before.commit)
        && before.document == publication.document
    {
        return Ok(before.clone());
    }
    if head.is_none() {
        let _: () = cx
            .once("branch", |_| async {
                repo.ensure_branch(&name, &publication.base.commit).await.map(drop).map_err(fault)
            })
            .await?;
    }
    let parent = head.unwrap_or_else(|| publication.base.commit.clone());
    let spec = CommitSpec {
        branch: name.clone(),
        parent,
        files: vec![(publication.path.to_owned(), cx.get(&publication.document).await?)],
        message: shown.commit.to_owned(),
    };
    let (at, spec) = (&repo, &spec);
    let commit: Oid = cx
        .once("commit", |entry| async move {
            at.ensure_commit(spec, entry.interrupted).await.map(|c| c.oid).map_err(fault)
        })
        .await?;
    let pull = PullSpec {
        head: name.clone(),
        base: publication.base.branch.clone(),
        title: shown.pull_title.to_owned(),
        body: shown.pull_body.clone(),
        draft: true,
    };
    let (number, url, draft): (IssueNo, String, bool) = cx
        .once("pull", |_| async {
            repo.ensure_pull(&pull).await.map(|p| (p.number, p.url, p.draft)).map_err(fault)
        })
        .await?;
    Ok(Proposal {
        file_url: file_url(cx, &repo, &name, publication.path),
        branch: name,
        path: publication.path.to_owned(),
        commit,
        document: publication.document,
        pull: number,
        draft,
        pull_url: url,
    })
}

fn file_url(cx: &Cx, repo: &Repo, branch: &str, path: &str) -> String {
    let web = cx.tools().settings.github.web_url.as_str().trim_end_matches('/').to_owned();
    format!("{web}/{}/blob/{branch}/{path}", repo.name())
}

/// Posts the gate comment: the one that sends mail.
pub async fn announce(cx: &Cx, key: &str, body: &Body) -> Result<(String, Timestamp), StepError> {
    let repo = cx.tools().repo(cx.run()).await?;
    let marker = &format!("{key}-{}-{}", cx.run().id, cx.visit());
    let repo = &repo;
    cx.once(key, |entry| async move {
        let posted: Comment = repo
            .ensure_comment(cx.run().trigger.issue, marker, body, entry.interrupted)
            .await
            .map_err(fault)?;
        Ok((posted.url, posted.updated_at))
    })
    .await
}

/// Looks at the world again before an answer counts.
pub async fn hear(
    cx: &Cx,
    answer: &Answer,
    publication: &Publication<'_>,
    proposal: &Proposal,
    asked: Hash,
    shown_at: Timestamp,
) -> Result<Heard, StepError> {
    let repo = cx.tools().repo(cx.run()).await?;
    let key = |what: &str| format!("{what}-{}", answer.cause);
    if let Some(theirs) = moved_on(cx, &repo, &key("moved"), proposal).await? {
        return Ok(Heard::Theirs(theirs));
    }
    if answer.verb == "revise" {
        return Ok(Heard::Yes);
    }
    if answer.commit.as_ref().is_some_and(|commit| *commit != proposal.commit) {
        // A review of another commit than the one that carries this document.
        return Ok(Heard::Again { subject: asked, shown_at });
    }
    let now: (String, String) = cx
        .once(&key("issue"), |_| async {
            let issue = repo.issue(publication.issue.number).await.map_err(fault)?;
            let title = cx.put(issue.title.as_bytes()).await?;
            let body = cx.put(issue.body.as_bytes()).await?;
            Ok((title.to_string(), body.to_string()))
        })
        .await?;
    let line = |subject: Hash| ApproveLine { stage: publication.stage.to_owned(), subject };
    let (title, body) = (stored(cx, &now.0).await?, stored(cx, &now.1).await?);
    let digest = Hash::of_parts([title.as_bytes(), body.as_bytes()]);
    if digest != publication.issue.digest && answer.hash.is_none() {
        let then = super::draft::text_of(cx, &publication.issue.body).await?;
        let before = format!("{}\n\n{then}\n", publication.issue.title);
        let after = format!("{title}\n\n{body}\n");
        let diff =
            similar::TextDiff::from_lines(&before, &after).unified_diff().context_radius(2).to_string();
        let reply = messages::issue_changed(&diff, &line(asked));
        announce(cx, &key("changed"), &reply).await?;
        return Ok(Heard::Again { subject: asked, shown_at });
    }
    let base = cx.tools().fetch(cx, &key("base"), &repo).await?;
    let current = subject(cx, &base, publication).await?;
    if current != asked {
        let reply = messages::stale(&line(current));
        let (_, at) = announce(cx, &key("stale"), &reply).await?;
        return Ok(Heard::Again { subject: current, shown_at: at });
    }
    Ok(Heard::Yes)
}

async fn stored(cx: &Cx, hash: &str) -> Result<String, StepError> {
    let hash: Hash = hash.parse().map_err(anyhow::Error::new)?;
    super::draft::text_of(cx, &hash).await
}

/// The document someone else's commit put on our branch, when there is one.
pub async fn moved_on(
    cx: &Cx,
    repo: &Repo,
    key: &str,
    proposal: &Proposal,
) -> Result<Option<Hash>, StepError> {
    cx.once(key, |_| async {
        let head = repo.branch(&proposal.branch).await.map_err(fault)?;
        match head {
            Some(head) if head == proposal.commit => return Ok(None),
            Some(_) => {}
            None => {
                return Err(StepError::User(format!(
                    "The branch `{}` was deleted. Restore it, or start anew.",
                    proposal.branch
                )));
            }
        }
        let bytes = repo.file(&proposal.path, &proposal.branch).await.map_err(fault)?.ok_or_else(|| {
            StepError::User(format!(
                "`{}` was removed from the branch `{}`. Put it back, or start anew.",
                proposal.path, proposal.branch
            ))
        })?;
        if std::str::from_utf8(&bytes).is_err() || bytes.len() > limits::DOCUMENT_BYTES {
            return Err(StepError::User(format!(
                "`{}` on the branch `{}` is not a text of at most {} KB. Mend it there, then start anew.",
                proposal.path,
                proposal.branch,
                limits::DOCUMENT_BYTES / 1024
            )));
        }
        let theirs = cx.put(&bytes).await?;
        Ok((theirs != proposal.document).then_some(theirs))
    })
    .await
}

/// Commits the approved bytes, unchanged, with the review log beside them. Only something countersigned
/// comes in here.
pub async fn publish(
    cx: &Cx,
    signed: &Countersigned,
    proposal: &Proposal,
    log_path: &str,
    log: &str,
    message: &str,
) -> Result<Oid, StepError> {
    let repo = cx.tools().repo(cx.run()).await?;
    let head: Oid = cx
        .once("publish-head", |_| async {
            repo.branch(&proposal.branch).await.map_err(fault)?.ok_or_else(|| {
                StepError::User(format!(
                    "The branch `{}` was deleted. Restore it, or start anew.",
                    proposal.branch
                ))
            })
        })
        .await?;
    let spec = CommitSpec {
        branch: proposal.branch.clone(),
        parent: head,
        files: vec![
            (proposal.path.clone(), cx.get(&signed.document()).await?),
            (log_path.to_owned(), log.as_bytes().to_vec()),
        ],
        message: message.to_owned(),
    };
    let (repo, spec) = (&repo, &spec);
    cx.once("publish", |entry| async move {
        repo.ensure_commit(spec, entry.interrupted).await.map(|c| c.oid).map_err(fault)
    })
    .await
}
