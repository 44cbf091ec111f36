//! The round: draft → fix → check → review → settle.
//!
//! The one building block under every workflow whose product is a document. It is a serde struct and
//! a handful of functions that each workflow's own steps call; a workflow keeps its own steps and its
//! own edges, so that what may follow what is read in one table and nowhere else.
//!
//! Whatever a model answers is a value here: a good answer, a bad one and none at all each leave by an
//! edge. Only the waits (`StepError::Later`) and our own faults (`StepError::Bug`) end an attempt.

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
pub use announcements::{comment_marker, post_announcement};
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
pub use name_checks::{check_code_names, read_raw_files, read_shown_files};
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
        findings::{Finding, FindingLedger},
        hidden_text::{self, HiddenText},
        verdict,
    },
    engine::{self, RemarkKind, RunRemark, StepError},
    messages::InconclusiveReason,
    types::{Family, Hash, Role, Verdict},
};

/// What a step of ours is handed.
pub type StepContext = engine::AttemptContext<StepServices>;

/// Comments of one review that the drafter is told; who has more to say has another round for it.
pub const MOST_REVIEW_REMARKS: usize = 50;

/// The least role that may say such a word of a finding.
pub fn role_to_settle(kind: RemarkKind, blocking: bool) -> Role {
    if kind == RemarkKind::Dismiss && blocking { Role::Maintain } else { Role::Write }
}

/// What came of what people said of findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemarkEffects {
    /// Findings that they insist on.
    pub insisted: Vec<String>,
    /// What of their words people do not see, and so no model does.
    pub hidden: Vec<HiddenText>,
    /// Reviews of what was pushed.
    pub reviews: Vec<RunRemark>,
}

/// Takes in what people said of the round's findings since it heard them last, and books how they stand.
pub async fn apply_remarks(cx: &StepContext, round: &mut Round) -> Result<RemarkEffects, StepError> {
    let remarks = cx.remarks(round.applied_remarks()).await?;
    if remarks.is_empty() {
        return Ok(RemarkEffects::default());
    }
    let said = round.apply_remarks(&remarks);
    record_findings(cx, round).await?;
    Ok(said)
}

/// What an earlier step must have left in the state.
pub fn require_state<T>(left: &Option<T>) -> Result<&T, StepError> {
    left.as_ref().ok_or_else(|| StepError::Bug(anyhow::anyhow!("an earlier step left nothing here")))
}

/// Is it left out of what is saved?
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where a document stands between its drafter, its reviewer and the people.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Round {
    /// Drafts asked for so far. The loop's only counter; `draft` alone moves it.
    pub number: u32,
    /// `number` stops here. A person's `/revise` raises it: the loop is counted from the last human word.
    pub cap: u32,
    /// Reviews bought so far, whoever wrote what they were of.
    pub reviews: u32,
    /// Calls made of each role, failed ones included.
    calls: BTreeMap<String, u32>,
    /// The document as it is now.
    pub document: Option<Hash>,
    /// Who wrote it last.
    pub drafter: Option<ServedModel>,
    /// Nobody attests who wrote some of it.
    #[serde(default, skip_serializing_if = "is_default")]
    unattested: bool,
    /// What the mechanical checks hold against it; told to the drafter first.
    pub mistakes: Vec<DocumentMistake>,
    /// The reviewer's findings over all rounds, and what became of them.
    pub findings: FindingLedger,
    /// The review of `document`; none once the document has changed.
    pub review: Option<ReviewOutcome>,
    /// Files of the repository that drafter's or reviewer's last prompt had no room for.
    #[serde(default)]
    pub unshown: usize,
    /// The version that was reviewed last since a person spoke: the next review is of what changed since.
    #[serde(default)]
    compared: Option<Hash>,
    /// A person's words to the drafter, not yet answered by a draft.
    pub feedback: Option<String>,
    /// Why the drafter's last answer could not be used, in our words.
    #[serde(default, skip_serializing_if = "is_default")]
    unusable: Option<String>,
    /// How many of the run's remarks were heard.
    #[serde(default, skip_serializing_if = "is_default")]
    heard: u64,
    /// A person dismissed a finding since the last review was asked for.
    #[serde(default, skip_serializing_if = "is_default")]
    dismissed: bool,
    /// One line a round, for people.
    pub history: Vec<RoundRecord>,
    /// The reviewed document with the fewest open objections, kept so that a loop never ends worse than
    /// it once was.
    best: Option<BestVersion>,
    /// Families that drafted in this run, since a person's own version if there was one.
    #[serde(default)]
    authors: Vec<Family>,
    /// Mechanical mistakes of the draft before, to tell "still the same" from "new ones".
    mistakes_before: Vec<String>,
    /// Names that the checks found wrong in this run.
    #[serde(default)]
    named: BTreeSet<String>,
    /// The model that cannot be asked now, and what this visit has waited for.
    #[serde(default)]
    waits: call_waits::VisitWaits,
    /// What models looked at by themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    looked: ToolCallCounts,
    /// How often in a row the same set of mistakes came back.
    strikes: u32,
}

