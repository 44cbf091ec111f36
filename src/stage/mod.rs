//! The document stage: the steps that all workflows with a reviewed document share.
//!
//! Load, analyze, draft, fix, check, ask, review and publish are functions that a workflow's step calls with its
//! [`StepVisit`]. A workflow provides its own prompts, rules, checks and paths through [`StageDocument`]. It defines
//! its own steps and edges, and maps each [`StepResult`] to an edge. This module does not depend on any particular
//! workflow.

mod approvals;
mod artifacts;
mod change_requests;
mod check_run;
mod document;
mod exceptions;
mod gates;
mod halt;
mod issue_questions;
mod merge_watch;
mod similar_work;
mod views;
mod waiting_steps;
mod worker_pool;

pub use artifacts::{BackgroundText, require_unchanged_input};
pub use document::{
    AcceptedDocument, DocumentGate, DocumentInfo, FiledDocument, FilingOutcome, GateQuestion, NamesCheck,
    PublicationTarget, StageDocument, StageInput,
};
pub use exceptions::{Exception, ExceptionRequest, request_exception, run_exception_gate};
pub use gates::run_gate;
pub use halt::report_halt;
pub use issue_questions::{IssueQuestion, ask_questions, find_open_questions};
pub use merge_watch::{keep_pushed_change, watch_merge};
pub use similar_work::{add_similar_commits, add_similar_issues};
pub use waiting_steps::{StageCall, wait_for_budget};

use serde::{Deserialize, Serialize};

use self::{
    approvals::ApprovalRules,
    exceptions::PendingException,
    gates::{OpenGate, ReopenReason, adopt_foreign_version, reopen_gate},
    issue_questions::IssueQuestions,
    merge_watch::MergeWatch,
    waiting_steps::BudgetPause,
};
use crate::{
    codebase,
    config::Publish,
    documents::{DocumentMistake, hidden_text::HiddenText, verdict::RawFinding},
    engine::{
        ApprovalRow, GateSpec, LedgerRecord, RunCompletion, StepError, StepInfo, TextKind, TextRow,
        Transition, WorkflowStep,
    },
    github::PullRequest,
    limits,
    messages::{
        self, AuthorshipNote, CommitConvention, CommitKind, CostHistory, GateReason, RunDisplayState as Shown,
    },
    publication::{self, CommitOutcome, Proposal},
    rounds::{
        self, AdversarialTestSet, BaseCommit, CodeExcerpt, DraftBrief, DraftOutcome, IssueSnapshot,
        LoopStopReason, Policy, ReviewBrief, Round, RoundDecision, StatusComment, StepContext, ToolSession,
        github_error, load_text, post_announcement, require_state,
    },
    store::RunRow,
    types::{Hash, IssueNo, Oid, Timestamp, WorkerPool},
};

/// State of a run that is saved between its steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StageState {
    issue: Option<IssueSnapshot>,
    policy: Option<Policy>,
    base: Option<BaseCommit>,
    /// Hash of the stored excerpt of the repository that the models see.
    excerpt: Option<Hash>,
    /// Hash of the stored history of earlier runs of the repository; `None` for runs started by older versions.
    #[serde(default)]
    history: Option<Hash>,
    /// Number of relevant files that were left out of the excerpt.
    left_out: usize,
    /// Path of an existing source file; `sample_line` is one of its lines. Both are placeholder values for scripted
    /// responses.
    sample_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample_line: Option<String>,
    round: Round,
    status: StatusComment,
    proposal: Option<Proposal>,
    /// The version on the branch that this run knows: our own version, or a person's version that the run adopted. The
    /// run commits only on top of a known version.
    known: Option<Hash>,
    /// Hash of the stored list of files on the branch that other people changed, at the time of the last gate. `None`
    /// if nobody changed any.
    #[serde(default)]
    foreign: Option<Hash>,
    /// The open gate, or the gate whose approval is being published.
    asked: Option<OpenGate>,
    /// Approval rules of the open gate.
    #[serde(default)]
    rules: ApprovalRules,
    label: Option<String>,
    /// Reason why the review loop stopped without an APPROVED verdict, so that people must decide.
    stop: Option<LoopStopReason>,
    /// The approval under which the document is published.
    approval: Option<ApprovalRow>,
    /// Costs of earlier runs of this workflow in the repository.
    #[serde(default)]
    quote: Option<CostHistory>,
    /// The current pause, set while the run waits for budget.
    #[serde(default)]
    paused: Option<BudgetPause>,
    /// Reason why people are asked although the policy allows publishing without them.
    #[serde(default)]
    asked_because: Option<GateReason>,
    /// Parts of people's messages that GitHub does not display. They are removed before models see the messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<HiddenText>,
    /// Notes about the issue's author, shown at the gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    authorship: Vec<AuthorshipNote>,
    /// Other issues with a live run that touches the same files, with these files. Shown at the gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overlaps: Vec<(IssueNo, Vec<String>)>,
    #[serde(default)]
    beside: Vec<BackgroundText>,
    /// Notes to show in the status comment.
    #[serde(default)]
    said: Vec<String>,
    /// Hosts that somebody named in the issue or the documents but that the operator's settings do not allow.
    #[serde(default)]
    hosts: Vec<String>,
    /// Questions that people are asked before the first draft.
    #[serde(default)]
    questions: Option<IssueQuestions>,
    /// Hash of the stored diff of an edit that somebody else made to the issue before the approved text could replace
    /// the issue.
    #[serde(default)]
    edited: Option<Hash>,
    /// URL of the issue in which the document was filed.
    #[serde(default)]
    filed: Option<String>,
    /// Check run on the head of the issue's branch.
    #[serde(default)]
    check: check_run::CheckRunRecord,
    /// State of the watch over the pushed change.
    #[serde(default)]
    after: MergeWatch,
    /// The version that people sent back last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent_back: Option<Hash>,
    /// Whether the newest draft left a version unchanged that the review had approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unchanged: bool,
    /// Person who asked for other tests than the locked ones, and the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wants_tests: Option<(String, Timestamp)>,
    /// Whether the same request also asks for other code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    wants_code: bool,
    /// The pending exception request. The field `leaves` lists the exceptions granted so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wished: Option<PendingException>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    leaves: Vec<Exception>,
    /// The repository's commit message style.
    #[serde(default)]
    convention: CommitConvention,
    /// Number of additional visits before the run first shows something, which arise because a workflow repeats steps
    /// on purpose.
    #[serde(default)]
    rounds_before: u64,
}

