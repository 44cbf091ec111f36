//! The page of a file, and the tabs with the commits and files of a pull request.

use super::{
    HubPageError, HubPageRequest, HubPageResult,
    layout::{EscapedHtml, RepositoryTab, count_label, relative_time},
    markdown::render,
};
use crate::{
    localhub::{
        git::{FileDiff, HubCommit},
        json_pulls::changed_files,
        model::{HubIssue, HubPullRequest},
    },
    types::RepoId,
};

impl HubPageRequest<'_> {
    /// Shows the file at `BRANCH-OR-COMMIT/PATH`. Branch names may contain slashes, so the longest possible branch name
    /// is tried first.
    pub(super) fn blob(&self, repo: RepoId, rest: &[&str]) -> HubPageResult {
        let git = self.git(repo);
        let found = (1..rest.len()).rev().find_map(|length| {
            let commit = git.commit_at(&rest[..length].join("/"))?;
            let path = rest[length..].join("/");
            git.file(&commit, &path).map(|bytes| (path, String::from_utf8_lossy(&bytes).into_owned()))
        });
        let (path, text) = found.ok_or_else(HubPageError::not_found)?;
        let content = if path.ends_with(".md") {
            let name = self.with_repo(repo, |s, r| s.name_of(r))?;
            format!("<div class=\"markdown\">{}</div>", render(&text, &format!("/{name}")))
        } else {
            number_lines(&text)
        };
        let body = format!(
            "<div class=card><div class=cardhead><b>{}</b></div>{content}</div>",
            EscapedHtml(&rest.join("/"))
        );
        self.repo_page(repo, RepositoryTab::Issues, &path, &body)
    }

    /// Returns the pull request and its heading with the given tab selected.
    fn pull_heading(
        &self,
        repo: RepoId,
        number: &str,
        here: &str,
    ) -> Result<(HubPullRequest, String), HubPageError> {
        let number: u64 = number.parse().map_err(|_| HubPageError::not_found())?;
        let found = self.with_repo(repo, |s, r| {
            let issue: &HubIssue = r.issues.get(&number)?;
            Some((issue.pull.clone()?, self.heading(s, r, issue, here)))
        })?;
        found.ok_or_else(HubPageError::not_found)
    }

    pub(super) fn pull_commits(&self, repo: RepoId, number: &str) -> HubPageResult {
        let (pull, heading) = self.pull_heading(repo, number, "commits")?;
        let commits = self.git(repo).log(&format!("{}..{}", pull.base_oid, pull.head_oid), 250)?;
        let rows: String = commits.iter().rev().map(|commit| self.commit_line(commit)).collect();
        self.repo_page(
            repo,
            RepositoryTab::Pulls,
            "Commits",
            &format!("{heading}<ul id=list data-live class=box>{rows}</ul>"),
        )
    }

    fn commit_line(&self, commit: &HubCommit) -> String {
        format!(
            "<li><span class=grow><b>{}</b> {}</span><span class=muted>{} · {}</span></li>",
            EscapedHtml(&commit.author.name),
            EscapedHtml(commit.message.lines().next().unwrap_or_default()),
            commit.oid.short(),
            relative_time(self.now(), commit.committer.at)
        )
    }

    pub(super) fn pull_files(&self, repo: RepoId, number: &str) -> HubPageResult {
        let (pull, heading) = self.pull_heading(repo, number, "files")?;
        let files = diff_html(&changed_files(&self.git(repo), &pull));
        self.repo_page(
            repo,
            RepositoryTab::Pulls,
            "Files changed",
            &format!("{heading}<div id=list data-live>{files}</div>"),
        )
    }
}

fn number_lines(text: &str) -> String {
    let row = |(index, line): (usize, &str)| {
        format!("<tr><td class=no>{}</td><td><pre>{}</pre></td></tr>", index + 1, EscapedHtml(line))
    };
    format!("<table class=code>{}</table>", text.lines().enumerate().map(row).collect::<String>())
}

/// Returns files with their diff hunks as HTML, as shown in a pull request.
fn diff_html(files: &[FileDiff]) -> String {
    let plus: usize = files.iter().map(|f| f.additions).sum();
    let minus: usize = files.iter().map(|f| f.deletions).sum();
    let mut out = format!(
        "<p class=muted>{} changed, <span class=plus>+{plus}</span> <span class=minus>−{minus}</span></p>",
        count_label(files.len(), "file")
    );
    for file in files {
        out.push_str(&format!(
            "<details class=\"card diff\" open><summary class=cardhead><b>{}</b> <span class=tag>{}</span><span class=grow></span>\
             <span class=plus>+{}</span>&nbsp;<span class=minus>−{}</span></summary><table class=code>{}</table></details>",
            EscapedHtml(&file.path),
            file.status,
            file.additions,
            file.deletions,
            file.patch.as_deref().map(hunk_rows).unwrap_or_else(|| "<tr><td>No text to show.</td></tr>".into())
        ));
    }
    out
}

fn hunk_rows(patch: &str) -> String {
    let (mut old, mut new) = (0_u64, 0_u64);
    let mut rows = String::new();
    for line in patch.lines() {
        if let Some((a, b)) = hunk_start(line) {
            (old, new) = (a, b);
            rows.push_str(&format!(
                "<tr class=hunk><td class=no></td><td class=no></td><td><pre>{}</pre></td></tr>",
                EscapedHtml(line)
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
            EscapedHtml(line)
        ));
    }
    rows
}

/// Returns the first line numbers of both sides of a hunk header such as `@@ -10,7 +10,8 @@`.
fn hunk_start(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("@@ -")?.split(' ');
    let number = |word: &str| word.split(',').next().and_then(|n| n.parse().ok());
    Some((number(words.next()?)?, number(words.next()?.strip_prefix('+')?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_hunk_has_line_numbers_for_both_sides() {
        assert_eq!(hunk_start("@@ -10,7 +12,8 @@ fn x"), Some((10, 12)));
        let html = hunk_rows("@@ -1 +1,2 @@\n-<a>\n+b\n+c");
        assert!(html.contains("<td class=no>1</td><td class=no></td><td><pre>-&lt;a&gt;</pre>"), "{html}");
        assert!(html.contains("<td class=no></td><td class=no>2</td><td><pre>+c</pre>"), "{html}");
    }
}
