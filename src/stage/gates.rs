//! The gates: showing people a document and asking, hearing the answer, and the ways back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    DocumentGate, GateQuestion, PublicationTarget, StageState, StepResult, StepVisit,
    approvals::{ApprovalRules, accept},
    artifacts, document, merge_watch, still_wanted, views, waiting_steps,
};
use crate::{
    documents::hidden_text::{gathered, visible},
    engine::{
        APPROVE, AnswerRow, ApprovalKind, GateAnswer, GateSpec, LedgerRecord, LesserProof, RETRY, RunRemark,
        StepError, TextKind, TextRow,
    },
    messages::{
        self, ApproveLine, AuthorshipNote, CommitKind, GateReason, GateState, InconclusiveReason,
        RunDisplayState as Shown,
    },
    publication::{self, AnswerOutcome, BranchPolicy, CommitOutcome, GateUpdate, Proposal, Publication},
    rounds::{self, BaseCommit, IssueSnapshot, StatusUrgency, StepContext, announce, need, text_of},
    types::{CommentId, Hash, Role, Timestamp, Verdict},
};

/// What the open gate waits for an answer on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenGate {
    pub(super) subject: Hash,
    pub(super) shown_at: Timestamp,
    /// The gate comment, and the visit that made it.
    pub(super) url: String,
    #[serde(default)]
    pub(super) visit: u64,
    /// What people type to approve; none: the stage's name.
    #[serde(default)]
    word: Option<String>,
    /// The ways of accepting it, of which an approval names one.
    #[serde(default)]
    ways: Vec<String>,
    /// What was done to the comment last, which was put back since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) touched: Option<RunRemark>,
    /// People were reminded.
    #[serde(default)]
    reminded: bool,
}

impl OpenGate {
    /// One that is yet to be posted.
    pub(super) fn new(visit: u64, word: &str, subject: Hash, ways: Vec<String>) -> Self {
        let (shown_at, url, word) = (Timestamp(0), String::new(), Some(word.to_owned()));
        Self { subject, shown_at, url, visit, word, ways, touched: None, reminded: false }
    }

    pub(super) fn posted(self, (url, shown_at): (String, Timestamp)) -> Self {
        Self { url, shown_at, ..self }
    }

    fn word<'w>(&'w self, v: &StepVisit<'_>) -> &'w str {
        self.word.as_deref().unwrap_or(v.doc.about().stage)
    }

    /// What a person pastes.
    pub(super) fn line(&self, v: &StepVisit<'_>) -> ApproveLine {
        ApproveLine::approve(self.word(v), self.subject, &self.ways)
    }
}

impl StageState {
    /// Does the gate of this very visit wait for people?
    pub fn asks_in(&self, cx: &StepContext) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.visit == cx.visit())
    }
}

