//! The round: draft → fix → check → review → settle.
//!
//! It is the building block of all workflows whose product is a document: a serde struct, and functions that a
//! workflow's steps call. A workflow keeps its own steps and edges, so that all its transitions are in one table.
//!
//! Every result of a model call is a value here: a good, an unusable and a missing response each lead to an edge. Only
//! waits (`StepError::Later`), faults that a person must fix (`StepError::User`) and bugs of the bot itself
//! (`StepError::Bug`) end an attempt.

mod adversarial;
mod announcements;
mod budget;
mod call_retries;
mod call_waits;
mod ci;
mod code_questions;
mod commit_cache;
mod draft;
mod excerpt;
mod history;
mod model_calls;
mod name_checks;
mod open_questions;
mod prompt;
mod review;
mod routing;
mod run_preconditions;
mod search_plan;
mod small_model;
mod status_comment;
mod step_services;
mod tool_loop;

pub use adversarial::{AdversarialTestSet, record_adversarial_findings, request_adversarial_tests};
pub use announcements::{comment_marker, post_announcement, post_announcement_on};
pub use budget::{
    BudgetShortfall, ResumeDecision, pause_for_budget, quote_cost, resume_from_budget_pause, run_spending,
};
pub use call_waits::{CallWaitAction, UnansweredCall};
pub use ci::{CiState, CiStatus, describe_failing_checks, read_ci_status};
pub use code_questions::answer_code_question;
pub use commit_cache::CommitCache;
pub use draft::{DraftBrief, DraftOutcome, PromptExtra, load_text, write_draft};
pub use excerpt::{CodeExcerpt, choose_code_excerpt, load_code_excerpt};
pub use history::{load_history, store_history};
pub use model_calls::ServedModel;
pub use name_checks::{check_code_names, find_test_placement, read_raw_files, read_shown_files};
pub use open_questions::find_open_questions;
pub use review::{ReviewBrief, record_findings, review_document};
pub use routing::{RoutingRequest, RoutingResult, route_request};
pub use run_preconditions::{
    MERGED, SWITCHED_OFF, find_outside_author, github_error, is_issue_unchanged, is_switched_off,
    read_authorship, stop_label_on, unknown_actor,
};
pub use search_plan::plan_searches;
pub use status_comment::{STATUS_MARKER, StatusComment, StatusUrgency};
pub use step_services::{BaseCommit, IssueSnapshot, Policy, StepServices, git_error};
pub use tool_loop::{COMMAND_POLL_INTERVAL, ToolCallCounts, ToolSession};

use std::collections::{BTreeMap, BTreeSet};

use review::ReviewOutcome;
use serde::{Deserialize, Serialize};

use crate::{
    documents::{
        DocumentMistake, MistakeSeverity,
        edits::{FindingDisposition, FindingReply},
        findings::{Finding, FindingLedger, FindingStatus},
        hidden_text::{self, HiddenText},
        verdict,
    },
    engine::{self, RemarkKind, RunRemark, StepError},
    messages::InconclusiveReason,
    types::{Family, Hash, Role, Verdict},
};

/// Context in which the bot's steps run.
pub type StepContext = engine::AttemptContext<StepServices>;

/// Maximum number of comments of one review that are shown to the drafter. Further comments are ignored.
pub const MOST_REVIEW_REMARKS: usize = 50;

/// Returns the lowest role that may make this kind of remark on a finding.
pub fn role_to_settle(kind: RemarkKind, blocking: bool) -> Role {
    if kind == RemarkKind::Dismiss && blocking { Role::Maintain } else { Role::Write }
}

/// Effects of applying people's remarks to the findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemarkEffects {
    /// Ids of findings that people insist on.
    pub insisted: Vec<String>,
    /// Invisible characters that were removed from people's remarks.
    pub hidden: Vec<HiddenText>,
    /// Remarks that review the pushed change.
    pub reviews: Vec<RunRemark>,
}

/// Applies new remarks to the round's findings and records the changed findings.
pub async fn apply_remarks(cx: &StepContext, round: &mut Round) -> Result<RemarkEffects, StepError> {
    let remarks = cx.remarks(round.applied_remarks()).await?;
    if remarks.is_empty() {
        return Ok(RemarkEffects::default());
    }
    let said = round.apply_remarks(&remarks);
    record_findings(cx, round).await?;
    Ok(said)
}

