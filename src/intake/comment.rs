//! Handles commands in comments: parses them, checks permissions, executes them and replies.

use super::{
    DeliveryNote, DeliveryResult, Intake, IntakeError,
    answer::{CommandReply, approve_line, has_moved_on, tolerate_refusal, unlocked_thread},
    cause,
    events::{DUPLICATE_NOTE, IssueRef},
};
use crate::{
    commands::{self, ApproveArguments, CommandKind, CommandMistake, CommandSpec, CommentCommand, ROUTE},
    documents::hidden_text::visible_text,
    engine::{
        AllowedResponders, CancelRunsRequest, GateAnswer, GateRow, RetryDecision, RetryRunRequest, RunFilter,
        RunTrigger, RunView, RunViewStatus,
    },
    github::{
        GitHubApiError, GitHubRepo, OutboundBody, ReactionTarget, event::CommentEvent, none_if_refused,
    },
    messages::{self, ConflictingRunState, HelpRow},
    publication::gate_marker,
    store::{ActivePause, ClaimedDelivery, Spending},
    types::{Actor, Cause, IssueNo, RepoId, Role, RunId, Timestamp, Verb},
};

/// Maximum number of commands executed per comment. Nobody needs more at once.
const COMMANDS_PER_COMMENT: usize = 5;

/// Context needed to execute the commands of one comment.
pub(super) struct CommentContext<'a> {
    taken: &'a ClaimedDelivery,
    cause: Cause,
    pub(super) event: &'a CommentEvent,
    pub(super) at: IssueRef<'a>,
    repo: GitHubRepo,
    /// Current role of the sender in this repository, just read from GitHub.
    pub(super) role: Role,
    /// Live runs on this issue.
    pub(super) live: Vec<RunView>,
    /// All runs on the issue if the comment arrived late, otherwise empty. A later run may have made a start command in
    /// the comment obsolete.
    earlier_runs: Vec<RunView>,
    /// The newest run, if it has ended. Looked up only if a command could refer to it: a command for which
    /// [`may_mean_ended_run`] is true, or a pasted approval line.
    pub(super) ended: Option<RunView>,
}

impl CommentContext<'_> {
    /// Returns the comment that gets the 👀 reaction.
    fn reaction_target(&self) -> ReactionTarget {
        ReactionTarget::Comment(self.event.comment)
    }

    /// Returns the trigger for a run that this comment asks to start.
    pub(super) fn trigger(&self, command: &str, args: &str, cause: Cause) -> RunTrigger {
        RunTrigger {
            command: command.to_owned(),
            args: args.to_owned(),
            repo: self.at.repo.id,
            installation: self.at.installation,
            issue: self.at.issue,
            actor: self.event.sender.clone(),
            role: self.role,
            cause,
            at: self.event.created_at,
            comment: Some(self.event.comment),
            request: None,
        }
    }

    /// Whether a run of this workflow with another cause was active on the issue after the comment was written. False
    /// if a run with this cause exists.
    fn is_overtaken(&self, workflow: &str, cause: &Cause) -> bool {
        let runs = || self.earlier_runs.iter().filter(|run| run.workflow == workflow);
        let since = |run: &RunView| run.started_at.max(run.updated_at) >= self.event.created_at;
        runs().all(|run| run.trigger.cause != *cause) && runs().any(since)
    }
}

