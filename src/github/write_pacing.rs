//! Write pacer: a token bucket per installation with a priority queue.
//!
//! GitHub asks Apps to wait a second between writes. It punishes bursts with secondary rate limits, which block all
//! calls. Gate writes go first, then acknowledgements of commands; part of the bucket is reserved for these two. Status
//! updates go last. A rejection (👎) is sent only if it need not wait.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use url::Url;

use crate::{
    clock::{Clock, SharedClock},
    store::Store,
    types::{InstallationId, Timestamp},
};

/// Minimum time between two writes that GitHub asks for. This gap also keeps us below the secondary limit of 80 new
/// contents per minute. The limit of 500 per hour is not enforced here; we wait only if GitHub reports it. A run
/// creates few contents, and an installation rarely has a hundred runs per hour.
const WRITE_GAP: Duration = Duration::from_secs(1);

/// Bucket size: maximum number of writes that may be sent at once after a quiet period, enough to start a run. At
/// worst, 65 writes are sent in a minute, which is still below GitHub's limit of 80.
const WRITES_AT_ONCE: u32 = 5;

/// Number of writes in the bucket reserved for gates and acknowledgements, such as the 👀 reaction and the removal of
/// the label.
const WRITES_RESERVED: u32 = 2;

/// Whether writes are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// Writes are sent at the rate that GitHub asks for.
    GitHub,
    /// Writes are sent without a limit, for servers other than GitHub.
    Off,
}

impl Pacing {
    /// Returns the pacing for an API. For an API on this machine the pacing is `Off`, because it is a rehearsal server
    /// without rate limits.
    pub fn for_api(api_url: &Url) -> Self {
        let here = match api_url.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        if here { Self::Off } else { Self::GitHub }
    }
}

/// Purpose of a write, which determines its priority; most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WritePriority {
    /// A gate's question and the writes that must precede it. A person cannot answer before these are written. A run
    /// has few such writes, so they delay other writes only briefly.
    Question,
    /// A reply to a waiting person: the 👀 reaction, the removal of the person's label, or an answer that the person
    /// asked for.
    Acknowledgement,
    /// A new comment.
    NewComment,
    /// A write of branches, commits or pull requests, to which a later comment will refer.
    Work,
    /// A status edit or state label, which the next one will replace.
    StatusUpdate,
    /// A 👎 reaction. Anyone can cause any number of these, so the write never waits: it is dropped if it cannot be sent
    /// at once.
    Rejection,
}

impl WritePriority {
    /// Returns the bucket level that must remain after this write, so that more urgent writes can still be sent.
    fn reserve_left(self) -> Duration {
        if self <= Self::Acknowledgement { Duration::ZERO } else { WRITE_GAP * WRITES_RESERVED }
    }
}

/// Write buckets of all installations.
pub(crate) struct WritePacer {
    pacing: Pacing,
    clock: SharedClock,
    buckets: Mutex<HashMap<InstallationId, Arc<WriteBucket>>>,
    /// Store that knows the other processes of the same App; unset if the process has no such store.
    store: OnceLock<Arc<Store>>,
}

impl WritePacer {
    pub(crate) fn new(pacing: Pacing, clock: SharedClock) -> Self {
        Self { pacing, clock, buckets: Mutex::default(), store: OnceLock::new() }
    }

    /// From now on, shares the write rate with the store's other processes, and limits the duration of writes to the
    /// time left on the store's lease.
    pub(crate) fn share_with(&self, store: Arc<Store>) {
        let _ = self.store.set(store);
    }

    /// Returns the time left on the lease, after which another node may take over the run. `None` means that writes
    /// have no time limit.
    pub(crate) fn longest_write(&self) -> Option<Duration> {
        self.store.get().and_then(|store| store.lease_left())
    }

    /// Publishes a rate limit that GitHub reported to the store's other processes, in the background; see
    /// [`Store::publish_rate_limit`].
    pub(crate) fn publish_limit(&self, installation: InstallationId, search: bool, until: Timestamp) {
        let Some(store) = self.store.get().cloned() else { return };
        tokio::spawn(async move {
            if let Err(error) = store.publish_rate_limit(installation, search, until).await {
                tracing::warn!(%error, "could not publish GitHub's rate limit to other nodes");
            }
        });
    }

