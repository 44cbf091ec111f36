//! Branches, commits and files. The bytes of files are stored unchanged. GitHub signs each commit as a commit of the
//! App. A branch is moved only if its head is still the one that we saw.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    error::GitHubApiError,
    graphql::{GraphQlField, GraphQlResponse},
    manifest::{BLOB, COMMIT_OBJECT, COMMIT_ON_BRANCH, CONTENTS, GitHubEndpoint, REF},
    repo::GitHubRepo,
    write_pacing::WritePriority,
};
use crate::types::Oid;

/// Maximum number of commits that a retry searches for our earlier commit, from the branch's head down. Each commit
/// costs a call.
const COMMIT_SEARCH_DEPTH: usize = 20;

/// Files to commit on top of `parent`, which must be the branch's head.
#[derive(Debug, Clone)]
pub struct CommitSpec {
    pub branch: String,
    /// Whether the branch does not exist yet and is created at `parent`.
    pub creates_branch: bool,
    pub parent: Oid,
    /// Path and content of each file; `None` as content removes the file. All other files stay as in `parent`.
    pub files: Vec<(String, Option<Vec<u8>>)>,
    /// Commit message. Its trailer `Countersign-Run: …` makes the commit unique.
    pub message: String,
}

/// One of our commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub oid: Oid,
    pub url: String,
}

/// A commit's git object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    pub oid: Oid,
    pub tree: Oid,
    pub parents: Vec<Oid>,
    pub message: String,
}

#[derive(Debug, Deserialize)]
struct ShaObject {
    sha: Oid,
}

#[derive(Debug, Deserialize)]
struct GitRefResponse {
    #[serde(rename = "ref")]
    name: String,
    object: ShaObject,
}

#[derive(Debug, Deserialize)]
struct GitCommitResponse {
    sha: Oid,
    tree: ShaObject,
    parents: Vec<ShaObject>,
    message: String,
}

