//! How each role stands on this server: which workflow has work for it, and with which model.

use crate::{
    agents::{AgentRole, ROLES},
    config::{RouteMode, Settings},
    providers::ModelProviders,
};

/// Whether a role can work on this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleState {
    pub name: &'static str,
    /// `ready` or `unavailable`.
    pub state: &'static str,
    pub why: String,
}

impl RoleState {
    pub fn text(&self) -> String {
        format!("{}: {}, {}", self.name, self.state, self.why)
    }
}

/// All ten, as they stand now.
pub fn role_states(settings: &Settings, providers: &ModelProviders) -> Vec<RoleState> {
    ROLES.iter().map(|role| state(role, settings, providers)).collect()
}

fn state(role: &AgentRole, settings: &Settings, providers: &ModelProviders) -> RoleState {
    let said = |state, why| RoleState { name: role.name, state, why };
    let (models, routing) = (&settings.models, settings.routing());
    let drafter = models.drafter_of(role.name);
    let routing = routing.filter(|routing| routing.mode != RouteMode::Manual);
    let (spec, does) = match role.name {
        "architect" => (drafter, "drafts designs"),
        "implementer" => (drafter, "drafts code"),
        "tester" => (drafter, "drafts tests"),
        "maintainer" => (drafter, "mends what CI finds"),
        "ingestor" => (drafter, "drafts issues"),
        "reviewer" => (models.reviewer.as_str(), "reviews"),
        "narrator" => match routing {
            Some(routing) => {
                (routing.model.as_str(), "plans searches, answers questions and says what changes do")
            }
            None => {
                return said(
                    "unavailable",
                    "[route] is switched off, and its model would work in it".to_owned(),
                );
            }
        },
        _ => return said("unavailable", "no workflow has work for it yet".to_owned()),
    };
    match providers.missing_requirement(spec) {
        // The model's own entry says what it lacks.
        Some(_) => said("unavailable", format!("{spec} cannot be asked")),
        None => said("ready", format!("{spec} {does}")),
    }
}
