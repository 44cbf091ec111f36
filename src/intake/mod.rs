//! From the inbox to the engine: what each delivery means, who may say it, and what is answered.
//!
//! The front door only verifies and stores. Everything a delivery causes happens here, from the stored
//! row, so that a restart in the middle starts the same row again; what was already done is recognised by
//! the delivery's id. A delivery is a hint that it is time to look: rights and state are read from GitHub
//! now, never from the payload.

mod comment;
mod route;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::SharedClock,
    commands::CommandSpec,
    engine::{EngineError, Port},
    github::{Event, Fault, GitHub},
    store::{Store, StoreError, Taken},
    types::{Actor, InstallationId, Timestamp},
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
}

/// How a delivery ended: one line for the log and the inbox row.
pub(crate) type Handled = Result<String, Trouble>;

/// GitHub's reads lag its webhooks: what is not found this soon after is looked for again.
const LAG: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_secs(5);
/// A gate's line is on the page a moment before the gate is open; a quick reader's answer comes in between.
const OPENING: Duration = Duration::from_secs(1);
/// Tries before a delivery is put aside; a redelivery arms it again.
const ATTEMPTS: u32 = 30;

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
        }
    }

    /// Rung by the front door after a delivery is stored.
    pub fn bell(&self) -> Arc<Notify> {
        self.woken.clone()
    }

    /// Deals with every delivery that is ready, oldest first; says how many there were.
    pub async fn tick(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        while let Some(taken) = self.store.inbox().claim().await? {
            self.deal_with(taken).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Works until told to stop.
    pub async fn run(&self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.tick().await {
                tracing::error!(%error, "the inbox could not be read; trying again");
            }
            let due = match self.store.inbox().next_due().await {
                Ok(Some(at)) => at.since(self.clock.now()).max(Duration::from_millis(50)),
                Ok(None) => Duration::from_secs(60),
                Err(_) => Duration::from_secs(1),
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.woken.notified() => {}
                () = self.clock.sleep(due) => {}
            }
        }
    }

    async fn deal_with(&self, taken: Taken) -> Result<(), StoreError> {
        let inbox = self.store.inbox();
        let event = match Event::parse(&taken.event, &taken.body) {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(delivery = %taken.id, event = %taken.event, %error, "delivery cannot be read");
                return inbox.dead(&taken.id, &error.to_string()).await;
            }
        };
        if let Some(why) = self.not_ours(&event) {
            tracing::debug!(delivery = %taken.id, event = %taken.event, why, "ignored");
            return inbox.done(&taken.id, why).await;
        }
        match self.route(&taken, &event).await {
            Ok(note) => {
                tracing::info!(delivery = %taken.id, event = %taken.event, %note, "handled");
                inbox.done(&taken.id, &note).await
            }
            Err(trouble) => self.put_off(&taken, trouble).await,
        }
    }

    fn not_ours(&self, event: &Event) -> Option<&'static str> {
        let installation = event.installation()?;
        (!self.allow.contains(&installation))
            .then_some("ignored: its installation is not in [installations] allow")
    }

    async fn put_off(&self, taken: &Taken, trouble: Trouble) -> Result<(), StoreError> {
        let inbox = self.store.inbox();
        let now = self.clock.now();
        let at: Option<Timestamp> = match &trouble {
            Trouble::GitHub(Fault::RateLimited { until, .. }) => Some(*until),
            Trouble::GitHub(Fault::Transient { .. }) => Some(now.plus(RETRY)),
            Trouble::GitHub(Fault::NotFound { .. }) => {
                (now.since(taken.received_at) < LAG).then(|| now.plus(RETRY))
            }
            Trouble::GitHub(_) => None,
            Trouble::Opening => Some(now.plus(OPENING)),
            Trouble::Engine(_) | Trouble::Store(_) => Some(now.plus(RETRY)),
        };
        match at {
            Some(at) if taken.attempts < ATTEMPTS => {
                tracing::info!(delivery = %taken.id, %trouble, %at, "put off");
                inbox.later(&taken.id, &trouble.to_string(), at).await
            }
            _ => {
                tracing::warn!(delivery = %taken.id, %trouble, "put aside");
                inbox.dead(&taken.id, &trouble.to_string()).await
            }
        }
    }

    /// Our own account.
    pub(crate) async fn bot(&self) -> Result<Actor, Trouble> {
        Ok(self.github.bot().await?)
    }
}
