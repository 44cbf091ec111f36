//! Who has to answer at a workflow's gates, besides what a role allows, and by when.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::workflows::{Refusal, WorkflowSettingsTable};

/// More people than this are never asked about one document.
const MOST_APPROVALS: u32 = 6;

/// A year: who has not answered by then does not.
const MOST_DAYS: u32 = 365;

/// What the gates of a workflow ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRules {
    /// So many different people have to approve.
    pub approvals: u32,
    /// Whoever asked for the run may not.
    pub approver_not_requester: bool,
    /// Only owners of the files may, and of each file one has to.
    pub code_owners: bool,
    /// People are reminded once after so many days; 0: never.
    pub remind_days: u32,
    /// A run that nobody answered for so many days ends; 0: never.
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
    /// Do they ask for more than anybody who may? Then somebody has to be asked.
    pub fn has_extra_rules(&self) -> bool {
        self.approvals > 1 || self.approver_not_requester || self.code_owners
    }
}

impl WorkflowSettingsTable {
    /// What the table makes of the rules there are: the defaults, or what a `server` says that a repository may tighten.
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
                    "{name} = false would loosen what the server demands; remove the line or set it to true"
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
