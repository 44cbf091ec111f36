//! `[people]`: what one person may ask for in a day, and how an issue is kept from the bot.

use serde::Deserialize;
use toml::Spanned;

use super::budget::{SettingMistake, parse_amount};
use crate::types::MicroUsd;

/// What holds for people in each repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeopleSettings {
    /// Runs that one person may start in a repository on one day of UTC. None: any number.
    pub runs_a_day: Option<u32>,
    /// What the runs that one person started may put on a bill there on that day before they start no more. None: any sum.
    pub cost_a_day: Option<MicroUsd>,
    /// An issue that bears this label is left alone.
    pub opt_out_label: String,
}

impl PeopleSettings {
    /// Is this the label that keeps an issue from us? Labels that differ in case alone are one to GitHub.
    pub fn opts_out(&self, label: &str) -> bool {
        self.opt_out_label.eq_ignore_ascii_case(label.trim())
    }
}

/// As it is written in the server's file.
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
                let message = "opt_out_label is a label's name, and none of those that start and stop runs";
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
