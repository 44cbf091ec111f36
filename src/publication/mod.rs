//! Publishes documents in three steps: propose on the branch, check the answer to the gate, publish.
//!
//! People approve exact bytes. A gate's subject covers the document, the contents of the files that the document
//! mentions, the gate's policy and the foreign files on the branch. An answer is checked against the current state of
//! all four. [`publish_document`] requires a [`Countersignature`], which can be constructed only from stored rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod branch;
mod filing;
mod leftovers;

pub use branch::{
    BranchPolicy, CommitOutcome, find_altered_document, find_earlier_files, find_foreign_files,
    find_push_obstacle, load_foreign_files,
};
pub use filing::{FiledIssue, IssueFiling, existing_labels, file_issue, find_filed_issue};
pub use leftovers::{BranchContents, BranchLeftovers, find_leftovers};

use crate::{
    codebase::{is_secret_path, redact_text, run_blocking},
    commands::ROUTE,
    documents::change::file_diff,
    engine::{Countersignature, GateAnswer, LedgerRecord, RunView, RunViewStatus, SectionRow, StepError},
    git::Snapshot,
    github::{GitHubApiError, GitHubRepo, OutboundBody, PullRequestSpec, none_if_refused},
    messages::{self, ApproveLine},
    rounds::{
        BaseCommit, IssueSnapshot, Policy, StepContext, comment_marker, git_error, github_error,
        is_issue_unchanged, load_text, post_announcement,
    },
    types::{CommentId, Hash, IssueNo, Oid, RunId, Timestamp, Verb},
};
use branch::{BranchCommit, BranchExpectation, BranchView, commit_to_branch, read_branch};

/// A document to be proposed or published.
#[derive(Clone, Copy)]
pub struct Publication<'a> {
    /// Word after `/approve` in the approval command, such as `lld`.
    pub word: &'a str,
    /// Options among which an approval chooses. Empty if there is nothing to choose.
    pub ways: &'a [String],
    /// Id of the gate's step. Two gates may show the same bytes but ask different questions, so an answer to one gate
    /// must not be accepted at the other.
    pub gate: &'static str,
    pub issue: &'a IssueSnapshot,
    pub base: &'a BaseCommit,
    pub path: &'a str,
    pub document: Hash,
    /// Hash of the file to publish at `path`: the document, or a report derived from it.
    pub published_hash: Hash,
    /// Files derived from the document and published with it, each with its path and hash. A `None` hash removes the
    /// file.
    pub files: &'a [(String, Option<Hash>)],
    /// Files that the document mentions; an approval covers their current contents.
    pub paths: &'a [String],
    pub policy: &'a Policy,
    /// Whether the document may replace the issue's text. If so, the approval also covers the issue's current text.
    pub on_issue: bool,
    /// Whether the document is published only in a comment. If so, foreign files on the branch do not matter.
    pub in_comment: bool,
}

impl Publication<'_> {
    fn approve_line(&self, subject: Hash) -> ApproveLine {
        ApproveLine::approve(self.word, subject, self.ways)
    }
}

/// A document that was proposed on the issue's branch, with the branch's pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    pub branch: String,
    pub path: String,
    pub commit: Oid,
    pub document: Hash,
    /// Hash of the file at `path`. `None` if that file is the document itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands: Option<Hash>,
    pub pull: IssueNo,
    /// Whether the pull request was opened as a draft. If GitHub's plan has no draft pull requests, a marker in the
    /// title is used instead.
    pub draft: bool,
    pub pull_url: String,
    pub file_url: String,
    /// Audit link of the document's approval. Set from the approval until the run has completed the publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Hash>,
}

impl Proposal {
    /// Returns the proposal updated to a newer commit.
    pub fn with_commit(self, publication: &Publication<'_>, commit: Oid) -> Self {
        let stands = Some(publication.published_hash).filter(|stands| *stands != publication.document);
        Self { commit, document: publication.document, stands, ..self }
    }

