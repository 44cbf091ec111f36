//! A hostile workflow that tries to publish regardless of reviews and gates.
//!
//! The workflow takes random transitions, writes random approval rows, and requests the proof for any earlier version.
//! Only the round, the engine and the stored rows can stop it.

use countersign::{
    codebase::{ContextSections, History},
    commands::CommandSpec,
    config::BudgetSettings,
    engine::{
        AnyWorkflow, ApprovalKind, ApprovalRow, Approvers, GateAnswer, GateSpec, LedgerRecord, LesserProof,
        RunCompletion, RunHalt, RunTrigger, StepError, StepInfo, StepKind, Transition, VerdictRow, Workflow,
        WorkflowStep,
    },
    rounds::{
        self, CallWaitAction, DraftBrief, DraftOutcome, IssueSnapshot, ReviewBrief, Round, RoundDecision,
        ServedModel, StatusComment, StepContext, StepServices, UnansweredCall,
    },
    types::{Actor, Hash, IssueNo, Role, UserId, Verb, Verdict, WorkerPool},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The hostile workflow. `P` selects the `LesserProof` that the workflow may use in place of an approval: 0 none, 1
/// policy, 2 unreviewed.
pub(crate) struct Reckless<const P: u8>;

pub(crate) static ALL: &[&dyn AnyWorkflow<StepServices>] = &[&Reckless::<0>, &Reckless::<1>, &Reckless::<2>];
pub(crate) const NAMES: [&str; 3] = ["strict", "by-policy", "unreviewed"];
const PROOFS: [&[LesserProof]; 3] = [&[], &[LesserProof::Policy], &[LesserProof::Unreviewed]];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Step {
    Draft,
    Review,
    Gate,
    Publish,
}
use Step::{Draft, Gate, Publish, Review};

impl WorkflowStep for Step {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Draft => ("R1", "Draft", StepKind::Draft),
            Review => ("R2", "Review", StepKind::Review),
            Gate => ("R3", "Ask", StepKind::Gate),
            Publish => ("R4", "Publish", StepKind::Publish),
        };
        StepInfo { id, title, kind }
    }
}

/// Arguments of a run of the hostile workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Seed from which all random decisions are derived.
    pub(crate) seed: u64,
    /// Number of calls per role that earlier cases use up in the script.
    pub(crate) before: u32,
    /// Approvers that the run's gates require.
    pub(crate) approvers: Approvers,
}

/// Record of one review, written by the step that ran the review.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReviewRecord {
    pub(crate) document: Hash,
    /// Number of the review's last model call; `None` if no model was called.
    pub(crate) call: Option<u32>,
    /// Ids of the blocking findings that were open before the review.
    pub(crate) blocking: Vec<String>,
    /// Whether the document was drafted by a model of the reviewer's family.
    pub(crate) same_family: bool,
}

/// The published document, and all reviews of the run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Published {
    pub(crate) document: Hash,
    pub(crate) kind: ApprovalKind,
    pub(crate) reviews: Vec<ReviewRecord>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    case: Case,
    round: Round,
    /// All versions of the document so far.
    versions: Vec<Hash>,
    reviews: Vec<ReviewRecord>,
}

/// Returns the subject that an approval of this document must have.
pub(crate) fn subject(document: Hash) -> Hash {
    Hash::digest_parts([document.to_string().as_bytes(), b"and the policy"])
}

/// Source of the random decisions of a visit. Every attempt at the visit makes the same decisions.
struct Chance<'a> {
    seed: u64,
    cx: &'a StepContext,
    drawn: u8,
}

