//! Whether the model of a role can be asked.

use crate::{messages::RoleState, providers::ModelProviders};

/// Whether a role can work with this model; `does` says what it would do.
pub fn role_state(name: &'static str, spec: &str, does: &str, providers: &ModelProviders) -> RoleState {
    let (state, why) = match providers.lacks(spec) {
        // What it lacks is said of the model.
        Some(_) => ("unavailable", format!("{spec} cannot be asked")),
        None => ("ready", format!("{spec} {does}")),
    };
    RoleState { name, state, why }
}
