//! The proof that a document may be published. It can be built only from stored ledger rows.

use std::collections::HashSet;

use super::workflow::LesserProof;
use crate::{
    store::{ApprovalKind, ApprovalRow, Approvers, GateAnswer, RunLedger, VerdictRow},
    types::{Hash, Verb, Verdict},
};

/// Proof that a document may be published. Normally the proof needs a verdict and an approval. For the verdict, a model
/// of another family approved the document, or a maintainer waived the verdict with a reason. For the approval, a
/// person approved the document. A workflow may declare that one of the two is enough.
#[derive(Debug, Clone)]
pub struct Countersignature {
    verdict: Option<VerdictRow>,
    approval: ApprovalRow,
}

impl Countersignature {
    pub fn document(&self) -> Hash {
        self.approval.document
    }

    /// The newest verdict on exactly this document; `None` if no model reviewed it.
    pub fn verdict(&self) -> Option<&VerdictRow> {
        self.verdict.as_ref()
    }

    /// The approval that made the proof complete.
    pub fn approval(&self) -> &ApprovalRow {
        &self.approval
    }
}

/// Reason why a document may not be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountersignatureError {
    #[error("document {0:?} was never reviewed")]
    Verdict(Hash),
    #[error("document {document:?} has the verdict {verdict}, and nobody waived it")]
    NotApproved { document: Hash, verdict: Verdict },
    #[error("document {0:?} was reviewed by the model family that drafted it, or by an unknown family")]
    SameOrUnknownFamily(Hash),
    #[error("document {document:?} has {found} of the {needed} approvals its gate asks for")]
    Approvals { document: Hash, found: usize, needed: u32 },
    #[error("document {0:?} lacks the approval of an owner of its files")]
    OwnerApproval(Hash),
}

pub(super) fn prove_countersigned(
    document: Hash,
    ledger: &RunLedger,
    proofs: &[LesserProof],
) -> Result<Countersignature, CountersignatureError> {
    let verdict = ledger.verdicts.iter().rev().find(|row| row.document == document);
    // Only answers to the newest gate count: an older gate asked about something else.
    let newest = ledger.approvals.iter().rev().find(|row| row.document == document);
    let kind = newest.map(|row| row.kind);
    let alone = kind == Some(ApprovalKind::Unreviewed) && proofs.contains(&LesserProof::Unreviewed);
    if verdict.is_none() && !alone {
        return Err(CountersignatureError::Verdict(document));
    }
    let proof =
        |approval: &ApprovalRow| Countersignature { verdict: verdict.cloned(), approval: approval.clone() };
    let mut approvals =
        newest.map_or_else(Vec::new, |newest| counted_approvals(document, newest.subject, ledger));
    approvals.retain(|approval| approval.row.kind != ApprovalKind::Unreviewed || alone);
    if let Some(waiver) = approvals.iter().rev().find(|approval| approval.row.kind == ApprovalKind::Override)
    {
        return Ok(proof(waiver.row));
    }
    if let Some(verdict) = verdict {
        if verdict.verdict != Verdict::Approved {
            return Err(CountersignatureError::NotApproved { document, verdict: verdict.verdict });
        }
        if !is_independent_review(verdict) {
            return Err(CountersignatureError::SameOrUnknownFamily(document));
        }
    }
    match newest {
        Some(row) if kind == Some(ApprovalKind::Policy) && proofs.contains(&LesserProof::Policy) => {
            return Ok(proof(row));
        }
        _ => {}
    }
    let Some(last) = approvals.last() else {
        return Err(CountersignatureError::Approvals { document, found: 0, needed: 1 });
    };
    let answers: Vec<_> = approvals.iter().map(|approval| approval.answer).collect();
    let (found, needed) = (distinct_people(&answers).len(), last.rule.needed);
    if last.rule.is_satisfied_by(&answers) {
        Ok(proof(last.row))
    } else if found < usize::try_from(needed).unwrap_or(usize::MAX) {
        Err(CountersignatureError::Approvals { document, found, needed })
    } else {
        Err(CountersignatureError::OwnerApproval(document))
    }
}

/// Returns the valid approvals of `subject` so far, one per person, and whether they satisfy the subject's gate.
pub(super) fn counted_approvers(
    document: Hash,
    subject: Hash,
    ledger: &RunLedger,
) -> (Vec<GateAnswer>, bool) {
    let mut approvals = counted_approvals(document, subject, ledger);
    approvals.retain(|approval| approval.row.kind != ApprovalKind::Override);
    let answers: Vec<_> = approvals.iter().map(|approval| approval.answer).collect();
    let enough = approvals.last().is_some_and(|last| last.rule.is_satisfied_by(&answers));
    (distinct_people(&answers).into_iter().cloned().collect(), enough)
}