/// Accessors that the steps of a workflow use to read and change their state.
impl StageState {
    /// Returns the issue as the run read it.
    ///
    /// # Errors
    /// `Bug` if the issue has not been read yet.
    pub fn issue(&self) -> Result<&IssueSnapshot, StepError> {
        require_state(&self.issue)
    }

    pub fn policy(&self) -> Result<&Policy, StepError> {
        require_state(&self.policy)
    }

    pub fn base(&self) -> Result<&BaseCommit, StepError> {
        require_state(&self.base)
    }

    /// Returns the hash of the current draft; `None` if the run has no draft.
    pub fn document(&self) -> Option<Hash> {
        self.round.document
    }

    /// Returns the background text of this kind; an empty text if the run has none of this kind.
    ///
    /// # Errors
    /// `Bug` if the store cannot read the text.
    pub async fn background_text(&self, kind: &str, cx: &StepContext) -> Result<String, StepError> {
        match self.beside.iter().find(|known| known.kind == kind) {
            Some(known) => load_text(cx, &known.text).await,
            None => Ok(String::new()),
        }
    }

    /// Whether the drafter is fixing CI failures of the pushed change.
    pub fn is_fixing_ci(&self) -> bool {
        self.after.is_fixing_ci()
    }

    /// Whether the current draft was committed to its branch.
    pub fn is_proposed(&self) -> bool {
        self.proposal.as_ref().is_some_and(|proposal| Some(proposal.document) == self.round.document)
    }

    /// Whether the run has not requested any draft yet.
    pub fn is_fresh(&self) -> bool {
        self.round.number == 0
    }

    /// Restarts the count of rounds, for another document in this run.
    ///
    /// # Errors
    /// `Bug` if the policy has not been read yet.
    pub fn reset_rounds(&mut self) -> Result<(), StepError> {
        self.round.start_next_document(require_state(&self.policy)?.max_rounds);
        Ok(())
    }

    /// Sets the remark on all open findings.
    pub fn remark_open_findings(&mut self, why: &str) {
        self.round.findings.remark_open(why);
    }

    /// Returns the exceptions that people granted.
    pub fn exceptions(&self) -> &[Exception] {
        &self.leaves
    }

    /// Returns the first error that the checks found in the draft.
    pub fn first_error(&self) -> Option<&str> {
        self.round.mistakes.iter().find(|mistake| mistake.is_error()).map(|mistake| mistake.message.as_str())
    }

    /// Whether the run may still request another draft.
    pub fn may_draft(&self) -> bool {
        self.round.number < self.round.cap
    }

    /// Replaces the draft with a version that our code changed. The new version counts as unreviewed, and the run
    /// cannot return to an earlier version.
    pub fn replace_draft(&mut self, document: Hash) {
        self.round.replace_document(document);
        self.round.forget_best_version();
        self.unchanged = false;
    }

    /// Returns who asked for other tests, and when, if the request that sent the change back did. Clears this.
    pub fn take_test_request(&mut self) -> Option<(String, Timestamp)> {
        self.wants_tests.take()
    }

    /// Whether a person who asked for other tests also asked for other code, and no draft has followed yet.
    pub fn wants_code(&self) -> bool {
        self.wants_code
    }

    /// Records that the drafter of the code answered people's requests.
    pub fn clear_code_request(&mut self) {
        self.wants_code = false;
    }

    /// Adds a background text for the models. It replaces an earlier text of the same kind.
    pub fn add_background(&mut self, known: BackgroundText) {
        self.beside.retain(|other| other.kind != known.kind);
        self.beside.push(known);
    }

    /// Removes the background text of this kind.
    pub fn remove_background(&mut self, kind: &str) {
        self.beside.retain(|known| known.kind != kind);
    }

    /// Records an exception that a person granted.
    pub fn record_exception(&mut self, granted: Exception) {
        self.leaves.push(granted);
    }

    /// Adds `steps` to the number of visits before the first draft that arise because a workflow repeats steps on
    /// purpose.
    pub fn add_extra_steps(&mut self, steps: u64) {
        self.rounds_before += steps;
    }

    /// Replaces the background text of this kind with a shorter one.
    pub fn shorten_background(&mut self, kind: &str, text: Hash) {
        self.beside.iter_mut().filter(|known| known.kind == kind).for_each(|known| known.text = text);
    }

    /// Adds to the list a host that the server's settings refuse. Does nothing if the host is already listed.
    pub fn add_refused_host(&mut self, host: String) {
        if !self.hosts.contains(&host) {
            self.hosts.push(host);
        }
    }

    /// Adds a note to the status comment, unless the note is already listed.
    pub fn add_note(&mut self, sentence: String) {
        if !self.said.contains(&sentence) {
            self.said.push(sentence);
        }
    }

    /// Replaces `{slug}` in the document's path.
    ///
    /// # Errors
    /// `Bug` if the policy has not been read yet.
    pub fn set_path_slug(&mut self, slug: &str) -> Result<(), StepError> {
        let policy = self.policy.as_mut().ok_or_else(|| StepError::Bug(anyhow::anyhow!("no policy yet")))?;
        policy.document_path = policy.document_path.replace("{slug}", slug);
        Ok(())
    }