/// A person decides, or the policy says that nobody needs to.
pub async fn gate(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let Some(DocumentGate { word, asks, on, ways }) = v.doc.gate(v.at.id, need(&s.policy)?) else {
        return Err(StepError::Bug(anyhow::anyhow!("{} is no gate of this workflow", v.at.id)));
    };
    let asked_here = s.asks_in(cx);
    if asked_here {
        put_back(s, v).await?;
    }
    let Some(answer) = cx.answer() else {
        if let Some(exit) = settled(s, v, asks).await? {
            return Ok(exit);
        }
        if asked_here {
            return waits_on(s, v, asks).await;
        }
        return match asks {
            GateQuestion::Draft if !on => Ok(StepResult::Pass),
            // One that was reviewed comes here from there, because somebody has to see it.
            GateQuestion::Beforehand if !on && s.round.review.is_none() => Ok(StepResult::Pass),
            GateQuestion::Verdict if !on && review_is_enough(s, v).await? => Ok(StepResult::Pass),
            _ => ask(s, v, (word, ways), asks).await,
        };
    };
    if asked_here && let Some(exit) = unseen(s, v, asks, answer).await? {
        return Ok(exit);
    }
    match hear(s, v, answer).await? {
        AnswerOutcome::Again { subject, shown_at, now } => {
            ask_again(s, v, asks, (subject, shown_at), now).await
        }
        AnswerOutcome::Rewritten => ask_anew(s, v, ReopenReason::Rewritten).await,
        AnswerOutcome::Theirs(document) => take_over(s, v, document, Some(answer)).await,
        AnswerOutcome::Yes if answer.verb == RETRY => review_again(s, v, answer).await,
        AnswerOutcome::Yes => {
            let objection = match (answer.verb.as_str(), asks) {
                ("revise", _) => Some(answer.clone()),
                (_, GateQuestion::Draft) => None,
                _ => objection(cx, answer).await?,
            };
            if let Some(objection) = objection {
                if in_vain(s, cx, &objection.cause.to_string()).await? {
                    return Ok(StepResult::Ask(spec(s, v, asks, need(&s.asked)?)?));
                }
                return object(s, v, &objection).await;
            }
            let kind = match asks {
                GateQuestion::Draft | GateQuestion::Leave => None,
                GateQuestion::Unreviewed => Some(ApprovalKind::Unreviewed),
                GateQuestion::Verdict if answer.verb == "override" => Some(ApprovalKind::Override),
                GateQuestion::Beforehand | GateQuestion::Verdict => Some(ApprovalKind::Approve),
            };
            if let Some(kind) = kind {
                let asked = need(&s.asked)?.clone();
                if !accept(s, v, asked.subject, kind, Some(answer.clone())).await? {
                    restate(s, v, cx.visit(), GateState::Waits(asked.line(v))).await?;
                    return Ok(StepResult::Ask(spec(s, v, asks, &asked)?));
                }
            }
            answered(s, v, answer).await?;
            if asks == GateQuestion::Draft {
                s.asked = None;
            }
            Ok(StepResult::Pass)
        }
    }
}

/// Has the same version reviewed again, by the reviewer that the settings name now.
pub(super) async fn review_again(
    s: &mut StageState,
    v: &StepVisit<'_>,
    answer: &GateAnswer,
) -> Result<StepResult, StepError> {
    let why = format!("it is reviewed again, as {} asked", answer.by.login);
    restate(s, v, v.cx.visit(), GateState::Ended(why)).await?;
    let reviewer = async |_| Ok(String::clone(&v.cx.tools().reviewer.get()));
    let reviewer: String = v.cx.once("reviewer", reviewer).await?;
    s.policy.iter_mut().for_each(|policy| policy.reviewer.clone_from(&reviewer));
    (s.asked, s.approval, s.stop, s.wished) = (None, None, None, None);
    Ok(StepResult::ReviewAgain)
}

/// An approval without a hash, from when what stood on the page was not only ours, does not count.
pub(super) async fn unseen(
    s: &StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    answer: &GateAnswer,
) -> Result<Option<StepResult>, StepError> {
    if answer.verb != APPROVE || answer.hash.is_some() {
        return Ok(None);
    }
    let cx = v.cx;
    // It may have been booked before anybody knew.
    let key = format!("touched-{}", answer.cause);
    let before = |touched: &&RunRemark| touched.at <= answer.at;
    let by: Option<String> =
        cx.once(&key, |_| async { Ok(cx.touched().filter(before).map(|t| t.by.login.clone())) }).await?;
    if by.is_none() {
        return Ok(None);
    }
    let asked = need(&s.asked)?;
    let body = messages::too_soon(&asked.line(v), by.as_deref());
    announce(cx, &format!("hash-only-{}", answer.cause), &body).await?;
    Ok(Some(StepResult::Ask(spec(s, v, asks, asked)?)))
}

/// Does nobody attest who wrote some of the draft? Then no review of a further one would count either: whoever wants it is told
/// so, and none is bought.
pub(super) async fn in_vain(s: &StageState, cx: &StepContext, key: &str) -> Result<bool, StepError> {
    if s.round.is_unattested() {
        let why = messages::in_vain(&InconclusiveReason::DrafterUnattested);
        announce(cx, &format!("in-vain-{key}"), &why).await?;
    }
    Ok(s.round.is_unattested())
}

