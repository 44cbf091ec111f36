//! The finding ledger: the findings of each review round, and how each finding was settled.
//!
//! It is computed from reviews and people's decisions, and never reads the document. A reviewer or a person decides
//! whether a finding is fixed; the ledger records who decided, and why.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    DocumentMistake,
    edits::{FindingDisposition, FindingReply},
    verdict::{FindingSeverity, RawFinding, ReviewAnswer},
};
use crate::types::Verdict;

/// Status of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingStatus {
    Open,
    Fixed,
    /// The author argued that the finding is not a defect, and the reviewer agreed.
    Rebutted,
    /// The author deferred the finding, and the reviewer agreed.
    Deferred,
    Dismissed,
    /// Code found it, the author disputed it, and the reviewer agreed that the check is wrong here.
    Withdrawn,
}

impl FindingStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Fixed => "fixed",
            Self::Rebutted => "rebutted",
            Self::Deferred => "deferred",
            Self::Dismissed => "dismissed",
            Self::Withdrawn => "withdrawn",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Finding ID, such as `F1`; never reused in a run.
    pub id: String,
    /// Round that opened the finding. `last_round` is the last round that reported it.
    pub round: u32,
    pub last_round: u32,
    pub severity: FindingSeverity,
    pub category: String,
    pub place: String,
    pub title: String,
    pub detail: String,
    pub status: FindingStatus,
    /// One sentence: the reason why the finding was settled, or a remark on an open finding, such as a remark that it
    /// was demoted.
    pub why: String,
    /// Whether a person insists on a fix. Later reviews cannot change this.
    pub must_fix: bool,
    /// Whether the author made no change for a person's remark. The remark stays open until a person accepts this or
    /// insists on a change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// The newest draft's reply to the finding; removed when a review has decided on the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<FindingReply>,
    /// Text of the newest reply to the finding. The text is kept after the finding is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

impl Finding {
    /// Returns title and details as one text.
    pub fn full_text(&self) -> String {
        match (self.title.trim_end(), self.detail.trim()) {
            (title, "") => title.to_owned(),
            (title, detail) if title.ends_with(['.', ':', '!', '?', ';']) => format!("{title} {detail}"),
            (title, detail) => format!("{title}. {detail}"),
        }
    }

    pub fn is_open(&self) -> bool {
        self.status == FindingStatus::Open
    }

    /// Returns whether the finding must be resolved. Otherwise the finding is only advice.
    pub fn must_be_resolved(&self) -> bool {
        self.must_fix || self.severity >= FindingSeverity::High && !self.declined
    }

    /// Sets the status and the reason, and removes the author's reply, because no review will decide on it.
    fn settle(&mut self, status: FindingStatus, why: String) {
        (self.status, self.why, self.reply, self.declined) = (status, why, None, false);
    }

    /// Settles the finding, unless a person raised it or insists on it and nothing was changed: that needs a person.
    fn settle_unless_declined(&mut self, status: FindingStatus, why: String) {
        if status != FindingStatus::Fixed && (self.category == REMARK || self.must_fix) {
            (self.declined, self.why) = (true, why);
        } else {
            self.settle(status, why);
        }
    }
}

/// A person's comment on a line of published text, or the body of a review.
pub struct LineRemark {
    /// The line; `None` for the body of a review.
    pub place: Option<String>,
    pub text: String,
    /// Login of the author.
    pub by: String,
}

/// Category of findings about failed CI checks.
const CI: &str = "ci";

/// Category of findings that record a person's comment on a line or the body of a review.
const REMARK: &str = "remark";

/// Category of findings about a mistake that a mechanical check found and the author disputed.
const CHECK: &str = "found by code";

/// Maximum number of characters of a remark's title. Also the maximum number of characters of its detail.
const REMARK_CHARS: usize = 2_000;

