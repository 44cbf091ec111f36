//! Replies to a person's command: a comment, a 👎 reaction, or only a log line.

use super::{Intake, IntakeError, cause, events::reply_marker};
use crate::{
    engine::{GateAnswer, GateAnswerOutcome, GateAnswerRequest, GateRow, RunFilter, RunView, RunViewStatus},
    github::{GitHubApiError, GitHubRepo, OutboundBody, none_if_refused},
    messages::{self, ApproveLine},
    publication::waits_for_merge,
    store::ClaimedDelivery,
    types::{Cause, IssueNo, RepoId, Timestamp, Verb},
};

/// Reply to one command.
pub(super) enum CommandReply {
    /// Nothing is posted. The text goes to the log.
    Note(String),
    /// A reply to post. All replies of one delivery go into one comment.
    Comment(OutboundBody),
    /// A reply to `/help`, `/status` or `/cost`. All such replies share one comment in the thread, which is updated.
    SharedComment(OutboundBody),
    /// The person lacks permission. The only response is a 👎 reaction, because a comment would send mail to everybody
    /// on the thread.
    Refusal(String),
}

impl Intake {
    /// Sends a gate answer to the engine and returns the reply to the person. If no run is live, the answer may be
    /// meant for the run that `ended`.
    pub(super) async fn send_answer(
        &self,
        taken: &ClaimedDelivery,
        (repo, issue): (RepoId, IssueNo),
        answer: GateAnswer,
        ended: Option<&RunView>,
    ) -> Result<CommandReply, IntakeError> {
        let live = RunFilter { repo: Some(repo), issue: Some(issue), live_only: true };
        // An answer with a hash names its gate, so it can never be too late.
        let late = taken.swept && answer.hash.is_none() && {
            let live = self.engine.list(live).await?;
            has_moved_on(live.iter().filter(|run| is_answer_to(&answer, run)), answer.at)?
        };
        let (verb, text) = (answer.verb, answer.text.clone());
        let stage = answer.stage.clone().or_else(|| answer.way.clone());
        let line = |gate: &GateRow| approve_line(gate, verb, &text);
        let lines = |gates: &[GateRow]| {
            let takes = |gate: &&GateRow| gate.spec.verbs.iter().any(|(known, _)| *known == verb);
            gates.iter().filter(takes).map(line).collect::<Vec<_>>()
        };
        Ok(CommandReply::Comment(
            match self.engine.signal(GateAnswerRequest { repo, issue, answer, late }).await? {
                GateAnswerOutcome::Accepted(run) => {
                    return Ok(CommandReply::Note(format!("passed `/{verb}` to {run}")));
                }
                GateAnswerOutcome::Duplicate => return Ok(CommandReply::Note("duplicate".to_owned())),
                GateAnswerOutcome::Late => messages::late_command_reply(verb.as_str()),
                GateAnswerOutcome::NotAllowed { needs, .. } => {
                    return Ok(CommandReply::Refusal(format!("refused: `/{verb}` needs {needs} here")));
                }
                GateAnswerOutcome::IneligibleApprover(why) => {
                    return Ok(CommandReply::Refusal(format!("refused: `/{verb}` {why} here")));
                }
                GateAnswerOutcome::NoGate(runs) if runs.iter().any(|run| run.shows_unopened_gate) => {
                    return Err(IntakeError::Opening);
                }
                GateAnswerOutcome::NoGate(runs) => self.no_gate_reply(verb, &runs),
                GateAnswerOutcome::NoRun => {
                    let over = |run: &RunView| {
                        messages::run_ended_reply(
                            run.id,
                            &run.workflow,
                            run.status.as_str(),
                            run.why.as_deref(),
                        )
                    };
                    ended.map_or_else(|| messages::runs_table(&[]), over)
                }
                GateAnswerOutcome::WrongStage(gates) => {
                    messages::wrong_stage_reply(stage.as_deref().unwrap_or_default(), &lines(&gates))
                }
                GateAnswerOutcome::SeveralGates(gates) => messages::ambiguous_gate_reply(&lines(&gates)),
                GateAnswerOutcome::Stale(gate) => messages::stale_hash_reply(&line(&gate)),
                GateAnswerOutcome::TooSoon(gate) => {
                    let touched_by = gate.comment_edit.as_ref().map(|remark| remark.by.login.as_str());
                    messages::too_soon_reply(&line(&gate), touched_by)
                }
                GateAnswerOutcome::UnknownOption(gate) => messages::wrong_option_reply(verb, &line(&gate)),
            },
        ))
    }

