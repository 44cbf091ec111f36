//! The issue's branch: our files on it, other people's files, and our commits.
//!
//! An approval of a document does not cover other changes that somebody pushed to its branch. So we compare the
//! branch's changes since the merge base with the commits of our runs of the issue. All other changes are *foreign*:
//! the gate and the pull request show them, and an approval is bound to them. A branch counts as rewritten if it lacks
//! our last commit or is unrelated to the default branch. We leave a rewritten branch alone and continue on a new one.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{
    engine::{CommitRow, LedgerRecord, StepError},
    git::{ChangedPath, EntryMode, Snapshot},
    github::{CommitSpec, GitHubApiError, GitHubRepo},
    limits,
    messages::PushObstacle,
    rounds::{BaseCommit, StepContext, git_error, github_error},
    types::{Hash, IssueNo, Oid},
};

/// Result of a commit to the issue's branch.
pub enum CommitOutcome {
    Committed(BranchCommit),
    /// Nothing was committed, because the branch has a version of the document by somebody else. Holds the hash of that
    /// version.
    ForeignVersion(Hash),
    /// Nothing was committed, because the branch has changed since its state was shown to people. They must be asked
    /// again.
    BranchChanged {
        /// Whether the branch no longer contains our last commit.
        rewritten: bool,
        /// Hash of the stored list of foreign files that are on the branch now.
        foreign: Option<Hash>,
    },
}

/// A commit that we made on a branch.
pub struct BranchCommit {
    pub branch: String,
    pub created_branch: bool,
    pub commit: Oid,
    /// Hash of the stored list of foreign files on the branch. `None` if there are no foreign files.
    pub foreign: Option<Hash>,
    /// Name of the rewritten branch that we abandoned, if any.
    pub abandoned_branch: Option<String>,
}

/// State in which the branch is expected to be before a commit, and the content to commit.
pub(super) struct BranchExpectation<'a> {
    pub path: &'a str,
    /// Hash of the document as of our last commit.
    pub ours: Option<Hash>,
    /// Hash of the document to commit, if any. Nothing is committed if the branch already has this document and
    /// `files`.
    pub wanted: Option<Hash>,
    pub files: &'a [(String, Option<Hash>)],
    pub only: BranchPolicy,
    /// The commit on which the code was tested. `None` if no code is committed.
    pub tried: Option<&'a Oid>,
}

impl BranchExpectation<'_> {
    /// Whether the branch already contains everything that should be committed.
    fn is_there(&self, seen: &BranchView) -> bool {
        let wants = self.wanted.is_some() || !self.files.is_empty();
        wants && seen.complete && (self.wanted.is_none() || seen.document == self.wanted)
    }
}

/// Branches that a commit may go to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BranchPolicy {
    /// Our current branch, or a new branch if somebody rewrote ours.
    OursOrNew,
    /// The branch of this run's pull request, but only if nobody rewrote the branch.
    Shown,
    /// The branch of this run's pull request, but only if nobody rewrote it and it has exactly these foreign files,
    /// which people approved.
    ShownWithForeign(Option<Hash>),
    /// Our current branch, but only if it has exactly these foreign files; or a new branch if somebody rewrote ours. A
    /// new branch has no foreign files.
    OursOrNewWithForeign(Option<Hash>),
}

/// A consistent snapshot of the branch.
#[derive(Serialize, Deserialize)]
pub(super) struct BranchView {
    /// Head of the default branch when the snapshot was taken.
    pub base: BaseCommit,
    pub branch: String,
    pub head: Option<Oid>,
    /// Name of the rewritten branch, if the branch was rewritten. In that case, `branch` is its successor.
    pub left: Option<String>,
    pub document: Option<Hash>,
    /// Whether the branch's version of the document was written by somebody else.
    pub theirs: bool,
    pub foreign: Option<Hash>,
    /// Merge bases of the branch and the default branch.
    #[serde(default)]
    parted: Vec<Oid>,
    /// Whether the branch has all files that should be committed, each in our version or in somebody else's.
    #[serde(default)]
    complete: bool,
}