/// IDs of the findings that one review opened, repeated or resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerUpdate {
    pub opened: Vec<String>,
    pub repeated: Vec<String>,
    pub fixed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindingLedgerError {
    #[error("there is no finding {0}; the status comment lists them")]
    Unknown(String),
    #[error("{0} is already settled as {1}")]
    Settled(String, &'static str),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingLedger {
    findings: Vec<Finding>,
    /// Number of the last recorded round. A round is recorded only once.
    last_round: u32,
    /// IDs, per round, of the findings that must be resolved and were still open after that round.
    after: Vec<BTreeSet<String>>,
}

impl FindingLedger {
    pub fn all(&self) -> &[Finding] {
        &self.findings
    }

    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.is_open())
    }

    /// Returns the findings that people dismissed, and the mistakes of checks that the reviewer withdrew.
    pub fn dismissed(&self) -> impl Iterator<Item = &Finding> {
        let is_dismissed =
            |f: &&Finding| matches!(f.status, FindingStatus::Dismissed | FindingStatus::Withdrawn);
        self.findings.iter().filter(is_dismissed)
    }

    /// Records that the author disputes a mistake that code found. The next review must decide, because an approval
    /// that ignores a blocking finding is invalid. A dispute that the reviewer upheld is not opened again.
    pub fn dispute(&mut self, mistake: &DocumentMistake, why: String) {
        if self.dispute_of(mistake).is_some_and(|dispute| dispute.status != FindingStatus::Fixed) {
            return;
        }
        let raw = RawFinding {
            severity: FindingSeverity::Blocking,
            category: CHECK.to_owned(),
            place: mistake.place.clone(),
            title: mistake.message.clone(),
            detail: format!("A mechanical check ({}) says so; the author disputes it.", mistake.rule),
            repeats: None,
        };
        let id = self.add_finding(self.last_round, &raw, "");
        let finding = self.findings.last_mut().expect("the finding was just added");
        let disposition = FindingDisposition::Disputed;
        (finding.answer, finding.reply) =
            (Some(why.clone()), Some(FindingReply { finding: id, disposition, why }));
    }

    /// Returns the newest dispute about this mistake.
    pub fn dispute_of(&self, mistake: &DocumentMistake) -> Option<&Finding> {
        let is_same = |f: &Finding| (&f.place, &f.title) == (&mistake.place, &mistake.message);
        self.findings.iter().rfind(|f| f.category == CHECK && is_same(f))
    }

    pub fn get(&self, id: &str) -> Option<&Finding> {
        self.findings.iter().find(|f| f.id.eq_ignore_ascii_case(id))
    }

    /// Demotes late findings to suggestions. A finding is late if it is new, although the text at its location has not
    /// changed since the last review. Findings about security or data loss are not demoted. Returns the indices of the
    /// demoted findings.
    pub fn demote_late(&self, review: &mut ReviewAnswer, unchanged: impl Fn(&str) -> bool) -> Vec<usize> {
        let mut demoted = Vec::new();
        for (index, raw) in review.findings.iter_mut().enumerate() {
            let late =
                self.find_earlier(raw).is_none() && !raw.is_security_or_data_loss() && unchanged(&raw.place);
            if late && raw.severity > FindingSeverity::Suggestion {
                raw.severity = FindingSeverity::Suggestion;
                demoted.push(index);
            }
        }
        demoted
    }

    /// Records the review of a round. `unplaced` contains the indices of findings that were demoted because their
    /// location does not exist. `late` contains the indices of findings that were demoted because they are late.
    /// Recording the same round again changes nothing.
    pub fn record_review(
        &mut self,
        round: u32,
        review: &ReviewAnswer,
        unplaced: &[usize],
        late: &[usize],
    ) -> LedgerUpdate {
        if round <= self.last_round {
            return LedgerUpdate::default();
        }
        self.last_round = round;
        let mut update = LedgerUpdate::default();
        for (index, raw) in review.findings.iter().enumerate() {
            let why = if late.contains(&index) {
                "new, though its place had not changed since the last review; counted as a suggestion"
            } else if unplaced.contains(&index) {
                "its place does not exist; counted as advice"
            } else {
                ""
            };
            match self.find_earlier(raw) {
                Some(at) => self.repeat_finding(at, round, raw, &mut update),
                None => update.opened.push(self.add_finding(round, raw, why)),
            }
        }
        for id in &review.resolved {
            self.resolve_finding(id, round, &mut update);
        }
        if review.verdict == Verdict::Approved {
            self.close_unrepeated(round, &mut update);
        }
        self.after.push(self.open().filter(|f| f.must_be_resolved()).map(|f| f.id.clone()).collect());
        update
    }

    /// Opens a finding that did not come from a review. The review of the next round decides on the finding.
    pub fn open_finding(&mut self, round: u32, raw: &RawFinding) -> String {
        self.add_finding(round, raw, "")
    }

    /// Sets the remark on all open findings, except those that a person insists on.
    pub fn remark_open(&mut self, why: &str) {
        let open = self.findings.iter_mut().filter(|f| f.is_open() && !f.must_fix);
        open.for_each(|finding| why.clone_into(&mut finding.why));
    }

    /// Marks a finding as fixed without a review, because its test passes now. Findings that a person insists on stay
    /// open.
    pub fn mark_fixed(&mut self, id: &str, why: &str) {
        if let Some(finding) = self.findings.iter_mut().find(|f| f.id == id && f.is_open() && !f.must_fix) {
            finding.settle(FindingStatus::Fixed, why.to_owned());
        }
    }

    /// Returns the IDs of open blocking findings that an approving review neither resolves nor repeats, and of disputes
    /// that it upholds. If there are any, the approval is invalid.
    pub fn unanswered_blocking(&self, review: &ReviewAnswer) -> Vec<String> {
        if review.verdict != Verdict::Approved {
            return Vec::new();
        }
        let repeated: BTreeSet<usize> =
            review.findings.iter().filter_map(|raw| self.find_earlier(raw)).collect();
        let resolved = |id: &str| review.resolved.iter().any(|known| known.trim().eq_ignore_ascii_case(id));
        let silent = |(at, finding): &(usize, &Finding)| {
            let holds_up = finding.is_open() && finding.severity == FindingSeverity::Blocking;
            // A dispute that the reviewer upholds does not go with an approval.
            let is_repeated = repeated.contains(at) && finding.category != CHECK;
            holds_up && !is_repeated && !resolved(&finding.id)
        };
        self.findings.iter().enumerate().filter(silent).map(|(_, finding)| finding.id.clone()).collect()
    }

    /// Returns the index of the earlier finding that a new finding repeats. The new finding refers to it by ID, or has
    /// the same title and location.
    fn find_earlier(&self, raw: &RawFinding) -> Option<usize> {
        let named = raw
            .repeats
            .as_ref()
            .and_then(|id| self.findings.iter().position(|f| f.id.eq_ignore_ascii_case(id.trim())));
        named.or_else(|| {
            self.findings
                .iter()
                .position(|f| has_same_words(&f.place, &raw.place) && has_same_words(&f.title, &raw.title))
        })
    }

    fn repeat_finding(&mut self, at: usize, round: u32, raw: &RawFinding, update: &mut LedgerUpdate) {
        let finding = &mut self.findings[at];
        finding.last_round = round;
        match finding.status {
            // A person settled it; a model cannot reopen it.
            FindingStatus::Dismissed => return,
            FindingStatus::Fixed
            | FindingStatus::Withdrawn
            | FindingStatus::Rebutted
            | FindingStatus::Deferred => {
                finding.why = format!("came back in round {round}");
            }
            FindingStatus::Open if finding.category == CHECK => {
                // People see at the gate what the check says and what the author says.
                if let Some(reply) = &finding.reply {
                    finding.why = format!("upheld in round {round}, although the author says: {}", reply.why);
                }
            }
            FindingStatus::Open if finding.reply.is_some() => {
                finding.why = format!("the author's answer was not accepted in round {round}");
            }
            FindingStatus::Open => {}
        }
        (finding.status, finding.reply, finding.declined) = (FindingStatus::Open, None, false);
        if finding.category != CHECK {
            finding.severity = raw.severity;
            finding.detail.clone_from(&raw.detail);
        }
        if !update.repeated.contains(&finding.id) && !update.opened.contains(&finding.id) {
            update.repeated.push(finding.id.clone());
        }
    }

    fn add_finding(&mut self, round: u32, raw: &RawFinding, why: &str) -> String {
        let id = format!("F{}", self.findings.len() + 1);
        self.findings.push(Finding {
            id: id.clone(),
            round,
            last_round: round,
            severity: raw.severity,
            category: raw.category.clone(),
            place: raw.place.clone(),
            title: raw.title.clone(),
            detail: raw.detail.clone(),
            status: FindingStatus::Open,
            why: why.to_owned(),
            must_fix: false,
            declined: false,
            reply: None,
            answer: None,
        });
        id
    }

    /// Records a draft's replies to findings. A review decides later whether to accept them.
    pub fn record_replies(&mut self, replies: Vec<FindingReply>) {
        for mut reply in replies {
            // Only mistakes that code found can be disputed.
            if reply.disposition == FindingDisposition::Disputed {
                reply.disposition = FindingDisposition::Rebutted;
            }
            let open = self
                .findings
                .iter_mut()
                .find(|f| f.is_open() && f.id.eq_ignore_ascii_case(reply.finding.trim()));
            if let Some(finding) = open {
                finding.answer = Some(reply.why.clone());
                (finding.reply, finding.declined) = (Some(reply), false);
            }
        }
    }

    /// Records a person's comment as a finding. Returns the finding's ID.
    pub fn add_remark(&mut self, remark: LineRemark) -> String {
        let LineRemark { place, text, by } = remark;
        let at = if place.is_some() { "at that line" } else { "in a review" };
        let (title, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
        let raw = RawFinding {
            severity: FindingSeverity::High,
            category: REMARK.to_owned(),
            place: place.unwrap_or_else(|| "review".to_owned()),
            title: super::truncate(title.trim(), REMARK_CHARS).to_owned(),
            detail: super::truncate(rest.trim(), REMARK_CHARS).to_owned(),
            repeats: None,
        };
        self.add_finding(self.last_round, &raw, &format!("{by} said it {at}"))
    }

    /// Records failed CI checks as a finding. The author answers the finding with a change, or with the reason why no
    /// change is needed. Returns the finding's ID.
    pub fn add_ci_failure(&mut self, title: String) -> String {
        let raw = RawFinding {
            severity: FindingSeverity::High,
            category: CI.to_owned(),
            place: "CI".to_owned(),
            title,
            detail: String::new(),
            repeats: None,
        };
        self.add_finding(self.last_round, &raw, "CI failed on the pushed commit")
    }

    /// Settles a remark after its round and returns the remark. If no review decided on the remark, the author's reply
    /// determines its status. Without a change, no remark is fixed.
    pub fn close_by_reply(&mut self, id: &str, is_changed: bool) -> Option<&Finding> {
        let finding = self.findings.iter_mut().find(|f| f.id == id)?;
        if finding.is_open() && !finding.declined {
            let (status, outcome) = match &finding.reply {
                Some(FindingReply { disposition: FindingDisposition::Fixed, .. })
                    if is_changed || finding.category != REMARK =>
                {
                    (FindingStatus::Fixed, "done")
                }
                Some(FindingReply { disposition: FindingDisposition::Fixed, .. }) => {
                    (FindingStatus::Deferred, "done without a change")
                }
                Some(FindingReply {
                    disposition: FindingDisposition::Rebutted | FindingDisposition::Disputed,
                    ..
                }) => (FindingStatus::Rebutted, "not a defect"),
                Some(FindingReply { disposition: FindingDisposition::Deferred, .. }) | None => {
                    (FindingStatus::Deferred, "for later")
                }
            };
            finding.settle_unless_declined(status, format!("the author answered that it is {outcome}"));
        }
        Some(finding)
    }

    /// Returns the open remarks for which the author made no change, except those that a person insists on.
    pub fn declined(&self) -> impl Iterator<Item = &Finding> {
        self.open().filter(|finding| finding.declined && !finding.must_fix)
    }

    /// Settles the remarks for which a version makes no change, because a person approved that version.
    pub fn accept_declined(&mut self, by: &str) {
        for finding in self.findings.iter_mut().filter(|f| f.is_open() && f.category == REMARK && !f.must_fix)
        {
            let status = match finding.reply.as_ref().map(|reply| reply.disposition) {
                Some(FindingDisposition::Fixed) if !finding.declined => continue,
                Some(FindingDisposition::Rebutted) => FindingStatus::Rebutted,
                _ => FindingStatus::Deferred,
            };
            finding.settle(status, format!("{by} approved the change without it"));
        }
    }

    /// Resolves a finding that the reviewer reports as fixed, unless the same review repeats it.
    fn resolve_finding(&mut self, id: &str, round: u32, update: &mut LedgerUpdate) {
        let Some(finding) = self.findings.iter_mut().find(|f| f.id.eq_ignore_ascii_case(id.trim())) else {
            return;
        };
        if finding.is_open() && finding.last_round < round {
            let (status, why) = match finding.reply.clone() {
                Some(FindingReply { disposition: FindingDisposition::Rebutted, why, .. }) => (
                    FindingStatus::Rebutted,
                    format!("the reviewer agreed in round {round} that it is not a defect: {why}"),
                ),
                Some(FindingReply { disposition: FindingDisposition::Disputed, why, .. }) => (
                    FindingStatus::Withdrawn,
                    format!("the reviewer agreed in round {round} that the check is wrong here: {why}"),
                ),
                Some(FindingReply { disposition: FindingDisposition::Deferred, why, .. }) => (
                    FindingStatus::Deferred,
                    format!("the reviewer agreed in round {round} to leave it for later: {why}"),
                ),
                _ => (FindingStatus::Fixed, format!("the reviewer marked it fixed in round {round}")),
            };
            finding.settle_unless_declined(status, why);
            update.fixed.extend((!finding.is_open()).then(|| finding.id.clone()));
        }
    }

    /// Settles the open findings that an approving review does not repeat. Blocking findings and those that a person
    /// insists on stay open, because they need an explicit decision.
    fn close_unrepeated(&mut self, round: u32, update: &mut LedgerUpdate) {
        let unrepeated = |f: &&mut Finding| {
            f.is_open() && f.last_round < round && !f.must_fix && f.severity != FindingSeverity::Blocking
        };
        for finding in self.findings.iter_mut().filter(unrepeated) {
            let status = match finding.reply.as_ref().map(|reply| reply.disposition) {
                Some(FindingDisposition::Rebutted) => FindingStatus::Rebutted,
                Some(FindingDisposition::Deferred) => FindingStatus::Deferred,
                // A person raised it, and nobody has reported a fix.
                None if finding.category == REMARK => FindingStatus::Deferred,
                Some(FindingDisposition::Disputed) => FindingStatus::Withdrawn,
                Some(FindingDisposition::Fixed) | None => FindingStatus::Fixed,
            };
            finding.settle_unless_declined(status, format!("not repeated when round {round} approved"));
            update.fixed.extend((!finding.is_open()).then(|| finding.id.clone()));
        }
    }

    /// Dismisses a finding on behalf of a person. The caller checks the person's role; dismissing a blocking finding
    /// needs a higher role.
    pub fn dismiss(&mut self, id: &str, reason: &str, by: &str) -> Result<&Finding, FindingLedgerError> {
        let finding = self.find_mut(id)?;
        if !finding.is_open() {
            return Err(FindingLedgerError::Settled(finding.id.clone(), finding.status.as_str()));
        }
        finding.must_fix = false;
        finding.settle(FindingStatus::Dismissed, format!("dismissed by {by}: {reason}"));
        Ok(finding)
    }

    /// Records that a person insists on a finding. The finding must then be resolved; a settled finding is opened
    /// again.
    pub fn require_fix(&mut self, id: &str, by: &str) -> Result<&Finding, FindingLedgerError> {
        let finding = self.find_mut(id)?;
        finding.must_fix = true;
        finding.settle(FindingStatus::Open, format!("{by} insists on it"));
        Ok(finding)
    }

    fn find_mut(&mut self, id: &str) -> Result<&mut Finding, FindingLedgerError> {
        let unknown = || FindingLedgerError::Unknown(super::truncate(id.trim(), 20).to_owned());
        self.findings.iter_mut().find(|f| f.id.eq_ignore_ascii_case(id.trim())).ok_or_else(unknown)
    }

    /// Restores the findings from the earlier ledger `then`, after the document was reset to the version that `then`
    /// belongs to. Dismissals, and findings that a person insists on, are kept. Replies that belong only to the
    /// discarded version are removed. IDs are not reused.
    pub fn restore(&mut self, then: &Self) {
        for finding in self.findings.iter_mut().filter(|f| f.status != FindingStatus::Dismissed) {
            if finding.must_fix {
                finding.settle(FindingStatus::Open, "a person insists on it".to_owned());
            } else if let Some(as_it_was) = then.get(&finding.id) {
                finding.clone_from(as_it_was);
            } else if [CI, REMARK].contains(&finding.category.as_str()) {
                (finding.answer, finding.reply) = (None, None);
                let why = "the version that answered it was not kept".to_owned();
                finding.status = FindingStatus::Open;
                finding.settle_unless_declined(FindingStatus::Deferred, why);
            } else if finding.is_open() {
                finding.status = FindingStatus::Fixed;
                finding.why = "it was about a version that was not kept".to_owned();
            }
        }
    }

    /// Returns whether the review is stalled. It is stalled if, in each of the last two rounds, every finding that had
    /// to be resolved before the round was still open after it. Findings are compared by ID and not by count, so that
    /// replacing findings by new ones counts as progress.
    pub fn is_stalled(&self) -> bool {
        let strike = |pair: &[BTreeSet<String>]| !pair[0].is_empty() && pair[0].is_subset(&pair[1]);
        let pairs: Vec<_> = self.after.windows(2).collect();
        pairs.len() >= 2 && pairs.iter().rev().take(2).all(|pair| strike(pair))
    }
}

