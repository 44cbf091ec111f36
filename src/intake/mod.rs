//! From the inbox to the engine: what each delivery means, who may say it, and what is answered.
//!
//! The front door only verifies and stores. Everything a delivery causes happens here, from the stored
//! row, so that a restart in the middle starts the same row again; what was already done is recognised by
//! its cause. A delivery is a hint that it is time to look: rights and state are read from GitHub
//! now, never from the payload.
//!
//! Several are dealt with side by side, those about one issue one after the other; which may be taken is the
//! inbox's business.

mod answer;
mod cause;
mod checks;
mod closing;
mod comment;
mod delivery_workers;
mod edited_gate_comment;
mod events;
mod finding_commands;
mod labels;
mod lifecycle;
mod missed_events;
mod pauses;
mod reactions;
mod review;
mod simulate;
mod sweep;

pub use events::IssueRef;
pub use labels::LabelSearchResult;
pub use simulate::{SimulatedAction, SimulationResult};

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    clock::SharedClock,
    commands::CommandSpec,
    config::PeopleSettings,
    engine::{EngineError, EnginePort},
    github::{GitHub, GitHubApiError, WebhookEvent},
    limits::{self, GITHUB_LAG},
    store::{ClaimedDelivery, DeliveryDisposition, Store, StoreError},
    types::{Actor, DeliveryId, InstallationId, RunId, Timestamp},
};

/// A delivery that GitHub's faults or our disk's keep from being dealt with is tried this long: GitHub keeps
/// what it delivered for three days, so that until then somebody could ask for it again anyway.
const DELIVERY_AGE: Duration = Duration::from_secs(3 * 24 * 3600);

/// Deliveries of a suspended installation are looked at again after this long, or when it is told that the
/// suspension was lifted.
const SUSPENDED_RETRY: Duration = Duration::from_secs(3600);

/// A gate's line is on the page a moment before the gate is open; a quick reader's answer, which comes in between, waits
/// this long.
const GATE_OPENING: Duration = Duration::from_secs(1);

/// Reads deliveries and turns them into requests to the engine.
pub struct Intake {
    store: Arc<Store>,
    github: GitHub,
    engine: Arc<dyn EnginePort>,
    router: CommandRouter,
    allow: BTreeSet<InstallationId>,
    shows_cost_on_public: bool,
    people: PeopleSettings,
    routes: bool,
    clock: SharedClock,
    delivery_stored: Arc<Notify>,
    reactions: reactions::ReactionMemory,
    /// Rung when a pause begins or ends.
    pause_changed: Arc<Notify>,
    pause_notices: tokio::sync::Mutex<pauses::PauseNotices>,
    /// The turn of each run in which its state label was put right.
    repaired_labels: tokio::sync::Mutex<BTreeMap<RunId, u64>>,
    /// What could not be written down; it is, before another delivery is taken.
    unsaved_endings: Mutex<Vec<(DeliveryId, DeliveryDisposition)>>,
}

/// What the intake needs besides the rooms it talks to.
pub struct IntakeOptions {
    /// Workflows and the rows that start them.
    pub starts: Vec<(&'static str, CommandSpec)>,
    /// Installations we work for; all others are ignored.
    pub allow: BTreeSet<InstallationId>,
    /// Is `/cost` answered where everybody reads it?
    pub shows_cost_on_public: bool,
    /// What one person may ask for in a day, and how an issue is kept from us.
    pub people: PeopleSettings,
    /// Are requests in free words read?
    pub routes: bool,
}

/// Chooses the work that a command or a label asks for. What is asked for in free words is a command as well,
/// [`ROUTE`](crate::commands::ROUTE), whose own workflow chooses further.
pub(crate) struct CommandRouter {
    starts: Vec<(&'static str, CommandSpec)>,
    rows: Vec<CommandSpec>,
}

impl CommandRouter {
    fn new(starts: Vec<(&'static str, CommandSpec)>) -> Self {
        let rows =
            starts.iter().map(|(_, row)| *row).chain(crate::commands::COMMON.iter().copied()).collect();
        Self { starts, rows }
    }

    /// Every word people may type, for the parser and for `/help`.
    pub(crate) fn rows(&self) -> &[CommandSpec] {
        &self.rows
    }

    pub(crate) fn find_command(&self, name: &str) -> Option<&CommandSpec> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The workflow a command starts.
    pub(crate) fn workflow_of_command(&self, name: &str) -> Option<(&'static str, &CommandSpec)> {
        self.starts.iter().find(|(_, row)| row.name == name).map(|(workflow, row)| (*workflow, row))
    }

    /// The word that a label stands for.
    pub(crate) fn command_of_label(&self, label: &str) -> Option<&CommandSpec> {
        crate::commands::find_by_label(&self.rows, label)
    }
}

/// Why a delivery could not be dealt with now.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    #[error(transparent)]
    GitHub(#[from] GitHubApiError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the gate it answers is about to open")]
    Opening,
}

/// What came of a delivery: one line for the log and the inbox row.
pub(crate) enum DeliveryNote {
    /// It means nothing to us, as most do not.
    Nothing(Cow<'static, str>),
    Done(String),
}

impl fmt::Display for DeliveryNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(why) => f.write_str(why),
            Self::Done(what) => f.write_str(what),
        }
    }
}

pub(crate) type DeliveryResult = Result<DeliveryNote, IntakeError>;

impl Intake {
    pub fn new(
        store: Arc<Store>,
        github: GitHub,
        engine: Arc<dyn EnginePort>,
        clock: SharedClock,
        options: IntakeOptions,
    ) -> Self {
        Self {
            store,
            github,
            engine,
            router: CommandRouter::new(options.starts),
            allow: options.allow,
            shows_cost_on_public: options.shows_cost_on_public,
            people: options.people,
            routes: options.routes,
            clock,
            delivery_stored: Arc::default(),
            reactions: reactions::ReactionMemory::default(),
            pause_changed: Arc::default(),
            pause_notices: tokio::sync::Mutex::default(),
            repaired_labels: tokio::sync::Mutex::default(),
            unsaved_endings: Mutex::default(),
        }
    }

