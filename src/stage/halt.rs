//! The visit that tells people why a run ended.

use serde::{Deserialize, Serialize};

use super::{
    Document, Published, Stage, Target, Visit, after, before_showing, conclude, gates,
    show::{label, label_left, path, rehearsal, say_turn},
    straight_to, unclear,
};
use crate::{
    engine::{Halt, Kind, Outcome, Step, StepError},
    github::{Fault, Repo, decorated},
    messages::{self, Answering, HaltCard, HaltReason, Kept, Standing},
    publication::{self, OnBranch, Remains},
    rounds::{self, Cx, announce, fault},
};

/// Tells why the run ended. A person who stopped it knows; everyone else gets a comment. One that ended after its
/// approved commit was made has published, and is done.
pub async fn halted(
    s: &Stage,
    halt: &Halt,
    (doc, at): (&dyn Document, impl Step),
    cx: &Cx,
) -> Result<Option<Outcome>, StepError> {
    let v = &Visit { doc, at: at.info(), cx };
    match tell(s, halt, v).await {
        // The issue or the repository is gone: there is nobody left to tell here.
        Err(StepError::User(why)) => {
            tracing::info!(run = %v.cx.run().id, why, "the end of the run could not be shown");
            Ok(None)
        }
        told => told,
    }
}

/// What the visit that tells of the end finds on GitHub. The state is that of the beginning of the visit before,
/// whose effects nobody wrote down.
#[derive(Serialize, Deserialize)]
struct Found {
    /// The state label on the issue.
    label: Option<String>,
    /// The label that stops a run, if it is still on.
    stop: Option<String>,
    /// None where nobody is to be told of it.
    remains: Option<Remains>,
}

/// None: there is no issue to show anything on.
async fn find(s: &Stage, v: &Visit<'_>, repo: &Repo, told: bool) -> Result<Option<Found>, StepError> {
    let cx = v.cx;
    let issue = match repo.issue(cx.run().trigger.issue).await {
        Ok(issue) => issue,
        Err(Fault::NotFound { .. } | Fault::Gone { .. }) => return Ok(None),
        Err(other) => return Err(fault(other)),
    };
    let path = path(s).ok();
    let remains = match told {
        true if s.target(v) == Target::Comment => Some(Remains::default()),
        true => Some(publication::remains(cx, repo, path.as_deref(), s.proposal.as_ref()).await?),
        false => None,
    };
    let stop = rounds::stop_label_on(&issue.labels).map(str::to_owned);
    Ok(Some(Found { label: label_left(&issue.labels), stop, remains }))
}

async fn tell(s: &Stage, halt: &Halt, v: &Visit<'_>) -> Result<Option<Outcome>, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repo(cx).await?;
    let stopped = matches!(halt, Halt::Stopped { .. });
    let Some(found) = cx.once("found", |_| find(s, v, &repo, !stopped)).await? else { return Ok(None) };
    let mut s = s.clone();
    s.label = found.label.or(s.label);
    // Its first draft made it, or was about to; or an earlier end of the same run did.
    if !before_showing(v) || cx.visit() > straight_to(&s, v) + 1 {
        s.status = s.status.in_doubt();
        s.check.doubt();
    }
    let published = published(&s, v).await?;
    let merged = after::merged(&s, v, halt).await?;
    let outcome = match (merged, published) {
        (Some(commit), _) => Some(after::done(&mut s, v, commit).await?),
        (None, Some(published)) => match conclude(&mut s, v, published).await {
            // The same fault as before, perhaps: people are told of that one.
            Err(StepError::Bug(error)) if matches!(halt, Halt::Bug { .. }) => {
                tracing::error!(run = %cx.run().id, "what is left after publishing cannot be done: {error:#}");
                None
            }
            // The comment below may get through all the same.
            Err(StepError::User(why)) => {
                tracing::error!(run = %cx.run().id, why, "what is left after publishing cannot be done");
                None
            }
            concluded => Some(concluded?),
        },
        (None, None) => {
            after::learn(&s, v, false).await?;
            // A gate says it of itself.
            if stopped && v.at.kind != Kind::Gate {
                s.say(messages::run_was(&halt.sentence()));
            }
            let state = if stopped { messages::State::Stopped } else { messages::State::Failed };
            match say_turn(&mut s, v, "status", state).await {
                // The comment below may get through all the same.
                Err(StepError::User(why)) => {
                    tracing::warn!(run = %cx.run().id, why, "the end does not show in the status comment")
                }
                said => drop(said?),
            }
            None
        }
    };
    if let Some(remains) = found.remains.as_ref().filter(|_| outcome.is_none()) {
        let card = halt_card(&s, halt, remains, v);
        announce(cx, "halted", &messages::halted(&card)).await?;
    }
    // Labels last: nobody waits for them.
    if outcome.is_none() {
        label(&mut s, cx, messages::State::Stopped).await?;
    }
    if let Some(label) = found.stop {
        decorated(repo.remove_label(cx.run().trigger.issue, &label).await).map_err(fault)?;
    }
    let why = match halt {
        Halt::Stopped { .. } => messages::run_was(&halt.sentence()),
        _ => "the run could not go on, as the newest comment says".to_owned(),
    };
    if s.questions.as_ref().is_some_and(|questions| questions.waits().is_some()) {
        unclear::restate(&s, v, Answering::Ended(why.clone())).await?;
    }
    if v.at.kind == Kind::Gate || v.at.kind == Kind::Pause && s.wished.is_some() {
        // The visit before this one asked.
        gates::restate(&s, v, cx.visit() - 1, Standing::Ended(why)).await?;
    }
    Ok(outcome)
}