/// What one round came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundRecord {
    pub round: u32,
    /// What it was about; none when there was no document.
    pub document: Option<Hash>,
    /// The verdict, or none when the draft never reached review.
    pub verdict: Option<Verdict>,
    /// The reviewer's reason, or ours where there is no verdict.
    pub why: String,
    /// Findings or mistakes that stood against it afterwards.
    pub open: usize,
    /// None: a person wrote the document, where there is one.
    pub drafter: Option<ServedModel>,
    /// None: nobody reviewed it.
    pub reviewer: Option<ServedModel>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct BestVersion {
    document: Hash,
    review: ReviewOutcome,
    drafter: Option<ServedModel>,
    #[serde(default, skip_serializing_if = "is_default")]
    unattested: bool,
    /// What stood against it then.
    findings: FindingLedger,
    open: usize,
}

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundDecision {
    /// Nothing stands against the document here.
    Pass,
    /// Back to the drafter.
    Redraft,
    /// Nothing that was found counts any more, for people dismissed it: the same bytes are reviewed once more.
    ReviewAgain,
    /// The loop may not go on by itself; a person decides.
    Stop(LoopStopReason),
}

/// Why the loop may not go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStopReason {
    /// As many drafts as the policy allows.
    Cap,
    /// The same objections twice in a row: another round would buy the same again.
    Stalled,
    /// No verdict could be had.
    Inconclusive,
}

impl Round {
    pub fn new(cap: u32) -> Self {
        Self { cap, ..Self::default() }
    }

    /// Whether the verdict is missing and another review of the same version may give one.
    pub fn can_review_again(&self) -> bool {
        self.review.as_ref().is_some_and(ReviewOutcome::can_be_retried)
    }

    /// A new version of the document, by whoever: what was said of the old one no longer holds.
    pub fn replace_document(&mut self, document: Hash) {
        if self.document != Some(document) {
            self.document = Some(document);
            self.review = None;
        }
    }

    /// Who wrote the version there is. What others wrote before is still in it.
    fn record_drafter(&mut self, by: ServedModel) {
        self.authors.extend(by.family.clone().filter(|family| !self.authors.contains(family)));
        self.unattested = self.is_unattested() || by.family.is_none();
        self.drafter = Some(by);
    }

    /// Does nobody attest who wrote some of the version there is? Then no review of it counts, whoever wrote the rest.
    pub fn is_unattested(&self) -> bool {
        self.unattested || matches!(self.drafter, Some(ServedModel { family: None, .. }))
    }

    /// The families of models that had a hand in the document. In a maintainer's own version none counts.
    fn author_families(&self) -> Vec<Family> {
        let Some(drafter) = &self.drafter else { return Vec::new() };
        self.authors.iter().chain(&drafter.family).cloned().collect()
    }

    /// A person's own version takes the place of ours. Nobody has looked at it yet, and no model had a hand in it.
    pub fn adopt_human_version(&mut self, document: Hash) {
        self.replace_document(document);
        self.drafter = None;
        self.unattested = false;
        self.authors.clear();
        self.compared = None;
        // Ours of before never takes its place again.
        self.best = None;
    }

    /// The next of several documents: nothing of what was said of the one before holds, and there are so many drafts for it.
    /// Whoever had a hand in that one has it in this, too.
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

    /// What was published, or given more tests, is worked on anew: no version of before takes the place of what comes.
    pub fn forget_best_version(&mut self) {
        self.best = None;
    }

    /// A person sent it back with their words, and with that allows `more` further drafts.
    pub fn send_back(&mut self, words: &str, more: u32) {
        self.feedback = Some(words.to_owned());
        self.compared = None;
        self.allow_more_drafts(more);
    }

    /// A person spoke, and with that allows `more` further drafts.
    pub fn allow_more_drafts(&mut self, more: u32) {
        self.cap = self.number + more.max(1);
        self.strikes = 0;
    }

    /// Takes in what people said of findings. Who may not settle one as it stands by now is not heeded.
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

    /// How many of the run's remarks were heard.
    pub fn applied_remarks(&self) -> u64 {
        self.heard
    }

    /// What models looked at by themselves.
    pub fn tool_calls(&self) -> ToolCallCounts {
        self.looked
    }

    /// Did people dismiss what the review of this version objected to? A dismissal changes no verdict, so the same bytes are
    /// reviewed again, and no draft is bought.
    pub fn needs_another_review(&self) -> bool {
        let refused = |review: &ReviewOutcome| matches!(review.verdict, Verdict::Revise | Verdict::Blocked);
        self.dismissed
            && self.feedback.is_none()
            && self.review.as_ref().is_some_and(refused)
            && !self.mistakes.iter().any(DocumentMistake::is_error)
            && !self.findings.open().any(Finding::must_be_resolved)
    }

