//! The writes for which REST needs several: a commit on a branch that is still where it was, and one label
//! in another's place. GitHub's GraphQL API does each in one request, and the commit in one piece: between
//! its look at the branch and its move nobody's push is lost.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{error::Fault, manifest::Call, pace::Urgency, repo::Repo};
use crate::limits;

/// One field of a mutation: what it is called in the answer, the mutation, its input.
pub(super) struct Field {
    pub(super) alias: &'static str,
    pub(super) mutation: &'static str,
    /// GitHub's name for the type of the input.
    pub(super) takes: &'static str,
    /// What is wanted back.
    pub(super) gives: &'static str,
    pub(super) input: Value,
}

/// What came of each field; GitHub takes them in order and lets one fail without the others.
#[derive(Debug, Deserialize)]
pub(super) struct Mutated {
    #[serde(default)]
    data: Value,
    #[serde(default)]
    errors: Vec<Problem>,
}

#[derive(Debug, Deserialize)]
struct Problem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    path: Vec<Value>,
}

impl Mutated {
    /// What a field gave back, or why it gave nothing.
    pub(super) fn field(&self, call: &Call, alias: &str) -> Result<&Value, Fault> {
        let found = &self.data[alias];
        if !found.is_null() {
            return Ok(found);
        }
        let here = |problem: &&Problem| problem.path.first().is_some_and(|at| at == alias);
        // A request that could not be read at all names no field.
        let problem = self.errors.iter().find(here).or(self.errors.first());
        let call = call.to_string();
        Err(match problem {
            None => Fault::unexpected(&call, format!("neither `{alias}` nor an error in it")),
            Some(problem) => {
                let message: String = problem.message.chars().take(500).collect();
                match problem.kind.as_str() {
                    "NOT_FOUND" => Fault::NotFound { call },
                    "FORBIDDEN" | "INSUFFICIENT_SCOPES" => {
                        Fault::Forbidden { call, accepted_permissions: None, message }
                    }
                    _ => Fault::Rejected { call, status: 422, message, problems: Vec::new() },
                }
            }
        })
    }
}

impl Repo {
    /// Sends a mutation; an error in one of its fields is not one of the whole.
    pub(super) async fn mutate(
        &self,
        call: &'static Call,
        fields: &[Field],
        urgency: Urgency,
    ) -> Result<Mutated, Fault> {
        let takes: Vec<_> = fields.iter().map(|f| format!("${}: {}!", f.alias, f.takes)).collect();
        let does: Vec<_> = fields
            .iter()
            .map(|f| format!("{}: {}(input: ${}) {{ {} }}", f.alias, f.mutation, f.alias, f.gives))
            .collect();
        let query = format!("mutation({}) {{ {} }}", takes.join(", "), does.join(" "));
        let variables: serde_json::Map<_, _> =
            fields.iter().map(|f| (f.alias.to_owned(), f.input.clone())).collect();
        let request = self.bare(call).body(json!({ "query": query, "variables": variables }));
        let mutated: Mutated = self.write(request.urgency(urgency)).await?.json()?;
        if mutated.errors.iter().any(|problem| problem.kind == "RATE_LIMITED") {
            return Err(Fault::RateLimited { until: self.github().now().plus(limits::RATE_PAUSE) });
        }
        Ok(mutated)
    }
}
