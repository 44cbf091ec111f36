//! The other two tabs of a pull request: its commits and its files.

use super::{Oops, PageResult, Visit, code::diff_html, layout::Tab};
use crate::{
    localhub::{
        json_pulls::changed_files,
        model::{Issue, Pull},
    },
    types::RepoId,
};

impl Visit<'_> {
    /// The pull request's row, its heading with the given tab open, and the repository's name.
    fn pull_heading(&self, repo: RepoId, number: &str, here: &str) -> Result<(Pull, String, String), Oops> {
        let number: u64 = number.parse().map_err(|_| Oops::not_found())?;
        let found = self.with_repo(repo, |s, r| {
            let issue: &Issue = r.issues.get(&number)?;
            Some((issue.pull.clone()?, self.heading(s, r, issue, here), s.name_of(r).to_string()))
        })?;
        found.ok_or_else(Oops::not_found)
    }

    pub(super) fn pull_commits(&self, repo: RepoId, number: &str) -> PageResult {
        let (pull, heading, name) = self.pull_heading(repo, number, "commits")?;
        let mut commits = self.git(repo).log(&format!("{}..{}", pull.base_oid, pull.head_oid), 250)?;
        commits.reverse();
        let rows = self.commit_rows(&name, &commits);
        self.repo_page(
            repo,
            Tab::Pulls,
            "Commits",
            &format!("{heading}<ul id=list data-live class=box>{rows}</ul>"),
        )
    }

    pub(super) fn pull_files(&self, repo: RepoId, number: &str) -> PageResult {
        let (pull, heading, _) = self.pull_heading(repo, number, "files")?;
        let files = diff_html(&changed_files(&self.git(repo), &pull));
        self.repo_page(
            repo,
            Tab::Pulls,
            "Files changed",
            &format!("{heading}<div id=list data-live>{files}</div>"),
        )
    }
}