    /// Sets the sample for scripted responses to an address and a line about that address. Used if the sample is not a
    /// file.
    pub fn set_sample(&mut self, address: String, line: String) {
        (self.sample_path, self.sample_line) = (Some(address), Some(line));
    }

    /// Sets the questions that [`ask_questions`] will ask.
    pub fn set_questions(&mut self, questions: Vec<IssueQuestion>) {
        self.questions = Some(IssueQuestions::new(questions));
    }
}

impl StageState {
    /// Whether the settings say to publish documents as files.
    fn publishes_files(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.publish == Publish::PullRequest)
    }

    /// Returns the document's publication target, taking the run's settings into account.
    fn target(&self, v: &StepVisit<'_>) -> PublicationTarget {
        match v.doc.info().target {
            PublicationTarget::Branch if !self.publishes_files() => PublicationTarget::Comment,
            target => target,
        }
    }
}

/// One visit of a step by a run.
pub struct StepVisit<'a> {
    pub doc: &'a dyn StageDocument,
    pub at: StepInfo,
    pub cx: &'a StepContext,
}

impl<'a> StepVisit<'a> {
    /// Starts a visit of the step `at`.
    pub fn begin(
        s: &mut StageState,
        doc: &'a dyn StageDocument,
        at: impl WorkflowStep,
        cx: &'a StepContext,
    ) -> Self {
        if s.check.begin_visit(cx.visit()) {
            // After a halt and `/retry` the label was removed already.
            s.label = None;
            s.round.allow_another_draft();
        }
        Self { doc, at: at.info(), cx }
    }
}

/// Result of a stage's step. A workflow maps each result to one of its edges.
#[derive(Debug)]
pub enum StepResult {
    /// The run continues with the next step.
    Pass,
    /// The review loop stopped without an approval, so people must decide.
    Undecided,
    /// The issue has gaps, so people must answer questions about it.
    Unclear,
    Redraft,
    /// A person sent the document back. The run must read the issue and the code again.
    Reread,
    /// A person's own version replaced our document and must be checked.
    ForeignVersion,
    /// People must be asked again, because the state that they saw has changed.
    ReopenGate,
    /// The unchanged document must be reviewed again, because people dismissed findings or asked for another review.
    ReviewAgain,
    /// The run needs an exception that only people can grant.
    NeedsException,
    OutOfBudget,
    /// Budget is available again, so the run continues with this call.
    Resume(StageCall),
    /// The pushed version is kept; nothing needs to be run, reviewed or pushed.
    KeepPushed,
    Ask(GateSpec),
    Wait {
        until: Timestamp,
        why: String,
    },
    Done(RunCompletion),
}

impl StepResult {
    /// Converts the result to a transition of the engine; `edge` maps a result to a step.
    ///
    /// # Errors
    /// `Bug` if the workflow has no edge for the result.
    pub fn into_next<S: WorkflowStep>(
        self,
        edge: impl FnOnce(&Self) -> Option<S>,
    ) -> Result<Transition<S>, StepError> {
        match self {
            Self::Ask(gate) => Ok(Transition::Ask(gate)),
            Self::Wait { until, why } => Ok(Transition::Wait { until, why }),
            Self::Done(outcome) => Ok(Transition::Done(outcome)),
            leads => {
                let to = edge(&leads);
                to.map(Transition::Go).ok_or_else(|| {
                    StepError::Bug(anyhow::anyhow!("the workflow has no edge for {leads:?} here"))
                })
            }
        }
    }
}

/// Returns the step of `graph` with this ID.
pub fn find_step<S: WorkflowStep>(graph: &[(S, &[S])], id: &str) -> Option<S> {
    graph.iter().map(|(step, _)| *step).find(|step| step.id() == id)
}

/// Returns information about all steps of a graph, for [`DocumentInfo::steps`].
pub fn step_infos<S: WorkflowStep>(graph: &[(S, &[S])]) -> Vec<StepInfo> {
    graph.iter().map(|(step, _)| step.info()).collect()
}

/// Reads the issue and the policy. If another stage must run first, starts that stage and completes the current run.
pub async fn load_issue(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let desk = cx.tools();
    let repo = desk.repository(cx).await?;
    desk.check_permissions(&repo, v.doc.info().target != PublicationTarget::Issue).await?;
    let issue: IssueSnapshot = cx.once("issue", |_| desk.read_issue(cx, &repo)).await?;
    let people = &desk.settings.people;
    if let Some(opt_out) = issue.labels.iter().find(|label| people.opts_out(label)) {
        return Err(StepError::User(format!(
            "The label “{opt_out}” tells Countersign to leave this issue alone. Remove it, then start again."
        )));
    }
    if load_text(cx, &issue.body).await?.trim().is_empty() {
        return Err(StepError::User(
            "The issue has no text. Describe what you want and how to tell that it is done, then start again."
                .to_owned(),
        ));
    }
    let mut policy: Policy = cx
        .once("policy", |_| async {
            let info = repo.info().await.map_err(github_error)?;
            desk.read_policy(v.doc.info().workflow, &repo, &info).await
        })
        .await?;
    if let Some((by, reason)) =
        waiting_steps::hotfix_waiver(cx).filter(|_| !waiting_steps::is_waiver_expired(cx))
    {
        if v.doc.info().target == PublicationTarget::Branch {
            (policy.draft_gate, policy.verdict_gate) = (false, false);
        }
        s.add_note(messages::hotfix_note(by, reason));
    }
    let rows = artifacts::load_artifacts(v).await?;
    if policy.from_design
        && let Some(outcome) = artifacts::start_input_stage(v, &rows).await?
    {
        return Ok(StepResult::Done(outcome));
    }
    s.beside = artifacts::load_inputs(v, &rows)?;
    if v.doc.info().target == PublicationTarget::Branch {
        s.beside.extend(artifacts::load_last_halt(v).await?);
    }
    if let Some(request) = &cx.run().trigger.request {
        let (kind, heading) =
            ("request".to_owned(), "What was asked for, in a comment on the issue".to_owned());
        s.beside.push(BackgroundText {
            kind,
            heading,
            text: cx.put(request.text.as_bytes()).await?,
            left: false,
        });
        s.said = vec![messages::route_note(&request.skill, request.confidence)];
    }
    views::define_trigger_label(v, &repo).await?;
    s.quote = cx.once("quote", |_| rounds::quote_cost(cx)).await?;
    s.round = Round::new(policy.max_rounds);
    s.label = views::find_state_label(&issue.labels);
    s.issue = Some(issue);
    s.policy = Some(policy);
    Ok(StepResult::Pass)
}