/// Maximum number of attempts to commit. An attempt fails if the branch changes between reading it and committing.
const COMMIT_ATTEMPTS: u32 = 5;

/// Maximum number of branches per issue: the current branch and all rewritten ones.
const MOST_BRANCHES: u32 = 99;

/// Returns the name of the branch on which the issue's runs currently commit.
pub(super) async fn current_branch(cx: &StepContext) -> Result<String, StepError> {
    Ok(load_commits(cx).await?.1)
}

/// Returns all commits of the issue's runs, oldest first, and the name of the current branch.
async fn load_commits(cx: &StepContext) -> Result<(Vec<CommitRow>, String), StepError> {
    let (run, issue) = (cx.run(), cx.run().trigger.issue);
    let db = cx.tools().store.repository_database(run.id.repo).await.map_err(anyhow::Error::new)?;
    let known = db.commits_of_issue(issue).await.map_err(anyhow::Error::new)?;
    let branch = known.last().map_or_else(|| issue.branch(1), |row| row.branch.clone());
    Ok((known, branch))
}

/// Commits on top of exactly the head that was read, so that no other commit is lost and the list of foreign files is
/// complete. A new branch starts at `base`.
pub(super) async fn commit_to_branch(
    cx: &StepContext,
    (repo, base): (&GitHubRepo, &Oid),
    key: &str,
    place: &BranchExpectation<'_>,
    files: Vec<(String, Option<Vec<u8>>)>,
    message: &str,
) -> Result<CommitOutcome, StepError> {
    let (branch, parent, message) = (String::new(), base.clone(), message.to_owned());
    let mut spec = CommitSpec { branch, creates_branch: true, parent, files: Vec::new(), message };
    let mut left = None;
    for attempt in 1..=COMMIT_ATTEMPTS {
        let seen = read_branch(cx, &format!("{key}-branch-{attempt}"), repo, place).await?;
        if let Some(theirs) = seen.document.filter(|_| seen.theirs) {
            return Ok(CommitOutcome::ForeignVersion(theirs));
        }
        let agreed = match place.only {
            BranchPolicy::OursOrNew => true,
            BranchPolicy::Shown => seen.left.is_none(),
            BranchPolicy::ShownWithForeign(foreign) => seen.left.is_none() && seen.foreign == foreign,
            BranchPolicy::OursOrNewWithForeign(foreign) => seen.left.is_some() || seen.foreign == foreign,
        };
        if !agreed {
            return Ok(CommitOutcome::BranchChanged {
                rewritten: seen.left.is_some(),
                foreign: seen.foreign,
            });
        }
        if matches!(place.only, BranchPolicy::OursOrNewWithForeign(_))
            && seen.head.is_some()
            && seen.parted != [base.clone()]
        {
            let tried = BaseCommit { branch: seen.base.branch, commit: base.clone() };
            return Err(wrong_base_error(&seen.branch, &tried));
        }
        let is_there = place.is_there(&seen);
        left = seen.left.or(left);
        (spec.branch, spec.creates_branch) = (seen.branch, seen.head.is_none());
        let commit = match seen.head {
            Some(head) if is_there => Some(head),
            head => {
                spec.parent = head.unwrap_or_else(|| base.clone());
                // Somebody's own version of a generated file wins over ours.
                let theirs = load_foreign_files(cx, seen.foreign).await?;
                let gives_way = |path: &str| {
                    place.files.iter().any(|(made, _)| made == path)
                        && theirs.iter().any(|changed| changed.path == path)
                };
                spec.files = files.iter().filter(|(path, _)| !gives_way(path)).cloned().collect();
                try_commit(cx, &format!("{key}-{attempt}"), repo, &spec).await?
            }
        };
        if let Some(commit) = commit {
            let (branch, begun, foreign) = (spec.branch, spec.creates_branch, seen.foreign);
            return Ok(CommitOutcome::Committed(BranchCommit {
                branch,
                created_branch: begun,
                commit,
                foreign,
                abandoned_branch: left,
            }));
        }
    }
    Err(StepError::User(format!(
        "The branch `{}` changed during each of {COMMIT_ATTEMPTS} attempts to commit.",
        spec.branch
    )))
}

