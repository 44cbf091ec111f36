//! The document stage: what every workflow does whose product is a reviewed document.
//!
//! Load, analyze, draft, fix, check, ask, review, publish: each is a function here that a step of a workflow calls with
//! its [`Visit`]. What is a workflow's own (its prompts, rules, checks and places) it says through [`Document`]. It keeps
//! its own steps and its own table of edges, and one function of it says where each [`Exit`] leads: so what may follow
//! what is read in one table, and nothing here knows a workflow's name.

mod after;
mod approvals;
mod artifacts;
mod check;
mod document;
mod gates;
mod halt;
mod held;
mod leave;
mod place;
mod show;
mod similar;
mod unclear;

pub use after::{as_pushed, watch};
pub use artifacts::{Known, stands};
pub use document::{About, Accepted, Asks, Document, Filed, Gate, Input, NamesCheck, Placed, Target};
pub use gates::gate;
pub use halt::halted;
pub use held::{Before, budget};
pub use leave::{Leave, Wish, leave, wish};
pub use similar::{commits, similar};
pub use unclear::{Question, open_questions, questions};

use serde::{Deserialize, Serialize};

use self::{
    after::After,
    approvals::Rules,
    gates::{Anew, Asked, ask_anew, take_over},
    held::Paused,
    leave::Wished,
    unclear::Questions,
};
use crate::{
    codebase,
    config::Publish,
    documents::{Mistake, verdict::RawFinding, visible::Hidden},
    engine::{ApprovalRow, GateSpec, Next, Outcome, Record, Step, StepError, StepInfo, TextKind, TextRow},
    github::Pull,
    limits,
    messages::{self, AskedBecause, Authorship, CommitConvention, CommitKind, Quote, State as Shown},
    publication::{self, Landed, Proposal},
    rounds::{
        self, Attack, Base, Brief, Cx, Drafted, Excerpt, IssueSnapshot, Looks, Policy, ReviewBrief, Round,
        StatusComment, Stop, Turn, announce, fault, need, text_of,
    },
    store::RunRow,
    types::{Hash, IssueNo, Oid, Timestamp, Verdict, WorkerPool},
};

/// Everything a run knows between its steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stage {
    issue: Option<IssueSnapshot>,
    policy: Option<Policy>,
    base: Option<Base>,
    /// What of the repository the models are shown.
    excerpt: Option<Hash>,
    /// What earlier runs of the repository came to; runs from before there was such a thing have none.
    #[serde(default)]
    history: Option<Hash>,
    /// Files the excerpt had no room or no use for.
    left_out: usize,
    /// A source file that exists and a line of it, for scripted answers.
    sample_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample_line: Option<String>,
    round: Round,
    status: StatusComment,
    proposal: Option<Proposal>,
    /// The version on the branch that this run knows: ours, or a person's that it took over. Only that may be
    /// followed by a version of ours.
    known: Option<Hash>,
    /// What others had on the branch when people were asked last: a stored list, if they had anything.
    #[serde(default)]
    foreign: Option<Hash>,
    /// What the open gate waits for an answer on, or the one whose approval is being published.
    asked: Option<Asked>,
    /// Whom it asks besides a role.
    #[serde(default)]
    rules: Rules,
    /// The state label on the issue.
    label: Option<String>,
    /// Why the loop handed the decision to people, when the verdict is not APPROVED.
    stop: Option<Stop>,
    /// The answer that opened the way to publishing.
    approval: Option<ApprovalRow>,
    /// What such runs cost here before.
    #[serde(default)]
    quote: Option<Quote>,
    /// Why the run goes on only once there is money for it.
    #[serde(default)]
    paused: Option<Paused>,
    /// Why people are asked where the policy would ask nobody.
    #[serde(default)]
    asked_because: Option<AskedBecause>,
    /// What no model was shown of people's words to the drafter, since people do not see it either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<Hidden>,
    /// What people are told at the gate of whoever wrote the issue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    authorship: Vec<Authorship>,
    /// Other open work that touches the same files, as people are told at the gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overlaps: Vec<(IssueNo, Vec<String>)>,
    /// What else is known of the issue, for the models.
    #[serde(default)]
    beside: Vec<Known>,
    /// Sentences for the status comment.
    #[serde(default)]
    said: Vec<String>,
    /// Hosts that somebody named and the operator may.
    #[serde(default)]
    hosts: Vec<String>,
    /// What people are asked before anything is drafted.
    #[serde(default)]
    questions: Option<Questions>,
    /// How the issue was edited before it could give way to what was approved: a stored text.
    #[serde(default)]
    edited: Option<Hash>,
    /// Where it was filed.
    #[serde(default)]
    filed: Option<String>,
    /// On the head of the issue's branch.
    #[serde(default)]
    check: check::Check,
    /// What came of what was pushed, once that is code.
    #[serde(default)]
    after: After,
    /// What its drafter wants beyond what people approved, and what they allowed of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wished: Option<Wished>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    leaves: Vec<Leave>,
    /// How the repository words its commits.
    #[serde(default)]
    convention: CommitConvention,
    /// Visits that went round on purpose before anything was shown.
    #[serde(default)]
    rounds_before: u64,
}

