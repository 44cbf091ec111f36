//! The proof without which nothing is published. It is built from stored rows and nothing else.

use std::collections::HashSet;

use super::port::{APPROVE, OVERRIDE};
use crate::{
    store::{ApprovalKind, ApprovalRow, Ledger, VerdictRow},
    types::{Hash, Verdict},
};

/// A document that a model of another family approved (or a maintainer waived, saying why) and a
/// person countersigned.
#[derive(Debug, Clone)]
pub struct Countersigned {
    verdict: VerdictRow,
    approval: ApprovalRow,
}

impl Countersigned {
    pub fn document(&self) -> Hash {
        self.approval.document
    }

    /// The newest verdict on exactly this document.
    pub fn verdict(&self) -> &VerdictRow {
        &self.verdict
    }

    /// The answer that settled it.
    pub fn approval(&self) -> &ApprovalRow {
        &self.approval
    }
}

/// What is missing before a document may be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("document {0:?} was never reviewed")]
    Verdict(Hash),
    #[error("document {document:?} has the verdict {verdict}, and nobody waived it")]
    Approved { document: Hash, verdict: Verdict },
    #[error("document {0:?} was reviewed by the family that drafted it")]
    OtherFamily(Hash),
    #[error("document {document:?} has {found} of the {needed} approvals its gate asks for")]
    Approvals { document: Hash, found: usize, needed: u32 },
}

pub(super) fn prove(document: Hash, ledger: &Ledger) -> Result<Countersigned, Missing> {
    let verdict = ledger
        .verdicts
        .iter()
        .rev()
        .find(|row| row.document == document)
        .ok_or(Missing::Verdict(document))?;
    // (approval, needed): rows whose answer was really accepted, at a gate about that subject.
    let given: Vec<_> = ledger
        .approvals
        .iter()
        .filter(|row| row.document == document)
        .filter_map(|row| Some((row, accepted(row, ledger)?)))
        .collect();

    if let Some((waiver, _)) = given.iter().rev().find(|(row, _)| row.kind == ApprovalKind::Override) {
        return Ok(Countersigned { verdict: verdict.clone(), approval: (*waiver).clone() });
    }
    if verdict.verdict != Verdict::Approved {
        return Err(Missing::Approved { document, verdict: verdict.verdict });
    }
    if verdict.reviewer_family.is_some() && verdict.reviewer_family == verdict.drafter_family {
        return Err(Missing::OtherFamily(document));
    }
    let Some((last, needed)) = given.last().copied() else {
        return Err(Missing::Approvals { document, found: 0, needed: 1 });
    };
    let people: HashSet<_> = given
        .iter()
        .filter(|(row, _)| row.subject == last.subject)
        .map(|(row, _)| row.answer.by.id)
        .collect();
    if people.len() < usize::try_from(needed).unwrap_or(usize::MAX) {
        return Err(Missing::Approvals { document, found: people.len(), needed });
    }
    Ok(Countersigned { verdict: verdict.clone(), approval: last.clone() })
}

/// Was this row's answer accepted at a gate about its subject? Then how many that gate needs.
fn accepted(row: &ApprovalRow, ledger: &Ledger) -> Option<u32> {
    let verb = match row.kind {
        ApprovalKind::Approve => APPROVE,
        ApprovalKind::Override => OVERRIDE,
    };
    let reasoned = row.kind == ApprovalKind::Approve || !row.answer.text.trim().is_empty();
    ledger
        .answers
        .iter()
        .find(|(stored, _)| stored.answer == row.answer && stored.subject == row.subject)
        .filter(|_| row.answer.verb == verb && reasoned)
        .map(|(_, needed)| *needed)
}