    /// Rung by the front door after a delivery is stored.
    pub fn delivery_notifier(&self) -> Arc<Notify> {
        self.delivery_stored.clone()
    }

    /// Rung by whoever begins or ends a pause.
    pub fn pause_notifier(&self) -> Arc<Notify> {
        self.pause_changed.clone()
    }

    async fn handle_delivery(&self, taken: &ClaimedDelivery) -> DeliveryDisposition {
        // Before anything else: whoever is not ours costs us nothing.
        if taken.subject.installation.is_some_and(|installation| !self.allow.contains(&installation)) {
            tracing::debug!(delivery = %taken.id, event = %taken.event, "ignored: not ours");
            return DeliveryDisposition::Done(
                "ignored: its installation is not in [installations] allow".to_owned(),
            );
        }
        let unreadable = |error: &dyn fmt::Display| {
            tracing::warn!(delivery = %taken.id, event = %taken.event, %error, "delivery cannot be read");
            DeliveryDisposition::Dead(error.to_string())
        };
        let event = match taken.body().map(|body| WebhookEvent::parse(&taken.event, &body)) {
            Ok(Ok(event)) => event,
            Ok(Err(error)) => return unreadable(&error),
            Err(error) => return unreadable(&error),
        };
        let handled = match self.is_suspended(&event).await {
            Ok(true) => return self.postpone_suspended(taken),
            Ok(false) => self.handle_event(taken, &event).await,
            Err(trouble) => Err(trouble),
        };
        let ending = match handled {
            Ok(note) => {
                match note {
                    DeliveryNote::Nothing(_) => {
                        tracing::debug!(delivery = %taken.id, event = %taken.event, %note, "means nothing here");
                    }
                    DeliveryNote::Done(_) => {
                        tracing::info!(delivery = %taken.id, event = %taken.event, %note, "handled");
                    }
                }
                DeliveryDisposition::Done(note.to_string())
            }
            Err(trouble) => self.postpone_or_drop(taken, &trouble),
        };
        if !matches!(ending, DeliveryDisposition::PutOff { .. }) {
            self.reactions.forget(&taken.id);
        }
        ending
    }

    /// Kept until its installation is taken up again; it must not hold back the delivery that says so.
    fn postpone_suspended(&self, taken: &ClaimedDelivery) -> DeliveryDisposition {
        let (now, why) = (self.clock.now(), "its installation is suspended".to_owned());
        if now.since(taken.received_at) < DELIVERY_AGE {
            return DeliveryDisposition::PutOff { why, at: now.plus(SUSPENDED_RETRY), holds: now };
        }
        DeliveryDisposition::Dead(why)
    }

    /// GitHub was told that we have it, so only time or a fault that no waiting mends makes us give it up.
    fn postpone_or_drop(&self, taken: &ClaimedDelivery, trouble: &IntakeError) -> DeliveryDisposition {
        let now = self.clock.now();
        let age = now.since(taken.received_at);
        let soon = now.plus((age / 4).clamp(limits::DELIVERY_RETRY, limits::DELIVERY_LONGEST_RETRY));
        let at = match trouble {
            IntakeError::GitHub(GitHubApiError::RateLimited { until }) => Some(*until),
            IntakeError::GitHub(GitHubApiError::NotFound { .. }) => (age < GITHUB_LAG).then_some(soon),
            IntakeError::GitHub(fault) => (!fault.is_final()).then_some(soon),
            IntakeError::Opening if age < GITHUB_LAG => Some(now.plus(GATE_OPENING)),
            IntakeError::Opening => Some(soon),
            IntakeError::Store(_) | IntakeError::Engine(EngineError::Store(_)) => Some(soon),
            IntakeError::Engine(_) => None,
        };
        match at {
            // At its first trouble also one that looks old: a clock that jumped makes everything old.
            Some(at) if age < DELIVERY_AGE || !taken.taken_before => {
                tracing::info!(delivery = %taken.id, %trouble, %at, "put off");
                // What is said of the issue next may be `/stop`.
                let hold = if matches!(trouble, IntakeError::Opening) {
                    GITHUB_LAG
                } else {
                    limits::DELIVERY_HOLD_TIME
                };
                let holds = taken.received_at.plus(hold);
                DeliveryDisposition::PutOff { why: trouble.to_string(), at, holds }
            }
            _ => {
                tracing::warn!(delivery = %taken.id, %trouble, "put aside");
                DeliveryDisposition::Dead(trouble.to_string())
            }
        }
    }

    /// What time it is by GitHub's clock, as far as it told.
    fn github_now(&self) -> Timestamp {
        let ahead = self.github.clock_ahead().unwrap_or(0);
        Timestamp(self.clock.now().0.saturating_add(ahead))
    }

    /// Our own account.
    pub(crate) async fn bot(&self) -> Result<Actor, IntakeError> {
        Ok(self.github.bot().await?)
    }
}