/// Returns the value of a state field that an earlier step must have set, or an error if the field is empty.
pub fn require_state<T>(left: &Option<T>) -> Result<&T, StepError> {
    left.as_ref().ok_or_else(|| StepError::Bug(anyhow::anyhow!("an earlier step did not set this state")))
}

/// Whether a field has its default value, in which case serde skips it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// State of a document on its way between drafter, reviewer and people.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Round {
    /// Number of drafts requested so far. This is the loop's only counter, and only `write_draft` changes it.
    pub number: u32,
    /// Maximum of `number`. A person's `/revise` raises the maximum, so that each such answer allows further drafts.
    pub cap: u32,
    /// Number of reviews requested so far, no matter who wrote the documents.
    pub reviews: u32,
    /// Number of calls made per role or task, including failed calls.
    calls: BTreeMap<String, u32>,
    pub document: Option<Hash>,
    /// Model that wrote the current version of the document. `None` if a person wrote it.
    pub drafter: Option<ServedModel>,
    /// Whether a part of the document was written by an unidentified model: its response did not name a known model.
    #[serde(default, skip_serializing_if = "is_default")]
    unattested: bool,
    /// Mistakes found by the mechanical checks. They come first in the drafter's prompt.
    pub mistakes: Vec<DocumentMistake>,
    /// The reviewer's findings over all rounds, with their status.
    pub findings: FindingLedger,
    /// Review of the current `document`. `None` if the document has not been reviewed since its last change.
    pub review: Option<ReviewOutcome>,
    /// Number of repository files that were cut from the last prompt.
    #[serde(default)]
    pub unshown: usize,
    /// Last version that was reviewed since a person's last answer. The next review is limited to the changes since
    /// that version.
    #[serde(default)]
    compared: Option<Hash>,
    /// A person's feedback that no review has judged yet.
    pub feedback: Option<String>,
    /// Replies of the newest draft to findings and to people's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<FindingReply>,
    /// Reason why the drafter's last response was unusable, without quoting the model.
    #[serde(default, skip_serializing_if = "is_default")]
    unusable: Option<String>,
    /// Number of the run's remarks that have been applied so far.
    #[serde(default, skip_serializing_if = "is_default")]
    heard: u64,
    /// Whether a person dismissed a finding since the last review was requested.
    #[serde(default, skip_serializing_if = "is_default")]
    dismissed: bool,
    /// One record per round, shown to people.
    pub history: Vec<RoundRecord>,
    /// Reviewed version with the fewest open objections. It is kept so that a loop does not end with a worse version.
    best: Option<BestVersion>,
    /// Families of the models that drafted in this run. If a person replaced the document, only drafts after that
    /// count.
    #[serde(default)]
    authors: Vec<Family>,
    /// Mistakes of the previous draft. They are used to tell repeated mistakes from new ones.
    mistakes_before: Vec<String>,
    /// Names that the checks have already reported as wrong in this run.
    #[serde(default)]
    named: BTreeSet<String>,
    /// Current wait for a model, and the earlier waits of this visit.
    #[serde(default)]
    waits: call_waits::VisitWaits,
    /// Number of tool calls made by the models.
    #[serde(default, skip_serializing_if = "is_default")]
    looked: ToolCallCounts,
    /// Number of consecutive drafts that repeated the same mistakes.
    strikes: u32,
    /// Whether checks refused a draft since the last review.
    #[serde(default, skip_serializing_if = "is_default")]
    is_refused: bool,
}

/// Record of one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundRecord {
    pub round: u32,
    /// Document of the round; `None` if the round produced no document.
    pub document: Option<Hash>,
    /// Verdict of the review. `None` if the draft did not reach review.
    pub verdict: Option<Verdict>,
    /// Reason given by the reviewer. Without a verdict, our explanation.
    pub why: String,
    /// Number of findings or mistakes that are still open.
    pub open: usize,
    /// Model that wrote the document. `None` if a person wrote it, or if no draft exists yet.
    pub drafter: Option<ServedModel>,
    /// Model that reviewed the document; `None` if it was not reviewed.
    pub reviewer: Option<ServedModel>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct BestVersion {
    document: Hash,
    review: ReviewOutcome,
    drafter: Option<ServedModel>,
    #[serde(default, skip_serializing_if = "is_default")]
    unattested: bool,
    /// Findings as they were when the version was reviewed.
    findings: FindingLedger,
    /// Warnings about the version.
    #[serde(default, skip_serializing_if = "is_default")]
    mistakes: Vec<DocumentMistake>,
    open: usize,
}

