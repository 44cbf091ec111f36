//! GitHub's own reviews of a run's pull request, and what they say at its lines.

use super::{
    Handled, Intake, Note,
    answer::Reply,
    cause,
    route::{IssueRef, TOLD},
};
use crate::{
    documents::visible::visible,
    engine::{Answer, Filter},
    github::{
        LineComment,
        event::{ReviewEvent, ReviewState},
    },
    messages,
    store::Taken,
};

/// Comments of one review that the drafter is told; who has more to say has another round for it.
const COMMENTS: usize = 50;

/// Characters of one of them.
const COMMENT_CHARS: usize = 2_000;

/// Of all of them.
const ALL_CHARS: usize = 30_000;

impl Intake {
    /// GitHub's own review buttons on the run's pull request mean `/approve` and `/revise`.
    pub(super) async fn review(&self, taken: &Taken, e: &ReviewEvent) -> Handled {
        if e.sender.bot || e.sender.id == self.bot().await?.id {
            return Ok(Note::Nothing("a bot's review never acts".into()));
        }
        let verb = match e.state {
            ReviewState::Approved if e.commit_id.is_none() => {
                return Ok(Note::Nothing("an approval of no commit".into()));
            }
            ReviewState::Approved => "approve",
            ReviewState::ChangesRequested => "revise",
            ReviewState::Commented => return Ok(Note::Nothing("a review without a decision".into())),
        };
        let here = IssueRef { repo: &e.repo, installation: e.installation, issue: e.pull };
        let Some(issue) = self.issue_of_pull(&here).await? else {
            return Ok(Note::Nothing("not a pull request of ours".into()));
        };
        let at = IssueRef { issue, ..here };
        let role = self.repo(&at).permission(&e.sender).await?.role;
        if self.router.row(verb).is_none_or(|row| role < row.role) {
            return Ok(Note::Done(format!("refused: {role} may not {verb}")));
        }
        // Reviews go on after the work has ended, and are then no business of ours.
        let live = Filter { repo: Some(e.repo.id), issue: Some(issue), live_only: true };
        if self.engine.list(live).await?.is_empty() {
            return Ok(Note::Nothing("a review where nothing runs".into()));
        }
        let cause = cause::review(e.review);
        if !self.store.inbox().owns(&taken.id, &cause).await? {
            return Ok(Note::Nothing(TOLD.into()));
        }
        let text = match verb {
            "revise" => words(&e.body, &self.repo(&at).review_comments(e.pull, e.review).await?),
            _ => e.body.clone(),
        };
        let reply = if verb == "revise" && text.is_empty() {
            Reply::Words(messages::empty_args(verb))
        } else {
            let answer = Answer {
                cause: cause::nth(&cause, 0),
                verb: verb.to_owned(),
                stage: None,
                hash: None,
                way: None,
                text,
                by: e.sender.clone(),
                role,
                at: e.submitted_at,
                url: Some(e.url.clone()),
                commit: e.commit_id.clone(),
            };
            self.signal(taken, (e.repo.id, issue), answer).await?
        };
        match reply {
            // A review takes no thumb.
            Reply::Note(note) | Reply::No(note) => Ok(Note::Done(format!("a review: {note}"))),
            Reply::Words(body) | Reply::Shown(body) => {
                self.say(taken, &cause, &self.repo(&at), (e.pull, at.issue), &[body]).await?;
                Ok(Note::Done("a review: answered".to_owned()))
            }
        }
    }
}

/// What a review says, its comments first and each with its place. Each is an item of a list, so that what one of them
/// opens in Markdown ends with it.
fn words(body: &str, comments: &[LineComment]) -> String {
    let (mut said, mut room, mut told) = (String::new(), ALL_CHARS, 0);
    let full = comments.iter().filter(|comment| !comment.body.trim().is_empty());
    for comment in full.clone().take(COMMENTS) {
        if room == 0 {
            break;
        }
        let line = comment.line.map_or(String::new(), |line| format!(":{line}"));
        let path: String = comment.path.chars().filter(|c| *c != '`' && !c.is_control()).collect();
        let text: String = comment.body.trim().chars().take(COMMENT_CHARS.min(room)).collect();
        room -= text.chars().count().min(room);
        let text = seen(&text.replace("\r\n", "\n")).replace('\n', "\n  ");
        said += &format!("- `{path}{line}`: {text}\n");
        told += 1;
    }
    let left = full.count() - told;
    if left > 0 {
        said += &format!("\n({left} more comments of this review had no room here.)\n");
    }
    format!("{said}\n{}", body.trim()).trim().to_owned()
}

/// What people see of a comment. What they do not see stands behind it as one that is closed, so that it hides no more than
/// itself and is taken out and told of where all the words are.
fn seen(text: &str) -> String {
    let seen = visible(text);
    let hidden =
        seen.hidden.iter().map(|row| format!("\n\n<!-- {} -->", row.excerpt.replace(['-', '<', '>'], " ")));
    seen.text.trim().to_owned() + &hidden.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_comment_opens_ends_with_it() {
        let at = |line, body: &str| LineComment { path: "docs/lld/LLD-1.md".into(), line, body: body.into() };
        let comments = [
            at(Some(17), "Say\n<!-- hidden\nwhy"),
            at(None, "```\ncode"),
            at(Some(2), " \n"),
            at(Some(3), "last"),
        ];
        let said = words("And so on.", &comments);
        let told = visible(&said);
        assert!(told.hidden.len() == 1 && told.hidden[0].excerpt.contains("hidden"), "{:?}", told.hidden);
        let seen = told.text;
        assert!(!seen.contains("hidden") && !seen.contains("why"), "{seen}");
        assert!(seen.contains("`docs/lld/LLD-1.md:3`: last") && seen.ends_with("And so on.\n"), "{seen}");
        assert_eq!(words(" \n", &comments[2..3]), "");
        let many = words("", &vec![at(Some(1), &"x".repeat(9_000)); 60]);
        assert!(
            many.len() < 32_000 && many.ends_with("(45 more comments of this review had no room here.)"),
            "{}",
            many.len()
        );
    }
}