    fn published_hash(&self) -> Hash {
        self.stands.unwrap_or(self.document)
    }
}

/// Result of checking an answer against the current state on GitHub.
pub enum AnswerOutcome {
    /// The answer is accepted, because the subject has not changed since it was shown.
    Accepted,
    /// The answer is not accepted, and a reply says why. People must be asked again about this subject.
    AskAgain { subject: Hash, shown_at: Timestamp, now: Option<GateUpdate> },
    /// Somebody rewrote the branch. People must be asked again, on a new branch.
    BranchRewritten,
    /// A maintainer's commit changed the document. The changed document is the next version to review.
    ForeignVersion(Hash),
}

/// Updated state of a gate, which replaces the state shown in the original approval request.
pub struct GateUpdate {
    pub base: BaseCommit,
    pub foreign: Option<Hash>,
    /// The issue as edited since the approval request. Set only if the document may replace the issue's text.
    pub issue: Option<Box<IssueSnapshot>>,
}

/// Returns the hash to which an approval is bound. The hash covers the gate and its policy, the document, the contents
/// of the files that the document mentions, and the foreign files on the branch.
pub async fn approval_subject(
    cx: &StepContext,
    base: &BaseCommit,
    publication: &Publication<'_>,
    foreign: Option<Hash>,
) -> Result<Hash, StepError> {
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let held: BTreeMap<&str, &str> =
        snapshot.entries().iter().map(|e| (e.path.as_str(), e.oid.as_str())).collect();
    let files: Vec<(&str, Option<&str>)> =
        publication.paths.iter().map(|p| (p.as_str(), held.get(p.as_str()).copied())).collect();
    let files = serde_json::to_vec(&files).map_err(anyhow::Error::new)?;
    let policy = serde_json::to_vec(publication.policy).map_err(anyhow::Error::new)?;
    let (gate, document) = (publication.gate.as_bytes(), publication.document.to_string());
    let manifest = serde_json::to_vec(publication.files).map_err(anyhow::Error::new)?;
    let mut parts = vec![gate, document.as_bytes(), files.as_slice(), policy.as_slice()];
    parts.extend(foreign.as_ref().map(|list| list.bytes().as_slice()));
    parts.extend((!publication.files.is_empty()).then_some(manifest.as_slice()));
    parts.extend(
        (publication.published_hash != publication.document)
            .then_some(publication.published_hash.bytes().as_slice()),
    );
    parts.extend(publication.on_issue.then(|| publication.issue.digest.bytes().as_slice()));
    Ok(Hash::digest_parts(parts))
}

/// Commits the document to the issue's branch. For a code change, commits only the files; the report is published later
/// together with the log. `known` is our last version on the branch, and `only` is the policy for foreign files there.
pub async fn propose_document(
    cx: &StepContext,
    publication: &Publication<'_>,
    known: Option<Hash>,
    only: BranchPolicy,
    message: &str,
) -> Result<CommitOutcome, StepError> {
    let (repo, code) =
        (cx.tools().repository(cx).await?, matches!(only, BranchPolicy::OursOrNewWithForeign(_)));
    let (path, base) = (publication.path, &publication.base.commit);
    let (wanted, tried) = ((!code).then_some(publication.published_hash), code.then_some(base));
    let place = BranchExpectation { path, ours: known, wanted, files: publication.files, only, tried };
    let mut files: Vec<_> = wanted.map(|stands| (path.to_owned(), Some(stands))).into_iter().collect();
    files.extend_from_slice(publication.files);
    commit_to_branch(cx, (&repo, base), "propose", &place, load_texts(cx, &files).await?, message).await
}

async fn load_texts(
    cx: &StepContext,
    files: &[(String, Option<Hash>)],
) -> Result<Vec<(String, Option<Vec<u8>>)>, StepError> {
    let mut texts = Vec::new();
    for (path, hash) in files {
        let bytes = match hash {
            Some(hash) => Some(cx.get(hash).await?),
            None => None,
        };
        texts.push((path.clone(), bytes));
    }
    Ok(texts)
}

