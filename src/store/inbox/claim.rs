//! Selects the deliveries that may be claimed now.
//!
//! Ordering rules:
//!
//! - Deliveries about the same issue (or pull request) of a repository are processed in order. Deliveries about a
//!   repository but no issue form a sequence of their own. Each such sequence is called a lane.
//! - A fence (see [`DeliverySubject::fence`]) waits for all earlier deliveries of its repository or installation. All
//!   later deliveries of that repository or installation wait for the fence.
//! - A delivery that was put off blocks its lane only for a while. After that, later deliveries overtake it, so that a
//!   delivery that never succeeds cannot block an issue for days.
//! - A node skips deliveries of repositories that only other live nodes serve.
//!
//! Repositories take turns, so that ten thousand deliveries of one repository do not delay the other repositories. The
//! queue exists only in the database: each claim reads a bounded number of unfinished rows per repository. A put-off
//! delivery that no longer blocks its lane is called asleep, and claims skip it.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;

use super::{
    ClaimedDelivery, Inbox,
    body::{BodyPacking, PackedBody},
    read_subject,
};
use crate::{
    limits,
    store::{
        StoreError,
        cluster::{living_node_condition, serves_row_condition},
        database::{to_signed, to_unsigned},
        error::TransactionError,
    },
    types::{DeliveryId, RepoId, Timestamp},
};

/// Maximum number of deliveries of one lane per claim. `LANE_BYTES` limits their stored size. Larger batches need fewer
/// commits, but smaller batches let other lanes proceed sooner.
const LANE_DELIVERIES: usize = 16;
const LANE_BYTES: u64 = 1024 * 1024;

/// Maximum number of unfinished deliveries of one repository that a claim reads.
const LOOK_AHEAD: u64 = 128;

/// Limit on the number of deliveries in one claim.
#[derive(Clone, Copy)]
pub(super) enum ClaimLimit {
    /// Only the oldest delivery is claimed.
    Oldest,
    /// A few deliveries are claimed from each of at most this many lanes.
    Lanes(usize),
}

/// ID of the repository to which lanes belong; 0 for deliveries without a repository.
pub(super) type LaneSource = i64;

/// SQL condition for deliveries that can be claimed, are claimed, or block later deliveries. The condition must match
/// the partial index word for word, so that SQLite uses the index.
pub(super) const AWAKE_CONDITION: &str = "state IN ('new', 'taken') AND asleep = 0";

/// SQL condition for suspects: deliveries that were claimed when a process died, so that one of them may have caused
/// the crash. A suspect is claimed alone, so that a further crash counts only against the delivery that caused it.
pub(super) const SUSPECT_CONDITION: &str = "(attempts > 1 OR (attempts = 1 AND state = 'new'))";

impl Inbox<'_> {
    /// Claims the oldest delivery that is due.
    pub async fn claim(&self) -> Result<Option<ClaimedDelivery>, StoreError> {
        Ok(self.claim_up_to(ClaimLimit::Oldest, 0).await?.into_iter().flatten().next())
    }

    /// Claims due deliveries from at most `lanes` lanes, a few from each. Each inner list contains the deliveries of
    /// one lane in processing order. Repositories take turns, starting with the one that follows `after`.
    pub async fn claim_lanes(
        &self,
        lanes: usize,
        after: Option<RepoId>,
    ) -> Result<Vec<Vec<ClaimedDelivery>>, StoreError> {
        self.claim_up_to(ClaimLimit::Lanes(lanes), after.map_or(0, |repo| to_signed(repo.0))).await
    }

    async fn claim_up_to(
        &self,
        most: ClaimLimit,
        after: LaneSource,
    ) -> Result<Vec<Vec<ClaimedDelivery>>, StoreError> {
        let (now, epoch) = (self.store.clock.now(), self.store.epoch);
        let suspects = self.store.inbox.suspects.load(Ordering::Relaxed);
        let (taken, suspects) =
            self.store.main.write(move |tx| claim_deliveries(tx, now, epoch, suspects, most, after)).await?;
        self.store.inbox.suspects.store(suspects, Ordering::Relaxed);
        Ok(taken)
    }
}