/// Makes the commit. Returns `None` if the branch has changed since it was read.
async fn try_commit(
    cx: &StepContext,
    key: &str,
    repo: &GitHubRepo,
    spec: &CommitSpec,
) -> Result<Option<Oid>, StepError> {
    let files: Vec<_> = spec
        .files
        .iter()
        .map(|(path, bytes)| (path.clone(), bytes.as_ref().map(|bytes| Hash::digest(bytes))))
        .collect();
    let row = |commit| {
        let (branch, begins, files) = (spec.branch.clone(), spec.creates_branch, files.clone());
        LedgerRecord::Commit(CommitRow { branch, begins, files, commit })
    };
    let row = &row;
    cx.once(key, |entry| async move {
        // Record the files first: after a crash they must still count as ours.
        cx.record(key, row(None)).await?;
        match repo.ensure_commit(spec, entry.interrupted).await {
            Ok(made) => {
                cx.record_later(key, row(Some(made.oid.clone()))).await?;
                Ok(Some(made.oid))
            }
            Err(GitHubApiError::Conflict { .. }) => Ok(None),
            Err(other) => Err(github_error(other)),
        }
    })
    .await
}

/// Reads the branch. If somebody rewrote the branch, also finds a name for the branch that succeeds it.
pub(super) async fn read_branch(
    cx: &StepContext,
    key: &str,
    repo: &GitHubRepo,
    place: &BranchExpectation<'_>,
) -> Result<BranchView, StepError> {
    cx.once(key, |_| async {
        let (known, branch) = load_commits(cx).await?;
        let (base, head) = cx.tools().fetch_branches(cx, repo, Some(&branch)).await?;
        let unseen = BranchView {
            base,
            branch,
            head: None,
            left: None,
            document: None,
            theirs: false,
            foreign: None,
            parted: Vec::new(),
            complete: false,
        };
        let Some(head) = head else { return Ok(unseen) };
        if is_rewritten(repo, &unseen.branch, &unseen.base.commit, &head, &known).await? {
            let branch = unused_branch_name(repo, cx.run().trigger.issue).await?;
            return Ok(BranchView { left: Some(unseen.branch), branch, ..unseen });
        }
        let document = read_document(cx, &unseen.branch, place.path, &head).await?;
        let here = [place.ours, place.wanted].into_iter().flatten();
        let here: Vec<_> = here.map(|document| (place.path.to_owned(), Some(document))).collect();
        let there = document.map(|document| (place.path.to_owned(), Some(document)));
        let theirs = there.is_some_and(|there| {
            !here.contains(&there) && !last_committed_files(&known, place.path).any(|file| *file == there)
        });
        let parted = find_fork_points(&head, &unseen.base, place.tried, &known).await?;
        let ours =
            known.into_iter().flat_map(|row| row.files).chain(here).chain(place.files.to_vec()).collect();
        let foreign = store_foreign_files(cx, &head, &parted, &ours).await?;
        let changed = load_foreign_files(cx, foreign).await?;
        let ours = place.files.iter().filter(|(path, _)| !changed.iter().any(|theirs| theirs.path == *path));
        let complete = has_files(&head, ours).await?;
        Ok(BranchView { head: Some(head.commit), document, theirs, foreign, parted, complete, ..unseen })
    })
    .await
}

