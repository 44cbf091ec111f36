//! A branch's files, one file, its history, and what differs from the default branch.

use http::StatusCode;

use super::{
    Oops, PageResult, Visit,
    layout::{Esc, Tab, ago, counted, link},
    markdown::render,
};
use crate::{
    localhub::{
        git::{Commit, FileDiff, Git},
        server::Reply,
    },
    types::{Oid, RepoId},
};

/// Larger files are offered raw only.
const SHOWN_BYTES: usize = 512 * 1024;

/// A revision taken from an address, and the path behind it.
struct Location {
    revision: String,
    commit: Oid,
    path: String,
}

impl Visit<'_> {
    /// Branch names hold slashes, so the longest one that fits counts.
    fn place(&self, repo: RepoId, rest: &[&str]) -> Result<Location, Oops> {
        let git = self.git(repo);
        let default = self.with_repo(repo, |_, r| r.default_branch.clone())?;
        let rest: Vec<&str> = if rest.is_empty() { default.split('/').collect() } else { rest.to_vec() };
        for length in (1..=rest.len()).rev() {
            let revision = rest[..length].join("/");
            if let Some(commit) = git.commit_at(&revision) {
                return Ok(Location { revision, commit, path: rest[length..].join("/") });
            }
        }
        Err(Oops::not_found())
    }

    pub(super) fn tree(&self, repo: RepoId, rest: &[&str]) -> PageResult {
        let place = self.place(repo, rest)?;
        let git = self.git(repo);
        let name = self.with_repo(repo, |s, r| s.name_of(r))?;
        let tree = match place.path.as_str() {
            "" => place.commit.clone(),
            path => {
                git.entry(&place.commit, path).filter(|e| e.kind == "tree").ok_or_else(Oops::not_found)?.oid
            }
        };
        let mut entries = git.tree(&tree)?;
        entries.sort_by_key(|e| e.kind != "tree");
        let mut rows = String::new();
        for entry in &entries {
            let path = if place.path.is_empty() {
                entry.path.clone()
            } else {
                format!("{}/{}", place.path, entry.path)
            };
            let (kind, icon) = if entry.kind == "tree" { ("tree", "📁") } else { ("blob", "📄") };
            let size = entry.size.map(|n| format!("{n} bytes")).unwrap_or_default();
            rows.push_str(&format!(
                "<li class=file><span>{icon}</span><a class=grow href=\"/{name}/{kind}/{}/{}\">{}</a><span class=muted>{size}</span></li>",
                link(&place.revision),
                link(&path),
                Esc(&entry.path)
            ));
        }
        let readme = entries.iter().find(|e| e.path.eq_ignore_ascii_case("readme.md"));
        let readme = readme.and_then(|e| git.blob(&e.oid).ok()).map(|bytes| {
            format!(
                "<div class=\"card markdown readme\">{}</div>",
                render(&String::from_utf8_lossy(&bytes), &format!("/{name}"))
            )
        });
        let last = git.read_commit(&place.commit)?;
        let body = format!(
            "{}<ul class=box>{}{rows}</ul>{}",
            self.place_bar(repo, &place)?,
            self.commit_line(&name.to_string(), &last),
            readme.unwrap_or_default()
        );
        self.repo_page(repo, Tab::Code, &format!("{name} at {}", place.revision), &body)
    }

    /// Branch, path, and the way to history and comparison.
    fn place_bar(&self, repo: RepoId, place: &Location) -> Result<String, Oops> {
        let (name, default) = self.with_repo(repo, |s, r| (s.name_of(r), r.default_branch.clone()))?;
        let at = link(&place.revision);
        let mut crumbs = format!("<a class=branch href=\"/{name}/tree/{at}\">{}</a>", Esc(&place.revision));
        let mut so_far = String::new();
        for part in place.path.split('/').filter(|p| !p.is_empty()) {
            so_far.push_str(&format!("/{}", link(part)));
            crumbs.push_str(&format!(" / <a href=\"/{name}/tree/{at}{so_far}\">{}</a>", Esc(part)));
        }
        let compare = if place.revision == default {
            String::new()
        } else {
            format!(
                "<a class=button href=\"/{name}/compare/{}...{at}\">Compare with {}</a>",
                link(&default),
                Esc(&default)
            )
        };
        Ok(format!(
            "<div class=bar><span>{crumbs}</span><span class=grow></span>{compare}\
             <a class=button href=\"/{name}/commits/{at}\">History</a></div>"
        ))
    }

    fn commit_line(&self, name: &str, commit: &Commit) -> String {
        format!(
            "<li class=commit><span class=grow><b>{}</b> <a href=\"/{name}/commit/{}\">{}</a></span>\
             <span class=muted>{} · {}</span></li>",
            Esc(&commit.author.name),
            commit.oid,
            Esc(commit.message.lines().next().unwrap_or_default()),
            commit.oid.short(),
            ago(self.now(), commit.committer.at)
        )
    }

    fn file_at(&self, repo: RepoId, rest: &[&str]) -> Result<(Location, Vec<u8>), Oops> {
        let place = self.place(repo, rest)?;
        let bytes = self.git(repo).file(&place.commit, &place.path).ok_or_else(Oops::not_found)?;
        Ok((place, bytes))
    }

    pub(super) fn blob(&self, repo: RepoId, rest: &[&str]) -> PageResult {
        let (place, bytes) = self.file_at(repo, rest)?;
        let name = self.with_repo(repo, |s, r| s.name_of(r))?;
        let plain = self.request.query("plain").is_some();
        let raw = format!("/{name}/raw/{}/{}", link(&place.revision), link(&place.path));
        let (content, other) = match String::from_utf8(bytes) {
            Ok(text) if text.len() > SHOWN_BYTES => ("<p class=blank>Too long to show here.</p>".into(), ""),
            Ok(text) if place.path.ends_with(".md") && !plain => (
                format!("<div class=\"markdown\">{}</div>", render(&text, &format!("/{name}"))),
                "<a class=button href=\"?plain=1\">Source</a>",
            ),
            Ok(text) => (numbered(&text), ""),
            Err(_) => ("<p class=blank>A binary file.</p>".into(), ""),
        };
        let body = format!(
            "{}<div class=card><div class=cardhead><b>{}</b><span class=grow></span>{other}<a class=button href=\"{raw}\">Raw</a></div>{content}</div>",
            self.place_bar(repo, &place)?,
            Esc(&place.path)
        );
        self.repo_page(repo, Tab::Code, &place.path, &body)
    }

    pub(super) fn raw(&self, repo: RepoId, rest: &[&str]) -> PageResult {
        let (_, bytes) = self.file_at(repo, rest)?;
        Ok(Reply::new(StatusCode::OK, "text/plain; charset=utf-8", bytes))
    }

    pub(super) fn branches(&self, repo: RepoId) -> PageResult {
        let git = self.git(repo);
        let (name, default) = self.with_repo(repo, |s, r| (s.name_of(r), r.default_branch.clone()))?;
        let mut rows = String::new();
        for (branch, oid) in git.branches() {
            let commit = git.read_commit(&oid)?;
            let own = branch == default;
            let note = if own {
                "<span class=tag>default</span>".to_owned()
            } else {
                let (ahead, behind) =
                    (git.count(&format!("{default}..{oid}")), git.count(&format!("{oid}..{default}")));
                format!(
                    "<a class=button href=\"/{name}/compare/{}...{}\">{ahead} ahead, {behind} behind</a>",
                    link(&default),
                    link(&branch)
                )
            };
            rows.push_str(&format!(
                "<li><div class=grow><a class=branch href=\"/{name}/tree/{}\">{}</a><p class=muted>{} · {}</p></div>{note}</li>",
                link(&branch),
                Esc(&branch),
                Esc(commit.message.lines().next().unwrap_or_default()),
                ago(self.now(), commit.committer.at)
            ));
        }
        let body = format!("<div id=list data-live><ul class=box>{rows}</ul></div>");
        self.repo_page(repo, Tab::Branches, "Branches", &body)
    }

    pub(super) fn commits(&self, repo: RepoId, rest: &[&str]) -> PageResult {
        let place = self.place(repo, rest)?;
        let name = self.with_repo(repo, |s, r| s.name_of(r))?.to_string();
        let commits = self.git(repo).log(place.commit.as_str(), 200)?;
        let rows: String = commits.iter().map(|c| self.commit_line(&name, c)).collect();
        let body = format!("<h1>History of {}</h1><ul class=box>{rows}</ul>", Esc(&place.revision));
        self.repo_page(repo, Tab::Code, "History", &body)
    }

    pub(super) fn commit(&self, repo: RepoId, oid: &str) -> PageResult {
        let git = self.git(repo);
        let oid = git.commit_at(oid).ok_or_else(Oops::not_found)?;
        let commit = git.read_commit(&oid)?;
        let base = match commit.parents.first() {
            Some(parent) => parent.clone(),
            None => git.empty_tree()?,
        };
        let (subject, rest) = commit.message.split_once('\n').unwrap_or((&commit.message, ""));
        let name = self.with_repo(repo, |s, r| s.name_of(r))?;
        let body = format!(
            "<h1>{}</h1><pre class=message>{}</pre><p class=muted>{} committed {} · <code>{oid}</code> · \
             <a href=\"/{name}/tree/{oid}\">files</a></p>{}",
            Esc(subject),
            Esc(rest.trim()),
            Esc(&commit.author.name),
            ago(self.now(), commit.committer.at),
            diff_html(&git.diff(&base, &oid)?)
        );
        self.repo_page(repo, Tab::Code, subject, &body)
    }

    pub(super) fn compare(&self, repo: RepoId, range: &str) -> PageResult {
        let git = self.git(repo);
        let (base, head) = range.split_once("...").ok_or_else(Oops::not_found)?;
        let (Some(from), Some(to)) = (git.commit_at(base), git.commit_at(head)) else {
            return Err(Oops::not_found());
        };
        let name = self.with_repo(repo, |s, r| s.name_of(r))?.to_string();
        let body = format!(
            "<h1>{} <span class=muted>against</span> {}</h1>{}",
            Esc(head),
            Esc(base),
            self.changes(&git, &name, &from, &to)?
        );
        self.repo_page(repo, Tab::Branches, "Compare", &body)
    }

    /// Commits and files that `head` has over `base`.
    fn changes(&self, git: &Git, name: &str, base: &Oid, head: &Oid) -> Result<String, Oops> {
        let commits = git.log(&format!("{base}..{head}"), 200)?;
        let rows: String = commits.iter().rev().map(|c| self.commit_line(name, c)).collect();
        let from = git.merge_base(base, head).unwrap_or_else(|| base.clone());
        Ok(format!("<ul class=box>{rows}</ul>{}", diff_html(&git.diff(&from, head)?)))
    }

    pub(super) fn commit_rows(&self, name: &str, commits: &[Commit]) -> String {
        commits.iter().map(|c| self.commit_line(name, c)).collect()
    }
}

