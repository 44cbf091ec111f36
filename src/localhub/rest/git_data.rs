//! The Git Data API: blobs, trees, commits and refs, as real objects of the bare repository.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call, Level, Refusal, repos::wrapped};
use crate::{
    localhub::{
        acts::signature,
        git::{Git, NewEntry, Signature},
        json::node,
        server::Reply,
    },
    types::{Oid, RepoId, Timestamp},
};

#[derive(Deserialize)]
struct BlobBody {
    content: String,
    encoding: Option<String>,
}

#[derive(Deserialize)]
struct TreeBody {
    tree: Vec<TreeItem>,
    base_tree: Option<String>,
}

#[derive(Deserialize)]
struct TreeItem {
    path: String,
    mode: Option<String>,
    /// Absent: `content` makes a blob. Null: the path is deleted.
    #[serde(default, deserialize_with = "present")]
    sha: Option<Option<String>>,
    content: Option<String>,
}

#[derive(Deserialize)]
struct CommitBody {
    message: String,
    tree: String,
    #[serde(default)]
    parents: Vec<String>,
    author: Option<Person>,
    committer: Option<Person>,
}

#[derive(Deserialize)]
struct Person {
    name: String,
    email: String,
    date: Option<String>,
}

#[derive(Deserialize)]
struct RefBody {
    #[serde(rename = "ref")]
    name: Option<String>,
    sha: String,
    #[serde(default)]
    force: bool,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl Call<'_> {
    pub(super) fn git_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> Answer {
        let level = if method == "GET" { Level::Read } else { Level::Write };
        let repo = || self.repo(owner, name, &[("contents", level)]);
        match (method, rest) {
            ("POST", ["blobs"]) => self.new_blob(repo()?),
            ("GET", ["blobs", oid]) => self.blob(repo()?, oid),
            ("POST", ["trees"]) => self.new_tree(repo()?),
            ("GET", ["trees", treeish @ ..]) if !treeish.is_empty() => self.tree(repo()?, &treeish.join("/")),
            ("POST", ["commits"]) => self.new_commit(repo()?),
            ("GET", ["commits", oid]) => self.git_commit(repo()?, oid),
            ("GET", ["ref", name @ ..]) => self.one_ref(repo()?, &name.join("/")),
            ("GET", ["matching-refs", prefix @ ..]) => self.matching_refs(repo()?, &prefix.join("/")),
            ("POST", ["refs"]) => self.new_ref(repo()?),
            ("PATCH" | "POST", ["refs", name @ ..]) => self.move_ref(repo()?, &name.join("/")),
            ("DELETE", ["refs", name @ ..]) => self.delete_ref(repo()?, &name.join("/")),
            _ => self.unknown_route(),
        }
    }