/// Says that the document goes back, and sends it there.
pub(super) async fn object(
    s: &mut StageState,
    v: &StepVisit<'_>,
    objection: &GateAnswer,
) -> Result<StepResult, StepError> {
    answered(s, v, objection).await?;
    if let Some(review) = objection.review.filter(|_| v.doc.about().target == PublicationTarget::Code) {
        merge_watch::take_remarks(s, v, review, &objection.by.login).await?;
    }
    send_back(s, v, &objection.text).await
}

/// Hears what people said of findings since, and which of them they insist on.
pub(super) async fn findings(s: &mut StageState, cx: &StepContext) -> Result<Vec<String>, StepError> {
    let said = rounds::hear(cx, &mut s.round).await?;
    s.hidden = gathered(s.hidden.iter().chain(&said.hidden));
    for review in said.reviews {
        s.after.reviewed(cx, review).await?;
    }
    Ok(said.insisted)
}

/// Hears what people said of findings since. What they insist on goes back to the drafter; where nothing that counts is
/// left, the same bytes are reviewed again; and what else they settled is shown where they are asked.
async fn settled(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
) -> Result<Option<StepResult>, StepError> {
    let (cx, before, hidden) = (v.cx, s.round.heard(), s.hidden.clone());
    let insisted = findings(s, cx).await?;
    if s.round.heard() == before {
        return Ok(None);
    }
    let counts = s.round.review.is_some() && asks != GateQuestion::Unreviewed;
    if counts && !insisted.is_empty() && !in_vain(s, cx, &s.round.heard().to_string()).await? {
        let which = insisted.join(", ");
        restate_asked(
            s,
            v,
            GateState::Ended(format!("{which} must be fixed first, so the drafter has it again")),
        )
        .await?;
        return send_back(s, v, &format!("{which} must be fixed.")).await.map(Some);
    }
    if counts && s.round.to_review_again() {
        let why = "what the review objected to was dismissed, so it is reviewed once more as it is";
        restate_asked(s, v, GateState::Ended(why.to_owned())).await?;
        (s.asked, s.approval, s.stop) = (None, None, None);
        return Ok(Some(StepResult::ReviewAgain));
    }
    let Some(line) = s.asked.as_ref().map(|asked| asked.line(v)) else { return Ok(None) };
    let heard = s.round.heard();
    s.overlaps =
        artifacts::overlaps(v, &format!("overlaps-{heard}"), &PublicationTexts::of(s, v).await?.paths)
            .await?;
    restate_asked(s, v, GateState::Waits(line)).await?;
    if s.hidden != hidden {
        let shown = views::status(s, v, Shown::NeedsYou).await?;
        s.status.show(cx, &format!("status-{heard}"), &shown, StatusUrgency::Turning).await?;
    }
    Ok(None)
}

/// Puts the comment that asks back, where somebody changed it since.
pub(super) async fn put_back(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let (cx, mut asked) = (v.cx, need(&s.asked)?.clone());
    let Some(touched) = cx.touched().filter(|touched| asked.touched.as_ref() != Some(touched)) else {
        return Ok(());
    };
    asked.touched = Some(touched.clone());
    s.asked = Some(asked.clone());
    let gate = views::gate(s, v, GateState::Waits(asked.line(v)), None).await?;
    let comment = CommentId(touched.text.parse().map_err(anyhow::Error::new)?);
    let key = format!("put-back-{}", touched.cause);
    if let Some((url, shown_at)) = publication::put_back(cx, &key, comment, &gate).await? {
        s.asked = Some(OpenGate { url, shown_at, ..asked });
    }
    Ok(())
}

/// Nobody has answered: looks at what time has brought about.
pub(super) async fn waits_on(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    still_wanted(s, cx).await?;
    let mut asked = need(&s.asked)?.clone();
    // Time only goes on: what is said here by the clock, a later attempt says as well.
    let (now, [remind, expire]) = (cx.clock().now(), times(s, &asked)?);
    if expire.is_some_and(|at| at <= now) {
        let days = need(&s.policy)?.gates.expire_days;
        return Err(StepError::User(messages::nobody_answered(days)));
    }
    if remind.is_some_and(|at| at <= now) {
        let reminder = views::reminder(s, v, &asked).await?;
        match announce(cx, "reminder", &reminder).await {
            Err(StepError::User(why)) => tracing::info!(run = %cx.run().id, why, "nobody could be reminded"),
            told => drop(told?),
        }
        asked.reminded = true;
    }
    let spec = spec(s, v, asks, &asked)?;
    s.asked = Some(asked);
    Ok(StepResult::Ask(spec))
}