fn distinct_people<'a>(answers: &[&'a GateAnswer]) -> Vec<&'a GateAnswer> {
    let mut seen = HashSet::new();
    answers.iter().copied().filter(|answer| seen.insert(answer.by.id)).collect()
}

/// Returns whether the reviewer's family is known and differs from the drafter's. A human drafter has no family, so any
/// known reviewer differs. A drafter model of unknown family could be of the reviewer's family, so it does not count as
/// different.
fn is_independent_review(verdict: &VerdictRow) -> bool {
    let Some(reviewer) = &verdict.reviewer_family else { return false };
    match &verdict.drafter_family {
        Some(drafter) => drafter != reviewer,
        None => verdict.drafter_served.is_none(),
    }
}

/// A person's approval, and the approver rule of the gate at which it was given.
struct CountedApproval<'a> {
    row: &'a ApprovalRow,
    answer: &'a GateAnswer,
    gate: u64,
    rule: &'a Approvers,
}

/// Returns people's approvals of this document at the newest gate about this subject. An approval counts only if its
/// answer was recorded and the gate's rule accepts that answer.
fn counted_approvals(document: Hash, subject: Hash, ledger: &RunLedger) -> Vec<CountedApproval<'_>> {
    let rows = ledger.approvals.iter().filter(|row| row.document == document && row.subject == subject);
    let mut approvals: Vec<_> = rows.filter_map(|row| counted_approval(row, ledger)).collect();
    let last = approvals.last().map(|approval| approval.gate);
    approvals.retain(|approval| Some(approval.gate) == last);
    approvals
}