/// What a workflow's own steps may look at and leave.
impl Stage {
    /// The issue as the run read it.
    ///
    /// # Errors
    /// `Bug` before it was read, as for the next two.
    pub fn issue(&self) -> Result<&IssueSnapshot, StepError> {
        need(&self.issue)
    }

    pub fn policy(&self) -> Result<&Policy, StepError> {
        need(&self.policy)
    }

    pub fn base(&self) -> Result<&Base, StepError> {
        need(&self.base)
    }

    /// The draft as it is, once there is one.
    pub fn document(&self) -> Option<Hash> {
        self.round.document
    }

    /// What the run is told besides the issue under this name; empty where there is none.
    ///
    /// # Errors
    /// `Bug` where the store cannot be read.
    pub async fn told(&self, kind: &str, cx: &Cx) -> Result<String, StepError> {
        match self.beside.iter().find(|known| known.kind == kind) {
            Some(known) => text_of(cx, &known.text).await,
            None => Ok(String::new()),
        }
    }

    /// Is the drafter at work for what CI says of what was pushed?
    pub fn mends(&self) -> bool {
        self.after.mends()
    }

    /// Is the draft as it is on its branch?
    pub fn is_proposed(&self) -> bool {
        self.proposal.as_ref().is_some_and(|proposal| Some(proposal.document) == self.round.document)
    }

    /// Was nothing drafted yet?
    pub fn fresh(&self) -> bool {
        self.round.number == 0
    }

    /// What was drafted is done with, and something else is drafted in its place.
    ///
    /// # Errors
    /// `Bug` before there is a policy.
    pub fn begin_anew(&mut self) -> Result<(), StepError> {
        self.round.begin_anew(need(&self.policy)?.max_rounds);
        Ok(())
    }

    /// What people allowed beyond what they had approved.
    pub fn leaves(&self) -> &[Leave] {
        &self.leaves
    }

    /// What code holds against the draft first.
    pub fn wrong(&self) -> Option<&str> {
        self.round.mistakes.iter().find(|mistake| mistake.is_error()).map(|mistake| mistake.message.as_str())
    }

    /// May there be another draft?
    pub fn may_draft(&self) -> bool {
        self.round.number < self.round.cap
    }

    /// Code put something into the draft: nobody has reviewed it so, and no version without it comes back.
    pub fn amend(&mut self, document: Hash) {
        self.round.replace(document);
        self.round.outgrow();
    }

    /// Something the models are told besides the issue.
    pub fn know(&mut self, known: Known) {
        self.beside.retain(|other| other.kind != known.kind);
        self.beside.push(known);
    }

    /// So many steps are gone through once more before anything is drafted.
    pub fn goes_round(&mut self, steps: u64) {
        self.rounds_before += steps;
    }

    /// Less of what it is told under this name.
    pub fn recut(&mut self, kind: &str, text: Hash) {
        self.beside.iter_mut().filter(|known| known.kind == kind).for_each(|known| known.text = text);
    }

    /// A host to be named in the server's settings, if it is not told yet.
    pub fn closed(&mut self, host: String) {
        if !self.hosts.contains(&host) {
            self.hosts.push(host);
        }
    }

    /// A sentence for the status comment, if it is not there yet.
    pub fn say(&mut self, sentence: String) {
        if !self.said.contains(&sentence) {
            self.said.push(sentence);
        }
    }

    /// Where the document goes is named after what it is about: its path has `{slug}` for that.
    ///
    /// # Errors
    /// `Bug` before there is a policy.
    pub fn name_after(&mut self, slug: &str) -> Result<(), StepError> {
        let policy = self.policy.as_mut().ok_or_else(|| StepError::Bug(anyhow::anyhow!("no policy yet")))?;
        policy.document_path = policy.document_path.replace("{slug}", slug);
        Ok(())
    }

    /// What scripted answers speak of, where it is no file: an address, and a line about it.
    pub fn sample(&mut self, address: String, line: String) {
        (self.sample_path, self.sample_line) = (Some(address), Some(line));
    }

    /// What people are to be asked by [`questions`].
    pub fn ask(&mut self, questions: Vec<Question>) {
        self.questions = Some(Questions::new(questions));
    }
}

impl Stage {
    /// Whether the run publishes its documents as files, by its settings.
    fn files_papers(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.publish == Publish::PullRequest)
    }

    /// Where the run publishes its document, by its settings.
    fn target(&self, v: &Visit<'_>) -> Target {
        match v.doc.about().target {
            Target::Branch if !self.files_papers() => Target::Comment,
            target => target,
        }
    }
}