/// When people are reminded, if they are yet, and when the run ends without them.
fn times(s: &StageState, asked: &OpenGate) -> Result<[Option<Timestamp>; 2], StepError> {
    let rules = &need(&s.policy)?.gates;
    let after = |days: u32| {
        let day = Duration::from_secs(24 * 3600);
        (days > 0).then(|| asked.shown_at.plus(day * days))
    };
    Ok([after(rules.remind_days).filter(|_| !asked.reminded), after(rules.expire_days)])
}

/// Where the policy asks nobody about what the reviewer approved: is there nothing else that a person has to see? Others'
/// files on the branch are, and so is an issue that somebody wrote who may not write here, or that is another one by now.
pub(super) async fn review_is_enough(s: &mut StageState, v: &StepVisit<'_>) -> Result<bool, StepError> {
    let cx = v.cx;
    s.asked_because = None;
    let declared = v.doc.about().proofs.contains(&LesserProof::Policy);
    // A loop that led nowhere is for people, whatever stands there as the best of it.
    let approved = views::verdict(s) == Verdict::Approved && s.stop.is_none();
    if !declared || !approved || s.foreign.is_some() {
        return Ok(false);
    }
    still_wanted(s, cx).await?;
    let repo = cx.tools().repo(cx).await?;
    let stranger = cx.once("stranger", |_| rounds::stranger(cx, &repo)).await?;
    let issue: IssueSnapshot = cx.once("issue-now", |_| cx.tools().issue(cx, &repo)).await?;
    s.asked_because = match stranger {
        Some(login) => Some(GateReason::Stranger(login)),
        None if rounds::as_it_was(cx, need(&s.issue)?.digest, issue.digest).await? => None,
        None => Some(GateReason::IssueEdited),
    };
    if waiting_steps::waiver_is_over(cx) {
        s.asked_because = Some(GateReason::WaiverOver);
    }
    if s.asked_because.is_some() {
        return Ok(false);
    }
    let subject = subject(s, v, None).await?;
    accept(s, v, subject, ApprovalKind::Policy, None).await?;
    Ok(true)
}

/// What a publication is made of, besides what the run knows.
struct PublicationTexts {
    path: String,
    stands: Hash,
    paths: Vec<String>,
    files: Vec<(String, Option<Hash>)>,
}

impl PublicationTexts {
    async fn of(s: &StageState, v: &StepVisit<'_>) -> Result<Self, StepError> {
        let text = document(s, v.cx).await?;
        let mut files = Vec::new();
        for (path, text) in v.doc.files(&text)? {
            let hash = match text {
                Some(text) => Some(v.cx.put(text.as_bytes()).await?),
                None => None,
            };
            files.push((path, hash));
        }
        let stands = match v.doc.report(&text) {
            Some(report) => v.cx.put(report.as_bytes()).await?,
            None => *need(&s.round.document)?,
        };
        Ok(Self { path: views::path(s)?, stands, paths: v.doc.paths(&text), files })
    }

    fn publication<'a>(&'a self, s: &'a StageState, v: &StepVisit<'_>) -> Result<Publication<'a>, StepError> {
        Ok(Publication {
            word: s.asked.as_ref().map_or(v.doc.about().stage, |asked| asked.word(v)),
            ways: s.asked.as_ref().map_or(&[][..], |asked| asked.ways.as_slice()),
            gate: v.at.id,
            issue: need(&s.issue)?,
            base: need(&s.base)?,
            path: &self.path,
            document: *need(&s.round.document)?,
            stands: self.stands,
            files: &self.files,
            paths: &self.paths,
            policy: need(&s.policy)?,
            on_issue: v.doc.about().target == PublicationTarget::Issue,
            in_comment: s.target(v) == PublicationTarget::Comment,
        })
    }
}

