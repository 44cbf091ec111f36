//! Where things stand on GitHub, looked at before each stage; and what a fault of GitHub's means for a step.
//!
//! Webhooks are hints and some are lost. So a stage does not begin before the issue and its pull request were
//! read again, and what a webhook would have stopped stops here as well.
//!
//! Each attempt at a stage looks for itself, and the journal keeps nothing of it: the attempt before may be days
//! ago. Three things make that sound, and whoever changes this room has to keep them:
//!
//! - A look changes nothing, here or on GitHub, so it may be repeated and may come to something else. Even the
//!   label that stops a run comes off only once the end is on disk, in the visit that tells people: taken off
//!   here, an answer that was lost would hide the wish from the next look.
//! - "Go on" leaves nothing behind that a later attempt would have to find again: no value of it gets into the
//!   state, a prompt or an effect.
//! - "Stop" comes before the first effect of an attempt, where a person's word stops a run as well. What the
//!   attempt before had begun is no worse off than there: the visit that tells people looks for the status
//!   comment before it writes one, and takes the labels, the branch and the pull request as it finds them.
//!   Publishing alone is not left half done: where the approved commit is there, that visit does what was left to do,
//!   and the run is done.

use std::time::Duration;

use super::{StepContext, StepServices};
use crate::{
    commands,
    config::{REPOSITORY_FILE, RepoSettings},
    engine::StepError,
    github::{GitHubApiError, GitHubRepo, GitHubValidationError, Issue, PullRequest, RepositoryAvailability},
    limits,
    messages::AuthorshipNote,
    store::{ArtifactRow, RepositoryRow},
    types::{Actor, Hash, IssueNo, Role, UserId},
};

/// A step that GitHub's rate limit holds back looks this often whether it still does; nothing is sent for it.
const LIMIT_CHECK: Duration = Duration::from_secs(15);

/// Between two looks for what does not show, or may have been written.
const RETRY_DELAY: Duration = limits::LOOKUP_INTERVAL;

/// A repository that wanted work of ours is not asked again for so long: its settings file would be read before each step.
const SWITCH_CHECK_INTERVAL: Duration = Duration::from_secs(45);

impl StepServices {
    /// Looks at the issue and the run's pull request before a stage. Ends the run where a webhook would have,
    /// had it come. Gives the pull request as it is now, of which nothing is kept but through the journal.
    pub async fn check_still_wanted(
        &self,
        cx: &StepContext,
        pull: Option<IssueNo>,
    ) -> Result<Option<PullRequest>, StepError> {
        let repo = self.repository(cx).await?;
        let mut seen = None;
        let issue = self.find_issue(cx, &repo).await?;
        let over = match pull {
            _ if !issue.state_open => Some("the issue was closed"),
            _ if stop_label_on(&issue.labels).is_some() => Some("asked to by the label"),
            _ if issue.labels.iter().any(|label| self.settings.people.opts_out(label)) => {
                Some("its issue is to be left alone, says a label")
            }
            _ if self.is_switched_off(cx, &repo).await? => Some(SWITCHED_OFF),
            Some(number) => closed_reason(seen.insert(find_pull_request(&repo, number).await?)),
            None => None,
        };
        let Some(why) = over else { return Ok(seen) };
        // Who did it is in the webhook that was lost.
        Err(StepError::Stopped { by: unknown_actor(), why: why.to_owned() })
    }

    /// Does the repository say now that it wants no work of ours? What of its settings cannot be read says nothing.
    async fn is_switched_off(&self, cx: &StepContext, repo: &GitHubRepo) -> Result<bool, StepError> {
        let now = cx.clock().now();
        let seen = self.switch_checked_at.lock().await.get(&repo.id()).copied();
        if seen.is_some_and(|seen| now.since(seen) < SWITCH_CHECK_INTERVAL) {
            return Ok(false);
        }
        let off = is_switched_off(repo).await.map_err(github_error)?;
        if !off {
            self.switch_checked_at.lock().await.insert(repo.id(), now);
        }
        Ok(off)
    }

    /// Says what the App was not given that the run comes to need: before anything is paid for.
    pub async fn check_permissions(&self, repo: &GitHubRepo, on_branch: bool) -> Result<(), StepError> {
        let lacking = repo.missing_permissions(on_branch).await.map_err(github_error)?;
        if lacking.is_empty() {
            return Ok(());
        }
        Err(StepError::User(format!(
            "The App lacks a permission that this takes here: {}. Give it that in the App's settings, accept it in the \
             installation's, then start anew.",
            lacking.join(", ")
        )))
    }