/// Matches an approval row with its recorded answer. Returns `None` if there was no such answer or the gate's rule does
/// not accept it.
fn counted_approval<'a>(row: &'a ApprovalRow, ledger: &'a RunLedger) -> Option<CountedApproval<'a>> {
    let verb = match row.kind {
        ApprovalKind::Approve | ApprovalKind::Unreviewed => Verb::Approve,
        ApprovalKind::Override => Verb::Override,
        ApprovalKind::Policy => return None,
    };
    let answer = row.answer.as_ref()?;
    let reasoned = verb == Verb::Approve || !answer.text.trim().is_empty();
    ledger
        .answers
        .iter()
        .find(|(stored, _)| stored.answer == *answer && stored.subject == row.subject)
        .filter(|(_, rule)| {
            answer.verb == verb && reasoned && rule.ineligibility(answer, verb == Verb::Override).is_none()
        })
        .map(|(stored, rule)| CountedApproval { row, answer, gate: stored.gate, rule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{AllowedResponders, AnswerRow},
        types::{Actor, Cause, Family, Role, Timestamp, UserId},
    };

    fn verdict(document: Hash, verdict: Verdict) -> VerdictRow {
        VerdictRow {
            document,
            round: 1,
            verdict,
            reviewer_served: None,
            reviewer_family: Some(Family("gemini".into())),
            drafter_served: None,
            drafter_family: Some(Family("claude".into())),
            prompt: document,
            nonce: "abcdefgh".into(),
            why: String::new(),
        }
    }

    /// Adds a person's recorded answer and its approval row.
    fn add_approval(ledger: &mut RunLedger, document: Hash, subject: Hash, person: u64, needed: u32) {
        let id = ledger.answers.len() as u64 + 1;
        let rule = Approvers { needed, ..Approvers::default() };
        let answer = GateAnswer {
            cause: Cause(format!("delivery-{id}#0")),
            verb: Verb::Approve,
            stage: None,
            hash: None,
            way: None,
            text: String::new(),
            by: Actor { id: UserId(person), login: format!("user-{person}"), bot: false },
            role: Role::Write,
            at: Timestamp(0),
            url: None,
            commit: None,
            review: None,
        };
        ledger.answers.push((AnswerRow { id, gate: 1, subject, answer: answer.clone() }, rule));
        ledger.approvals.push(ApprovalRow {
            document,
            subject,
            answer: Some(answer),
            kind: ApprovalKind::Approve,
            with: Vec::new(),
        });
    }

    #[test]
    fn repeated_approvals_by_one_person_count_once() {
        let (document, subject) = (Hash::digest(b"design"), Hash::digest(b"design and policy"));
        let mut ledger =
            RunLedger { verdicts: vec![verdict(document, Verdict::Approved)], ..RunLedger::default() };
        add_approval(&mut ledger, document, subject, 1, 2);
        add_approval(&mut ledger, document, subject, 1, 2);
        add_approval(&mut ledger, document, Hash::digest(b"design and an older policy"), 2, 1);
        add_approval(&mut ledger, document, subject, 1, 2);
        assert_eq!(
            prove_countersigned(document, &ledger, &[]).unwrap_err(),
            CountersignatureError::Approvals { document, found: 1, needed: 2 }
        );
        add_approval(&mut ledger, document, subject, 3, 2);
        assert_eq!(
            prove_countersigned(document, &ledger, &[]).unwrap().approval().answer.as_ref().unwrap().by.id,
            UserId(3)
        );
    }

    #[test]
    fn each_file_needs_approval_by_an_owner_other_than_the_requester() {
        let (document, subject) = (Hash::digest(b"design"), Hash::digest(b"design and policy"));
        let mut ledger =
            RunLedger { verdicts: vec![verdict(document, Verdict::Approved)], ..RunLedger::default() };
        let owner = |person| AllowedResponders::Either { people: vec![UserId(person)], role: None };
        let rule = Approvers { needed: 1, not: Some(UserId(4)), owners: vec![owner(1), owner(2)] };
        let mut approve = |person| {
            add_approval(&mut ledger, document, subject, person, 1);
            ledger.answers.last_mut().unwrap().1 = rule.clone();
            let (given, enough) = counted_approvers(document, subject, &ledger);
            let by: Vec<u64> = given.iter().map(|answer| answer.by.id.0).collect();
            let proof = prove_countersigned(document, &ledger, &[]).map(drop);
            assert_eq!(enough, proof.is_ok());
            (by, proof)
        };
        assert_eq!(approve(4).0, [0; 0], "the requester");
        assert_eq!(approve(3).0, [0; 0], "not an owner");
        assert_eq!(approve(1), (vec![1], Err(CountersignatureError::OwnerApproval(document))));
        assert_eq!(approve(2), (vec![1, 2], Ok(())));
        // Approvals at an earlier gate about the same subject do not count.
        add_approval(&mut ledger, document, subject, 1, 2);
        ledger.answers.last_mut().unwrap().0.gate = 2;
        let refused = CountersignatureError::Approvals { document, found: 1, needed: 2 };
        assert_eq!(prove_countersigned(document, &ledger, &[]).unwrap_err(), refused);
    }

    #[test]
    fn only_the_newest_verdict_on_a_document_counts() {
        let (document, subject) = (Hash::digest(b"design"), Hash::digest(b"design and policy"));
        let verdicts = vec![verdict(document, Verdict::Approved), verdict(document, Verdict::Revise)];
        let mut ledger = RunLedger { verdicts, ..RunLedger::default() };
        add_approval(&mut ledger, document, subject, 1, 1);
        let refused = CountersignatureError::NotApproved { document, verdict: Verdict::Revise };
        assert_eq!(prove_countersigned(document, &ledger, &[]).unwrap_err(), refused);
        ledger.verdicts.push(verdict(Hash::digest(b"another"), Verdict::Approved));
        assert_eq!(prove_countersigned(document, &ledger, &[]).unwrap_err(), refused);
    }

    #[test]
    fn review_by_the_drafters_or_an_unknown_model_family_is_refused() {
        let (document, subject) = (Hash::digest(b"design"), Hash::digest(b"design and policy"));
        let family = |name: &str| Some(Family(name.into()));
        for (reviewer, drafter, served, good) in [
            (family("gemini"), family("claude"), Some("claude-x"), true),
            (family("claude"), family("claude"), Some("claude-x"), false),
            (family("gemini"), None, None, true),
            (family("gemini"), None, Some("who-knows"), false),
            (None, family("claude"), Some("claude-x"), false),
            (None, None, None, false),
        ] {
            let mut row = verdict(document, Verdict::Approved);
            (row.reviewer_family, row.drafter_family) = (reviewer, drafter);
            row.drafter_served = served.map(str::to_owned);
            let mut ledger = RunLedger { verdicts: vec![row.clone()], ..RunLedger::default() };
            add_approval(&mut ledger, document, subject, 1, 1);
            let proof = prove_countersigned(document, &ledger, &[]).map(|_| ());
            assert_eq!(
                proof,
                if good { Ok(()) } else { Err(CountersignatureError::SameOrUnknownFamily(document)) },
                "{row:?}"
            );
        }
    }

    #[test]
    fn approval_by_policy_or_without_review_counts_only_if_the_step_declares_it() {
        let document = Hash::digest(b"design");
        let (kind, with) = (ApprovalKind::Policy, Vec::new());
        let policy = || ApprovalRow { document, subject: document, answer: None, kind, with: with.clone() };
        let reviewed = |verdicts: &[Verdict]| RunLedger {
            verdicts: verdicts.iter().map(|given| verdict(document, *given)).collect(),
            approvals: vec![policy()],
            ..RunLedger::default()
        };
        let declared = &[LesserProof::Policy];
        assert!(prove_countersigned(document, &reviewed(&[Verdict::Approved]), declared).is_ok());
        let unasked = CountersignatureError::Approvals { document, found: 0, needed: 1 };
        assert_eq!(prove_countersigned(document, &reviewed(&[Verdict::Approved]), &[]).unwrap_err(), unasked);
        for other in [Verdict::Revise, Verdict::Blocked, Verdict::Inconclusive] {
            let refused = CountersignatureError::NotApproved { document, verdict: other };
            assert_eq!(prove_countersigned(document, &reviewed(&[other]), declared).unwrap_err(), refused);
        }
        assert_eq!(
            prove_countersigned(document, &reviewed(&[]), declared).unwrap_err(),
            CountersignatureError::Verdict(document)
        );
        let mut same_family = reviewed(&[Verdict::Approved]);
        same_family.verdicts[0].reviewer_family = same_family.verdicts[0].drafter_family.clone();
        assert_eq!(
            prove_countersigned(document, &same_family, declared).unwrap_err(),
            CountersignatureError::SameOrUnknownFamily(document)
        );

        let mut alone = RunLedger::default();
        add_approval(&mut alone, document, document, 1, 1);
        alone.approvals[0].kind = ApprovalKind::Unreviewed;
        assert!(prove_countersigned(document, &alone, &[LesserProof::Unreviewed]).is_ok());
        assert_eq!(
            prove_countersigned(document, &alone, declared).unwrap_err(),
            CountersignatureError::Verdict(document)
        );
        alone.verdicts.push(verdict(document, Verdict::Blocked));
        let refused = CountersignatureError::NotApproved { document, verdict: Verdict::Blocked };
        assert_eq!(prove_countersigned(document, &alone, &[LesserProof::Unreviewed]).unwrap_err(), refused);
        alone.verdicts[0].verdict = Verdict::Approved;
        assert_eq!(
            prove_countersigned(document, &alone, &[]).unwrap_err(),
            unasked,
            "approved before the review"
        );
    }

    #[test]
    fn only_approvals_at_the_newest_gate_count() {
        let document = Hash::digest(b"design");
        let (older, newer) =
            (Hash::digest(b"design and an older policy"), Hash::digest(b"design and policy"));
        let mut ledger =
            RunLedger { verdicts: vec![verdict(document, Verdict::Blocked)], ..RunLedger::default() };
        add_approval(&mut ledger, document, older, 1, 1);
        for answer in [&mut ledger.answers[0].0.answer, ledger.approvals[0].answer.as_mut().unwrap()] {
            answer.verb = Verb::Override;
            answer.text = "known and accepted".into();
        }
        ledger.approvals[0].kind = ApprovalKind::Override;
        assert!(prove_countersigned(document, &ledger, &[]).is_ok(), "a waiver at the newest gate");
        add_approval(&mut ledger, document, newer, 2, 1);
        let refused = CountersignatureError::NotApproved { document, verdict: Verdict::Blocked };
        assert_eq!(
            prove_countersigned(document, &ledger, &[]).unwrap_err(),
            refused,
            "the waiver was for another subject"
        );

        let mut ledger =
            RunLedger { verdicts: vec![verdict(document, Verdict::Approved)], ..RunLedger::default() };
        add_approval(&mut ledger, document, older, 1, 1);
        add_approval(&mut ledger, document, newer, 2, 1);
        ledger.answers.pop();
        let refused = CountersignatureError::Approvals { document, found: 0, needed: 1 };
        assert_eq!(
            prove_countersigned(document, &ledger, &[]).unwrap_err(),
            refused,
            "the newest row has no recorded answer"
        );
    }
}