/// What an approval is of where nothing is on a branch yet, but what others have there.
async fn subject(s: &StageState, v: &StepVisit<'_>, foreign: Option<Hash>) -> Result<Hash, StepError> {
    let texts = PublicationTexts::of(s, v).await?;
    publication::subject(v.cx, need(&s.base)?, &texts.publication(s, v)?, foreign).await
}

/// Is what would be pushed the very thing that was approved at this gate? A later version of this program may make other
/// files or another report of the same text.
pub(super) async fn as_approved(
    s: &StageState,
    v: &StepVisit<'_>,
    gate: &'static str,
    approved: Hash,
) -> Result<bool, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repo(cx).await?;
    let base = cx.tools().fetch(cx, "base-now", &repo).await?;
    let texts = PublicationTexts::of(s, v).await?;
    let publication = Publication { gate, ..texts.publication(s, v)? };
    Ok(publication::subject(cx, &base, &publication, s.foreign).await? == approved)
}

/// Code goes over nothing that others have on the branch.
async fn over_nobody(s: &StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let texts = PublicationTexts::of(s, v).await?;
    let ours = |path: &str| path == texts.path || texts.files.iter().any(|(file, _)| file == path);
    match among(v.cx, s.foreign, ours).await? {
        Some(path) => Err(not_over(&path)),
        None => Ok(()),
    }
}

/// Others have none of the files on the branch that are to change: said before anything is paid for, as it would be said at
/// the gate.
pub(super) async fn free(cx: &StepContext, base: &BaseCommit, files: &[String]) -> Result<(), StepError> {
    let others = publication::foreign(cx, "others", Some((base, files))).await?;
    match among(cx, others, |path| files.iter().any(|file| file == path)).await? {
        Some(path) => Err(not_over(&path)),
        None => Ok(()),
    }
}

/// The first of the files that others have on the branch, as it was listed, that is one of ours.
pub(super) async fn among(
    cx: &StepContext,
    others: Option<Hash>,
    ours: impl Fn(&str) -> bool,
) -> Result<Option<String>, StepError> {
    let theirs = publication::foreign_files(cx, others).await?;
    Ok(theirs.into_iter().map(|file| file.path).find(|path| ours(path)))
}

pub(super) fn not_over(path: &str) -> StepError {
    StepError::User(format!(
        "Somebody changed `{path}` on the issue's branch, which this changes as well. Merge that or take it back, then start \
         anew."
    ))
}

/// Shows the document on its branch and asks people; the answer comes back to the same step.
async fn ask(
    s: &mut StageState,
    v: &StepVisit<'_>,
    (word, ways): (&str, &[&str]),
    asks: GateQuestion,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    still_wanted(s, cx).await?;
    let (subject, left) = match s.target(v) {
        PublicationTarget::Branch => match propose(s, v, None).await? {
            Ok(proposed) => proposed,
            Err(exit) => return Ok(exit),
        },
        PublicationTarget::Code => {
            let paths = PublicationTexts::of(s, v).await?.paths;
            s.foreign = publication::foreign(cx, "others", Some((need(&s.base)?, paths.as_slice()))).await?;
            over_nobody(s, v).await?;
            if let Some(diff) = v.doc.diff(&document(s, cx).await?) {
                let diff = cx.put(diff.as_bytes()).await?;
                cx.book("diff", LedgerRecord::Text(TextRow::of(TextKind::Diff, diff))).await?;
            }
            (subject(s, v, s.foreign).await?, None)
        }
        PublicationTarget::Comment | PublicationTarget::Issue => (subject(s, v, None).await?, None),
    };
    let repo = cx.tools().repo(cx).await?;
    s.rules = ApprovalRules::of(s, v, asks).await?;
    s.authorship = cx.once("authorship", |_| rounds::authorship(cx, &repo)).await?;
    s.authorship.extend(
        waiting_steps::waived(cx)
            .map(|(by, reason)| AuthorshipNote::Waived { by: by.to_owned(), reason: reason.to_owned() }),
    );
    let paths = PublicationTexts::of(s, v).await?.paths;
    s.overlaps = artifacts::leave_paths(v, &paths).await?;
    let asked = OpenGate::new(cx.visit(), word, subject, ways.iter().map(|way| (*way).to_owned()).collect());
    // A halt may have left one, of which nothing holds here.
    s.asked = None;
    let gate = views::gate(s, v, GateState::Waits(asked.line(v)), left).await?;
    let asked = asked.posted(announce(cx, publication::GATE, &gate).await?);
    let spec = spec(s, v, asks, &asked)?;
    s.asked = Some(asked);
    views::turn(s, v, Shown::NeedsYou).await?;
    Ok(StepResult::Ask(spec))
}

