//! The pace of writes: a bucket for each installation, and who goes first when it is empty.
//!
//! GitHub asks Apps for a second between writes and punishes bursts with its secondary limits, which
//! stop everything. So writes wait here for their turn. What opens a gate goes first, then what tells a person that they
//! were heard, and a part of the bucket is kept for both. Decoration goes last, and a refusal goes when nobody else
//! has to wait for it, or not at all.

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

/// GitHub asks for a second between one App's writes. Held, it also stays below the secondary limit of 80 new
/// contents a minute; the one of 500 an hour is GitHub's to announce, since a run makes a handful of contents
/// among its writes and an installation rarely has a hundred runs in an hour.
const WRITE_GAP: Duration = Duration::from_secs(1);

/// Writes that may go at once after a quiet time: what starting a run needs, in one go. Sixty-five in the worst
/// minute is still below GitHub's eighty.
const WRITES_AT_ONCE: u32 = 5;

/// Of those, kept for opening gates and for telling people that they were heard: the 👀 and the label that is taken off
/// with it.
const WRITES_RESERVED: u32 = 2;

/// Are writes paced?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// As GitHub asks for.
    GitHub,
    /// Not at all: nobody is spared by it.
    Off,
}

impl Pacing {
    /// An API on this machine is a rehearsal and has no limits to spare.
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

/// What a write is for, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WritePriority {
    /// What a person is asked, and what stands between that and their answer: until it is written, nothing they say
    /// can count. A run has few of these, so they keep the others waiting for moments only.
    Question,
    /// Somebody waits to see that they were heard: 👀, their label taken off, what they asked to be shown.
    Acknowledgement,
    /// A new comment: a question to people, an answer, a reason.
    NewComment,
    /// Branches, commits, pull requests: what a comment will speak of.
    Work,
    /// What shows where things stand and will be overtaken: status edits, state labels.
    StatusUpdate,
    /// A thumb down. Anybody can have as many as they like, so it never stands in line: where there is no room for it
    /// at once, it is left out.
    Rejection,
}

impl WritePriority {
    /// What must be left in the bucket for others once this write has been let through.
    fn reserve_left(self) -> Duration {
        if self <= Self::Acknowledgement { Duration::ZERO } else { WRITE_GAP * WRITES_RESERVED }
    }
}

/// The buckets of all installations.
pub(crate) struct WritePacer {
    pacing: Pacing,
    clock: SharedClock,
    buckets: Mutex<HashMap<InstallationId, Arc<WriteBucket>>>,
    /// Tells of the other processes that work for the same App.
    store: OnceLock<Arc<Store>>,
}

impl WritePacer {
    pub(crate) fn new(pacing: Pacing, clock: SharedClock) -> Self {
        Self { pacing, clock, buckets: Mutex::default(), store: OnceLock::new() }
    }

    /// From now on writes share the pace with those of the store's other processes, and end with its lease.
    pub(crate) fn share_with(&self, store: Arc<Store>) {
        let _ = self.store.set(store);
    }

    /// How long a write may take, so that nobody else may have taken up the run it is of. None: nobody ever may.
    pub(crate) fn longest_write(&self) -> Option<Duration> {
        self.store.get().and_then(|store| store.lease_left())
    }

    /// Tells the store's other processes of GitHub's limit, as [`Store::publish_rate_limit`] does; nobody waits for that.
    pub(crate) fn publish_limit(&self, installation: InstallationId, search: bool, until: Timestamp) {
        let Some(store) = self.store.get().cloned() else { return };
        tokio::spawn(async move {
            if let Err(error) = store.publish_rate_limit(installation, search, until).await {
                tracing::warn!(%error, "other servers were not told of GitHub's limit");
            }
        });
    }

    /// See [`Store::rate_limited_until`].
    pub(crate) fn shared_limit(&self, installation: InstallationId, search: bool) -> Option<Timestamp> {
        self.store.get()?.rate_limited_until(installation, search)
    }

