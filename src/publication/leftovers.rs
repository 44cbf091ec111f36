//! Finds the branch, document and pull request that a halted run left on GitHub. They are read from GitHub again,
//! because the run's stored state dates from before the failed visit.

use serde::{Deserialize, Serialize};

use super::{Proposal, branch::current_branch, file_url};
use crate::{
    engine::StepError,
    github::{GitHubApiError, GitHubRepo},
    rounds::{StepContext, github_error},
    types::{Hash, IssueNo},
};

/// Contents of the issue's branch, and the run's pull request, after the run was halted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BranchLeftovers {
    pub branch: String,
    pub seen: BranchContents,
    /// Number and URL of the run's pull request.
    pub pull: Option<(IssueNo, String)>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub enum BranchContents {
    /// The branch does not exist.
    #[default]
    Nothing,
    /// The branch exists. Holds the hash and URL of the document on the branch, if there is one.
    Branch(Option<(Hash, String)>),
    /// GitHub refuses access to the branch.
    Unknown,
}

/// Looks for the issue's branch, a document at `path` on the branch, and the branch's pull request.
pub async fn find_leftovers(
    cx: &StepContext,
    repo: &GitHubRepo,
    path: Option<&str>,
    known: Option<&Proposal>,
) -> Result<BranchLeftovers, StepError> {
    let name = current_branch(cx).await?;
    let known = known.map(|proposal| (proposal.pull, proposal.pull_url.clone()));
    let looked = match look_up_branch(cx, repo, &name, path).await {
        Ok((seen, pull)) => Ok((seen, pull.or(known.clone()))),
        Err(refused) => match github_error(refused) {
            waits @ StepError::Later { .. } => Err(waits),
            _ => Ok((BranchContents::Unknown, known)),
        },
    };
    looked.map(|(seen, pull)| BranchLeftovers { branch: name, seen, pull })
}

type BranchLookup = (BranchContents, Option<(IssueNo, String)>);

async fn look_up_branch(
    cx: &StepContext,
    repo: &GitHubRepo,
    name: &str,
    path: Option<&str>,
) -> Result<BranchLookup, GitHubApiError> {
    let Some(head) = repo.branch(name).await? else { return Ok((BranchContents::Nothing, None)) };
    let document = match path {
        Some(path) => {
            let bytes = repo.file(path, head.as_str()).await?;
            bytes.map(|bytes| (Hash::digest(&bytes), file_url(cx, repo, name, path)))
        }
        None => None,
    };
    let pulls = repo.pulls_of_branch(name).await?;
    let pull = pulls.into_iter().find(|pull| pull.open).map(|pull| (pull.number, pull.url));
    Ok((BranchContents::Branch(document), pull))
}
