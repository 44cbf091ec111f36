//! `[route]`: how a request in free words is read.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    file::parse_seconds,
    workflows::{Refusal, WorkflowSettingsTable},
};

/// What a decision may lead to. Later ones are stricter, and a repository may go on in this order alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteMode {
    /// What is clear or probable is begun.
    #[default]
    Auto,
    /// Nothing is begun: people are given lines to paste.
    Confirm,
    /// No model is asked: people are shown the commands.
    Manual,
}

/// How a request in free words is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routing {
    pub mode: RouteMode,
    /// `provider:model`, or another name for one or several.
    pub model: String,
    /// How long a service may take to answer.
    pub service: Duration,
    /// How long a program may that runs on this machine.
    pub program: Duration,
}

impl Default for Routing {
    fn default() -> Self {
        let [service, program] = [2, 30].map(Duration::from_secs);
        Self { mode: RouteMode::Auto, model: "claude:haiku".to_owned(), service, program }
    }
}

/// Whoever asked does not wait longer.
const TIMEOUT: RangeInclusive<u64> = 1..=300;

impl WorkflowSettingsTable {
    /// The server's own word.
    pub(super) fn routing_settings(&self, usual: &Routing) -> Result<Routing, Refusal> {
        let time = |name: &str, given: &Option<Spanned<String>>, usual| match given {
            None => Ok(usual),
            Some(given) => parse_seconds(given.as_ref(), &TIMEOUT).ok_or_else(|| {
                let said = given.as_ref();
                (
                    given.span().start,
                    format!("{name} = {said:?} is no time; write seconds or minutes, 1s to 5m"),
                )
            }),
        };
        Ok(Routing {
            mode: self.mode.as_ref().map_or(usual.mode, |mode| *mode.as_ref()),
            model: self.model.as_ref().map_or(&usual.model, Spanned::as_ref).clone(),
            service: time("service_timeout", &self.service_timeout, usual.service)?,
            program: time("program_timeout", &self.program_timeout, usual.program)?,
        })
    }

    /// A repository's word.
    pub(super) fn tighten_routing(&self, server: &Routing) -> Result<Routing, Refusal> {
        let others = [&self.model, &self.service_timeout, &self.program_timeout];
        if let Some(given) = others.into_iter().flatten().next() {
            return Err((
                given.span().start,
                "of [route] a repository sets mode alone; remove the line".into(),
            ));
        }
        match &self.mode {
            Some(mode) if *mode.as_ref() < server.mode => {
                let message =
                    "mode would begin work that the server does not begin; remove the line".to_owned();
                Err((mode.span().start, message))
            }
            _ => self.routing_settings(server),
        }
    }
}
