//! Handling of GitHub reviews of a run's pull request, including their line comments.

use super::{
    DeliveryNote, DeliveryResult, Intake,
    answer::CommandReply,
    cause,
    events::{DUPLICATE_NOTE, IssueRef},
};
use crate::{
    documents::hidden_text::visible_text,
    engine::{GateAnswer, RemarkKind, RunFilter, RunRemark},
    github::{
        LineComment,
        event::{ReviewEvent, ReviewState},
    },
    messages,
    publication::waits_for_merge,
    rounds::MOST_REVIEW_REMARKS,
    store::ClaimedDelivery,
    types::Verb,
};

/// Maximum number of characters used of one review comment.
const COMMENT_CHARS: usize = 2_000;

/// Maximum number of characters used of all comments of a review together.
const ALL_CHARS: usize = 30_000;

impl Intake {
    /// Handles a GitHub review. Approve counts as `/approve`, and Request changes counts as `/revise`.
    pub(super) async fn handle_review(&self, taken: &ClaimedDelivery, e: &ReviewEvent) -> DeliveryResult {
        if e.sender.bot || e.sender.id == self.bot().await?.id {
            return Ok(DeliveryNote::Nothing("bots' reviews are ignored".into()));
        }
        // A single comment, or an answer in a thread, also arrives as a review.
        let verb = match e.state {
            ReviewState::Approved if e.commit_id.is_none() => {
                return Ok(DeliveryNote::Nothing("the approval names no commit".into()));
            }
            ReviewState::Approved => Verb::Approve,
            ReviewState::ChangesRequested | ReviewState::Commented => Verb::Revise,
        };
        let here = IssueRef { repo: &e.repo, installation: e.installation, issue: e.pull };
        let Some(issue) = self.issue_of_pull(&here).await? else {
            return Ok(DeliveryNote::Nothing("not a pull request of ours".into()));
        };
        let at = IssueRef { issue, ..here };
        let role = self.repo(&at).permission(&e.sender).await?;
        if self.router.find_command(verb.as_str()).is_none_or(|row| role < row.role) {
            return Ok(DeliveryNote::Done(format!("refused: {role} may not {verb}")));
        }
        let live = RunFilter { repo: Some(e.repo.id), issue: Some(issue), live_only: true };
        let live = self.engine.list(live).await?;
        // Reviews can arrive after the work has ended; a request for changes then gets the reply that no run will make
        // them.
        let ended = match live.is_empty() && e.state == ReviewState::ChangesRequested {
            true => self.newest_ended_run((e.repo.id, issue), e.submitted_at).await?,
            false => None,
        };
        if live.is_empty() && ended.is_none() {
            return Ok(DeliveryNote::Nothing("no active run here".into()));
        }
        let watched = live.iter().any(waits_for_merge);
        // A review of the pull request that answers no gate is for the run that pushed to it, once that run waits for
        // the merge: a fix may be in progress.
        let pushes = live.iter().find(|run| match e.state {
            ReviewState::Approved => false,
            ReviewState::ChangesRequested => waits_for_merge(run),
            ReviewState::Commented => run.has_watch_step,
        });
        match e.state {
            ReviewState::Commented if pushes.is_none() => {
                return Ok(DeliveryNote::Nothing("a review without a decision".into()));
            }
            ReviewState::Approved if watched && live.iter().filter(|run| run.gate.is_some()).count() == 1 => {
                return Ok(DeliveryNote::Nothing("no open gate takes this approval".into()));
            }
            _ => {}
        }
        let cause = cause::review(e.review);
        if !self.store.inbox().claim_cause(&taken.id, &cause).await? {
            return Ok(DeliveryNote::Nothing(DUPLICATE_NOTE.into()));
        }
        let comments = match verb {
            Verb::Revise => self.repo(&at).review_comments(e.pull, e.review).await?,
            _ => Vec::new(),
        };
        let text = review_text(&e.body, &comments);
        if text.is_empty() && e.state == ReviewState::Commented {
            return Ok(DeliveryNote::Nothing("an empty review".into()));
        }
        let reply = if verb == Verb::Revise && text.is_empty() {
            CommandReply::Comment(messages::missing_text_reply("/revise TEXT"))
        } else if let Some(run) = pushes {
            let remark = RunRemark {
                cause: cause::nth(&cause, 0),
                kind: RemarkKind::Reviewed,
                finding: e.review.to_string(),
                text,
                by: e.sender.clone(),
                role,
                at: e.submitted_at,
            };
            self.engine.remark(run.id, remark).await?;
            CommandReply::Note(format!("passed to {}", run.id))
        } else {
            let answer = GateAnswer {
                cause: cause::nth(&cause, 0),
                verb,
                stage: None,
                hash: None,
                way: None,
                text,
                by: e.sender.clone(),
                role,
                at: e.submitted_at,
                url: Some(e.url.clone()),
                commit: e.commit_id.clone(),
                review: (verb == Verb::Revise).then_some(e.review),
            };
            self.send_answer(taken, (e.repo.id, issue), answer, ended.as_ref()).await?
        };
        match reply {
            // A review cannot take reactions.
            CommandReply::Note(note) | CommandReply::Refusal(note) => {
                Ok(DeliveryNote::Done(format!("review: {note}")))
            }
            CommandReply::Comment(body) | CommandReply::SharedComment(body) => {
                self.post_reply(taken, &cause, &self.repo(&at), (e.pull, at.issue), &[body]).await?;
                Ok(DeliveryNote::Done("review: answered".to_owned()))
            }
        }
    }
}

