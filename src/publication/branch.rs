//! The issue's branch: what on it is ours, what is others', and how a commit of ours gets there.
//!
//! Who approves a document does not approve whatever else somebody pushed to its branch. So all by which the branch
//! differs from the default branch since the two parted is held against what our runs of the issue are known to have
//! committed. What is left is *foreign*: it is shown at the gate and on the pull request, and an approval is bound to
//! it. A branch that does not hold our last commit any more, or has nothing in common with the default branch, is not
//! ours to repair. It is left alone, and another one follows it.

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

/// What a commit of ours on the issue's branch came to.
pub enum CommitOutcome {
    Committed(BranchCommit),
    /// Somebody else's version was there first; nothing of theirs was overwritten.
    ForeignVersion(Hash),
    /// Nothing was committed, since the branch is not as people saw it: they have to be asked anew.
    BranchChanged {
        /// Our last commit is not in it any more.
        rewritten: bool,
        /// What others have on it now.
        foreign: Option<Hash>,
    },
}

/// A commit of ours and where it is.
pub struct BranchCommit {
    pub branch: String,
    /// There was no such branch before.
    pub created_branch: bool,
    pub commit: Oid,
    /// The list of what others have on the branch, stored; none: they have nothing there.
    pub foreign: Option<Hash>,
    /// The branch that was left alone, since somebody rewrote it.
    pub abandoned_branch: Option<String>,
}

/// What a commit of ours may find on the branch.
pub(super) struct BranchExpectation<'a> {
    pub path: &'a str,
    /// The document we last put there.
    pub ours: Option<Hash>,
    /// When this very document is there already, if there is to be one, and the files with it, no commit is needed.
    pub wanted: Option<Hash>,
    pub files: &'a [(String, Option<Hash>)],
    pub only: BranchPolicy,
    /// The commit on which what is to go there was tried.
    pub tried: Option<&'a Oid>,
}

impl BranchExpectation<'_> {
    /// Is all of it there?
    fn is_there(&self, seen: &BranchView) -> bool {
        let wants = self.wanted.is_some() || !self.files.is_empty();
        wants && seen.complete && (self.wanted.is_none() || seen.document == self.wanted)
    }
}

/// On what branch may we commit?
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BranchPolicy {
    /// On whichever is ours, or on a new one where somebody rewrote that.
    OursOrNew,
    /// On the one that a pull request of this run shows, if it is still ours.
    Shown,
    /// On that, if others have exactly this on it: people agreed to it.
    ShownWithForeign(Option<Hash>),
    /// The same on whichever is ours, or on a new one where somebody rewrote that: there others have nothing.
    OursOrNewWithForeign(Option<Hash>),
}

/// One look at the branch: everything here belongs together.
#[derive(Serialize, Deserialize)]
pub(super) struct BranchView {
    /// The default branch at that moment.
    pub base: BaseCommit,
    pub branch: String,
    pub head: Option<Oid>,
    /// The branch that somebody rewrote, if one was. Then `branch` is the one to follow it.
    pub left: Option<String>,
    pub document: Option<Hash>,
    /// The document is not one that this program put there.
    pub theirs: bool,
    pub foreign: Option<Hash>,
    /// Where it parted from the default branch.
    #[serde(default)]
    parted: Vec<Oid>,
    /// All files that are wanted are there, or somebody's own version of them.
    #[serde(default)]
    complete: bool,
}

/// The branch may move between the look and the commit; then it is looked at again, so often.
const COMMIT_ATTEMPTS: u32 = 5;

/// Branches of one issue, of which people rewrote all but the last.
const MOST_BRANCHES: u32 = 99;

/// The branch on which the runs of the issue commit now.
pub(super) async fn current_branch(cx: &StepContext) -> Result<String, StepError> {
    Ok(load_commits(cx).await?.1)
}

/// What all runs of the issue committed, the oldest first, and where they commit now.
async fn load_commits(cx: &StepContext) -> Result<(Vec<CommitRow>, String), StepError> {
    let (run, issue) = (cx.run(), cx.run().trigger.issue);
    let db = cx.tools().store.repository_database(run.id.repo).await.map_err(anyhow::Error::new)?;
    let known = db.commits_of_issue(issue).await.map_err(anyhow::Error::new)?;
    let branch = known.last().map_or_else(|| issue.branch(1), |row| row.branch.clone());
    Ok((known, branch))
}

/// Commits on top of exactly what was looked at: nobody's commit in between is lost, and what the look found of others
/// is all of theirs that is under ours. A branch begins at `base`.
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
                // A file that is made from the document gives way to somebody's own version of it.
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
        "The branch `{}` moved under every one of {COMMIT_ATTEMPTS} tries to commit.",
        spec.branch
    )))
}

/// None: the branch is not where it was looked at.
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
        // First of all: what was committed is ours also where nobody lives to see it done.
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

/// Looks at the branch, and for a name for the one to follow it where somebody rewrote it.
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

/// Where the branch parted from the default branch. Where people merged up to a commit of ours, no more than that is below it:
/// what was `tried` before is held against that commit's own beginning.
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

/// Are these files there, as they are here?
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

