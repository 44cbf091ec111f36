//! Commands in comments: read, permitted, carried out, answered.

use super::{
    DeliveryNote, DeliveryResult, Intake, IntakeError,
    answer::{CommandReply, line_of, moved_on, told, unlocked},
    cause,
    events::{IssueRef, TOLD},
};
use crate::{
    commands::{
        self, ApproveArguments, CommandKind, CommandMistake, CommandSpec, CommentCommand, DISMISS, MUST_FIX,
        ROUTE,
    },
    documents::hidden_text::visible,
    engine::{
        APPROVE, AllowedResponders, CancelRunsRequest, GateAnswer, GateRow, OVERRIDE, RETRY, REVISE,
        RetryDecision, RetryRunRequest, RunFilter, RunTrigger, RunView, RunViewStatus,
    },
    github::{GitHubApiError, GitHubRepo, OutboundBody, ReactionTarget, decorated, event::CommentEvent},
    messages::{self, ConflictingRunState, HelpRow},
    publication::gate_marker,
    store::{ActivePause, ClaimedDelivery, Spending},
    types::{Actor, Cause, IssueNo, RepoId, Role, RunId, Timestamp},
};

/// Commands of one comment that are obeyed; nobody means more at once.
const COMMANDS_PER_COMMENT: usize = 5;

/// Everything one command needs to be answered.
pub(super) struct CommentContext<'a> {
    taken: &'a ClaimedDelivery,
    cause: Cause,
    pub(super) event: &'a CommentEvent,
    pub(super) at: IssueRef<'a>,
    repo: GitHubRepo,
    /// What the sender may do here, asked of GitHub now.
    pub(super) role: Role,
    /// Runs of ours that are alive on this issue.
    pub(super) live: Vec<RunView>,
    /// All runs there were on it when we were told late: one of them may have overtaken a start.
    known: Vec<RunView>,
    /// The newest run, where it goes on no more: `/retry`, [`MEANS_ENDED`] and a pasted line may mean it, and it is looked
    /// for only when one of them was said.
    pub(super) ended: Option<RunView>,
}

impl CommentContext<'_> {
    /// Where it is shown that this was heard.
    fn on(&self) -> ReactionTarget {
        ReactionTarget::Comment(self.event.comment)
    }

    /// A start that this comment asks for.
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

    /// Has this workflow been at work here since the comment was written, for another cause?
    fn overtaken(&self, workflow: &str, cause: &Cause) -> bool {
        let runs = || self.known.iter().filter(|run| run.workflow == workflow);
        let since = |run: &RunView| run.started_at.max(run.updated_at) >= self.event.created_at;
        runs().all(|run| run.trigger.cause != *cause) && runs().any(since)
    }
}

impl Intake {
    pub(crate) async fn comment(&self, taken: &ClaimedDelivery, e: &CommentEvent) -> DeliveryResult {
        if e.sender.bot || e.via_app {
            return Ok(DeliveryNote::Nothing("a bot's comment never acts".into()));
        }
        if e.author.id != e.sender.id {
            return Ok(DeliveryNote::Nothing("the sender is not the author".into()));
        }
        let bot = self.bot().await?;
        if e.sender.id == bot.id || e.sender.login == bot.login {
            return Ok(DeliveryNote::Nothing("our own comment never acts".into()));
        }
        let slug = bot.login.strip_suffix("[bot]");
        let found = commands::parse(self.router.rows(), slug, &e.body);
        if found.is_empty() {
            return Ok(DeliveryNote::Nothing("no command in it".into()));
        }
        let Some(said) = self.listen(taken, e, &found).await? else {
            return Ok(DeliveryNote::Nothing("nothing of ours is alive here".into()));
        };
        if !self.store.inbox().owns(&taken.id, &said.cause).await? {
            return Ok(DeliveryNote::Nothing(TOLD.into()));
        }
        let above = self.above_what_is_repeated(&said, &found).await?;
        // A command above may quote us on purpose, and keeps all of its text then.
        let lines_above = e.body[..above].lines().count();
        if found.iter().flatten().any(|command| command.line > lines_above) {
            let kept = commands::parse(self.router.rows(), slug, &e.body[..above]);
            let verb =
                found.iter().flatten().find(|command| !kept.iter().flatten().any(|c| c.name == command.name));
            return match verb.filter(|_| kept.is_empty() && said.role >= Role::Triage) {
                Some(verb) => {
                    let body = self.not_by_email(&said, verb.name).await?;
                    self.say(taken, &said.cause, &said.repo, (e.issue, said.at.issue), &[body]).await?;
                    Ok(DeliveryNote::Done("commands below what was repeated do not count".to_owned()))
                }
                None => self.hear(&said, &kept).await,
            };
        }
        self.hear(&said, &found).await
    }

