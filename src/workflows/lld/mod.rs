//! `lld`: an issue becomes a low-level design that a second model family has tried to break and a person has
//! approved.
//!
//! Ten steps; [`Lld::GRAPH`] is the whole of what may follow what. The only way to [`At::Finalize`] is
//! through review and the verdict gate, and what it publishes is bytes that both were about.

mod gates;
mod held;
mod show;

use serde::{Deserialize, Serialize};

use self::{
    gates::{Asked, answered, ask, ask_again, ask_anew, hear, objection, send_back, take_over},
    held::Paused,
};
use crate::{
    codebase,
    commands::{CommandKind, CommandSpec},
    documents::{Mistake, lld},
    engine::{
        ApprovalKind, ApprovalRow, Halt, Kind, Next, Outcome, Record, Step, StepError, Trigger, Workflow,
    },
    messages::{self, CommitKind, Quote, State as Shown},
    rounds::{
        self, Base, Brief, Cx, Desk, Drafted, Excerpt, Heard, IssueSnapshot, Landed, Policy, Proposal,
        ReviewBrief, Round, StatusComment, Stop, Turn, Urgency, fault, need, text_of,
    },
    types::{Hash, Role},
};

/// The workflow.
pub struct Lld;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum At {
    Load,
    Analyze,
    Draft,
    Fix,
    Check,
    TestPlan,
    DraftGate,
    Review,
    VerdictGate,
    Finalize,
    Budget,
}

impl Step for At {
    fn id(self) -> &'static str {
        match self {
            Self::Load => "N0",
            Self::Analyze => "N0b",
            Self::Draft => "N1",
            Self::Fix => "NP",
            Self::Check => "N1.5",
            Self::TestPlan => "N1b",
            Self::DraftGate => "N2",
            Self::Review => "N3",
            Self::VerdictGate => "N4",
            Self::Finalize => "N5",
            Self::Budget => "NM",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Load => "Load the issue",
            Self::Analyze => "Analyze the codebase",
            Self::Draft => "Draft the design",
            Self::Fix => "Fix mechanically",
            Self::Check => "Validate mechanically",
            Self::TestPlan => "Validate the test plan",
            Self::DraftGate => "Human gate: draft",
            Self::Review => "Adversarial review",
            Self::VerdictGate => "Human gate: verdict",
            Self::Finalize => "Finalize",
            Self::Budget => "Wait for money",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Load | Self::Analyze | Self::Fix | Self::Check | Self::TestPlan => Kind::Work,
            Self::Budget => Kind::Pause,
            Self::Draft => Kind::Draft,
            Self::Review => Kind::Review,
            Self::DraftGate | Self::VerdictGate => Kind::Gate,
            Self::Finalize => Kind::Publish,
        }
    }
}

/// Everything a run knows between its steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
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
    /// A source file that exists, for scripted answers.
    sample_path: Option<String>,
    /// Repairs made by code to the draft's form.
    repairs: usize,
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
    /// The state label on the issue.
    label: Option<String>,
    /// Why the loop handed the decision to people, when the verdict is not APPROVED.
    stop: Option<Stop>,
    /// The answer that opened the way to `Finalize`.
    approval: Option<ApprovalRow>,
    /// What such runs cost here before.
    #[serde(default)]
    quote: Option<Quote>,
    /// Why the run goes on only once there is money for it.
    #[serde(default)]
    paused: Option<Paused>,
}

/// Where the workflow's documents are announced: the word in `/approve lld 3f9c…`.
const STAGE: &str = "lld";

const WHAT: &str = "low-level design";

impl Workflow<Desk> for Lld {
    const NAME: &'static str = "lld";
    const VERSION: u32 = 1;
    type Step = At;
    type State = State;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Analyze]),
        (At::Analyze, &[At::Draft]),
        (At::Draft, &[At::Fix, At::Draft, At::Budget]),
        (At::Fix, &[At::Check]),
        (At::Check, &[At::TestPlan, At::Draft]),
        (At::TestPlan, &[At::DraftGate, At::Draft]),
        (At::DraftGate, &[At::Review, At::Analyze, At::Check, At::DraftGate]),
        (At::Review, &[At::VerdictGate, At::Draft, At::Budget]),
        (At::VerdictGate, &[At::Finalize, At::Analyze, At::Check, At::VerdictGate]),
        (At::Finalize, &[At::Check, At::VerdictGate]),
        (At::Budget, &[At::Draft, At::Review]),
    ];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "lld",
        usage: "/lld",
        about: "draft a low-level design for this issue and have it reviewed",
        role: Role::Triage,
        label: Some("countersign:lld"),
        kind: CommandKind::Starts,
    }];

    fn max_iterations() -> u32 {
        // A round that never reaches review goes round as well.
        2 * crate::config::MOST_ROUNDS
    }

    fn start(&self, _trigger: &Trigger) -> State {
        State::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut State, cx: &'a Cx) -> Result<Next<At>, StepError> {
        match at {
            At::Load => load(s, cx).await,
            At::Analyze => analyze(s, cx).await,
            At::Draft => draft(s, cx).await,
            At::Fix => fix(s, cx).await,
            At::Check => check(s, cx).await,
            At::TestPlan => test_plan(s, cx).await,
            At::DraftGate => draft_gate(s, cx).await,
            At::Review => review(s, cx).await,
            At::VerdictGate => verdict_gate(s, cx).await,
            At::Finalize => finalize(s, cx).await,
            At::Budget => held::budget(s, cx).await,
        }
    }

    async fn halted<'a>(
        &'a self,
        at: At,
        s: &'a State,
        halt: &'a Halt,
        cx: &'a Cx,
    ) -> Result<Option<Outcome>, StepError> {
        show::halted(at, s, halt, cx).await
    }
}