/// Returns whether two texts have the same words, ignoring case and punctuation.
fn has_same_words(a: &str, b: &str) -> bool {
    let words = |text: &str| {
        text.split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
            .map(str::to_lowercase)
            .collect::<Vec<_>>()
    };
    words(a) == words(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw_finding(title: &str, severity: FindingSeverity, repeats: Option<&str>) -> RawFinding {
        RawFinding {
            severity,
            category: "tests".into(),
            place: "2.1".into(),
            title: title.into(),
            detail: "d".into(),
            repeats: repeats.map(Into::into),
        }
    }

    fn review(verdict: Verdict, findings: Vec<RawFinding>, resolved: &[&str]) -> ReviewAnswer {
        let resolved = resolved.iter().map(|s| (*s).to_owned()).collect();
        ReviewAnswer { verdict, rationale: "r".into(), findings, resolved }
    }

    fn open_ids(ledger: &FindingLedger) -> Vec<&str> {
        ledger.open().map(|f| f.id.as_str()).collect()
    }

    use FindingSeverity::{Blocking, High, Suggestion};

    #[test]
    fn restoring_a_document_version_restores_its_findings() {
        let mut ledger = FindingLedger::default();
        ledger.record_review(1, &review(Verdict::Revise, vec![raw_finding("a", High, None)], &[]), &[], &[]);
        let then = ledger.clone();
        ledger.record_review(
            2,
            &review(Verdict::Revise, vec![raw_finding("b", High, None)], &["F1"]),
            &[],
            &[],
        );
        ledger.restore(&then);
        assert_eq!(ledger.open().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["F1"]);
        // A finding about the dropped version may recur and keeps its ID.
        ledger.record_review(3, &review(Verdict::Revise, vec![raw_finding("b", High, None)], &[]), &[], &[]);
        assert_eq!(ledger.open().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["F1", "F2"]);
        // People's remarks belong to neither version.
        let remark = LineRemark { place: Some("a.rs:3".into()), text: "Turn it.".into(), by: "sam".into() };
        let remark = ledger.add_remark(remark);
        ledger.record_replies(vec![FindingReply {
            finding: remark.clone(),
            disposition: FindingDisposition::Fixed,
            why: "it is turned".into(),
        }]);
        ledger.dismiss("F1", "by design", "sam").unwrap();
        ledger.require_fix("F2", "sam").unwrap();
        ledger.record_review(4, &review(Verdict::Approved, vec![], &["F2"]), &[], &[]);
        assert_eq!(open_ids(&ledger), [""; 0]);
        ledger.restore(&then);
        assert_eq!((open_ids(&ledger), ledger.dismissed().count()), (vec!["F2", "F3"], 1));
        let remark = ledger.get(&remark).unwrap();
        assert_eq!((remark.declined, &remark.answer), (true, &None), "nothing answers it now");
    }

    #[test]
    fn line_remark_gets_its_status_from_the_drafters_reply_or_an_explicit_review() {
        let mut ledger = FindingLedger::default();
        let remark = |text: &str| LineRemark { place: None, text: text.into(), by: "sam".into() };
        let ids = ["Why?\nReally?", "Turn it.", "Later?"].map(|text| ledger.add_remark(remark(text)));
        assert_eq!(ids, ["F1", "F2", "F3"]);
        let first = &ledger.all()[0];
        assert_eq!(
            (first.title.as_str(), first.detail.as_str(), first.must_be_resolved()),
            ("Why?", "Really?", true)
        );
        let reply = |finding: &str, disposition| FindingReply {
            finding: finding.into(),
            disposition,
            why: "so".into(),
        };
        ledger.record_replies(vec![
            reply("F1", FindingDisposition::Rebutted),
            reply("F2", FindingDisposition::Fixed),
        ]);
        ledger.record_review(1, &review(Verdict::Revise, vec![], &["F2"]), &[], &[]);
        let ends = ids.map(|id| {
            let finding = ledger.close_by_reply(&id, true).unwrap();
            (finding.is_open(), finding.declined, finding.answer.clone())
        });
        let so = || Some("so".to_owned());
        assert_eq!(ends, [(true, true, so()), (false, false, so()), (true, true, None)]);
        assert!(ledger.close_by_reply("F9", true).is_none());
        ledger.require_fix("F1", "sam").unwrap();
        assert_eq!(ledger.declined().count(), 1, "a person insists on the other");
        ledger.accept_declined("sam");
        let statuses: Vec<_> = ledger.all().iter().map(|finding| finding.status).collect();
        assert_eq!(statuses, [FindingStatus::Open, FindingStatus::Fixed, FindingStatus::Deferred]);
        // An approval's silence does not mark a remark as fixed.
        let ids = ["And this?", "That too.", "Now."].map(|text| ledger.add_remark(remark(text)));
        ledger.record_replies(vec![
            reply(&ids[1], FindingDisposition::Deferred),
            reply(&ids[2], FindingDisposition::Fixed),
        ]);
        ledger.record_review(2, &review(Verdict::Approved, vec![], &[]), &[], &[]);
        let ends = ids.clone().map(|id| ledger.close_by_reply(&id, true).unwrap().declined);
        assert_eq!(ends, [true, true, false]);
        // A claim to have changed something is not enough.
        let id = ledger.add_remark(remark("Truly?"));
        ledger.record_replies(vec![reply(&id, FindingDisposition::Fixed)]);
        assert!(ledger.close_by_reply(&id, false).unwrap().declined);
        assert!(ledger.dismiss(&id, "fine", "sam").is_ok() && ledger.require_fix(&ids[0], "sam").is_ok());
    }

    #[test]
    fn finding_keeps_its_id_when_repeated_with_the_same_id_or_title() {
        let mut ledger = FindingLedger::default();
        let seen = ledger.record_review(
            1,
            &review(
                Verdict::Revise,
                vec![raw_finding("A b", Blocking, None), raw_finding("c", High, None)],
                &[],
            ),
            &[],
            &[],
        );
        assert_eq!(seen.opened, ["F1", "F2"]);
        let second = review(
            Verdict::Revise,
            vec![raw_finding("a: B.", High, None), raw_finding("other words", High, Some("f2"))],
            &["F1", "F2", "F9"],
        );
        let seen = ledger.record_review(2, &second, &[], &[]);
        assert_eq!(
            (seen.repeated, seen.fixed),
            (vec!["F1".to_owned(), "F2".into()], vec![]),
            "said again is not fixed"
        );
        assert_eq!(
            ledger.record_review(2, &second, &[], &[]),
            LedgerUpdate::default(),
            "a round is booked once"
        );
        let seen = ledger.record_review(
            3,
            &review(Verdict::Revise, vec![raw_finding("new", Suggestion, Some("F77"))], &["F1"]),
            &[],
            &[],
        );
        assert_eq!((seen.opened, seen.fixed), (vec!["F3".to_owned()], vec!["F1".to_owned()]));
        assert_eq!(open_ids(&ledger), ["F2", "F3"], "silence is not a fix");
        ledger.record_review(
            4,
            &review(Verdict::Approved, vec![raw_finding("new", Suggestion, Some("F3"))], &[]),
            &[],
            &[],
        );
        assert_eq!(open_ids(&ledger), ["F3"]);
    }

    #[test]
    fn approval_must_answer_every_blocking_finding() {
        let mut ledger = FindingLedger::default();
        let found = vec![
            raw_finding("a", Blocking, None),
            raw_finding("b", Blocking, None),
            raw_finding("c", High, None),
        ];
        ledger.record_review(1, &review(Verdict::Revise, found, &[]), &[], &[]);
        let approved = |findings, resolved: &[&str]| review(Verdict::Approved, findings, resolved);
        assert_eq!(ledger.unanswered_blocking(&approved(vec![], &[])), ["F1", "F2"]);
        assert_eq!(ledger.unanswered_blocking(&approved(vec![], &[" f1 ", "F9"])), ["F2"]);
        assert_eq!(
            ledger.unanswered_blocking(&approved(vec![raw_finding("A.", High, None)], &["F2"])),
            [""; 0]
        );
        assert_eq!(
            ledger.unanswered_blocking(&review(Verdict::Blocked, vec![], &[])),
            [""; 0],
            "nothing is waved through"
        );

        let seen = ledger.record_review(2, &approved(vec![], &["F1"]), &[], &[]);
        assert_eq!(seen.fixed, ["F1", "F3"], "silence takes back what was not blocking");
        assert_eq!(open_ids(&ledger), ["F2"], "and nothing that was");
        ledger.dismiss("F2", "by design", "mona").unwrap();
        assert_eq!(ledger.unanswered_blocking(&approved(vec![], &[])), [""; 0]);
    }

    #[test]
    fn dismissed_finding_stays_closed_and_finding_marked_must_fix_stays_open() {
        let mut ledger = FindingLedger::default();
        let one = review(
            Verdict::Revise,
            vec![raw_finding("a", Blocking, None), raw_finding("b", Suggestion, None)],
            &[],
        );
        ledger.record_review(1, &one, &[], &[]);
        assert_eq!(ledger.dismiss("f1", "by design", "mona").unwrap().why, "dismissed by mona: by design");
        ledger.require_fix("F2", "x").unwrap();
        ledger.record_review(2, &one, &[], &[]);
        assert_eq!(open_ids(&ledger), ["F2"], "a dismissed finding stays dismissed");
        ledger.record_review(3, &review(Verdict::Approved, vec![], &[]), &[], &[]);
        assert_eq!(open_ids(&ledger), ["F2"], "what a person insists on is not closed by silence");
        assert!(ledger.dismiss("F1", "", "x").is_err() && ledger.require_fix("F9", "x").is_err());
    }

    #[test]
    fn stall_is_detected_when_reviews_repeat_the_same_set_of_findings() {
        let mut ledger = FindingLedger::default();
        let same = |extra: &str| {
            review(Verdict::Revise, vec![raw_finding("a", High, None), raw_finding(extra, High, None)], &[])
        };
        ledger.record_review(1, &same("b"), &[], &[]);
        ledger.record_review(2, &same("b"), &[], &[]);
        assert!(!ledger.is_stalled(), "one strike");
        let mut moving = ledger.clone();
        moving.record_review(
            3,
            &review(
                Verdict::Revise,
                vec![raw_finding("b", High, None), raw_finding("c", High, None)],
                &["F1"],
            ),
            &[],
            &[],
        );
        assert!(!moving.is_stalled(), "as many findings, but another set");
        ledger.record_review(3, &same("b"), &[], &[]);
        assert!(ledger.is_stalled());
    }

    #[test]
    fn demoted_finding_states_that_its_place_does_not_exist() {
        let mut ledger = FindingLedger::default();
        ledger.record_review(1, &review(Verdict::Revise, vec![raw_finding("a", High, None)], &[]), &[0], &[]);
        assert!(ledger.get("F1").unwrap().why.contains("does not exist"));
    }

    #[test]
    fn late_finding_is_a_suggestion_unless_about_security_or_data_loss() {
        let mut ledger = FindingLedger::default();
        ledger.record_review(
            1,
            &review(Verdict::Revise, vec![raw_finding("known", High, None)], &[]),
            &[],
            &[],
        );
        let at = |place: &str, category: &str, title: &str| RawFinding {
            place: place.into(),
            category: category.into(),
            ..raw_finding(title, Blocking, None)
        };
        let findings = vec![
            at("2.1", "tests", "known"),
            at("2.1", "tests", "late"),
            at("3", "tests", "of what changed"),
            at("2.1", "Security", "a hole"),
            at("2.1", "data-loss", "a lost row"),
        ];
        let mut second = review(Verdict::Blocked, findings, &[]);
        let late = ledger.demote_late(&mut second, |place| place == "2.1");
        assert_eq!(late, [1]);
        ledger.record_review(2, &second, &[], &late);
        let severities: Vec<_> = ledger.open().map(|f| f.severity).collect();
        assert_eq!(severities, [Blocking, Suggestion, Blocking, Blocking, Blocking]);
        assert!(ledger.get("F2").unwrap().why.contains("had not changed"));
    }
}