/// Next step of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundDecision {
    /// No objections are left, so the workflow continues.
    Pass,
    /// The document goes back to the drafter.
    Redraft,
    /// The same bytes are reviewed again, because people dismissed all findings that had to be resolved.
    ReviewAgain,
    /// The loop stops, and a person decides how to continue.
    Stop(LoopStopReason),
}

/// Reason why the loop stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStopReason {
    /// The policy allows no more drafts.
    Cap,
    /// The same objections came back, so another round would repeat them.
    Stalled,
    /// The review gave no verdict.
    Inconclusive,
}

impl Round {
    pub fn new(cap: u32) -> Self {
        Self { cap, ..Self::default() }
    }

    /// Whether the loop stopped without a verdict and another review of the same version may give one.
    pub fn can_review_again(&self) -> bool {
        self.review.as_ref().is_some_and(ReviewOutcome::can_be_retried)
    }

    /// Sets a new version of the document and discards the review of the old version.
    pub fn replace_document(&mut self, document: Hash) {
        if self.document != Some(document) {
            self.document = Some(document);
            self.review = None;
        }
    }

    /// Returns to the version of `before`, with its authors and its review, because the newest draft changed nothing.
    pub fn keep_version(&mut self, before: &Self) {
        self.document = before.document;
        self.review.clone_from(&before.review);
        (self.drafter, self.authors) = (before.drafter.clone(), before.authors.clone());
        self.unattested = before.unattested;
    }

    /// Whether the current version has an APPROVED review.
    pub fn is_approved(&self) -> bool {
        self.review.as_ref().is_some_and(|review| review.verdict == Verdict::Approved)
    }

    /// Records the author of the current version. Earlier authors remain recorded, because their text is still in the
    /// document.
    fn record_drafter(&mut self, by: ServedModel) {
        self.authors.extend(by.family.clone().filter(|family| !self.authors.contains(family)));
        self.unattested = self.is_unattested() || by.family.is_none();
        self.drafter = Some(by);
    }

    /// Whether an unidentified model wrote a part of the current version: its response did not name a known model. If
    /// so, no review of the version is accepted.
    pub fn is_unattested(&self) -> bool {
        self.unattested || matches!(self.drafter, Some(ServedModel { family: None, .. }))
    }

    /// Returns the families of all models that wrote parts of the document. The list is empty for a maintainer's own
    /// version.
    fn author_families(&self) -> Vec<Family> {
        let Some(drafter) = &self.drafter else { return Vec::new() };
        self.authors.iter().chain(&drafter.family).cloned().collect()
    }

    /// Replaces the document with a person's own version, which no model wrote and nobody has reviewed.
    pub fn adopt_human_version(&mut self, document: Hash) {
        self.replace_document(document);
        self.drafter = None;
        self.unattested = false;
        self.authors.clear();
        self.compared = None;
        // An earlier version of ours must not replace it.
        self.best = None;
    }

    /// Starts the rounds of the next document with `drafts` as the maximum number of drafts. Resets the review state
    /// but keeps the authors, because their text may also be in this document.
    pub fn start_next_document(&mut self, drafts: u32) {
        let before = std::mem::take(self);
        *self = Self {
            number: before.number,
            cap: before.number + drafts,
            reviews: before.reviews,
            calls: before.calls,
            drafter: before.drafter,
            unattested: before.unattested,
            authors: before.authors,
            heard: before.heard,
            findings: before.findings,
            history: before.history,
            looked: before.looked,
            ..Self::default()
        };
    }

    /// Allows one more draft if the limit is reached.
    pub fn allow_another_draft(&mut self) {
        self.cap = self.cap.max(self.number + 1);
        self.strikes = 0;
    }

    /// Forgets the best version, so that this version cannot replace the next document.
    pub fn forget_best_version(&mut self) {
        self.best = None;
    }