    /// After the mechanical checks: on, or back with all mistakes at once.
    pub fn settle_checks(&mut self, mut mistakes: Vec<DocumentMistake>) -> RoundDecision {
        self.downgrade_name_mistakes(&mut mistakes);
        let open = mistakes.iter().filter(|m| m.is_error()).count();
        let told = |m: &DocumentMistake| format!("{} {} {}", m.rule, m.place, m.message);
        // A name is told once, so that it never comes back as the same mistake.
        let errors: Vec<String> =
            mistakes.iter().filter(|m| m.is_error() && m.about.is_none()).map(told).collect();
        self.mistakes = mistakes;
        if open == 0 {
            // What the next check will say is not known yet: only a review ends the count of strikes.
            return RoundDecision::Pass;
        }
        let same = !errors.is_empty() && errors == self.mistakes_before;
        self.strikes = if same { self.strikes + 1 } else { 0 };
        self.history.push(self.round_record(None, format!("{open} found by code"), open));
        self.mistakes_before = errors;
        self.redraft_or_stop()
    }

    /// That a name is not there can be wrong, and then no draft ever mends it. So the drafter is told once in a run; from
    /// then on it is for the reviewer to judge, like what a person wrote, and what the last draft brings.
    fn downgrade_name_mistakes(&mut self, mistakes: &mut [DocumentMistake]) {
        let all = self.drafter.is_none() || self.number >= self.cap;
        let left =
            |m: &&mut DocumentMistake| m.about.as_ref().is_some_and(|name| all || self.named.contains(name));
        mistakes.iter_mut().filter(left).for_each(|m| m.severity = MistakeSeverity::Warning);
        self.named.extend(mistakes.iter().filter_map(|m| m.about.clone()));
    }

    /// After tests of the reviewer's model that fail: back to the drafter, where there may be another draft. What it says to
    /// them is for the review.
    pub fn settle_adversarial_tests(&self) -> RoundDecision {
        self.redraft_or_stop()
    }

    /// After a draft that cannot be used at all.
    pub fn settle_unusable(&mut self, why: &str) -> RoundDecision {
        // It is not about the version before, whoever wrote that.
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

    /// After the review: on to the people, back to the drafter, or stop because it leads nowhere.
    pub fn settle_review(&mut self, reviewed: ReviewOutcome) -> RoundDecision {
        self.mistakes_before.clear();
        self.strikes = 0;
        let document = self.document.expect("a review is of a document");
        let open = self.findings.open().filter(|f| f.must_be_resolved()).count();
        let verdict = reviewed.verdict;
        let why =
            reviewed.why.as_ref().map_or_else(|| reviewed.rationale.clone(), InconclusiveReason::sentence);
        let line = self.round_record(Some(verdict), why, self.findings.open().count());
        self.history.push(RoundRecord { reviewer: reviewed.reviewer.clone(), ..line });
        if verdict != Verdict::Inconclusive && self.best.as_ref().is_none_or(|b| open <= b.open) {
            let (review, drafter, findings) = (reviewed.clone(), self.drafter.clone(), self.findings.clone());
            self.best =
                Some(BestVersion { document, review, drafter, unattested: self.unattested, findings, open });
        }
        self.review = Some(reviewed);
        if verdict != Verdict::Inconclusive {
            self.compared = Some(document);
        }
        match verdict {
            Verdict::Approved => RoundDecision::Pass,
            Verdict::Inconclusive => RoundDecision::Stop(LoopStopReason::Inconclusive),
            Verdict::Revise | Verdict::Blocked if self.needs_another_review() => RoundDecision::ReviewAgain,
            // What it still objects to people have dismissed, and no draft answers that.
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
    fn after_a_human_version_only_the_next_drafters_family_is_excluded_from_review() {
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
        round.replace_document(Hash::digest(b"ours"));
        round.settle_review(ReviewOutcome {
            verdict: Verdict::Revise,
            reviewer: None,
            rationale: String::new(),
            why: None,
        });
        round.record_drafter(nobody);
        round.record_drafter(by(&claude));
        assert_eq!(round.drafter, Some(by(&claude)), "it wrote this version");
        assert!(round.is_unattested(), "and some of what nobody attests is still there");
        let mut before = round.clone();
        before.restore_best_version();
        assert!(!before.is_unattested(), "the version of before had none of it");
        round.start_next_document(1);
        assert!(round.is_unattested());
        round.adopt_human_version(Hash::digest(b"theirs"));
        round.record_drafter(by(&gemini));
        assert!(!round.is_unattested());
    }
}
