//! Between the document and the people: propose it on the branch, ask, hear the answer, publish.
//!
//! What is approved is bytes. A gate's subject covers the document, the files it speaks of and the policy
//! of the gate; the approval is checked against all three again when it comes. [`publish`] takes a
//! [`Countersigned`], which can only be made from stored rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Base, Cx, IssueSnapshot, Policy, fault, page};
use crate::{
    engine::{Answer, Countersigned, StepError},
    github::{Body, Comment, CommitSpec, Fault, PullSpec, Repo},
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
    Again { subject: Hash, shown_at: Timestamp, base: Option<Base> },
    /// A maintainer's own commit on the branch changed the document: the next version, to be reviewed.
    Theirs(Hash),
}

/// What a commit of ours on the issue's branch came to.
pub enum Landed<T> {
    Ours(T),
    /// Somebody else's version was there first; nothing of theirs was overwritten.
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

/// Puts the document on the issue's branch and opens the pull request, or moves both on. `known` is the version
/// there that the document follows.
pub async fn propose(
    cx: &Cx,
    publication: &Publication<'_>,
    known: Option<Hash>,
    shown: &Shown<'_>,
) -> Result<Landed<Proposal>, StepError> {
    let repo = cx.tools().repo(cx).await?;
    let name = branch(publication.issue.number);
    let place = Place {
        branch: &name,
        path: publication.path,
        base: &publication.base.commit,
        ours: known,
        wanted: Some(publication.document),
    };
    let files = vec![(publication.path.to_owned(), cx.get(&publication.document).await?)];
    let commit = match land(cx, &repo, "propose", &place, files, shown.commit).await? {
        Landed::Ours(commit) => commit,
        Landed::Theirs(theirs) => return Ok(Landed::Theirs(theirs)),
    };
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
    Ok(Landed::Ours(Proposal {
        file_url: file_url(cx, &repo, &name, publication.path),
        branch: name,
        path: publication.path.to_owned(),
        commit,
        document: publication.document,
        pull: number,
        draft,
        pull_url: url,
    }))
}

/// Where a commit of ours goes and what may be there already.
struct Place<'a> {
    branch: &'a str,
    path: &'a str,
    /// Where the branch begins when there is none yet.
    base: &'a Oid,
    /// The document we last put there.
    ours: Option<Hash>,
    /// When this very document is there already, no commit is needed.
    wanted: Option<Hash>,
}

/// One look at the branch: its head and the document there belong together.
#[derive(Serialize, Deserialize)]
struct Seen {
    head: Option<Oid>,
    document: Option<Hash>,
    /// The document is not one that this program put there.
    foreign: bool,
}

/// The branch may move between the look and the commit; then it is looked at again, so often.
const LOOKS: u32 = 5;

/// Commits on top of exactly what was looked at, so that nobody's commit in between is lost.
async fn land(
    cx: &Cx,
    repo: &Repo,
    key: &str,
    place: &Place<'_>,
    files: Vec<(String, Vec<u8>)>,
    message: &str,
) -> Result<Landed<Oid>, StepError> {
    let mut spec = CommitSpec {
        branch: place.branch.to_owned(),
        begins: false,
        parent: place.base.clone(),
        files,
        message: message.to_owned(),
    };
    for attempt in 1..=LOOKS {
        let seen: Seen = cx.once(&format!("{key}-look-{attempt}"), |_| look(cx, repo, place)).await?;
        match (seen.head, seen.document) {
            (_, Some(theirs)) if seen.foreign => return Ok(Landed::Theirs(theirs)),
            (Some(head), Some(there)) if Some(there) == place.wanted => return Ok(Landed::Ours(head)),
            (Some(head), _) => (spec.begins, spec.parent) = (false, head),
            (None, _) => (spec.begins, spec.parent) = (true, place.base.clone()),
        }
        let ready = &spec;
        let landed: Option<Oid> = cx
            .once(&format!("{key}-{attempt}"), |entry| async move {
                match repo.ensure_commit(ready, entry.interrupted).await {
                    Ok(commit) => Ok(Some(commit.oid)),
                    Err(Fault::Conflict { .. }) => Ok(None),
                    Err(other) => Err(fault(other)),
                }
            })
            .await?;
        if let Some(commit) = landed {
            return Ok(Landed::Ours(commit));
        }
    }
    Err(StepError::User(format!(
        "The branch `{}` moved under every one of {LOOKS} tries to commit.",
        place.branch
    )))
}

