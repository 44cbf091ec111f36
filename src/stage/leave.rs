//! Leave: what a person alone may allow beyond what people approved before, as its drafter wants it: further files, or other
//! tests than those that are locked. It is no approval of the document, whose own gate still comes.

use serde::{Deserialize, Serialize};

use super::{
    Asks, Exit, Stage, Visit,
    approvals::Rules,
    gates::{self, Asked},
    show, still_wanted,
};
use crate::{
    engine::{APPROVE, RETRY, REVISE, StepError},
    messages::{self, LeaveCard, Standing, State as Shown},
    publication,
    rounds::{announce, need, text_of},
    types::{Hash, Timestamp, Verdict},
};

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// Files that the approved list lacks.
    Scope(Vec<String>),
    /// The document's tests, in the place of those that are locked; how they differ, as a stored text.
    Tests { diff: Hash },
}

impl Wish {
    /// The files that are wanted, if it is about files.
    pub fn paths(&self) -> &[String] {
        match self {
            Self::Scope(paths) => paths,
            Self::Tests { .. } => &[],
        }
    }

    /// What people type after `/approve`, and what else has to stand there.
    fn words(&self) -> (&'static str, Vec<String>) {
        match self {
            Self::Scope(paths) => {
                let all: Vec<String> = paths.iter().map(|path| format!("+{path}")).collect();
                ("scope", vec![all.join(" ")])
            }
            Self::Tests { .. } => ("tests", Vec::new()),
        }
    }
}

/// A wish that people are asked about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Wished {
    pub(super) wish: Wish,
    /// The step that it came up at.
    pub(super) at: String,
    /// What the review says of the document that it is about.
    #[serde(default)]
    verdict: Option<Verdict>,
}

impl Wished {
    pub(super) async fn card(
        &self,
        s: &Stage,
        v: &Visit<'_>,
        standing: Standing,
    ) -> Result<LeaveCard, StepError> {
        let diff = match &self.wish {
            Wish::Tests { diff } => Some(text_of(v.cx, diff).await?),
            Wish::Scope(_) => None,
        };
        Ok(LeaveCard {
            run: v.cx.run().id,
            paths: self.wish.paths().to_vec(),
            diff,
            verdict: self.verdict,
            again: s.round.may_review_again(),
            standing,
            rehearsal: show::rehearsal(s, v.cx),
        })
    }
}

/// What somebody allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub wish: Wish,
    /// The document that it was about.
    pub document: Hash,
    pub by: String,
    at: Timestamp,
}

impl Leave {
    /// For the gate, the pull request and the report.
    pub fn text(&self) -> String {
        messages::allowed(self.wish.paths(), self.document, &self.by, self.at)
    }
}

/// People are asked for this next, at the step for that.
///
/// # Errors
/// `User` where somebody else has such a file on the issue's branch.
pub async fn wish(s: &mut Stage, v: &Visit<'_>, wish: Wish) -> Result<Exit, StepError> {
    if let Wish::Scope(paths) = &wish {
        gates::free(v.cx, need(&s.base)?, &[v.doc.files_to_change(), paths.clone()].concat()).await?;
    }
    let verdict = s.round.review.as_ref().map(|review| review.verdict);
    s.wished = Some(Wished { wish, at: v.at.id.to_owned(), verdict });
    Ok(Exit::Beyond)
}

/// Asks, and hears what people say: they allow it, or send the drafter back.
pub async fn leave(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    still_wanted(s, cx).await?;
    let Wished { wish, .. } = need(&s.wished)?.clone();
    let document = *need(&s.round.document)?;
    if s.asked.as_ref().is_none_or(|asked| asked.visit != cx.visit()) {
        return ask(s, v, &wish, document).await;
    }
    gates::put_back(s, v).await?;
    let Some(answer) = cx.answer() else { return gates::waits_on(s, v, Asks::Leave).await };
    if answer.verb == APPROVE && answer.commit.is_some() {
        let asked = need(&s.asked)?;
        let body = messages::not_by_review(&asked.line(v));
        announce(cx, &format!("not-by-review-{}", answer.cause), &body).await?;
        return Ok(Exit::Ask(gates::spec(s, v, Asks::Leave, asked)?));
    }
    if answer.verb == RETRY {
        return gates::review_again(s, v, answer).await;
    }
    if let Some(exit) = gates::unseen(s, v, Asks::Leave, answer).await? {
        return Ok(exit);
    }
    let objection = match answer.verb.as_str() {
        REVISE => Some(answer.clone()),
        _ => gates::objection(cx, answer).await?,
    };
    if let Some(objection) = objection {
        if gates::in_vain(s, cx, &objection.cause.to_string()).await? {
            return Ok(Exit::Ask(gates::spec(s, v, Asks::Leave, need(&s.asked)?)?));
        }
        return gates::object(s, v, &objection).await;
    }
    let asked = need(&s.asked)?;
    if publication::told_edited(cx, answer, need(&s.issue)?, &asked.line(v)).await? {
        return Ok(Exit::Ask(gates::spec(s, v, Asks::Leave, asked)?));
    }
    gates::answered(s, v, answer).await?;
    (s.wished, s.asked) = (None, None);
    s.leaves.push(Leave { wish, document, by: answer.by.login.clone(), at: answer.at });
    s.round.allow(need(&s.policy)?.max_rounds);
    Ok(Exit::Pass)
}

async fn ask(s: &mut Stage, v: &Visit<'_>, wish: &Wish, document: Hash) -> Result<Exit, StepError> {
    let cx = v.cx;
    s.rules = Rules::of(s, v, Asks::Leave).await?;
    let (word, ways) = wish.words();
    let said = ways.concat();
    let subject = Hash::of_parts([word.as_bytes(), said.as_bytes(), document.to_string().as_bytes()]);
    let asked = Asked::new(cx.visit(), word, subject, ways);
    // What was done to a comment that asked before is none of this one's.
    s.asked = None;
    let body = show::gate(s, v, Standing::Waits(asked.line(v)), None).await?;
    let asked = asked.posted(announce(cx, publication::GATE, &body).await?);
    let spec = gates::spec(s, v, Asks::Leave, &asked)?;
    s.asked = Some(asked);
    show::turn(s, v, Shown::NeedsYou).await?;
    Ok(Exit::Ask(spec))
}