/// Puts the document on its branch, with a pull request that shows it. Returns what an approval of it is of, and the
/// branch that was left alone for it; or where else the run has to go. With the link of the audit chain about its approval it is
/// published with that: nothing follows it.
pub(super) async fn propose(
    s: &mut StageState,
    v: &StepVisit<'_>,
    audit: Option<Hash>,
) -> Result<Result<(Hash, Option<String>), StepResult>, StepError> {
    let cx = v.cx;
    let code = v.doc.about().target == PublicationTarget::Code;
    if code {
        over_nobody(s, v).await?;
    }
    let message = views::commit(s, v, CommitKind::Proposal, audit).await?;
    let texts = PublicationTexts::of(s, v).await?;
    let publication = texts.publication(s, v)?;
    let on = match (code, &s.proposal) {
        (true, _) => BranchPolicy::Accepted(s.foreign),
        (false, Some(_)) => BranchPolicy::Shown,
        (false, None) => BranchPolicy::Ours,
    };
    let landing = match publication::propose(cx, &publication, s.known, on, &message).await? {
        CommitOutcome::Ours(landing) => landing,
        CommitOutcome::Theirs(theirs) => return take_over(s, v, theirs, None).await.map(Err),
        CommitOutcome::AskAnew { rewritten, foreign } => {
            s.foreign = foreign;
            return ask_anew(s, v, ReopenReason::of(rewritten)).await.map(Err);
        }
    };
    let subject = publication::subject(cx, publication.base, &publication, landing.foreign).await?;
    (s.known, s.foreign) = (Some(texts.stands), landing.foreign);
    let stage = v.doc.about().stage;
    let title = views::title(s, v, false).await?;
    let section = views::pull(s, v, audit).await?;
    let known = s.proposal.clone();
    let publication = texts.publication(s, v)?;
    let proposal = match known.filter(|known| code && known.branch == landing.branch) {
        // Its pull request is there, and whatever people did to it since is theirs.
        Some(known) => known.with(&publication, landing.commit),
        None => {
            let ready = audit.is_some();
            publication::open_pull(cx, &publication, &landing, (&title, ready), (stage, &section)).await?
        }
    };
    s.proposal = Some(Proposal { audit, ..proposal });
    Ok(Ok((subject, landing.left)))
}

pub(super) fn spec(
    s: &StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    asked: &OpenGate,
) -> Result<GateSpec, StepError> {
    let mut verbs = vec![("revise".to_owned(), Role::Write.into())];
    let refused = s.round.review.as_ref().is_some_and(|review| review.verdict != Verdict::Approved);
    match asks {
        GateQuestion::Verdict if views::verdict(s) != Verdict::Approved => {
            verbs.push(("override".to_owned(), Role::Maintain.into()));
        }
        // What a review refused is sent back, for nobody asks about that review.
        GateQuestion::Beforehand if refused => {}
        _ => verbs.push(("approve".to_owned(), Role::Write.into())),
    }
    if s.round.may_review_again() {
        verbs.push((RETRY.to_owned(), Role::Triage.into()));
    }
    let OpenGate { subject, shown_at, .. } = *asked;
    let (stage, ways) = (asked.word(v).to_owned(), asked.ways.clone());
    // What is past is due at once: the next look sees to it.
    let soon = v.cx.clock().now().plus(Duration::from_secs(1));
    let expires = times(s, asked)?.into_iter().flatten().min().map(|at| at.max(soon));
    let mut approvers = s.rules.approvers();
    if asks == GateQuestion::Leave {
        // One person is enough, of those whom the settings ask about the files; all of them are asked at the document's gate.
        approvers.needed = 1;
    }
    Ok(GateSpec { stage, subject, verbs, shown_at, approvers, expires, ways })
}