/// Chooses the code excerpt and the history of earlier runs for the models.
pub async fn analyze_codebase(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let desk = cx.tools();
    let repo = desk.repository(cx).await?;
    let files = v.doc.files_to_change();
    let code = v.doc.info().target == PublicationTarget::Code;
    let base = match &s.base {
        // Pushed code was tested on this commit, so keep it.
        Some(base) if code => base.clone(),
        _ => desk.fetch_base(cx, "fetch", &repo).await?,
    };
    if code {
        gates::require_free_files(cx, &base, &files).await?;
        s.convention = views::detect_convention(cx, &base).await?;
    }
    let words = search_words(s, v).await?;
    let CodeExcerpt { shown, left_out, sample } =
        rounds::choose_code_excerpt(cx, &base, &words, &files).await?;
    s.history = Some(rounds::store_history(cx, &base, require_state(&s.issue)?, &words).await?);
    (s.base, s.excerpt) = (Some(base), Some(shown));
    s.left_out = left_out;
    (s.sample_path, s.sample_line) = sample.unzip();
    Ok(StepResult::Pass)
}

/// Returns the files on the issue's branch that come from earlier changes and that the current change does not touch.
///
/// # Errors
/// Errors of reading the branch.
pub async fn find_earlier_files(s: &mut StageState, v: &StepVisit<'_>) -> Result<Vec<String>, StepError> {
    let cx = v.cx;
    let base = match &s.base {
        Some(base) => base.clone(),
        None => cx.tools().fetch_base(cx, "fetch", &cx.tools().repository(cx).await?).await?,
    };
    let base = &*s.base.insert(base);
    publication::find_earlier_files(cx, "earlier", base, &v.doc.files_to_change()).await
}

/// Reads only the head of the default branch. The models then see no code, paths or history.
pub async fn skip_codebase(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repository(cx).await?;
    s.base = Some(cx.tools().fetch_base(cx, "fetch", &repo).await?);
    let nothing = serde_json::to_vec(&codebase::CodebaseContext::default()).map_err(anyhow::Error::new)?;
    (s.excerpt, s.history, s.left_out) = (Some(cx.put(&nothing).await?), None, 0);
    Ok(StepResult::Pass)
}

/// Marks the status comment as uncertain if a failed visit may have posted the comment without recording it. This is
/// impossible if the step is visited for the first time and no step was repeated before, because nothing is posted
/// before that visit.
async fn mark_status_uncertain(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let cx = v.cx;
    if s.status.url.is_none() && cx.visit() > first_visit_number(s, v) {
        s.status = s.status.clone().marked_uncertain();
        let (repo, number) = (cx.tools().repository(cx).await?, require_state(&s.issue)?.number);
        let left = cx.once("label-left", |_| async {
            Ok(views::find_state_label(&repo.issue(number).await.map_err(github_error)?.labels))
        });
        s.label = left.await?;
    }
    Ok(())
}

/// Shows in the status comment that the run is working. Called before the run spends money or asks people, so that the
/// status comment is the run's first comment.
pub async fn show_working(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    mark_status_uncertain(s, v).await?;
    views::show_working(s, v).await
}

/// Like [`show_working`], but for a second update in the same visit; `key` is the journal key of the update.
pub async fn show_working_as(s: &mut StageState, v: &StepVisit<'_>, key: &str) -> Result<(), StepError> {
    views::show_state_as(s, v, key, messages::RunDisplayState::Working).await
}