/// Returns the merge bases of the branch and the default branch. If people merged the branch, the merge base may be a
/// commit of ours, which would hide our changes. In that case, returns the merge bases of the branch and the `tried`
/// commit.
async fn find_fork_points(
    head: &Snapshot,
    now: &BaseCommit,
    tried: Option<&Oid>,
    known: &[CommitRow],
) -> Result<Vec<Oid>, StepError> {
    let parted = head.merge_bases(&now.commit).await.map_err(git_error)?;
    let ours = |commit: &Oid| known.iter().any(|row| row.commit.as_ref() == Some(commit));
    match tried.filter(|_| parted.iter().any(ours)) {
        Some(tried) => head.merge_bases(tried).await.map_err(git_error),
        None => Ok(parted),
    }
}

/// Whether the snapshot has each of these files with exactly the given contents.
async fn has_files(
    head: &Snapshot,
    files: impl Iterator<Item = &(String, Option<Hash>)>,
) -> Result<bool, StepError> {
    for (path, hash) in files {
        let bytes = head.read_path(path).await.map_err(git_error)?;
        if bytes.map(|bytes| Hash::digest(&bytes)) != *hash {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the files of our last commit that contains `path`, and of all later entries, whose commits may have been
/// made. Older versions of ours are left out: if the branch has one, somebody else put it there.
fn last_committed_files<'k>(
    known: &'k [CommitRow],
    path: &str,
) -> impl Iterator<Item = &'k (String, Option<Hash>)> {
    let has_it = |row: &CommitRow| row.commit.is_some() && row.files.iter().any(|(there, _)| there == path);
    let from = known.iter().rposition(has_it).unwrap_or_default();
    known[from..].iter().flat_map(|row| &row.files)
}

/// Whether the branch was rewritten: it has lost our last commit, or it has no common history with the default branch.
async fn is_rewritten(
    repo: &GitHubRepo,
    branch: &str,
    base: &Oid,
    head: &Snapshot,
    known: &[CommitRow],
) -> Result<bool, StepError> {
    // Commits before the branch was recreated do not have to be in it.
    let ours = known.iter().filter(|row| row.branch == branch);
    let ours = ours.fold(None, |last, row| row.commit.as_ref().or(last.filter(|_| !row.begins)));
    let holds_ours = match ours {
        Some(commit) => head.merge_bases(commit).await.map_err(git_error)?.contains(commit),
        None => true,
    };
    if holds_ours && !head.merge_bases(base).await.map_err(git_error)?.is_empty() {
        return Ok(false);
    }
    // The fetched state may be older than GitHub's.
    if repo.branch(branch).await.map_err(github_error)?.as_ref() != Some(&head.commit) {
        let why = format!("GitHub reports two different head commits for the branch `{branch}`");
        return Err(StepError::Later { why, after: limits::LOOKUP_INTERVAL });
    }
    Ok(true)
}

/// Finds an unused name for the branch that succeeds a rewritten branch.
async fn unused_branch_name(repo: &GitHubRepo, issue: IssueNo) -> Result<String, StepError> {
    for number in 2..=MOST_BRANCHES {
        let name = issue.branch(number);
        if repo.branch(&name).await.map_err(github_error)?.is_none() {
            return Ok(name);
        }
    }
    Err(StepError::User(format!(
        "This issue already has {MOST_BRANCHES} branches. Delete those that nobody needs, then start again."
    )))
}

async fn read_document(
    cx: &StepContext,
    branch: &str,
    path: &str,
    head: &Snapshot,
) -> Result<Option<Hash>, StepError> {
    let small = head.entry(path).is_none_or(|entry| entry.size <= limits::DOCUMENT_BYTES as u64);
    let bytes = if small { head.read_path(path).await.map_err(git_error)? } else { None };
    match bytes {
        Some(bytes) if std::str::from_utf8(&bytes).is_ok() => Ok(Some(cx.put(&bytes).await?)),
        None if small => Ok(None),
        _ => Err(StepError::User(format!(
            "`{path}` on the branch `{branch}` is not a text file of at most {} KB. Fix it there, then start again.",
            limits::DOCUMENT_BYTES / 1024
        ))),
    }
}

async fn store_foreign_files(
    cx: &StepContext,
    head: &Snapshot,
    parted: &[Oid],
    ours: &HashSet<(String, Option<Hash>)>,
) -> Result<Option<Hash>, StepError> {
    let mut foreign = Vec::new();
    for changed in head.changed_since(parted).await.map_err(git_error)? {
        if !is_ours(head, &changed, ours).await? {
            foreign.push(changed);
        }
    }
    if foreign.is_empty() {
        return Ok(None);
    }
    cx.put(&serde_json::to_vec(&foreign).map_err(anyhow::Error::new)?).await.map(Some)
}

async fn is_ours(
    head: &Snapshot,
    changed: &ChangedPath,
    ours: &HashSet<(String, Option<Hash>)>,
) -> Result<bool, StepError> {
    match &changed.now {
        None => return Ok(ours.contains(&(changed.path.clone(), None))),
        Some((EntryMode::File, _)) => {}
        Some(_) => return Ok(false),
    }
    let small = head.entry(&changed.path).is_some_and(|entry| entry.size <= limits::BLOB_BYTES);
    if !small || !ours.iter().any(|(path, _)| *path == changed.path) {
        return Ok(false);
    }
    let bytes = head.read_path(&changed.path).await.map_err(git_error)?;
    Ok(bytes.iter().any(|bytes| ours.contains(&(changed.path.clone(), Some(Hash::digest(bytes))))))
}

/// Returns the stored list of foreign files on the issue's branch; `None` if the branch does not exist. `tried` is set
/// for a push of new code: the commit on which the code was tested, and the paths that it changes. In that case, the
/// branch must not contain other code of an earlier change.
///
/// # Errors
/// `User` if the branch contains such code, because the new code was not tested together with it.
pub async fn find_foreign_files(
    cx: &StepContext,
    key: &str,
    tried: Option<(&BaseCommit, &[String])>,
) -> Result<Option<Hash>, StepError> {
    cx.once(key, |_| look_up_foreign_files(cx, tried)).await
}

/// Looks for foreign files like [`find_foreign_files`], before another push of code. Returns the obstacle instead of a
/// `User` error.
pub async fn find_push_obstacle(
    cx: &StepContext,
    key: &str,
    tried: (&BaseCommit, &[String]),
) -> Result<Result<Option<Hash>, PushObstacle>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    cx.once(key, |_| async {
        let (known, branch) = load_commits(cx).await?;
        if let (now, Some(head)) = cx.tools().fetch_branches(cx, &repo, Some(&branch)).await? {
            if is_rewritten(&repo, &branch, &now.commit, &head, &known).await? {
                return Ok(Err(PushObstacle::Rewritten(branch)));
            }
            let tried = &tried.0.commit;
            if find_fork_points(&head, &now, Some(tried), &known).await? != std::slice::from_ref(tried) {
                return Ok(Err(PushObstacle::Updated { branch, base: now.branch }));
            }
        }
        match look_up_foreign_files(cx, Some(tried)).await {
            Err(StepError::User(why)) => Ok(Err(PushObstacle::Other(why))),
            looked => looked.map(Ok),
        }
    })
    .await
}

