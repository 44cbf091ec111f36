//! `[people]`: daily limits per person, and the label that opts an issue out.

use serde::Deserialize;
use toml::Spanned;

use super::budget::{SettingMistake, parse_amount};
use crate::types::MicroUsd;

/// Limits for each person in each repository, and the opt-out label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeopleSettings {
    /// Maximum number of runs that one person may start per repository and UTC day; `None` for no limit.
    pub runs_a_day: Option<u32>,
    /// Maximum total cost of the runs that one person started, per repository and UTC day. A person who has reached
    /// this cost cannot start another run that day. `None` for no limit.
    pub cost_a_day: Option<MicroUsd>,
    /// Label that opts an issue out: we do no work on an issue with this label.
    pub opt_out_label: String,
}

impl PeopleSettings {
    /// Returns whether `label` is the opt-out label, ignoring case as GitHub does.
    pub fn opts_out(&self, label: &str) -> bool {
        self.opt_out_label.eq_ignore_ascii_case(label.trim())
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PeopleTable {
    runs_a_day: Option<u32>,
    cost_a_day: Option<Spanned<String>>,
    opt_out_label: Option<Spanned<String>>,
}

impl PeopleTable {
    pub(super) fn into_settings(self) -> Result<PeopleSettings, SettingMistake> {
        let opt_out_label = match self.opt_out_label {
            None => "no-agent".to_owned(),
            Some(label)
                if label.as_ref().trim().is_empty()
                    || label.as_ref().to_lowercase().starts_with("countersign:") =>
            {
                let message = "opt_out_label must be a label name not starting with countersign:; such labels start and stop runs";
                return Err((label.span().start, message.to_owned()));
            }
            Some(label) => label.as_ref().trim().to_owned(),
        };
        let cost_a_day = match &self.cost_a_day {
            Some(given) => parse_amount("cost_a_day", given)?,
            None => Some(MicroUsd(20_000_000)),
        };
        let runs_a_day = Some(self.runs_a_day.unwrap_or(20)).filter(|most| *most > 0);
        Ok(PeopleSettings { runs_a_day, cost_a_day, opt_out_label })
    }
}
