//! What the two gates share: showing people a design and asking, hearing the answer, and the ways back.

use serde::{Deserialize, Serialize};

use super::{At, STAGE, State, document, look, paths, show};
use crate::{
    engine::{Answer, AnswerRow, GateSpec, Next, Step, StepError},
    messages::{self, CommitKind, Standing, State as Shown},
    rounds::{self, Cx, Heard, Landed, Now, Publication, Urgency, need},
    types::{Hash, Role, Timestamp, Verdict},
};

/// What the open gate waits for an answer on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) subject: Hash,
    pub(super) shown_at: Timestamp,
    /// The gate comment, and the visit that made it.
    pub(super) url: String,
    #[serde(default)]
    visit: u64,
}

/// Shows the document on its branch and asks people; the answer comes back to the same step.
pub(super) async fn ask(s: &mut State, cx: &Cx, at: At) -> Result<Next<At>, StepError> {
    look(s, cx).await?;
    let issue = need(&s.issue)?.clone();
    let policy = need(&s.policy)?.clone();
    let base = need(&s.base)?.clone();
    let path = show::path(s)?;
    let paths = paths(&document(s, cx).await?);
    let publication = Publication {
        stage: STAGE,
        gate: at.id(),
        issue: &issue,
        base: &base,
        path: &path,
        document: *need(&s.round.document)?,
        paths: &paths,
        policy: &policy,
    };
    let message = show::commit(s, cx, CommitKind::Proposal, None)?;
    let landing = match rounds::propose(cx, &publication, s.known, s.proposal.is_some(), &message).await? {
        Landed::Ours(landing) => landing,
        Landed::Theirs(theirs) => return take_over(s, cx, theirs, None).await,
        Landed::AskAnew { rewritten } => return ask_anew(s, cx, at, rewritten).await,
    };
    s.known = s.round.document;
    s.foreign = landing.foreign;
    let subject = rounds::subject(cx, &base, &publication, s.foreign).await?;
    let title = messages::pull_title(STAGE, issue.number, &issue.title, false);
    let body = show::pull(s, cx, None, None).await?;
    s.proposal = Some(rounds::open_pull(cx, &publication, &landing, &title, &body).await?);
    let gate = show::gate(s, cx, Standing::Waits(show::line(subject)), landing.left).await?;
    let (url, shown_at) = rounds::announce(cx, rounds::GATE, &gate).await?;
    s.asked = Some(Asked { subject, shown_at, url, visit: cx.visit() });
    show::turn(s, cx, at, Shown::NeedsYou, messages::NEEDS_YOU).await?;
    Ok(Next::Ask(spec(s, at, subject, shown_at)))
}

fn spec(s: &State, at: At, subject: Hash, shown_at: Timestamp) -> GateSpec {
    let mut verbs = vec![("revise".to_owned(), Role::Write)];
    if at == At::DraftGate || show::verdict(s) == Verdict::Approved {
        verbs.push(("approve".to_owned(), Role::Write));
    } else {
        verbs.push(("override".to_owned(), Role::Maintain));
    }
    GateSpec { stage: STAGE.to_owned(), subject, verbs, shown_at, needed: 1, expires: None }
}

/// Asks anew at the same gate, of which nothing that was said counts, and its comment says so: about the branch as it is
/// now, or about another where somebody rewrote it. That one's pull request is closed once the other has one, and is this
/// run's no more.
pub(super) async fn ask_anew(s: &mut State, cx: &Cx, at: At, rewritten: bool) -> Result<Next<At>, StepError> {
    let why = match rewritten {
        true => "somebody rewrote the branch, and a newer comment asks about another one",
        false => {
            "others changed the branch before the approval was on it, and a newer comment asks about that"
        }
    };
    restate_asked(s, cx, Standing::Ended(why.to_owned())).await?;
    if rewritten {
        s.proposal = None;
    }
    (s.asked, s.approval) = (None, None);
    Ok(Next::Go(at))
}

/// Keeps the gate open for what is there now.
pub(super) async fn ask_again(
    s: &mut State,
    cx: &Cx,
    at: At,
    (subject, shown_at): (Hash, Timestamp),
    now: Option<Now>,
) -> Result<Next<At>, StepError> {
    let asked = need(&s.asked)?.clone();
    let before = asked.subject;
    s.asked = Some(Asked { subject, shown_at, ..asked });
    if let Some(Now { base, foreign }) = now {
        (s.base, s.foreign) = (Some(base), foreign);
        let line = show::line(subject);
        let standing = if subject == before { Standing::Waits(line) } else { Standing::WaitsAnew(line) };
        restate(s, cx, cx.visit(), standing).await?;
        let cause = cx.answer().map(|a| a.cause.to_string()).unwrap_or_default();
        let shown = show::status(s, cx, at, Shown::NeedsYou).await?;
        s.status.show(cx, &format!("status-{cause}"), &shown, Urgency::Turning).await?;
    }
    Ok(Next::Ask(spec(s, at, subject, shown_at)))
}