async fn look_up_foreign_files(
    cx: &StepContext,
    tried: Option<(&BaseCommit, &[String])>,
) -> Result<Option<Hash>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    let (known, branch) = load_commits(cx).await?;
    let (now, Some(head)) = cx.tools().fetch_branches(cx, &repo, Some(&branch)).await? else {
        return Ok(None);
    };
    let parted = find_fork_points(&head, &now, tried.map(|(tried, _)| &tried.commit), &known).await?;
    let ours: HashSet<_> = known.into_iter().flat_map(|row| row.files).collect();
    // A branch unrelated to the default branch is abandoned, so it is no obstacle.
    if let Some((tried, paths)) = tried.filter(|_| !parted.is_empty()) {
        if parted != [tried.commit.clone()] {
            return Err(wrong_base_error(&branch, tried));
        }
        if let Some(path) = list_earlier_files(&head, &parted, &ours, paths).await?.first() {
            return Err(StepError::User(format!(
                "`{path}` on the branch `{branch}` is from an earlier change, and this change was not tested with it. \
                 Revert it there, then start again."
            )));
        }
    }
    store_foreign_files(cx, &head, &parted, &ours).await
}

/// Returns the files on the issue's branch that come from earlier changes of ours, except `paths`.
pub async fn find_earlier_files(
    cx: &StepContext,
    key: &str,
    tried: &BaseCommit,
    paths: &[String],
) -> Result<Vec<String>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    cx.once(key, |_| async {
        let (known, branch) = load_commits(cx).await?;
        let (now, Some(head)) = cx.tools().fetch_branches(cx, &repo, Some(&branch)).await? else {
            return Ok(Vec::new());
        };
        let parted = find_fork_points(&head, &now, Some(&tried.commit), &known).await?;
        let ours = known.into_iter().flat_map(|row| row.files).collect();
        list_earlier_files(&head, &parted, &ours, paths).await
    })
    .await
}

