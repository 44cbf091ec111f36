//! The one place that reads the time or waits. Backoff, pacing and rate waits go through [`Clock`],
//! so that a test moves the hands instead of sleeping.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::types::Timestamp;

/// Time as the rest of the program sees it.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Resolves once `duration` of this clock has passed.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// A clock that can be shared between rooms.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's own clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}
