//! Checks the state on GitHub before each stage, and maps GitHub errors to step errors.
//!
//! Webhooks are only hints, and some are lost. So the issue and its pull request are read again before each stage. If a
//! webhook about their state would have stopped the run, the check stops the run as well.
//!
//! Each attempt checks again and nothing is journalled, because the previous attempt may be days old. This is correct
//! as long as these rules hold:
//!
//! - A check changes nothing, neither on this server nor on GitHub, so it may be repeated and may then give another
//!   result. Only the halt visit removes the stop label, after the end of the run is on disk. If the check removed the
//!   label and GitHub's response were lost, the next check would not see the label.
//! - A check that lets the run continue leaves nothing behind that a later attempt would need. None of its values
//!   becomes part of the state, a prompt or an effect.
//! - A check that stops the run comes before the first effect of an attempt, at the same point at which a person's
//!   `/stop` takes effect. Effects of an earlier attempt are safe: the halt visit looks for the status comment before
//!   it writes one, and accepts labels, branch and pull request as it finds them. A publication that has started is
//!   completed: if the approved commit exists, the halt visit finishes the publication and the run is done.

use std::time::Duration;

use super::{StepContext, StepServices};
use crate::{
    commands::{self, CommandKind},
    config::{REPOSITORY_FILE, RepoSettings},
    engine::StepError,
    github::{GitHubApiError, GitHubRepo, GitHubValidationError, Issue, PullRequest, RepositoryAvailability},
    limits,
    messages::AuthorshipNote,
    store::{ArtifactRow, RepositoryRow},
    types::{Actor, Hash, IssueNo, Role, UserId, Verb},
};

/// Interval between checks while GitHub's rate limit blocks a step. A check sends no request.
const LIMIT_CHECK: Duration = Duration::from_secs(15);

/// Delay before GitHub is read again, either after an error or because an object is not visible yet.
const RETRY_DELAY: Duration = limits::LOOKUP_INTERVAL;

/// Time for which a repository that was found enabled is not checked again. Otherwise each step would read the
/// repository's settings file.
const SWITCH_CHECK_INTERVAL: Duration = Duration::from_secs(45);

impl StepServices {
    /// Checks the issue and the pull request before a stage, and ends the run if a lost webhook would have ended it.
    /// Returns the current pull request. Callers may store the pull request only through the journal.
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
            _ if stop_label_on(&issue.labels).is_some() => Some("stop label"),
            _ if issue.labels.iter().any(|label| self.settings.people.opts_out(label)) => {
                Some("a label tells Countersign to leave the issue alone")
            }
            _ if self.is_switched_off(cx, &repo).await? => Some(SWITCHED_OFF),
            Some(number) => closed_reason(seen.insert(find_pull_request(&repo, number).await?)),
            None => None,
        };
        let Some(why) = over else { return Ok(seen) };
        // Only the lost webhook says who did it.
        Err(StepError::Stopped { by: unknown_actor(), why: why.to_owned() })
    }

    /// Whether the repository's settings currently disable the bot. An unreadable settings file does not disable it.
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

    /// Checks, before any paid call, that the App has all permissions that the run will need.
    pub async fn check_permissions(&self, repo: &GitHubRepo, on_branch: bool) -> Result<(), StepError> {
        let lacking = repo.missing_permissions(on_branch).await.map_err(github_error)?;
        if lacking.is_empty() {
            return Ok(());
        }
        Err(StepError::User(format!(
            "The App lacks a permission: {}. Grant it in the App's settings, accept it for the installation, then \
             start again.",
            lacking.join(", ")
        )))
    }

    /// Returns the run's issue. GitHub's reads lag behind its webhooks, so a missing issue first causes a retry later.
    /// After the retries, the error explains why the issue is missing.
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
        // The event that started the run touched the issue, so an older copy is stale.
        let stale = issue.updated_at < cx.run().trigger.at;
        if stale && (!issue.state_open || stop_label_on(&issue.labels).is_some()) {
            return Err(StepError::Later {
                why: "GitHub still shows an old version of the issue".to_owned(),
                after: RETRY_DELAY,
            });
        }
        Ok(issue)
    }

    async fn save_repository_name(&self, repo: &GitHubRepo) -> Result<(), StepError> {
        let info = repo.info().await.map_err(github_error)?;
        let row = RepositoryRow { id: repo.id(), installation: repo.installation(), name: info.name };
        self.store
            .installation_registry()
            .record_repository(row)
            .await
            .map_err(|error| StepError::Bug(error.into()))
    }

    /// Returns the reason why an issue is still missing after the retries.
    async fn explain_missing_issue(
        &self,
        repo: &GitHubRepo,
        number: IssueNo,
    ) -> Result<StepError, StepError> {
        let why = match repo.availability().await.map_err(github_error)? {
            RepositoryAvailability::Available(info) if info.name != *repo.name() => {
                self.save_repository_name(repo).await?;
                let why = "the repository was renamed".to_owned();
                return Ok(StepError::Later { why, after: RETRY_DELAY });
            }
            RepositoryAvailability::Available(_) => format!(
                "Issue #{number} is no longer in this repository. If it was moved, start again there."
            ),
            RepositoryAvailability::Unreachable => {
                "The repository was deleted or removed from the App's installation. Add it again in the App's \
                 settings, then start again."
                    .to_owned()
            }
            RepositoryAvailability::Suspended => {
                "The App's installation is suspended. Unsuspend it in the App's settings, then start again."
                    .to_owned()
            }
            RepositoryAvailability::Uninstalled => {
                "The App was uninstalled. Install it again, then start again.".to_owned()
            }
        };
        Ok(StepError::User(why))
    }
}