/// Calls the model for a draft.
pub async fn write_draft(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    if let Some(exit) = waiting_steps::check_pending_wait(s, v).await? {
        return Ok(exit);
    }
    let cx = v.cx;
    let (issue, policy) = (require_state(&s.issue)?.clone(), require_state(&s.policy)?.clone());
    require_still_wanted(s, cx).await?;
    gates::take_finding_remarks(s, cx).await?;
    if s.round.needs_another_review() {
        return Ok(StepResult::ReviewAgain);
    }
    let tools = policy.tools.as_ref().filter(|tools| tools.drafter);
    if tools.is_some_and(|tools| tools.commands) && cx.tools().find_sandbox().await.is_err() {
        s.add_note(messages::commands_unavailable_note(v.doc.role()));
    }
    show_working(s, v).await?;
    let body = load_text(cx, &issue.body).await?;
    let repository = load_repository_context(s, v).await?;
    let history = rounds::load_history(cx, s.history).await?;
    let extras = artifacts::prompt_extras(s, cx).await?;
    let base = require_state(&s.base)?.clone();
    let draft = match s.round.document.filter(|_| tools.is_some()) {
        Some(document) => Some(load_text(cx, &document).await?),
        None => None,
    };
    let copy = v.doc.workspace(draft.as_deref());
    let brief = DraftBrief {
        what: v.doc.info().what,
        author: v.doc.author_persona(),
        issue: &issue,
        body: &body,
        shown: &repository,
        history: &history,
        extras: &extras,
        rules: &v.doc.rules(),
        spec: policy.drafter_for_role(v.doc.role()),
        reviewer: &policy.reviewer,
        longest: match v.doc.info().target {
            PublicationTarget::Code => limits::CHANGE_TOKENS,
            _ => limits::DOCUMENT_TOKENS,
        },
        caps: &policy.caps,
        workers: worker_pool::assign_worker_pool(s, v).await?.pool,
        looks: ToolSession::from_settings(cx, v.doc.role(), &base, tools)
            .await?
            .map(|looks| looks.with_workspace(copy.as_ref())),
        sample: s.sample_path.as_deref().zip(s.sample_line.as_deref()),
    };
    let before = s.round.clone();
    let drafted = match rounds::write_draft(cx, &mut s.round, &brief).await {
        Ok(drafted) => drafted,
        Err(why) => return waiting_steps::handle_no_answer(s, v, StageCall::Draft, before, why).await,
    };
    match drafted {
        DraftOutcome::Document => merge_watch::settle_draft(s, v, &before).await,
        DraftOutcome::Unusable(why) => match s.round.settle_unusable(&why) {
            RoundDecision::Pass | RoundDecision::Redraft | RoundDecision::ReviewAgain => {
                Ok(StepResult::Redraft)
            }
            RoundDecision::Stop(_) => {
                let tries = s.round.number;
                Err(StepError::User(messages::unusable_draft_reason(tries, &why)))
            }
        },
    }
}

/// Repairs the format of the draft without a model.
pub async fn fix_draft(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let before = load_document(s, v.cx).await?;
    let after = v.doc.fix(&before, require_state(&s.issue)?.number);
    store_fixed_draft(s, v.cx, &after).await?;
    Ok(StepResult::Pass)
}

/// Replaces the draft by a text that our code made of it.
pub async fn store_fixed_draft(s: &mut StageState, cx: &StepContext, text: &str) -> Result<Hash, StepError> {
    let document = cx.put(text.as_bytes()).await?;
    if s.round.document != Some(document) {
        cx.record_later("fix", LedgerRecord::Text(TextRow::new(TextKind::Fix, document))).await?;
    }
    s.round.replace_document(document);
    Ok(document)
}

/// Checks the draft against the required format and against the code.
pub async fn check_draft(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let (base, text) = (require_state(&s.base)?, load_document(s, cx).await?);
    let tree = cx.tools().file_tree(cx, base).await?;
    let mut mistakes = v.doc.check(&text, require_state(&s.issue)?.number, &tree);
    let uncovered = v.doc.coverage(&text);
    if let Some(judge) = v.doc.names_check() {
        // The names check depends on this version and machine, so its result is journalled. The form check does not.
        let names: Hash = cx
            .once("names", |_| async {
                let names =
                    rounds::check_code_names(cx, base, tree, move |repository| judge(&text, repository))
                        .await?;
                cx.put(&serde_json::to_vec(&names).map_err(anyhow::Error::new)?).await
            })
            .await?;
        let names = cx.get(&names).await?;
        mistakes.extend(serde_json::from_slice::<Vec<DocumentMistake>>(&names).map_err(anyhow::Error::new)?);
    }
    let exit = settle_checks(s, mistakes)?;
    if !matches!(exit, StepResult::Pass) {
        // The drafter gets all mistakes at once, also those that the next step would find.
        s.round.mistakes.extend(uncovered);
    }
    Ok(exit)
}

/// Checks whether the draft covers everything that it declares or must cover.
pub async fn check_coverage(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let mut mistakes = s.round.mistakes.clone();
    mistakes.extend(v.doc.coverage(&load_document(s, v.cx).await?));
    settle_checks(s, mistakes)
}

/// Handles mistakes that a workflow's own step found: continues, requests another draft, or ends the run.
///
/// # Errors
/// `User` if no more drafts are allowed.
pub fn settle_checks(s: &mut StageState, mistakes: Vec<DocumentMistake>) -> Result<StepResult, StepError> {
    match s.round.settle_checks(mistakes) {
        RoundDecision::Pass => Ok(StepResult::Pass),
        RoundDecision::Redraft | RoundDecision::ReviewAgain => Ok(StepResult::Redraft),
        RoundDecision::Stop(why) => Err(failed_checks_error(s, why)),
    }
}

fn failed_checks_error(s: &StageState, why: LoopStopReason) -> StepError {
    let worst: Vec<String> = s
        .round
        .mistakes
        .iter()
        .filter(|m| m.is_error())
        .take(3)
        .map(|m| format!("{}: {}", m.place, m.message))
        .collect();
    let reason = match why {
        LoopStopReason::Stalled => "the same mistakes came back three times",
        LoopStopReason::Cap | LoopStopReason::Inconclusive => {
            "the limit of drafts is reached; `/retry` allows one more"
        }
    };
    StepError::User(format!("The draft still fails the checks, and {reason}. {}", worst.join("; ")))
}

