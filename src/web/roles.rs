//! State of each agent role on this server: the model that the role uses, and whether the role is available.

use crate::{
    agents::{AgentRole, ROLES},
    config::{RouteMode, Settings},
    providers::ModelProviders,
};

/// State of one agent role on this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleState {
    pub name: &'static str,
    /// State as a word: `ready` or `unavailable`.
    pub state: &'static str,
    pub why: String,
}

impl RoleState {
    pub fn text(&self) -> String {
        format!("{}: {}, {}", self.name, self.state, self.why)
    }
}

/// Returns the current state of all roles.
pub fn role_states(settings: &Settings, providers: &ModelProviders) -> Vec<RoleState> {
    ROLES.iter().map(|role| state(role, settings, providers)).collect()
}

fn state(role: &AgentRole, settings: &Settings, providers: &ModelProviders) -> RoleState {
    let role_state = |state, why| RoleState { name: role.name, state, why };
    let (models, routing) = (&settings.models, settings.routing());
    let drafter = models.drafter_of(role.name);
    let routing = routing.filter(|routing| routing.mode != RouteMode::Manual);
    let (spec, does) = match role.name {
        "architect" => (drafter, "drafts designs"),
        "implementer" => (drafter, "drafts code"),
        "tester" => (drafter, "drafts tests"),
        "maintainer" => (drafter, "fixes what CI finds"),
        "ingestor" => (drafter, "drafts issues"),
        "reviewer" => (models.reviewer.as_str(), "reviews"),
        "narrator" => match routing {
            Some(routing) => {
                (routing.model.as_str(), "plans searches, answers questions and says what changes do")
            }
            None => {
                return role_state(
                    "unavailable",
                    "[route] is switched off, and this role uses its model".to_owned(),
                );
            }
        },
        _ => return role_state("unavailable", "no workflow uses it yet".to_owned()),
    };
    match providers.missing_requirement(spec) {
        // The model's own entry says what is missing.
        Some(_) => role_state("unavailable", format!("{spec} cannot be asked")),
        None => role_state("ready", format!("{spec} {does}")),
    }
}