/// Returns the files that our commits changed on the branch, except `paths`. Markdown files are left out, because they
/// are documents and not part of a code change.
async fn list_earlier_files(
    head: &Snapshot,
    parted: &[Oid],
    ours: &HashSet<(String, Option<Hash>)>,
    paths: &[String],
) -> Result<Vec<String>, StepError> {
    let mut earlier = Vec::new();
    for changed in head.changed_since(parted).await.map_err(git_error)? {
        let path = &changed.path;
        if !path.ends_with(".md") && !paths.contains(path) && is_ours(head, &changed, ours).await? {
            earlier.push(changed.path);
        }
    }
    Ok(earlier)
}

/// Builds the error for a branch that does not fork from the default branch at the tested commit. Code must be pushed
/// exactly as it was tested.
fn wrong_base_error(branch: &str, tried: &BaseCommit) -> StepError {
    StepError::User(format!(
        "The branch `{branch}` does not fork from `{0}` at the tested commit ({1}), so a push would contain other \
         changes. Merge `{0}` into it (“Update branch” on its pull request), or delete the branch if it is merged. \
         Then start again.",
        tried.branch, tried.commit
    ))
}

/// Returns the path and branch of a published document that has changed or is gone; `None` if the document is
/// unchanged. If the current branch is gone, the default branch is checked instead. If an older branch is gone, its
/// document counts as unchanged.
pub async fn find_altered_document(
    cx: &StepContext,
    document: &Hash,
) -> Result<Option<(String, String)>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    let (known, present) = load_commits(cx).await?;
    let of_row =
        |row: &CommitRow| row.files.iter().find(|(_, hash)| hash.as_ref() == Some(document)).cloned();
    // The successor of a rewritten branch does not have to hold it.
    let last = known.iter().rev().find_map(|row| Some((row.branch.clone(), of_row(row)?)));
    // A document published in a comment is on no branch.
    let Some((branch, file)) = last else { return Ok(None) };
    let (base, head) = cx.tools().fetch_branches(cx, &repo, Some(&branch)).await?;
    let (branch, head) = match head {
        Some(head) => (branch, head),
        None if branch != present => return Ok(None),
        None => (base.branch.clone(), cx.tools().snapshot(cx, &base).await?),
    };
    let same = has_files(&head, std::iter::once(&file)).await?;
    Ok((!same).then_some((file.0, branch)))
}

/// Loads a stored list of foreign files.
pub async fn load_foreign_files(cx: &StepContext, list: Option<Hash>) -> Result<Vec<ChangedPath>, StepError> {
    match list {
        Some(list) => Ok(serde_json::from_slice(&cx.get(&list).await?).map_err(anyhow::Error::new)?),
        None => Ok(Vec::new()),
    }
}
