//! How a role stands: whether its model can be asked, and whether it has the tools that the settings switch on.

use crate::{
    agents::{self, Profile},
    config::ToolSettings,
    messages::RoleState,
    providers::Providers,
};

/// How a role stands that this model works in: what it `does`, with these tools switched on. Which commands a repository has its
/// kind says, where that is known.
pub fn role_state(
    name: &'static str,
    (spec, does): (&str, &str),
    tools: Option<&ToolSettings>,
    kind: Option<Profile>,
    providers: &Providers,
) -> RoleState {
    let said = |state, why| RoleState { name, state, why };
    // What it lacks is said of the model.
    if providers.lacks(spec).is_some() {
        return said("unavailable", format!("{spec} cannot be asked"));
    }
    let role = agents::role(name).expect("the role is in the table");
    let kind = kind.filter(|_| tools.is_some_and(|on| on.commands));
    let lacks =
        |kind: Profile| role.tools.iter().filter(move |tool| tool.runs() && kind.line(**tool).is_none());
    let without: Vec<_> = kind.into_iter().flat_map(lacks).map(|tool| tool.name()).collect();
    match without.join(", ") {
        none if none.is_empty() => said("ready", format!("{spec} {does}")),
        without => {
            said("degraded", format!("{spec} {does} without {without}, which this kind of repository lacks"))
        }
    }
}
