//! Commands in comments: read, permitted, carried out, answered.

use super::{
    Handled, Intake, LAG, Trouble,
    route::{Place, reply_marker},
};
use crate::{
    commands::{self, Approve, Command, CommandKind, Mistake},
    engine::{Answer, Cancel, Filter, GateView, RunView, Signal, Signalled, Trigger},
    github::{Body, Reaction, Repo, event::CommentEvent},
    messages::{self, ApproveLine, HelpRow},
    store::Taken,
    types::{Cause, Role},
};

/// Everything one command needs to be answered.
struct Said<'a> {
    taken: &'a Taken,
    event: &'a CommentEvent,
    at: Place<'a>,
    repo: Repo,
    /// What the sender may do here, asked of GitHub now.
    role: Role,
    /// Runs of ours that are alive on this issue.
    live: Vec<RunView>,
}

impl Intake {
    pub(crate) async fn comment(&self, taken: &Taken, e: &CommentEvent) -> Handled {
        if e.sender.bot || e.via_app {
            return Ok("a bot's comment never acts".to_owned());
        }
        if e.author.id != e.sender.id {
            return Ok("the sender is not the author".to_owned());
        }
        let bot = self.bot().await?;
        if e.sender.id == bot.id || e.sender.login == bot.login {
            return Ok("our own comment never acts".to_owned());
        }
        let slug = bot.login.strip_suffix("[bot]");
        let found = commands::parse(self.router.rows(), slug, &e.body);
        if found.is_empty() {
            return Ok("no command in it".to_owned());
        }
        let Some(said) = self.listen(taken, e, &found).await? else {
            return Ok("nothing of ours is alive here".to_owned());
        };
        let mut notes = Vec::new();
        for (index, command) in found.iter().enumerate() {
            let cause = Cause::of(&taken.id, index);
            notes.push(match command {
                Ok(command) => self.obey(&said, command, cause).await?,
                Err(mistake) => self.correct(&said, mistake, cause).await?,
            });
        }
        Ok(notes.join("; "))
    }