/// One visit of a step.
pub struct Visit<'a> {
    pub doc: &'a dyn Document,
    pub at: StepInfo,
    pub cx: &'a Cx,
}

impl<'a> Visit<'a> {
    /// A step begins.
    pub fn begin(s: &mut Stage, doc: &'a dyn Document, at: impl Step, cx: &'a Cx) -> Self {
        if s.check.begin(cx.visit()) {
            // Whoever had it tried again was shown that at once.
            s.label = None;
        }
        Self { doc, at: at.info(), cx }
    }
}

/// How a step of a stage ends. A workflow says where each leads, in its own table of edges.
#[derive(Debug)]
pub enum Exit {
    /// Nothing stands against going on.
    Pass,
    /// The review leads nowhere; people have to decide.
    Undecided,
    /// People have to be asked what the issue leaves open.
    Unclear,
    /// Back to the drafter.
    Redraft,
    /// A person sent the document back: issue and code are read anew.
    Reread,
    /// A person's own version takes the place of ours, and is checked like it.
    Theirs,
    /// People have to be asked once more, about what is there now.
    AskAnew,
    /// People dismissed what the review objected to: the same bytes are reviewed again.
    ReviewAgain,
    /// People have to allow more than they approved.
    Beyond,
    /// There is no money for the next call.
    Money,
    /// There is money again for what it lacked for.
    Resume(Before),
    /// What was pushed is left as it is: there is nothing to run, to review or to push.
    AsPushed,
    Ask(GateSpec),
    Wait {
        until: Timestamp,
        why: String,
    },
    Done(Outcome),
}

impl Exit {
    /// What the engine is told; `edge` says where an end leads.
    ///
    /// # Errors
    /// `Bug` where the workflow has no edge for it.
    pub fn next<S: Step>(self, edge: impl FnOnce(&Self) -> Option<S>) -> Result<Next<S>, StepError> {
        match self {
            Self::Ask(gate) => Ok(Next::Ask(gate)),
            Self::Wait { until, why } => Ok(Next::Wait { until, why }),
            Self::Done(outcome) => Ok(Next::Done(outcome)),
            leads => {
                let to = edge(&leads);
                to.map(Next::Go).ok_or_else(|| {
                    StepError::Bug(anyhow::anyhow!("the workflow has no edge for {leads:?} here"))
                })
            }
        }
    }
}

/// A graph's steps, for [`About::steps`].
pub fn steps<S: Step>(graph: &[(S, &[S])]) -> Vec<StepInfo> {
    graph.iter().map(|(step, _)| step.info()).collect()
}

/// Reads the issue and what holds for the run, which is over at once where another stage has to come first.
pub async fn load(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let desk = cx.tools();
    let repo = desk.repo(cx).await?;
    desk.permitted(&repo, v.doc.about().target != Target::Issue).await?;
    let issue: IssueSnapshot = cx.once("issue", |_| desk.issue(cx, &repo)).await?;
    let people = &desk.settings.people;
    if let Some(opt_out) = issue.labels.iter().find(|label| people.opts_out(label)) {
        return Err(StepError::User(format!(
            "The label “{opt_out}” says that this issue is to be left alone. Take it off, then start anew."
        )));
    }
    if text_of(cx, &issue.body).await?.trim().is_empty() {
        return Err(StepError::User(
            "The issue has no text. Say in it what is wanted and how one would know it is done, then start anew."
                .to_owned(),
        ));
    }
    let mut policy: Policy = cx
        .once("policy", |_| async {
            let info = repo.info().await.map_err(fault)?;
            desk.policy(v.doc.about().workflow, &repo, &info).await
        })
        .await?;
    if let Some((by, reason)) = held::waived(cx).filter(|_| !held::waiver_is_over(cx)) {
        if v.doc.about().target == Target::Branch {
            (policy.draft_gate, policy.verdict_gate) = (false, false);
        }
        s.say(messages::waived(by, reason));
    }
    let rows = artifacts::rows(v).await?;
    if policy.from_design
        && let Some(outcome) = artifacts::begin_before(v, &rows).await?
    {
        return Ok(Exit::Done(outcome));
    }
    s.beside = artifacts::inputs(v, &rows)?;
    if let Some(request) = &cx.run().trigger.request {
        let (kind, heading) =
            ("request".to_owned(), "What was asked for, in a comment on the issue".to_owned());
        s.beside.push(Known { kind, heading, text: cx.put(request.text.as_bytes()).await?, left: false });
        s.said = vec![messages::route_note(&request.skill, request.confidence)];
    }
    show::offer_label(v, &repo).await?;
    s.quote = cx.once("quote", |_| rounds::quote(cx)).await?;
    s.round = Round::new(policy.max_rounds);
    s.label = show::label_left(&issue.labels);
    s.issue = Some(issue);
    s.policy = Some(policy);
    Ok(Exit::Pass)
}