impl Chance<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.drawn += 1;
        let cause = self.cx.answer().map(|answer| answer.cause.to_string()).unwrap_or_default();
        let place = format!("{} {} {cause} {}", self.seed, self.cx.visit(), self.drawn);
        let word = Hash::digest(place.as_bytes()).short();
        usize::try_from(u64::from_str_radix(&word, 16).unwrap()).unwrap() % end
    }

    fn one_in(&mut self, end: usize) -> bool {
        self.below(end) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

impl<const P: u8> Workflow<StepServices> for Reckless<P> {
    const NAME: &'static str = NAMES[P as usize];
    const VERSION: u32 = 1;
    type Step = Step;
    type State = State;
    const GRAPH: &'static [(Step, &'static [Step])] = match P {
        0 => &[
            (Draft, &[Review, Draft]),
            (Review, &[Gate, Draft, Review]),
            (Gate, &[Publish, Draft, Review]),
            (Publish, &[Gate, Draft]),
        ],
        1 => &[
            (Draft, &[Review, Draft]),
            (Review, &[Publish, Gate, Draft, Review]),
            (Gate, &[Publish, Draft, Review]),
            (Publish, &[Gate, Draft]),
        ],
        _ => &[
            (Draft, &[Gate, Review, Draft]),
            (Review, &[Gate, Draft, Review]),
            (Gate, &[Publish, Draft, Review]),
            (Publish, &[Gate, Draft]),
        ],
    };
    const PROOFS: &'static [LesserProof] = PROOFS[P as usize];
    const COMMANDS: &'static [CommandSpec] = &[];

    fn max_iterations() -> u32 {
        6
    }

    fn start(&self, trigger: &RunTrigger) -> State {
        let case: Case = serde_json::from_str(&trigger.args).unwrap();
        // Call numbers continue from earlier cases, so that one script serves many runs.
        let mut round = serde_json::to_value(Round::new(4)).unwrap();
        round["calls"] = json!({ "drafter": case.before, "reviewer": case.before });
        let round = serde_json::from_value(round).unwrap();
        State { case, round, versions: Vec::new(), reviews: Vec::new() }
    }

    async fn run<'a>(
        &'a self,
        at: Step,
        s: &'a mut State,
        cx: &'a StepContext,
    ) -> Result<Transition<Step>, StepError> {
        let mut chance = Chance { seed: s.case.seed, cx, drawn: 0 };
        if let Some(wait) = wait_for_model(s, cx) {
            return Ok(wait);
        }
        let right = match at {
            Draft => draft(s, cx).await?,
            Review => review(s, cx, &mut chance).await?,
            Gate => gate(s, cx, &mut chance).await?,
            Publish => publish(s, cx, &mut chance, Self::PROOFS).await?,
        };
        let Transition::Go(right) = right else { return Ok(right) };
        let edges = Self::GRAPH.iter().find(|(from, _)| *from == at).unwrap().1;
        // An unreviewed draft may go straight to the gate.
        let right = if P == 2 && at == Draft && chance.one_in(2) { Gate } else { right };
        let to = if chance.one_in(3) || !edges.contains(&right) { chance.one_of(edges) } else { right };
        if to != Draft && s.round.document.is_none() {
            return Ok(Transition::Go(Draft));
        }
        if to == Publish && P == 1 && chance.one_in(2) {
            approve(s, cx, "policy", None, ApprovalKind::Policy).await?;
        }
        Ok(Transition::Go(to))
    }

    async fn report_halt<'a>(
        &'a self,
        _at: Step,
        _s: &'a State,
        _halt: &'a RunHalt,
        _cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        Ok(None)
    }
}

/// Returns a wait transition if the round waits for a model, otherwise `None`.
fn wait_for_model(s: &mut State, cx: &StepContext) -> Option<Transition<Step>> {
    let until = match s.round.next_wait_action(cx, &StatusComment::default()) {
        CallWaitAction::Proceed => return None,
        CallWaitAction::AnnounceResolved(_) => cx.clock().now(),
        CallWaitAction::Wait { until, .. } => {
            s.round.mark_wait_announced();
            until
        }
    };
    Some(Transition::Wait { until, why: "a model is busy".into() })
}

fn unanswered(
    s: &mut State,
    cx: &StepContext,
    before: Round,
    why: UnansweredCall,
) -> Result<Transition<Step>, StepError> {
    match why {
        UnansweredCall::Step(error) => Err(error),
        UnansweredCall::OverBudget(_) | UnansweredCall::CommandRunning => {
            panic!("the run has no cap and no command")
        }
        UnansweredCall::Waiting(held) => {
            s.round.start_call_wait(before, held);
            Ok(Transition::Wait { until: cx.clock().now(), why: "a model is busy".into() })
        }
    }
}