/// Claims deliveries. Also returns whether any suspects remain.
pub(super) fn claim_deliveries(
    tx: &Transaction<'_>,
    now: Timestamp,
    epoch: i64,
    suspects: bool,
    most: ClaimLimit,
    after: LaneSource,
) -> Result<(Vec<Vec<ClaimedDelivery>>, bool), TransactionError> {
    // If our node lease is over, other nodes could claim the same deliveries.
    if let Transaction::Server(_) = tx
        && !tx
            .prepare_cached(&format!("SELECT {}", living_node_condition("?1")))?
            .query_row([epoch], |row| row.get::<_, bool>(0))?
    {
        return Ok((Vec::new(), suspects));
    }
    update_sleepers(tx, now)?;
    let (lanes, left) = match suspects.then(|| find_next_suspect(tx, epoch)).transpose()? {
        None | Some(NextSuspect::None) => (choose_lanes(tx, (now, epoch), most, after)?, false),
        Some(NextSuspect::WaitForOwn) => (Vec::new(), true),
        Some(NextSuspect::Claim(seq)) => (vec![vec![seq]], true),
    };
    let lanes = lanes.into_iter().map(|lane| {
        lane.into_iter().map(|seq| mark_claimed(tx, seq, epoch)).collect::<Result<Vec<_>, TransactionError>>()
    });
    Ok((lanes.collect::<Result<Vec<_>, TransactionError>>()?, left))
}

/// Wakes sleeping deliveries that are due, and puts deliveries to sleep that no longer block their lane. Changes a
/// bounded number of rows; the next claim changes further ones. A delivery whose put-off time lies in the future is
/// also woken, because the clock must have been wrong.
fn update_sleepers(tx: &Transaction<'_>, now: Timestamp) -> Result<(), TransactionError> {
    for (change, which) in [
        ("due = 0, asleep = 0", "INDEXED BY inbox_put_off WHERE state = 'new' AND due > 0 AND due <= ?1"),
        ("due = 0, asleep = 0", "INDEXED BY inbox_put_at WHERE state = 'new' AND due > 0 AND put_at > ?1"),
        (
            "asleep = 1",
            "INDEXED BY inbox_holding WHERE state = 'new' AND due > 0 AND asleep = 0 AND holds_until <= ?1",
        ),
    ] {
        let sql = format!("UPDATE inbox SET {change} WHERE seq IN (SELECT seq FROM inbox {which} LIMIT ?2)");
        tx.prepare_cached(&sql)?.execute([now.0, to_signed(limits::WAKE_ROWS)])?;
    }
    Ok(())
}

enum NextSuspect {
    None,
    /// The node must wait until it has finished the deliveries that it has already claimed.
    WaitForOwn,
    Claim(i64),
}

