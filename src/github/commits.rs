//! Branches, commits and files: bytes arrive as they were given, GitHub signs the commit as the App's, and
//! a branch moves only from where we saw it.

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

/// Commits of others on top of one of ours whose answer was lost, beneath which it is still found; each is a call.
const COMMIT_SEARCH_DEPTH: usize = 20;

/// Files to be committed on top of `parent`, which must be the branch's head.
#[derive(Debug, Clone)]
pub struct CommitSpec {
    pub branch: String,
    /// There was no such branch: it is made, at `parent`.
    pub creates_branch: bool,
    pub parent: Oid,
    /// Path and content, none where it is removed; everything else stays as it is in `parent`.
    pub files: Vec<(String, Option<Vec<u8>>)>,
    /// Ends in the trailer `Countersign-Run: …`, which makes it one of a kind.
    pub message: String,
}

/// A commit of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub oid: Oid,
    pub url: String,
}

/// A commit as git knows it.
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
    /// The commit a branch is at; `None` when there is no such branch.
    pub async fn branch(&self, name: &str) -> Result<Option<Oid>, GitHubApiError> {
        check_branch(name)?;
        match self.send(self.request(&REF, &[name]).cacheable()).await {
            Ok(answer) => {
                let found: GitRefResponse = answer.json()?;
                Ok((found.name == format!("refs/heads/{name}")).then_some(found.object.sha))
            }
            // An empty repository answers 409.
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Conflict { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Commits files on a branch that is at `spec.parent`, or begins there. When an earlier attempt may
    /// have got through (`interrupted`), a commit with the same parent, message and files is that attempt and is
    /// kept, though others have built on it. Where GitHub's reads are behind, it is [`GitHubApiError::Transient`] until they
    /// are not.
    ///
    /// [`GitHubApiError::Conflict`] when the branch is somewhere else.
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
        // Many things are refused; where the branch is tells which it was.
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

    /// One request, whether the branch begins with it or not; GitHub makes the commit only on top of the
    /// parent it was told.
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
        // That the branch is there already is fine; the commit tells whether it is where it should be.
        let made = mutated.field(&COMMIT_ON_BRANCH, "commit").map_err(|fault| match fault {
            GitHubApiError::NotFound { .. } if spec.creates_branch => {
                branch_refusal(&mutated, &spec.branch).unwrap_or(fault)
            }
            fault => fault,
        })?;
        let made = &made["commit"]["oid"];
        Oid::deserialize(made).map_err(|e| GitHubApiError::unexpected(&COMMIT_ON_BRANCH.to_string(), e))
    }

    /// The commit that was asked for, from the branch's head down to where it was to begin.
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

    /// Is this the commit that was asked for? Anyone may copy a message; nobody else's bytes are taken for ours.
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

    /// A commit by its id.
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

    /// A file's bytes at a branch or commit; `None` when there is no file of that path.
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
        // A directory is answered by a list.
        if answer.body.trim_ascii_start().first() == Some(&b'[') {
            return Ok(None);
        }
        let entry: FileContentResponse = answer.json()?;
        match (entry.r#type.as_str(), entry.encoding.as_str()) {
            ("file", "base64") => decode_base64(&CONTENTS, &entry.content).map(Some),
            // Above a megabyte the content stays away and the blob has it.
            ("file", _) => self.blob(&entry.sha).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The paths of the files in a directory at a branch or commit; none when there is no such directory.
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
        // A file is answered by an object.
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

/// Why the branch was not made that a commit was to begin with.
fn branch_refusal(mutated: &GraphQlResponse, branch: &str) -> Option<GitHubApiError> {
    let refused = mutated.field(&COMMIT_ON_BRANCH, "begin").err()?;
    Some(match refused {
        GitHubApiError::Rejected { message: why, .. } | GitHubApiError::Forbidden { message: why, .. } => {
            GitHubApiError::BranchForbidden { branch: branch.to_owned(), why }
        }
        other => other,
    })
}

/// GitHub breaks its base64 into lines.
pub(super) fn decode_base64(call: &GitHubEndpoint, text: &str) -> Result<Vec<u8>, GitHubApiError> {
    let joined: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(joined).map_err(|e| GitHubApiError::unexpected(&call.to_string(), e))
}

/// Refuses what is no plain path inside the repository. Git and file systems fold case and more, so
/// whatever could come out as `.git` on some of them is refused too.
pub(super) fn check_path(path: &str) -> Result<(), GitHubApiError> {
    let refuse = |why| {
        Err(GitHubApiError::Invalid(format!("`{}` is not a path we write: {why}", path.escape_debug())))
    };
    if path.is_empty() || path.len() > 4096 {
        return refuse("it is empty or too long");
    }
    if path.chars().any(char::is_control) || path.contains('\\') {
        return refuse("it has a control character or a backslash");
    }
    for part in path.split('/') {
        // What HFS+ ignores and NTFS strips.
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
    fn paths_that_leave_the_tree_are_refused() {
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
    fn broken_lines_decode() {
        assert_eq!(decode_base64(&CONTENTS, "aGVs\nbG8=\n").unwrap(), b"hello");
        assert!(matches!(decode_base64(&CONTENTS, "a?"), Err(GitHubApiError::Unexpected { .. })));
    }
}