/// Returns the actor that is recorded if the person is unknown.
pub fn unknown_actor() -> Actor {
    Actor { id: UserId(0), login: "someone".to_owned(), bot: false }
}

/// Stop reason of a run whose pull request was merged.
pub const MERGED: &str = "its pull request was merged";

/// Stop reason of a run whose repository disabled the bot.
pub const SWITCHED_OFF: &str = "Countersign was switched off for this repository";

/// Whether the repository's settings file disables the bot.
///
/// # Errors
/// GitHub errors. A missing file is not an error and returns `false`.
pub async fn is_switched_off(repo: &GitHubRepo) -> Result<bool, GitHubApiError> {
    let file = repo.file(REPOSITORY_FILE, "HEAD").await?;
    Ok(file.is_some_and(|bytes| RepoSettings::switches_off(&String::from_utf8_lossy(&bytes))))
}

/// Returns the login of an author of the issue's current text who has no write permission for the repository. `None` if
/// every author has it.
pub async fn find_outside_author(cx: &StepContext, repo: &GitHubRepo) -> Result<Option<String>, StepError> {
    let ours = repo.bot().await.map_err(github_error)?.id;
    for author in repo.authors(cx.run().trigger.issue).await.map_err(github_error)?.actors() {
        // A person approved our own edits, and the issue's opener is checked in any case.
        if (author.id != ours || ours == UserId(0))
            && repo.permission(author).await.map_err(github_error)? < Role::Write
        {
            return Ok(Some(author.login.clone()));
        }
    }
    Ok(None)
}

/// Returns notes about the issue's authors, for the people who decide. Uses GitHub's time of the last edit, because
/// `updated_at` also changes with comments and labels. The time of the run's trigger does not help either, because the
/// trigger may be a comment.
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

/// Whether the issue is unchanged, or was last edited by the bot itself. The bot's own edits do not count as changes.
///
/// # Errors
/// `Bug` if the rows of the bot's own edits cannot be read.
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

/// Returns the stop reason if the pull request is merged or closed, otherwise `None`.
fn closed_reason(pull: &PullRequest) -> Option<&'static str> {
    match (pull.merged, pull.open) {
        (true, _) => Some(MERGED),
        (false, true) => None,
        (false, false) => Some("its pull request was closed"),
    }
}

/// Returns the stop label if it is among `labels`, otherwise `None`.
pub fn stop_label_on(labels: &[String]) -> Option<&'static str> {
    let label = commands::COMMON
        .iter()
        .find(|row| row.kind == CommandKind::Common(Verb::Stop))
        .and_then(|row| row.label)?;
    labels.iter().any(|on| on == label).then_some(label)
}

