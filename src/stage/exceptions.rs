//! Exceptions: a drafter may request more than people approved, such as further files or changes to locked tests. Only
//! a person may grant an exception. Granting one does not approve the document, which still has to pass its own gate.

use serde::{Deserialize, Serialize};

use super::{
    GateQuestion, StageState, StepResult, StepVisit,
    approvals::ApprovalRules,
    gates::{self, OpenGate},
    require_still_wanted, views,
};
use crate::{
    engine::StepError,
    messages::{self, ExceptionCard, GateState, RunDisplayState as Shown},
    publication,
    rounds::{load_text, post_announcement, require_state},
    types::{Hash, Timestamp, Verb, Verdict},
};

/// The exception that a drafter requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExceptionRequest {
    /// Permission to change these files, which are not in the approved list.
    Scope(Vec<String>),
    /// Permission to replace the locked tests by the document's version; `diff` is the hash of the stored diff between
    /// the two.
    Tests { diff: Hash },
}

impl ExceptionRequest {
    /// Returns the files that the request is about; empty if it is about tests.
    pub fn paths(&self) -> &[String] {
        match self {
            Self::Scope(paths) => paths,
            Self::Tests { .. } => &[],
        }
    }

    /// Returns the word that must follow `/approve`, and the options that must follow the word.
    fn approve_words(&self) -> (&'static str, Vec<String>) {
        match self {
            Self::Scope(paths) => {
                let all: Vec<String> = paths.iter().map(|path| format!("+{path}")).collect();
                ("scope", vec![all.join(" ")])
            }
            Self::Tests { .. } => ("tests", Vec::new()),
        }
    }
}

/// An exception request that waits for a person's decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PendingException {
    pub(super) wish: ExceptionRequest,
    /// Id of the step that made the request.
    pub(super) at: String,
    /// Verdict on the document when the exception was requested.
    #[serde(default)]
    verdict: Option<Verdict>,
}

impl PendingException {
    pub(super) async fn exception_card(
        &self,
        s: &StageState,
        v: &StepVisit<'_>,
        standing: GateState,
    ) -> Result<ExceptionCard, StepError> {
        let diff = match &self.wish {
            ExceptionRequest::Tests { diff } => Some(load_text(v.cx, diff).await?),
            ExceptionRequest::Scope(_) => None,
        };
        Ok(ExceptionCard {
            run: v.cx.run().id,
            paths: self.wish.paths().to_vec(),
            diff,
            verdict: self.verdict,
            can_review_again: s.round.can_review_again(),
            state: standing,
            rehearsal: views::is_rehearsal(s, v.cx),
        })
    }
}

/// An exception that a person granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    pub wish: ExceptionRequest,
    /// Hash of the document for which the exception was granted.
    pub document: Hash,
    pub by: String,
    at: Timestamp,
}

impl Exception {
    pub fn new(wish: ExceptionRequest, document: Hash, by: String, at: Timestamp) -> Self {
        Self { wish, document, by, at }
    }

    /// Returns a sentence that describes the exception, for the gate, the pull request and the report.
    pub fn sentence(&self) -> String {
        messages::exception_sentence(self.wish.paths(), self.document, &self.by, self.at)
    }
}

/// Records the request. The exception gate then asks people for a decision.
///
/// # Errors
/// `User` if somebody else changed one of the files on the issue's branch.
pub async fn request_exception(
    s: &mut StageState,
    v: &StepVisit<'_>,
    wish: ExceptionRequest,
) -> Result<StepResult, StepError> {
    if let ExceptionRequest::Scope(paths) = &wish {
        gates::require_free_files(
            v.cx,
            require_state(&s.base)?,
            &[v.doc.files_to_change(), paths.clone()].concat(),
        )
        .await?;
    }
    let verdict = s.round.review.as_ref().map(|review| review.verdict);
    s.wished = Some(PendingException { wish, at: v.at.id.to_owned(), verdict });
    Ok(StepResult::NeedsException)
}

/// Asks people and handles their answer: either grants the exception or sends the document back to the drafter.
pub async fn run_exception_gate(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    require_still_wanted(s, cx).await?;
    let PendingException { wish, .. } = require_state(&s.wished)?.clone();
    let document = *require_state(&s.round.document)?;
    if s.asked.as_ref().is_none_or(|asked| asked.visit != cx.visit()) {
        return open_exception_gate(s, v, &wish, document).await;
    }
    gates::restore_gate_comment(s, v).await?;
    let Some(answer) = cx.answer() else { return gates::keep_waiting(s, v, GateQuestion::Exception).await };
    if answer.verb == Verb::Approve && answer.commit.is_some() {
        let asked = require_state(&s.asked)?;
        let body = messages::review_not_counted_reply(&asked.approve_line(v));
        post_announcement(cx, &format!("not-by-review-{}", answer.cause), &body).await?;
        return Ok(StepResult::Ask(gates::gate_spec(s, v, GateQuestion::Exception, asked)?));
    }
    if answer.verb == Verb::Retry {
        return gates::review_again(s, v, answer).await;
    }
    if let Some(exit) = gates::refuse_unseen_approval(s, v, GateQuestion::Exception, answer).await? {
        return Ok(exit);
    }
    let objection = match answer.verb {
        Verb::Revise => Some(answer.clone()),
        _ => gates::find_objection(cx, answer).await?,
    };
    if let Some(objection) = objection {
        return gates::apply_objection(s, v, GateQuestion::Exception, &objection).await;
    }
    let asked = require_state(&s.asked)?;
    if publication::reply_if_issue_edited(cx, answer, require_state(&s.issue)?, &asked.approve_line(v))
        .await?
    {
        return Ok(StepResult::Ask(gates::gate_spec(s, v, GateQuestion::Exception, asked)?));
    }
    gates::mark_answered(s, v, answer).await?;
    (s.wished, s.asked) = (None, None);
    s.leaves.push(Exception { wish, document, by: answer.by.login.clone(), at: answer.at });
    s.round.allow_more_drafts(require_state(&s.policy)?.max_rounds);
    Ok(StepResult::Pass)
}

async fn open_exception_gate(
    s: &mut StageState,
    v: &StepVisit<'_>,
    wish: &ExceptionRequest,
    document: Hash,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    s.rules = ApprovalRules::for_gate(s, v, GateQuestion::Exception).await?;
    let (word, ways) = wish.approve_words();
    let said = ways.concat();
    let subject = Hash::digest_parts([word.as_bytes(), said.as_bytes(), document.to_string().as_bytes()]);
    let asked = OpenGate::new(cx.visit(), word, subject, ways);
    // An edit of an earlier gate comment does not concern this one.
    s.asked = None;
    let body = views::gate_body(s, v, GateState::Waits(asked.approve_line(v)), None).await?;
    let asked = asked.with_comment(post_announcement(cx, publication::GATE_COMMENT, &body).await?);
    let spec = gates::gate_spec(s, v, GateQuestion::Exception, &asked)?;
    s.asked = Some(asked);
    views::show_state(s, v, Shown::NeedsYou).await?;
    Ok(StepResult::Ask(spec))
}
