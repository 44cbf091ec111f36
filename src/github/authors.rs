//! Who wrote an issue as it is now. REST names only who opened it.

use serde::Deserialize;
use serde_json::json;

use super::{error::Fault, graphql::Mutated, manifest::AUTHORS, repo::Repo};
use crate::types::{Actor, IssueNo, UserId};

const QUERY: &str = "query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { issue(number: $number) {
    author { ...who } editor { ...who } lastEditedAt
    timelineItems(itemTypes: [RENAMED_TITLE_EVENT], last: 1) { nodes { ... on RenamedTitleEvent { actor { ...who } } } }
  } }
}
fragment who on Actor { login ... on User { databaseId } ... on Bot { databaseId } }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    author: Option<Who>,
    editor: Option<Who>,
    last_edited_at: Option<String>,
    timeline_items: Items,
}

#[derive(Deserialize)]
struct Items {
    nodes: Vec<Renamed>,
}

#[derive(Deserialize)]
struct Renamed {
    actor: Option<Who>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Who {
    login: String,
    /// None: somebody of a kind that may do nothing here.
    database_id: Option<u64>,
}

impl Repo {
    /// Who opened the issue, who edited its text last and who its title. An account that is gone is `ghost`, number 0.
    pub async fn authors(&self, issue: IssueNo) -> Result<Vec<Actor>, Fault> {
        let name = self.name();
        let variables = json!({ "owner": name.owner, "name": name.name, "number": issue });
        let request = self.bare(&AUTHORS).body(json!({ "query": QUERY, "variables": variables }));
        let answer: Mutated = self.send(request).await?.json()?;
        let found = &answer.field(&AUTHORS, "repository")?["issue"];
        let call = AUTHORS.to_string();
        if found.is_null() {
            return Err(Fault::NotFound { call });
        }
        let found = Found::deserialize(found).map_err(|error| Fault::unexpected(&call, error))?;
        let renamed = found.timeline_items.nodes.into_iter().map(|renamed| renamed.actor);
        let mut authors = vec![actor(found.author)];
        if found.editor.is_some() || found.last_edited_at.is_some() {
            authors.push(actor(found.editor));
        }
        authors.extend(renamed.map(actor));
        Ok(authors)
    }
}

fn actor(who: Option<Who>) -> Actor {
    let who = who.unwrap_or_else(|| Who { login: "ghost".to_owned(), database_id: None });
    Actor { id: UserId(who.database_id.unwrap_or_default()), login: who.login, bot: false }
}