async fn load(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let desk = cx.tools();
    let repo = desk.repo(cx).await?;
    let issue: IssueSnapshot = cx.once("issue", |_| desk.issue(cx, &repo)).await?;
    if text_of(cx, &issue.body).await?.trim().is_empty() {
        return Err(StepError::User(
            "The issue has no text. Say in it what is wanted and how one would know it is done, then start anew."
                .to_owned(),
        ));
    }
    let policy: Policy = cx
        .once("policy", |_| async {
            let info = repo.info().await.map_err(fault)?;
            desk.policy(&repo, &info).await
        })
        .await?;
    show::offer_label(cx, &repo).await?;
    s.quote = cx.once("quote", |_| rounds::quote(cx)).await?;
    s.round = Round::new(policy.max_rounds);
    s.label = show::label_left(&issue.labels);
    s.issue = Some(issue);
    s.policy = Some(policy);
    Ok(Next::Go(At::Analyze))
}

async fn analyze(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let desk = cx.tools();
    let repo = desk.repo(cx).await?;
    let base = desk.fetch(cx, "fetch", &repo).await?;
    let words = words(s, cx).await?;
    let Excerpt { shown, left_out, sample_path } = rounds::excerpt(cx, &base, &words, &[]).await?;
    s.history = Some(rounds::history(cx, &base, need(&s.issue)?, &words).await?);
    (s.base, s.excerpt) = (Some(base), Some(shown));
    (s.left_out, s.sample_path) = (left_out, sample_path);
    Ok(Next::Go(At::Draft))
}

async fn draft(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    if let Some(next) = held::still(s, cx, At::Draft).await? {
        return Ok(next);
    }
    let issue = need(&s.issue)?.clone();
    let policy = need(&s.policy)?.clone();
    look(s, cx).await?;
    // On the straight way here nothing was shown yet. A visit that failed and is tried again may have shown something
    // and taken the knowledge with it.
    if s.status.url.is_none() && cx.visit() > straight_to(At::Draft) {
        s.status = s.status.clone().in_doubt();
    }
    let shown = show::status(s, cx, At::Draft, Shown::Working).await?;
    s.status.show(cx, "status", &shown, Urgency::Progress).await?;
    show::label(s, cx, messages::WORKING).await?;
    let body = text_of(cx, &issue.body).await?;
    let repository = repository(s, cx).await?;
    let history = rounds::remembered(cx, s.history).await?;
    let brief = Brief {
        what: WHAT,
        issue: &issue,
        body: &body,
        shown: &repository,
        history: &history,
        rules: &lld::format_rules(),
        spec: &policy.drafter,
        caps: &policy.caps,
        sample_path: s.sample_path.as_deref(),
    };
    let before = s.round.clone();
    let drafted = match rounds::draft(cx, &mut s.round, &brief).await {
        Ok(drafted) => drafted,
        Err(why) => return held::unanswered(s, cx, At::Draft, before, why).await,
    };
    match drafted {
        Drafted::Document => Ok(Next::Go(At::Fix)),
        Drafted::Unusable(why) => match s.round.settle_unusable(&why) {
            Turn::Pass | Turn::Again => Ok(Next::Go(At::Draft)),
            Turn::Stop(_) => {
                let tries = s.round.number;
                Err(StepError::User(format!("No usable draft after {tries} tries; at the last one, {why}.")))
            }
        },
    }
}

async fn fix(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let before = document(s, cx).await?;
    let (after, fixes) = lld::fix(&before, need(&s.issue)?.number);
    let document = cx.put(after.as_bytes()).await?;
    s.round.replace(document);
    s.repairs = fixes.len();
    Ok(Next::Go(At::Check))
}