/// Chooses what of the code and of earlier runs the models are shown.
pub async fn analyze(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let desk = cx.tools();
    let repo = desk.repo(cx).await?;
    let files = v.doc.files_to_change();
    let code = v.doc.about().target == Target::Code;
    let base = match &s.base {
        // What is pushed was tried on the commit that the branch has.
        Some(base) if code => base.clone(),
        _ => desk.fetch(cx, "fetch", &repo).await?,
    };
    if code {
        gates::free(cx, &base, &files).await?;
        s.convention = show::convention(cx, &base).await?;
    }
    let words = words(s, v).await?;
    let Excerpt { shown, left_out, sample } = rounds::excerpt(cx, &base, &words, &files).await?;
    s.history = Some(rounds::history(cx, &base, need(&s.issue)?, &words).await?);
    (s.base, s.excerpt) = (Some(base), Some(shown));
    s.left_out = left_out;
    (s.sample_path, s.sample_line) = sample.unzip();
    Ok(Exit::Pass)
}

/// Files that earlier changes of the issue left on its branch, and that this one does not change.
///
/// # Errors
/// Those of reading the branch.
pub async fn earlier(s: &mut Stage, v: &Visit<'_>) -> Result<Vec<String>, StepError> {
    let cx = v.cx;
    let base = match &s.base {
        Some(base) => base.clone(),
        None => cx.tools().fetch(cx, "fetch", &cx.tools().repo(cx).await?).await?,
    };
    let base = &*s.base.insert(base);
    publication::earlier(cx, "earlier", base, &v.doc.files_to_change()).await
}

/// Reads where the default branch is, and shows the models nothing of what stands there: neither code nor paths, nor what
/// earlier runs wrote about them.
pub async fn without_code(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repo(cx).await?;
    s.base = Some(cx.tools().fetch(cx, "fetch", &repo).await?);
    let nothing = serde_json::to_vec(&codebase::Context::default()).map_err(anyhow::Error::new)?;
    (s.excerpt, s.history, s.left_out) = (Some(cx.put(&nothing).await?), None, 0);
    Ok(Exit::Pass)
}

/// On the straight way here nothing was shown yet. A visit that failed and is tried again may have shown something and
/// taken the knowledge with it.
async fn doubt(s: &mut Stage, v: &Visit<'_>) -> Result<(), StepError> {
    let cx = v.cx;
    if s.status.url.is_none() && cx.visit() > straight_to(s, v) {
        s.status = s.status.clone().in_doubt();
        let (repo, number) = (cx.tools().repo(cx).await?, need(&s.issue)?.number);
        let left = cx.once("label-left", |_| async {
            Ok(show::label_left(&repo.issue(number).await.map_err(fault)?.labels))
        });
        s.label = left.await?;
    }
    Ok(())
}

/// Shows that the run is at work, before anything is paid for or asked: so its status comment comes first.
pub async fn at_work(s: &mut Stage, v: &Visit<'_>) -> Result<(), StepError> {
    doubt(s, v).await?;
    show::working(s, v).await
}

/// As [`at_work`], where the visit shows more than that: `key` names it in the journal.
pub async fn at_work_as(s: &mut Stage, v: &Visit<'_>, key: &str) -> Result<(), StepError> {
    show::turn_as(s, v, key, messages::State::Working).await
}

/// Buys a draft.
pub async fn draft(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    if let Some(exit) = held::still(s, v).await? {
        return Ok(exit);
    }
    let cx = v.cx;
    let (issue, policy) = (need(&s.issue)?.clone(), need(&s.policy)?.clone());
    still_wanted(s, cx).await?;
    gates::findings(s, cx).await?;
    if s.round.to_review_again() {
        return Ok(Exit::ReviewAgain);
    }
    let tools = policy.tools.as_ref().filter(|tools| tools.drafter);
    if tools.is_some_and(|tools| tools.commands) && cx.tools().sandbox().await.is_err() {
        s.say(messages::without_commands(v.doc.role()));
    }
    at_work(s, v).await?;
    let body = text_of(cx, &issue.body).await?;
    let repository = repository(s, v).await?;
    let history = rounds::remembered(cx, s.history).await?;
    let extras = artifacts::told(s, cx).await?;
    let base = need(&s.base)?.clone();
    let draft = match s.round.document.filter(|_| tools.is_some()) {
        Some(document) => Some(text_of(cx, &document).await?),
        None => None,
    };
    let copy = v.doc.workspace(draft.as_deref());
    let brief = Brief {
        what: v.doc.about().what,
        author: v.doc.author(),
        issue: &issue,
        body: &body,
        shown: &repository,
        history: &history,
        extras: &extras,
        rules: &v.doc.rules(),
        spec: policy.drafter_of(v.doc.role()),
        reviewer: &policy.reviewer,
        longest: match v.doc.about().target {
            Target::Code => limits::CHANGE_TOKENS,
            _ => limits::DOCUMENT_TOKENS,
        },
        caps: &policy.caps,
        workers: place::assigned(s, v).await?.pool,
        looks: Looks::of(cx, v.doc.role(), &base, tools).await?.map(|looks| looks.writing(copy.as_ref())),
        sample: s.sample_path.as_deref().zip(s.sample_line.as_deref()),
    };
    let before = s.round.clone();
    let drafted = match rounds::draft(cx, &mut s.round, &brief).await {
        Ok(drafted) => drafted,
        Err(why) => return held::unanswered(s, v, Before::Draft, before, why).await,
    };
    match drafted {
        Drafted::Document => Ok(after::drafted(s, v)),
        Drafted::Unusable(why) => match s.round.settle_unusable(&why) {
            Turn::Pass | Turn::Again | Turn::ReviewAgain => Ok(Exit::Redraft),
            Turn::Stop(_) => {
                let tries = s.round.number;
                Err(StepError::User(messages::no_usable_draft(tries, &why)))
            }
        },
    }
}