/// Why people are asked anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReopenReason {
    /// Somebody rewrote the branch.
    Rewritten,
    /// Others changed what is on it.
    Changed,
    /// What would be published is not what was approved.
    Other,
    /// Others changed the issue whose place the document takes.
    Edited,
}

impl ReopenReason {
    pub(super) fn of(rewritten: bool) -> Self {
        if rewritten { Self::Rewritten } else { Self::Changed }
    }
}

/// Asks anew at the same gate, of which nothing that was said counts, and its comment says so: about the branch as it is
/// now, or about another where somebody rewrote it. That one's pull request is closed once the other has one, and is this
/// run's no more.
pub(super) async fn ask_anew(
    s: &mut StageState,
    v: &StepVisit<'_>,
    why: ReopenReason,
) -> Result<StepResult, StepError> {
    let rewritten = why == ReopenReason::Rewritten;
    let why = match why {
        ReopenReason::Rewritten => "somebody rewrote the branch, and a newer comment asks about another one",
        ReopenReason::Changed => {
            "others changed the branch before the approval was on it, and a newer comment asks about that"
        }
        ReopenReason::Other => {
            "what would be pushed is not what was approved any more, and a newer comment asks about that"
        }
        ReopenReason::Edited => {
            "the issue was edited before it could be filed, and a newer comment asks about that"
        }
    };
    restate_asked(s, v, GateState::Ended(why.to_owned())).await?;
    if rewritten {
        s.proposal = None;
    }
    (s.asked, s.approval) = (None, None);
    Ok(StepResult::AskAnew)
}

/// Keeps the gate open for what is there now.
async fn ask_again(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    (subject, shown_at): (Hash, Timestamp),
    now: Option<GateUpdate>,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let before = need(&s.asked)?.subject;
    let asked = OpenGate { subject, shown_at, ..need(&s.asked)?.clone() };
    let spec = spec(s, v, asks, &asked)?;
    let line = asked.line(v);
    s.asked = Some(asked);
    if let Some(GateUpdate { base, foreign, issue }) = now {
        s.foreign = foreign;
        // Code is pushed as it was tried, and on that commit where there is no branch.
        if v.doc.about().target != PublicationTarget::Code {
            s.base = Some(base);
        }
        s.issue = issue.map(|issue| *issue).or(s.issue.take());
        let standing = if subject == before { GateState::Waits(line) } else { GateState::WaitsAnew(line) };
        restate(s, v, cx.visit(), standing).await?;
        let cause = cx.answer().map(|a| a.cause.to_string()).unwrap_or_default();
        let shown = views::status(s, v, Shown::NeedsYou).await?;
        s.status.show(cx, &format!("status-{cause}"), &shown, StatusUrgency::Turning).await?;
    }
    Ok(StepResult::Ask(spec))
}

/// A `/revise` said at this gate after the answer that is being heard: an objection outweighs it.
pub(super) async fn objection(
    cx: &StepContext,
    answer: &GateAnswer,
) -> Result<Option<GateAnswer>, StepError> {
    cx.once(&format!("objection-{}", answer.cause), |_| async {
        let rows = cx.ledger().await?.answers;
        let heard =
            rows.iter().find(|(row, _)| row.answer.cause == answer.cause).map(|(row, _)| (row.id, row.gate));
        let objects = |row: &AnswerRow| {
            row.answer.verb == "revise" && heard.is_some_and(|(id, gate)| row.gate == gate && row.id > id)
        };
        Ok(rows.into_iter().map(|(row, _)| row).find(objects).map(|row| row.answer))
    })
    .await
}

