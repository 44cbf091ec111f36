//! Routes that search public repositories and their code, and that read READMEs.

use serde_json::{Value, json};

use super::{HubPermissionLevel, RestCall, RestError, RestResult};
use crate::{localhub::model::HubRepository, types::RepoId};

const CONTENTS: [(&str, HubPermissionLevel); 1] = [("contents", HubPermissionLevel::Read)];

impl RestCall<'_> {
    /// Searches public repositories for plain words in name, description or topics. Supports the qualifiers `is:public`
    /// and `stars:>=N`, and refuses GitHub's other qualifiers.
    pub(super) fn search(&self) -> RestResult {
        let query = self.request.query("q").unwrap_or_default().to_owned();
        let refused = || RestError::invalid("Search", "q", "invalid", None);
        let (mut words, mut least) = (Vec::new(), 0);
        for word in query.split_whitespace() {
            match word.split_once(':') {
                None => words.push(word.to_lowercase()),
                Some(("is", "public")) => {}
                Some(("stars", number)) => {
                    let number = number.strip_prefix(">=").and_then(|number| number.parse().ok());
                    least = number.ok_or_else(refused)?;
                }
                Some(_) => return Err(refused()),
            }
        }
        if words.is_empty() {
            return Err(RestError::invalid("Search", "q", "missing", None));
        }
        let fits = |repo: &&HubRepository| {
            let fame = &repo.fame;
            let text = format!("{} {} {}", repo.name, fame.description, fame.topics.join(" ")).to_lowercase();
            !repo.private && fame.stars >= least && words.iter().all(|word| text.contains(word))
        };
        let rows: Vec<Value> = self.state(|s| {
            let mut found: Vec<_> = s.repositories.values().filter(fits).collect();
            found.sort_by_key(|repo| std::cmp::Reverse(repo.fame.stars));
            found.into_iter().map(|repo| self.json(s).repository(repo)).collect()
        });
        Ok(self.list_in_object("items", json!({ "incomplete_results": false }), rows))
    }

    /// Searches for plain words in the files of the one repository that `repo:` names.
    pub(super) fn search_code(&self) -> RestResult {
        let query = self.request.query("q").unwrap_or_default().to_owned();
        let refused = || RestError::invalid("Search", "q", "invalid", None);
        let (words, named): (Vec<&str>, Vec<&str>) =
            query.split_whitespace().partition(|word| !word.contains(':'));
        let [named] = named[..] else { return Err(refused()) };
        let (owner, name) =
            named.strip_prefix("repo:").and_then(|n| n.split_once('/')).ok_or_else(refused)?;
        if words.is_empty() {
            return Err(refused());
        }
        let repo = self.public_repo(owner, name).map_err(|_| refused())?;
        let (_, commit) = self.requested_commit(repo, "ref")?;
        let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        let found = self.git(repo).grep(&commit, &words);
        let rows = found.iter().map(|path| json!({ "name": name(path), "path": path })).collect();
        Ok(self.list_in_object("items", json!({ "incomplete_results": false }), rows))
    }

    /// Returns a public repository. Any caller may read it, even an installation without access to it.
    pub(super) fn public_repo(&self, owner: &str, name: &str) -> Result<RepoId, RestError> {
        let public = self.state(|s| s.repository_named(owner, name).filter(|r| !r.private).map(|r| r.id));
        public.map_or_else(|| self.repo(owner, name, &CONTENTS), Ok)
    }

    pub(super) fn readme(&self, repo: RepoId) -> RestResult {
        self.contents(repo, "README.md")
    }
}