/// Records a stage's section and returns the pull request body, which consists of the newest section of each stage. The
/// body is built from the stored sections only. Therefore edits by people are overwritten, and no stage overwrites
/// another's section.
///
/// # Errors
/// `Bug` if the ledger cannot be written or read.
pub async fn record_pull_body(
    cx: &StepContext,
    key: &str,
    branch: &str,
    stage: &str,
    section: &OutboundBody,
) -> Result<OutboundBody, StepError> {
    let text = section.as_str().to_owned();
    let row = SectionRow { branch: branch.to_owned(), stage: stage.to_owned(), text };
    cx.record(key, LedgerRecord::Section(row)).await?;
    let (run, issue) = (cx.run(), cx.run().trigger.issue);
    let db = cx.tools().store.repository_database(run.id.repo).await.map_err(anyhow::Error::new)?;
    let mut sections: Vec<SectionRow> = Vec::new();
    for row in db.sections_of_issue(issue).await.map_err(anyhow::Error::new)? {
        match sections.iter_mut().find(|held| held.stage == row.stage) {
            _ if row.branch != branch => {}
            _ if row.is_branch_start() => sections.clear(),
            Some(held) => *held = row,
            None => sections.push(row),
        }
    }
    let texts: Vec<String> = sections.into_iter().map(|row| row.text).collect();
    Ok(messages::pull_body(issue, &texts))
}

/// Opens or updates the branch's pull request, and closes the pull request of an abandoned branch.
pub async fn open_pull_request(
    cx: &StepContext,
    publication: &Publication<'_>,
    landing: &BranchCommit,
    (title, ready): (&str, bool),
    (stage, section): (&str, &OutboundBody),
) -> Result<Proposal, StepError> {
    let repo = cx.tools().repository(cx).await?;
    if landing.created_branch {
        // Sections of an earlier branch of the same name were about other commits.
        cx.record("sections", LedgerRecord::Section(SectionRow::branch_start(&landing.branch))).await?;
    }
    let pull = PullRequestSpec {
        head: landing.branch.clone(),
        base: publication.base.branch.clone(),
        title: title.to_owned(),
        body: record_pull_body(cx, "section", &landing.branch, stage, section).await?,
        draft: !ready,
    };
    let (number, url, draft): (IssueNo, String, bool) = cx
        .once("pull", |_| async {
            // Keep a pull request that people marked as ready, also in its title.
            repo.ensure_pull(&pull).await.map(|p| (p.number, p.url, !p.wip)).map_err(github_error)
        })
        .await?;
    tracing::info!(run = %cx.run().id, url, draft, "pull request is open");
    if let Some(left) = &landing.abandoned_branch {
        cx.once("left", |entry| {
            close_abandoned_pulls(cx, &repo, left, &landing.branch, &url, entry.interrupted)
        })
        .await?;
    }
    let known = Proposal {
        file_url: file_url(cx, &repo, &landing.branch, publication.path),
        branch: landing.branch.clone(),
        path: publication.path.to_owned(),
        commit: landing.commit.clone(),
        document: publication.document,
        stands: None,
        pull: number,
        draft,
        pull_url: url,
        audit: None,
    };
    Ok(known.with_commit(publication, landing.commit.clone()))
}

async fn close_abandoned_pulls(
    cx: &StepContext,
    repo: &GitHubRepo,
    left: &str,
    branch: &str,
    url: &str,
    interrupted: bool,
) -> Result<(), StepError> {
    let marker = format!("left-{}-{}", cx.run().id, cx.visit());
    let told = messages::abandoned_branch_comment(left, branch, url);
    for pull in repo.pulls_of_branch(left).await.map_err(github_error)?.iter().filter(|pull| pull.open) {
        repo.ensure_comment(pull.number, &marker, &told, interrupted).await.map_err(github_error)?;
        repo.close_pull(pull.number).await.map_err(github_error)?;
    }
    Ok(())
}