    /// Resolves when it is known whether the write may be sent, which all but refusals may in the end. Dropping the
    /// future gives the place in the queue up.
    pub(crate) async fn wait_for_turn(&self, installation: InstallationId, urgency: WritePriority) -> bool {
        if self.pacing == Pacing::Off {
            return true;
        }
        let bucket = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let full = || Arc::new(WriteBucket::full(self.clock.now()));
            Arc::clone(buckets.entry(installation).or_insert_with(full))
        };
        let sharers = self.store.get().map_or(1, |store| store.node_count().max(1));
        bucket.wait_for_turn(self.clock.as_ref(), urgency, sharers).await
    }
}

/// Writes by urgency, then in the order they came.
type WriteRank = (WritePriority, u64);

struct WriteBucket {
    queue: Mutex<WriteQueue>,
    /// Somebody came, went or was let through: whoever is first now should look.
    changed: Notify,
}

struct WriteQueue {
    waiting: BTreeSet<WriteRank>,
    /// The number of the next one who comes.
    next: u64,
    /// What is in the bucket, as the time it takes to fill that far.
    level: Duration,
    /// When that was so.
    at: Timestamp,
}

/// What the queue answers to one who waits in it.
enum WriteAdmission {
    Admitted,
    /// First, but there is not enough in the bucket yet.
    WaitFor(Duration),
    /// Others are before.
    Queued,
}

impl WriteBucket {
    fn full(now: Timestamp) -> Self {
        let level = WRITE_GAP * WRITES_AT_ONCE;
        let queue = WriteQueue { waiting: BTreeSet::new(), next: 0, level, at: now };
        Self { queue: Mutex::new(queue), changed: Notify::new() }
    }

    /// So many processes fill from the same source, each as if the others wrote as much as it does.
    async fn wait_for_turn(&self, clock: &dyn Clock, urgency: WritePriority, sharers: u32) -> bool {
        let ticket = WriteTicket::take(self, urgency);
        loop {
            let changed = self.changed.notified();
            let admission = self.lock().admit(ticket.rank, clock.now(), sharers);
            match admission {
                WriteAdmission::Admitted => return true,
                WriteAdmission::WaitFor(_) | WriteAdmission::Queued
                    if urgency == WritePriority::Rejection =>
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
        // A clock that was put back fills nothing, and neither does it empty what is there.
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

/// A rank in the queue, given up when it is dropped.
struct WriteTicket<'a> {
    bucket: &'a WriteBucket,
    rank: WriteRank,
}

impl<'a> WriteTicket<'a> {
    fn take(bucket: &'a WriteBucket, urgency: WritePriority) -> Self {
        let mut queue = bucket.lock();
        let rank = (urgency, queue.next);
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
    fn five_at_once_then_one_a_second_and_two_kept_for_those_who_wait() {
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
    fn processes_that_share_an_app_share_its_pace() {
        let mut queue = WriteBucket::full(Timestamp(0)).queue.into_inner().unwrap();
        queue.level = Duration::ZERO;
        queue.waiting = [(WritePriority::Question, 0)].into();
        let mut admit = |at| queue.admit((WritePriority::Question, 0), Timestamp(at), 3);
        assert!(matches!(admit(0), WriteAdmission::WaitFor(wait) if wait == WRITE_GAP * 3));
        assert!(matches!(admit(2999), WriteAdmission::WaitFor(_)));
        assert!(matches!(admit(3003), WriteAdmission::Admitted), "each waits as long as three writes take");
    }

    #[test]
    fn the_more_urgent_goes_first_and_then_whoever_came_first() {
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
    fn only_this_machine_is_not_paced() {
        let of = |url: &str| Pacing::for_api(&url.parse().unwrap());
        for here in ["http://127.0.0.1:3000/api/v3", "http://localhost/", "http://[::1]:1/"] {
            assert_eq!(of(here), Pacing::Off, "{here}");
        }
        for there in ["https://api.github.com/", "https://ghe.example/api/v3", "http://127.0.0.1.example/"] {
            assert_eq!(of(there), Pacing::GitHub, "{there}");
        }
    }
}
