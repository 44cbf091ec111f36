//! What a delivery would do, without one.
//!
//! The decisions are those of real deliveries, made on whatever store this has: a copy, where nothing is to come of it.
//! GitHub is only read.

use super::{Intake, Trouble, cause, route::IssueRef};
use crate::{
    engine::{Filter, RunView, Trigger},
    github::event::CommentEvent,
    store::Taken,
    types::{Actor, CommentId, DeliveryId},
};

/// Something that a person might do on an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imagined {
    Label(String),
    Comment(String),
}

/// What would come of it.
#[derive(Debug)]
pub struct Imagining {
    /// In words, for whoever runs this server.
    pub said: Vec<String>,
    /// The run that would begin.
    pub begun: Option<RunView>,
}

impl Intake {
    /// What would come of it if this person did that now.
    pub async fn imagine(
        &self,
        at: &IssueRef<'_>,
        by: &Actor,
        what: &Imagined,
    ) -> Result<Imagining, Trouble> {
        if !self.allow.contains(&at.installation) {
            let why =
                format!("nothing: its installation {} is not in [installations] allow", at.installation);
            return Ok(Imagining { said: vec![why], begun: None });
        }
        let all = Filter { repo: Some(at.repo.id), issue: Some(at.issue), live_only: false };
        let before = self.engine.list(all).await?;
        let said = match what {
            Imagined::Label(label) => vec![self.would_label(at, by, label).await?],
            Imagined::Comment(text) => self.would_comment(at, by, text).await?,
        };
        let after = self.engine.list(all).await?;
        let begun = after.into_iter().find(|run| before.iter().all(|known| known.id != run.id));
        Ok(Imagining { said, begun })
    }

    async fn would_label(&self, at: &IssueRef<'_>, by: &Actor, label: &str) -> Result<String, Trouble> {
        if self.people.opts_out(label) {
            return Ok("every run on the issue would be stopped: the label says to leave it alone".to_owned());
        }
        let Some(row) = self.router.by_label(label) else {
            return Ok("nothing: not a label of ours".to_owned());
        };
        let role = self.repo(at).permission(by).await?.role;
        if role < row.role {
            return Ok(format!("👎, and no word: `{label}` needs {}, and {} has {role}", row.role, by.login));
        }
        let Some((workflow, _)) = self.router.by_command(row.name) else {
            return Ok("every run on the issue would be stopped".to_owned());
        };
        let now = self.githubs_now();
        let trigger = Trigger {
            command: row.name.to_owned(),
            args: String::new(),
            repo: at.repo.id,
            installation: at.installation,
            issue: at.issue,
            actor: by.clone(),
            role,
            cause: cause::nth(&cause::label(at.issue, label, by, now), 0),
            at: now,
            comment: None,
            request: None,
        };
        Ok(self.start(workflow, trigger).await?.foreseen())
    }

    async fn would_comment(&self, at: &IssueRef<'_>, by: &Actor, text: &str) -> Result<Vec<String>, Trouble> {
        let (now, issue) = (self.githubs_now(), self.repo(at).issue(at.issue).await?);
        let taken = Taken::imagined(DeliveryId("imagined".to_owned()), self.clock.now());
        let event = CommentEvent {
            repo: at.repo.clone(),
            installation: at.installation,
            issue: at.issue,
            is_pull: issue.is_pull,
            comment: CommentId(0),
            body: text.to_owned(),
            sender: by.clone(),
            author: by.clone(),
            issue_author: issue.author,
            created_at: now,
            url: issue.url,
            via_app: false,
        };
        self.would_hear(&taken, &event).await
    }
}