pub(super) fn file_url(cx: &StepContext, repo: &GitHubRepo, branch: &str, path: &str) -> String {
    let web = cx.tools().settings.github.web_url.as_str().trim_end_matches('/').to_owned();
    format!("{web}/{}/blob/{branch}/{path}", repo.name())
}

/// Stage name of the gate at which a run only waits for the merge of a pushed change.
pub const MERGE_GATE: &str = "merge";

/// Whether the run is only waiting for its pushed change to be merged.
pub fn waits_for_merge(run: &RunView) -> bool {
    run.gate.as_ref().is_some_and(|gate| gate.spec.stage == MERGE_GATE)
}

/// Returns the issue's run that most needs people's attention. A run that waits for a person takes precedence. Next
/// comes a run that waits for something else, because a person may have to fix the cause.
pub fn most_urgent_run(runs: impl IntoIterator<Item = RunView>) -> Option<RunView> {
    // Routing takes moments, and pushed changes have their own display.
    let shown = runs.into_iter().filter(|run| run.workflow != ROUTE && !waits_for_merge(run));
    let rank = |run: &RunView| match run.status {
        RunViewStatus::Asking => 3,
        RunViewStatus::Waiting => 2,
        RunViewStatus::Ready | RunViewStatus::Running => 1,
        _ => 0,
    };
    shown.filter(|run| rank(run) > 0).max_by_key(|run| (rank(run), run.id))
}

/// Journal key of a gate comment. [`update_gate_comment`] finds the comment by this key.
pub const GATE_COMMENT: &str = "gate";

/// Returns the marker that identifies a gate comment.
pub fn gate_marker(run: RunId, visit: u64) -> String {
    format!("{GATE_COMMENT}-{run}-{visit}")
}

/// Restores the text of this visit's gate comment, or posts the comment again if it was deleted. Returns the comment's
/// URL and time; `None` if GitHub refuses the write.
pub async fn restore_gate_comment(
    cx: &StepContext,
    key: &str,
    comment: CommentId,
    body: &OutboundBody,
) -> Result<Option<(String, Timestamp)>, StepError> {
    let repo = cx.tools().repository(cx).await?.with_question_priority();
    let marker = gate_marker(cx.run().id, cx.visit());
    cx.once(key, |_| async {
        let written = match repo.edit_comment(comment, &marker, body).await {
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => {
                repo.replace_comment(cx.run().trigger.issue, &marker, body).await
            }
            edited => edited,
        };
        let written = none_if_refused(written).map_err(github_error)?;
        Ok(written.map(|comment| (comment.url, comment.updated_at)))
    })
    .await
}

/// Updates the gate comment of a visit. If GitHub refuses the edit, the run continues, because the comment only informs
/// people.
pub async fn update_gate_comment(
    cx: &StepContext,
    key: &str,
    visit: u64,
    body: &OutboundBody,
) -> Result<(), StepError> {
    let repo = cx.tools().repository(cx).await?;
    let marker = comment_marker(cx, GATE_COMMENT, visit);
    cx.once(key, |_| async {
        match repo.edit_marked(cx.run().trigger.issue, &marker, body).await.map_err(github_error) {
            Err(StepError::User(why)) => {
                tracing::info!(run = %cx.run().id, why, "could not update the gate comment; continuing");
                Ok(())
            }
            edited => edited,
        }
    })
    .await
}

/// Maximum number of changed files whose diff is shown.
const DIFFS_SHOWN: usize = 20;

/// Maximum size of a file whose diff is shown, in bytes.
const DIFF_BYTES: u64 = 256 * 1024;