/// Whose document is on the branch? Ours is the one we remember, or one whose commit carries our trailer
/// with its hash, as an earlier run's does.
async fn look(cx: &Cx, repo: &Repo, place: &Place<'_>) -> Result<Seen, StepError> {
    let Some(head) = repo.branch(place.branch).await.map_err(fault)? else {
        return Ok(Seen { head: None, document: None, foreign: false });
    };
    let Some(bytes) = repo.file(place.path, head.as_str()).await.map_err(fault)? else {
        return Ok(Seen { head: Some(head), document: None, foreign: false });
    };
    if std::str::from_utf8(&bytes).is_err() || bytes.len() > limits::DOCUMENT_BYTES {
        return Err(StepError::User(format!(
            "`{}` on the branch `{}` is not a text of at most {} KB. Mend it there, then start anew.",
            place.path,
            place.branch,
            limits::DOCUMENT_BYTES / 1024
        )));
    }
    let document = cx.put(&bytes).await?;
    let known = place.ours == Some(document) || place.wanted == Some(document);
    let foreign = !known && {
        let message = repo.commit(&head).await.map_err(fault)?.message;
        !message.contains(&format!("Countersign-Document: {document}"))
    };
    Ok(Seen { head: Some(head), document: Some(document), foreign })
}

pub(super) fn file_url(cx: &Cx, repo: &Repo, branch: &str, path: &str) -> String {
    let web = cx.tools().settings.github.web_url.as_str().trim_end_matches('/').to_owned();
    format!("{web}/{}/blob/{branch}/{path}", repo.name())
}

/// The key of a gate comment, by which [`restate`] finds it again.
pub const GATE: &str = "gate";

fn marker(cx: &Cx, key: &str, visit: u64) -> String {
    format!("{key}-{}-{visit}", cx.run().id)
}