fn numbered(text: &str) -> String {
    let row = |(index, line): (usize, &str)| {
        format!("<tr><td class=no>{}</td><td><pre>{}</pre></td></tr>", index + 1, Esc(line))
    };
    format!("<table class=code>{}</table>", text.lines().enumerate().map(row).collect::<String>())
}

/// Files with their hunks, as a pull request shows them.
pub(super) fn diff_html(files: &[FileDiff]) -> String {
    let plus: usize = files.iter().map(|f| f.additions).sum();
    let minus: usize = files.iter().map(|f| f.deletions).sum();
    let mut out = format!(
        "<p class=muted>{} changed, <span class=plus>+{plus}</span> <span class=minus>−{minus}</span></p>",
        counted(files.len(), "file")
    );
    for file in files {
        out.push_str(&format!(
            "<details class=\"card diff\" open><summary class=cardhead><b>{}</b> <span class=tag>{}</span><span class=grow></span>\
             <span class=plus>+{}</span>&nbsp;<span class=minus>−{}</span></summary><table class=code>{}</table></details>",
            Esc(&file.path),
            file.status,
            file.additions,
            file.deletions,
            file.patch.as_deref().map(hunks).unwrap_or_else(|| "<tr><td>No text to show.</td></tr>".into())
        ));
    }
    out
}