/// Checks an answer against the current state on GitHub, before the answer is accepted.
pub async fn check_answer(
    cx: &StepContext,
    answer: &GateAnswer,
    publication: &Publication<'_>,
    proposal: Option<&Proposal>,
    asked: Hash,
    shown_at: Timestamp,
) -> Result<AnswerOutcome, StepError> {
    let repo = cx.tools().repository(cx).await?;
    let key = |what: &str| format!("{what}-{}", answer.cause);
    let again = || Ok(AnswerOutcome::AskAgain { subject: asked, shown_at, now: None });
    let edited =
        async || reply_if_issue_edited(cx, answer, publication.issue, &publication.approve_line(asked)).await;
    // `/revise` and `/retry` accept nothing.
    let binds = answer.verb.accepts();
    let Some(proposal) = proposal else {
        if !binds {
            return Ok(AnswerOutcome::Accepted);
        }
        if answer.commit.is_some() {
            // A GitHub review is about a commit, and no commit holds this document.
            post_announcement(
                cx,
                &key("reviewed"),
                &messages::review_not_counted_reply(&publication.approve_line(asked)),
            )
            .await?;
            return again();
        }
        if !publication.on_issue {
            if edited().await? {
                return again();
            }
            let foreign = match publication.in_comment {
                true => None,
                false => {
                    find_foreign_files(cx, &key("others"), Some((publication.base, publication.paths)))
                        .await?
                }
            };
            let base = cx.tools().fetch_base(cx, &key("base"), &repo).await?;
            return verify_subject(cx, answer, publication, asked, GateUpdate { base, foreign, issue: None })
                .await;
        }
        let base = cx.tools().fetch_base(cx, &key("base"), &repo).await?;
        if let Some((issue, diff)) = find_issue_edit(cx, &key("edited"), &repo, publication.issue).await? {
            // The issue to be replaced has changed since it was read.
            let other = Publication { issue: &issue, ..*publication };
            let subject = approval_subject(cx, &base, &other, None).await?;
            let changed = messages::issue_changed_reply(&diff, &publication.approve_line(subject));
            let (_, shown_at) = post_announcement(cx, &key("changed"), &changed).await?;
            let now = GateUpdate { base, foreign: None, issue: Some(Box::new(issue)) };
            return Ok(AnswerOutcome::AskAgain { subject, shown_at, now: Some(now) });
        }
        return verify_subject(
            cx,
            answer,
            publication,
            asked,
            GateUpdate { base, foreign: None, issue: None },
        )
        .await;
    };
    let place = BranchExpectation {
        path: &proposal.path,
        ours: Some(proposal.published_hash()),
        wanted: None,
        files: &[],
        only: BranchPolicy::Shown,
        tried: None,
    };
    let seen = read_branch(cx, &key("branch"), &repo, &place).await?;
    if let Some(theirs) = seen.document.filter(|document| *document != proposal.published_hash()) {
        return Ok(AnswerOutcome::ForeignVersion(theirs));
    }
    if !binds && (seen.document.is_some() || seen.left.is_some()) {
        return Ok(AnswerOutcome::Accepted);
    }
    if seen.left.is_some() {
        return Ok(AnswerOutcome::BranchRewritten);
    }
    require_document_on_branch(&seen, proposal)?;
    if let Some(commit) = &answer.commit {
        // A review counts only if the reviewed commit holds the document.
        let carries: bool = cx
            .once(&key("reviewed"), |_| async {
                let bytes = repo.file(&proposal.path, commit.as_str()).await.map_err(github_error)?;
                Ok(bytes.is_some_and(|bytes| Hash::digest(&bytes) == publication.published_hash))
            })
            .await?;
        if !carries {
            return again();
        }
    }
    if edited().await? {
        return again();
    }
    verify_subject(
        cx,
        answer,
        publication,
        asked,
        GateUpdate { base: seen.base, foreign: seen.foreign, issue: None },
    )
    .await
}

