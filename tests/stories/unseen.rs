//! What the bot did in front of people and no story looked at: it fails the story at its end.

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

/// What is said of a comment that somebody had seen.
const EDIT: &str = " edited comment";

pub(crate) const BOT: &str = "countersign[bot]";

/// What is looked at as a whole. One that changes later has to be looked at again.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Comment(CommentId),
    /// A comment that nobody saw while it was there.
    Gone(CommentId),
    Labels(IssueNo),
    Branch(String),
    /// The checks of the repository's commits.
    Checks,
    /// Title, text and state of a pull request; or of an issue, which no story should see changed.
    Text(IssueNo),
}

/// Each world has one, which is dropped when its story ends.
pub(crate) struct Unseen(Mutex<Inner>);

struct Inner {
    events: Receiver<HubEvent>,
    /// With where it is and the first line of what it was.
    acts: BTreeMap<(RepoId, Act), String>,
}

impl Unseen {
    pub(crate) fn of(hub: &Hub) -> Self {
        Self(Mutex::new(Inner { events: hub.subscribe(), acts: BTreeMap::new() }))
    }

    /// A story looks at it as it is now.
    pub(crate) fn saw(&self, repo: RepoId, act: Act) {
        self.catch_up().acts.remove(&(repo, act));
    }

    /// The comments that were there for a while and are not any more.
    pub(crate) fn saw_gone(&self) -> Vec<String> {
        let mut inner = self.catch_up();
        let gone = inner.acts.extract_if(.., |(_, act), _| matches!(act, Act::Gone(_)));
        gone.map(|(_, what)| what).collect()
    }

    /// Takes in what happened: to be called before more of it happens than the hub keeps.
    pub(crate) fn keep_up(&self) {
        drop(self.catch_up());
    }

    fn catch_up(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match inner.events.try_recv() {
                Ok(event) => inner.note(event),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return inner,
                Err(TryRecvError::Lagged(lost)) => panic!("{lost} events came unseen: settle more often"),
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
                // Who saw it saw what is gone.
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
        // Other binaries tell of the same world and compare whole threads.
        if thread::panicking() || env!("CARGO_CRATE_NAME") != "stories" {
            return;
        }
        let left: Vec<_> = self.catch_up().acts.values().cloned().collect();
        assert!(left.is_empty(), "nobody looked at:\n  {}", left.join("\n  "));
    }
}