/// Mends the draft's form.
pub async fn fix(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let before = document(s, v.cx).await?;
    let after = v.doc.fix(&before, need(&s.issue)?.number);
    let document = v.cx.put(after.as_bytes()).await?;
    if s.round.document != Some(document) {
        v.cx.book("fix", Record::Text(TextRow::of(TextKind::Fix, document))).await?;
    }
    s.round.replace(document);
    Ok(Exit::Pass)
}

/// Holds the draft against the format and the code.
pub async fn check(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let (base, text) = (need(&s.base)?, document(s, cx).await?);
    let tree = cx.tools().tree(cx, base).await?;
    let mut mistakes = v.doc.check(&text, need(&s.issue)?.number, &tree);
    if let Some(judge) = v.doc.names() {
        // What is known of the code hangs on this version and this machine, the form of the text on neither.
        let names: Hash = cx
            .once("names", |_| async {
                let names = rounds::names(cx, base, tree, move |repository| judge(&text, repository)).await?;
                cx.put(&serde_json::to_vec(&names).map_err(anyhow::Error::new)?).await
            })
            .await?;
        let names = cx.get(&names).await?;
        mistakes.extend(serde_json::from_slice::<Vec<Mistake>>(&names).map_err(anyhow::Error::new)?);
    }
    settle_checks(s, mistakes)
}

/// Holds the draft against itself: does what it promises cover what it says is wanted?
pub async fn coverage(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let mut mistakes = s.round.mistakes.clone();
    mistakes.extend(v.doc.coverage(&document(s, v.cx).await?));
    settle_checks(s, mistakes)
}

/// What a step of the workflow's own found wrong with the draft: on, back with it, or to an end.
///
/// # Errors
/// `User` where no more drafts are allowed.
pub fn settle_checks(s: &mut Stage, mistakes: Vec<Mistake>) -> Result<Exit, StepError> {
    match s.round.settle_checks(mistakes) {
        Turn::Pass => Ok(Exit::Pass),
        Turn::Again | Turn::ReviewAgain => Ok(Exit::Redraft),
        Turn::Stop(why) => Err(mechanical_halt(s, why)),
    }
}

fn mechanical_halt(s: &Stage, why: Stop) -> StepError {
    let worst: Vec<String> = s
        .round
        .mistakes
        .iter()
        .filter(|m| m.is_error())
        .take(3)
        .map(|m| format!("{}: {}", m.place, m.message))
        .collect();
    let reason = match why {
        Stop::Stalled => "the same ones came back three times",
        Stop::Cap | Stop::Inconclusive => "no more drafts are allowed",
    };
    StepError::User(format!(
        "The checks still find mistakes in the draft, and {reason}. {}",
        worst.join("; ")
    ))
}

