//! From the inbox to the engine: what each delivery means, who may say it, and what is answered.
//!
//! The front door only verifies and stores. Everything a delivery causes happens here, from the stored
//! row, so that a restart in the middle starts the same row again; what was already done is recognised by
//! the delivery's id. A delivery is a hint that it is time to look: rights and state are read from GitHub
//! now, never from the payload.

mod answer;
mod comment;
mod labels;
mod patrol;
mod route;
mod sweep;

pub use labels::Labels;

use std::{
    any::Any,
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::SharedClock,
    commands::CommandSpec,
    engine::{EngineError, Port},
    github::{Event, Fault, GitHub},
    limits,
    store::{Store, StoreError, Taken},
    types::{Actor, DeliveryId, InstallationId, Timestamp},
};

/// Reads deliveries and turns them into requests to the engine.
pub struct Intake {
    store: Arc<Store>,
    github: GitHub,
    engine: Arc<dyn Port>,
    router: Router,
    allow: BTreeSet<InstallationId>,
    clock: SharedClock,
    woken: Arc<Notify>,
    /// What could not be written down; it is, before another delivery is taken.
    unwritten: Mutex<Option<(DeliveryId, Ending)>>,
}

/// What became of a delivery that was taken.
#[derive(Debug, Clone)]
enum Ending {
    Done(String),
    Dead(String),
    Later(String, Timestamp),
}

/// What the intake needs besides the rooms it talks to.
pub struct IntakeOptions {
    /// Workflows and the rows that start them.
    pub starts: Vec<(&'static str, CommandSpec)>,
    /// Installations we work for; all others are ignored.
    pub allow: BTreeSet<InstallationId>,
}

/// Chooses the work that something on GitHub asks for. One place, so that a third way to ask (free text)
/// comes here and nowhere else.
pub(crate) struct Router {
    starts: Vec<(&'static str, CommandSpec)>,
    rows: Vec<CommandSpec>,
}

impl Router {
    fn new(starts: Vec<(&'static str, CommandSpec)>) -> Self {
        let rows =
            starts.iter().map(|(_, row)| *row).chain(crate::commands::COMMON.iter().copied()).collect();
        Self { starts, rows }
    }

    /// Every word people may type, for the parser and for `/help`.
    pub(crate) fn rows(&self) -> &[CommandSpec] {
        &self.rows
    }

    pub(crate) fn row(&self, name: &str) -> Option<&CommandSpec> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The workflow a command starts.
    pub(crate) fn by_command(&self, name: &str) -> Option<(&'static str, &CommandSpec)> {
        self.starts.iter().find(|(_, row)| row.name == name).map(|(workflow, row)| (*workflow, row))
    }

    /// The word that a label stands for.
    pub(crate) fn by_label(&self, label: &str) -> Option<&CommandSpec> {
        crate::commands::by_label(&self.rows, label)
    }
}

/// Why a delivery could not be dealt with now.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    GitHub(#[from] Fault),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the gate it answers is about to open")]
    Opening,
    #[error("deliveries wait that may tell of it")]
    Pending,
}

/// How a delivery ended: one line for the log and the inbox row.
pub(crate) type Handled = Result<String, Trouble>;

/// GitHub's reads lag its webhooks: what is not found this soon after is looked for again.
const LAG: Duration = Duration::from_secs(120);
/// A gate's line is on the page a moment before the gate is open; a quick reader's answer comes in between.
const OPENING: Duration = Duration::from_secs(1);

impl Intake {
    pub fn new(
        store: Arc<Store>,
        github: GitHub,
        engine: Arc<dyn Port>,
        clock: SharedClock,
        options: IntakeOptions,
    ) -> Self {
        Self {
            store,
            github,
            engine,
            router: Router::new(options.starts),
            allow: options.allow,
            clock,
            woken: Arc::new(Notify::new()),
            unwritten: Mutex::default(),
        }
    }

    /// Rung by the front door after a delivery is stored.
    pub fn bell(&self) -> Arc<Notify> {
        self.woken.clone()
    }

    /// Deals with every delivery that is ready, oldest first; says how many there were.
    pub async fn tick(&self) -> Result<usize, StoreError> {
        self.work_off(&CancellationToken::new()).await
    }

    /// Works until told to stop. What is acknowledged and not dealt with by then waits for the next boot.
    pub async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let due = match self.work_off(&stop).await {
                Ok(_) => self.next_due().await,
                Err(error) => {
                    tracing::error!(%error, "the inbox could not be read or written; trying again");
                    limits::DELIVERY_RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.woken.notified() => {}
                () = self.clock.sleep(due) => {}
            }
        }
    }

