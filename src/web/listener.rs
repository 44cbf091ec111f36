//! A door that is open: connections are accepted, served and closed, and bounded in number and in patience.
//!
//! Anybody may connect and say nothing. A connection without a whole request head is closed after a while. And where a
//! door is full, the connection that has been quiet for longest gives way to a new one: so whoever holds many open and
//! waits keeps nobody out. A burst of honest ones is over before that comes to pass, and waits in line meanwhile.

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

/// A connection that has brought no whole request head for so long, new or after an answer, is closed. That is longer than
/// proxies keep one that they would use again (nginx for 60 s): a delivery on one that we close at that moment is lost. In
/// a full door a silent one gives way sooner.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// In a full door a connection gives way that has been quiet for so long: an honest one brings its request at once, and it
/// is on disk within milliseconds.
const QUIET_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two lines of the log about what anybody can cause as often as they like.
const LOG_GAP: Duration = Duration::from_secs(60);

/// What a door puts up with.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections at a time.
    pub connections: usize,
    /// How long a connection may be without a whole request head, new or between two requests.
    pub head: Duration,
}

impl ConnectionLimits {
    /// So many connections, as far as the files go that this process may have open.
    pub fn new(connections: usize) -> Self {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let share = files.unwrap_or(usize::MAX) / limits::CONNECTION_SHARE_OF_FILES;
        Self { connections: connections.min(share).max(1), head: HEAD_TIMEOUT }
    }
}

/// Serves until `stop`; then nobody is let in any more, and requests that are under way are answered.
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
        let (heard, router) = (Arc::clone(&connection), TowerToHyperService::new(router.clone()));
        let service = service_fn(move |request| {
            *heard.last_activity() = Instant::now();
            router.call(request)
        });
        let served = closing.watch(http.serve_connection(TokioIo::new(stream), service));
        let (closed, clock) = (Arc::clone(&closed), Arc::clone(&clock));
        tokio::spawn(async move {
            let why = tokio::select! {
                served = served => {
                    // One that was of use may well be idle.
                    let silent = *connection.last_activity() == connection.came;
                    let late = served.is_err_and(|error| error.is_timeout());
                    (late && silent).then_some("sent no whole request in time")
                }
                () = connection.close.cancelled() => Some("gave way to a newer one"),
            };
            if let Some((why, closed)) = why.and_then(|why| Some((why, closed.record(clock.now())?))) {
                tracing::warn!(closed, "connections were closed, the last because it {why}");
            }
        });
    }
    drop(listener);
    closing.shutdown().await;
}

/// For a line of the log about what anybody can cause as often as they like.
#[derive(Default)]
pub(super) struct LogThrottle(Mutex<LogThrottleState>);

#[derive(Default)]
struct LogThrottleState {
    all: u64,
    /// How many of them there were at the last line, and when that was.
    told: u64,
    at: Option<Timestamp>,
}

impl LogThrottle {
    /// How often it has happened since the last line, when it is time for another one.
    pub(super) fn record(&self, now: Timestamp) -> Option<u64> {
        let mut happened = self.lock();
        happened.all += 1;
        // A line that is yet to come was written before the clock was set back.
        let due = happened.at.is_none_or(|at| at > now || now.since(at) >= LOG_GAP);
        due.then(|| {
            let untold = happened.all - happened.told;
            (happened.told, happened.at) = (happened.all, Some(now));
            untold
        })
    }

    /// How often it has happened at all.
    pub(super) fn total(&self) -> u64 {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, LogThrottleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections of one door.
struct OpenConnections {
    most: usize,
    all: Vec<Weak<ClientConnection>>,
    left: Arc<Notify>,
}

struct ClientConnection {
    /// When it last gave a sign of life: it came, or a request did.
    sign: Mutex<Instant>,
    came: Instant,
    close: CancellationToken,
    left: Arc<Notify>,
}

impl OpenConnections {
    /// Waits for a place, and has whoever was quiet for too long give way.
    async fn admit(&mut self) -> Arc<ClientConnection> {
        loop {
            self.all.retain(|connection| connection.strong_count() > 0);
            if self.all.len() < self.most {
                let (now, left) = (Instant::now(), Arc::clone(&self.left));
                let connection =
                    ClientConnection { sign: now.into(), came: now, close: CancellationToken::new(), left };
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
            // Meanwhile it may have left, or given a sign.
            tokio::select! {
                () = self.left.notified() => {}
                () = tokio::time::sleep_until(patience) => {}
            }
        }
    }
}

impl ClientConnection {
    fn last_activity(&self) -> MutexGuard<'_, Instant> {
        self.sign.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn one_line_in_a_gap_counts_what_had_none() {
        let (seldom, gap) = (LogThrottle::default(), LOG_GAP);
        let mut at = Timestamp(0);
        let lines: Vec<_> = [gap / 2, gap / 2, gap]
            .map(|later| {
                at = at.plus(later);
                seldom.record(at)
            })
            .into();
        assert_eq!(lines, [Some(1), None, Some(2)]);
        assert_eq!(seldom.record(at), None);
        let back = [Timestamp(0), Timestamp(0)].map(|back| seldom.record(back));
        assert_eq!(back, [Some(2), None], "a clock that was set back silences nothing");
        assert_eq!(seldom.total(), 6);
    }
}