    /// The run's issue as it is now. One that does not show is waited for, since GitHub's reads lag its
    /// webhooks; then it is found out why.
    pub(super) async fn find_issue(&self, cx: &StepContext, repo: &GitHubRepo) -> Result<Issue, StepError> {
        let number = cx.run().trigger.issue;
        let about = format!("issue {number}");
        let issue = match repo.issue(number).await {
            Ok(issue) => repo.resolve_uncertain_write(&about, issue),
            Err(missing @ GitHubApiError::NotFound { .. }) => {
                return Err(match repo.unless_reads_lag(&about, missing) {
                    GitHubApiError::NotFound { .. } => self.explain_missing_issue(repo, number).await?,
                    waiting => github_error(waiting),
                });
            }
            Err(other) => return Err(github_error(other)),
        };
        if repo.was_redirected() {
            self.save_repository_name(repo).await?;
        }
        // What started the run touched the issue: a copy from before that says nothing of now.
        let stale = issue.updated_at < cx.run().trigger.at;
        if stale && (!issue.state_open || stop_label_on(&issue.labels).is_some()) {
            return Err(StepError::Later {
                why: "GitHub still shows the issue as it was".to_owned(),
                after: RETRY_DELAY,
            });
        }
        Ok(issue)
    }

    /// Keeps the name that the repository has now.
    async fn save_repository_name(&self, repo: &GitHubRepo) -> Result<(), StepError> {
        let info = repo.info().await.map_err(github_error)?;
        let row = RepositoryRow { id: repo.id(), installation: repo.installation(), name: info.name };
        self.store
            .installation_registry()
            .record_repository(row)
            .await
            .map_err(|error| StepError::Bug(error.into()))
    }

    /// Why an issue is not to be found, when waiting has not helped.
    async fn explain_missing_issue(
        &self,
        repo: &GitHubRepo,
        number: IssueNo,
    ) -> Result<StepError, StepError> {
        let why = match repo.availability().await.map_err(github_error)? {
            RepositoryAvailability::Available(info) if info.name != *repo.name() => {
                self.save_repository_name(repo).await?;
                let why = "the repository has another name now".to_owned();
                return Ok(StepError::Later { why, after: RETRY_DELAY });
            }
            RepositoryAvailability::Available(_) => format!(
                "Issue #{number} is not in this repository any more. If it was moved, start anew where it is now."
            ),
            RepositoryAvailability::Unreachable => {
                "The repository was deleted or taken out of the App's installation. Add it \
                                        again in the App's settings, then start anew."
                    .to_owned()
            }
            RepositoryAvailability::Suspended => {
                "The App's installation is suspended. Lift that in the App's settings, then start anew."
                    .to_owned()
            }
            RepositoryAvailability::Uninstalled => {
                "The App was uninstalled. Install it again, then start anew.".to_owned()
            }
        };
        Ok(StepError::User(why))
    }
}

/// Whoever it was.
pub fn unknown_actor() -> Actor {
    Actor { id: UserId(0), login: "someone".to_owned(), bot: false }
}

/// Why a run ends whose pull request people merged.
pub const MERGED: &str = "its pull request was merged";

/// Why a run ends where its repository wants no more work of ours.
pub const SWITCHED_OFF: &str = "work here was switched off";

/// Does the repository's settings file say that it wants no work of ours?
///
/// # Errors
/// GitHub's; that there is no such file is none.
pub async fn is_switched_off(repo: &GitHubRepo) -> Result<bool, GitHubApiError> {
    let file = repo.file(REPOSITORY_FILE, "HEAD").await?;
    Ok(file.is_some_and(|bytes| RepoSettings::switches_off(&String::from_utf8_lossy(&bytes))))
}

/// Who had a hand in the issue as it is now, and may not write here; the first of them.
pub async fn find_outside_author(cx: &StepContext, repo: &GitHubRepo) -> Result<Option<String>, StepError> {
    let ours = repo.bot().await.map_err(github_error)?.id;
    for author in repo.authors(cx.run().trigger.issue).await.map_err(github_error)?.actors() {
        // What we wrote there, a person approved; and who opened the issue is asked about all the same.
        if (author.id != ours || ours == UserId(0))
            && repo.permission(author).await.map_err(github_error)? < Role::Write
        {
            return Ok(Some(author.login.clone()));
        }
    }
    Ok(None)
}

