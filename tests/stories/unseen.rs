//! Tracker of the bot's visible actions. A story fails at its end if it has not inspected every action.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use countersign::{
    localhub::{Hub, HubEvent, HubEventKind},
    types::{CommentId, IssueNo, RepoId},
};
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

/// Text in the description of an action which marks that a comment was edited after the story had inspected it.
const EDIT: &str = " edited comment";

pub(crate) const BOT: &str = "countersign[bot]";

/// A kind of change that the bot made. After each such change, the story must check the result again.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Comment(CommentId),
    /// A comment that was deleted before the story inspected it.
    Gone(CommentId),
    Labels(IssueNo),
    Branch(String),
    /// The checks of the repository's commits.
    Checks,
    /// The title, text and state of a pull request or an issue. The bot should not change those of an issue.
    Text(IssueNo),
}

/// The bot's actions in one test environment that the story has not inspected yet. They are checked when the test
/// environment is dropped.
pub(crate) struct Unseen(Mutex<Inner>);

struct Inner {
    events: Receiver<HubEvent>,
    /// Actions that are not inspected yet. Each has a line that describes it in the failure message.
    acts: BTreeMap<(RepoId, Act), String>,
}

impl Unseen {
    pub(crate) fn of(hub: &Hub) -> Self {
        Self(Mutex::new(Inner { events: hub.subscribe(), acts: BTreeMap::new() }))
    }

    /// Marks the action as inspected in its current form.
    pub(crate) fn saw(&self, repo: RepoId, act: Act) {
        self.catch_up().acts.remove(&(repo, act));
    }

    /// Returns the comments that were deleted before they were inspected. Marks these deletions as inspected.
    pub(crate) fn saw_gone(&self) -> Vec<String> {
        let mut inner = self.catch_up();
        let gone = inner.acts.extract_if(.., |(_, act), _| matches!(act, Act::Gone(_)));
        gone.map(|(_, what)| what).collect()
    }

    /// Reads the pending events of the hub. It must be called before the hub's event buffer overflows.
    pub(crate) fn keep_up(&self) {
        drop(self.catch_up());
    }

    fn catch_up(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match inner.events.try_recv() {
                Ok(event) => inner.note(event),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return inner,
                Err(TryRecvError::Lagged(lost)) => panic!("{lost} hub events were lost: settle more often"),
            }
        }
    }
}

impl Inner {
    fn note(&mut self, event: HubEvent) {
        if event.by != BOT {
            return;
        }
        let number = event.issue.unwrap_or(IssueNo(0));
        let (act, what) = match event.what {
            HubEventKind::Reacted { .. } => return,
            HubEventKind::Commented { id, body } => {
                (Act::Comment(id), format!("comment: {}", first_line(&body)))
            }
            HubEventKind::CommentEdited { id, body } => {
                let before = self.acts.get(&(event.repo, Act::Comment(id)));
                let what = if before.is_some_and(|what| !what.contains(EDIT)) { " comment" } else { EDIT };
                (Act::Comment(id), format!("{}: {}", what.trim(), first_line(&body)))
            }
            HubEventKind::CommentDeleted { id } => {
                // A comment that was inspected before its deletion needs no second look.
                let Some(what) = self.acts.remove(&(event.repo, Act::Comment(id))) else { return };
                self.acts.insert((event.repo, Act::Gone(id)), what + " (taken away again)");
                return;
            }
            HubEventKind::Labeled { label } => (Act::Labels(number), format!("label: +{label}")),
            HubEventKind::Unlabeled { label } => (Act::Labels(number), format!("label: -{label}")),
            HubEventKind::BranchMoved { branch, subject, .. } => {
                let what = format!("commit: {branch}: {subject}");
                (Act::Branch(branch), what)
            }
            HubEventKind::Checked { name, title, .. } => (Act::Checks, format!("check: {name}: {title}")),
            other => (Act::Text(number), format!("{other:?}").chars().take(120).collect()),
        };
        self.acts.insert((event.repo, act), format!("#{number} {what}"));
    }
}

fn first_line(body: &str) -> &str {
    body.lines().find(|line| !line.is_empty() && !line.starts_with(['>', '<'])).unwrap_or_default()
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // Other test binaries use worlds too and compare whole threads instead.
        if thread::panicking() || env!("CARGO_CRATE_NAME") != "stories" {
            return;
        }
        let left: Vec<_> = self.catch_up().acts.values().cloned().collect();
        assert!(left.is_empty(), "the story did not inspect:\n  {}", left.join("\n  "));
    }
}