/// Buys a review by a model of another family.
pub async fn review(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    if let Some(exit) = held::still(s, v).await? {
        return Ok(exit);
    }
    let cx = v.cx;
    let accepted = s.approval.as_ref().is_some_and(|row| s.round.document == Some(row.document));
    if accepted && show::verdict(s) == Verdict::Approved {
        // A gate before the review asked people about what it had approved: their word is all that was missing.
        return Ok(Exit::Pass);
    }
    let told = ForReviewer::of(s, v).await?;
    let source = document(s, cx).await?;
    let base = need(&s.base)?;
    let tree = cx.tools().tree(cx, base).await?;
    let policy = &told.policy;
    let looks = Looks::of(cx, "reviewer", base, policy.tools.as_ref().filter(|tools| tools.reviewer)).await?;
    let changed = if looks.is_some() { v.doc.files(&source)? } else { Vec::new() };
    let brief = ReviewBrief {
        looks: looks.map(|looks| looks.over(&changed)),
        place_exists: &|place| v.doc.place_exists(&source, place, &tree),
        unchanged_at: &|before, place| v.doc.unchanged_at(before, &source, place),
        ..told.brief(v.doc.about().what, &told.rules)
    };
    let before = s.round.clone();
    let reviewed = match rounds::review(cx, &mut s.round, &brief).await {
        Ok(reviewed) => reviewed,
        Err(why) => return held::unanswered(s, v, Before::Review, before, why).await,
    };
    match s.round.settle_review(reviewed) {
        Turn::Again => Ok(Exit::Redraft),
        Turn::ReviewAgain => Ok(Exit::ReviewAgain),
        Turn::Pass => {
            s.stop = None;
            Ok(Exit::Pass)
        }
        Turn::Stop(why) => {
            s.stop = Some(why);
            Ok(Exit::Undecided)
        }
    }
}

/// Has the reviewer's model write tests against the document, by these rules: them, or our sentence on why there are none; an
/// exit where it could not be asked for now.
///
/// # Errors
/// Those of [`review`].
pub async fn attack(
    s: &mut Stage,
    v: &Visit<'_>,
    rules: &str,
) -> Result<Result<Result<Attack, String>, Exit>, StepError> {
    if let Some(exit) = held::still(s, v).await? {
        return Ok(Err(exit));
    }
    let told = ForReviewer::of(s, v).await?;
    let before = s.round.clone();
    match rounds::attack(v.cx, &mut s.round, &told.brief(v.doc.about().what, rules)).await {
        Ok(attack) => Ok(Ok(attack)),
        Err(why) => held::unanswered(s, v, Before::Attack, before, why).await.map(Err),
    }
}

/// Books what tests of the reviewer's model object to, by finding, and which earlier ones pass now. Back to the drafter where
/// there are any, and as often as it may draft.
///
/// # Errors
/// `Bug` where the ledger cannot be written.
pub async fn object(
    s: &mut Stage,
    cx: &Cx,
    objections: &[RawFinding],
    met: &[String],
) -> Result<(Vec<String>, Exit), StepError> {
    let ids = rounds::object(cx, &mut s.round, objections, met).await?;
    let back = !objections.is_empty() && s.round.settle_attack() == Turn::Again;
    Ok((ids, if back { Exit::Redraft } else { Exit::Pass }))
}

/// What whoever reviews is told, as it is now.
struct ForReviewer {
    issue: IssueSnapshot,
    policy: Policy,
    body: String,
    repository: codebase::Shown,
    extras: Vec<rounds::Extra>,
    rules: String,
    workers: WorkerPool,
    facts: String,
    warnings: String,
}