    /// Returns the end of the rate limit that another process published; see [`Store::rate_limited_until`].
    pub(crate) fn shared_limit(&self, installation: InstallationId, search: bool) -> Option<Timestamp> {
        self.store.get()?.rate_limited_until(installation, search)
    }

    /// Waits until the write may be sent and returns true. Returns false only for a rejection that would have to wait.
    /// Dropping the future removes the write from the queue.
    pub(crate) async fn wait_for_turn(&self, installation: InstallationId, priority: WritePriority) -> bool {
        if self.pacing == Pacing::Off {
            return true;
        }
        let bucket = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let full = || Arc::new(WriteBucket::full(self.clock.now()));
            Arc::clone(buckets.entry(installation).or_insert_with(full))
        };
        let sharers = self.store.get().map_or(1, |store| store.node_count().max(1));
        bucket.wait_for_turn(self.clock.as_ref(), priority, sharers).await
    }
}

/// Rank of a write in the queue: its priority, then its arrival number.
type WriteRank = (WritePriority, u64);

struct WriteBucket {
    queue: Mutex<WriteQueue>,
    /// Notified when a write arrives, leaves or is admitted, so that the first write in the queue checks again.
    changed: Notify,
}

struct WriteQueue {
    waiting: BTreeSet<WriteRank>,
    /// Arrival number of the next write.
    next: u64,
    /// Level of the bucket, expressed as the time needed to fill an empty bucket to this level.
    level: Duration,
    /// Time at which `level` was computed.
    at: Timestamp,
}

/// The queue's decision for a waiting write.
enum WriteAdmission {
    Admitted,
    /// The write is first in the queue, but the bucket is too empty. Contains the time to wait.
    WaitFor(Duration),
    /// Other writes are ahead of this write in the queue.
    Queued,
}

impl WriteBucket {
    fn full(now: Timestamp) -> Self {
        let level = WRITE_GAP * WRITES_AT_ONCE;
        let queue = WriteQueue { waiting: BTreeSet::new(), next: 0, level, at: now };
        Self { queue: Mutex::new(queue), changed: Notify::new() }
    }