impl GitHubRepo {
    /// Returns the head of a branch, or `None` if the branch does not exist.
    pub async fn branch(&self, name: &str) -> Result<Option<Oid>, GitHubApiError> {
        check_branch(name)?;
        match self.send(self.request(&REF, &[name]).cacheable()).await {
            Ok(answer) => {
                let found: GitRefResponse = answer.json()?;
                Ok((found.name == format!("refs/heads/{name}")).then_some(found.object.sha))
            }
            // GitHub answers 409 for an empty repository.
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Conflict { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Commits files to a branch whose head is `spec.parent`. If the branch is new, it is created at that commit.
    ///
    /// With `interrupted`, an earlier attempt may have committed. A commit with the same parent, message and files is
    /// taken for that attempt and kept, even if others have committed on top of it. While GitHub's reads lag,
    /// [`GitHubApiError::Transient`] is returned.
    ///
    /// # Errors
    /// [`GitHubApiError::Conflict`] if the head of the branch is another commit.
    pub async fn ensure_commit(
        &self,
        spec: &CommitSpec,
        interrupted: bool,
    ) -> Result<Commit, GitHubApiError> {
        check_branch(&spec.branch)?;
        for (path, _) in &spec.files {
            check_path(path)?;
        }
        let about = format!("branch {}", spec.branch);
        let done = |head| Ok(self.resolve_uncertain_write(&about, self.commit_with_url(head)));
        if interrupted
            && let Some(head) = self.branch(&spec.branch).await?
            && let Some(made) = self.find_previous_attempt(spec, head).await?
        {
            return done(made);
        }
        let refused = match self.commit_on_branch(spec).await {
            Ok(oid) => return done(oid),
            Err(
                fault @ (GitHubApiError::Rejected { .. }
                | GitHubApiError::NotFound { .. }
                | GitHubApiError::BranchForbidden { .. }),
            ) => fault,
            Err(fault) => return Err(fault),
        };
        // Many faults have the same error; the branch's head shows which one it was.
        match self.branch(&spec.branch).await? {
            Some(head) if head == spec.parent => Err(self.unless_reads_lag(&about, refused)),
            Some(head) if self.is_same_commit(spec, &self.commit(&head).await?).await? => done(head),
            Some(head) => Err(GitHubApiError::Conflict {
                call: format!("moving {} in {}", spec.branch, self.name()),
                message: format!("it is at {} and no longer at {}", head.short(), spec.parent.short()),
            }),
            None if spec.creates_branch => Err(self.unless_reads_lag(&about, refused)),
            None => {
                Err(GitHubApiError::NotFound { call: format!("moving {} in {}", spec.branch, self.name()) })
            }
        }
    }

    /// Sends the commit in one request, which also creates the branch if needed. GitHub commits only on top of the
    /// expected parent.
    async fn commit_on_branch(&self, spec: &CommitSpec) -> Result<Oid, GitHubApiError> {
        let info = self.verify_identity().await?;
        let (headline, body) = spec.message.split_once("\n\n").unwrap_or((&spec.message, ""));
        let additions: Vec<_> = spec
            .files
            .iter()
            .filter_map(|(path, bytes)| Some((path, bytes.as_ref()?)))
            .map(|(path, bytes)| json!({ "path": path, "contents": STANDARD.encode(bytes) }))
            .collect();
        let mut changes = json!({ "additions": additions });
        let gone = spec.files.iter().filter(|(_, bytes)| bytes.is_none());
        let gone: Vec<_> = gone.map(|(path, _)| json!({ "path": path })).collect();
        if !gone.is_empty() {
            changes["deletions"] = gone.into();
        }
        let commit = GraphQlField {
            alias: "commit",
            mutation: "createCommitOnBranch",
            input_type: "CreateCommitOnBranchInput",
            selection: "commit { oid }",
            input: json!({
                "branch": { "repositoryNameWithOwner": info.name.to_string(), "branchName": spec.branch },
                "message": { "headline": headline, "body": body },
                "fileChanges": changes,
                "expectedHeadOid": spec.parent,
            }),
        };
        let begin = spec.creates_branch.then(|| GraphQlField {
            alias: "begin",
            mutation: "createRef",
            input_type: "CreateRefInput",
            selection: "clientMutationId",
            input: json!({
                "repositoryId": info.node, "name": format!("refs/heads/{}", spec.branch), "oid": spec.parent,
            }),
        });
        let fields: Vec<GraphQlField> = begin.into_iter().chain([commit]).collect();
        let mutated = self.mutate(&COMMIT_ON_BRANCH, &fields, WritePriority::Work).await?;
        // An existing branch is fine here; the commit fails if its head is wrong.
        let made = mutated.field(&COMMIT_ON_BRANCH, "commit").map_err(|fault| match fault {
            GitHubApiError::NotFound { .. } if spec.creates_branch => {
                branch_refusal(&mutated, &spec.branch).unwrap_or(fault)
            }
            fault => fault,
        })?;
        let made = &made["commit"]["oid"];
        Oid::deserialize(made).map_err(|e| GitHubApiError::unexpected(&COMMIT_ON_BRANCH.to_string(), e))
    }

    /// Searches for the commit of our earlier attempt, from the branch's head down to `spec.parent`.
    async fn find_previous_attempt(
        &self,
        spec: &CommitSpec,
        head: Oid,
    ) -> Result<Option<Oid>, GitHubApiError> {
        let mut at = head;
        for _ in 0..COMMIT_SEARCH_DEPTH {
            if at == spec.parent {
                break;
            }
            let found = self.commit(&at).await?;
            if self.is_same_commit(spec, &found).await? {
                return Ok(Some(at));
            }
            let Some(parent) = found.parents.into_iter().next() else { break };
            at = parent;
        }
        Ok(None)
    }

    /// Returns whether `found` is the commit that `spec` describes. The contents of the files are compared as well,
    /// because anyone may copy a commit message.
    async fn is_same_commit(&self, spec: &CommitSpec, found: &CommitInfo) -> Result<bool, GitHubApiError> {
        if found.parents != [spec.parent.clone()] || found.message.trim_end() != spec.message.trim_end() {
            return Ok(false);
        }
        for (path, bytes) in &spec.files {
            if self.file(path, found.oid.as_str()).await? != *bytes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn commit_with_url(&self, oid: Oid) -> Commit {
        let web = self.github().web_url().as_str().trim_end_matches('/');
        Commit { url: format!("{web}/{}/commit/{oid}", self.name()), oid }
    }

    pub async fn commit(&self, oid: &Oid) -> Result<CommitInfo, GitHubApiError> {
        let found: GitCommitResponse =
            self.send(self.request(&COMMIT_OBJECT, &[oid.as_str()])).await?.json()?;
        Ok(CommitInfo {
            oid: found.sha,
            tree: found.tree.sha,
            parents: found.parents.into_iter().map(|parent| parent.sha).collect(),
            message: found.message,
        })
    }

    /// Returns a file's bytes at a branch or commit; `None` if the file does not exist.
    pub async fn file(&self, path: &str, at: &str) -> Result<Option<Vec<u8>>, GitHubApiError> {
        #[derive(Deserialize)]
        struct FileContentResponse {
            r#type: String,
            sha: Oid,
            #[serde(default)]
            content: String,
            #[serde(default)]
            encoding: String,
        }
        check_path(path)?;
        let answer = match self.send(self.request(&CONTENTS, &[path]).query("ref", at).cacheable()).await {
            Ok(answer) => answer,
            Err(GitHubApiError::NotFound { .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        // GitHub answers with a list for a directory.
        if answer.body.trim_ascii_start().first() == Some(&b'[') {
            return Ok(None);
        }
        let entry: FileContentResponse = answer.json()?;
        match (entry.r#type.as_str(), entry.encoding.as_str()) {
            ("file", "base64") => decode_base64(&CONTENTS, &entry.content).map(Some),
            // GitHub omits the content above 1 MB; the blob has it.
            ("file", _) => self.blob(&entry.sha).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the paths of the files in a directory at a branch or commit. The list is empty if the directory does not
    /// exist.
    pub async fn directory(&self, path: &str, at: &str) -> Result<Vec<String>, GitHubApiError> {
        #[derive(Deserialize)]
        struct ContentsEntry {
            r#type: String,
            path: String,
        }
        check_path(path)?;
        let answer = match self.send(self.request(&CONTENTS, &[path]).query("ref", at)).await {
            Ok(answer) => answer,
            Err(GitHubApiError::NotFound { .. }) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        // GitHub answers with an object for a file.
        if answer.body.trim_ascii_start().first() != Some(&b'[') {
            return Ok(Vec::new());
        }
        let entries: Vec<ContentsEntry> = answer.json()?;
        Ok(entries.into_iter().filter(|entry| entry.r#type == "file").map(|entry| entry.path).collect())
    }

    async fn blob(&self, oid: &Oid) -> Result<Vec<u8>, GitHubApiError> {
        #[derive(Deserialize)]
        struct BlobResponse {
            content: String,
        }
        let blob: BlobResponse = self.send(self.request(&BLOB, &[oid.as_str()])).await?.json()?;
        decode_base64(&BLOB, &blob.content)
    }
}

/// Returns the reason why GitHub did not create the branch that this commit needs.
fn branch_refusal(mutated: &GraphQlResponse, branch: &str) -> Option<GitHubApiError> {
    let refused = mutated.field(&COMMIT_ON_BRANCH, "begin").err()?;
    Some(match refused {
        GitHubApiError::Rejected { message: why, .. } | GitHubApiError::Forbidden { message: why, .. } => {
            GitHubApiError::BranchForbidden { branch: branch.to_owned(), why }
        }
        other => other,
    })
}

/// Decodes base64 text that GitHub has broken into lines.
pub(super) fn decode_base64(call: &GitHubEndpoint, text: &str) -> Result<Vec<u8>, GitHubApiError> {
    let joined: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(joined).map_err(|e| GitHubApiError::unexpected(&call.to_string(), e))
}

/// Refuses every path that is not a plain path inside the repository. Git and file systems ignore case and some
/// characters. Therefore names that one of them may read as `.git` are refused as well.
pub(super) fn check_path(path: &str) -> Result<(), GitHubApiError> {
    let refuse = |why| {
        Err(GitHubApiError::Invalid(format!("`{}` is not a valid path to write: {why}", path.escape_debug())))
    };
    if path.is_empty() || path.len() > 4096 {
        return refuse("it is empty or too long");
    }
    if path.chars().any(char::is_control) || path.contains('\\') {
        return refuse("it has a control character or a backslash");
    }
    for part in path.split('/') {
        // HFS+ ignores these characters; NTFS strips suffixes after `:` and trailing dots and spaces.
        let plain: String = part.chars().filter(|c| !is_ignorable(*c)).collect();
        let plain =
            plain.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_ascii_lowercase();
        match part {
            "" => return refuse("it starts or ends with `/`, or has two in a row"),
            "." | ".." => return refuse("it has `.` or `..`"),
            _ if plain == ".git" || plain == "git~1" => return refuse("it leads into `.git`"),
            _ => {}
        }
    }
    Ok(())
}

fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn check_branch(name: &str) -> Result<(), GitHubApiError> {
    if crate::git::is_branch_name(name) {
        return Ok(());
    }
    Err(GitHubApiError::Invalid(format!("`{}` is not a branch name", name.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_outside_the_tree_or_inside_the_git_directory_is_refused() {
        for bad in [
            "",
            "/etc/passwd",
            "a/../b",
            "..",
            "./a",
            "a//b",
            "a/",
            ".git/config",
            "sub/.GIT/hooks/x",
            ".git./x",
            ".git /x",
            ".g\u{200c}it/x",
            "git~1/config",
            ".git::$INDEX_ALLOCATION/x",
            "a\\b",
            "a\nb",
            "a\0b",
        ] {
            assert!(matches!(check_path(bad), Err(GitHubApiError::Invalid(_))), "{bad:?}");
        }
        for good in ["docs/lld/active/42-widget.md", ".github/x.toml", "a.git/b", ".gitignore", "src/ünï.rs"]
        {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn base64_with_line_breaks_is_decoded() {
        assert_eq!(decode_base64(&CONTENTS, "aGVs\nbG8=\n").unwrap(), b"hello");
        assert!(matches!(decode_base64(&CONTENTS, "a?"), Err(GitHubApiError::Unexpected { .. })));
    }
}
