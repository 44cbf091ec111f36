//! `[route]`: how free-text requests are routed to a workflow.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    file::parse_seconds,
    workflows::{Refusal, WorkflowSettingsTable},
};

/// Effect of a routing decision. Later variants are stricter, and a repository may only tighten the server's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteMode {
    /// Start the workflow if the match is clear or probable.
    #[default]
    Auto,
    /// Start no workflow; show the commands to paste.
    Confirm,
    /// Call no model; show the list of commands.
    Manual,
}

/// Settings of the router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routing {
    pub mode: RouteMode,
    /// Model that chooses the workflow: `provider:model`, or a name such as `preset:NAME` or `pool:NAME`.
    pub model: String,
    /// Timeout of a routing call to a model API.
    pub service: Duration,
    /// Timeout of a routing call through a local program.
    pub program: Duration,
}

impl Default for Routing {
    fn default() -> Self {
        let [service, program] = [2, 30].map(Duration::from_secs);
        Self { mode: RouteMode::Auto, model: "claude:haiku".to_owned(), service, program }
    }
}

/// Allowed timeouts in seconds. The maximum is low because a person waits for the answer.
const TIMEOUT: RangeInclusive<u64> = 1..=300;

impl WorkflowSettingsTable {
    pub(super) fn routing_settings(&self, usual: &Routing) -> Result<Routing, Refusal> {
        let time = |name: &str, given: &Option<Spanned<String>>, usual| match given {
            None => Ok(usual),
            Some(given) => parse_seconds(given.as_ref(), &TIMEOUT).ok_or_else(|| {
                let value = given.as_ref();
                (
                    given.span().start,
                    format!("{name} = {value:?} is not a duration; write seconds or minutes, 1s to 5m"),
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

    /// Builds a repository's routing settings. They may only tighten the server's settings.
    pub(super) fn tighten_routing(&self, server: &Routing) -> Result<Routing, Refusal> {
        let others = [&self.model, &self.service_timeout, &self.program_timeout];
        if let Some(given) = others.into_iter().flatten().next() {
            return Err((
                given.span().start,
                "a repository may only set mode in [route]; remove the line".into(),
            ));
        }
        match &self.mode {
            Some(mode) if *mode.as_ref() < server.mode => {
                let message =
                    "this mode would start more work than the server's mode allows; remove the line"
                        .to_owned();
                Err((mode.span().start, message))
            }
            _ => self.routing_settings(server),
        }
    }
}