    /// Waits until the write may be sent; returns false only for a rejection that would have to wait. `sharers`
    /// processes share the rate, and this process uses an equal part of it.
    async fn wait_for_turn(&self, clock: &dyn Clock, priority: WritePriority, sharers: u32) -> bool {
        let ticket = WriteTicket::take(self, priority);
        loop {
            let changed = self.changed.notified();
            let admission = self.lock().admit(ticket.rank, clock.now(), sharers);
            match admission {
                WriteAdmission::Admitted => return true,
                WriteAdmission::WaitFor(_) | WriteAdmission::Queued
                    if priority == WritePriority::Rejection =>
                {
                    return false;
                }
                WriteAdmission::WaitFor(wait) => tokio::select! {
                    () = clock.sleep(wait) => {}
                    () = changed => {}
                },
                WriteAdmission::Queued => changed.await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteQueue {
    fn admit(&mut self, rank: WriteRank, now: Timestamp, sharers: u32) -> WriteAdmission {
        // A clock that was set back neither fills nor empties the bucket.
        let full = WRITE_GAP * WRITES_AT_ONCE;
        self.level = (self.level + now.since(self.at) / sharers).min(full);
        self.at = now;
        if self.waiting.first() != Some(&rank) {
            return WriteAdmission::Queued;
        }
        let needed = WRITE_GAP + rank.0.reserve_left();
        if self.level < needed {
            return WriteAdmission::WaitFor((needed - self.level) * sharers);
        }
        self.level -= WRITE_GAP;
        WriteAdmission::Admitted
    }
}

/// A write's entry in the queue; removed from the queue on drop.
struct WriteTicket<'a> {
    bucket: &'a WriteBucket,
    rank: WriteRank,
}

impl<'a> WriteTicket<'a> {
    fn take(bucket: &'a WriteBucket, priority: WritePriority) -> Self {
        let mut queue = bucket.lock();
        let rank = (priority, queue.next);
        queue.next += 1;
        queue.waiting.insert(rank);
        Self { bucket, rank }
    }
}

impl Drop for WriteTicket<'_> {
    fn drop(&mut self) {
        self.bucket.lock().waiting.remove(&self.rank);
        self.bucket.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_limiter_allows_five_writes_at_once_and_then_one_per_second() {
        let mut queue = WriteBucket::full(Timestamp(0)).queue.into_inner().unwrap();
        let mut admit = |urgency, at| {
            queue.waiting = [(urgency, 0)].into();
            match queue.admit((urgency, 0), Timestamp(at), 1) {
                WriteAdmission::Admitted => 0,
                WriteAdmission::WaitFor(wait) => wait.as_millis(),
                WriteAdmission::Queued => unreachable!("there is no other"),
            }
        };
        let work: Vec<_> = (0..4).map(|_| admit(WritePriority::Work, 0)).collect();
        assert_eq!(work, [0, 0, 0, 1000]);
        assert_eq!(
            [
                admit(WritePriority::Acknowledgement, 0),
                admit(WritePriority::Acknowledgement, 0),
                admit(WritePriority::Acknowledgement, 0)
            ],
            [0, 0, 1000]
        );
        assert_eq!(admit(WritePriority::Acknowledgement, 600), 400);
        assert_eq!(
            [admit(WritePriority::Acknowledgement, 1000), admit(WritePriority::Acknowledgement, 1000)],
            [0, 1000]
        );
        assert_eq!(admit(WritePriority::Acknowledgement, 500), 1000, "a clock put back fills nothing");
        assert_eq!(
            admit(WritePriority::Work, 1_000_000_000),
            0,
            "and one put forward fills no more than the bucket"
        );
        let rest: Vec<_> = (0..5).map(|_| admit(WritePriority::Acknowledgement, 1_000_000_000)).collect();
        assert_eq!(rest, [0, 0, 0, 0, 1000]);
    }

    #[test]
    fn processes_of_one_app_divide_the_write_rate_between_them() {
        let mut queue = WriteBucket::full(Timestamp(0)).queue.into_inner().unwrap();
        queue.level = Duration::ZERO;
        queue.waiting = [(WritePriority::Question, 0)].into();
        let mut admit = |at| queue.admit((WritePriority::Question, 0), Timestamp(at), 3);
        assert!(matches!(admit(0), WriteAdmission::WaitFor(wait) if wait == WRITE_GAP * 3));
        assert!(matches!(admit(2999), WriteAdmission::WaitFor(_)));
        assert!(matches!(admit(3003), WriteAdmission::Admitted), "each waits as long as three writes take");
    }

    #[test]
    fn urgent_writes_go_first_and_equally_urgent_writes_go_in_order_of_arrival() {
        let bucket = WriteBucket::full(Timestamp(0));
        let decoration = WriteTicket::take(&bucket, WritePriority::StatusUpdate);
        let (first, second) = (
            WriteTicket::take(&bucket, WritePriority::Work),
            WriteTicket::take(&bucket, WritePriority::Work),
        );
        let (heard, asked) = (
            WriteTicket::take(&bucket, WritePriority::Acknowledgement),
            WriteTicket::take(&bucket, WritePriority::Question),
        );
        for (second, ticket) in (9..).zip([asked, heard, first, second, decoration]) {
            assert!(matches!(
                bucket.lock().admit(ticket.rank, Timestamp(second * 1000), 1),
                WriteAdmission::Admitted
            ));
        }
        assert!(bucket.lock().waiting.is_empty(), "whoever is done or gives up leaves the queue");
    }

    #[test]
    fn writes_are_paced_unless_the_api_is_on_loopback() {
        let of = |url: &str| Pacing::for_api(&url.parse().unwrap());
        for here in ["http://127.0.0.1:3000/api/v3", "http://localhost/", "http://[::1]:1/"] {
            assert_eq!(of(here), Pacing::Off, "{here}");
        }
        for there in ["https://api.github.com/", "https://ghe.example/api/v3", "http://127.0.0.1.example/"] {
            assert_eq!(of(there), Pacing::GitHub, "{there}");
        }
    }
}