/// Returns the suspect that this node claims next. A suspect must wait while another node has claimed a delivery of the
/// same lane, or a fence before or after which the suspect must be processed.
fn find_next_suspect(tx: &Transaction<'_>, epoch: i64) -> Result<NextSuspect, TransactionError> {
    let sql = format!(
        "SELECT seq, EXISTS (SELECT 1 FROM inbox WHERE state = 'taken' AND epoch = ?1) FROM inbox
         WHERE {AWAKE_CONDITION} AND {SUSPECT_CONDITION} AND (state = 'new' OR epoch = ?1) AND {} AND NOT EXISTS (
             SELECT 1 FROM inbox other WHERE other.state = 'taken' AND other.epoch <> ?1
                 AND other.installation IS NOT DISTINCT FROM inbox.installation
                 AND (other.repository IS NULL OR inbox.repository IS NULL OR other.repository = inbox.repository)
                 AND (other.fence = 1 OR inbox.fence = 1 OR other.repository IS NOT DISTINCT FROM inbox.repository
                     AND other.issue IS NOT DISTINCT FROM inbox.issue))
         ORDER BY state DESC, seq LIMIT 1",
        serves_row_condition(tx, "?1")
    );
    let found =
        tx.prepare_cached(&sql)?.query_row([epoch], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(match found {
        None => NextSuspect::None,
        Some((_, true)) => NextSuspect::WaitForOwn,
        Some((seq, false)) => NextSuspect::Claim(seq),
    })
}

/// Returns the lanes from which deliveries are claimed. Each lane is a list of row numbers in processing order.
fn choose_lanes(
    tx: &Transaction<'_>,
    now: (Timestamp, i64),
    most: ClaimLimit,
    after: LaneSource,
) -> Result<Vec<Vec<i64>>, TransactionError> {
    let fences = fence_positions(tx)?;
    let (wanted, mut found) = (if let ClaimLimit::Lanes(n) = most { n } else { usize::MAX }, Vec::new());
    let mut from = after;
    let mut wrapped = false;
    while found.len() < wanted {
        let Some(source) = next_source(tx, from)?.filter(|next| !wrapped || *next <= after) else {
            if wrapped {
                break;
            }
            (wrapped, from) = (true, -1);
            continue;
        };
        let lanes = ready_lanes(tx, source, now, most, &fences)?;
        if !lanes.is_empty() {
            found.push(lanes);
        }
        from = source;
    }
    Ok(match most {
        ClaimLimit::Oldest => {
            found.into_iter().flatten().min().into_iter().map(|lane| vec![lane[0]]).collect()
        }
        ClaimLimit::Lanes(most) => round_robin(found, most),
    })
}

/// Takes one lane from each source, then a second lane from each source, and so on.
fn round_robin(sources: Vec<Vec<Vec<i64>>>, most: usize) -> Vec<Vec<i64>> {
    let mut sources: Vec<_> = sources.into_iter().map(Vec::into_iter).collect();
    let mut chosen = Vec::new();
    while chosen.len() < most {
        let before = chosen.len();
        chosen.extend(sources.iter_mut().filter_map(Iterator::next).take(most - before));
        if chosen.len() == before {
            break;
        }
    }
    chosen
}

/// Returns the first source after `after` that has unfinished deliveries.
fn next_source(tx: &Transaction<'_>, after: LaneSource) -> Result<Option<LaneSource>, TransactionError> {
    if after < 0 {
        let sql =
            format!("SELECT EXISTS (SELECT 1 FROM inbox WHERE {AWAKE_CONDITION} AND repository IS NULL)");
        if tx.prepare_cached(&sql)?.query_row([], |row| row.get(0))? {
            return Ok(Some(0));
        }
    }
    let sql = format!("SELECT MIN(repository) FROM inbox WHERE {AWAKE_CONDITION} AND repository > ?1");
    tx.prepare_cached(&sql)?.query_row([after.max(0)], |row| row.get(0))
}

/// Returns the row number of the first unfinished fence of each installation, or 0 if a fence is claimed. Later rows of
/// the installation must wait.
fn fence_positions(tx: &Transaction<'_>) -> Result<HashMap<Option<i64>, i64>, TransactionError> {
    let sql = format!(
        "SELECT installation, MIN(CASE state WHEN 'taken' THEN 0 ELSE seq END) FROM inbox
         WHERE {AWAKE_CONDITION} AND repository IS NULL AND fence = 1 GROUP BY installation"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect::<Result<_, _>>()
}

/// Columns of an unfinished delivery that determine the processing order.
struct UnfinishedDelivery {
    seq: i64,
    installation: Option<i64>,
    issue: Option<i64>,
    fence: bool,
    /// Whether this node may claim the delivery. A delivery blocks its lane while it is claimed, put off, a suspect, or
    /// served by another node.
    ready: bool,
    bytes: u64,
}

fn ready_lanes(
    tx: &Transaction<'_>,
    source: LaneSource,
    now: (Timestamp, i64),
    most: ClaimLimit,
    fences: &HashMap<Option<i64>, i64>,
) -> Result<Vec<Vec<i64>>, TransactionError> {
    let (lanes, chain) = match most {
        ClaimLimit::Oldest => (1, 1),
        ClaimLimit::Lanes(lanes) => (lanes, LANE_DELIVERIES),
    };
    let Some(held) = claimed_lanes(tx, source)? else { return Ok(Vec::new()) };
    let mut walk = LaneBuilder { lanes: Vec::new(), keys: Vec::new(), bytes: Vec::new(), blocked: held };
    for row in unfinished_deliveries(tx, source, now)? {
        if fences.get(&row.installation).is_some_and(|fence| *fence < row.seq) {
            continue;
        }
        if row.fence {
            let first = match source {
                0 => is_fence_clear(tx, &row)?,
                _ => walk.blocked.is_empty() && walk.lanes.is_empty(),
            };
            if row.ready && first {
                walk.lanes.push(vec![row.seq]);
            }
            if source != 0 {
                break;
            }
            continue; // installations do not wait for each other
        }
        walk.add_delivery(&row, if source == 0 { row.installation } else { row.issue }, lanes, chain);
    }
    Ok(walk.lanes)
}

/// State of the iteration over the rows of a source.
struct LaneBuilder {
    lanes: Vec<Vec<i64>>,
    keys: Vec<Option<i64>>,
    bytes: Vec<u64>,
    blocked: HashSet<Option<i64>>,
}

impl LaneBuilder {
    fn add_delivery(&mut self, row: &UnfinishedDelivery, key: Option<i64>, lanes: usize, chain: usize) {
        if !row.ready {
            self.blocked.insert(key);
        }
        if self.blocked.contains(&key) {
            return;
        }
        match self.keys.iter().position(|known| *known == key) {
            Some(at) if self.lanes[at].len() < chain && self.bytes[at] + row.bytes <= LANE_BYTES => {
                self.lanes[at].push(row.seq);
                self.bytes[at] += row.bytes;
            }
            None if self.lanes.len() < lanes => {
                self.lanes.push(vec![row.seq]);
                self.keys.push(key);
                self.bytes.push(row.bytes);
            }
            _ => {
                self.blocked.insert(key);
            }
        }
    }
}

/// Returns the SQL condition for deliveries of this source. `place` is the number of the SQL parameter with the
/// source's ID. The condition is written such that SQLite can use the index.
fn source_condition(source: LaneSource, place: usize) -> String {
    if source == 0 {
        format!("repository IS NULL AND ?{place} = 0")
    } else {
        format!("repository = ?{place}")
    }
}

/// Returns the lanes of a source that have claimed deliveries, or `None` if a fence is claimed. A separate query is
/// needed, because an earlier delivery that was put off can become due while later deliveries of its lane are claimed.
fn claimed_lanes(
    tx: &Transaction<'_>,
    source: LaneSource,
) -> Result<Option<HashSet<Option<i64>>>, TransactionError> {
    let (lane, fenced) = if source == 0 { ("installation", "0") } else { ("issue", "fence") };
    let of = source_condition(source, 1);
    let mut statement =
        tx.prepare_cached(&format!("SELECT {lane}, {fenced} FROM inbox WHERE state = 'taken' AND {of}"))?;
    let rows = statement.query_map([source], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut lanes = HashSet::new();
    for row in rows {
        let (lane, fenced) = row?;
        if fenced {
            return Ok(None);
        }
        lanes.insert(lane);
    }
    Ok(Some(lanes))
}

fn unfinished_deliveries(
    tx: &Transaction<'_>,
    source: LaneSource,
    (now, epoch): (Timestamp, i64),
) -> Result<Vec<UnfinishedDelivery>, TransactionError> {
    let sql = format!(
        "SELECT seq, installation, issue, fence, state = 'new' AND attempts = 0 AND due <= ?1 AND {}, length(body) FROM inbox
         WHERE {AWAKE_CONDITION} AND {} ORDER BY seq LIMIT ?3",
        serves_row_condition(tx, "?4"),
        source_condition(source, 2)
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let rows = statement.query_map(params![now.0, source, to_signed(LOOK_AHEAD), epoch], |row| {
        Ok(UnfinishedDelivery {
            seq: row.get(0)?,
            installation: row.get(1)?,
            issue: row.get(2)?,
            fence: row.get(3)?,
            ready: row.get(4)?,
            bytes: to_unsigned(row.get(5)?),
        })
    })?;
    rows.collect::<Result<_, _>>()
}

/// Returns whether all deliveries of the fence's installation that arrived before the fence are finished.
fn is_fence_clear(tx: &Transaction<'_>, fence: &UnfinishedDelivery) -> Result<bool, TransactionError> {
    let sql = format!(
        "SELECT NOT EXISTS (SELECT 1 FROM inbox
                            WHERE {AWAKE_CONDITION} AND installation IS NOT DISTINCT FROM ?1 AND seq < ?2)"
    );
    let row = params![fence.installation, fence.seq];
    tx.prepare_cached(&sql)?.query_row(row, |row| row.get(0))
}

fn mark_claimed(tx: &Transaction<'_>, seq: i64, epoch: i64) -> Result<ClaimedDelivery, TransactionError> {
    let mut statement = tx.prepare_cached(
        "UPDATE inbox SET state = 'taken', epoch = ?2, attempts = attempts + 1 WHERE seq = ?1
         RETURNING id, event, installation, repository, issue, fence, attempts, attempts > 1 OR note IS NOT NULL,
             swept, received_at, packing, body",
    )?;
    statement.query_row(params![seq, epoch], |row| Ok(read_claimed(row)))?
}

fn read_claimed(row: &SqlRow<'_>) -> Result<ClaimedDelivery, TransactionError> {
    Ok(ClaimedDelivery {
        id: DeliveryId(row.get(0)?),
        event: row.get(1)?,
        subject: read_subject(row, row.get(5)?)?,
        attempts: row.get(6)?,
        taken_before: row.get(7)?,
        swept: row.get(8)?,
        received_at: Timestamp(row.get(9)?),
        packed_body: PackedBody {
            packing: BodyPacking::from_stored(&row.get::<_, String>(10)?)?,
            bytes: row.get(11)?,
        },
    })
}