    /// Sends the document back to the drafter with a person's feedback, and allows `more` further drafts.
    pub fn send_back(&mut self, words: &str, more: u32) {
        self.feedback = Some(words.to_owned());
        self.compared = None;
        self.allow_more_drafts(more);
    }

    /// Allows `more` further drafts after a person's answer.
    pub fn allow_more_drafts(&mut self, more: u32) {
        self.cap = self.number + more.max(1);
        self.strikes = 0;
    }

    /// Applies people's remarks on findings. A remark is ignored if its author's role does not allow it for the
    /// finding's current severity.
    fn apply_remarks(&mut self, remarks: &[RunRemark]) -> RemarkEffects {
        let mut said = RemarkEffects::default();
        for remark in remarks {
            self.heard += 1;
            if remark.kind == RemarkKind::Reviewed {
                said.reviews.push(remark.clone());
            }
            let (id, by) = (&remark.finding, &remark.by.login);
            let Some(finding) = self.findings.get(id) else { continue };
            if remark.role
                < role_to_settle(remark.kind, finding.severity == verdict::FindingSeverity::Blocking)
            {
                continue;
            }
            match remark.kind {
                RemarkKind::Dismiss => {
                    let reason = hidden_text::visible_text(&remark.text);
                    self.dismissed |= self.findings.dismiss(id, &reason.text, by).is_ok();
                    said.hidden.extend(reason.hidden);
                }
                RemarkKind::MustFix => {
                    said.insisted
                        .extend(self.findings.require_fix(id, by).ok().map(|finding| finding.id.clone()));
                }
                RemarkKind::CommentEdited
                | RemarkKind::Overlaps
                | RemarkKind::CheckPushed
                | RemarkKind::Reviewed
                | RemarkKind::Reviewer => {}
            }
        }
        said
    }

    /// Returns the number of the run's remarks that have been applied so far.
    pub fn applied_remarks(&self) -> u64 {
        self.heard
    }

    /// Returns the counts of tool calls that the models have made so far.
    pub fn tool_calls(&self) -> ToolCallCounts {
        self.looked
    }

    /// Whether people dismissed all findings that the review requires to be resolved. A dismissal does not change the
    /// verdict, so the same bytes must be reviewed again without another draft.
    pub fn needs_another_review(&self) -> bool {
        let refused = |review: &ReviewOutcome| matches!(review.verdict, Verdict::Revise | Verdict::Blocked);
        self.dismissed
            && self.feedback.is_none()
            && self.review.as_ref().is_some_and(refused)
            && !self.mistakes.iter().any(DocumentMistake::is_error)
            && !self.findings.open().any(Finding::must_be_resolved)
    }

    /// Decides the next step after the mechanical checks. Without errors, the workflow continues. Otherwise all
    /// mistakes are sent to the drafter at once, or the loop stops.
    pub fn settle_checks(&mut self, mut mistakes: Vec<DocumentMistake>) -> RoundDecision {
        self.downgrade_name_mistakes(&mut mistakes);
        self.downgrade_disputed_mistakes(&mut mistakes);
        let open = mistakes.iter().filter(|m| m.is_error()).count();
        let told = |m: &DocumentMistake| format!("{} {} {}", m.rule, m.place, m.message);
        // A name is reported only once, so it never counts as the same mistake.
        let errors: Vec<String> =
            mistakes.iter().filter(|m| m.is_error() && m.about.is_none()).map(told).collect();
        self.mistakes = mistakes;
        if open == 0 {
            // The next check may still fail, so only a review resets the strikes.
            return RoundDecision::Pass;
        }
        let same = !errors.is_empty() && errors == self.mistakes_before;
        self.strikes = if same { self.strikes + 1 } else { 0 };
        self.history.push(self.round_record(None, format!("{open} found by code"), open));
        self.mistakes_before = errors;
        self.is_refused = true;
        self.redraft_or_stop()
    }

