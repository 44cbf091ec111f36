//! What a person asked for comes back as words, as a thumb down or as nothing but a line in the log.

use super::{Intake, LAG, Trouble, cause, route::reply_marker};
use crate::{
    engine::{Answer, GateView, RunView, Signal, Signalled},
    github::{Body, Repo},
    messages::{self, ApproveLine},
    store::Taken,
    types::{Cause, IssueNo, RepoId},
};

/// What one command came to.
pub(super) enum Reply {
    /// Nothing is said; this is for the log.
    Note(String),
    /// The person is told. All that one delivery has to tell goes into one comment.
    Words(Body),
    /// The person asked to see something, which is kept in the one comment for that.
    Shown(Body),
    /// Not for this person. Strangers are never answered in prose: each comment is mail to everybody.
    No(String),
}

impl Intake {
    /// Hands an answer to the engine and puts into words what that says to it.
    pub(super) async fn signal(
        &self,
        taken: &Taken,
        (repo, issue): (RepoId, IssueNo),
        answer: Answer,
    ) -> Result<Reply, Trouble> {
        let (verb, stage) = (answer.verb.clone(), answer.stage.clone());
        Ok(Reply::Words(match self.engine.signal(Signal { repo, issue, answer }).await? {
            Signalled::Taken(run) => return Ok(Reply::Note(format!("`/{verb}` taken by {run}"))),
            Signalled::Duplicate => return Ok(Reply::Note("heard before".to_owned())),
            Signalled::NotAllowed { needs, .. } => {
                return Ok(Reply::No(format!("refused: `/{verb}` needs {needs} here")));
            }
            Signalled::NoGate(runs)
                if runs.iter().any(|run| run.opening) && self.clock.now().since(taken.received_at) < LAG =>
            {
                return Err(Trouble::Opening);
            }
            Signalled::NoGate(runs) => self.no_gate(&verb, &runs),
            Signalled::NoRun => messages::runs(&[]),
            Signalled::WrongStage(gates) => {
                messages::wrong_stage(stage.as_deref().unwrap_or_default(), &lines(&gates))
            }
            Signalled::Several(gates) => messages::several(&lines(&gates)),
            Signalled::Stale(gate) => messages::stale(&approve_line(&gate)),
            Signalled::TooSoon(gate) => messages::too_soon(&approve_line(&gate)),
        }))
    }

    /// Nothing waits, or nothing that takes this command.
    fn no_gate(&self, verb: &str, runs: &[RunView]) -> Body {
        if let Some(gate) = runs.iter().find_map(|run| run.gate.as_ref()) {
            let rows = gate.verbs.iter().filter_map(|(verb, _)| self.router.row(verb));
            return messages::no_such_verb(verb, &rows.map(|row| row.usage).collect::<Vec<_>>());
        }
        runs.first()
            .map_or_else(|| messages::runs(&[]), |run| messages::no_gate(run.id, &run.step_title, None))
    }

    /// Says all that a delivery has to say, in one comment.
    pub(super) async fn say(
        &self,
        taken: &Taken,
        cause: &Cause,
        repo: &Repo,
        issue: IssueNo,
        words: &[Body],
    ) -> Result<(), Trouble> {
        if !words.is_empty() {
            let marker = reply_marker(&cause::nth(cause, 0));
            repo.ensure_comment(issue, &marker, &messages::together(words), taken.again).await?;
        }
        Ok(())
    }
}

/// The line a person pastes.
fn approve_line(gate: &GateView) -> ApproveLine {
    ApproveLine { stage: gate.stage.clone(), subject: gate.subject }
}

fn lines(gates: &[GateView]) -> Vec<ApproveLine> {
    gates.iter().map(approve_line).collect()
}