impl Intake {
    pub(crate) async fn handle_comment(&self, taken: &ClaimedDelivery, e: &CommentEvent) -> DeliveryResult {
        if e.sender.bot || e.via_app {
            return Ok(DeliveryNote::Nothing("bots' comments are ignored".into()));
        }
        if e.author.id != e.sender.id {
            return Ok(DeliveryNote::Nothing("the sender is not the author".into()));
        }
        let bot = self.bot().await?;
        if e.sender.id == bot.id || e.sender.login == bot.login {
            return Ok(DeliveryNote::Nothing("our own comments are ignored".into()));
        }
        let slug = bot.login.strip_suffix("[bot]");
        let found = commands::parse(self.router.rows(), slug, &e.body);
        if found.is_empty() {
            return self.handle_plain_comment(taken, e).await;
        }
        let Some(said) = self.load_comment_context(taken, e, &found).await? else {
            return Ok(DeliveryNote::Nothing("no active run here".into()));
        };
        if !self.store.inbox().claim_cause(&taken.id, &said.cause).await? {
            return Ok(DeliveryNote::Nothing(DUPLICATE_NOTE.into()));
        }
        let above = self.length_above_quote(&said, &found).await?;
        // A command above the quote may quote us on purpose; it keeps all of its text.
        let lines_above = e.body[..above].lines().count();
        if found.iter().flatten().any(|command| command.line > lines_above) {
            let kept = commands::parse(self.router.rows(), slug, &e.body[..above]);
            let dropped =
                found.iter().flatten().find(|command| !kept.iter().flatten().any(|c| c.spec == command.spec));
            return match dropped.filter(|_| kept.is_empty() && said.role >= Role::Triage) {
                Some(command) => {
                    let body = self.email_reply(&said, command.spec.name).await?;
                    self.post_reply(taken, &said.cause, &said.repo, (e.issue, said.at.issue), &[body])
                        .await?;
                    Ok(DeliveryNote::Done("commands below quoted text do not count".to_owned()))
                }
                None => self.handle_commands(&said, &kept).await,
            };
        }
        self.handle_commands(&said, &found).await
    }

    /// Tells a person who may send a waiting document back how to do that, once per pull request.
    async fn handle_plain_comment(&self, taken: &ClaimedDelivery, e: &CommentEvent) -> DeliveryResult {
        let nothing = || Ok(DeliveryNote::Nothing("no command in the comment".into()));
        let filter = RunFilter { repo: Some(e.repo.id), issue: None, live_only: true };
        let mut live = if e.is_pull { self.engine.list(filter).await? } else { Vec::new() };
        let takes_revise = |gate: &GateRow| gate.spec.verbs.iter().any(|(verb, _)| *verb == Verb::Revise);
        live.retain(|run| run.gate.as_ref().is_some_and(takes_revise));
        if live.is_empty() {
            return nothing();
        }
        let here = IssueRef { repo: &e.repo, installation: e.installation, issue: e.issue };
        let Some(issue) = self.issue_of_pull(&here).await? else { return nothing() };
        let Some(run) = live.iter().find(|run| run.issue == issue) else { return nothing() };
        let (repo, cause) = (self.repo(&here), cause::plain_comment(e.repo.id, e.issue, &e.sender));
        if repo.permission(&e.sender).await? < Role::Write
            || !self.store.inbox().claim_cause(&taken.id, &cause).await?
        {
            return nothing();
        }
        self.acknowledge(taken, &repo, ReactionTarget::Comment(e.comment)).await;
        let body = messages::plain_comment_reply(run.has_watch_step);
        self.post_reply(taken, &cause, &repo, (e.issue, issue), &[body]).await?;
        Ok(DeliveryNote::Done("told what to type".to_owned()))
    }

    /// Returns the length of the comment's text above the part that quotes our comments. Returns the whole length if
    /// none of the commands can come from a quote.
    async fn length_above_quote(
        &self,
        said: &CommentContext<'_>,
        found: &[Result<CommentCommand, CommandMistake>],
    ) -> Result<usize, IntakeError> {
        let e = said.event;
        let first = found.iter().flatten().map(|command| command.line).min();
        let before = |line: usize| e.body.lines().take(line - 1).any(|line| !line.trim().is_empty());
        let several = found.iter().flatten().count() > 1;
        if !first.is_some_and(|line| several || before(line)) {
            return Ok(e.body.len());
        }
        let ours = said.repo.our_comment_texts(e.issue, e.comment).await?;
        Ok(commands::find_quoted_text(&e.body, ours.iter().map(String::as_str)).unwrap_or(e.body.len()))
    }

