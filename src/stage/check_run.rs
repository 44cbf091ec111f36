//! The check run on the head of the branch, which shows the run's state on the commit.
//!
//! It changes together with the status comment, and is written only when its text changes. It exists only after the
//! first proposal, because we do not create a branch just for a check run. If GitHub refuses to write the check run,
//! the run continues, as it does when a label cannot be set.

use serde::{Deserialize, Serialize};

use super::{StageState, StepVisit, load_document, views};
use crate::{
    documents::findings::Finding,
    engine::{StepError, StepKind},
    github::{CheckRunTarget, GitHubApiError, GitHubRepo, none_if_refused},
    messages::{self, CheckCard, CheckRunState, RunDisplayState as Shown, RunWaitReason},
    publication::Proposal,
    rounds::github_error,
    types::{Hash, Oid},
};

/// The run's check run, in the state in which we last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckRunRecord {
    /// Commit to which the check run belongs.
    on: Option<Oid>,
    /// ID of the check run while it is in progress. `None` if it is completed or GitHub refused to create it.
    going: Option<u64>,
    /// Hash of the text that we last wrote; `None` if the check run may have been overwritten since.
    says: Option<Hash>,
    /// Link of the published document in the audit chain.
    audit: Option<Hash>,
    /// Number of the visit that last handled the check run.
    visit: u64,
    /// Whether the check run may have been created by an earlier attempt of this visit, whose state was not saved.
    #[serde(skip)]
    in_doubt: bool,
}

impl CheckRunRecord {
    /// Records a new visit and returns whether the run halted since the last recorded one. A gap in the visit numbers
    /// means that the run halted, and that the halt report rewrote the check run.
    pub(super) fn begin_visit(&mut self, visit: u64) -> bool {
        let halted = self.visit > 0 && self.visit + 1 < visit;
        if self.visit + 1 < visit {
            (self.going, self.says) = (None, None);
        }
        self.visit = visit;
        halted
    }

    pub(super) fn set_audit(&mut self, audit: Hash) {
        self.audit = Some(audit);
    }

    pub(super) fn audit(&self) -> Option<Hash> {
        self.audit
    }

    pub(super) fn mark_uncertain(&mut self) {
        self.in_doubt = true;
    }
}

/// Shows the run's state in a check run on the proposal's commit.
pub(super) async fn update_check_run(
    s: &mut StageState,
    v: &StepVisit<'_>,
    repo: &GitHubRepo,
    key: &str,
    state: Shown,
) -> Result<(), StepError> {
    let Some(proposal) = s.proposal.clone() else { return Ok(()) };
    let Some((stands, url)) = check_run_state(s, v, state) else { return Ok(()) };
    let cx = v.cx;
    if s.check.on.as_ref() != Some(&proposal.commit) {
        replace_check_run(s, v, repo, &format!("{key}-check-left"), &proposal).await?;
    }
    let mut card = check_card(s, v, stands, &proposal, url);
    if !matches!(card.state, CheckRunState::Working) && s.round.document == Some(proposal.document) {
        let text = load_document(s, cx).await?;
        let line = |finding: &Finding| v.doc.line_of(&text, &finding.place).unwrap_or(1);
        card.findings = s.round.findings.open().map(|found| (found.clone(), line(found))).collect();
        if let CheckRunState::Accepted { audit, .. } = card.state {
            card.change = views::change_section(s, v, Some(audit)).await?;
        }
    }
    let (text, before) = (messages::check_run_text(&card), &s.check);
    let digest = text.digest();
    if before.says == Some(digest) {
        return Ok(());
    }
    let stage = v.doc.info().stage;
    let place = CheckRunTarget {
        branch: proposal.branch.clone(),
        head: proposal.commit.clone(),
        name: messages::check_name(stage),
        run: cx.run().id,
        turn: format!("{stage}/{}-{key}", cx.visit()),
    };
    let (place, said) = (&place, &text);
    let id: Option<u64> = cx
        .once(&format!("{key}-check"), |entry| async move {
            let again = entry.interrupted;
            let written: Result<u64, GitHubApiError> = match before.going {
                Some(id) => repo.edit_check(id, said, again).await.map(|()| id),
                None => repo.ensure_check(place, said, again, before.in_doubt).await,
            };
            none_if_refused(written).map_err(github_error)
        })
        .await?;
    (s.check.going, s.check.says) = (id.filter(|_| text.state.is_in_progress()), Some(digest));
    Ok(())
}

/// Returns the state and link to show in the check run; `None` if the run's state is not shown in a check run.
fn check_run_state(
    s: &StageState,
    v: &StepVisit<'_>,
    state: Shown,
) -> Option<(CheckRunState, Option<String>)> {
    let status = s.status.url.clone();
    Some(match state {
        Shown::Working => (CheckRunState::Working, status),
        Shown::NeedsYou => match views::wait_reason(s, v, state) {
            Some(RunWaitReason::Budget { url, .. }) => (CheckRunState::Budget, Some(url)),
            Some(RunWaitReason::Decision { verdict, gate_url, .. }) => {
                (CheckRunState::Decision { verdict }, gate_url.or(status))
            }
            _ => return None,
        },
        Shown::Parked => (CheckRunState::Parked, status),
        // Only with evidence: a commit that names its audit link.
        Shown::Done => {
            let acceptance = s.approval.as_ref().map(|row| views::acceptance(row, v.cx));
            (CheckRunState::Accepted { acceptance, audit: s.check.audit? }, status)
        }
        // The pushed change was countersigned, even while it waits for its merge.
        Shown::Stopped if v.at.kind == StepKind::Watch => return None,
        Shown::Stopped => (CheckRunState::Stopped, status),
        Shown::Failed => (CheckRunState::Halted(v.at.title.to_owned()), status),
    })
}

fn check_card(
    s: &StageState,
    v: &StepVisit<'_>,
    stands: CheckRunState,
    on: &Proposal,
    url: Option<String>,
) -> CheckCard {
    CheckCard {
        stage: v.doc.info().stage.to_owned(),
        run: v.cx.run().id,
        page: v.cx.tools().settings.server.run_page(v.cx.run().id),
        state: stands,
        path: on.path.clone(),
        url,
        findings: Vec::new(),
        change: None,
        rehearsal: views::is_rehearsal(s, v.cx),
    }
}

/// Starts a new record for another commit. A check run that is in progress on the old commit is completed first; a
/// completed one is left unchanged.
async fn replace_check_run(
    s: &mut StageState,
    v: &StepVisit<'_>,
    repo: &GitHubRepo,
    key: &str,
    now: &Proposal,
) -> Result<(), StepError> {
    let before = std::mem::take(&mut s.check);
    if let Some(id) = before.going {
        let text = messages::check_run_text(&check_card(
            s,
            v,
            CheckRunState::Replaced,
            now,
            Some(now.pull_url.clone()),
        ));
        v.cx.once(key, |_| async {
            none_if_refused(repo.edit_check(id, &text, true).await).map(drop).map_err(github_error)
        })
        .await?;
    }
    let (audit, visit, in_doubt) = (before.audit, before.visit, before.in_doubt);
    s.check =
        CheckRunRecord { on: Some(now.commit.clone()), audit, visit, in_doubt, ..CheckRunRecord::default() };
    Ok(())
}