    async fn next_due(&self) -> Duration {
        match self.store.inbox().next_due().await {
            Ok(Some(at)) => at.since(self.clock.now()).clamp(Duration::from_millis(50), limits::LONGEST_NAP),
            Ok(None) => limits::LONGEST_NAP,
            Err(_) => Duration::from_secs(1),
        }
    }

    async fn work_off(&self, stop: &CancellationToken) -> Result<usize, StoreError> {
        let mut count = 0;
        while !stop.is_cancelled() {
            let unwritten = self.unwritten().clone();
            if let Some((id, ending)) = unwritten {
                self.write_down(&id, &ending).await?;
                *self.unwritten() = None;
            }
            let Some(taken) = self.store.inbox().claim().await? else { break };
            let ending = match AssertUnwindSafe(self.deal_with(&taken)).catch_unwind().await {
                Ok(ending) => ending,
                Err(panic) => {
                    let why = format!("our own fault: {}", panicked(panic.as_ref()));
                    tracing::error!(delivery = %taken.id, event = %taken.event, why, "put aside");
                    Ending::Dead(why)
                }
            };
            if let Err(error) = self.write_down(&taken.id, &ending).await {
                *self.unwritten() = Some((taken.id, ending));
                return Err(error);
            }
            count += 1;
        }
        Ok(count)
    }

    fn unwritten(&self) -> std::sync::MutexGuard<'_, Option<(DeliveryId, Ending)>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_down(&self, id: &DeliveryId, ending: &Ending) -> Result<(), StoreError> {
        let inbox = self.store.inbox();
        match ending {
            Ending::Done(note) => inbox.done(id, note).await,
            Ending::Dead(reason) => inbox.dead(id, reason).await,
            Ending::Later(why, at) => inbox.later(id, why, *at).await,
        }
    }

    async fn deal_with(&self, taken: &Taken) -> Ending {
        let event = match Event::parse(&taken.event, &taken.body) {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(delivery = %taken.id, event = %taken.event, %error, "delivery cannot be read");
                return Ending::Dead(error.to_string());
            }
        };
        if let Some(why) = self.not_ours(&event) {
            tracing::debug!(delivery = %taken.id, event = %taken.event, why, "ignored");
            return Ending::Done(why.to_owned());
        }
        match self.route(taken, &event).await {
            Ok(note) => {
                tracing::info!(delivery = %taken.id, event = %taken.event, %note, "handled");
                Ending::Done(note)
            }
            Err(trouble) => self.put_off(taken, &trouble),
        }
    }

    fn not_ours(&self, event: &Event) -> Option<&'static str> {
        let installation = event.installation()?;
        (!self.allow.contains(&installation))
            .then_some("ignored: its installation is not in [installations] allow")
    }

    /// GitHub was told that we have it, so only time or a fault that no waiting mends makes us give it up.
    fn put_off(&self, taken: &Taken, trouble: &Trouble) -> Ending {
        let now = self.clock.now();
        let age = now.since(taken.received_at);
        let soon = now.plus((age / 4).clamp(limits::DELIVERY_RETRY, limits::DELIVERY_LONGEST_RETRY));
        let at = match trouble {
            Trouble::GitHub(Fault::RateLimited { until }) => Some(*until),
            Trouble::GitHub(Fault::NotFound { .. }) => (age < LAG).then_some(soon),
            // Credentials are mended by the operator; a page instead of an answer is an outage's.
            Trouble::GitHub(
                Fault::Transient { .. } | Fault::Unauthorized { .. } | Fault::Unexpected { .. },
            ) => Some(soon),
            Trouble::GitHub(_) => None,
            Trouble::Opening => Some(now.plus(OPENING)),
            Trouble::Pending | Trouble::Store(_) | Trouble::Engine(EngineError::Store(_)) => Some(soon),
            Trouble::Engine(_) => None,
        };
        match at {
            Some(at) if age < limits::DELIVERY_AGE => {
                tracing::info!(delivery = %taken.id, %trouble, %at, "put off");
                Ending::Later(trouble.to_string(), at)
            }
            _ => {
                tracing::warn!(delivery = %taken.id, %trouble, "put aside");
                Ending::Dead(trouble.to_string())
            }
        }
    }

    /// Our own account.
    pub(crate) async fn bot(&self) -> Result<Actor, Trouble> {
        Ok(self.github.bot().await?)
    }
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))
}
