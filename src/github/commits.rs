//! Branches, commits and files, through the Git Data API: bytes arrive as they were given, GitHub
//! signs the commit as the App's, and a branch only ever moves forward.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    error::Fault,
    manifest::{
        BLOB, COMMIT_OBJECT, CONTENTS, CREATE_BLOB, CREATE_COMMIT, CREATE_REF, CREATE_TREE, Call, REF,
        UPDATE_REF,
    },
    repo::Repo,
};
use crate::types::Oid;

/// Files to be committed on top of `parent`, which must be the branch's head.
#[derive(Debug, Clone)]
pub struct CommitSpec {
    pub branch: String,
    pub parent: Oid,
    /// Path and content; everything else stays as it is in `parent`.
    pub files: Vec<(String, Vec<u8>)>,
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
struct Named {
    sha: Oid,
}

#[derive(Debug, Deserialize)]
struct Reference {
    #[serde(rename = "ref")]
    name: String,
    object: Named,
}

#[derive(Debug, Deserialize)]
struct CommitObject {
    sha: Oid,
    tree: Named,
    parents: Vec<Named>,
    message: String,
}

impl Repo {
    /// The commit a branch is at; `None` when there is no such branch.
    pub async fn branch(&self, name: &str) -> Result<Option<Oid>, Fault> {
        check_branch(name)?;
        match self.send(self.request(&REF, &[name])).await {
            Ok(answer) => {
                let found: Reference = answer.json()?;
                Ok((found.name == format!("refs/heads/{name}")).then_some(found.object.sha))
            }
            // An empty repository answers 409.
            Err(Fault::NotFound { .. } | Fault::Conflict { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Makes a branch at `at`, or takes the one that is there. Returns where it is.
    pub async fn ensure_branch(&self, name: &str, at: &Oid) -> Result<Oid, Fault> {
        if let Some(head) = self.branch(name).await? {
            return Ok(head);
        }
        let body = json!({ "ref": format!("refs/heads/{name}"), "sha": at });
        match self.write(self.request(&CREATE_REF, &[]).body(body)).await {
            Ok(_) => Ok(at.clone()),
            // 422 has many reasons; the one that is fine shows in another look.
            Err(fault @ Fault::Rejected { status: 422, .. }) => self.branch(name).await?.ok_or(fault),
            Err(fault) => Err(fault),
        }
    }

    /// Commits files and moves the branch to it. When an earlier attempt may have got through
    /// (`interrupted`), a head with the same tree, parent and message is that attempt and is kept.
    ///
    /// [`Fault::Conflict`] when the branch is no longer at `spec.parent`.
    pub async fn ensure_commit(&self, spec: &CommitSpec, interrupted: bool) -> Result<Commit, Fault> {
        check_branch(&spec.branch)?;
        for (path, _) in &spec.files {
            check_path(path)?;
        }
        let tree = self.create_tree(spec).await?;
        if interrupted && let Some(done) = self.done_already(spec, &tree).await? {
            return Ok(done);
        }
        let body = json!({ "message": spec.message, "tree": tree, "parents": [spec.parent] });
        let made: Named = self.write(self.request(&CREATE_COMMIT, &[]).body(body)).await?.json()?;
        let forward = json!({ "sha": made.sha, "force": false });
        match self.write(self.request(&UPDATE_REF, &[&spec.branch]).body(forward)).await {
            Ok(_) => Ok(self.described(made.sha)),
            Err(fault @ Fault::Rejected { status: 422, .. }) => Err(self.why_not(spec, fault).await?),
            Err(fault) => Err(fault),
        }
    }

    async fn create_tree(&self, spec: &CommitSpec) -> Result<Oid, Fault> {
        let base = self.commit(&spec.parent).await?.tree;
        let mut entries = Vec::with_capacity(spec.files.len());
        for (path, bytes) in &spec.files {
            let body = json!({ "content": STANDARD.encode(bytes), "encoding": "base64" });
            let blob: Named = self.write(self.request(&CREATE_BLOB, &[]).body(body)).await?.json()?;
            entries.push(json!({ "path": path, "mode": "100644", "type": "blob", "sha": blob.sha }));
        }
        let body = json!({ "base_tree": base, "tree": entries });
        let tree: Named = self.write(self.request(&CREATE_TREE, &[]).body(body)).await?.json()?;
        Ok(tree.sha)
    }

    async fn done_already(&self, spec: &CommitSpec, tree: &Oid) -> Result<Option<Commit>, Fault> {
        let Some(head) = self.branch(&spec.branch).await? else {
            return Ok(None);
        };
        let head = self.commit(&head).await?;
        let same = head.tree == *tree
            && head.parents == [spec.parent.clone()]
            && head.message.trim_end() == spec.message.trim_end();
        Ok(same.then(|| self.described(head.oid)))
    }

    /// GitHub answers 422 to a move that is not forward and to much else; where the branch is tells
    /// which it was.
    async fn why_not(&self, spec: &CommitSpec, refused: Fault) -> Result<Fault, Fault> {
        let call = format!("moving {} in {}", spec.branch, self.name());
        Ok(match self.branch(&spec.branch).await? {
            None => Fault::NotFound { call },
            Some(head) if head != spec.parent => Fault::Conflict {
                call,
                message: format!("it is at {} and no longer at {}", head.short(), spec.parent.short()),
            },
            Some(_) => refused,
        })
    }

    fn described(&self, oid: Oid) -> Commit {
        let web = self.github().web_url().as_str().trim_end_matches('/');
        Commit { url: format!("{web}/{}/commit/{oid}", self.name()), oid }
    }

    /// A commit by its id.
    pub async fn commit(&self, oid: &Oid) -> Result<CommitInfo, Fault> {
        let found: CommitObject = self.send(self.request(&COMMIT_OBJECT, &[oid.as_str()])).await?.json()?;
        Ok(CommitInfo {
            oid: found.sha,
            tree: found.tree.sha,
            parents: found.parents.into_iter().map(|parent| parent.sha).collect(),
            message: found.message,
        })
    }

    /// A file's bytes at a branch or commit; `None` when there is no file of that path.
    pub async fn file(&self, path: &str, at: &str) -> Result<Option<Vec<u8>>, Fault> {
        #[derive(Deserialize)]
        struct Entry {
            r#type: String,
            sha: Oid,
            #[serde(default)]
            content: String,
            #[serde(default)]
            encoding: String,
        }
        check_path(path)?;
        let answer = match self.send(self.request(&CONTENTS, &[path]).query("ref", at)).await {
            Ok(answer) => answer,
            Err(Fault::NotFound { .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        // A directory is answered by a list.
        if answer.body.trim_ascii_start().first() == Some(&b'[') {
            return Ok(None);
        }
        let entry: Entry = answer.json()?;
        match (entry.r#type.as_str(), entry.encoding.as_str()) {
            ("file", "base64") => decode(&CONTENTS, &entry.content).map(Some),
            // Above a megabyte the content stays away and the blob has it.
            ("file", _) => self.blob(&entry.sha).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The paths of the files in a directory at a branch or commit; none when there is no such directory.
    pub async fn directory(&self, path: &str, at: &str) -> Result<Vec<String>, Fault> {
        #[derive(Deserialize)]
        struct Entry {
            r#type: String,
            path: String,
        }
        check_path(path)?;
        let answer = match self.send(self.request(&CONTENTS, &[path]).query("ref", at)).await {
            Ok(answer) => answer,
            Err(Fault::NotFound { .. }) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        // A file is answered by an object.
        if answer.body.trim_ascii_start().first() != Some(&b'[') {
            return Ok(Vec::new());
        }
        let entries: Vec<Entry> = answer.json()?;
        Ok(entries.into_iter().filter(|entry| entry.r#type == "file").map(|entry| entry.path).collect())
    }

    async fn blob(&self, oid: &Oid) -> Result<Vec<u8>, Fault> {
        #[derive(Deserialize)]
        struct Blob {
            content: String,
        }
        let blob: Blob = self.send(self.request(&BLOB, &[oid.as_str()])).await?.json()?;
        decode(&BLOB, &blob.content)
    }
}

/// GitHub breaks its base64 into lines.
fn decode(call: &Call, text: &str) -> Result<Vec<u8>, Fault> {
    let joined: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(joined).map_err(|e| Fault::unexpected(&call.to_string(), e))
}

/// Refuses what is no plain path inside the repository. Git and file systems fold case and more, so
/// whatever could come out as `.git` on some of them is refused too.
fn check_path(path: &str) -> Result<(), Fault> {
    let refuse =
        |why| Err(Fault::Invalid(format!("`{}` is not a path we write: {why}", path.escape_debug())));
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

fn check_branch(name: &str) -> Result<(), Fault> {
    if crate::git::is_branch_name(name) {
        return Ok(());
    }
    Err(Fault::Invalid(format!("`{}` is not a branch name", name.escape_debug())))
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
            assert!(matches!(check_path(bad), Err(Fault::Invalid(_))), "{bad:?}");
        }
        for good in ["docs/lld/active/42-widget.md", ".github/x.toml", "a.git/b", ".gitignore", "src/ünï.rs"]
        {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn broken_lines_decode() {
        assert_eq!(decode(&CONTENTS, "aGVs\nbG8=\n").unwrap(), b"hello");
        assert!(matches!(decode(&CONTENTS, "a?"), Err(Fault::Unexpected { .. })));
    }
}
