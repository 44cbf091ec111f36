//! The writes for which REST needs several: a commit on a branch that is still where it was, and one label
//! in another's place. GitHub's GraphQL API does each in one request, and the commit in one piece: between
//! its look at the branch and its move nobody's push is lost.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    error::{GitHubApiError, is_rate_limit_message, is_temporary_refusal, wait_until},
    manifest::GitHubEndpoint,
    repo::GitHubRepo,
    write_pacing::WritePriority,
};
use crate::limits;

/// One field of a mutation: what it is called in the answer, the mutation, its input.
pub(super) struct GraphQlField {
    pub(super) alias: &'static str,
    pub(super) mutation: &'static str,
    /// GitHub's name for the type of the input.
    pub(super) input_type: &'static str,
    /// What is wanted back.
    pub(super) selection: &'static str,
    pub(super) input: Value,
}

/// What came of each field; GitHub takes them in order and lets one fail without the others.
#[derive(Debug, Deserialize)]
pub(super) struct GraphQlResponse {
    #[serde(default)]
    data: Value,
    #[serde(default)]
    errors: Vec<GraphQlError>,
}

#[derive(Debug, Deserialize)]
struct GraphQlError {
    #[serde(rename = "type", default, deserialize_with = "or_none")]
    kind: String,
    #[serde(default, deserialize_with = "or_none")]
    message: String,
    #[serde(default, deserialize_with = "or_none")]
    path: Vec<Value>,
    #[serde(default)]
    extensions: Value,
}

/// GitHub may say `null` of what it has nothing to say of.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl GraphQlError {
    /// GitHub has called it both.
    fn is_rate_limit(&self) -> bool {
        matches!(self.kind.as_str(), "RATE_LIMIT" | "RATE_LIMITED") || is_rate_limit_message(&self.message)
    }

    /// GraphQL says 200 also where GitHub failed. So only what is known to be final is final; a type that is new, or none
    /// ("Something went wrong while executing your query"), is as good as a 502.
    fn into_api_error(&self, call: String) -> GitHubApiError {
        let message: String = self.message.chars().take(500).collect();
        // A request that is not valid has no type but the validator's own code.
        let invalid = self.kind.is_empty() && self.extensions["code"].is_string();
        match self.kind.as_str() {
            "NOT_FOUND" => GitHubApiError::NotFound { call },
            "FORBIDDEN" | "INSUFFICIENT_SCOPES" | "UNPROCESSABLE" if is_temporary_refusal(&message) => {
                GitHubApiError::TemporarilyRefused { call, why: message }
            }
            "FORBIDDEN" | "INSUFFICIENT_SCOPES" => {
                GitHubApiError::Forbidden { call, accepted_permissions: None, message }
            }
            "UNPROCESSABLE" | "STALE_DATA" => {
                GitHubApiError::Rejected { call, status: 422, message, problems: Vec::new() }
            }
            _ if invalid => GitHubApiError::Rejected { call, status: 422, message, problems: Vec::new() },
            _ => GitHubApiError::transient(&call, message),
        }
    }
}

impl GraphQlResponse {
    /// What a field gave back, or why it gave nothing.
    pub(super) fn field(&self, call: &GitHubEndpoint, alias: &str) -> Result<&Value, GitHubApiError> {
        let found = &self.data[alias];
        if !found.is_null() {
            return Ok(found);
        }
        let here = |problem: &&GraphQlError| problem.path.first().is_some_and(|at| at == alias);
        // A request that could not be read at all names no field.
        let problem = self.errors.iter().find(here).or(self.errors.first());
        let call = call.to_string();
        Err(match problem {
            None => GitHubApiError::unexpected(&call, format!("neither `{alias}` nor an error in it")),
            Some(problem) => problem.into_api_error(call),
        })
    }
}

impl GitHubRepo {
    /// Sends a mutation; an error in one of its fields is not one of the whole.
    pub(super) async fn mutate(
        &self,
        call: &'static GitHubEndpoint,
        fields: &[GraphQlField],
        urgency: WritePriority,
    ) -> Result<GraphQlResponse, GitHubApiError> {
        let takes: Vec<_> = fields.iter().map(|f| format!("${}: {}!", f.alias, f.input_type)).collect();
        let does: Vec<_> = fields
            .iter()
            .map(|f| format!("{}: {}(input: ${}) {{ {} }}", f.alias, f.mutation, f.alias, f.selection))
            .collect();
        let query = format!("mutation({}) {{ {} }}", takes.join(", "), does.join(" "));
        let variables: serde_json::Map<_, _> =
            fields.iter().map(|f| (f.alias.to_owned(), f.input.clone())).collect();
        let request =
            self.request_outside_repo(call, &[]).body(json!({ "query": query, "variables": variables }));
        let answer = self.write(request.priority(urgency)).await?;
        let mutated: GraphQlResponse = answer.json()?;
        if mutated.errors.iter().any(GraphQlError::is_rate_limit) {
            let now = self.github().now();
            let until = wait_until(&answer.headers, now).unwrap_or(now.plus(limits::RATE_PAUSE));
            self.github().api().pause_installation(self.installation(), until);
            return Err(GitHubApiError::RateLimited { until });
        }
        Ok(mutated)
    }
}
