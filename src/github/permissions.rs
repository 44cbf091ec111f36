//! Permission checks, based on the user's current role in the repository. The author association in a payload is not
//! trusted.

use serde::Deserialize;

use super::{
    error::GitHubApiError,
    manifest::{PERMISSION, TEAM_MEMBERS, USER, missing_permissions_for_run},
    repo::GitHubRepo,
};
use crate::types::{Actor, Role, UserId};

#[derive(Debug, Deserialize)]
struct CollaboratorResponse {
    #[serde(default)]
    permission: String,
    #[serde(default)]
    role_name: String,
    user: Option<CollaboratorUser>,
}

#[derive(Debug, Deserialize)]
struct CollaboratorUser {
    id: u64,
    #[serde(default)]
    login: String,
    #[serde(default, rename = "type")]
    kind: String,
    permissions: Option<PermissionFlags>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PermissionFlags {
    admin: bool,
    maintain: bool,
    push: bool,
    triage: bool,
    pull: bool,
}

impl GitHubRepo {
    /// Returns the actor's current role in the repository. An error means that the role is unknown, not that the actor
    /// has no role.
    pub async fn permission(&self, actor: &Actor) -> Result<Role, GitHubApiError> {
        match self.send(self.request(&PERMISSION, &[&actor.login]).cacheable()).await {
            Ok(answer) => Ok(answer.json::<CollaboratorResponse>()?.role_of(actor)),
            Err(GitHubApiError::NotFound { .. }) => Ok(Role::None),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the permissions that a run needs but the App lacks in this repository, such as `issues: write`.
    /// `on_branch` is true for a run with a branch, and false for a run that writes only on its issue.
    pub async fn missing_permissions(&self, on_branch: bool) -> Result<Vec<String>, GitHubApiError> {
        let lacking = |granted: &_| missing_permissions_for_run(on_branch, granted);
        let api = self.github().api();
        let granted =
            api.granted_permissions(self.installation(), |granted| lacking(granted).is_empty()).await?;
        Ok(granted.map_or_else(Vec::new, |granted| lacking(&granted)))
    }

    /// Returns the account with this login, or `None` if it does not exist.
    pub async fn find_user(&self, login: &str) -> Result<Option<Actor>, GitHubApiError> {
        match self.send(self.request_outside_repo(&USER, &[login]).cacheable()).await {
            Ok(answer) => {
                let CollaboratorUser { id, login, kind, .. } = answer.json()?;
                Ok(Some(Actor { id: UserId(id), login, bot: kind == "Bot" }))
            }
            Err(GitHubApiError::NotFound { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Returns a team's members, or `None` if the team does not exist or GitHub does not show it to us.
    pub async fn team_members(
        &self,
        organization: &str,
        team: &str,
    ) -> Result<Option<Vec<UserId>>, GitHubApiError> {
        match self
            .list_all::<CollaboratorUser>(self.request_outside_repo(&TEAM_MEMBERS, &[organization, team]))
            .await
        {
            Ok(people) => Ok(Some(people.into_iter().map(|person| UserId(person.id)).collect())),
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Forbidden { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

impl CollaboratorResponse {
    fn role_of(&self, actor: &Actor) -> Role {
        // A login can be given up and taken by someone else; the id cannot.
        match &self.user {
            Some(user) if user.id == actor.id.0 => match &user.permissions {
                Some(rights) => rights.role(),
                // A custom role has a name that we do not know; `permission` is its base role.
                None => self.role_name.parse().or_else(|_| self.permission.parse()).unwrap_or(Role::None),
            },
            _ => Role::None,
        }
    }
}

impl PermissionFlags {
    fn role(&self) -> Role {
        match self {
            Self { admin: true, .. } => Role::Admin,
            Self { maintain: true, .. } => Role::Maintain,
            Self { push: true, .. } => Role::Write,
            Self { triage: true, .. } => Role::Triage,
            Self { pull: true, .. } => Role::Read,
            _ => Role::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::UserId;

    fn role(answer: serde_json::Value) -> Role {
        let actor = Actor { id: UserId(7), login: "ann".into(), bot: false };
        serde_json::from_value::<CollaboratorResponse>(answer).unwrap().role_of(&actor)
    }

    #[test]
    fn permission_flags_override_role_names() {
        // GitHub reports triage as "read" and maintain as "write" in `permission`.
        let answer = |permission, rights| json!({ "permission": permission, "role_name": "custom", "user": { "id": 7, "permissions": rights } });
        assert_eq!(
            role(answer(
                "write",
                json!({"admin": false, "maintain": true, "push": true, "triage": true, "pull": true})
            )),
            Role::Maintain
        );
        assert_eq!(role(answer("read", json!({"triage": true, "pull": true}))), Role::Triage);
        assert_eq!(role(answer("admin", json!({"pull": true}))), Role::Read);
        assert_eq!(role(answer("read", json!({}))), Role::None);
    }

    #[test]
    fn login_that_now_belongs_to_another_user_has_no_role() {
        assert_eq!(
            role(json!({"permission": "admin", "user": {"id": 8, "permissions": {"admin": true}}})),
            Role::None
        );
        assert_eq!(role(json!({"permission": "admin", "user": null})), Role::None);
    }

    #[test]
    fn role_is_read_from_role_name_or_permission_when_flags_are_missing() {
        assert_eq!(
            role(json!({"permission": "write", "role_name": "maintain", "user": {"id": 7}})),
            Role::Maintain
        );
        assert_eq!(
            role(json!({"permission": "write", "role_name": "release-team", "user": {"id": 7}})),
            Role::Write
        );
    }
}
