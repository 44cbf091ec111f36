//! Which deliveries may be taken now.
//!
//! The rule of order, in the least that is sound:
//!
//! - Deliveries about one issue (or pull request) of a repository are dealt with as they came; so are those
//!   about a repository and no issue of it, among themselves. Such a line is called a lane.
//! - A fence (see [`DeliverySubject::fence`]) waits for everything of its repository or installation that came before
//!   it, and everything of it that came after waits for the fence.
//! - One that was put off holds its lane only for a while; after that later ones pass. Order matters to people
//!   who wait for an answer now, and something that never succeeds must not silence an issue for days.
//!
//! - What only other living nodes serve is left to them.
//!
//! Repositories take turns, so that ten thousand deliveries of one keep nobody else's waiting. Nothing of this
//! is kept in memory: each claim looks a bounded number of rows into each repository's unfinished ones. What was put
//! off and holds nobody back is asleep, and not among these.

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

/// Deliveries of one lane that are taken at once, and their bytes as stored: one commit for many, and others
/// have their turn after a few.
const LANE_DELIVERIES: usize = 16;
const LANE_BYTES: u64 = 1024 * 1024;

/// How many unfinished deliveries of one repository a claim looks at. Behind so many that wait, a few more
/// make no difference.
const LOOK_AHEAD: u64 = 128;

/// How much one claim takes.
#[derive(Clone, Copy)]
pub(super) enum ClaimLimit {
    /// The one that came first.
    Oldest,
    /// From so many lanes, a few from each.
    Lanes(usize),
}

/// Whose turn it is: a repository's number; 0 stands for what names none.
pub(super) type LaneSource = i64;

/// Those in the inbox that can be taken, are in hand or hold others back, written as the index on them is.
pub(super) const AWAKE_CONDITION: &str = "state IN ('new', 'taken') AND asleep = 0";

/// Those that were in hand when a process ended, which one of them may have caused. Such a one is taken with nothing else
/// in the same hand, so that each end counts against the one that caused it.
pub(super) const SUSPECT_CONDITION: &str = "(attempts > 1 OR (attempts = 1 AND state = 'new'))";

impl Inbox<'_> {
    /// Takes the oldest delivery that is ready.
    pub async fn claim(&self) -> Result<Option<ClaimedDelivery>, StoreError> {
        Ok(self.claim_up_to(ClaimLimit::Oldest, 0).await?.into_iter().flatten().next())
    }

    /// Takes what is ready in up to `lanes` lanes: for each a few deliveries, to be dealt with in this order.
    /// Repositories take turns, beginning with the one after `after`.
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

/// What one claim takes, and whether there are suspects left.
pub(super) fn claim_deliveries(
    tx: &Transaction<'_>,
    now: Timestamp,
    epoch: i64,
    suspects: bool,
    most: ClaimLimit,
    after: LaneSource,
) -> Result<(Vec<Vec<ClaimedDelivery>>, bool), TransactionError> {
    // What it took after its lease would be free to all.
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

/// Wakes what is due, and lets sleep what holds others back no longer: a bounded number of rows, the rest at the next
/// claim. One that was put off at a time that is still to come was put off by a clock that was wrong.
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
    /// Whoever asks has something in hand, and takes no more before that has ended.
    WaitForOwn,
    Claim(i64),
}

/// The suspect that whoever asks takes next. What others have in hand of its lane, or fences it off, comes first.
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

/// The lanes to take from, each with its rows in order.
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

/// One from each source, then a second from each, and so on.
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

/// The next one in the order of turns that has anything unfinished.
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

/// From which row on each installation is fenced off; from the first while its fence is in hand.
fn fence_positions(tx: &Transaction<'_>) -> Result<HashMap<Option<i64>, i64>, TransactionError> {
    let sql = format!(
        "SELECT installation, MIN(CASE state WHEN 'taken' THEN 0 ELSE seq END) FROM inbox
         WHERE {AWAKE_CONDITION} AND repository IS NULL AND fence = 1 GROUP BY installation"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect::<Result<_, _>>()
}

/// A row as far as its order goes.
struct UnfinishedDelivery {
    seq: i64,
    installation: Option<i64>,
    issue: Option<i64>,
    fence: bool,
    /// It can be taken; otherwise it is in hand, put off, a suspect or another node's, and holds others back.
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

/// What is known after some rows of a source were looked at.
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

/// What says in SQL that a row is of this source, whose number stands in that place; written so that the index is found.
fn source_condition(source: LaneSource, place: usize) -> String {
    if source == 0 {
        format!("repository IS NULL AND ?{place} = 0")
    } else {
        format!("repository = ?{place}")
    }
}

/// The lanes of a source that are being worked on; none if a fence of it is. Asked apart, because one that was
/// passed by later ones becomes ready while those are in hand.
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

/// Has everything of this installation that came before its fence been dealt with?
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