    async fn email_reply(&self, said: &CommentContext<'_>, verb: &str) -> Result<OutboundBody, IntakeError> {
        let gate = said.live.iter().find(|run| run.gate.is_some());
        let comment = match gate {
            Some(run) => {
                let marker = gate_marker(run.id, run.visit);
                said.repo.read_comment(said.at.issue, &marker).await?
            }
            None => None,
        };
        Ok(messages::email_command_reply(verb, comment.as_ref().map(|(comment, _)| comment.url.as_str())))
    }

    /// Executes the permitted commands in order, then posts all replies as one comment.
    async fn handle_commands(
        &self,
        said: &CommentContext<'_>,
        found: &[Result<CommentCommand, CommandMistake>],
    ) -> DeliveryResult {
        let (mut words, mut shown, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut obeyed = 0;
        for (index, command) in found.iter().enumerate() {
            let reply = match command {
                Ok(_) if obeyed == COMMANDS_PER_COMMENT => {
                    notes.push(format!("ignored the commands after the first {obeyed}"));
                    break;
                }
                Ok(command) => {
                    obeyed += 1;
                    self.execute_command(said, command, cause::nth(&said.cause, index as u64)).await?
                }
                Err(mistake) => self.correct_mistake(said, mistake),
            };
            let (note, to, body) = match reply {
                CommandReply::Note(note) => {
                    notes.push(note);
                    continue;
                }
                CommandReply::Refusal(why) => {
                    self.show_refusal(said.taken, &said.repo, said.reaction_target(), &said.event.sender)
                        .await;
                    notes.push(why);
                    break;
                }
                CommandReply::Comment(body) => ("answered", &mut words, body),
                CommandReply::SharedComment(body) => ("told", &mut shown, body),
            };
            notes.push(note.to_owned());
            if to.len() < COMMANDS_PER_COMMENT && !to.contains(&body) {
                to.push(body);
            }
        }
        tolerate_refusal(self.update_answers_comment(said, &shown).await)?;
        self.post_reply(said.taken, &said.cause, &said.repo, (said.event.issue, said.at.issue), &words)
            .await?;
        notes.dedup();
        Ok(DeliveryNote::Done(notes.join("; ")))
    }

    /// Loads the issue, its live runs and the sender's role. Returns `None` if no command in the comment is addressed
    /// to us and no run on the issue can accept one.
    async fn load_comment_context<'a>(
        &self,
        taken: &'a ClaimedDelivery,
        e: &'a CommentEvent,
        found: &[Result<CommentCommand, CommandMistake>],
    ) -> Result<Option<CommentContext<'a>>, IntakeError> {
        let here = IssueRef { repo: &e.repo, installation: e.installation, issue: e.issue };
        let repo = self.repo(&here);
        let issue = if e.is_pull {
            let Some(issue) = self.issue_of_pull(&here).await? else { return Ok(None) };
            issue
        } else {
            e.issue
        };
        let at = IssueRef { repo: &e.repo, installation: e.installation, issue };
        let live = self
            .engine
            .list(RunFilter { repo: Some(e.repo.id), issue: Some(issue), live_only: true })
            .await?;
        let says =
            |c: &CommentCommand| c.spec.kind.verb().is_some_and(may_mean_ended_run) || is_pasted_line(c);
        let ended = match found.iter().flatten().any(says) {
            true => self.newest_ended_run((e.repo.id, issue), e.created_at).await?,
            false => None,
        };
        let any = found.iter().any(|c| match c {
            Ok(command) => {
                command.addressed
                    || !live.is_empty()
                    || command.spec.kind == CommandKind::Start
                    || command.spec.kind.verb().is_some_and(|verb| applies_to_ended_run(verb, ended.as_ref()))
                    || (ended.is_some() && is_pasted_line(command))
            }
            Err(CommandMistake::Unknown { addressed: true, .. }) => true,
            Err(_) => live.iter().any(|run| run.gate.is_some()),
        });
        if !any {
            return Ok(None);
        }
        let role = repo.permission(&e.sender).await?;
        let cause = cause::comment(e.comment);
        let known = if taken.swept {
            self.engine
                .list(RunFilter { repo: Some(e.repo.id), issue: Some(issue), live_only: false })
                .await?
        } else {
            Vec::new()
        };
        Ok(Some(CommentContext { taken, cause, event: e, at, repo, role, live, earlier_runs: known, ended }))
    }

    /// Returns the newest run of the issue if it has ended or cannot be read. Returns `None` if that run started after
    /// the comment was written, which happens if the comment arrived late.
    pub(super) async fn newest_ended_run(
        &self,
        (repo, issue): (RepoId, IssueNo),
        at: Timestamp,
    ) -> Result<Option<RunView>, IntakeError> {
        let filter = RunFilter { repo: Some(repo), issue: Some(issue), live_only: false };
        let runs = self.engine.list(filter).await?.into_iter();
        // A finished routing run is not work that can be continued.
        let newest = runs
            .filter(|run| run.workflow != ROUTE || run.status != RunViewStatus::Done)
            .max_by_key(|run| run.id);
        let over = |run: &RunView| !run.status.is_live() || run.status == RunViewStatus::Parked;
        Ok(newest.filter(|run| over(run) && run.started_at <= at))
    }

    async fn retry_halted_run(
        &self,
        said: &CommentContext<'_>,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let halted = said.ended.as_ref().filter(|run| applies_to_ended_run(Verb::Retry, Some(run)));
        let Some(RunView { id: run, workflow, .. }) = halted else {
            return Ok(CommandReply::Comment(messages::nothing_to_retry_reply()));
        };
        let halted = (said.at.issue, *run, workflow.as_str());
        Ok(match self.resume_halted_run(&said.repo, halted, cause, &said.event.sender).await? {
            RetryDecision::Resumed | RetryDecision::Duplicate => {
                CommandReply::Note(format!("{run} is retried"))
            }
            RetryDecision::NoRun | RetryDecision::NotFailed(_) => {
                CommandReply::Comment(messages::nothing_to_retry_reply())
            }
            RetryDecision::OtherRunLive(other) => {
                CommandReply::Comment(messages::already_running_reply(other.id, &other.workflow, None))
            }
        })
    }

    /// Retries a halted run.
    pub(super) async fn resume_halted_run(
        &self,
        repo: &GitHubRepo,
        (issue, run, workflow): (IssueNo, RunId, &str),
        cause: Cause,
        by: &Actor,
    ) -> Result<RetryDecision<RunView>, IntakeError> {
        let retried = self.engine.retry(RetryRunRequest { run, cause, by: by.login.clone() }).await?;
        // A routing run is short and sets no labels that must come off.
        if workflow != ROUTE && matches!(retried, RetryDecision::Resumed | RetryDecision::Duplicate) {
            // The halt set this label; the run's state is from before the halt and does not record it.
            none_if_refused(repo.remove_label(issue, messages::STOPPED.name).await)?;
        }
        Ok(retried)
    }

    /// Reports the cost of the work on this issue. Refuses in a public repository unless the settings allow the report
    /// there.
    async fn cost_reply(&self, said: &CommentContext<'_>) -> Result<CommandReply, IntakeError> {
        if !self.shows_cost_on_public && !said.repo.info().await?.private {
            return Ok(CommandReply::SharedComment(messages::costs_hidden_reply()));
        }
        let rows = match self.store.existing_repository_database(said.at.repo.id).await? {
            Some(db) => db.costs_of_issue(said.at.issue).await?,
            None => Vec::new(),
        };
        let by_run = Spending::grouped_by(&rows, |row| format!("{} {}", row.workflow, row.run));
        let by_model =
            Spending::grouped_by(&rows, |row| row.call.served.as_ref().unwrap_or(&row.call.asked).clone());
        let all = Spending::from_calls(rows.iter().map(|row| &row.call));
        Ok(CommandReply::SharedComment(messages::costs_table(&by_run, &by_model, &all)))
    }

    /// Executes a command if it is permitted, and only then reacts with 👀. So a command that is postponed until a gate
    /// opens gets no 👀 yet, and no command has to wait until the reaction leaves the write queue.
    async fn execute_command(
        &self,
        said: &CommentContext<'_>,
        command: &CommentCommand,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let row = &command.spec;
        let again = row.kind.verb().is_some_and(|verb| applies_to_ended_run(verb, said.ended.as_ref()))
            || (said.ended.is_some() && is_pasted_line(command));
        if !command.addressed && said.live.is_empty() && row.kind != CommandKind::Start && !again {
            return Ok(CommandReply::Note(format!("`/{}` is not meant for us here", row.name)));
        }
        let needs = needed_role(row, &said.live);
        let gates = said.live.iter().filter_map(|run| run.gate.as_ref());
        let named = |(verb, who): &(Verb, AllowedResponders)| {
            row.kind == CommandKind::Common(*verb) && who.names_person(said.event.sender.id)
        };
        if said.role < needs && !gates.flat_map(|gate| &gate.spec.verbs).any(named) {
            return Ok(CommandReply::Refusal(format!("refused: {} may not {}", said.role, row.name)));
        }
        if row.role <= Role::Read && !self.may_ask(said.taken, &said.event.sender) {
            return Ok(CommandReply::Note(format!(
                "{} asked too often in a minute",
                said.event.sender.login
            )));
        }
        let reply = self.dispatch_command(said, command, cause).await?;
        if !matches!(reply, CommandReply::Refusal(_)) {
            self.acknowledge(said.taken, &said.repo, said.reaction_target()).await;
        }
        Ok(reply)
    }

    async fn dispatch_command(
        &self,
        said: &CommentContext<'_>,
        command: &CommentCommand,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let row = &command.spec;
        let steers = said.taken.swept && row.kind.verb().is_some_and(|verb| !answers_gate(verb));
        // While a gate is about to open this is unknown; `/stop` does not wait for it.
        if steers && has_moved_on(&said.live, said.event.created_at).is_ok_and(|moved_on| moved_on) {
            return Ok(CommandReply::Comment(messages::late_command_reply(row.name)));
        }
        if let Some((workflow, _)) = self.router.workflow_of_command(row.name) {
            if said.is_overtaken(workflow, &cause) {
                return Ok(CommandReply::Comment(messages::late_command_reply(row.name)));
            }
            if row.name == ROUTE
                && let Some(reply) = self.refuse_request(said, &command.args, &cause)
            {
                return Ok(reply);
            }
            return self.start_workflow(workflow, said.trigger(row.name, &command.args, cause)).await;
        }
        let CommandKind::Common(verb) = row.kind else {
            return Ok(CommandReply::Note("not our command".to_owned()));
        };
        match verb {
            Verb::Stop => {
                let cancel = CancelRunsRequest {
                    repo: said.at.repo.id,
                    issue: said.at.issue,
                    run: None,
                    cause,
                    by: said.event.sender.clone(),
                    why: "stop command".to_owned(),
                };
                let runs = self.engine.cancel(cancel).await?.len();
                Ok(CommandReply::Note(format!("stopping {runs} runs")))
            }
            Verb::Help => Ok(CommandReply::SharedComment(messages::help_table(
                &self.help_rows(),
                said.at.repo.user_owned,
            ))),
            Verb::Status => {
                let runs = self
                    .engine
                    .list(RunFilter {
                        repo: Some(said.at.repo.id),
                        issue: Some(said.at.issue),
                        live_only: false,
                    })
                    .await?;
                let pauses = self.engine.pauses().await?;
                let lines: Vec<_> = runs.iter().map(|run| run_status_row(run, &pauses)).collect();
                Ok(CommandReply::SharedComment(messages::runs_table(&lines)))
            }
            Verb::Cost => self.cost_reply(said).await,
            Verb::Retry
                if !applies_to_ended_run(verb, said.ended.as_ref()) && said.live.iter().any(takes_retry) =>
            {
                self.answer_gate(said, (verb, command), cause).await
            }
            Verb::Retry => self.retry_halted_run(said, cause).await,
            Verb::Restart => self.restart_workflow(said, command, cause).await,
            Verb::Dismiss | Verb::MustFix => self.settle_finding(said, (verb, command), cause).await,
            Verb::Approve | Verb::Revise | Verb::Override | Verb::Answer | Verb::Budget => {
                self.answer_gate(said, (verb, command), cause).await
            }
        }
    }

    /// Returns the reply to a free-text request if no model is called for the request; otherwise `None`.
    fn refuse_request(
        &self,
        said: &CommentContext<'_>,
        request: &str,
        cause: &Cause,
    ) -> Option<CommandReply> {
        // An invisible request counts as none.
        if !self.routes || visible_text(request).text.trim().is_empty() {
            return Some(CommandReply::SharedComment(messages::help_table(
                &self.help_rows(),
                said.at.repo.user_owned,
            )));
        }
        // Ignores a run started for this same comment before we could record it.
        let other = |run: &&RunView| ![cause, &cause.follow_up()].contains(&&run.trigger.cause);
        let busy = said.live.iter().rfind(other).filter(|_| said.live.iter().all(|run| other(&run)))?;
        let stands =
            if busy.gate.is_some() { ConflictingRunState::Asking } else { ConflictingRunState::AtWork };
        Some(CommandReply::Comment(messages::route_busy_reply(&busy.workflow, stands)))
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

    /// Updates the thread's shared comment for `/help`, `/status` and `/cost`. The comment keeps the latest answer to
    /// each of these commands.
    async fn update_answers_comment(
        &self,
        said: &CommentContext<'_>,
        shown: &[OutboundBody],
    ) -> Result<(), GitHubApiError> {
        if shown.is_empty() {
            return Ok(());
        }
        let repo = said.repo.clone().with_reply_priority();
        let place = unlocked_thread(&repo, said.event.issue, said.at.issue).await?;
        let place = repo.unlocked_conversation(place).await?.unwrap_or(place);
        if let Some((comment, text)) = repo.read_comment(place, ANSWERS).await? {
            let body = messages::merge_answers(shown, &text);
            if body.as_str() == text {
                return Ok(());
            }
            match repo.edit_comment(comment.id, ANSWERS, &body).await {
                // Someone has just deleted the comment.
                Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => {}
                edited => return edited.map(drop),
            }
        }
        repo.ensure_comment(place, ANSWERS, &messages::merge_answers(shown, ""), said.taken.taken_before)
            .await
            .map(drop)
    }

    async fn answer_gate(
        &self,
        said: &CommentContext<'_>,
        (verb, command): (Verb, &CommentCommand),
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        // A quoted mail below an answer may contain the line to paste.
        if verb.accepts()
            && let Some(node) = &said.event.node
            // Without an open or opening gate no approval can count.
            && said.live.iter().any(|run| run.shows_unopened_gate || run.gate.is_some())
        {
            match said.repo.is_by_email(node).await {
                Ok(true) => return Ok(CommandReply::Comment(self.email_reply(said, verb.as_str()).await?)),
                Ok(false) => {}
                // The answer would wait for the gate anyway, and this way it does not hold up `/stop`.
                Err(_) if said.live.iter().any(|run| run.shows_unopened_gate) => {
                    return Err(IntakeError::Opening);
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        let (approve, text) = if verb == Verb::Approve {
            match ApproveArguments::parse(&command.args) {
                Ok(approve) => (approve, String::new()),
                Err(error) => {
                    return Ok(CommandReply::Comment(messages::bad_arguments_reply(
                        verb.as_str(),
                        &error.to_string(),
                    )));
                }
            }
        } else {
            let error = match verb {
                Verb::Budget => commands::parse_raise(&command.args).err().map(|error| error.to_string()),
                Verb::Answer => commands::parse_answers(&command.args).err().map(|error| error.to_string()),
                _ => None,
            };
            if let Some(error) = error {
                return Ok(CommandReply::Comment(messages::bad_arguments_reply(verb.as_str(), &error)));
            }
            let way = commands::parse_option(&command.args).filter(|_| verb == Verb::Override);
            let mut fields =
                ApproveArguments { option: way.map(str::to_owned), ..ApproveArguments::default() };
            let mut text = command.args.clone();
            // Any other hash-like word, such as a commit id, is part of the reason.
            if verb == Verb::Override
                && let Some((hash, reason)) = commands::split_hash(&text)
                && let Some(db) = self.store.existing_repository_database(said.at.repo.id).await?
                && db.has_gate_about(said.at.issue, &hash).await?
            {
                (fields.hash, text) = (Some(hash), reason);
            }
            if let Some((stage, rest)) = split_stage(said, verb, command) {
                (fields.stage, text) = (Some(stage), rest);
            }
            if command.spec.takes_text() && text.is_empty() {
                return Ok(CommandReply::Comment(messages::missing_text_reply(command.spec.usage)));
            }
            (fields, text)
        };
        let answer = GateAnswer {
            cause,
            verb,
            stage: approve.stage,
            hash: approve.hash,
            way: approve.option,
            text,
            by: said.event.sender.clone(),
            role: said.role,
            at: said.event.created_at,
            url: Some(said.event.url.clone()),
            commit: None,
            review: None,
        };
        self.send_answer(said.taken, (said.at.repo.id, said.at.issue), answer, said.ended.as_ref()).await
    }

    /// Returns the reply to a mistyped command. The reply contains a correction only if two conditions are met: a gate
    /// is open or the bot was addressed by name, and the person may use the correct command.
    fn correct_mistake(&self, said: &CommentContext<'_>, mistake: &CommandMistake) -> CommandReply {
        let open = said.live.iter().any(|run| run.gate.is_some());
        let (least, body) = match mistake {
            CommandMistake::NeedsText { spec, .. } if open => {
                (spec.role, messages::missing_text_reply(spec.usage))
            }
            CommandMistake::Unknown { word, did_you_mean, addressed, .. } if *addressed || open => {
                (Role::Triage, messages::unknown_command_reply(word, *did_you_mean))
            }
            CommandMistake::NotPlain { spec, args, misspelt } if open => {
                let least = needed_role(spec, &said.live);
                let takes = |(verb, _): &&(Verb, AllowedResponders)| spec.kind == CommandKind::Common(*verb);
                let asks = |gate: &&GateRow| gate.spec.verbs.iter().any(|row| takes(&row));
                let gates: Vec<_> =
                    said.live.iter().filter_map(|run| run.gate.as_ref()).filter(asks).collect();
                let mut who = gates.iter().flat_map(|gate| &gate.spec.verbs).filter(takes);
                if said.role < least.max(Role::Triage)
                    && !who.any(|(_, who)| who.names_person(said.event.sender.id))
                {
                    let why = format!("refused: {} may not {}", said.role, spec.name);
                    return if *misspelt { CommandReply::Refusal(why) } else { CommandReply::Note(why) };
                }
                return CommandReply::Comment(match spec.kind.verb() {
                    Some(Verb::Approve) if gates.is_empty() => self.no_gate_reply(Verb::Approve, &said.live),
                    Some(Verb::Approve) => messages::not_plain_text_reply(
                        "",
                        &gates
                            .into_iter()
                            .map(|gate| approve_line(gate, Verb::Approve, ""))
                            .collect::<Vec<_>>(),
                    ),
                    _ => messages::not_plain_text_reply(format!("/{} {args}", spec.name).trim_end(), &[]),
                });
            }
            _ => return CommandReply::Note("not our command".to_owned()),
        };
        if said.role < least.max(Role::Triage) {
            return CommandReply::Refusal(format!("refused: {} gets no correction", said.role));
        }
        CommandReply::Comment(body)
    }
}

/// Whether `/retry` is a valid answer to the run's open gate. Also true while a gate of the run is about to open.
fn takes_retry(run: &RunView) -> bool {
    run.shows_unopened_gate
        || run.gate.as_ref().is_some_and(|gate| gate.spec.verbs.iter().any(|(verb, _)| *verb == Verb::Retry))
}

/// Splits the arguments into the stage that they name and the text after it. Applies only to `/retry`, and to `/revise`
/// if several gates are open. Returns `None` in all other cases, and if the named stage has no open gate.
fn split_stage(said: &CommentContext<'_>, verb: Verb, command: &CommentCommand) -> Option<(String, String)> {
    let gates: Vec<_> = said.live.iter().filter_map(|run| run.gate.as_ref()).collect();
    if verb != Verb::Retry && (verb != Verb::Revise || gates.len() < 2) {
        return None;
    }
    let (stage, text) = command.args.split_once(char::is_whitespace).unwrap_or((&command.args, ""));
    let named = gates.iter().any(|gate| gate.spec.stage.eq_ignore_ascii_case(stage));
    named.then(|| (stage.to_owned(), text.trim().to_owned()))
}

/// Returns the role that a command requires. Without a live run, it is at least Triage; otherwise anybody could make us
/// write on any issue.
fn needed_role(row: &CommandSpec, live: &[RunView]) -> Role {
    if live.is_empty() { row.role.max(Role::Triage) } else { row.role }
}

/// Whether the command is a pasted approval line with a hash. No other bot uses such a line, so we reply even if no
/// gate is open.
fn is_pasted_line(command: &CommentCommand) -> bool {
    command.spec.kind == CommandKind::Common(Verb::Approve)
        && ApproveArguments::parse(&command.args).is_ok_and(|approve| approve.hash.is_some())
}

/// Whether a command with this verb can refer to a run that has ended.
fn may_mean_ended_run(verb: Verb) -> bool {
    matches!(verb, Verb::Retry | Verb::Restart | Verb::Revise | Verb::Status | Verb::Cost)
}

/// Whether the verb is an answer to a gate and has no other use.
fn answers_gate(verb: Verb) -> bool {
    matches!(verb, Verb::Approve | Verb::Revise | Verb::Override | Verb::Answer | Verb::Budget)
}

pub(super) fn applies_to_ended_run(verb: Verb, ended: Option<&RunView>) -> bool {
    ended.is_some_and(|run| match verb {
        Verb::Retry => matches!(run.status, RunViewStatus::Failed | RunViewStatus::Parked),
        _ => may_mean_ended_run(verb),
    })
}

/// Marker of the shared comment with the answers to `/help`, `/status` and `/cost`.
const ANSWERS: &str = "answers";

fn run_status_row(run: &RunView, pauses: &[ActivePause]) -> messages::RunStatusRow {
    let paused = run.status.is_live() && ActivePause::for_repository(pauses, run.id.repo).is_some();
    messages::RunStatusRow {
        run: run.id,
        workflow: run.workflow.clone(),
        status: if paused { "paused" } else { run.status.as_str() },
        step: if run.step_title.is_empty() { run.step_id.clone() } else { run.step_title.clone() },
        why: run.why.clone(),
    }
}