/// Checks whether an answer about the subject `asked` still covers the current subject. If the subject has changed,
/// posts a reply that shows the changes.
async fn verify_subject(
    cx: &StepContext,
    answer: &GateAnswer,
    publication: &Publication<'_>,
    asked: Hash,
    now: GateUpdate,
) -> Result<AnswerOutcome, StepError> {
    let approves = answer.verb == Verb::Approve;
    let current = approval_subject(cx, &now.base, publication, now.foreign).await?;
    if current == asked && !(approves && answer.hash.is_none() && now.foreign.is_some()) {
        return Ok(AnswerOutcome::Accepted);
    }
    let (files, diff) = changed_files(cx, publication, &now.base).await?;
    let others = load_foreign_files(cx, now.foreign).await?;
    let line = approves.then(|| publication.approve_line(current));
    let stale = messages::changed_files_reply((&files, &diff), &others, line.as_ref());
    let (_, shown_at) = post_announcement(cx, &format!("stale-{}", answer.cause), &stale).await?;
    Ok(AnswerOutcome::AskAgain { subject: current, shown_at, now: Some(now) })
}

/// Checks that the document is on the branch. If the document is missing, returns an error that asks people to restore
/// it.
fn require_document_on_branch(seen: &BranchView, proposal: &Proposal) -> Result<(), StepError> {
    let (path, branch) = (&proposal.path, &proposal.branch);
    let why = match (&seen.head, seen.document) {
        (Some(_), Some(_)) => return Ok(()),
        (None, _) => format!(
            "The branch `{branch}` was deleted. Press “Restore branch” on its pull request and write `/retry`, or \
             start again."
        ),
        (Some(_), None) => {
            format!("`{path}` was removed from the branch `{branch}`. Put it back, or start again.")
        }
    };
    Err(StepError::User(why))
}

/// Whether an approval is refused because the issue was edited since the run read it. Only an approval without a hash
/// is refused. In that case, a reply shows the edit.
pub async fn reply_if_issue_edited(
    cx: &StepContext,
    answer: &GateAnswer,
    issue: &IssueSnapshot,
    line: &ApproveLine,
) -> Result<bool, StepError> {
    let repo = cx.tools().repository(cx).await?;
    // An override has no hash but a reason; the audit link names its subject.
    let bare = answer.hash.is_none() && answer.verb == Verb::Approve;
    let edited = find_issue_edit(cx, &format!("edited-{}", answer.cause), &repo, issue).await?;
    let Some((_, diff)) = edited.filter(|_| bare) else { return Ok(false) };
    let changed = messages::issue_changed_reply(&diff, line);
    post_announcement(cx, &format!("changed-{}", answer.cause), &changed).await.map(|_| true)
}

/// Returns the current issue and its difference from the snapshot, if somebody other than the bot edited the issue.
///
/// # Errors
/// Errors of reading the issue, including that the issue is closed.
pub async fn find_issue_edit(
    cx: &StepContext,
    key: &str,
    repo: &GitHubRepo,
    then: &IssueSnapshot,
) -> Result<Option<(IssueSnapshot, String)>, StepError> {
    let now: IssueSnapshot = cx.once(key, |_| cx.tools().read_issue(cx, repo)).await?;
    if is_issue_unchanged(cx, then.digest, now.digest).await? {
        return Ok(None);
    }
    // Compare visible texts only: models saw nothing else.
    let before = format!("{}\n\n{}\n", then.title, load_text(cx, &then.body).await?);
    let after = format!("{}\n\n{}\n", now.title, load_text(cx, &now.body).await?);
    let diff = text_diff(&before, &after);
    let diff = if diff.is_empty() { "(only hidden parts changed)".to_owned() } else { diff };
    Ok(Some((now, diff)))
}

/// Returns a unified diff of two texts, for people to read.
pub fn text_diff(before: &str, after: &str) -> String {
    similar::TextDiff::from_lines(before, after).unified_diff().context_radius(2).to_string()
}