fn hunks(patch: &str) -> String {
    let (mut old, mut new) = (0_u64, 0_u64);
    let mut rows = String::new();
    for line in patch.lines() {
        if let Some((a, b)) = hunk_start(line) {
            (old, new) = (a, b);
            rows.push_str(&format!(
                "<tr class=hunk><td class=no></td><td class=no></td><td><pre>{}</pre></td></tr>",
                Esc(line)
            ));
            continue;
        }
        let (class, left, right) = match line.as_bytes().first() {
            Some(b'+') => ("add", None, Some(new)),
            Some(b'-') => ("del", Some(old), None),
            Some(b'\\') => ("hunk", None, None),
            _ => ("", Some(old), Some(new)),
        };
        old += u64::from(left.is_some());
        new += u64::from(right.is_some());
        let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
        rows.push_str(&format!(
            "<tr class=\"{class}\"><td class=no>{}</td><td class=no>{}</td><td><pre>{}</pre></td></tr>",
            number(left),
            number(right),
            Esc(line)
        ));
    }
    rows
}

/// The first lines of both sides in `@@ -10,7 +10,8 @@`.
fn hunk_start(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("@@ -")?.split(' ');
    let number = |word: &str| word.split(',').next().and_then(|n| n.parse().ok());
    Some((number(words.next()?)?, number(words.next()?.strip_prefix('+')?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunk_counts_lines_on_both_sides() {
        assert_eq!(hunk_start("@@ -10,7 +12,8 @@ fn x"), Some((10, 12)));
        let html = hunks("@@ -1 +1,2 @@\n-<a>\n+b\n+c");
        assert!(html.contains("<td class=no>1</td><td class=no></td><td><pre>-&lt;a&gt;</pre>"), "{html}");
        assert!(html.contains("<td class=no></td><td class=no>2</td><td><pre>+c</pre>"), "{html}");
    }
}