/// What people should know of the issue's authors before they decide. GitHub's own time of the last edit is asked, since an
/// issue's `updated_at` moves with every comment and label, and the webhook that asked for the run may have been a comment's.
pub async fn read_authorship(cx: &StepContext, repo: &GitHubRepo) -> Result<Vec<AuthorshipNote>, StepError> {
    let authors = repo.authors(cx.run().trigger.issue).await.map_err(github_error)?;
    let asked = cx.run().trigger.at;
    let ours = repo.bot().await.map_err(github_error)?.id;
    let edits = authors.edits.iter().filter(|(by, at)| *at >= asked && by.id != ours);
    let edited = edits.max_by_key(|(_, at)| *at);
    let newcomer = authors.newcomer.then(|| AuthorshipNote::Newcomer(authors.author.login.clone()));
    let edited = edited.map(|(by, at)| AuthorshipNote::Edited { by: by.login.clone(), at: *at });
    Ok(newcomer.into_iter().chain(edited).collect())
}

/// Is the issue what it was `then`? An edit of ours changes nothing of what people wanted.
///
/// # Errors
/// `Bug` where the rows of our own edits cannot be read.
pub async fn is_issue_unchanged(cx: &StepContext, then: Hash, now: Hash) -> Result<bool, StepError> {
    if then == now {
        return Ok(true);
    }
    let (run, db) =
        (cx.run(), cx.tools().store.repository_database(cx.run().id.repo).await.map_err(anyhow::Error::new)?);
    let rows = db.artifacts_of_issue(run.trigger.issue).await.map_err(anyhow::Error::new)?;
    Ok(rows.iter().any(|row| row.kind == ArtifactRow::OWN_TEXT && row.hash == now))
}

async fn find_pull_request(repo: &GitHubRepo, number: IssueNo) -> Result<PullRequest, StepError> {
    let about = format!("pull request {number}");
    match repo.pull(number).await {
        Ok(found) => Ok(repo.resolve_uncertain_write(&about, found)),
        Err(missing @ GitHubApiError::NotFound { .. }) => {
            Err(github_error(repo.unless_reads_lag(&about, missing)))
        }
        Err(other) => Err(github_error(other)),
    }
}

/// Why the run is over, by the state of its pull request.
fn closed_reason(pull: &PullRequest) -> Option<&'static str> {
    match (pull.merged, pull.open) {
        (true, _) => Some(MERGED),
        (false, true) => None,
        (false, false) => Some("its pull request was closed"),
    }
}

/// The label that stops a run, if it is among these.
pub fn stop_label_on(labels: &[String]) -> Option<&'static str> {
    let label = commands::COMMON.iter().find(|row| row.name == "stop").and_then(|row| row.label)?;
    labels.iter().any(|on| on == label).then_some(label)
}