async fn check(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let (base, text) = (need(&s.base)?, document(s, cx).await?);
    let tree = cx.tools().tree(cx, base).await?;
    let mut mistakes = lld::check(&text, need(&s.issue)?.number, &tree);
    // What is known of the code hangs on this version and this machine, the form of the text on neither.
    let names: Hash = cx
        .once("names", |_| async {
            let names =
                rounds::names(cx, base, tree, move |repository| lld::names(&text, repository)).await?;
            cx.put(&serde_json::to_vec(&names).map_err(anyhow::Error::new)?).await
        })
        .await?;
    let names = cx.get(&names).await?;
    mistakes.extend(serde_json::from_slice::<Vec<Mistake>>(&names).map_err(anyhow::Error::new)?);
    match s.round.settle_checks(mistakes) {
        Turn::Pass => Ok(Next::Go(At::TestPlan)),
        Turn::Again => Ok(Next::Go(At::Draft)),
        Turn::Stop(why) => Err(mechanical_halt(s, why)),
    }
}

async fn test_plan(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let mut mistakes = s.round.mistakes.clone();
    mistakes.extend(lld::coverage(&document(s, cx).await?));
    match s.round.settle_checks(mistakes) {
        Turn::Pass => Ok(Next::Go(At::DraftGate)),
        Turn::Again => Ok(Next::Go(At::Draft)),
        Turn::Stop(why) => Err(mechanical_halt(s, why)),
    }
}

/// Off by default. It asks before money is spent on a review; it never stands in for one.
async fn draft_gate(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    if !need(&s.policy)?.draft_gate {
        return Ok(Next::Go(At::Review));
    }
    let Some(answer) = cx.answer() else { return ask(s, cx, At::DraftGate).await };
    match hear(s, cx, At::DraftGate, answer).await? {
        Heard::Again { subject, shown_at, now } => {
            ask_again(s, cx, At::DraftGate, (subject, shown_at), now).await
        }
        Heard::Rewritten => ask_anew(s, cx, At::DraftGate, true).await,
        Heard::Theirs(document) => take_over(s, cx, document, Some(answer)).await,
        Heard::Yes => {
            answered(s, cx, answer).await?;
            if answer.verb == "revise" {
                return send_back(s, cx, answer).await;
            }
            s.asked = None;
            Ok(Next::Go(At::Review))
        }
    }
}

async fn review(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    if let Some(next) = held::still(s, cx, At::Review).await? {
        return Ok(next);
    }
    let issue = need(&s.issue)?.clone();
    let policy = need(&s.policy)?.clone();
    look(s, cx).await?;
    let shown = show::status(s, cx, At::Review, Shown::Working).await?;
    s.status.show(cx, "status", &shown, Urgency::Progress).await?;
    show::label(s, cx, messages::WORKING).await?;
    let body = text_of(cx, &issue.body).await?;
    let repository = repository(s, cx).await?;
    let source = document(s, cx).await?;
    let tree = cx.tools().tree(cx, need(&s.base)?).await?;
    let place_exists = |place: &str| lld::place_exists(&source, place, &tree);
    let brief = ReviewBrief {
        what: WHAT,
        issue: &issue,
        body: &body,
        shown: &repository,
        rules: &lld::format_rules(),
        spec: &policy.reviewer,
        caps: &policy.caps,
        facts: &facts(s),
        warnings: &warnings(s),
        place_exists: &place_exists,
        unchanged_at: &|before, place| lld::unchanged_at(before, &source, place),
    };
    let before = s.round.clone();
    let reviewed = match rounds::review(cx, &mut s.round, &brief).await {
        Ok(reviewed) => reviewed,
        Err(why) => return held::unanswered(s, cx, At::Review, before, why).await,
    };
    match s.round.settle_review(reviewed) {
        Turn::Again => Ok(Next::Go(At::Draft)),
        Turn::Pass => {
            s.stop = None;
            Ok(Next::Go(At::VerdictGate))
        }
        Turn::Stop(why) => {
            s.stop = Some(why);
            Ok(Next::Go(At::VerdictGate))
        }
    }
}

async fn verdict_gate(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let Some(answer) = cx.answer() else { return ask(s, cx, At::VerdictGate).await };
    match hear(s, cx, At::VerdictGate, answer).await? {
        Heard::Again { subject, shown_at, now } => {
            ask_again(s, cx, At::VerdictGate, (subject, shown_at), now).await
        }
        Heard::Rewritten => ask_anew(s, cx, At::VerdictGate, true).await,
        Heard::Theirs(document) => take_over(s, cx, document, Some(answer)).await,
        Heard::Yes => {
            let objection = match answer.verb.as_str() {
                "revise" => Some(answer.clone()),
                _ => objection(cx, answer).await?,
            };
            if let Some(objection) = objection {
                answered(s, cx, &objection).await?;
                return send_back(s, cx, &objection).await;
            }
            let kind = if answer.verb == "override" { ApprovalKind::Override } else { ApprovalKind::Approve };
            let row = ApprovalRow {
                document: need(&s.round.document)?.to_owned(),
                subject: need(&s.asked)?.subject,
                answer: answer.clone(),
                kind,
            };
            cx.record("approval", Record::Approval(row.clone())).await?;
            answered(s, cx, answer).await?;
            s.approval = Some(row);
            Ok(Next::Go(At::Finalize))
        }
    }
}