    /// Records a draft's replies. The reviewer judges the mistakes that the author disputes.
    fn record_replies(&mut self, replies: Vec<FindingReply>) {
        let mistakes = &self.mistakes;
        let of_check = |reply: &FindingReply| {
            let id = reply.finding.trim().strip_prefix(['M', 'm'])?.parse::<usize>().ok()?;
            mistakes.get(id.checked_sub(1)?).filter(|mistake| mistake.is_error() && mistake.is_disputable())
        };
        for reply in replies.iter().filter(|reply| reply.disposition == FindingDisposition::Disputed) {
            if let Some(mistake) = of_check(reply) {
                self.findings.dispute(mistake, reply.why.clone());
            }
        }
        self.replies.clone_from(&replies);
        self.findings.record_replies(replies);
    }

    /// Downgrades disputed mistakes to warnings, until the reviewer upholds them and after the reviewer or a person set
    /// them aside. In the last allowed draft, people decide at the gate about those that the reviewer upheld.
    fn downgrade_disputed_mistakes(&self, mistakes: &mut [DocumentMistake]) {
        let last = self.number >= self.cap;
        let is_allowed = |dispute: &Finding| match dispute.is_open() {
            true => dispute.reply.is_some() || last,
            false => dispute.status != FindingStatus::Fixed,
        };
        for mistake in
            mistakes.iter_mut().filter(|mistake| self.findings.dispute_of(mistake).is_some_and(is_allowed))
        {
            mistake.severity = MistakeSeverity::Warning;
        }
    }

    /// Downgrades mistakes about names to warnings. A missing name may be a false positive that no draft can fix, so
    /// each name is an error only once per run. In a person's version and in the last allowed draft, all such mistakes
    /// are warnings. The reviewer judges the warnings.
    fn downgrade_name_mistakes(&mut self, mistakes: &mut [DocumentMistake]) {
        let all = self.drafter.is_none() || self.number >= self.cap;
        let left =
            |m: &&mut DocumentMistake| m.about.as_ref().is_some_and(|name| all || self.named.contains(name));
        mistakes.iter_mut().filter(left).for_each(|m| m.severity = MistakeSeverity::Warning);
        self.named.extend(mistakes.iter().filter_map(|m| m.about.clone()));
    }

    /// Decides the next step after failed adversarial tests: sends the document back to the drafter if another draft is
    /// allowed. Otherwise the reviewer judges the replies.
    pub fn settle_adversarial_tests(&self) -> RoundDecision {
        self.redraft_or_stop()
    }

    /// Decides the next step after an unusable response of the drafter: another draft, or a stop if the response failed
    /// for the same reason as the previous one.
    pub fn settle_unusable(&mut self, why: &str) -> RoundDecision {
        // An unusable draft is not a document, so the record must not name the previous one.
        self.history.push(RoundRecord {
            document: None,
            drafter: None,
            ..self.round_record(None, why.to_owned(), 0)
        });
        let fault = |why: &str| why.replace(|c: char| c.is_ascii_digit(), "");
        let before = self.unusable.replace(why.to_owned());
        match before.is_some_and(|before| fault(&before) == fault(why)) {
            true => RoundDecision::Stop(LoopStopReason::Stalled),
            false => self.redraft_or_stop(),
        }
    }

    /// Decides the next step after a review: continue, send the document back to the drafter, or stop because another
    /// round is pointless.
    pub fn settle_review(&mut self, reviewed: ReviewOutcome) -> RoundDecision {
        self.mistakes_before.clear();
        self.strikes = 0;
        self.feedback = None;
        // Drafts that never reached the reviewer must not use up the draft that fixes its findings.
        if std::mem::take(&mut self.is_refused) {
            self.allow_another_draft();
        }
        let document = self.document.expect("there is a document to review");
        let open = self.findings.open().filter(|f| f.must_be_resolved()).count();
        let verdict = reviewed.verdict;
        let why =
            reviewed.why.as_ref().map_or_else(|| reviewed.rationale.clone(), InconclusiveReason::sentence);
        let line = self.round_record(Some(verdict), why, self.findings.open().count());
        self.history.push(RoundRecord { reviewer: reviewed.reviewer.clone(), ..line });
        if verdict != Verdict::Inconclusive && self.best.as_ref().is_none_or(|b| open <= b.open) {
            let (review, drafter, findings) = (reviewed.clone(), self.drafter.clone(), self.findings.clone());
            let (unattested, mistakes) = (self.unattested, self.mistakes.clone());
            self.best = Some(BestVersion { document, review, drafter, unattested, findings, mistakes, open });
        }
        self.review = Some(reviewed);
        if verdict != Verdict::Inconclusive {
            self.compared = Some(document);
        }
        match verdict {
            Verdict::Approved => RoundDecision::Pass,
            Verdict::Inconclusive => RoundDecision::Stop(LoopStopReason::Inconclusive),
            Verdict::Revise | Verdict::Blocked if self.needs_another_review() => RoundDecision::ReviewAgain,
            // People dismissed all its findings, so no draft could change the verdict.
            Verdict::Revise | Verdict::Blocked if self.findings.open().next().is_none() => {
                RoundDecision::Stop(LoopStopReason::Stalled)
            }
            Verdict::Revise | Verdict::Blocked if self.findings.is_stalled() => {
                self.restore_best_version();
                RoundDecision::Stop(LoopStopReason::Stalled)
            }
            Verdict::Revise | Verdict::Blocked => match self.redraft_or_stop() {
                RoundDecision::Redraft => RoundDecision::Redraft,
                stop => {
                    self.restore_best_version();
                    stop
                }
            },
        }
    }

