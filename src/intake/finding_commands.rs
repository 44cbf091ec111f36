//! `/dismiss`, `/must-fix` and `/restart`: commands that act on a live run but do not answer a gate.

use super::{Intake, IntakeError, answer::CommandReply, comment::CommentContext};
use crate::{
    commands::{CommentCommand, FindingArguments},
    documents::{findings::FindingStatus, verdict::FindingSeverity},
    engine::{
        AnswerReceipt, CancelRunsRequest, FindingRow, RemarkKind, RunRemark, RunView, StartDecision,
        StartRunRequest,
    },
    messages,
    rounds::role_to_settle,
    types::{Cause, Verb},
};

impl Intake {
    /// Handles `/dismiss` or `/must-fix` for the live run to which the finding belongs.
    pub(super) async fn settle_finding(
        &self,
        said: &CommentContext<'_>,
        (verb, command): (Verb, &CommentCommand),
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let FindingArguments { finding, text } = match FindingArguments::parse(verb, &command.args) {
            Ok(args) => args,
            Err(error) => {
                return Ok(CommandReply::Comment(messages::bad_arguments_reply(
                    verb.as_str(),
                    &error.to_string(),
                )));
            }
        };
        let kind = if verb == Verb::Dismiss { RemarkKind::Dismiss } else { RemarkKind::MustFix };
        let found = self.live_findings(said).await?;
        let (run, found) = match &found[..] {
            [] => return Ok(CommandReply::Comment(messages::no_findings_reply())),
            [one] => one,
            _ => return Ok(CommandReply::Comment(messages::ambiguous_finding_reply())),
        };
        let Some(row) = found.iter().find(|row| row.id == finding) else {
            let open = found.iter().filter(|row| is_open(row)).map(|row| row.id.as_str());
            return Ok(CommandReply::Comment(messages::unknown_finding_reply(&finding, open)));
        };
        if verb == Verb::Dismiss && !is_open(row) {
            return Ok(CommandReply::Comment(messages::already_settled_reply(&finding, &row.status)));
        }
        let needs = role_to_settle(kind, row.severity == FindingSeverity::Blocking.as_str());
        if said.role < needs {
            return Ok(CommandReply::Refusal(format!("refused: {verb} of {finding} needs {needs}")));
        }
        let remark = RunRemark {
            cause,
            kind,
            finding,
            text,
            by: said.event.sender.clone(),
            role: said.role,
            at: said.event.created_at,
        };
        Ok(match self.engine.remark(run.id, remark).await? {
            AnswerReceipt::Accepted | AnswerReceipt::Duplicate => {
                CommandReply::Note(format!("passed `/{verb}` to {}", run.id))
            }
            AnswerReceipt::Changed => CommandReply::Comment(messages::no_findings_reply()),
        })
    }

    /// Returns the issue's live runs that have findings, each with the current state of its findings.
    async fn live_findings<'s>(
        &self,
        said: &'s CommentContext<'_>,
    ) -> Result<Vec<(&'s RunView, Vec<FindingRow>)>, IntakeError> {
        let Some(db) = self.store.existing_repository_database(said.at.repo.id).await? else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for run in &said.live {
            let mut found: Vec<FindingRow> = Vec::new();
            for row in db.ledger(run.id).await?.findings {
                found.retain(|earlier| earlier.id != row.id);
                found.push(row);
            }
            if !found.is_empty() {
                all.push((run, found));
            }
        }
        Ok(all)
    }

    /// Cancels the current run. Its workflow starts again once the run has ended.
    pub(super) async fn restart_workflow(
        &self,
        said: &CommentContext<'_>,
        command: &CommentCommand,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let named = command.args.split_whitespace().next();
        let fits = |run: &&RunView| named.is_none_or(|name| run.workflow.eq_ignore_ascii_case(name));
        let here: Vec<_> = said.live.iter().chain(&said.ended).filter(fits).collect();
        let mut names: Vec<_> = here.iter().map(|run| run.workflow.as_str()).collect();
        names.dedup();
        let (workflow, row) = match names[..] {
            [name] => match self.router.workflow_of_command(name) {
                Some((_, row)) if said.role < row.role => {
                    return Ok(CommandReply::Refusal(format!("refused: {} may not {}", said.role, row.name)));
                }
                Some((workflow, row)) => (workflow, row.name),
                None => return Ok(CommandReply::Comment(messages::nothing_to_restart_reply())),
            },
            [] => return Ok(CommandReply::Comment(messages::nothing_to_restart_reply())),
            _ => {
                let why = "several workflows are active here; name the one you mean";
                return Ok(CommandReply::Comment(messages::bad_arguments_reply(command.spec.name, why)));
            }
        };
        // The new run keeps the original arguments and request.
        let args = here.first().map_or("", |run| run.trigger.args.as_str());
        let mut trigger = said.trigger(row, args, cause.clone());
        trigger.request = here.iter().find_map(|run| run.trigger.request.clone());
        if let Some(refused) = self.check_person_limits(&trigger).await? {
            return Ok(refused);
        }
        let (repo, issue, by) = (said.at.repo.id, said.at.issue, said.event.sender.clone());
        for run in here.iter().filter(|run| run.status.is_live() && run.trigger.cause != cause) {
            let why = "restarted by a command".to_owned();
            let run = Some(run.id);
            self.engine
                .cancel(CancelRunsRequest { repo, issue, run, cause: cause.clone(), by: by.clone(), why })
                .await?;
        }
        Ok(match self.engine.start(StartRunRequest { workflow: workflow.to_owned(), trigger }).await? {
            StartDecision::New(run) | StartDecision::Duplicate(run) => {
                CommandReply::Note(format!("restarted {workflow} as {run}"))
            }
            // The old run is still posting that it ends.
            StartDecision::AlreadyLive(_) => return Err(IntakeError::Opening),
        })
    }
}

fn is_open(row: &FindingRow) -> bool {
    row.status == FindingStatus::Open.as_str()
}