impl ForReviewer {
    async fn of(s: &mut Stage, v: &Visit<'_>) -> Result<Self, StepError> {
        let cx = v.cx;
        let (issue, policy) = (need(&s.issue)?.clone(), need(&s.policy)?.clone());
        still_wanted(s, cx).await?;
        gates::findings(s, cx).await?;
        show::working(s, v).await?;
        Ok(Self {
            body: text_of(cx, &issue.body).await?,
            issue,
            policy,
            repository: repository(s, v).await?,
            extras: artifacts::told(s, cx).await?,
            rules: v.doc.rules(),
            workers: place::assigned(s, v).await?.pool,
            facts: v.doc.facts(need(&s.base)?.commit.as_str()),
            warnings: warnings(s),
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

/// Publishes the bytes that were countersigned.
pub async fn publish(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let (cx, about) = (v.cx, v.doc.about());
    let document = *need(&s.round.document)?;
    let accepted = s.approval.as_ref().is_some_and(|row| row.document == document);
    if !accepted {
        let policy = need(&s.policy)?;
        let mut gates = about.steps.iter().filter_map(|step| v.doc.gate(step.id, policy));
        if gates.any(|gate| gate.on && gate.asks != Asks::Draft) {
            return Err(StepError::Bug(anyhow::anyhow!("a gate that is on was gone around")));
        }
        if !gates::review_is_enough(s, v).await? {
            return ask_anew(s, v, Anew::Changed).await;
        }
    }
    let (target, files_papers) = (s.target(v), s.files_papers());
    let signed = cx.countersigned(document, about.proofs).await?;
    if signed.verdict().is_none() && target != Target::Issue {
        return Err(StepError::Bug(anyhow::anyhow!("what nobody reviewed leaves the issue")));
    }
    // If the approved commit is there already, the visit that tells of the end finds it and does the rest.
    still_wanted(s, cx).await?;
    let proposed = s.is_proposed();
    if target == Target::Code && !proposed {
        let policy = need(&s.policy)?;
        let gate = about.steps.iter().find(|step| v.doc.gate(step.id, policy).is_some());
        let (gate, approved) = (gate.map_or("", |step| step.id), signed.approval().subject);
        if !gates::as_approved(s, v, gate, approved).await? {
            return ask_anew(s, v, Anew::Other).await;
        }
    }
    let on_branch = matches!(target, Target::Branch | Target::Code);
    if on_branch && !proposed && files_papers {
        return match gates::propose(s, v, None).await? {
            Err(exit) => Ok(exit),
            // Nobody was shown what others have there.
            Ok(_) if s.foreign.is_some() && target == Target::Branch => ask_anew(s, v, Anew::Changed).await,
            // What is proposed is kept before it is published.
            Ok(_) => Ok(held::again(cx)),
        };
    }
    if let Some(Proposal { audit: Some(audit), commit, .. }) = s.proposal.clone().filter(|_| proposed) {
        // The visit before this one pushed it.
        settle(s, v, Published::Commit { audit, commit }).await?;
        return Ok(Exit::Pass);
    }
    let approval = signed.approval();
    let answer = approval.answer.as_ref();
    let detail = serde_json::json!({
        "document": document, "subject": approval.subject, "by": answer.map(|answer| answer.by.id),
        "verb": answer.map(|answer| &answer.verb), "reason": answer.map(|answer| &answer.text),
        "at": answer.map(|answer| answer.at), "verdict": signed.verdict().map(|row| row.verdict),
        "others": s.foreign, "kind": approval.kind,
        "policy": Hash::of(&serde_json::to_vec(need(&s.policy)?).map_err(anyhow::Error::new)?),
    });
    let audit = cx.audit("approved", "a document was countersigned", detail).await?;
    let proposal = match target {
        // The one commit has the tests and the code, and says who approved it.
        Target::Code if !files_papers => {
            return match gates::propose(s, v, Some(audit)).await? {
                Err(exit) => Ok(exit),
                // That it is pushed is kept before anything hangs on it.
                Ok(_) => Ok(held::again(cx)),
            };
        }
        Target::Branch | Target::Code => need(&s.proposal)?.clone(),
        Target::Comment => {
            let url = match &s.asked {
                Some(asked) => asked.url.clone(),
                None => announce(cx, "document", &show::document_comment(s, v).await?).await?.0,
            };
            return Ok(Exit::Done(conclude(s, v, Published::Comment { url }).await?));
        }
        Target::Issue => {
            let text = text_of(cx, &document).await?;
            let issue = need(&s.issue)?.clone();
            let accepted = Accepted {
                text: &text,
                signed: &signed,
                issue: &issue,
                provenance: show::provenance(s, v, None).await?,
                open: s.round.findings.open().cloned().collect(),
            };
            return match v.doc.file(accepted, cx).await? {
                Filed::On(placed) => Ok(Exit::Done(conclude(s, v, Published::Filed(placed)).await?)),
                Filed::Edited => edited(s, v).await,
            };
        }
    };
    let message =
        show::commit(s, v, CommitKind::Approval(show::acceptance(approval, cx)), Some(audit)).await?;
    let log = (show::log_path(&proposal.path), show::log(s, v).await?);
    let landing = match publication::publish(cx, &signed, &proposal, s.foreign, log, &message).await? {
        Landed::Ours(landing) => landing,
        Landed::Theirs(theirs) => return take_over(s, v, theirs, None).await,
        Landed::AskAnew { rewritten, foreign } => {
            s.foreign = foreign;
            return ask_anew(s, v, Anew::of(rewritten)).await;
        }
    };
    let published = Published::Commit { audit, commit: landing.commit };
    if target == Target::Code {
        settle(s, v, published).await?;
        return Ok(Exit::Pass);
    }
    Ok(Exit::Done(conclude(s, v, published).await?))
}

/// The issue that was to give way is another one: people are shown how, and asked anew.
async fn edited(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repo(cx).await?;
    if let Some((now, diff)) = publication::edited(cx, "edited", &repo, need(&s.issue)?).await? {
        s.edited = Some(cx.put(diff.as_bytes()).await?);
        s.issue = Some(now);
    }
    ask_anew(s, v, Anew::Edited).await
}

/// What was accepted, where it is now.
enum Published {
    /// In this commit on the branch, which names that link of the audit chain.
    Commit { audit: Hash, commit: Oid },
    /// In the comment at this address.
    Comment { url: String },
    /// As an issue, or on one.
    Filed(Placed),
}

/// What is left to do once it is published.
async fn conclude(s: &mut Stage, v: &Visit<'_>, published: Published) -> Result<Outcome, StepError> {
    let outcome = settle(s, v, published).await?;
    let cx = v.cx;
    if let Some(next) = cx.then() {
        let issue = cx.run().trigger.issue;
        let is_next = |run: &RunRow| run.trigger.issue == issue && run.workflow == next;
        let lives = cx.once("follower", |_| async { Ok(artifacts::live(cx).await?.iter().any(is_next)) });
        if lives.await? {
            s.say(messages::ends_here(next));
        }
    }
    show::turn(s, v, Shown::Done).await?;
    Ok(outcome)
}

/// The same, and nothing shows yet that it is.
async fn settle(s: &mut Stage, v: &Visit<'_>, published: Published) -> Result<Outcome, StepError> {
    Ok(match published {
        Published::Commit { audit, commit } => {
            s.proposal = Some(Proposal { commit, audit: None, ..need(&s.proposal)?.clone() });
            s.check.published(audit);
            show::update_pull(s, v, "retitle", audit).await?;
            artifacts::hand_on(s, v, need(&s.issue)?.number).await?;
            s.after.pushed(s.approval.clone());
            let proposal = need(&s.proposal)?;
            let what = if s.files_papers() { proposal.path.as_str() } else { "the change" };
            Outcome {
                summary: format!("{what} is approved and on {}", proposal.branch),
                url: Some(proposal.pull_url.clone()),
            }
        }
        Published::Comment { url } => {
            artifacts::hand_on(s, v, need(&s.issue)?.number).await?;
            s.filed = Some(url.clone());
            let summary = format!("the {} is approved", messages::stage_name(v.doc.about().stage));
            Outcome { summary, url: Some(url) }
        }
        Published::Filed(placed) => {
            s.filed = placed.outcome.url.clone();
            artifacts::hand_on(s, v, placed.issue).await?;
            placed.outcome
        }
    })
}

/// The number of the visit that comes to this step first, if nothing is visited twice but what goes round before.
fn straight_to(s: &Stage, v: &Visit<'_>) -> u64 {
    let steps = v.doc.about().steps;
    let straight = steps.iter().zip(1..).find(|(step, _)| step.id == v.at.id);
    straight.map_or(u64::MAX, |(_, number)| number + s.rounds_before)
}

/// Does the step come before any that shows something? Then nothing was shown to anybody yet.
fn before_showing(v: &Visit<'_>) -> bool {
    let (steps, from) = (v.doc.about().steps, v.doc.shows_from());
    steps.iter().take_while(|step| Some(step.id) != from).any(|step| step.id == v.at.id)
}

/// Before a stage: is this still wanted?
///
/// # Errors
/// That it is not.
pub async fn still_wanted(s: &Stage, cx: &Cx) -> Result<Option<Pull>, StepError> {
    cx.tools().still_wanted(cx, s.proposal.as_ref().map(|p| p.pull)).await
}

fn warnings(s: &Stage) -> String {
    let warnings = s.round.mistakes.iter().filter(|m| !m.is_error());
    warnings.map(|m| format!("- {}: {}\n", m.place, m.message)).collect()
}

/// What was asked for, and what earlier stages made of it that this one cannot do without.
async fn words(s: &Stage, v: &Visit<'_>) -> Result<String, StepError> {
    let issue = need(&s.issue)?;
    let mut words = format!("{}\n{}", issue.title, text_of(v.cx, &issue.body).await?);
    for input in v.doc.inputs().iter().filter(|input| input.made_by.is_some()) {
        words = format!("{words}\n{}", s.told(input.kind, v.cx).await?);
    }
    Ok(words)
}

/// What the models are shown of the repository. Once there is a draft, the files that it changes come first.
async fn repository(s: &mut Stage, v: &Visit<'_>) -> Result<codebase::Shown, StepError> {
    let cx = v.cx;
    let files = match s.round.document {
        Some(document) => v.doc.paths(&text_of(cx, &document).await?),
        None => Vec::new(),
    };
    if files.is_empty() {
        return rounds::shown(cx, need(&s.excerpt)?).await;
    }
    let words = words(s, v).await?;
    let Excerpt { shown, left_out, .. } = rounds::excerpt(cx, need(&s.base)?, &words, &files).await?;
    s.left_out = left_out;
    rounds::shown(cx, &shown).await
}

async fn document(s: &Stage, cx: &Cx) -> Result<String, StepError> {
    text_of(cx, need(&s.round.document)?).await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A run's state at the verdict gate, as an earlier version stored it.
    const EARLIER: &str = include_str!("../../fixtures/states/lld-asking.json");

    #[test]
    fn a_run_that_an_earlier_version_began_goes_on() {
        let stage: Stage = serde_json::from_str(EARLIER).unwrap();
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
        // The subject of its open gate is made of these very bytes.
        assert!(EARLIER.contains(&serde_json::to_string(&stage.policy).unwrap()));
        assert_eq!(serde_json::to_string(&[Before::Draft, Before::Review]).unwrap(), r#"["Draft","Review"]"#);
    }
}
