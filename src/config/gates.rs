//! Rules for approvals at a workflow's gates, in addition to the role that a person needs: the number of approvals, the
//! permitted approvers, and deadlines.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::workflows::{Refusal, WorkflowSettingsTable};

const MOST_APPROVALS: u32 = 6;

/// Maximum value of `remind_days` and of `expire_days`, in days: one year.
const MOST_DAYS: u32 = 365;

/// Approval rules and deadlines for the gates of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRules {
    /// Number of distinct people who must approve.
    pub approvals: u32,
    /// Whether the person who requested a run is barred from approving it.
    pub approver_not_requester: bool,
    /// Whether only code owners may approve. If true, each file needs an approval by one of its owners.
    pub code_owners: bool,
    /// Number of days after which people are reminded once; 0 for no reminder.
    pub remind_days: u32,
    /// Number of days without an answer after which the run ends; 0 for no deadline.
    pub expire_days: u32,
}

impl Default for GateRules {
    fn default() -> Self {
        Self {
            approvals: 1,
            approver_not_requester: false,
            code_owners: false,
            remind_days: 7,
            expire_days: 30,
        }
    }
}

impl GateRules {
    /// Returns whether more is required than one approval by any person with the required role.
    pub fn has_extra_rules(&self) -> bool {
        self.approvals > 1 || self.approver_not_requester || self.code_owners
    }
}

impl WorkflowSettingsTable {
    /// Applies this table to the rules `before`. For the server's file, `before` contains the defaults. For a
    /// repository's file, `before` contains the server's rules, which the repository may only tighten.
    pub(super) fn gate_rules(&self, before: &GateRules, server: bool) -> Result<GateRules, Refusal> {
        let mut rules = before.clone();
        let least = if server { 1 } else { before.approvals };
        if let Some(given) = &self.approvals {
            rules.approvals = parse_number("approvals", given, least..=MOST_APPROVALS)?;
        }
        for (name, given, rule) in [
            ("approver_not_requester", &self.approver_not_requester, &mut rules.approver_not_requester),
            ("code_owners", &self.code_owners, &mut rules.code_owners),
        ] {
            let Some(given) = given else { continue };
            if *rule && !*given.as_ref() {
                let message = format!(
                    "{name} = false would remove a requirement of the server; remove the line or set it to true"
                );
                return Err((given.span().start, message));
            }
            *rule = *given.as_ref();
        }
        if let Some(given) = &self.remind_days {
            rules.remind_days = parse_number("remind_days", given, 0..=MOST_DAYS)?;
        }
        if let Some(given) = &self.expire_days {
            let days = match before.expire_days {
                most @ 1.. if !server => 1..=most,
                _ => 0..=MOST_DAYS,
            };
            rules.expire_days = parse_number("expire_days", given, days)?;
        }
        Ok(rules)
    }
}

pub(super) fn parse_number(
    name: &str,
    given: &Spanned<u32>,
    within: RangeInclusive<u32>,
) -> Result<u32, Refusal> {
    let number = *given.as_ref();
    if within.contains(&number) {
        return Ok(number);
    }
    let message = format!("{name} = {number} is outside {} to {}", within.start(), within.end());
    Err((given.span().start, message))
}
