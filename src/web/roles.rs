//! How each role stands on this server: which workflow has work for it, with which model and which of its tools.

use crate::{
    agents::{ROLES, Role, Tool},
    config::{RouteMode, Settings, ToolSettings},
    engine::Workflow as _,
    providers::Providers,
    workflows::{implement::Implement, lld::Lld, spec::Spec},
};

/// How a role stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleState {
    pub name: &'static str,
    /// Ready with a model and all of its tools, degraded without some of them, unavailable without a model or where no workflow
    /// has work for it.
    pub state: &'static str,
    pub why: String,
}

/// All ten, as they stand now.
pub fn roles(settings: &Settings, providers: &Providers) -> Vec<RoleState> {
    ROLES.iter().map(|role| state(role, settings, providers)).collect()
}

fn state(role: &Role, settings: &Settings, providers: &Providers) -> RoleState {
    let said = |state, why| RoleState { name: role.name, state, why };
    // Those that are on in any workflow where the role works.
    let tools = |workflows: &[&str], on: fn(&ToolSettings) -> bool| {
        let of = workflows.iter().filter_map(|name| settings.workflow(name).tools.as_ref());
        of.filter(|tools| on(tools)).max_by_key(|tools| tools.commands)
    };
    let (models, routing) = (&settings.models, settings.routing());
    let routing = routing.filter(|routing| routing.mode != RouteMode::Manual);
    let (does, spec, on) = match role.name {
        "architect" => ("drafts designs", &models.drafter, tools(&[Lld::NAME, Spec::NAME], |on| on.drafter)),
        "implementer" => ("drafts code", &models.drafter, tools(&[Implement::NAME], |on| on.drafter)),
        "reviewer" => {
            ("reviews", &models.reviewer, tools(&[Lld::NAME, Spec::NAME, Implement::NAME], |on| on.reviewer))
        }
        "narrator" => match routing {
            Some(routing) => ("plans searches", &routing.model, None),
            None => {
                return said(
                    "unavailable",
                    "[route] is switched off, and its model plans searches".to_owned(),
                );
            }
        },
        _ => return said("unavailable", "no workflow has work for it yet".to_owned()),
    };
    // What it lacks is said of the model.
    if providers.lacks(spec).is_some() {
        return said("unavailable", format!("{spec} cannot be asked"));
    }
    let has = |tool: &Tool| on.is_some_and(|on| tool.reads() || tool.runs() && on.commands);
    let without = role.tools.iter().filter(|tool| !has(tool)).map(|tool| tool.name());
    match without.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => said("ready", format!("{spec} {does}")),
        tools => said("degraded", format!("{spec} {does} without {tools}")),
    }
}