/// Calls a model of a different family than the drafter's to review the draft.
pub async fn review_draft(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    if let Some(exit) = waiting_steps::check_pending_wait(s, v).await? {
        return Ok(exit);
    }
    let cx = v.cx;
    if s.round.is_approved() {
        // The same bytes are never reviewed again.
        return Ok(StepResult::Pass);
    }
    let told = ReviewerContext::load(s, v).await?;
    let source = load_document(s, cx).await?;
    let base = require_state(&s.base)?;
    let tree = cx.tools().file_tree(cx, base).await?;
    let policy = &told.policy;
    let looks = ToolSession::from_settings(
        cx,
        "reviewer",
        base,
        policy.tools.as_ref().filter(|tools| tools.reviewer),
    )
    .await?;
    let changed = if looks.is_some() { v.doc.files(&source)? } else { Vec::new() };
    let brief = ReviewBrief {
        looks: looks.map(|looks| looks.with_changes(&changed)),
        place_exists: &|place| v.doc.place_exists(&source, place, &tree),
        unchanged_at: &|before, place| v.doc.unchanged_at(before, &source, place),
        ..told.brief(v.doc.info().what, &told.rules)
    };
    let before = s.round.clone();
    let reviewed = match Box::pin(rounds::review_document(cx, &mut s.round, &brief)).await {
        Ok(reviewed) => reviewed,
        Err(why) => return waiting_steps::handle_no_answer(s, v, StageCall::Review, before, why).await,
    };
    match s.round.settle_review(reviewed) {
        RoundDecision::Redraft => Ok(StepResult::Redraft),
        RoundDecision::ReviewAgain => Ok(StepResult::ReviewAgain),
        RoundDecision::Pass => {
            s.stop = None;
            Ok(StepResult::Pass)
        }
        RoundDecision::Stop(why) => {
            s.stop = Some(why);
            Ok(StepResult::Undecided)
        }
    }
}

/// Calls the reviewer's model to write tests that challenge the document, following `rules`. Returns the tests, or a
/// sentence that says why the tests are missing. Returns `Err` with a step result if the model cannot be called now.
///
/// # Errors
/// Errors of [`review_draft`].
pub async fn write_adversarial_tests(
    s: &mut StageState,
    v: &StepVisit<'_>,
    rules: &str,
) -> Result<Result<Result<AdversarialTestSet, String>, StepResult>, StepError> {
    if let Some(exit) = waiting_steps::check_pending_wait(s, v).await? {
        return Ok(Err(exit));
    }
    let told = ReviewerContext::load(s, v).await?;
    let before = s.round.clone();
    match rounds::request_adversarial_tests(v.cx, &mut s.round, &told.brief(v.doc.info().what, rules)).await {
        Ok(attack) => Ok(Ok(attack)),
        Err(why) => waiting_steps::handle_no_answer(s, v, StageCall::Attack, before, why).await.map(Err),
    }
}

/// Records failed adversarial tests as findings, and closes the earlier findings in `met`, whose tests now pass. If
/// there are new findings and another draft is allowed, sends the document back to the drafter.
///
/// # Errors
/// `Bug` if the ledger cannot be written.
pub async fn record_objections(
    s: &mut StageState,
    cx: &StepContext,
    objections: &[RawFinding],
    met: &[String],
) -> Result<(Vec<String>, StepResult), StepError> {
    let ids = rounds::record_adversarial_findings(cx, &mut s.round, objections, met).await?;
    let back = !objections.is_empty() && s.round.settle_adversarial_tests() == RoundDecision::Redraft;
    Ok((ids, if back { StepResult::Redraft } else { StepResult::Pass }))
}

struct ReviewerContext {
    issue: IssueSnapshot,
    policy: Policy,
    body: String,
    repository: codebase::ContextSections,
    extras: Vec<rounds::PromptExtra>,
    rules: String,
    workers: WorkerPool,
    facts: String,
    warnings: String,
}

impl ReviewerContext {
    async fn load(s: &mut StageState, v: &StepVisit<'_>) -> Result<Self, StepError> {
        let cx = v.cx;
        let (issue, policy) = (require_state(&s.issue)?.clone(), require_state(&s.policy)?.clone());
        require_still_wanted(s, cx).await?;
        gates::take_finding_remarks(s, cx).await?;
        views::show_working(s, v).await?;
        Ok(Self {
            body: load_text(cx, &issue.body).await?,
            issue,
            policy,
            repository: load_repository_context(s, v).await?,
            extras: artifacts::prompt_extras(s, cx).await?,
            rules: v.doc.rules(),
            workers: worker_pool::assign_worker_pool(s, v).await?.pool,
            facts: v.doc.facts(require_state(&s.base)?.commit.as_str()),
            warnings: review_warnings(s),
        })
    }

    fn brief<'a>(&'a self, what: &'a str, rules: &'a str) -> ReviewBrief<'a> {
        ReviewBrief {
            what,
            issue: &self.issue,
            body: &self.body,
            shown: &self.repository,
            extras: &self.extras,
            rules,
            spec: &self.policy.reviewer,
            caps: &self.policy.caps,
            workers: self.workers,
            looks: None,
            facts: &self.facts,
            warnings: &self.warnings,
            place_exists: &|_| false,
            unchanged_at: &|_, _| false,
        }
    }
}