    /// Returns the reply to a command that no open gate accepts.
    pub(super) fn no_gate_reply(&self, verb: Verb, runs: &[RunView]) -> OutboundBody {
        if runs.iter().any(waits_for_merge) && runs.iter().filter(|run| run.gate.is_some()).count() == 1 {
            return messages::waits_for_merge_reply(verb.as_str());
        }
        if let Some(gate) = runs.iter().find_map(|run| run.gate.as_ref()) {
            let rows = gate.spec.verbs.iter().filter_map(|(verb, _)| self.router.find_command(verb.as_str()));
            return messages::wrong_command_reply(verb, &rows.map(|row| row.usage).collect::<Vec<_>>());
        }
        runs.first().map_or_else(
            || messages::runs_table(&[]),
            |run| messages::no_gate_reply(run.id, &run.step_title, None),
        )
    }

    /// Posts all replies of a delivery as one comment on the thread `asked`. The comment is about the run on `issue`.
    pub(super) async fn post_reply(
        &self,
        taken: &ClaimedDelivery,
        cause: &Cause,
        repo: &GitHubRepo,
        (asked, issue): (IssueNo, IssueNo),
        words: &[OutboundBody],
    ) -> Result<(), IntakeError> {
        if words.is_empty() {
            return Ok(());
        }
        let (marker, body) = (reply_marker(&cause::nth(cause, 0)), messages::join_replies(words));
        let say = async {
            let place = unlocked_thread(repo, asked, issue).await?;
            repo.ensure_comment(place, &marker, &body, taken.taken_before).await.map(drop)
        };
        Ok(tolerate_refusal(say.await).map(drop)?)
    }
}

/// Like [`none_if_refused`], but "not found" stays an error. A new issue or comment may not be visible yet, so the
/// delivery is postponed.
pub(super) fn tolerate_refusal<T>(done: Result<T, GitHubApiError>) -> Result<Option<T>, GitHubApiError> {
    match done {
        Err(fault @ GitHubApiError::NotFound { .. }) => Err(fault),
        done => none_if_refused(done),
    }
}

/// Returns the thread to reply on. This is the pull request where the question was asked, or the issue if that pull
/// request is locked.
pub(super) async fn unlocked_thread(
    repo: &GitHubRepo,
    asked: IssueNo,
    issue: IssueNo,
) -> Result<IssueNo, GitHubApiError> {
    Ok(if asked != issue && repo.issue(asked).await?.locked { issue } else { asked })
}

/// Whether any of these runs has changed its gate or step since `then`. In that case, a late answer may be meant for an
/// earlier gate. Fails with `Opening` while a gate is about to open, because the result is not known yet.
pub(super) fn has_moved_on<'r>(
    runs: impl IntoIterator<Item = &'r RunView>,
    then: Timestamp,
) -> Result<bool, IntakeError> {
    for run in runs {
        match &run.gate {
            // The gate counts from when its text was visible, which is before it opened.
            Some(gate) if gate.spec.shown_at <= then => {}
            // A waiting run is saved at each poll without moving on; a halting run does not move on either.
            None if matches!(run.status, RunViewStatus::Waiting | RunViewStatus::Halting)
                || run.updated_at <= then => {}
            None if run.shows_unopened_gate => return Err(IntakeError::Opening),
            _ => return Ok(true),
        }
    }
    Ok(false)
}

/// Whether this answer fits the run's open gate. Also true if the run has no open gate, because the answer may then be
/// meant for an earlier gate.
fn is_answer_to(answer: &GateAnswer, run: &RunView) -> bool {
    run.gate.as_ref().is_none_or(|gate| {
        gate.spec.verbs.iter().any(|(verb, _)| *verb == answer.verb)
            && answer.stage.as_ref().is_none_or(|stage| gate.spec.stage.eq_ignore_ascii_case(stage))
    })
}