/// A `/revise` said at this gate after the answer that is being heard: an objection outweighs it.
pub(super) async fn objection(cx: &Cx, answer: &Answer) -> Result<Option<Answer>, StepError> {
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

/// Says in the gate comment of `visit`, and on the pull request, how it stands now. What was accepted says so on the
/// pull request once it is there.
pub(super) async fn restate(s: &State, cx: &Cx, visit: u64, standing: Standing) -> Result<(), StepError> {
    let counts = match &standing {
        Standing::Waits(line) | Standing::WaitsAnew(line) => Some(line.clone()),
        _ => None,
    };
    let gate = show::gate(s, cx, standing.clone(), None).await?;
    let key = cx.answer().map_or("restated".to_owned(), |answer| format!("restated-{}", answer.cause));
    let pull = s.proposal.as_ref().map(|proposal| proposal.pull);
    let lines = format!("/approve {STAGE} ");
    rounds::restate(cx, &key, Some((visit, &gate)), (&lines, counts.as_ref()), pull).await?;
    if pull.is_none() || standing.accepted() {
        return Ok(());
    }
    show::update_pull(s, cx, &format!("{key}-pull"), None, Some(standing)).await
}

/// As [`restate`], in the comment that asked last, where what it says holds no more.
async fn restate_asked(s: &State, cx: &Cx, standing: Standing) -> Result<(), StepError> {
    match &s.asked {
        Some(asked) => restate(s, cx, asked.visit, standing).await,
        None => Ok(()),
    }
}

/// Once a pause is over, the line that ends it is of no more use.
pub(super) async fn unpause(s: &State, cx: &Cx) -> Result<(), StepError> {
    let pull = s.proposal.as_ref().map(|proposal| proposal.pull);
    rounds::restate(cx, "unpaused", None, ("/budget ", None), pull).await
}

/// As [`restate`], for the answer that ends this visit's gate.
pub(super) async fn answered(s: &State, cx: &Cx, answer: &Answer) -> Result<(), StepError> {
    let (verb, by, at) = (answer.verb.clone(), answer.by.login.clone(), answer.at);
    restate(s, cx, cx.visit(), Standing::Answered { verb, by, at }).await
}

pub(super) async fn hear(s: &State, cx: &Cx, at: At, answer: &Answer) -> Result<Heard, StepError> {
    look(s, cx).await?;
    let (issue, policy, base) = (need(&s.issue)?, need(&s.policy)?, need(&s.base)?);
    let (proposal, asked) = (need(&s.proposal)?, need(&s.asked)?);
    let paths = paths(&document(s, cx).await?);
    let publication = Publication {
        stage: STAGE,
        gate: at.id(),
        issue,
        base,
        path: &proposal.path,
        document: *need(&s.round.document)?,
        paths: &paths,
        policy,
    };
    rounds::hear(cx, answer, &publication, proposal, asked.subject, asked.shown_at).await
}

/// A maintainer's own version goes through every check and the review, like any other; nothing rewrites it
/// before it is looked at, unless they ask for that in the same breath.
pub(super) async fn take_over(
    s: &mut State,
    cx: &Cx,
    document: Hash,
    answer: Option<&Answer>,
) -> Result<Next<At>, StepError> {
    match answer {
        Some(answer) if answer.verb == "revise" => answered(s, cx, answer).await?,
        _ => restate_asked(s, cx, Standing::Replaced).await?,
    }
    s.round.take_over(document);
    s.known = Some(document);
    if let Some(answer) = answer.filter(|a| a.verb == "revise") {
        return send_back(s, cx, answer).await;
    }
    let repo = cx.tools().repo(cx).await?;
    s.base = Some(cx.tools().fetch(cx, "their-base", &repo).await?);
    s.asked = None;
    Ok(Next::Go(At::Check))
}

/// Back to the drafter with a person's words, and with the issue and the code as they are now.
pub(super) async fn send_back(s: &mut State, cx: &Cx, answer: &Answer) -> Result<Next<At>, StepError> {
    let desk = cx.tools();
    let repo = desk.repo(cx).await?;
    s.issue = Some(cx.once("issue-again", |_| desk.issue(cx, &repo)).await?);
    let more = need(&s.policy)?.max_rounds;
    s.round.send_back(&answer.text, more);
    s.asked = None;
    s.stop = None;
    Ok(Next::Go(At::Analyze))
}