    fn object_url(&self, repo: RepoId, kind: &str, oid: &Oid) -> String {
        let api = self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).repo_api(r)));
        format!("{}/git/{kind}/{oid}", api.unwrap_or_default())
    }

    fn new_blob(&self, repo: RepoId) -> Answer {
        self.actor()?;
        let asked: BlobBody = self.body()?;
        let bytes = match asked.encoding.as_deref() {
            Some("base64") => STANDARD
                .decode(asked.content.replace(['\n', '\r'], ""))
                .map_err(|_| Refusal::new(422, "content is not valid Base64"))?,
            None | Some("utf-8") => asked.content.into_bytes(),
            Some(_) => return Err(Refusal::new(422, "encoding must be utf-8 or base64")),
        };
        let oid = self.git(repo).write_blob(&bytes)?;
        Ok(self.created(&json!({ "url": self.object_url(repo, "blobs", &oid), "sha": oid })))
    }

    fn blob(&self, repo: RepoId, oid: &str) -> Answer {
        let (git, oid) = (self.git(repo), oid.parse::<Oid>().map_err(|_| Refusal::not_found())?);
        let bytes = git.blob(&oid).map_err(|_| Refusal::not_found())?;
        if self.request.header("accept").is_some_and(|a| a.contains("raw")) {
            return Ok(Reply::new(StatusCode::OK, "application/vnd.github.raw; charset=utf-8", bytes));
        }
        Ok(self.ok(&json!({
            "sha": oid, "node_id": node("B", repo.0), "size": bytes.len(), "encoding": "base64",
            "url": self.object_url(repo, "blobs", &oid), "content": wrapped(&bytes),
        })))
    }

    fn new_tree(&self, repo: RepoId) -> Answer {
        self.actor()?;
        let asked: TreeBody = self.body()?;
        let git = self.git(repo);
        let base = match asked.base_tree.as_deref() {
            Some(base) => Some(git.tree_of(base).ok_or_else(|| Refusal::new(404, "Not Found"))?),
            None => None,
        };
        let mut entries = Vec::new();
        for item in asked.tree {
            entries.push(entry(&git, item)?);
        }
        if entries.is_empty() {
            return Err(Refusal::new(422, "Invalid tree info"));
        }
        let oid = git.make_tree(base.as_ref(), &entries)?;
        Ok(self.created(&self.tree_json(repo, &oid, false)?))
    }

    fn tree(&self, repo: RepoId, treeish: &str) -> Answer {
        let git = self.git(repo);
        let oid = git.tree_of(treeish).or_else(|| git.tree_of(git.commit_at(treeish)?.as_str()));
        let oid = oid.ok_or_else(Refusal::not_found)?;
        // Any value turns it on, even `0`.
        let recursive = self.request.query("recursive").is_some();
        Ok(self.ok(&self.tree_json(repo, &oid, recursive)?))
    }

    fn tree_json(&self, repo: RepoId, oid: &Oid, recursive: bool) -> Result<Value, Refusal> {
        let entries = self.git(repo).tree(oid, recursive)?;
        let rows = entries.iter().map(|e| {
            let mut row = json!({ "path": e.path, "mode": e.mode, "type": e.kind, "sha": e.oid });
            if e.kind != "commit" {
                row["url"] = json!(self.object_url(repo, &format!("{}s", e.kind), &e.oid));
            }
            if let Some(size) = e.size {
                row["size"] = json!(size);
            }
            row
        });
        let tree: Value = rows.collect();
        Ok(
            json!({ "sha": oid, "url": self.object_url(repo, "trees", oid), "tree": tree, "truncated": false }),
        )
    }

    fn new_commit(&self, repo: RepoId) -> Answer {
        let by = self.actor()?;
        let asked: CommitBody = self.body()?;
        let git = self.git(repo);
        let object = |oid: &str, kind: &str, what: &str| {
            let found = git.kind(oid).is_some_and(|k| k == kind);
            let oid = oid.parse::<Oid>().ok().filter(|_| found);
            oid.ok_or_else(|| Refusal::new(422, format!("{what} does not exist or is not a {kind} object")))
        };
        let tree = object(&asked.tree, "tree", "Tree SHA")?;
        let parents = asked.parents.iter().map(|p| object(p, "commit", "Parent SHA"));
        let parents = parents.collect::<Result<Vec<_>, _>>()?;
        let now = (self.hub.0.now)();
        let own = self.state(|s| s.accounts.get(&by).map(|a| signature(a, now)));
        let own = own.ok_or_else(Refusal::not_found)?;
        let author = asked.author.map_or(Ok(own), |p| p.signature(now))?;
        let committer = asked.committer.map_or(Ok(author.clone()), |p| p.signature(now))?;
        let oid = git.commit(&tree, &parents, &author, &committer, &asked.message)?;
        let commit = git.read_commit(&oid)?;
        let body = self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).git_commit(r, &commit)));
        body.map(|b| self.created(&b)).ok_or_else(Refusal::not_found)
    }

    fn git_commit(&self, repo: RepoId, oid: &str) -> Answer {
        let git = self.git(repo);
        let oid = oid.parse::<Oid>().map_err(|_| Refusal::not_found())?;
        let commit = git.read_commit(&oid).map_err(|_| Refusal::not_found())?;
        let body = self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).git_commit(r, &commit)));
        body.map(|b| self.ok(&b)).ok_or_else(Refusal::not_found)
    }

    fn ref_json(&self, repo: RepoId, name: &str, oid: &Oid, kind: &str) -> Result<Value, Refusal> {
        let body =
            self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).reference(r, name, oid, kind)));
        body.ok_or_else(Refusal::not_found)
    }

    fn one_ref(&self, repo: RepoId, name: &str) -> Answer {
        let (git, name) = (self.git(repo), format!("refs/{name}"));
        let then = self.then.as_ref().and_then(|then| Some((then, name.strip_prefix("refs/heads/")?)));
        let oid = match then {
            Some((then, branch)) => then.branch(repo, branch).cloned(),
            None => git.reference(&name),
        };
        let oid = oid.ok_or_else(Refusal::not_found)?;
        let kind = git.kind(oid.as_str()).unwrap_or_else(|| "commit".into());
        Ok(self.ok(&self.ref_json(repo, &name, &oid, &kind)?))
    }

    fn matching_refs(&self, repo: RepoId, prefix: &str) -> Answer {
        let found = self.git(repo).references(&format!("refs/{prefix}"))?;
        let rows = found.iter().map(|(name, oid, kind)| self.ref_json(repo, name, oid, kind));
        Ok(self.list(rows.collect::<Result<_, _>>()?))
    }

    fn new_ref(&self, repo: RepoId) -> Answer {
        let by = self.actor()?;
        let asked: RefBody = self.body()?;
        let git = self.git(repo);
        let name = asked.name.unwrap_or_default();
        if !git.valid_ref_name(&name) {
            return Err(Refusal::new(422, "Reference name is not valid"));
        }
        if git.kind(&asked.sha).is_none() {
            return Err(Refusal::new(422, "Object does not exist"));
        }
        let oid: Oid = asked.sha.parse().map_err(|_| Refusal::new(422, "Object does not exist"))?;
        self.hub.change(|c| {
            if git.reference(&name).is_some() {
                return Err(Refusal::new(422, "Reference already exists"));
            }
            git.set_reference(&name, &oid)?;
            if let Some(branch) = name.strip_prefix("refs/heads/") {
                c.branch_moved(repo, branch, None, Some(oid.clone()), by)?;
            }
            Ok(())
        })?;
        Ok(self.created(&self.ref_json(repo, &name, &oid, "commit")?))
    }

    fn move_ref(&self, repo: RepoId, name: &str) -> Answer {
        let by = self.actor()?;
        let asked: RefBody = self.body()?;
        let (git, name) = (self.git(repo), format!("refs/{name}"));
        let missing = || Refusal::new(422, "Object does not exist");
        let to: Oid = asked.sha.parse().map_err(|_| missing())?;
        git.kind(to.as_str()).ok_or_else(missing)?;
        self.hub.change(|c| {
            let from = git.reference(&name).ok_or_else(|| Refusal::new(422, "Reference does not exist"))?;
            if !asked.force && !git.is_ancestor(&from, &to) {
                return Err(Refusal::new(422, "Update is not a fast forward"));
            }
            git.set_reference(&name, &to)?;
            if let Some(branch) = name.strip_prefix("refs/heads/").filter(|_| from != to) {
                c.branch_moved(repo, branch, Some(from), Some(to.clone()), by)?;
            }
            Ok(())
        })?;
        Ok(self.ok(&self.ref_json(repo, &name, &to, "commit")?))
    }

    fn delete_ref(&self, repo: RepoId, name: &str) -> Answer {
        let by = self.actor()?;
        let (git, name) = (self.git(repo), format!("refs/{name}"));
        self.hub.change(|c| {
            let from = git.reference(&name).ok_or_else(|| Refusal::new(422, "Reference does not exist"))?;
            git.delete_reference(&name)?;
            if let Some(branch) = name.strip_prefix("refs/heads/") {
                c.branch_moved(repo, branch, Some(from), None, by)?;
            }
            Ok::<_, Refusal>(())
        })?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

impl Person {
    fn signature(self, now: Timestamp) -> Result<Signature, Refusal> {
        let at = self.date.as_deref().map_or(Ok(now), Timestamp::parse);
        let at = at.map_err(|e| Refusal::new(422, e.to_string()))?;
        Ok(Signature { name: self.name, email: self.email, at })
    }
}

/// A line of a tree to be made, refused when it would leave the tree or names what is not there.
fn entry(git: &Git, item: TreeItem) -> Result<NewEntry, Refusal> {
    let bad_part = |p: &str| p.is_empty() || p == "." || p == ".." || p.eq_ignore_ascii_case(".git");
    if item.path.split('/').any(bad_part) || item.path.contains('\0') {
        return Err(Refusal::new(422, "tree.path contains a malformed path component"));
    }
    let mode = item.mode.unwrap_or_else(|| "100644".into());
    if !["100644", "100755", "040000", "160000", "120000"].contains(&mode.as_str()) {
        return Err(Refusal::new(422, "tree.mode must be 100644, 100755, 040000, 160000 or 120000"));
    }
    let oid = match (item.sha, item.content) {
        (Some(Some(sha)), _) => {
            let missing = || Refusal::new(422, format!("tree.sha {sha} is not a valid blob"));
            git.kind(&sha).ok_or_else(missing)?;
            Some(sha.parse::<Oid>().map_err(|_| missing())?)
        }
        (Some(None), _) => None,
        (None, Some(content)) => Some(git.write_blob(content.as_bytes())?),
        (None, None) => return Err(Refusal::new(422, "Must supply either tree.sha or tree.content")),
    };
    Ok(NewEntry { path: item.path, mode, oid })
}