/// Returns the command line that a person can paste to give the same answer to this gate.
pub(super) fn approve_line(gate: &GateRow, verb: Verb, text: &str) -> ApproveLine {
    let other = (verb != Verb::Approve).then(|| (verb, text.to_owned()));
    ApproveLine {
        other_verb: other,
        ..ApproveLine::approve(&gate.spec.stage, gate.spec.subject, &gate.spec.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands::ROUTE,
        publication::{MERGE_GATE, most_urgent_run},
        store::{Approvers, GateSpec, GitHubCallCount, RunTrigger},
        types::{Actor, Hash, InstallationId, Role, RunId, UserId},
    };

    fn ada() -> Actor {
        Actor { id: UserId(1), login: "ada".into(), bot: false }
    }

    /// Returns a run saved at time 100. Its gate, if it has one, was shown at the same time.
    fn run(status: RunViewStatus, opening: bool, stage: Option<&str>) -> RunView {
        let (at, repo, issue) = (Timestamp(100), RepoId(1), IssueNo(2));
        let gate = |stage: &str| GateRow {
            id: 1,
            run: RunId { repo, seq: 1 },
            spec: GateSpec {
                stage: stage.to_owned(),
                subject: Hash::digest(b"subject"),
                verbs: vec![(Verb::Revise, Role::Write.into())],
                shown_at: at,
                approvers: Approvers::default(),
                expires: None,
                options: Vec::new(),
            },
            answers: 0,
            comment_edit: None,
        };
        RunView {
            id: RunId { repo, seq: 1 },
            workflow: "lld".to_owned(),
            version: 1,
            issue,
            status,
            step_id: "N4".to_owned(),
            step_title: String::new(),
            gate: stage.map(gate),
            shows_unopened_gate: opening,
            has_watch_step: false,
            visit: 1,
            started_by: ada(),
            started_at: Timestamp(0),
            updated_at: at,
            due: None,
            why: None,
            outcome: None,
            calls: GitHubCallCount::default(),
            trigger: RunTrigger {
                command: "lld".to_owned(),
                args: String::new(),
                repo,
                installation: InstallationId(3),
                issue,
                actor: ada(),
                role: Role::Write,
                cause: Cause("start".into()),
                at: Timestamp(0),
                comment: None,
                request: None,
            },
        }
    }

    fn late(run: &RunView, stage: Option<&str>, then: i64) -> &'static str {
        let answer = GateAnswer {
            cause: Cause("answer".into()),
            verb: Verb::Revise,
            stage: stage.map(str::to_owned),
            hash: None,
            way: None,
            text: String::new(),
            by: ada(),
            role: Role::Write,
            at: Timestamp(then),
            url: None,
            commit: None,
            review: None,
        };
        match has_moved_on(Some(run).filter(|run| is_answer_to(&answer, run)), answer.at) {
            Ok(true) => "late",
            Ok(false) => "in time",
            Err(_) => "not known yet",
        }
    }

    #[test]
    fn most_urgent_run_is_one_with_an_open_gate_and_never_a_route_run() {
        let numbered = |seq, mut run: RunView| {
            run.id.seq = seq;
            run
        };
        let of = |runs: &[RunView]| most_urgent_run(runs.iter().cloned()).map(|run| run.id.seq);
        let gate = numbered(1, run(RunViewStatus::Asking, false, Some("lld")));
        let merge = numbered(2, run(RunViewStatus::Asking, false, Some(MERGE_GATE)));
        let waits = numbered(3, run(RunViewStatus::Waiting, false, None));
        let works = numbered(4, run(RunViewStatus::Running, false, None));
        let mut reads = numbered(5, run(RunViewStatus::Running, false, None));
        reads.workflow = ROUTE.to_owned();
        let mut all = vec![gate, merge, waits, works, reads];
        assert_eq!(of(&all), Some(1));
        all.remove(0);
        assert_eq!(of(&all), Some(3), "it may be held up or at work");
        all.remove(1);
        assert_eq!(of(&all), Some(4));
        all.remove(1);
        assert_eq!(of(&all), None);
    }

    #[test]
    fn answer_is_late_only_if_the_run_changed_after_the_answer_was_written() {
        let working = run(RunViewStatus::Running, false, None);
        assert_eq!((late(&working, None, 99), late(&working, None, 100)), ("late", "in time"));
        for still in [RunViewStatus::Waiting, RunViewStatus::Halting] {
            assert_eq!(late(&run(still, false, None), None, 99), "in time");
        }
        let opening = run(RunViewStatus::Ready, true, None);
        assert_eq!((late(&opening, None, 99), late(&opening, None, 100)), ("not known yet", "in time"));

        let gate = run(RunViewStatus::Asking, false, Some("lld"));
        assert_eq!((late(&gate, None, 99), late(&gate, None, 100)), ("late", "in time"));
        assert_eq!(late(&gate, Some("LLD"), 99), "late");
        assert_eq!(late(&gate, Some("spec"), 99), "in time", "it is about another gate");
        let mut other = gate;
        other.gate.as_mut().unwrap().spec.verbs.clear();
        assert_eq!(late(&other, None, 99), "in time", "that gate takes no such answer");
    }
}