    fn redraft_or_stop(&self) -> RoundDecision {
        if self.strikes >= 2 {
            RoundDecision::Stop(LoopStopReason::Stalled)
        } else if self.number >= self.cap {
            RoundDecision::Stop(LoopStopReason::Cap)
        } else {
            RoundDecision::Redraft
        }
    }

    fn restore_best_version(&mut self) {
        if let Some(best) = self.best.clone() {
            self.document = Some(best.document);
            self.review = Some(best.review);
            (self.drafter, self.unattested) = (best.drafter, best.unattested);
            self.findings.restore(&best.findings);
            self.mistakes = best.mistakes;
        }
    }

    fn round_record(&self, verdict: Option<Verdict>, why: String, open: usize) -> RoundRecord {
        RoundRecord {
            round: self.number,
            document: self.document,
            verdict,
            why,
            open,
            drafter: self.drafter.clone(),
            reviewer: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_families_are_cleared_when_a_version_by_a_person_is_adopted() {
        let [claude, gemini] = ["claude", "gemini"].map(|name| Family(name.to_owned()));
        let by = |family: &Family| ServedModel {
            model: "m".into(),
            family: Some(family.clone()),
            in_place_of: None,
        };
        let mut round = Round::new(5);
        round.record_drafter(by(&claude));
        round.adopt_human_version(Hash::digest(b"theirs"));
        assert_eq!(round.author_families(), []);
        round.record_drafter(by(&gemini));
        let authors = round.author_families();
        assert!(authors.contains(&gemini) && !authors.contains(&claude), "{authors:?}");

        let mut round = Round::new(5);
        let nobody = ServedModel { model: "unattested".into(), family: None, in_place_of: None };
        round.record_drafter(by(&claude));
        round.record_drafter(by(&gemini));
        assert_eq!(
            (round.author_families(), round.drafter.clone(), round.is_unattested()),
            (vec![claude.clone(), gemini.clone(), gemini.clone()], Some(by(&gemini)), false)
        );
        let warning = |place: &str| DocumentMistake {
            rule: "x".into(),
            severity: MistakeSeverity::Warning,
            place: place.to_owned(),
            message: String::new(),
            about: None,
        };
        round.replace_document(Hash::digest(b"ours"));
        round.settle_checks(vec![warning("of this draft")]);
        round.settle_review(ReviewOutcome {
            verdict: Verdict::Revise,
            reviewer: None,
            rationale: String::new(),
            why: None,
        });
        round.record_drafter(nobody);
        round.record_drafter(by(&claude));
        assert_eq!(round.drafter, Some(by(&claude)), "it wrote this version");
        assert!(round.is_unattested(), "the unattested part is still in it");
        let mut before = round.clone();
        before.settle_checks(vec![warning("of a later draft")]);
        before.restore_best_version();
        assert_eq!(before.mistakes, [warning("of this draft")]);
        assert!(!before.is_unattested(), "the earlier version had no unattested part");
        round.start_next_document(1);
        assert!(round.is_unattested());
        round.adopt_human_version(Hash::digest(b"theirs"));
        round.record_drafter(by(&gemini));
        assert!(!round.is_unattested());
    }
}