async fn finalize(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    let document = *need(&s.round.document)?;
    let signed = cx.countersigned(document).await?;
    let proposal = need(&s.proposal)?.clone();
    // If the approved commit is there already, the visit that tells of the end finds it and does the rest.
    look(s, cx).await?;
    let approval = signed.approval();
    let detail = serde_json::json!({
        "document": document, "subject": approval.subject, "by": approval.answer.by.id,
        "verb": approval.answer.verb, "reason": approval.answer.text, "at": approval.answer.at, "verdict": signed.verdict().verdict,
        "others": s.foreign,
    });
    let audit = cx.audit("approved", "a document was countersigned", detail).await?;
    let overridden = approval.kind == ApprovalKind::Override;
    let kind = CommitKind::Approval { by: approval.answer.by.login.clone(), overridden };
    let message = show::commit(s, cx, kind, Some(audit))?;
    let log = (show::log_path(&proposal.path), show::log(s, cx)?);
    let landing = match rounds::publish(cx, &signed, &proposal, s.foreign, log, &message).await? {
        Landed::Ours(landing) => landing,
        Landed::Theirs(theirs) => return take_over(s, cx, theirs, None).await,
        Landed::AskAnew { rewritten } => return ask_anew(s, cx, At::VerdictGate, rewritten).await,
    };
    s.proposal = Some(Proposal { commit: landing.commit, ..proposal });
    Ok(Next::Done(conclude(s, cx, audit).await?))
}

/// What is left to do once the approved commit, which names this link of the audit chain, is on the branch.
async fn conclude(s: &mut State, cx: &Cx, audit: Hash) -> Result<Outcome, StepError> {
    let proposal = need(&s.proposal)?.clone();
    show::update_pull(s, cx, "retitle", Some(audit), None).await?;
    show::turn(s, cx, At::Finalize, Shown::Done, messages::DONE).await?;
    Ok(Outcome {
        summary: format!("{} is approved and on {}", proposal.path, proposal.branch),
        url: Some(proposal.pull_url),
    })
}

/// The number of the visit that comes to this step first, if nothing is visited twice.
fn straight_to(at: At) -> u64 {
    Lld::GRAPH.iter().zip(1..).find(|((step, _), _)| *step == at).map_or(u64::MAX, |(_, number)| number)
}

/// Before a stage: is this still wanted?
async fn look(s: &State, cx: &Cx) -> Result<(), StepError> {
    cx.tools().look(cx, s.proposal.as_ref().map(|p| p.pull)).await
}

fn mechanical_halt(s: &State, why: Stop) -> StepError {
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

/// What the mechanical checks established, for the reviewer: words of ours, none of the document's.
fn facts(s: &State) -> String {
    format!(
        "- All required sections are there, the issue number is right, and every requirement has a scenario.\n\
         - Every path marked Modify or Delete exists at commit {}; every Add has a parent.\n\
         - What else is named of the repository was looked up there; what is surely missing is among the warnings. What \
         dependencies and builds make was not judged.\n",
        s.base.as_ref().map_or("unknown", |b| b.commit.as_str())
    )
}

fn warnings(s: &State) -> String {
    let warnings = s.round.mistakes.iter().filter(|m| !m.is_error());
    warnings.map(|m| format!("- {}: {}\n", m.place, m.message)).collect()
}

/// The files a design says it changes.
fn paths(design: &str) -> Vec<String> {
    lld::parse(design).files.into_iter().map(|row| row.path).collect()
}

/// What was asked for.
async fn words(s: &State, cx: &Cx) -> Result<String, StepError> {
    let issue = need(&s.issue)?;
    Ok(format!("{}\n{}", issue.title, text_of(cx, &issue.body).await?))
}

/// What the models are shown of the repository. Once there is a draft, the files that it changes come first.
async fn repository(s: &mut State, cx: &Cx) -> Result<codebase::Shown, StepError> {
    let files = match s.round.document {
        Some(document) => paths(&text_of(cx, &document).await?),
        None => Vec::new(),
    };
    if files.is_empty() {
        return rounds::shown(cx, need(&s.excerpt)?).await;
    }
    let words = words(s, cx).await?;
    let Excerpt { shown, left_out, .. } = rounds::excerpt(cx, need(&s.base)?, &words, &files).await?;
    s.left_out = left_out;
    rounds::shown(cx, &shown).await
}

async fn document(s: &State, cx: &Cx) -> Result<String, StepError> {
    text_of(cx, need(&s.round.document)?).await
}
