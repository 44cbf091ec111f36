//! What people say of single findings, and starting a workflow anew: both are about a run that lives, and answer no gate.

use super::{Intake, Trouble, answer::Reply, comment::Said};
use crate::{
    commands::{Command, DISMISS, FindingArgs},
    documents::{findings::Status, verdict::Severity},
    engine::{Booked, Cancel, FindingRow, Opened, Remark, RunView, Start},
    messages,
    rounds::may_settle,
    types::Cause,
};

impl Intake {
    /// Hands in a `/dismiss` or `/must-fix`. It is about the live run that found anything.
    pub(super) async fn settle(
        &self,
        said: &Said<'_>,
        command: &Command,
        cause: Cause,
    ) -> Result<Reply, Trouble> {
        let FindingArgs { finding, text } = match FindingArgs::parse(command.name, &command.args) {
            Ok(args) => args,
            Err(error) => {
                return Ok(Reply::Words(messages::not_understood(command.name, &error.to_string())));
            }
        };
        let found = self.findings(said).await?;
        let (run, found) = match &found[..] {
            [] => return Ok(Reply::Words(messages::no_findings())),
            [one] => one,
            _ => return Ok(Reply::Words(messages::whose_finding())),
        };
        let Some(row) = found.iter().find(|row| row.id == finding) else {
            let open = found.iter().filter(|row| open(row)).map(|row| row.id.as_str());
            return Ok(Reply::Words(messages::no_such_finding(&finding, open)));
        };
        if command.name == DISMISS && !open(row) {
            return Ok(Reply::Words(messages::settled_already(&finding, &row.status)));
        }
        let needs = may_settle(command.name, row.severity == Severity::Blocking.as_str());
        if said.role < needs {
            return Ok(Reply::No(format!("refused: {} of {finding} needs {needs}", command.name)));
        }
        let remark = Remark {
            cause,
            verb: command.name.to_owned(),
            finding,
            text,
            by: said.event.sender.clone(),
            role: said.role,
            at: said.event.created_at,
        };
        Ok(match self.engine.remark(run.id, remark).await? {
            Booked::Taken | Booked::Duplicate => {
                Reply::Note(format!("`/{}` taken by {}", command.name, run.id))
            }
            Booked::Changed => Reply::Words(messages::no_findings()),
        })
    }

    /// The live runs of the issue that found anything, and how each finding of theirs stands.
    async fn findings<'s>(&self, said: &'s Said<'_>) -> Result<Vec<(&'s RunView, Vec<FindingRow>)>, Trouble> {
        let Some(db) = self.store.repo_if_any(said.at.repo.id).await? else { return Ok(Vec::new()) };
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

    /// Ends the run there is and starts its workflow from the beginning, once that one has ended.
    pub(super) async fn restart(
        &self,
        said: &Said<'_>,
        command: &Command,
        cause: Cause,
    ) -> Result<Reply, Trouble> {
        let named = command.args.split_whitespace().next();
        let fits = |run: &&RunView| named.is_none_or(|name| run.workflow.eq_ignore_ascii_case(name));
        let here: Vec<_> = said.live.iter().chain(&said.ended).filter(fits).collect();
        let mut names: Vec<_> = here.iter().map(|run| run.workflow.as_str()).collect();
        names.dedup();
        let (workflow, row) = match names[..] {
            [name] => match self.router.by_command(name) {
                Some((_, row)) if said.role < row.role => {
                    return Ok(Reply::No(format!("refused: {} may not {}", said.role, row.name)));
                }
                Some((workflow, row)) => (workflow, row.name),
                None => return Ok(Reply::Words(messages::nothing_to_restart())),
            },
            [] => return Ok(Reply::Words(messages::nothing_to_restart())),
            _ => {
                let why = "more than one workflow is at work here; name the one that is meant";
                return Ok(Reply::Words(messages::not_understood(command.name, why)));
            }
        };
        // What was asked for is asked for again.
        let args = here.first().map_or("", |run| run.trigger.args.as_str());
        let mut trigger = said.trigger(row, args, cause.clone());
        trigger.request = here.iter().find_map(|run| run.trigger.request.clone());
        if let Some(refused) = self.too_much(&trigger).await? {
            return Ok(refused);
        }
        let (repo, issue, by) = (said.at.repo.id, said.at.issue, said.event.sender.clone());
        for run in here.iter().filter(|run| run.status.live() && run.trigger.cause != cause) {
            let why = "started anew".to_owned();
            let run = Some(run.id);
            self.engine
                .cancel(Cancel { repo, issue, run, cause: cause.clone(), by: by.clone(), why })
                .await?;
        }
        Ok(match self.engine.start(Start { workflow: workflow.to_owned(), trigger }).await? {
            Opened::New(run) | Opened::Duplicate(run) => {
                Reply::Note(format!("started {workflow} anew as {run}"))
            }
            // It is still telling people that it ends.
            Opened::Live(_) => return Err(Trouble::Opening),
        })
    }
}

fn open(row: &FindingRow) -> bool {
    row.status == Status::Open.as_str()
}