/// Publishes exactly the bytes that were countersigned.
pub async fn publish_document(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let (cx, about) = (v.cx, v.doc.info());
    let document = *require_state(&s.round.document)?;
    let accepted = s.approval.as_ref().is_some_and(|row| row.document == document);
    if !accepted {
        let policy = require_state(&s.policy)?;
        let mut gates = about.steps.iter().filter_map(|step| v.doc.gate(step.id, policy));
        if gates.any(|gate| gate.is_on && gate.question != GateQuestion::Draft) {
            return Err(StepError::Bug(anyhow::anyhow!("the run skipped a gate that is on")));
        }
        if !gates::is_review_enough(s, v).await? {
            return reopen_gate(s, v, ReopenReason::BranchChanged).await;
        }
    }
    let (target, files_papers) = (s.target(v), s.publishes_files());
    let signed = cx.require_countersignature(document, about.proofs).await?;
    if signed.verdict().is_none() && target != PublicationTarget::Issue {
        return Err(StepError::Bug(anyhow::anyhow!(
            "an unreviewed document may only be published on the issue"
        )));
    }
    // If the approved commit exists already, the halt visit finds it and does the rest.
    require_still_wanted(s, cx).await?;
    let proposed = s.is_proposed();
    if target == PublicationTarget::Code && !proposed {
        let policy = require_state(&s.policy)?;
        let gate = about.steps.iter().find(|step| v.doc.gate(step.id, policy).is_some());
        let (gate, approved) = (gate.map_or("", |step| step.id), signed.approval().subject);
        if !gates::is_as_approved(s, v, gate, approved).await? {
            return reopen_gate(s, v, ReopenReason::ContentChanged).await;
        }
    }
    let on_branch = matches!(target, PublicationTarget::Branch | PublicationTarget::Code);
    if on_branch && !proposed && files_papers {
        return match gates::propose_document(s, v, None).await? {
            Err(exit) => Ok(exit),
            // Nobody was shown the files that others have there.
            Ok(_) if s.foreign.is_some() && target == PublicationTarget::Branch => {
                reopen_gate(s, v, ReopenReason::BranchChanged).await
            }
            // Save the proposal before publishing it.
            Ok(_) => Ok(waiting_steps::retry_at_once(cx)),
        };
    }
    if let Some(Proposal { audit: Some(audit), commit, .. }) = s.proposal.clone().filter(|_| proposed) {
        // The visit before this one pushed it.
        settle_publication(s, v, PublishedDocument::Commit { audit, commit }).await?;
        return Ok(StepResult::Pass);
    }
    let approval = signed.approval();
    let answer = approval.answer.as_ref();
    let detail = serde_json::json!({
        "document": document, "subject": approval.subject, "by": answer.map(|answer| answer.by.id),
        "verb": answer.map(|answer| &answer.verb), "reason": answer.map(|answer| &answer.text),
        "at": answer.map(|answer| answer.at), "verdict": signed.verdict().map(|row| row.verdict),
        "others": s.foreign, "kind": approval.kind,
        "policy": Hash::digest(&serde_json::to_vec(require_state(&s.policy)?).map_err(anyhow::Error::new)?),
    });
    let audit = cx.append_audit_link("approved", "a document was countersigned", detail).await?;
    let proposal = match target {
        // One commit holds tests and code and names its approver.
        PublicationTarget::Code if !files_papers => {
            return match gates::propose_document(s, v, Some(audit)).await? {
                Err(exit) => Ok(exit),
                // Save the push before anything depends on it.
                Ok(_) => Ok(waiting_steps::retry_at_once(cx)),
            };
        }
        PublicationTarget::Branch | PublicationTarget::Code => require_state(&s.proposal)?.clone(),
        PublicationTarget::Comment => {
            let url = match &s.asked {
                Some(asked) => asked.url.clone(),
                None => post_announcement(cx, "document", &views::document_body(s, v).await?).await?.0,
            };
            return Ok(StepResult::Done(finish_publication(s, v, PublishedDocument::Comment { url }).await?));
        }
        PublicationTarget::Issue => {
            let text = load_text(cx, &document).await?;
            let issue = require_state(&s.issue)?.clone();
            let accepted = AcceptedDocument {
                text: &text,
                signed: &signed,
                issue: &issue,
                provenance: views::provenance(s, v, Some(approval), None).await?,
                open: s.round.findings.open().cloned().collect(),
            };
            return match v.doc.file_issue(accepted, cx).await? {
                FilingOutcome::Issue(placed) => {
                    Ok(StepResult::Done(finish_publication(s, v, PublishedDocument::Filed(placed)).await?))
                }
                FilingOutcome::IssueEdited => reopen_after_issue_edit(s, v).await,
            };
        }
    };
    let message =
        views::commit_message(s, v, CommitKind::Approval(views::acceptance(approval, cx)), Some(audit))
            .await?;
    let log = (views::review_log_path(&proposal.path), views::review_log(s, v).await?);
    let landing =
        match publication::publish_document(cx, &signed, &proposal, s.foreign, log, &message).await? {
            CommitOutcome::Committed(landing) => landing,
            CommitOutcome::ForeignVersion(theirs) => return adopt_foreign_version(s, v, theirs, None).await,
            CommitOutcome::BranchChanged { rewritten, foreign } => {
                s.foreign = foreign;
                return reopen_gate(s, v, ReopenReason::from_rewritten(rewritten)).await;
            }
        };
    let published = PublishedDocument::Commit { audit, commit: landing.commit };
    if target == PublicationTarget::Code {
        settle_publication(s, v, published).await?;
        return Ok(StepResult::Pass);
    }
    Ok(StepResult::Done(finish_publication(s, v, published).await?))
}

/// Reopens the gate because somebody else edited the issue that the document replaces, and shows people the edit.
async fn reopen_after_issue_edit(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repository(cx).await?;
    if let Some((now, diff)) =
        publication::find_issue_edit(cx, "edited", &repo, require_state(&s.issue)?).await?
    {
        s.edited = Some(cx.put(diff.as_bytes()).await?);
        s.issue = Some(now);
    }
    reopen_gate(s, v, ReopenReason::IssueEdited).await
}

enum PublishedDocument {
    /// The document is a commit on the branch. The commit message contains the audit link.
    Commit {
        audit: Hash,
        commit: Oid,
    },
    Comment {
        url: String,
    },
    Filed(FiledDocument),
}

/// Completes a publication and shows the result to people.
async fn finish_publication(
    s: &mut StageState,
    v: &StepVisit<'_>,
    published: PublishedDocument,
) -> Result<RunCompletion, StepError> {
    let outcome = settle_publication(s, v, published).await?;
    let cx = v.cx;
    if let Some(next) = cx.next_workflow() {
        let issue = cx.run().trigger.issue;
        let is_next = |run: &RunRow| run.trigger.issue == issue && run.workflow == next;
        let lives =
            cx.once("follower", |_| async { Ok(artifacts::live_runs(cx).await?.iter().any(is_next)) });
        if lives.await? {
            s.add_note(messages::next_stage_running_note(next));
        }
    }
    views::show_state(s, v, Shown::Done).await?;
    Ok(outcome)
}