    /// Length of the comment above the part that repeats ours; the whole length if no command follows that part.
    async fn above_what_is_repeated(
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
        let ours = said.repo.our_texts(e.issue, e.comment).await?;
        Ok(commands::repeats(&e.body, ours.iter().map(String::as_str)).unwrap_or(e.body.len()))
    }

    async fn not_by_email(&self, said: &CommentContext<'_>, verb: &str) -> Result<OutboundBody, IntakeError> {
        let gate = said.live.iter().find(|run| run.gate.is_some());
        let comment = match gate {
            Some(run) => {
                let marker = gate_marker(run.id, run.visit);
                said.repo.read_comment(said.at.issue, &marker).await?
            }
            None => None,
        };
        Ok(messages::not_by_email(verb, comment.as_ref().map(|(comment, _)| comment.url.as_str())))
    }

    /// Obeys what it may, in order, and says what there is to say at the end, once.
    async fn hear(
        &self,
        said: &CommentContext<'_>,
        found: &[Result<CommentCommand, CommandMistake>],
    ) -> DeliveryResult {
        let (mut words, mut shown, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut obeyed = 0;
        for (index, command) in found.iter().enumerate() {
            let reply = match command {
                Ok(_) if obeyed == COMMANDS_PER_COMMENT => {
                    notes.push(format!("the rest is ignored: more than {obeyed} commands"));
                    break;
                }
                Ok(command) => {
                    obeyed += 1;
                    self.obey(said, command, cause::nth(&said.cause, index as u64)).await?
                }
                Err(mistake) => self.correct(said, mistake),
            };
            let (note, to, body) = match reply {
                CommandReply::Note(note) => {
                    notes.push(note);
                    continue;
                }
                CommandReply::No(why) => {
                    self.refuse(said.taken, &said.repo, said.on(), &said.event.sender).await;
                    notes.push(why);
                    break;
                }
                CommandReply::Words(body) => ("answered", &mut words, body),
                CommandReply::Shown(body) => ("told", &mut shown, body),
            };
            notes.push(note.to_owned());
            if to.len() < COMMANDS_PER_COMMENT && !to.contains(&body) {
                to.push(body);
            }
        }
        told(self.show(said, &shown).await)?;
        self.say(said.taken, &said.cause, &said.repo, (said.event.issue, said.at.issue), &words).await?;
        notes.dedup();
        Ok(DeliveryNote::Done(notes.join("; ")))
    }

    /// Which issue this is about, what lives there and what the sender may do; none when the bare words in
    /// it are not meant for us.
    async fn listen<'a>(
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
        let says = |c: &CommentCommand| c.name == RETRY || MEANS_ENDED.contains(&c.name) || pasted(c);
        let ended = match found.iter().flatten().any(says) {
            true => self.ended((e.repo.id, issue), e.created_at).await?,
            false => None,
        };
        let any = found.iter().any(|c| match c {
            Ok(command) => {
                command.addressed
                    || !live.is_empty()
                    || self.router.row(command.name).is_some_and(|row| row.kind == CommandKind::Starts)
                    || means(command.name, ended.as_ref())
                    || (ended.is_some() && pasted(command))
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
        Ok(Some(CommentContext { taken, cause, event: e, at, repo, role, live, known, ended }))
    }

    /// The newest run of the issue, if it ended or cannot be read. One that was begun only after the comment had been
    /// written, which came late, is not meant.
    pub(super) async fn ended(
        &self,
        (repo, issue): (RepoId, IssueNo),
        at: Timestamp,
    ) -> Result<Option<RunView>, IntakeError> {
        let filter = RunFilter { repo: Some(repo), issue: Some(issue), live_only: false };
        let runs = self.engine.list(filter).await?.into_iter();
        // What read a request to its end is no work that one goes on with.
        let newest = runs
            .filter(|run| run.workflow != ROUTE || run.status != RunViewStatus::Done)
            .max_by_key(|run| run.id);
        let over = |run: &RunView| !run.status.live() || run.status == RunViewStatus::Parked;
        Ok(newest.filter(|run| over(run) && run.started_at <= at))
    }

    async fn retry(&self, said: &CommentContext<'_>, cause: Cause) -> Result<CommandReply, IntakeError> {
        let halted = said.ended.as_ref().filter(|run| means(RETRY, Some(run)));
        let Some(RunView { id: run, workflow, .. }) = halted else {
            return Ok(CommandReply::Words(messages::nothing_to_retry()));
        };
        let halted = (said.at.issue, *run, workflow.as_str());
        Ok(match self.try_again(&said.repo, halted, cause, &said.event.sender).await? {
            RetryDecision::Going | RetryDecision::Duplicate => {
                CommandReply::Note(format!("{run} is tried again"))
            }
            RetryDecision::NoRun | RetryDecision::NotFailed(_) => {
                CommandReply::Words(messages::nothing_to_retry())
            }
            RetryDecision::Another(other) => {
                CommandReply::Words(messages::already_running(other.id, &other.workflow, None))
            }
        })
    }

    /// Lets a run that halted go on.
    pub(super) async fn try_again(
        &self,
        repo: &GitHubRepo,
        (issue, run, workflow): (IssueNo, RunId, &str),
        cause: Cause,
        by: &Actor,
    ) -> Result<RetryDecision<RunView>, IntakeError> {
        let retried = self.engine.retry(RetryRunRequest { run, cause, by: by.login.clone() }).await?;
        // A request is read in no time, and its run shows no labels that would be taken off again.
        if workflow != ROUTE && matches!(retried, RetryDecision::Going | RetryDecision::Duplicate) {
            // The halt put this label there; the run's state is that of before, and knows nothing of it.
            decorated(repo.remove_label(issue, messages::STOPPED.name).await)?;
        }
        Ok(retried)
    }

    /// What the work on this issue has cost, unless everybody would read it.
    async fn cost(&self, said: &CommentContext<'_>) -> Result<CommandReply, IntakeError> {
        if !self.shows_cost_on_public && !said.repo.info().await?.private {
            return Ok(CommandReply::Shown(messages::costs_not_shown()));
        }
        let rows = match self.store.repo_if_any(said.at.repo.id).await? {
            Some(db) => db.costs_of_issue(said.at.issue).await?,
            None => Vec::new(),
        };
        let by_run = Spending::by(&rows, |row| format!("{} {}", row.workflow, row.run));
        let by_model = Spending::by(&rows, |row| row.call.served.as_ref().unwrap_or(&row.call.asked).clone());
        let all = Spending::of(rows.iter().map(|row| &row.call));
        Ok(CommandReply::Shown(messages::costs(&by_run, &by_model, &all)))
    }

    /// Does what a command says if it may, and only then shows 👀: what is put off until a gate opens shows none, and
    /// nothing waits for a reaction's turn among the writes.
    async fn obey(
        &self,
        said: &CommentContext<'_>,
        command: &CommentCommand,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let Some(row) = self.router.row(command.name) else {
            return Ok(CommandReply::Note("not a word of ours".to_owned()));
        };
        let again = means(row.name, said.ended.as_ref()) || (said.ended.is_some() && pasted(command));
        if !command.addressed && said.live.is_empty() && row.kind != CommandKind::Starts && !again {
            return Ok(CommandReply::Note(format!("`/{}` is not meant for us here", row.name)));
        }
        let needs = needed(row, &said.live);
        let gates = said.live.iter().filter_map(|run| run.gate.as_ref());
        let named =
            |(verb, who): &(String, AllowedResponders)| verb == row.name && who.names(said.event.sender.id);
        if said.role < needs && !gates.flat_map(|gate| &gate.spec.verbs).any(named) {
            return Ok(CommandReply::No(format!("refused: {} may not {}", said.role, row.name)));
        }
        if row.role <= Role::Read && !self.may_ask(said.taken, &said.event.sender) {
            return Ok(CommandReply::Note(format!(
                "{} asked too often in a minute",
                said.event.sender.login
            )));
        }
        let reply = self.carry_out(said, command, row, cause).await?;
        if !matches!(reply, CommandReply::No(_)) {
            self.heard(said.taken, &said.repo, said.on()).await;
        }
        Ok(reply)
    }

    async fn carry_out(
        &self,
        said: &CommentContext<'_>,
        command: &CommentCommand,
        row: &CommandSpec,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        let steers = said.taken.swept && row.kind == CommandKind::Controls;
        // While a gate is about to open nobody knows, and `/stop` waits for nothing.
        if steers && moved_on(&said.live, said.event.created_at).is_ok_and(|moved_on| moved_on) {
            return Ok(CommandReply::Words(messages::came_late(row.name)));
        }
        if let Some((workflow, _)) = self.router.by_command(row.name) {
            if said.overtaken(workflow, &cause) {
                return Ok(CommandReply::Words(messages::came_late(row.name)));
            }
            if row.name == ROUTE
                && let Some(reply) = self.not_routed(said, &command.args, &cause)
            {
                return Ok(reply);
            }
            return self.start(workflow, said.trigger(row.name, &command.args, cause)).await;
        }
        match row.name {
            "stop" => {
                let cancel = CancelRunsRequest {
                    repo: said.at.repo.id,
                    issue: said.at.issue,
                    run: None,
                    cause,
                    by: said.event.sender.clone(),
                    why: "asked to by comment".to_owned(),
                };
                let runs = self.engine.cancel(cancel).await?.len();
                Ok(CommandReply::Note(format!("stopping {runs} runs")))
            }
            "help" => Ok(CommandReply::Shown(messages::help(&self.help_rows(), said.at.repo.user_owned))),
            "status" => {
                let runs = self
                    .engine
                    .list(RunFilter {
                        repo: Some(said.at.repo.id),
                        issue: Some(said.at.issue),
                        live_only: false,
                    })
                    .await?;
                let pauses = self.engine.pauses().await?;
                let lines: Vec<_> = runs.iter().map(|run| line(run, &pauses)).collect();
                Ok(CommandReply::Shown(messages::runs(&lines)))
            }
            "cost" => self.cost(said).await,
            RETRY if !means(RETRY, said.ended.as_ref()) && said.live.iter().any(takes_retry) => {
                self.answer(said, command, cause).await
            }
            RETRY => self.retry(said, cause).await,
            RESTART => self.restart(said, command, cause).await,
            DISMISS | MUST_FIX => self.settle(said, command, cause).await,
            _ => self.answer(said, command, cause).await,
        }
    }

    /// What is said to a request in free words for which no model is asked.
    fn not_routed(&self, said: &CommentContext<'_>, request: &str, cause: &Cause) -> Option<CommandReply> {
        // What people do not see of it is none.
        if !self.routes || visible(request).text.trim().is_empty() {
            return Some(CommandReply::Shown(messages::help(&self.help_rows(), said.at.repo.user_owned)));
        }
        // Of the one that was begun for the same comment, before we could write that down, nothing is said.
        let other = |run: &&RunView| ![cause, &cause.onward()].contains(&&run.trigger.cause);
        let busy = said.live.iter().rfind(other).filter(|_| said.live.iter().all(|run| other(&run)))?;
        let stands =
            if busy.gate.is_some() { ConflictingRunState::Asking } else { ConflictingRunState::AtWork };
        Some(CommandReply::Words(messages::route_busy(&busy.workflow, stands)))
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

    /// `/help`, `/status` and `/cost` share one comment a thread, which keeps the last answer to each.
    async fn show(&self, said: &CommentContext<'_>, shown: &[OutboundBody]) -> Result<(), GitHubApiError> {
        if shown.is_empty() {
            return Ok(());
        }
        let repo = said.repo.clone().answering();
        let place = unlocked(&repo, said.event.issue, said.at.issue).await?;
        let place = repo.beside_locked(place).await?.unwrap_or(place);
        if let Some((comment, text)) = repo.read_comment(place, ANSWERS).await? {
            let body = messages::answers(shown, &text);
            if body.as_str() == text {
                return Ok(());
            }
            match repo.edit_comment(comment.id, ANSWERS, &body).await {
                // Somebody has just deleted it.
                Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => {}
                edited => return edited.map(drop),
            }
        }
        repo.ensure_comment(place, ANSWERS, &messages::answers(shown, ""), said.taken.again).await.map(drop)
    }

    async fn answer(
        &self,
        said: &CommentContext<'_>,
        command: &CommentCommand,
        cause: Cause,
    ) -> Result<CommandReply, IntakeError> {
        // What a mail program quotes below an answer may hold the line to paste.
        if [APPROVE, OVERRIDE].contains(&command.name)
            && let Some(node) = &said.event.node
            // Where no gate is open or about to be, nothing can count.
            && said.live.iter().any(|run| run.opening || run.gate.is_some())
        {
            match said.repo.is_by_email(node).await {
                Ok(true) => return Ok(CommandReply::Words(self.not_by_email(said, command.name).await?)),
                Ok(false) => {}
                // It would wait for the gate anyway, and keeps no `/stop` waiting that way.
                Err(_) if said.live.iter().any(|run| run.opening) => return Err(IntakeError::Opening),
                Err(fault) => return Err(fault.into()),
            }
        }
        let (approve, text) = if command.name == APPROVE {
            match ApproveArguments::parse(&command.args) {
                Ok(approve) => (approve, String::new()),
                Err(error) => {
                    return Ok(CommandReply::Words(messages::not_understood(APPROVE, &error.to_string())));
                }
            }
        } else {
            if command.name == "budget"
                && let Err(error) = commands::parse_raise(&command.args)
            {
                return Ok(CommandReply::Words(messages::not_understood("budget", &error.to_string())));
            }
            if command.name == "answer"
                && let Err(error) = commands::parse_answers(&command.args)
            {
                return Ok(CommandReply::Words(messages::not_understood("answer", &error.to_string())));
            }
            let way = commands::way(&command.args).filter(|_| command.name == OVERRIDE);
            let mut fields = ApproveArguments { way: way.map(str::to_owned), ..ApproveArguments::default() };
            let mut text = command.args.clone();
            // Any other such word, as the id of a commit, is a part of the reason.
            if command.name == OVERRIDE
                && let Some((hash, reason)) = commands::split_hash(&text)
                && let Some(db) = self.store.repo_if_any(said.at.repo.id).await?
                && db.has_asked_about(said.at.issue, &hash).await?
            {
                (fields.hash, text) = (Some(hash), reason);
            }
            if let Some((stage, rest)) = split_stage(said, command) {
                (fields.stage, text) = (Some(stage), rest);
            }
            let takes_text = self.router.row(command.name).is_some_and(CommandSpec::takes_text);
            if takes_text && text.is_empty() {
                return Ok(CommandReply::Words(messages::empty_args(command.name)));
            }
            (fields, text)
        };
        let answer = GateAnswer {
            cause,
            verb: command.name.to_owned(),
            stage: approve.stage,
            hash: approve.hash,
            way: approve.way,
            text,
            by: said.event.sender.clone(),
            role: said.role,
            at: said.event.created_at,
            url: Some(said.event.url.clone()),
            commit: None,
            review: None,
        };
        self.signal(said.taken, (said.at.repo.id, said.at.issue), answer, said.ended.as_ref()).await
    }

    /// A word we do not know is corrected only where a gate of ours is open or we were addressed by name, and
    /// only for people who could have said the right one.
    fn correct(&self, said: &CommentContext<'_>, mistake: &CommandMistake) -> CommandReply {
        let open = said.live.iter().any(|run| run.gate.is_some());
        let (least, body) = match mistake {
            CommandMistake::NeedsText { name, .. } if open => {
                (self.router.row(name).map_or(Role::Triage, |row| row.role), messages::empty_args(name))
            }
            CommandMistake::Unknown { word, did_you_mean, addressed, .. } if *addressed || open => {
                (Role::Triage, messages::unknown_command(word, *did_you_mean))
            }
            CommandMistake::NotPlain { name, args, misspelt } if open => {
                let least = self.router.row(name).map_or(Role::Triage, |row| needed(row, &said.live));
                let asks = |gate: &&GateRow| gate.spec.verbs.iter().any(|(verb, _)| verb == name);
                let gates: Vec<_> =
                    said.live.iter().filter_map(|run| run.gate.as_ref()).filter(asks).collect();
                let mut who = gates.iter().flat_map(|gate| &gate.spec.verbs).filter(|(verb, _)| verb == name);
                if said.role < least.max(Role::Triage) && !who.any(|(_, who)| who.names(said.event.sender.id))
                {
                    let why = format!("refused: {} is not told how to {name}", said.role);
                    return if *misspelt { CommandReply::No(why) } else { CommandReply::Note(why) };
                }
                return CommandReply::Words(match *name {
                    APPROVE if gates.is_empty() => self.no_gate(name, &said.live),
                    APPROVE => messages::not_plain(
                        "",
                        &gates.into_iter().map(|gate| line_of(gate, APPROVE, "")).collect::<Vec<_>>(),
                    ),
                    name => messages::not_plain(format!("/{name} {args}").trim_end(), &[]),
                });
            }
            _ => return CommandReply::Note("a word of somebody else's".to_owned()),
        };
        if said.role < least.max(Role::Triage) {
            return CommandReply::No(format!("refused: {} is not corrected", said.role));
        }
        CommandReply::Words(body)
    }
}

/// Can `/retry` be an answer to what the run asks, or is about to ask?
fn takes_retry(run: &RunView) -> bool {
    run.opening || run.gate.as_ref().is_some_and(|gate| gate.spec.verbs.iter().any(|(verb, _)| verb == RETRY))
}

/// The stage that a `/retry` names, or a `/revise` where more than one gate is open, and the text after it.
fn split_stage(said: &CommentContext<'_>, command: &CommentCommand) -> Option<(String, String)> {
    let gates: Vec<_> = said.live.iter().filter_map(|run| run.gate.as_ref()).collect();
    if command.name != RETRY && (command.name != REVISE || gates.len() < 2) {
        return None;
    }
    let (stage, text) = command.args.split_once(char::is_whitespace).unwrap_or((&command.args, ""));
    let named = gates.iter().any(|gate| gate.spec.stage.eq_ignore_ascii_case(stage));
    named.then(|| (stage.to_owned(), text.trim().to_owned()))
}

/// What anybody may ask where a run of ours is at work, the public may not ask where there is none: it would
/// make us write on any issue.
fn needed(row: &CommandSpec, live: &[RunView]) -> Role {
    if live.is_empty() { row.role.max(Role::Triage) } else { row.role }
}

/// Is it a line of ours, with its hash? Nobody else's bot has such a one, so it is answered although nothing waits for it.
fn pasted(command: &CommentCommand) -> bool {
    command.name == APPROVE
        && ApproveArguments::parse(&command.args).is_ok_and(|approve| approve.hash.is_some())
}

const RESTART: &str = "restart";

/// Words that, like [`RETRY`], may mean a run which is alive no more.
const MEANS_ENDED: [&str; 4] = [RESTART, REVISE, "status", "cost"];

pub(super) fn means(command: &str, ended: Option<&RunView>) -> bool {
    ended.is_some_and(|run| match command {
        RETRY => matches!(run.status, RunViewStatus::Failed | RunViewStatus::Parked),
        _ => MEANS_ENDED.contains(&command),
    })
}

/// Marks the comment that `/help`, `/status` and `/cost` are answered in.
const ANSWERS: &str = "answers";

fn line(run: &RunView, pauses: &[ActivePause]) -> messages::RunStatusRow {
    let paused = run.status.live() && ActivePause::of(pauses, run.id.repo).is_some();
    messages::RunStatusRow {
        run: run.id,
        workflow: run.workflow.clone(),
        status: if paused { "paused" } else { run.status.as_str() },
        step: if run.step_title.is_empty() { run.step_id.clone() } else { run.step_title.clone() },
        why: run.why.clone(),
    }
}
