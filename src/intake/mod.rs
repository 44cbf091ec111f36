//! Link between the inbox and the engine: interprets deliveries, checks permissions and replies.
//!
//! The web server only verifies and stores deliveries. All effects happen here, based on the stored row. After a
//! restart in the middle, the same row is processed again, and work already done is recognised by its cause. A delivery
//! is only a hint that something changed: permissions and state are always read from GitHub, never from the payload.
//!
//! Deliveries are processed in parallel, except that those about one issue are processed in order. The inbox decides
//! which deliveries may be claimed.

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

/// Maximum age at which a delivery is still retried after errors of GitHub or of the disk. GitHub keeps deliveries for
/// three days, so a delivery could be redelivered until then anyway.
const DELIVERY_AGE: Duration = Duration::from_secs(3 * 24 * 3600);

/// Retry interval for deliveries of a suspended installation. When the suspension ends, they are retried at once.
const SUSPENDED_RETRY: Duration = Duration::from_secs(3600);

/// Wait before an answer is retried that arrived before its gate was open. Such answers occur because the gate's text
/// becomes visible a moment before the gate opens.
const GATE_OPENING: Duration = Duration::from_secs(1);

/// Reads deliveries and turns them into engine requests.
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
    /// Notified when a pause begins or ends.
    pause_changed: Arc<Notify>,
    pause_notices: tokio::sync::Mutex<pauses::PauseNotices>,
    /// The visit of each run during which the run's state label was last repaired.
    repaired_labels: tokio::sync::Mutex<BTreeMap<RunId, u64>>,
    /// Outcomes of processed deliveries that could not be saved yet. They are saved before another delivery is claimed.
    unsaved_endings: Mutex<Vec<(DeliveryId, DeliveryDisposition)>>,
}

/// Settings of the intake.
pub struct IntakeOptions {
    /// Workflows, each with the command that starts it.
    pub starts: Vec<(&'static str, CommandSpec)>,
    /// Installations that the bot works for. All others are ignored.
    pub allow: BTreeSet<InstallationId>,
    /// Whether `/cost` is answered in public repositories.
    pub shows_cost_on_public: bool,
    /// Daily limits per person, and the settings with which people keep the bot off an issue.
    pub people: PeopleSettings,
    /// Whether free-text requests are routed to a workflow.
    pub routes: bool,
}

/// Maps commands and labels to workflows. A free-text request is represented by the command
/// [`ROUTE`](crate::commands::ROUTE), whose workflow chooses the workflow to start.
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

    /// Returns every command that people may type, for the parser and for `/help`.
    pub(crate) fn rows(&self) -> &[CommandSpec] {
        &self.rows
    }

    pub(crate) fn find_command(&self, name: &str) -> Option<&CommandSpec> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the workflow that a command starts, together with the command's specification.
    pub(crate) fn workflow_of_command(&self, name: &str) -> Option<(&'static str, &CommandSpec)> {
        self.starts.iter().find(|(_, row)| row.name == name).map(|(workflow, row)| (*workflow, row))
    }

    /// Returns the command that adding this label triggers.
    pub(crate) fn command_of_label(&self, label: &str) -> Option<&CommandSpec> {
        crate::commands::find_by_label(&self.rows, label)
    }
}

/// The reason why a delivery could not be processed now.
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

/// Outcome of a delivery, as one line for the log and the inbox row.
pub(crate) enum DeliveryNote {
    /// The delivery had no effect, which is the usual case. Contains the reason.
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

    /// Returns the notifier that the web server calls after it has stored a delivery.
    pub fn delivery_notifier(&self) -> Arc<Notify> {
        self.delivery_stored.clone()
    }

    /// Returns the notifier that is called when a pause begins or ends.
    pub fn pause_notifier(&self) -> Arc<Notify> {
        self.pause_changed.clone()
    }

    async fn handle_delivery(&self, taken: &ClaimedDelivery) -> DeliveryDisposition {
        // First, so that installations that are not ours cost nothing.
        if taken.subject.installation.is_some_and(|installation| !self.allow.contains(&installation)) {
            tracing::debug!(delivery = %taken.id, event = %taken.event, "ignored: installation is not allowed");
            return DeliveryDisposition::Done(
                "ignored: its installation is not in [installations] allow".to_owned(),
            );
        }
        let unreadable = |error: &dyn fmt::Display| {
            tracing::warn!(delivery = %taken.id, event = %taken.event, %error, "could not parse delivery; giving up");
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
                        tracing::debug!(delivery = %taken.id, event = %taken.event, %note, "delivery needs no action");
                    }
                    DeliveryNote::Done(_) => {
                        tracing::info!(delivery = %taken.id, event = %taken.event, %note, "delivery handled");
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

    /// Postpones a delivery until the suspension of its installation ends. The postponed delivery does not block the
    /// delivery that reports the end of the suspension.
    fn postpone_suspended(&self, taken: &ClaimedDelivery) -> DeliveryDisposition {
        let (now, why) = (self.clock.now(), "its installation is suspended".to_owned());
        if now.since(taken.received_at) < DELIVERY_AGE {
            return DeliveryDisposition::PutOff { why, at: now.plus(SUSPENDED_RETRY), holds: now };
        }
        DeliveryDisposition::Dead(why)
    }

    /// Postpones a delivery after an error. GitHub considers the delivery successful and will not send it again. So we
    /// drop it only if it is too old or the error is permanent.
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
            // The first failure never drops it, even if it looks old: a jumped clock makes everything look old.
            Some(at) if age < DELIVERY_AGE || !taken.taken_before => {
                tracing::info!(delivery = %taken.id, error = %trouble, %at, "could not process delivery; will retry");
                // The next delivery for this issue may be `/stop`, so the hold is short.
                let hold = if matches!(trouble, IntakeError::Opening) {
                    GITHUB_LAG
                } else {
                    limits::DELIVERY_HOLD_TIME
                };
                let holds = taken.received_at.plus(hold);
                DeliveryDisposition::PutOff { why: trouble.to_string(), at, holds }
            }
            _ => {
                tracing::warn!(delivery = %taken.id, error = %trouble, "could not process delivery; giving up");
                DeliveryDisposition::Dead(trouble.to_string())
            }
        }
    }

    /// Returns the current time by GitHub's clock. If the offset to GitHub's clock is unknown, returns our own time.
    fn github_now(&self) -> Timestamp {
        let ahead = self.github.clock_ahead().unwrap_or(0);
        Timestamp(self.clock.now().0.saturating_add(ahead))
    }

    /// Returns the bot's own account.
    pub(crate) async fn bot(&self) -> Result<Actor, IntakeError> {
        Ok(self.github.bot().await?)
    }
}