/// Says in the gate comment of `visit` how it stands now.
pub(super) async fn restate(
    s: &StageState,
    v: &StepVisit<'_>,
    visit: u64,
    standing: GateState,
) -> Result<(), StepError> {
    let gate = views::gate(s, v, standing, None).await?;
    let key = match v.cx.answer() {
        Some(answer) => format!("restated-{}", answer.cause),
        None => format!("restated-{}", s.round.heard()),
    };
    publication::restate(v.cx, &key, visit, &gate).await
}

/// As [`restate`], in the comment that asked last, where what it says holds no more.
async fn restate_asked(s: &StageState, v: &StepVisit<'_>, standing: GateState) -> Result<(), StepError> {
    match &s.asked {
        // One of a version before this was kept: then it asked in the visit that hears the answer.
        Some(OpenGate { visit: 0, .. }) => restate(s, v, v.cx.visit(), standing).await,
        Some(asked) => restate(s, v, asked.visit, standing).await,
        None => Ok(()),
    }
}

/// As [`restate`], for the answer that ends this visit's gate.
pub(super) async fn answered(
    s: &StageState,
    v: &StepVisit<'_>,
    answer: &GateAnswer,
) -> Result<(), StepError> {
    let all = s.approval.as_ref().filter(|row| row.answer.as_ref() == Some(answer)).map(views::accepted_by);
    let by = all.unwrap_or_else(|| answer.by.login.clone());
    let (verb, at) = (answer.verb.clone(), answer.at);
    restate(s, v, v.cx.visit(), GateState::Answered { verb, by, at }).await
}

async fn hear(s: &StageState, v: &StepVisit<'_>, answer: &GateAnswer) -> Result<AnswerOutcome, StepError> {
    let cx = v.cx;
    still_wanted(s, cx).await?;
    let texts = PublicationTexts::of(s, v).await?;
    let asked = need(&s.asked)?;
    let publication = texts.publication(s, v)?;
    // Of code nothing is there before it was agreed to; an earlier push is not what is asked about.
    let proposal = s.proposal.as_ref().filter(|_| v.doc.about().target != PublicationTarget::Code);
    publication::hear(cx, answer, &publication, proposal, asked.subject, asked.shown_at).await
}

/// A maintainer's own version goes through every check and the review, like any other; nothing rewrites it
/// before it is looked at, unless they ask for that in the same breath.
pub(super) async fn take_over(
    s: &mut StageState,
    v: &StepVisit<'_>,
    document: Hash,
    answer: Option<&GateAnswer>,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    if v.doc.about().target == PublicationTarget::Code {
        return Err(not_over(&views::path(s)?));
    }
    match answer {
        Some(answer) if answer.verb == "revise" => answered(s, v, answer).await?,
        _ => {
            let (ours, theirs) = (self::document(s, cx).await?, text_of(cx, &document).await?);
            restate_asked(s, v, GateState::Replaced(publication::diff(&ours, &theirs))).await?;
        }
    }
    cx.book("theirs", LedgerRecord::Text(TextRow::of(TextKind::Person, document))).await?;
    s.round.take_over(document);
    s.approval = None;
    s.known = Some(document);
    if let Some(answer) = answer.filter(|a| a.verb == "revise") {
        return send_back(s, v, &answer.text).await;
    }
    let repo = cx.tools().repo(cx).await?;
    s.base = Some(cx.tools().fetch(cx, "their-base", &repo).await?);
    s.asked = None;
    Ok(StepResult::Theirs)
}

/// Back to the drafter with a person's words, and with the issue and the code as they are now.
pub(super) async fn send_back(
    s: &mut StageState,
    v: &StepVisit<'_>,
    words: &str,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let desk = cx.tools();
    let repo = desk.repo(cx).await?;
    s.issue = Some(cx.once("issue-again", |_| desk.issue(cx, &repo)).await?);
    let more = need(&s.policy)?.max_rounds;
    let words = visible(words);
    s.hidden = gathered(s.hidden.iter().chain(&words.hidden));
    s.round.send_back(&words.text, more);
    (s.asked, s.approval, s.edited) = (None, None, None);
    (s.stop, s.wished) = (None, None);
    Ok(StepResult::Reread)
}