/// Posts a comment that sends mail, as the gate's does.
pub async fn announce(cx: &Cx, key: &str, body: &Body) -> Result<(String, Timestamp), StepError> {
    let repo = cx.tools().repo(cx).await?;
    let marker = &marker(cx, key, cx.visit());
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

/// Says in the gate comment of a visit how the gate stands now, and takes the lines that begin so and no longer count
/// out of whatever else we said. That is for readers alone: what GitHub does not let us edit stays as it is.
pub async fn restate(
    cx: &Cx,
    key: &str,
    gate: Option<(u64, &Body)>,
    (begins, counts): (&str, Option<&ApproveLine>),
    pull: Option<IssueNo>,
) -> Result<(), StepError> {
    let repo = cx.tools().repo(cx).await?;
    let gate = gate.map(|(visit, body)| (marker(cx, GATE, visit), body));
    let change = |text: &str, of: &str| match &gate {
        Some((marker, body)) if of == marker => Some((*body).clone()),
        // Written anew at the run's next turn.
        _ if of.starts_with(page::MARKER) => None,
        _ => messages::without_stale_lines(text, begins, counts),
    };
    let threads = [Some(cx.run().trigger.issue), pull];
    cx.once(key, |_| async {
        for thread in threads.into_iter().flatten() {
            match repo.edit_comments(thread, &change).await.map_err(fault) {
                Err(StepError::User(why)) => {
                    tracing::info!(run = %cx.run().id, why, "a gate could not be edited")
                }
                edited => edited?,
            }
        }
        Ok(())
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
    let repo = cx.tools().repo(cx).await?;
    let key = |what: &str| format!("{what}-{}", answer.cause);
    let place = Place {
        branch: &proposal.branch,
        path: &proposal.path,
        base: &publication.base.commit,
        ours: Some(proposal.document),
        wanted: None,
    };
    let seen: Seen = cx.once(&key("moved"), |_| look(cx, &repo, &place)).await?;
    match (seen.head, seen.document) {
        (_, Some(theirs)) if theirs != proposal.document => return Ok(Heard::Theirs(theirs)),
        (Some(_), Some(_)) => {}
        (None, _) => {
            let name = &proposal.branch;
            return Err(StepError::User(format!(
                "The branch `{name}` was deleted. Restore it, or start anew."
            )));
        }
        (Some(_), None) => {
            return Err(StepError::User(format!(
                "`{}` was removed from the branch `{}`. Put it back, or start anew.",
                proposal.path, proposal.branch
            )));
        }
    }
    if answer.verb == "revise" {
        return Ok(Heard::Yes);
    }
    if let Some(commit) = &answer.commit {
        // A review is of the commit that was on the reviewer's page; it counts where that carries the document.
        let carries: bool = cx
            .once(&key("reviewed"), |_| async {
                let bytes = repo.file(&proposal.path, commit.as_str()).await.map_err(fault)?;
                Ok(bytes.is_some_and(|bytes| Hash::of(&bytes) == publication.document))
            })
            .await?;
        if !carries {
            return Ok(Heard::Again { subject: asked, shown_at, base: None });
        }
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
    // An override is a maintainer's own reason and carries no hash; that the issue changed is in the audit.
    if digest != publication.issue.digest && answer.hash.is_none() && answer.verb == "approve" {
        let then = super::draft::text_of(cx, &publication.issue.body).await?;
        let before = format!("{}\n\n{then}\n", publication.issue.title);
        let after = format!("{title}\n\n{body}\n");
        let diff =
            similar::TextDiff::from_lines(&before, &after).unified_diff().context_radius(2).to_string();
        let reply = messages::issue_changed(&diff, &line(asked));
        announce(cx, &key("changed"), &reply).await?;
        return Ok(Heard::Again { subject: asked, shown_at, base: None });
    }
    let base = cx.tools().fetch(cx, &key("base"), &repo).await?;
    let current = subject(cx, &base, publication).await?;
    if current != asked {
        let files = changed(cx, publication, &base).await?;
        let reply = messages::files_changed(&files, &line(current));
        let (_, at) = announce(cx, &key("stale"), &reply).await?;
        return Ok(Heard::Again { subject: current, shown_at: at, base: Some(base) });
    }
    Ok(Heard::Yes)
}

async fn stored(cx: &Cx, hash: &str) -> Result<String, StepError> {
    let hash: Hash = hash.parse().map_err(anyhow::Error::new)?;
    super::draft::text_of(cx, &hash).await
}

/// The files of the document that hold something else at `now` than they did.
async fn changed(cx: &Cx, publication: &Publication<'_>, now: &Base) -> Result<Vec<String>, StepError> {
    let before = cx.tools().snapshot(cx, publication.base).await?;
    let after = cx.tools().snapshot(cx, now).await?;
    let held = |snapshot: &crate::git::Snapshot, path: &str| snapshot.entry(path).map(|e| e.oid.clone());
    let paths = publication.paths.iter();
    Ok(paths.filter(|path| held(&before, path) != held(&after, path)).cloned().collect())
}

/// Commits the approved bytes, unchanged, with the review log beside them. Only something countersigned
/// comes in here.
pub async fn publish(
    cx: &Cx,
    signed: &Countersigned,
    proposal: &Proposal,
    log: (String, String),
    message: &str,
) -> Result<Landed<Oid>, StepError> {
    let repo = cx.tools().repo(cx).await?;
    let place = Place {
        branch: &proposal.branch,
        path: &proposal.path,
        base: &proposal.commit,
        ours: Some(signed.document()),
        wanted: None,
    };
    let (log_path, log) = log;
    let files =
        vec![(proposal.path.clone(), cx.get(&signed.document()).await?), (log_path, log.into_bytes())];
    land(cx, &repo, "publish", &place, files, message).await
}