/// Maps a GitHub error to a step error that waits, tells people, or asks for an investigation. Messages to people are
/// written by us. GitHub's own messages may quote anything, so they go only to the server's log.
pub fn github_error(fault: GitHubApiError) -> StepError {
    let later = |why: &str, after| StepError::Later { why: why.to_owned(), after };
    let sentence = match &fault {
        // GitHub's client knows the time; an early call sends no request.
        GitHubApiError::RateLimited { .. } => return later("GitHub limits the rate of requests", LIMIT_CHECK),
        GitHubApiError::Transient { .. } => return later("GitHub was unreachable or failed", RETRY_DELAY),
        GitHubApiError::TemporarilyRefused { .. } => {
            tracing::warn!(%fault, "GitHub temporarily refuses a request; will retry");
            return later("GitHub refuses the request for now; the server's log has the reason", LIMIT_CHECK);
        }
        // An outage page, or credentials that the operator is fixing. The engine's maximum wait ends it.
        GitHubApiError::Unexpected { .. } => {
            return later("GitHub's answer could not be read; the server's log has the details", LIMIT_CHECK);
        }
        GitHubApiError::Unauthorized { .. } => {
            return later(
                "GitHub does not accept the App's credentials; the operator has to check the App's id and key",
                LIMIT_CHECK,
            );
        }
        GitHubApiError::NotFound { .. } => {
            "GitHub no longer finds an object that existed a moment ago. Check whether it was deleted or \
             removed from the App's installation, then start again."
                .to_owned()
        }
        GitHubApiError::Gone { .. } | GitHubApiError::Moved { .. } => {
            "The issue or repository of this run was deleted or moved. Start again at its new place.".to_owned()
        }
        GitHubApiError::Forbidden { accepted_permissions, .. } => match wanted_permissions(accepted_permissions.as_deref()) {
            Some(wanted) => format!(
                "GitHub refused a request and requires {wanted}. Grant the App that permission, then start again."
            ),
            None => {
                "GitHub refused a request of the App. Check the branch's rules and the App's permissions, then \
                 start again."
                    .to_owned()
            }
        },
        GitHubApiError::BranchForbidden { branch, .. } => format!(
            "GitHub does not let the App create the branch {branch}. A ruleset of the repository or its organization \
             probably forbids it. Let the App bypass that ruleset, or exempt branches under countersign/, then write \
             `/retry`."
        ),
        GitHubApiError::Conflict { .. } => {
            "GitHub reported a conflict with a simultaneous change by somebody else. Start again.".to_owned()
        }
        GitHubApiError::Rejected { message, .. } if message.to_lowercase().contains(RULES) => {
            "A ruleset of the repository or its organization refused the commit. Let the App bypass that ruleset, then write \
             `/retry`."
                .to_owned()
        }
        GitHubApiError::Rejected { problems, .. } => rejection_message(problems),
        // Our own check: nothing was sent.
        GitHubApiError::Invalid(why) => format!("Not sent to GitHub: {why}"),
    };
    tracing::warn!("GitHub refused a step's request: {fault}");
    StepError::User(sentence)
}

/// Phrase in GitHub's message about a commit or branch that violates a ruleset.
const RULES: &str = "rule violations";

/// Returns the list of accepted permissions in readable form. `None` if the text contains anything but GitHub's
/// permission names.
fn wanted_permissions(accepted: Option<&str>) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || "_=;, ".contains(c);
    let accepted =
        accepted.filter(|text| !text.is_empty() && text.len() <= 200 && text.chars().all(plain))?;
    Some(accepted.replace("; ", " or ").replace(';', " or "))
}

/// Describes GitHub's validation errors in sentences written by us.
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
    format!("GitHub refused a write by Countersign{told}. GitHub's message is in the server's log.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn github_error_in_a_run_report_never_quotes_the_response_text() {
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
            @"GitHub refused a write by Countersign: title is missing, head was refused. GitHub's message is in the server's log."
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
        assert!(!said(forbidden("@everyone")).contains('@'), "only permission names are quoted");
        assert!(matches!(
            github_error(GitHubApiError::Transient { call: call(), why: String::new() }),
            StepError::Later { .. }
        ));
    }
}