/// Completes a publication without showing the result to people yet.
async fn settle_publication(
    s: &mut StageState,
    v: &StepVisit<'_>,
    published: PublishedDocument,
) -> Result<RunCompletion, StepError> {
    Ok(match published {
        PublishedDocument::Commit { audit, commit } => {
            s.proposal = Some(Proposal { commit, audit: None, ..require_state(&s.proposal)?.clone() });
            s.check.set_audit(audit);
            views::update_pull(s, v, "retitle", audit).await?;
            artifacts::record_artifacts(s, v, require_state(&s.issue)?.number).await?;
            s.after.reset_after_push(s.approval.clone());
            s.unchanged = false;
            let proposal = require_state(&s.proposal)?;
            let what = if s.publishes_files() { proposal.path.as_str() } else { "the change" };
            RunCompletion {
                summary: format!("{what} is approved and committed to {}", proposal.branch),
                url: Some(proposal.pull_url.clone()),
            }
        }
        PublishedDocument::Comment { url } => {
            artifacts::record_artifacts(s, v, require_state(&s.issue)?.number).await?;
            s.filed = Some(url.clone());
            let summary = format!("the {} is approved", messages::stage_name(v.doc.info().stage));
            RunCompletion { summary, url: Some(url) }
        }
        PublishedDocument::Filed(placed) => {
            s.filed = placed.outcome.url.clone();
            artifacts::record_artifacts(s, v, placed.issue).await?;
            placed.outcome
        }
    })
}

/// Returns the number of this step's first visit, assuming that no step was repeated except for the `rounds_before`
/// intended repetitions.
fn first_visit_number(s: &StageState, v: &StepVisit<'_>) -> u64 {
    let steps = v.doc.info().steps;
    let straight = steps.iter().zip(1..).find(|(step, _)| step.id == v.at.id);
    straight.map_or(u64::MAX, |(_, number)| number + s.rounds_before)
}

/// Whether the current step comes before the first step that shows something to people.
fn is_before_first_shown(v: &StepVisit<'_>) -> bool {
    let (steps, from) = (v.doc.info().steps, v.doc.first_shown_step());
    steps.iter().take_while(|step| Some(step.id) != from).any(|step| step.id == v.at.id)
}

/// Checks that this run is still wanted: the issue is open and has no stop label, and the pull request is open. Called
/// before each stage.
///
/// # Errors
/// Returns an error if the run should stop.
pub async fn require_still_wanted(
    s: &StageState,
    cx: &StepContext,
) -> Result<Option<PullRequest>, StepError> {
    cx.tools().check_still_wanted(cx, s.proposal.as_ref().map(|p| p.pull)).await
}

fn review_warnings(s: &StageState) -> String {
    let warnings = s.round.mistakes.iter().filter(|m| !m.is_error());
    warnings.map(|m| format!("- {}: {}\n", m.place, m.message)).collect()
}

/// Returns the text of the issue and of the required inputs, to search the code for its words.
async fn search_words(s: &StageState, v: &StepVisit<'_>) -> Result<String, StepError> {
    let issue = require_state(&s.issue)?;
    let mut words = format!("{}\n{}", issue.title, load_text(v.cx, &issue.body).await?);
    for input in v.doc.inputs().iter().filter(|input| input.made_by.is_some()) {
        words = format!("{words}\n{}", s.background_text(input.kind, v.cx).await?);
    }
    Ok(words)
}

/// Loads the code excerpt for the models. If a draft exists, the files that the draft changes come first.
async fn load_repository_context(
    s: &mut StageState,
    v: &StepVisit<'_>,
) -> Result<codebase::ContextSections, StepError> {
    let cx = v.cx;
    let files = match s.round.document {
        Some(document) => v.doc.paths(&load_text(cx, &document).await?),
        None => Vec::new(),
    };
    if files.is_empty() {
        return rounds::load_code_excerpt(cx, require_state(&s.excerpt)?).await;
    }
    let words = search_words(s, v).await?;
    let CodeExcerpt { shown, left_out, .. } =
        rounds::choose_code_excerpt(cx, require_state(&s.base)?, &words, &files).await?;
    s.left_out = left_out;
    rounds::load_code_excerpt(cx, &shown).await
}

async fn load_document(s: &StageState, cx: &StepContext) -> Result<String, StepError> {
    load_text(cx, require_state(&s.round.document)?).await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// State of a run at the verdict gate, as stored by an earlier version of the server.
    const EARLIER: &str = include_str!("../../fixtures/states/lld-asking.json");

    #[test]
    fn stage_state_stored_by_an_earlier_version_still_loads() {
        let stage: StageState = serde_json::from_str(EARLIER).unwrap();
        let (now, then) =
            (serde_json::to_value(&stage).unwrap(), serde_json::from_str::<Value>(EARLIER).unwrap());
        let kept = |name: &str| !["asked", "repairs"].contains(&name);
        for (name, value) in then.as_object().unwrap().iter().filter(|(name, _)| kept(name)) {
            assert_eq!(now[name], *value, "{name}");
        }
        assert_eq!(
            (&now["asked"]["subject"], &now["asked"]["visit"]),
            (&then["asked"]["subject"], &Value::from(0))
        );
        // The subject of the open gate is a hash over these bytes.
        assert!(EARLIER.contains(&serde_json::to_string(&stage.policy).unwrap()));
        assert_eq!(
            serde_json::to_string(&[StageCall::Draft, StageCall::Review]).unwrap(),
            r#"["Draft","Review"]"#
        );
    }
}