/// Formats a review: line comments first, each with its location, then the body. Each comment is a list item, so that
/// unclosed Markdown in a comment ends with the item.
fn review_text(body: &str, comments: &[LineComment]) -> String {
    let (mut said, mut room, mut told) = (String::new(), ALL_CHARS, 0);
    let full = comments.iter().filter(|comment| !comment.body.trim().is_empty());
    for comment in full.clone().take(MOST_REVIEW_REMARKS) {
        if room == 0 {
            break;
        }
        let line = comment.line.map_or(String::new(), |line| format!(":{line}"));
        let path: String = comment.path.chars().filter(|c| *c != '`' && !c.is_control()).collect();
        let text: String = comment.body.trim().chars().take(COMMENT_CHARS.min(room)).collect();
        room -= text.chars().count().min(room);
        let text = visible_comment(&text).replace('\n', "\n  ");
        said += &format!("- `{path}{line}`: {text}\n");
        told += 1;
    }
    let left = full.count() - told;
    if left > 0 {
        said += &format!("\n({left} more comments of this review had no room here.)\n");
    }
    messages::review_text(&said, body)
}

/// Returns the visible text of a comment, followed by its hidden parts. Each hidden part is written as a closed HTML
/// comment, so that it hides nothing else and can later be stripped and reported.
fn visible_comment(text: &str) -> String {
    let seen = visible_text(text);
    let hidden =
        seen.hidden.iter().map(|row| format!("\n\n<!-- {} -->", row.excerpt.replace(['-', '<', '>'], " ")));
    seen.text.trim().to_owned() + &hidden.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclosed_markdown_in_a_line_comment_does_not_hide_later_comments() {
        let at = |line, body: &str| LineComment {
            thread: 1,
            path: "docs/lld/LLD-1.md".into(),
            line,
            body: body.into(),
        };
        let comments = [
            at(Some(17), "Say\n<!-- hidden\nwhy"),
            at(None, "```\ncode"),
            at(Some(2), " \n"),
            at(Some(3), "last"),
        ];
        let said = review_text("And so on.", &comments);
        let told = visible_text(&said);
        assert!(told.hidden.len() == 1 && told.hidden[0].excerpt.contains("hidden"), "{:?}", told.hidden);
        let seen = told.text;
        assert!(!seen.contains("hidden") && !seen.contains("why"), "{seen}");
        assert!(seen.contains("`docs/lld/LLD-1.md:3`: last") && seen.ends_with("And so on.\n"), "{seen}");
        assert_eq!(review_text(" \n", &comments[2..3]), "");
        let many = review_text("", &vec![at(Some(1), &"x".repeat(9_000)); 60]);
        assert!(
            many.len() < 32_000 && many.ends_with("(45 more comments of this review had no room here.)"),
            "{}",
            many.len()
        );
    }
}
