//! The GraphQL operations that our client uses: two queries and five mutations. One request may contain several
//! mutations. They are executed in order, and each may fail without the others.
//!
//! localhub reads from a GraphQL document only the operation, the names of its mutations and their input variables.
//! Responses always contain all fields.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{HubPermissionLevel, RestCall, RestError, RestResult};
use crate::{
    localhub::{
        HubError,
        actions::signature,
        git::TreeChange,
        json::node_id,
        model::{HubRepository, HubState},
    },
    types::{CommentId, IssueNo, Oid, RepoId, RepoName, UserId},
};

#[derive(Deserialize)]
struct GraphQlRequest {
    query: String,
    #[serde(default)]
    variables: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateRefInput {
    repository_id: String,
    name: String,
    oid: Oid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateCommitInput {
    branch: CommitBranchInput,
    message: CommitMessageInput,
    #[serde(default)]
    file_changes: FileChangesInput,
    expected_head_oid: Oid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitBranchInput {
    repository_name_with_owner: String,
    branch_name: String,
}

#[derive(Deserialize)]
struct CommitMessageInput {
    headline: String,
    #[serde(default)]
    body: String,
}

#[derive(Deserialize, Default)]
struct FileChangesInput {
    #[serde(default)]
    additions: Vec<FileAdditionInput>,
    #[serde(default)]
    deletions: Vec<FileDeletionInput>,
}

#[derive(Deserialize)]
struct FileDeletionInput {
    path: String,
}

#[derive(Deserialize)]
struct FileAdditionInput {
    path: String,
    contents: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LabelsInput {
    labelable_id: String,
    label_ids: Vec<String>,
}

#[derive(Deserialize)]
struct EditCommentInput {
    id: String,
    body: String,
}

/// Error of a field: GitHub's error type, if it has one, and the message.
struct HubGraphQlError(Option<&'static str>, String);

impl HubGraphQlError {
    fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self(Some(kind), message.into())
    }
}

type HubGraphQlResult = Result<Value, HubGraphQlError>;

impl From<HubError> for HubGraphQlError {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Missing(what) => Self::new("NOT_FOUND", format!("Could not resolve to {what}.")),
            other => Self::new("UNPROCESSABLE", other.to_string()),
        }
    }
}

impl From<crate::localhub::HubGitError> for HubGraphQlError {
    fn from(error: crate::localhub::HubGitError) -> Self {
        HubError::from(error).into()
    }
}

impl From<RestError> for HubGraphQlError {
    fn from(refusal: RestError) -> Self {
        let kind = match refusal.status {
            404 | 410 => "NOT_FOUND",
            401 | 403 => "FORBIDDEN",
            _ => "UNPROCESSABLE",
        };
        Self::new(kind, refusal.message)
    }
}

impl RestCall<'_> {
    pub(super) fn graphql(&self) -> RestResult {
        let by = self.actor()?;
        let asked: GraphQlRequest = self.body()?;
        if asked.query.starts_with("query") && asked.query.contains("createdViaEmail") {
            return self.comment_origin(&asked.variables);
        }
        if asked.query.starts_with("query") {
            return self.authors(&asked.variables);
        }
        let (mut data, mut errors) = (Map::new(), Vec::new());
        for (alias, mutation, variable) in parse_mutations(&asked.query) {
            let input = asked.variables.get(&variable).cloned().unwrap_or_default();
            let result = match self.hub.mutation_fault(&mutation) {
                Some((kind, message)) => Err(HubGraphQlError(kind, message.to_owned())),
                None => self.mutate(&mutation, by, input),
            };
            let value = result.unwrap_or_else(|HubGraphQlError(kind, message)| {
                let mut error = json!({ "path": [alias], "message": message });
                if let Some(kind) = kind {
                    error["type"] = json!(kind);
                }
                errors.push(error);
                Value::Null
            });
            data.insert(alias, value);
        }
        let mut body = json!({ "data": data });
        if !errors.is_empty() {
            body["errors"] = Value::Array(errors);
        }
        Ok(self.ok(&body))
    }

    /// Responds with whether a comment was created by email.
    fn comment_origin(&self, variables: &BTreeMap<String, Value>) -> RestResult {
        let id = variables.get("id").and_then(Value::as_str).unwrap_or_default();
        let Some((repo, _, comment)) = self.find_comment(id) else {
            let message = format!("Could not resolve to a node with the global id of '{id}'");
            let error = json!({ "type": "NOT_FOUND", "path": ["node"], "message": message });
            return Ok(self.ok(&json!({ "data": { "node": null }, "errors": [error] })));
        };
        self.require_permission(
            repo,
            &[("issues", HubPermissionLevel::Read), ("pull_requests", HubPermissionLevel::Read)],
        )?;
        let by_email = self.state(|s| {
            let comments = s.repositories.get(&repo)?.issues.values().flat_map(|issue| &issue.comments);
            comments.into_iter().find(|of| of.id == comment).map(|of| of.by_email)
        });
        Ok(self.ok(&json!({ "data": { "node": { "createdViaEmail": by_email } } })))
    }

    /// Returns the repository, issue and id of the comment with this node id.
    fn find_comment(&self, id: &str) -> Option<(RepoId, IssueNo, CommentId)> {
        self.state(|s| {
            let mut comments = s.repositories.values().flat_map(|repo| {
                let all = repo.issues.values().flat_map(|i| i.comments.iter().map(move |c| (i.number, c.id)));
                all.map(|(number, comment)| (repo.id, IssueNo(number), comment))
            });
            comments.find(|(_, _, comment)| node_id("IC", comment.0) == id)
        })
    }

    /// Responds with the last editors of an issue's title and body.
    fn authors(&self, variables: &BTreeMap<String, Value>) -> RestResult {
        let word = |name: &str| variables.get(name).and_then(Value::as_str).unwrap_or_default();
        let repo = self.repo(word("owner"), word("name"), &[("issues", HubPermissionLevel::Read)])?;
        let number = variables.get("number").and_then(Value::as_u64).unwrap_or_default();
        let issue = self.state(|s| {
            let home = s.repositories.get(&repo)?;
            let issue = home.issues.get(&number)?;
            let who = |id: UserId| {
                let account = s.accounts.get(&id)?;
                Some(json!({ "login": account.login, "databaseId": id }))
            };
            let renamed = issue.events.iter().rev().find(|event| event.event == "renamed");
            let nodes: Vec<_> = renamed
                .map(|event| json!({ "actor": who(event.actor), "createdAt": event.at.to_string() }))
                .into_iter()
                .collect();
            Some(json!({
                "author": who(issue.author), "editor": issue.editor.and_then(who),
                "authorAssociation": self.json(s).association(home, issue.author),
                "lastEditedAt": issue.edited_at.map(|at| at.to_string()),
                "timelineItems": { "nodes": nodes },
            }))
        });
        Ok(self.ok(&json!({ "data": { "repository": { "issue": issue } } })))
    }

    fn mutate(&self, mutation: &str, by: UserId, input: Value) -> HubGraphQlResult {
        match mutation {
            "createRef" => parse_input(input).and_then(|input| self.create_ref(by, input)),
            "createCommitOnBranch" => parse_input(input).and_then(|input| self.commit_on_branch(by, input)),
            "addLabelsToLabelable" => {
                parse_input(input).and_then(|input| self.change_labels(by, input, true))
            }
            "updateIssueComment" => parse_input(input).and_then(|input| self.edit_comment(by, input)),
            "removeLabelsFromLabelable" => {
                parse_input(input).and_then(|input| self.change_labels(by, input, false))
            }
            other => Err(HubGraphQlError::new("undefinedField", format!("localhub has no mutation {other}"))),
        }
    }

    fn create_ref(&self, by: UserId, input: CreateRefInput) -> HubGraphQlResult {
        let found = self
            .state(|s| s.repositories.keys().copied().find(|id| node_id("R", id.0) == input.repository_id));
        let repo = found.ok_or_else(RestError::not_found)?;
        self.require_permission(repo, &[("contents", HubPermissionLevel::Write)])?;
        let git = self.git(repo);
        self.hub.change(|c| {
            if git.reference(&input.name).is_some() {
                let message = format!("A ref named {:?} already exists in the repository.", input.name);
                return Err(HubGraphQlError::new("UNPROCESSABLE", message));
            }
            git.set_reference(&input.name, &input.oid)?;
            if let Some(branch) = input.name.strip_prefix("refs/heads/") {
                c.follow_branch_move(repo, branch, None, Some(input.oid.clone()), by)?;
            }
            Ok(json!({ "clientMutationId": null, "ref": { "name": input.name } }))
        })
    }

    fn commit_on_branch(&self, by: UserId, input: CreateCommitInput) -> HubGraphQlResult {
        let name: RepoName = input
            .branch
            .repository_name_with_owner
            .parse()
            .map_err(|_| HubGraphQlError::new("NOT_FOUND", "Could not resolve to a Repository."))?;
        let repo = self.repo(&name.owner, &name.name, &[("contents", HubPermissionLevel::Write)])?;
        let (git, branch) = (self.git(repo), input.branch.branch_name);
        let mut entries = Vec::new();
        for FileAdditionInput { path, contents } in input.file_changes.additions {
            let bytes = STANDARD.decode(contents);
            let bytes =
                bytes.map_err(|_| HubGraphQlError::new("UNPROCESSABLE", "contents is not valid Base64"))?;
            entries.push(TreeChange { path, mode: "100644".into(), oid: Some(git.write_blob(&bytes)?) });
        }
        for FileDeletionInput { path } in input.file_changes.deletions {
            entries.push(TreeChange { path, mode: "100644".into(), oid: None });
        }
        let message = match input.message.body.as_str() {
            "" => input.message.headline,
            body => format!("{}\n\n{body}", input.message.headline),
        };
        let expected = input.expected_head_oid;
        self.hub.change(|c| {
            let from = git.branch(&branch).ok_or_else(|| {
                HubGraphQlError::new(
                    "NOT_FOUND",
                    format!("Could not resolve to a Ref with the name {branch:?}."),
                )
            })?;
            if from != expected {
                let message = format!(
                    "Expected branch to point to \"{expected}\" but it did not.  Pull and try again."
                );
                return Err(HubGraphQlError::new("STALE_DATA", message));
            }
            let author = signature(c.account(by)?, c.at);
            let tree = git.make_tree(git.tree_of(from.as_str()).as_ref(), &entries)?;
            let oid = git.commit(&tree, std::slice::from_ref(&from), &author, &author, &message)?;
            git.set_reference(&format!("refs/heads/{branch}"), &oid)?;
            c.follow_branch_move(repo, &branch, Some(from), Some(oid.clone()), by)?;
            Ok(json!({ "clientMutationId": null, "commit": { "oid": oid } }))
        })
    }

    fn edit_comment(&self, by: UserId, input: EditCommentInput) -> HubGraphQlResult {
        let (repo, number, comment) = self.find_comment(&input.id).ok_or_else(RestError::not_found)?;
        self.require_permission(
            repo,
            &[("issues", HubPermissionLevel::Write), ("pull_requests", HubPermissionLevel::Write)],
        )?;
        self.require_unlocked(repo, number)?;
        self.check_text("IssueComment", Some(&input.body), true)?;
        self.hub.change(|c| c.edit_comment(repo, comment, by, &input.body).map_err(HubGraphQlError::from))?;
        Ok(json!({ "clientMutationId": null }))
    }

    fn change_labels(&self, by: UserId, input: LabelsInput, add: bool) -> HubGraphQlResult {
        let (repo, number, names) = self.state(|s| find_labelable(s, &input)).ok_or_else(|| {
            HubGraphQlError::new("NOT_FOUND", "Could not resolve to a node with the global id.")
        })?;
        self.require_permission(
            repo,
            &[("issues", HubPermissionLevel::Write), ("pull_requests", HubPermissionLevel::Write)],
        )?;
        self.hub.change(|c| {
            if add {
                c.add_labels(repo, number, by, &names)?;
                return Ok(json!({ "clientMutationId": null }));
            }
            for name in names {
                if c.issue(repo, number)?.labels.contains(&name) {
                    c.remove_label(repo, number, by, &name)?;
                }
            }
            Ok(json!({ "clientMutationId": null }))
        })
    }
}

fn parse_input<T: DeserializeOwned>(input: Value) -> Result<T, HubGraphQlError> {
    serde_json::from_value(input)
        .map_err(|e| HubGraphQlError::new("UNPROCESSABLE", format!("the input can't be read: {e}")))
}

/// Returns the repository, issue and label names that a mutation's input refers to.
fn find_labelable(state: &HubState, input: &LabelsInput) -> Option<(RepoId, IssueNo, Vec<String>)> {
    let on = |repo: &HubRepository| {
        let issue = repo.issues.values().find(|issue| node_id("I", issue.id) == input.labelable_id)?;
        let names = input.label_ids.iter().map(|id| {
            repo.labels.iter().find(|label| node_id("LA", label.id) == *id).map(|label| label.name.clone())
        });
        Some((repo.id, IssueNo(issue.number), names.collect::<Option<Vec<_>>>()?))
    };
    state.repositories.values().find_map(on)
}

/// Parses each top-level field of a mutation, of the form `alias: mutation(input: $variable)`. Returns alias, mutation
/// and variable of each field, in order.
fn parse_mutations(query: &str) -> Vec<(String, String, String)> {
    let Some((_, fields)) = query.split_once('{') else { return Vec::new() };
    let (mut found, mut text, mut depth) = (Vec::new(), String::new(), 0);
    for c in fields.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
        if c == '{' && depth == 1 {
            found.extend(parse_mutation(&std::mem::take(&mut text)));
        }
    }
    found
}

fn parse_mutation(text: &str) -> Option<(String, String, String)> {
    let (head, input) = text.split_once('(')?;
    let (alias, mutation) = head.split_once(':').unwrap_or((head, head));
    let variable = input.split_once('$')?.1.trim_end_matches([')', ' ']);
    Some((alias.trim().to_owned(), mutation.trim().to_owned(), variable.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphql_mutation_fields_are_parsed_in_order() {
        let query = "mutation($a: A!, $b: B!) { one: createRef(input: $a) { ref { name } } \
                     createCommitOnBranch(input: $b) { commit { oid } } }";
        let owned = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(
            parse_mutations(query),
            [owned("one", "createRef", "a"), owned("createCommitOnBranch", "createCommitOnBranch", "b")]
        );
        assert_eq!(parse_mutations("{ viewer { login } }"), []);
    }
}