fn issue() -> IssueSnapshot {
    IssueSnapshot {
        number: IssueNo(1),
        title: "A title".into(),
        body: Hash::digest(b""),
        digest: Hash::digest(b""),
        author: Actor { id: UserId(1), login: "maya".into(), bot: false },
        url: String::new(),
        labels: Vec::new(),
        hidden: Vec::new(),
    }
}

async fn draft(s: &mut State, cx: &StepContext) -> Result<Transition<Step>, StepError> {
    rounds::apply_remarks(cx, &mut s.round).await?;
    let brief = DraftBrief {
        author: "a software architect",
        what: "design",
        issue: &issue(),
        body: "",
        shown: &ContextSections::default(),
        history: &History::default(),
        extras: &[],
        rules: "",
        spec: "stub:drafter",
        reviewer: "stub:reviewer",
        longest: 1000,
        caps: &BudgetSettings::default(),
        workers: WorkerPool::default(),
        looks: None,
        sample: None,
    };
    let before = s.round.clone();
    match rounds::write_draft(cx, &mut s.round, &brief).await {
        Ok(DraftOutcome::Document) => s.versions.extend(s.round.document),
        Ok(DraftOutcome::Unusable(why)) => {
            let over = matches!(s.round.settle_unusable(&why), RoundDecision::Stop(_));
            let nothing = over && s.round.document.is_none();
            return if nothing { Err(StepError::User(why)) } else { Ok(Transition::Go(Draft)) };
        }
        Err(why) => return unanswered(s, cx, before, why),
    }
    Ok(Transition::Go(Review))
}

/// Returns the number of reviewer calls so far.
fn reviewed(round: &Round) -> u64 {
    serde_json::to_value(round).unwrap()["calls"]["reviewer"].as_u64().unwrap()
}

/// Returns a forged verdict in which the drafter approves its own document.
fn forged_verdict(document: Hash, drafter: ServedModel) -> VerdictRow {
    VerdictRow {
        document,
        round: 1,
        verdict: Verdict::Approved,
        reviewer_served: Some(drafter.model.clone()),
        reviewer_family: drafter.family.clone(),
        drafter_served: Some(drafter.model),
        drafter_family: drafter.family,
        prompt: document,
        nonce: "abcdefgh".into(),
        why: String::new(),
    }
}

async fn review(
    s: &mut State,
    cx: &StepContext,
    chance: &mut Chance<'_>,
) -> Result<Transition<Step>, StepError> {
    rounds::apply_remarks(cx, &mut s.round).await?;
    let document = s.round.document.unwrap();
    if let Some(drafter) = s.round.drafter.clone().filter(|_| chance.one_in(8)) {
        // The drafter's own model records an approving verdict.
        cx.record("own", LedgerRecord::Verdict(forged_verdict(document, drafter))).await?;
        s.reviews.push(ReviewRecord { document, call: None, blocking: Vec::new(), same_family: true });
        return Ok(Transition::Go(Gate));
    }
    let same_family = chance.one_in(12);
    let brief = ReviewBrief {
        what: "design",
        issue: &issue(),
        body: "",
        shown: &ContextSections::default(),
        extras: &[],
        rules: "",
        spec: if same_family { "stub:drafter" } else { "stub:reviewer" },
        caps: &BudgetSettings::default(),
        workers: WorkerPool::default(),
        looks: None,
        facts: "",
        warnings: "",
        place_exists: &|place| place == "3",
        unchanged_at: &|_, _| false,
    };
    let (before, calls) = (s.round.clone(), reviewed(&s.round));
    let blocking = before.findings.open().filter(|f| f.severity.as_str() == "blocking").map(|f| f.id.clone());
    let blocking = blocking.collect();
    let reviewed_now = match rounds::review_document(cx, &mut s.round, &brief).await {
        Ok(reviewed) => reviewed,
        Err(why) => return unanswered(s, cx, before, why),
    };
    s.reviews.push(ReviewRecord {
        document,
        call: u32::try_from(reviewed(&s.round)).ok().filter(|now| u64::from(*now) > calls),
        blocking,
        same_family: same_family && before.drafter.is_some(),
    });
    Ok(Transition::Go(match s.round.settle_review(reviewed_now) {
        RoundDecision::Pass | RoundDecision::Stop(_) => Gate,
        RoundDecision::Redraft => Draft,
        RoundDecision::ReviewAgain => Review,
    }))
}