/// What the visit before this one published, if it did.
async fn published(s: &Stage, v: &Visit<'_>) -> Result<Option<Published>, StepError> {
    let cx = v.cx;
    match (v.doc.about().target, &s.proposal) {
        _ if v.at.kind != Kind::Publish => Ok(None),
        (Target::Issue, _) => Ok(v.doc.filed(cx).await?.map(Published::Filed)),
        // It was pushed before, and something else was to be.
        (Target::Code, Some(proposal)) if s.round.document != Some(proposal.document) => Ok(None),
        (Target::Branch | Target::Code, Some(proposal)) => {
            let there = cx.once("published-at", |_| publication::published(cx, proposal)).await?;
            Ok(there.map(|(audit, commit)| Published::Commit { audit, commit }))
        }
        (Target::Branch | Target::Code, None) | (Target::Comment, _) => Ok(None),
    }
}

/// What there is for people to go on from: on the branch, in the status comment, as a pull request.
fn kept(s: &Stage, remains: &Remains) -> Vec<Kept> {
    let (name, branch) = (path(s).unwrap_or_default(), remains.branch.clone());
    let (mut kept, mut there) = (Vec::new(), None);
    match &remains.seen {
        OnBranch::Nothing => {}
        OnBranch::Branch(None) => kept.push(Kept::Branch { name: branch }),
        OnBranch::Branch(Some((hash, url))) => {
            there = Some(*hash);
            kept.push(Kept::File { name: name.clone(), hash: *hash, url: url.clone() });
        }
        OnBranch::Unknown => kept.push(Kept::Unseen { branch }),
    }
    if let (Some(hash), Some(url)) = (s.round.document.filter(|hash| Some(*hash) != there), &s.status.url) {
        kept.push(Kept::Draft { name, hash, url: url.clone() });
    }
    kept.extend(remains.pull.clone().map(|(number, url)| Kept::Pull { number: number.0, url }));
    kept
}

fn halt_card(s: &Stage, halt: &Halt, remains: &Remains, v: &Visit<'_>) -> HaltCard {
    let reason = match halt {
        Halt::Bug { attempts, .. } => HaltReason::Bug { attempts: *attempts },
        Halt::Limit { moves } => HaltReason::MoveLimit { moves: *moves },
        Halt::User(_) | Halt::Stopped { .. } => HaltReason::Said(halt.sentence()),
    };
    let (command, run) = (v.doc.about().command(v.cx.run()), v.cx.run());
    let again = match v.cx.then() {
        // It was begun for what follows, and that begins it again.
        Some(next) if next == run.trigger.command => format!("/{next}"),
        _ if command.takes_text() => command.usage.to_owned(),
        // What can be left out of it would be taken for what is to be written.
        _ => format!("/{}", command.name),
    };
    HaltCard {
        run: v.cx.run().id,
        at_step: v.at.title.to_owned(),
        reason,
        kept: kept(s, remains),
        again,
        rehearsal: rehearsal(s, v.cx),
    }
}