/// What a fault of GitHub's means for a step: wait, tell people, or look into it. People are told in sentences
/// of ours; GitHub's own words, which may quote anything, are for the server's log.
pub fn github_error(fault: GitHubApiError) -> StepError {
    let later = |why: &str, after| StepError::Later { why: why.to_owned(), after };
    let sentence = match &fault {
        // How long that is, GitHub's client knows: asking it early sends nothing.
        GitHubApiError::RateLimited { .. } => return later("GitHub asks us to slow down", LIMIT_CHECK),
        GitHubApiError::Transient { .. } => return later("GitHub did not answer properly", RETRY_DELAY),
        GitHubApiError::TemporarilyRefused { .. } => {
            tracing::warn!(%fault, "tried again later");
            return later("GitHub does not take it for now; the server's log has the reason", LIMIT_CHECK);
        }
        // An outage's page, or credentials that whoever runs the server is mending. The engine's patience ends it.
        GitHubApiError::Unexpected { .. } => {
            return later("GitHub's answer could not be read; the server's log has the details", LIMIT_CHECK);
        }
        GitHubApiError::Unauthorized { .. } => {
            return later(
                "GitHub does not accept the App's credentials; whoever runs this server has to look at the App's id and key",
                LIMIT_CHECK,
            );
        }
        GitHubApiError::NotFound { .. } => {
            "GitHub shows the App nothing where there was something a moment ago. Look whether it \
                                   was deleted or taken out of the App's installation, then start anew."
                .to_owned()
        }
        GitHubApiError::Gone { .. } | GitHubApiError::Moved { .. } => {
            "What this run worked on was deleted or moved elsewhere. Start anew where it is now.".to_owned()
        }
        GitHubApiError::Forbidden { accepted_permissions, .. } => match wanted_permissions(accepted_permissions.as_deref()) {
            Some(wanted) => format!(
                "GitHub refused it and wanted {wanted}. Give the App that permission, then start anew."
            ),
            None => {
                "GitHub does not let the App do this here. Look at the rules of the branch and the App's \
                     permissions, then start anew."
                    .to_owned()
            }
        },
        GitHubApiError::BranchForbidden { branch, .. } => format!(
            "GitHub does not let the App make the branch {branch}. Most likely a ruleset of the repository or of its \
             organization forbids it: let the App bypass that ruleset, or exempt what begins with countersign/, then write \
             `/retry`."
        ),
        GitHubApiError::Conflict { .. } => {
            "Somebody changed the same thing at the same moment. Start anew on what is there now.".to_owned()
        }
        GitHubApiError::Rejected { message, .. } if message.to_lowercase().contains(RULES) => {
            "A ruleset of the repository or its organization refused the commit. Let the App bypass that ruleset, then write \
             `/retry`."
                .to_owned()
        }
        GitHubApiError::Rejected { problems, .. } => rejection_message(problems),
        // Ours alone: nothing was sent.
        GitHubApiError::Invalid(why) => format!("Not sent to GitHub: {why}"),
    };
    tracing::warn!("GitHub did not do what a step asked: {fault}");
    StepError::User(sentence)
}

/// What GitHub says of a commit or a branch that breaks a ruleset.
const RULES: &str = "rule violations";

/// GitHub's word for permissions, if it is one.
fn wanted_permissions(accepted: Option<&str>) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || "_=;, ".contains(c);
    let accepted =
        accepted.filter(|text| !text.is_empty() && text.len() <= 200 && text.chars().all(plain))?;
    Some(accepted.replace("; ", " or ").replace(';', " or "))
}

/// What GitHub holds against what we wrote, in our words.
fn rejection_message(problems: &[GitHubValidationError]) -> String {
    let told: Vec<_> = problems
        .iter()
        .take(3)
        .map(|GitHubValidationError { field, code }| {
            let what = match code.as_str() {
                "missing" => "does not exist",
                "missing_field" => "is missing",
                "invalid" => "is not valid",
                "already_exists" => "exists already",
                "unprocessable" => "cannot be used",
                _ => "was refused",
            };
            format!("{field} {what}")
        })
        .collect();
    let told = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    format!("GitHub refused what was to be written here{told}. GitHub's own words are in the server's log.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn github_errors_are_told_in_our_own_words() {
        let call = || "POST /repos/o/r/pulls".to_owned();
        let problem =
            |field: &str, code: &str| GitHubValidationError { field: field.into(), code: code.into() };
        let rejected = GitHubApiError::Rejected {
            call: call(),
            status: 422,
            message: "@everyone <b>".into(),
            problems: vec![problem("title", "missing_field"), problem("head", "custom")],
        };
        let said = |given: GitHubApiError| github_error(given).to_string();
        let ruled = "Repository rule violations found\n\nCommits must have verified signatures.".to_owned();
        insta::assert_snapshot!(
            said(GitHubApiError::Rejected { call: call(), status: 422, message: ruled, problems: vec![] }),
            @"A ruleset of the repository or its organization refused the commit. Let the App bypass that ruleset, then write `/retry`."
        );
        insta::assert_snapshot!(
            said(rejected),
            @"GitHub refused what was to be written here: title is missing, head was refused. GitHub's own words are in the server's log."
        );
        let forbidden = |accepted: &str| GitHubApiError::Forbidden {
            call: call(),
            accepted_permissions: Some(accepted.into()),
            message: "@everyone".into(),
        };
        assert!(
            said(forbidden("issues=write; pull_requests=write"))
                .contains("issues=write or pull_requests=write")
        );
        assert!(!said(forbidden("@everyone")).contains('@'), "nothing of an answer that is not a permission");
        assert!(matches!(
            github_error(GitHubApiError::Transient { call: call(), why: String::new() }),
            StepError::Later { .. }
        ));
    }
}