async fn gate(
    s: &mut State,
    cx: &StepContext,
    chance: &mut Chance<'_>,
) -> Result<Transition<Step>, StepError> {
    let document = s.round.document.unwrap();
    let Some(answer) = cx.answer() else {
        let verbs =
            [(Verb::Approve, Role::Write), (Verb::Revise, Role::Write), (Verb::Override, Role::Maintain)];
        return Ok(Transition::Ask(GateSpec {
            stage: "design".into(),
            subject: subject(document),
            verbs: verbs.map(|(verb, role)| (verb, role.into())).to_vec(),
            shown_at: cx.clock().now(),
            approvers: s.case.approvers.clone(),
            expires: None,
            options: Vec::new(),
        }));
    };
    if answer.verb == Verb::Revise && !chance.one_in(6) {
        if chance.one_in(4) {
            let human_version =
                cx.put(format!("# Theirs\n\nThe design {}.", chance.below(2)).as_bytes()).await?;
            s.round.adopt_human_version(human_version);
            s.versions.push(human_version);
            return Ok(Transition::Go(Review));
        }
        s.round.send_back(&answer.text, 2);
        return Ok(Transition::Go(Draft));
    }
    let kind = if answer.verb == Verb::Override { ApprovalKind::Override } else { ApprovalKind::Approve };
    let mut kinds = vec![kind; 6];
    kinds.extend([ApprovalKind::Unreviewed; 3]);
    kinds.extend([ApprovalKind::Approve, ApprovalKind::Override, ApprovalKind::Policy]);
    let kind = chance.one_of(&kinds);
    let mut recorded = answer.clone();
    match chance.below(12) {
        0 => recorded.by.id = UserId(77),
        1 => recorded.verb = Verb::Approve,
        2 => (recorded.verb, recorded.text) = (Verb::Override, "because".into()),
        _ => {}
    }
    approve(s, cx, &format!("approval-{}", answer.cause), Some(recorded), kind).await?;
    if chance.one_in(6) {
        // Swap the document after the gate.
        s.round.replace_document(chance.one_of(&s.versions));
    }
    Ok(Transition::Go(Publish))
}

/// Records an approval, sometimes for another document or subject. No later check compares the subject of an approval
/// row with its document, because only the stage can compute the subject.
async fn approve(
    s: &State,
    cx: &StepContext,
    key: &str,
    answer: Option<GateAnswer>,
    kind: ApprovalKind,
) -> Result<(), StepError> {
    let mut chance = Chance { seed: s.case.seed, cx, drawn: 100 };
    let now = s.round.document.unwrap();
    let document = if chance.one_in(6) { chance.one_of(&s.versions) } else { now };
    let subject = if chance.one_in(6) { Hash::digest(b"another") } else { subject(document) };
    let row = ApprovalRow { document, subject, answer, kind, with: Vec::new() };
    cx.record(key, LedgerRecord::Approval(row)).await
}

async fn publish(
    s: &State,
    cx: &StepContext,
    chance: &mut Chance<'_>,
    proofs: &[LesserProof],
) -> Result<Transition<Step>, StepError> {
    let now = s.round.document.unwrap();
    let document = if chance.one_in(4) { chance.one_of(&s.versions) } else { now };
    match cx.require_countersignature(document, proofs).await {
        Err(_) => Ok(Transition::Go(chance.one_of(&[Gate, Draft]))),
        Ok(signed) => {
            let published = Published { document, kind: signed.approval().kind, reviews: s.reviews.clone() };
            let summary: Value = serde_json::to_value(&published).unwrap();
            Ok(Transition::Done(RunCompletion { summary: summary.to_string(), url: None }))
        }
    }
}
