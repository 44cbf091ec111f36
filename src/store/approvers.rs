//! Whose approvals count at a gate, and how many it takes.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{AllowedResponders, GateAnswer};
use crate::types::UserId;

/// Who has to approve, besides the role that the verb takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvers {
    /// How many different people must approve.
    pub needed: u32,
    /// Who may not, whatever their role: whoever asked for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<UserId>,
    /// Of each of these somebody has to approve, and nobody else's approval counts. None: whoever may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<AllowedResponders>,
}

impl Default for Approvers {
    fn default() -> Self {
        Self { needed: 1, not: None, owners: Vec::new() }
    }
}

/// Why a person's word does not count at a gate, though their role is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IneligibleApprover {
    #[error("is not for whoever asked for the run")]
    Requester,
    #[error("is for owners of the files alone")]
    Owners,
}

impl Approvers {
    /// May this answer not accept what the gate asks about? A waiver takes no owner.
    pub fn ineligibility(&self, answer: &GateAnswer, waives: bool) -> Option<IneligibleApprover> {
        let owns = |who: &AllowedResponders| who.allows(answer.by.id, answer.role);
        match answer.by.id {
            person if self.not == Some(person) => Some(IneligibleApprover::Requester),
            _ if waives || self.owners.is_empty() || self.owners.iter().any(owns) => None,
            _ => Some(IneligibleApprover::Owners),
        }
    }

    /// Are these enough, each of which counts?
    pub fn is_satisfied_by(&self, given: &[&GateAnswer]) -> bool {
        let people: HashSet<_> = given.iter().map(|answer| answer.by.id).collect();
        let owned =
            |who: &AllowedResponders| given.iter().any(|answer| who.allows(answer.by.id, answer.role));
        people.len() >= usize::try_from(self.needed).unwrap_or(usize::MAX) && self.owners.iter().all(owned)
    }
}