/// Returns the files that the document mentions and that changed between the document's base commit and `now`, and
/// their diff.
async fn changed_files(
    cx: &StepContext,
    publication: &Publication<'_>,
    now: &BaseCommit,
) -> Result<(Vec<String>, String), StepError> {
    let before = cx.tools().snapshot(cx, publication.base).await?;
    let after = cx.tools().snapshot(cx, now).await?;
    let held = |snapshot: &Snapshot, path: &str| snapshot.entry(path).map(|e| e.oid.clone());
    let paths = publication.paths.iter();
    let paths: Vec<String> =
        paths.filter(|path| held(&before, path) != held(&after, path)).cloned().collect();
    let mut diff = String::new();
    for path in paths.iter().take(DIFFS_SHOWN) {
        if diff.chars().count() >= messages::DIFF_CHARS {
            break;
        }
        // Files that cannot be shown are still listed.
        if let (Some(before), Some(after)) =
            (readable_text(&before, path).await, readable_text(&after, path).await)
        {
            let path = path.clone();
            let work = move || {
                let [before, after] = [before, after].map(|text| text.map(|text| redact_text(&text)));
                file_diff(&path, before.as_deref(), after.as_deref())
            };
            diff += &run_blocking(work).await.map_err(git_error)?;
        }
    }
    Ok((paths, diff))
}

/// Returns a file's text. The result is `Some(None)` if the file does not exist, and `None` if it is not text, is too
/// large or may contain secrets.
async fn readable_text(snapshot: &Snapshot, path: &str) -> Option<Option<String>> {
    let Some(entry) = snapshot.entry(path) else { return Some(None) };
    if is_secret_path(path) || entry.size > DIFF_BYTES {
        return None;
    }
    let bytes = snapshot.read_path(path).await.ok()??;
    String::from_utf8(bytes.to_vec()).ok().map(Some)
}

/// Commits the approved bytes unchanged, together with the review log. Refuses to commit if the foreign files have
/// changed since the approval. Requires a countersignature.
pub async fn publish_document(
    cx: &StepContext,
    signed: &Countersignature,
    proposal: &Proposal,
    foreign: Option<Hash>,
    (log_path, log): (String, String),
    message: &str,
) -> Result<CommitOutcome, StepError> {
    if signed.document() != proposal.document {
        return Err(StepError::Bug(anyhow::anyhow!("the proposed document is not the countersigned one")));
    }
    let repo = cx.tools().repository(cx).await?;
    let place = BranchExpectation {
        path: &proposal.path,
        ours: Some(proposal.published_hash()),
        wanted: None,
        files: &[],
        only: BranchPolicy::ShownWithForeign(foreign),
        tried: None,
    };
    let files = vec![
        (proposal.path.clone(), Some(cx.get(&proposal.published_hash()).await?)),
        (log_path, Some(log.into_bytes())),
    ];
    commit_to_branch(cx, (&repo, &proposal.commit), "publish", &place, files, message).await
}

/// Returns the audit link and the commit of this run's publication, if the commit was made. Searches the pull request's
/// commits, which include that commit even if the branch is gone or other commits follow. Returns `None` if GitHub does
/// not show the pull request.
pub async fn find_published_commit(
    cx: &StepContext,
    proposal: &Proposal,
) -> Result<Option<(Hash, Oid)>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    let commits = none_if_refused(repo.commits_of_pull(proposal.pull).await).map_err(github_error)?;
    let run = format!("Countersign-Run: {}", cx.run().id);
    let document = format!("Countersign-Document: {}", proposal.document);
    let named: Vec<(Hash, Oid)> = commits
        .into_iter()
        .flatten()
        .filter_map(|(commit, message)| {
            let ours = [&run, &document].into_iter().all(|own| message.lines().any(|line| line == own));
            let mut links = message.lines().filter_map(|line| line.strip_prefix(messages::AUDIT_TRAILER));
            Some((links.find_map(|link| link.parse().ok()).filter(|_| ours)?, commit))
        })
        .collect();
    if named.is_empty() {
        return Ok(None);
    }
    // Anybody who can push can write such a message, so the link must be in our audit chain.
    let db = cx.tools().store.repository_database(cx.run().id.repo).await.map_err(anyhow::Error::new)?;
    let chain = db.audit_chain().await.map_err(anyhow::Error::new)?;
    let on_chain = |link: &Hash| chain.iter().any(|row| row.hash == *link && row.run == cx.run().id);
    Ok(named.into_iter().find(|(link, _)| on_chain(link)))
}
