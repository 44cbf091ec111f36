//! Connection handling: accepts, serves and closes connections, with limits on their number and idle time.
//!
//! Anybody may connect and send nothing, so a connection without a complete request head is closed after a while. At
//! the connection limit, a new connection waits. As soon as the longest-idle connection has been idle for
//! `QUIET_TIMEOUT`, that connection is closed to make room. So a client that keeps many connections open cannot block
//! others for long.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use axum::{Router, serve::Listener};
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use rustix::process::{Resource, getrlimit};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{clock::SharedClock, limits, types::Timestamp};

/// Maximum time without a complete request head, counted from the opening of a connection or from the last response. It
/// is longer than proxies keep an idle connection for reuse (nginx: 60 s). Otherwise we might close a connection just
/// when a delivery is sent on it, and the delivery would be lost. At the connection limit, an idle connection is closed
/// sooner.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Minimum idle time before a connection may be closed at the connection limit. An honest client sends its request at
/// once, and the request is on disk within milliseconds.
const QUIET_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum interval between log lines about events that anybody can trigger at will.
const LOG_GAP: Duration = Duration::from_secs(60);

/// Limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum concurrent connections.
    pub connections: usize,
    /// Maximum time that a connection may stay without a complete request head, after it opens or between two requests.
    pub head: Duration,
}

impl ConnectionLimits {
    /// Creates the limits for a listener with at most `connections` connections. The number is reduced if the process's
    /// open-file limit is too low.
    pub fn new(connections: usize) -> Self {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let share = files.unwrap_or(usize::MAX) / limits::CONNECTION_SHARE_OF_FILES;
        Self { connections: connections.min(share).max(1), head: HEAD_TIMEOUT }
    }
}

/// Serves connections until `stop` is cancelled. Then accepts no more connections and finishes the requests in
/// progress.
pub async fn serve<L: Listener>(
    mut listener: L,
    router: Router,
    bounds: ConnectionLimits,
    clock: SharedClock,
    stop: CancellationToken,
) {
    let mut open = OpenConnections { most: bounds.connections, all: Vec::new(), left: Arc::default() };
    let closed = Arc::new(LogThrottle::default());
    let closing = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head);
    loop {
        let next = async {
            let (stream, _) = listener.accept().await;
            (stream, open.admit().await)
        };
        let (stream, connection) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        let (tracked, router) = (Arc::clone(&connection), TowerToHyperService::new(router.clone()));
        let service = service_fn(move |request| {
            *tracked.last_activity() = Instant::now();
            router.call(request)
        });
        let served = closing.watch(http.serve_connection(TokioIo::new(stream), service));
        let (closed, clock) = (Arc::clone(&closed), Arc::clone(&clock));
        tokio::spawn(async move {
            let why = tokio::select! {
                served = served => {
                    // A connection that has served a request may well be idle.
                    let silent = *connection.last_activity() == connection.opened;
                    let late = served.is_err_and(|error| error.is_timeout());
                    (late && silent).then_some("sent no complete request in time")
                }
                () = connection.close.cancelled() => Some("was closed for a newer one"),
            };
            if let Some((why, closed)) = why.and_then(|why| Some((why, closed.record(clock.now())?))) {
                tracing::warn!(closed, "connections were closed; the last one {why}");
            }
        });
    }
    drop(listener);
    closing.shutdown().await;
}

/// Limits how often log lines are written about events that anybody can trigger at will.
#[derive(Default)]
pub(super) struct LogThrottle(Mutex<LogThrottleState>);

#[derive(Default)]
struct LogThrottleState {
    all: u64,
    /// Number of events at the time of the last log line.
    logged: u64,
    at: Option<Timestamp>,
}

impl LogThrottle {
    /// Counts an event. If a log line is due, returns the number of events since the last log line, otherwise `None`.
    pub(super) fn record(&self, now: Timestamp) -> Option<u64> {
        let mut happened = self.lock();
        happened.all += 1;
        // If the last line is in the future, the clock was set back.
        let due = happened.at.is_none_or(|at| at > now || now.since(at) >= LOG_GAP);
        due.then(|| {
            let unlogged = happened.all - happened.logged;
            (happened.logged, happened.at) = (happened.all, Some(now));
            unlogged
        })
    }

    /// Returns the total number of events.
    pub(super) fn total(&self) -> u64 {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, LogThrottleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open connections of one listener.
struct OpenConnections {
    most: usize,
    all: Vec<Weak<ClientConnection>>,
    left: Arc<Notify>,
}

struct ClientConnection {
    /// Time at which the connection was opened or last sent a request.
    activity: Mutex<Instant>,
    opened: Instant,
    close: CancellationToken,
    left: Arc<Notify>,
}

impl OpenConnections {
    /// Waits until a new connection is allowed. At the limit, closes the longest-idle connection once it has been idle
    /// for [`QUIET_TIMEOUT`].
    async fn admit(&mut self) -> Arc<ClientConnection> {
        loop {
            self.all.retain(|connection| connection.strong_count() > 0);
            if self.all.len() < self.most {
                let (now, left) = (Instant::now(), Arc::clone(&self.left));
                let connection = ClientConnection {
                    activity: now.into(),
                    opened: now,
                    close: CancellationToken::new(),
                    left,
                };
                let connection = Arc::new(connection);
                self.all.push(Arc::downgrade(&connection));
                return connection;
            }
            let there = self.all.iter().filter_map(Weak::upgrade);
            let Some((since, close)) =
                there.map(|c| (*c.last_activity(), c.close.clone())).min_by_key(|(since, _)| *since)
            else {
                continue;
            };
            let patience = since + QUIET_TIMEOUT;
            if patience <= Instant::now() {
                close.cancel();
                self.left.notified().await;
                continue;
            }
            // It may close or become active meanwhile.
            tokio::select! {
                () = self.left.notified() => {}
                () = tokio::time::sleep_until(patience) => {}
            }
        }
    }
}

impl ClientConnection {
    fn last_activity(&self) -> MutexGuard<'_, Instant> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_throttle_logs_once_per_interval_with_a_count() {
        let (throttle, gap) = (LogThrottle::default(), LOG_GAP);
        let mut at = Timestamp(0);
        let lines: Vec<_> = [gap / 2, gap / 2, gap]
            .map(|later| {
                at = at.plus(later);
                throttle.record(at)
            })
            .into();
        assert_eq!(lines, [Some(1), None, Some(2)]);
        assert_eq!(throttle.record(at), None);
        let back = [Timestamp(0), Timestamp(0)].map(|back| throttle.record(back));
        assert_eq!(back, [Some(2), None], "a clock that was set back silences nothing");
        assert_eq!(throttle.total(), 6);
    }
}
