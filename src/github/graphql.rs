//! GraphQL mutations for changes that would need several REST calls: committing to a branch if its head is as expected,
//! and replacing one label by another. Each change is one request. GitHub compares and moves the branch head
//! atomically, so that no concurrent push is lost.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    error::{GitHubApiError, is_rate_limit_message, is_temporary_refusal, wait_until},
    manifest::GitHubEndpoint,
    repo::GitHubRepo,
    write_pacing::WritePriority,
};
use crate::limits;

/// One field of a mutation: its alias in the response, the mutation and its input.
pub(super) struct GraphQlField {
    pub(super) alias: &'static str,
    pub(super) mutation: &'static str,
    /// GraphQL type of the input.
    pub(super) input_type: &'static str,
    /// GraphQL selection of the fields to return.
    pub(super) selection: &'static str,
    pub(super) input: Value,
}

/// Response with the result of each field of a mutation. GitHub executes the fields in order, and each can fail on its
/// own.
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

/// Deserializes `null` as the default value, because GitHub sends `null` for empty fields.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl GraphQlError {
    /// Returns whether this is a rate limit error. GitHub has used both of these type names for it.
    fn is_rate_limit(&self) -> bool {
        matches!(self.kind.as_str(), "RATE_LIMIT" | "RATE_LIMITED") || is_rate_limit_message(&self.message)
    }

    /// Converts a GraphQL error. GitHub responds 200 even for internal failures, so only known error types become final
    /// errors. An error of unknown or missing type ("Something went wrong while executing your query") is treated like
    /// a 502.
    fn to_api_error(&self, call: String) -> GitHubApiError {
        let message: String = self.message.chars().take(500).collect();
        // An invalid request has no type, only the validator's code.
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
    /// Returns the result of the field named `alias`, or the error that GitHub reported for it.
    pub(super) fn field(&self, call: &GitHubEndpoint, alias: &str) -> Result<&Value, GitHubApiError> {
        let found = &self.data[alias];
        if !found.is_null() {
            return Ok(found);
        }
        let here = |problem: &&GraphQlError| problem.path.first().is_some_and(|at| at == alias);
        // A request that does not parse has an error without a field.
        let problem = self.errors.iter().find(here).or(self.errors.first());
        let call = call.to_string();
        Err(match problem {
            None => GitHubApiError::unexpected(&call, format!("it has neither `{alias}` nor an error")),
            Some(problem) => problem.to_api_error(call),
        })
    }
}

impl GitHubRepo {
    /// Sends a mutation and returns the results of all its fields. An error in one field does not fail the call.
    pub(super) async fn mutate(
        &self,
        call: &'static GitHubEndpoint,
        fields: &[GraphQlField],
        priority: WritePriority,
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
        let answer = self.write(request.priority(priority)).await?;
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
