//! Other people's public repositories: which there are about something, and what they say of themselves.

use serde::{Deserialize, Serialize};

use super::{
    commits::{check_path, decode_base64},
    error::GitHubApiError,
    manifest::{GitHubEndpoint, OTHERS_FILE, README, SEARCH, SEARCH_CODE},
    repo::GitHubRepo,
};
use crate::types::RepoName;

/// Of a repository's own line about itself.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// A public repository that a search found. What it says of itself is anybody's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicRepository {
    pub name: RepoName,
    pub stars: u64,
    /// The SPDX id, as GitHub tells it; none where it knows no licence by that.
    pub licence: Option<String>,
    pub about: String,
    /// The page that it names as its own.
    #[serde(default)]
    pub homepage: Option<String>,
}

impl GitHubRepo {
    /// Public repositories that have all of these words and so many stars, those with the most first. The words are plain:
    /// a sign among them might mean something to the search.
    ///
    /// # Errors
    /// [`GitHubApiError::Transient`] also where GitHub gave the search up before it found anything: that is not nothing.
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
                "it was given up before anything was found",
            ));
        }
        let told = |id: &String| {
            id != "NOASSERTION" && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.+".contains(&b))
        };
        let found = answer.items.into_iter().filter(|item| !item.private).filter_map(|item| {
            Some(PublicRepository {
                name: item.full_name.parse().ok()?,
                stars: item.stargazers_count,
                licence: item.license.and_then(|licence| licence.spdx_id).filter(told),
                homepage: item.homepage,
                about: item.description.unwrap_or_default().chars().take(MAX_DESCRIPTION_CHARS).collect(),
            })
        });
        Ok(found.collect())
    }

    /// Files of a public repository, which need not be this one, that have all of these plain words: their paths, those first
    /// that fit best.
    ///
    /// # Errors
    /// [`GitHubApiError::Transient`] also where GitHub gave the search up before it found anything.
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
                "it was given up before anything was found",
            ));
        }
        let paths = answer.items.into_iter().map(|item| item.path);
        Ok(paths.filter(|path| check_path(path).is_ok()).take(most as usize).collect())
    }

    /// The README of a public repository, which need not be this one; none where it has none that is sent as text.
    pub async fn public_readme(&self, other: &RepoName) -> Result<Option<String>, GitHubApiError> {
        self.public_text(&README, &[&other.owner, &other.name]).await
    }

    /// As [`GitHubRepo::public_readme`], of any of its files.
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
            // It went since it was found.
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
