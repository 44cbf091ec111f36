//! Facts that only GraphQL provides: the last editor of an issue, and whether a comment came by email.

use serde::Deserialize;
use serde_json::json;

use super::{
    error::GitHubApiError,
    graphql::GraphQlResponse,
    manifest::{AUTHORS, BY_EMAIL},
    repo::GitHubRepo,
};
use crate::types::{Actor, IssueNo, Timestamp, UserId};

const AUTHORS_QUERY: &str = "query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { issue(number: $number) {
    author { ...who } authorAssociation editor { ...who } lastEditedAt
    timelineItems(itemTypes: [RENAMED_TITLE_EVENT], last: 1) { nodes { ... on RenamedTitleEvent { actor { ...who } createdAt } } }
  } }
}
fragment who on Actor { login ... on User { databaseId } ... on Bot { databaseId } }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueAuthorsResponse {
    author: Option<GraphQlActor>,
    #[serde(default)]
    author_association: String,
    editor: Option<GraphQlActor>,
    last_edited_at: Option<String>,
    timeline_items: TitleRenameEvents,
}

#[derive(Deserialize)]
struct TitleRenameEvents {
    nodes: Vec<TitleRenameEvent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TitleRenameEvent {
    actor: Option<GraphQlActor>,
    created_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphQlActor {
    login: String,
    /// Database id of the actor; `None` if the actor is neither a user nor a bot. We ignore such actors.
    database_id: Option<u64>,
}

/// Author and editors of an issue. A deleted account is shown as `ghost` with id 0.
#[derive(Debug)]
pub struct IssueAuthors {
    pub author: Actor,
    /// Whether, according to GitHub, the author has not contributed anything yet. Used for display only.
    pub newcomer: bool,
    /// Last editor of the text and last editor of the title, each with the time of the edit.
    pub edits: Vec<(Actor, Timestamp)>,
}

impl IssueAuthors {
    pub fn actors(&self) -> impl Iterator<Item = &Actor> {
        std::iter::once(&self.author).chain(self.edits.iter().map(|(by, _)| by))
    }
}

impl GitHubRepo {
    /// Returns whether the comment with this node id was written as a reply to an email.
    pub async fn is_by_email(&self, node: &str) -> Result<bool, GitHubApiError> {
        let query = "query($id: ID!) { node(id: $id) { ... on Comment { createdViaEmail } } }";
        let request = self
            .request_outside_repo(&BY_EMAIL, &[])
            .body(json!({ "query": query, "variables": { "id": node } }));
        let answer: GraphQlResponse = self.send(request).await?.json()?;
        let by_email = answer.field(&BY_EMAIL, "node")?["createdViaEmail"].as_bool();
        by_email
            .ok_or_else(|| GitHubApiError::unexpected(&BY_EMAIL.to_string(), "it has no `createdViaEmail`"))
    }

    pub async fn authors(&self, issue: IssueNo) -> Result<IssueAuthors, GitHubApiError> {
        let name = self.name();
        let variables = json!({ "owner": name.owner, "name": name.name, "number": issue });
        let request = self
            .request_outside_repo(&AUTHORS, &[])
            .body(json!({ "query": AUTHORS_QUERY, "variables": variables }));
        let answer: GraphQlResponse = self.send(request).await?.json()?;
        let found = &answer.field(&AUTHORS, "repository")?["issue"];
        let call = AUTHORS.to_string();
        if found.is_null() {
            return Err(GitHubApiError::NotFound { call });
        }
        let found = IssueAuthorsResponse::deserialize(found)
            .map_err(|error| GitHubApiError::unexpected(&call, error))?;
        let renamed =
            found.timeline_items.nodes.into_iter().map(|renamed| (renamed.actor, renamed.created_at));
        let edited = found.last_edited_at.map(|at| (found.editor, at));
        let mut edits = Vec::new();
        for (who, at) in edited.into_iter().chain(renamed) {
            edits.push((
                actor_or_ghost(who),
                Timestamp::parse(&at).map_err(|error| GitHubApiError::unexpected(&call, error))?,
            ));
        }
        let newcomer = ["FIRST_TIME_CONTRIBUTOR", "FIRST_TIMER", "NONE"];
        let newcomer = newcomer.contains(&found.author_association.as_str());
        Ok(IssueAuthors { author: actor_or_ghost(found.author), newcomer, edits })
    }
}

fn actor_or_ghost(who: Option<GraphQlActor>) -> Actor {
    let who = who.unwrap_or_else(|| GraphQlActor { login: "ghost".to_owned(), database_id: None });
    Actor { id: UserId(who.database_id.unwrap_or_default()), login: who.login, bot: false }
}
