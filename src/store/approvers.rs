//! Approval rule of a gate: the people whose approvals are accepted, and the number of approvals needed.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{AllowedResponders, GateAnswer};
use crate::types::UserId;

/// Rules for the approval of a gate, in addition to the role that the command requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvers {
    /// Number of distinct people who must approve.
    pub needed: u32,
    /// Person who requested the run. This person may not approve, whatever their role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<UserId>,
    /// Owners whose approvals are needed. Each entry needs an approval from one of its people, and approvals by anyone
    /// else are not accepted. If empty, anyone with the required role may approve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<AllowedResponders>,
}

impl Default for Approvers {
    fn default() -> Self {
        Self { needed: 1, not: None, owners: Vec::new() }
    }
}

/// Reason why a person may not approve at a gate although their role is sufficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IneligibleApprover {
    #[error("cannot be used by the person who requested the run")]
    Requester,
    #[error("can be used only by owners of the files")]
    Owners,
}

impl Approvers {
    /// Returns the reason why this answer is not a valid approval, or `None` if it is valid. If `waives` is set, the
    /// answer is an override, which may come from somebody who is not an owner.
    pub fn ineligibility(&self, answer: &GateAnswer, waives: bool) -> Option<IneligibleApprover> {
        let owns = |who: &AllowedResponders| who.allows(answer.by.id, answer.role);
        match answer.by.id {
            person if self.not == Some(person) => Some(IneligibleApprover::Requester),
            _ if waives || self.owners.is_empty() || self.owners.iter().any(owns) => None,
            _ => Some(IneligibleApprover::Owners),
        }
    }

    /// Returns whether these valid approvals are sufficient.
    pub fn is_satisfied_by(&self, given: &[&GateAnswer]) -> bool {
        let people: HashSet<_> = given.iter().map(|answer| answer.by.id).collect();
        let owned =
            |who: &AllowedResponders| given.iter().any(|answer| who.allows(answer.by.id, answer.role));
        people.len() >= usize::try_from(self.needed).unwrap_or(usize::MAX) && self.owners.iter().all(owned)
    }
}
