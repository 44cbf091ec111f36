//! Search in other people's public repositories.

use serde::{Deserialize, Serialize};

use super::{
    commits::{check_path, decode_base64},
    error::GitHubApiError,
    manifest::{GitHubEndpoint, OTHERS_FILE, README, SEARCH, SEARCH_CODE},
    repo::GitHubRepo,
};
use crate::types::RepoName;

/// Maximum number of characters kept of a repository's description.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// A public repository found by a search. Its description is untrusted text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicRepository {
    pub name: RepoName,
    pub stars: u64,
    /// SPDX id of the licence; `None` if GitHub does not recognise the licence.
    pub licence: Option<String>,
    pub about: String,
    /// Homepage URL from the repository's settings.
    #[serde(default)]
    pub homepage: Option<String>,
}

impl GitHubRepo {
    /// Returns public repositories that match all words and have at least `stars` stars, most stars first. The words
    /// must not contain special characters, because the search would interpret them.
    ///
    /// # Errors
    /// [`GitHubApiError::Transient`] also if GitHub stopped the search before it found anything. In that case, matching
    /// repositories may still exist.
    pub async fn search_repositories(
        &self,
        words: &[String],
        stars: u32,
        most: u32,
    ) -> Result<Vec<PublicRepository>, GitHubApiError> {
        #[derive(Deserialize)]
        struct RepositoryLicence {
            spdx_id: Option<String>,
        }
        #[derive(Deserialize)]
        struct RepositorySearchItem {
            full_name: String,
            #[serde(default)]
            private: bool,
            stargazers_count: u64,
            license: Option<RepositoryLicence>,
            description: Option<String>,
            homepage: Option<String>,
        }
        #[derive(Deserialize)]
        struct RepositorySearchResponse {
            #[serde(default)]
            incomplete_results: bool,
            items: Vec<RepositorySearchItem>,
        }
        let query = format!("{} is:public stars:>={stars}", words.join(" "));
        let request = self.request_outside_repo(&SEARCH, &[]).query("q", query).query("sort", "stars");
        let answer: RepositorySearchResponse = self.send(request.query("per_page", most)).await?.json()?;
        if answer.incomplete_results && answer.items.is_empty() {
            return Err(GitHubApiError::transient(
                &SEARCH.to_string(),
                "GitHub stopped the search before it found anything",
            ));
        }
        let known = |id: &String| {
            id != "NOASSERTION" && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.+".contains(&b))
        };
        let found = answer.items.into_iter().filter(|item| !item.private).filter_map(|item| {
            Some(PublicRepository {
                name: item.full_name.parse().ok()?,
                stars: item.stargazers_count,
                licence: item.license.and_then(|licence| licence.spdx_id).filter(known),
                homepage: item.homepage,
                about: item.description.unwrap_or_default().chars().take(MAX_DESCRIPTION_CHARS).collect(),
            })
        });
        Ok(found.collect())
    }

    /// Returns the paths of files in a public repository that match all words, best match first. The words must not
    /// contain special characters.
    ///
    /// # Errors
    /// [`GitHubApiError::Transient`] also if GitHub stopped the search before it found anything.
    pub async fn search_code(
        &self,
        other: &RepoName,
        words: &[String],
        most: u32,
    ) -> Result<Vec<String>, GitHubApiError> {
        #[derive(Deserialize)]
        struct CodeSearchItem {
            path: String,
        }
        #[derive(Deserialize)]
        struct CodeSearchResponse {
            #[serde(default)]
            incomplete_results: bool,
            items: Vec<CodeSearchItem>,
        }
        let query = format!("{} repo:{other}", words.join(" "));
        let request = self.request_outside_repo(&SEARCH_CODE, &[]).query("q", query).query("per_page", most);
        let answer: CodeSearchResponse = self.send(request).await?.json()?;
        if answer.incomplete_results && answer.items.is_empty() {
            return Err(GitHubApiError::transient(
                &SEARCH_CODE.to_string(),
                "GitHub stopped the search before it found anything",
            ));
        }
        let paths = answer.items.into_iter().map(|item| item.path);
        Ok(paths.filter(|path| check_path(path).is_ok()).take(most as usize).collect())
    }

    /// Returns the README of any public repository, or `None` if GitHub does not send one as text.
    pub async fn public_readme(&self, other: &RepoName) -> Result<Option<String>, GitHubApiError> {
        self.public_text(&README, &[&other.owner, &other.name]).await
    }

    /// Returns a file of any public repository, or `None` if GitHub does not send it as text; see
    /// [`GitHubRepo::public_readme`].
    pub async fn public_file(&self, other: &RepoName, path: &str) -> Result<Option<String>, GitHubApiError> {
        self.public_text(&OTHERS_FILE, &[&other.owner, &other.name, path]).await
    }

    async fn public_text(
        &self,
        call: &'static GitHubEndpoint,
        values: &[&str],
    ) -> Result<Option<String>, GitHubApiError> {
        #[derive(Deserialize)]
        struct TextFileResponse {
            #[serde(default)]
            content: String,
            #[serde(default)]
            encoding: String,
        }
        let file: TextFileResponse = match self.send(self.request_outside_repo(call, values)).await {
            Ok(answer) => answer.json()?,
            // It was removed since the search.
            Err(
                GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. } | GitHubApiError::Moved { .. },
            ) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        if file.encoding != "base64" {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&decode_base64(call, &file.content)?).into_owned()))
    }
}