    /// Which issue this is about, what lives there and what the sender may do; none when the bare words in
    /// it are not meant for us.
    async fn listen<'a>(
        &self,
        taken: &'a Taken,
        e: &'a CommentEvent,
        found: &[Result<Command, Mistake>],
    ) -> Result<Option<Said<'a>>, Trouble> {
        let here = Place { repo: &e.repo, installation: e.installation, issue: e.issue };
        let repo = self.repo(&here);
        let issue = if e.is_pull {
            let Some(issue) = self.issue_of_pull(&here).await? else { return Ok(None) };
            issue
        } else {
            e.issue
        };
        let at = Place { repo: &e.repo, installation: e.installation, issue };
        let live =
            self.engine.list(Filter { repo: Some(e.repo.id), issue: Some(issue), live_only: true }).await?;
        let meant = |command: &Command| {
            command.addressed
                || !live.is_empty()
                || self.router.row(command.name).is_some_and(|row| row.kind == CommandKind::Starts)
        };
        let any = found.iter().any(|c| match c {
            Ok(command) => meant(command),
            Err(Mistake::Unknown { addressed: true, .. }) => true,
            Err(_) => live.iter().any(|run| run.gate.is_some()),
        });
        if !any {
            return Ok(None);
        }
        let role = repo.permission(&e.sender).await?.role;
        Ok(Some(Said { taken, event: e, at, repo, role, live }))
    }

    async fn obey(&self, said: &Said<'_>, command: &Command, cause: Cause) -> Handled {
        let Some(row) = self.router.row(command.name) else { return Ok("not a word of ours".to_owned()) };
        if !command.addressed && said.live.is_empty() && row.kind != CommandKind::Starts {
            return Ok(format!("`/{}` is not meant for us here", row.name));
        }
        if said.role < row.role {
            said.repo.react_comment(said.event.comment, Reaction::ThumbsDown).await?;
            return Ok(format!("refused: {} may not {}", said.role, row.name));
        }
        said.repo.react_comment(said.event.comment, Reaction::Eyes).await?;
        if let Some((workflow, _)) = self.router.by_command(row.name) {
            let trigger = Trigger {
                command: row.name.to_owned(),
                args: command.args.clone(),
                repo: said.at.repo.id,
                installation: said.at.installation,
                issue: said.at.issue,
                actor: said.event.sender.clone(),
                role: said.role,
                cause,
                at: said.event.created_at,
                comment: Some(said.event.comment),
            };
            return self.start(said.taken, &said.repo, workflow, trigger).await;
        }
        match row.name {
            "stop" => {
                let cancel = Cancel {
                    repo: said.at.repo.id,
                    issue: said.at.issue,
                    run: None,
                    cause,
                    by: said.event.sender.clone(),
                    why: "asked to by comment".to_owned(),
                };
                Ok(format!("stopping {} runs", self.engine.cancel(cancel).await?.runs.len()))
            }
            "help" => self.tell(said, messages::help(&self.help_rows(), false)).await,
            "status" => {
                let runs = self
                    .engine
                    .list(Filter {
                        repo: Some(said.at.repo.id),
                        issue: Some(said.at.issue),
                        live_only: false,
                    })
                    .await?;
                self.tell(said, messages::runs(&runs.iter().map(line).collect::<Vec<_>>())).await
            }
            _ => self.answer(said, command, cause).await,
        }
    }

    fn help_rows(&self) -> Vec<HelpRow> {
        let rows = self.router.rows().iter();
        rows.map(|row| HelpRow {
            usage: row.usage.to_owned(),
            about: row.about.to_owned(),
            role: row.role,
            label: row.label.map(str::to_owned),
        })
        .collect()
    }

    /// `/help` and `/status` share one comment an issue, edited each time.
    async fn tell(&self, said: &Said<'_>, body: Body) -> Handled {
        let before = said.repo.find_comment(said.event.issue, ANSWERS).await?;
        match before {
            Some(comment) => said.repo.edit_comment(comment.id, ANSWERS, &body).await?,
            None => said.repo.ensure_comment(said.event.issue, ANSWERS, &body, false).await?,
        };
        Ok("told".to_owned())
    }

    async fn answer(&self, said: &Said<'_>, command: &Command, cause: Cause) -> Handled {
        let (stage, hash, text) = if command.name == "approve" {
            match Approve::parse(&command.args) {
                Ok(approve) => (approve.stage, approve.hash, String::new()),
                Err(error) => {
                    return self
                        .reply(said, &cause, messages::not_understood("approve", &error.to_string()))
                        .await;
                }
            }
        } else {
            (None, None, command.args.clone())
        };
        let answer = Answer {
            cause: cause.clone(),
            verb: command.name.to_owned(),
            stage: stage.clone(),
            hash,
            text,
            by: said.event.sender.clone(),
            role: said.role,
            at: said.event.created_at,
            url: Some(said.event.url.clone()),
            commit: None,
        };
        let signalled =
            self.engine.signal(Signal { repo: said.at.repo.id, issue: said.at.issue, answer }).await?;
        let body = match &signalled {
            Signalled::Taken(run) => return Ok(format!("`/{}` taken by {run}", command.name)),
            Signalled::Duplicate => return Ok("heard before".to_owned()),
            Signalled::NoRun => messages::runs(&[]),
            Signalled::NoGate(runs)
                if runs.iter().any(|run| run.opening)
                    && self.clock.now().since(said.taken.received_at) < LAG =>
            {
                return Err(Trouble::Opening);
            }
            Signalled::NoGate(runs) => match runs.first() {
                Some(RunView { gate: Some(gate), .. }) => {
                    messages::no_such_verb(command.name, &self.usages(gate))
                }
                Some(run) => messages::no_gate(run.id, &run.step_title, None),
                None => messages::runs(&[]),
            },
            Signalled::WrongStage(gates) => {
                messages::wrong_stage(stage.as_deref().unwrap_or_default(), &lines(gates))
            }
            Signalled::Several(gates) => messages::several(&lines(gates)),
            Signalled::Stale(gate) => messages::stale(&approve_line(gate)),
            Signalled::TooSoon(gate) => messages::too_soon(&approve_line(gate)),
            Signalled::NotAllowed { needs, .. } => {
                said.repo.react_comment(said.event.comment, Reaction::ThumbsDown).await?;
                return Ok(format!("refused: `/{}` needs {needs} here", command.name));
            }
        };
        self.reply(said, &cause, body).await
    }

    /// How to write what a gate takes.
    fn usages(&self, gate: &GateView) -> Vec<&'static str> {
        let rows = gate.verbs.iter().filter_map(|(verb, _)| self.router.row(verb));
        rows.map(|row| row.usage).collect()
    }

    /// A word we do not know is corrected only where a gate of ours is open or we were addressed by name.
    async fn correct(&self, said: &Said<'_>, mistake: &Mistake, cause: Cause) -> Handled {
        let open = said.live.iter().any(|run| run.gate.is_some());
        match mistake {
            Mistake::NeedsText { name, .. } if open => {
                self.reply(said, &cause, messages::empty_args(name)).await
            }
            Mistake::Unknown { word, did_you_mean, addressed, .. } if *addressed || open => {
                self.reply(said, &cause, messages::unknown_command(word, *did_you_mean)).await
            }
            _ => Ok("a word of somebody else's".to_owned()),
        }
    }

    async fn reply(&self, said: &Said<'_>, cause: &Cause, body: Body) -> Handled {
        said.repo
            .ensure_comment(said.event.issue, &reply_marker(cause), &body, said.taken.attempts > 1)
            .await?;
        Ok("answered".to_owned())
    }
}

/// Marks the comment that `/help` and `/status` are answered in.
const ANSWERS: &str = "answers";

/// The line a person pastes.
fn approve_line(gate: &GateView) -> ApproveLine {
    ApproveLine { stage: gate.stage.clone(), subject: gate.subject }
}

fn lines(gates: &[GateView]) -> Vec<ApproveLine> {
    gates.iter().map(approve_line).collect()
}

fn line(run: &RunView) -> messages::RunLine {
    messages::RunLine {
        run: run.id,
        workflow: run.workflow.clone(),
        status: run.status.as_str(),
        step: format!("{} {}", run.step_id, run.step_title),
        why: run.why.clone(),
    }
}
