//! `[timeouts]`: timeouts of model calls.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, file::SettingsChecker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout of a call that can use only one model and no fallback.
    pub call: Duration,
    /// Timeout of the Claude program when the API is its fallback. Also the timeout of each model of a pool except the
    /// last.
    pub first_leg: Duration,
    /// Timeout of the API call that is made after the Claude program has failed.
    pub second_leg: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let [call, first_leg, second_leg] = [300, 180, 300].map(Duration::from_secs);
        Self { call, first_leg, second_leg }
    }
}

impl Timeouts {
    /// Returns the timeout of the Claude program and its API fallback together. This is also the timeout for all models
    /// of a pool together.
    pub fn both_legs(&self) -> Duration {
        self.first_leg + self.second_leg
    }

    /// Returns the maximum duration of one model call.
    pub fn longest(&self) -> Duration {
        self.call.max(self.both_legs())
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TimeoutsTable {
    call: Option<Spanned<String>>,
    first_leg: Option<Spanned<String>>,
    second_leg: Option<Spanned<String>>,
}

impl TimeoutsTable {
    pub(super) fn to_settings(&self, check: &SettingsChecker<'_>) -> Result<Timeouts, ConfigError> {
        let usual = Timeouts::default();
        let time = |key, given: &Option<_>, usual| check.time(key, given.as_ref(), usual, 1..=3600);
        Ok(Timeouts {
            call: time("call", &self.call, usual.call)?,
            first_leg: time("first_leg", &self.first_leg, usual.first_leg)?,
            second_leg: time("second_leg", &self.second_leg, usual.second_leg)?,
        })
    }
}