/// What our last commit put on the branch, or one after it that may have been made. An older version of ours that is
/// there again was brought back by somebody.
fn last_committed_files<'k>(
    known: &'k [CommitRow],
    path: &str,
) -> impl Iterator<Item = &'k (String, Option<Hash>)> {
    let has_it = |row: &CommitRow| row.commit.is_some() && row.files.iter().any(|(there, _)| there == path);
    let from = known.iter().rposition(has_it).unwrap_or_default();
    known[from..].iter().flat_map(|row| &row.files)
}

/// Is our last commit gone from the branch, or all that it had in common with the default branch?
async fn is_rewritten(
    repo: &GitHubRepo,
    branch: &str,
    base: &Oid,
    head: &Snapshot,
    known: &[CommitRow],
) -> Result<bool, StepError> {
    // What was on the branch before it began anew is nothing that it has to hold.
    let ours = known.iter().filter(|row| row.branch == branch);
    let ours = ours.fold(None, |last, row| row.commit.as_ref().or(last.filter(|_| !row.begins)));
    let holds_ours = match ours {
        Some(commit) => head.merge_bases(commit).await.map_err(git_error)?.contains(commit),
        None => true,
    };
    if holds_ours && !head.merge_bases(base).await.map_err(git_error)?.is_empty() {
        return Ok(false);
    }
    // What a fetch brings may be behind.
    if repo.branch(branch).await.map_err(github_error)?.as_ref() != Some(&head.commit) {
        let why = format!("GitHub shows the branch `{branch}` at two commits");
        return Err(StepError::Later { why, after: limits::LOOKUP_INTERVAL });
    }
    Ok(true)
}

/// A name for the branch that follows those which were rewritten.
async fn unused_branch_name(repo: &GitHubRepo, issue: IssueNo) -> Result<String, StepError> {
    for number in 2..=MOST_BRANCHES {
        let name = issue.branch(number);
        if repo.branch(&name).await.map_err(github_error)?.is_none() {
            return Ok(name);
        }
    }
    Err(StepError::User(format!(
        "There are {MOST_BRANCHES} branches for this issue already. Delete those that nobody needs, then start anew."
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
            "`{path}` on the branch `{branch}` is not a text of at most {} KB. Mend it there, then start anew.",
            limits::DOCUMENT_BYTES / 1024
        ))),
    }
}

/// Stores the list of what others have on the branch.
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

/// What others have on the issue's branch now. On one that is gone they have nothing. Where code is to go there that was
/// `tried` on a commit and changes these paths, nothing else may be on it.
///
/// # Errors
/// `User` where there is, and so the code was not tried with it.
pub async fn find_foreign_files(
    cx: &StepContext,
    key: &str,
    tried: Option<(&BaseCommit, &[String])>,
) -> Result<Option<Hash>, StepError> {
    cx.once(key, |_| look_up_foreign_files(cx, tried)).await
}

/// As [`find_foreign_files`] where further code is to go on the branch; why it cannot is an answer.
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
    // One that has nothing in common with the default branch is left alone, and another begins where it was tried.
    if let Some((tried, paths)) = tried.filter(|_| !parted.is_empty()) {
        if parted != [tried.commit.clone()] {
            return Err(wrong_base_error(&branch, tried));
        }
        if let Some(path) = list_earlier_files(&head, &parted, &ours, paths).await?.first() {
            return Err(StepError::User(format!(
                "`{path}` on the branch `{branch}` is of an earlier change, and this one was not tried with it. Take it \
                 back there, then start anew."
            )));
        }
    }
    store_foreign_files(cx, &head, &parted, &ours).await
}

/// Files that earlier changes of the issue left on its branch, besides `paths`.
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

/// Changed files of ours besides `paths`. Of ours only documents are Markdown, and they are no part of a change.
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

/// Code is pushed as it was tried: on that very commit.
fn wrong_base_error(branch: &str, tried: &BaseCommit) -> StepError {
    StepError::User(format!(
        "The branch `{branch}` does not part from `{0}` at the commit on which the code is tried ({1}), so something else would \
         be pushed. Merge `{0}` into it (“Update branch” on its pull request), or where that is merged delete the branch; then \
         start anew.",
        tried.branch, tried.commit
    ))
}

/// Where a document that was published on the issue's branch holds something else by now, or nothing: the path and the
/// branch. None: it is as it was, or on a branch that is gone and that another one follows. Once the present one is gone, the
/// default branch is what counts.
pub async fn find_altered_document(
    cx: &StepContext,
    document: &Hash,
) -> Result<Option<(String, String)>, StepError> {
    let repo = cx.tools().repository(cx).await?;
    let (known, present) = load_commits(cx).await?;
    let of_row =
        |row: &CommitRow| row.files.iter().find(|(_, hash)| hash.as_ref() == Some(document)).cloned();
    // Where somebody rewrote its branch since, the one that follows that does not have to hold it.
    let last = known.iter().rev().find_map(|row| Some((row.branch.clone(), of_row(row)?)));
    // A document that was published in a comment is on no branch.
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

/// A stored list.
pub async fn load_foreign_files(cx: &StepContext, list: Option<Hash>) -> Result<Vec<ChangedPath>, StepError> {
    match list {
        Some(list) => Ok(serde_json::from_slice(&cx.get(&list).await?).map_err(anyhow::Error::new)?),
        None => Ok(Vec::new()),
    }
}
