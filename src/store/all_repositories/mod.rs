//! Queries over all repositories for the operator's pages. They read snapshots through separate connections, so that
//! open databases need not be closed. Nothing is cached between queries, and only one query runs at a time. Unreadable
//! repositories are reported and skipped.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::resume_unwind,
    path::Path,
    str::FromStr,
    sync::Arc,
    thread,
    time::Duration,
};

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::{Connection, OpenFlags, params};

use super::{
    CallRow, DatabaseSource, RunStatus, Spending, Store, StoreError,
    cluster::living_node_condition,
    database::{to_signed, to_unsigned},
    error::TransactionError,
    repository::{self, parse_json, parse_status},
    rows::TextKind,
    run_blocking, wake_hints,
};
use crate::types::{IssueNo, MalformedValue, RepoId, RunId, Timestamp};

/// Maximum wait for a locked database file. After that, the page reports the repository as skipped and shows the other
/// repositories.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// Number of databases read in parallel. It is small because PostgreSQL connections are limited and the server needs
/// some of them, too.
const PARALLEL_READS: usize = 4;

/// Number of repositories that are read before the first runs are selected from them.
const READ_CHUNK: usize = 256;

/// Filter and page of the run list.
#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    pub repo: Option<RepoId>,
    pub state: Option<RunStatus>,
    pub workflow: Option<String>,
    /// Position after which the page starts.
    pub after: Option<RunCursor>,
    pub most: usize,
}

/// Position in the run list. The list starts with runs that need a person; within each group, the newest run comes
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunCursor {
    needs_person: bool,
    updated_at: i64,
    repo: u64,
    seq: i64,
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needs_person, updated_at, repo, seq } = self;
        write!(f, "{}.{updated_at}.{repo}.{seq}", u8::from(*needs_person))
    }
}

impl FromStr for RunCursor {
    type Err = MalformedValue;

    fn from_str(text: &str) -> Result<Self, MalformedValue> {
        let read = || {
            let mut parts = text.split('.').map(|part| part.parse::<i64>().ok());
            let mut next = || parts.next().flatten();
            let (needs_person, updated_at, repo, seq) = (next()? == 1, next()?, next()?, next()?);
            Some(Self { needs_person, updated_at, repo: u64::try_from(repo).ok()?, seq })
        };
        let expected = "a place in the list of runs";
        read().ok_or_else(|| MalformedValue { value: text.chars().take(80).collect(), expected })
    }
}

/// Entry of the run list.
#[derive(Debug, Clone)]
pub struct RunListRow {
    pub id: RunId,
    pub cursor: RunCursor,
    pub workflow: String,
    pub issue: IssueNo,
    /// Title of the issue as the run read it; `None` if the run has not read the issue yet.
    pub title: Option<String>,
    pub status: RunStatus,
    pub parked: bool,
    /// Whether a worker is currently running a step of the run.
    pub running: bool,
    /// Serde name of the step.
    pub step: String,
    pub why: Option<String>,
    pub updated_at: Timestamp,
}

/// A repository that a query could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRepository {
    pub repo: RepoId,
    /// Reason to show on the operator's page. It contains no path.
    pub why: String,
}

#[derive(Debug, Default)]
pub struct RunPage {
    pub runs: Vec<RunListRow>,
    pub more_after: Option<RunCursor>,
    pub skipped: Vec<SkippedRepository>,
}

/// Total cost of all calls with the same repository, workflow, role and model on one day.
#[derive(Debug, Clone)]
pub struct DailySpend {
    pub repo: RepoId,
    /// Start of the day.
    pub day: Timestamp,
    pub workflow: String,
    pub role: String,
    pub model: String,
    pub spent: Spending,
}

impl Store {
    /// Returns a page of the runs of all repositories.
    pub async fn run_page(self: &Arc<Self>, query: &RunQuery) -> Result<RunPage, StoreError> {
        let query = query.clone();
        self.walk_repositories(move |store| store.read_run_page(&query)).await
    }

    /// Returns the cost of calls since `since`, oldest day first, and the repositories that could not be read.
    pub async fn spend_since(
        self: &Arc<Self>,
        repo: Option<RepoId>,
        since: Timestamp,
    ) -> Result<(Vec<DailySpend>, Vec<SkippedRepository>), StoreError> {
        self.walk_repositories(move |store| {
            let (mut sums, mut left_out) = (BTreeMap::new(), Vec::new());
            let repos = repo.map_or_else(|| store.repositories_blocking(), |repo| Ok(vec![repo]))?;
            for (repo, read) in
                store.read_each_repository(&repos, &mut left_out, |tx, repo| sum_spend(tx, repo, since))
            {
                let (its, unreadable) = read;
                if unreadable > 0 {
                    let why = format!("calls that cannot be read: {unreadable}");
                    left_out.push(SkippedRepository { repo, why });
                }
                sums.extend(its);
            }
            let line = |((day, repo, workflow, role, model), spent)| DailySpend {
                repo,
                day,
                workflow,
                role,
                model,
                spent,
            };
            Ok((sums.into_iter().map(line).collect(), left_out))
        })
        .await
    }

    async fn walk_repositories<V: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<V, StoreError> + Send + 'static,
    ) -> Result<V, StoreError> {
        let turn = Arc::clone(&self.repository_walk_lock).lock_owned().await;
        let store = Arc::clone(self);
        run_blocking(move || {
            let _one_at_a_time = turn;
            work(&store)
        })
        .await
    }

    fn read_run_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let (mut left_out, mut places) = (Vec::new(), Vec::new());
        let lives = match &self.cluster {
            Some(_) => self.main.read_blocking(wake_hints::hinted_repositories)?, // this node knows of its own alone
            None => self.agenda.hinted_repositories(),
        };
        let ended = query.state.is_some_and(|status| !status.is_live());
        let past_needs = query.after.is_some_and(|place| !place.needs_person);
        // Runs that need a person are live, and the repositories with live runs are known without opening a file.
        for needs_person in [true, false] {
            let of_the_living = needs_person || query.state.is_some_and(RunStatus::is_live);
            if places.len() > query.most || needs_person && (ended || past_needs) {
                continue;
            }
            let mut all = if of_the_living { lives.clone() } else { self.repositories_blocking()? };
            all.retain(|repo| query.repo.is_none_or(|wanted| wanted == *repo));
            for some in all.chunks(READ_CHUNK) {
                let read = self.read_each_repository(some, &mut left_out, |tx, repo| {
                    run_cursors(tx, repo, needs_person, query)
                });
                places.extend(read.into_iter().flat_map(|(_, places)| places));
                places.sort_unstable_by_key(|place| Reverse(*place));
                places.truncate(query.most + 1);
            }
        }
        let more = places.len() > query.most;
        places.truncate(query.most);
        let shown: BTreeSet<_> = places.iter().map(|place| RepoId(place.repo)).collect();
        let shown: Vec<_> = shown.into_iter().collect();
        let read = self.read_each_repository(&shown, &mut left_out, |tx, repo| {
            let its = places.iter().filter(|place| place.repo == repo.0);
            its.map(|place| Ok((*place, row_or_reason(read_run(tx, self.epoch, *place))?)))
                .collect::<Result<Vec<_>, _>>()
        });
        let mut runs = Vec::new();
        for (repo, read) in read {
            for (RunCursor { seq, .. }, run) in read {
                match run {
                    Ok(run) => {
                        runs.push(RunListRow { running: run.running || self.agenda.is_held(run.id), ..run })
                    }
                    Err(detail) => {
                        tracing::warn!(%repo, seq, detail, "could not read a run; leaving it out of the page");
                        left_out.push(SkippedRepository {
                            repo,
                            why: format!("run {repo}-{seq} cannot be read"),
                        });
                    }
                }
            }
        }
        runs.sort_by_key(|run| Reverse(run.cursor));
        left_out.sort_by_key(|left| left.repo);
        left_out.dedup();
        Ok(RunPage { runs, more_after: places.last().copied().filter(|_| more), skipped: left_out })
    }

    /// Reads these repositories in parallel, because SQLite takes long to load the schema of each database.
    fn read_each_repository<V: Send>(
        &self,
        repos: &[RepoId],
        left_out: &mut Vec<SkippedRepository>,
        inside: impl Fn(&Transaction<'_>, RepoId) -> Result<V, TransactionError> + Sync,
    ) -> Vec<(RepoId, V)> {
        let side_by_side = thread::available_parallelism().map_or(1, usize::from).min(PARALLEL_READS);
        let share = repos.len().div_ceil(side_by_side).max(1);
        let look = |share: &[RepoId]| {
            let mut left_out = Vec::new();
            let one = |repo: &RepoId| {
                Some((*repo, self.read_repository_now(*repo, &mut left_out, |tx| inside(tx, *repo))?))
            };
            let read: Vec<_> = share.iter().filter_map(one).collect();
            (read, left_out)
        };
        thread::scope(|scope| {
            let looking: Vec<_> = repos.chunks(share).map(|share| scope.spawn(move || look(share))).collect();
            let mut all = Vec::with_capacity(repos.len());
            for looking in looking {
                let (read, left) = looking.join().unwrap_or_else(|panic| resume_unwind(panic));
                all.extend(read);
                left_out.extend(left);
            }
            all
        })
    }

    /// Reads a repository's database. A failure is logged in full; the page shows only a short reason.
    fn read_repository_now<V: Send>(
        &self,
        repo: RepoId,
        left_out: &mut Vec<SkippedRepository>,
        inside: impl FnOnce(&Transaction<'_>) -> Result<V, TransactionError> + Send,
    ) -> Option<V> {
        let beside = self.database_source();
        let read = match &beside {
            DatabaseSource::Files(_) => {
                read_file_now(&self.repo_dir(repo).join(repository::CHECKPOINTS_FILE), inside)
            }
            DatabaseSource::Server(_) => beside.read_repository(repo, inside),
        };
        let error = match read {
            Ok(value) => return Some(value),
            Err(_) if !beside.may_hold(repo) => return None,
            Err(error) => error,
        };
        tracing::warn!(%repo, %error, "could not read a repository; leaving it out of the operator's page");
        let why = match error {
            StoreError::Damaged { .. } => "its database is damaged",
            StoreError::Newer { .. } => "its database was written by a newer countersign",
            _ => "its database cannot be read now",
        };
        left_out.push(SkippedRepository { repo, why: why.to_owned() });
        None
    }
}

/// Reads a snapshot of a database file on a separate connection. Waits only briefly for locks.
fn read_file_now<V>(
    file: &Path,
    inside: impl FnOnce(&Transaction<'_>) -> Result<V, TransactionError>,
) -> Result<V, StoreError> {
    let read = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let tx = connection.transaction()?;
        let found: u32 = tx.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if found > repository::schema_version() {
            return Ok(Err(found));
        }
        inside(&Transaction::File(&tx)).map(Ok)
    };
    match read().map_err(|fault: TransactionError| fault.with_path(file))? {
        Ok(value) => Ok(value),
        Err(found) => Err(StoreError::Newer {
            file: file.to_owned(),
            found,
            known: repository::schema_version(),
            copy: None,
        }),
    }
}

/// Returns the positions of the first matching runs of a repository. Only an index is used.
fn run_cursors(
    tx: &Transaction<'_>,
    repo: RepoId,
    needs_person: bool,
    query: &RunQuery,
) -> Result<Vec<RunCursor>, TransactionError> {
    // Runs with equal times are ordered by repository, highest ID first.
    let (before, below) = match query.after {
        Some(place) if place.needs_person == needs_person => {
            let below = match repo.0.cmp(&place.repo) {
                std::cmp::Ordering::Less => i64::MAX,
                std::cmp::Ordering::Equal => place.seq,
                std::cmp::Ordering::Greater => 0,
            };
            (place.updated_at, below)
        }
        _ => (i64::MAX, i64::MAX),
    };
    let mut statement = tx.prepare(
        "SELECT updated_at, seq FROM run
         WHERE (status = 'asking' OR parked IS NOT NULL) = ?1 AND (updated_at, seq) < (?2, ?3)
             AND (CAST(?4 AS TEXT) IS NULL OR status = ?4) AND (CAST(?5 AS TEXT) IS NULL OR workflow = ?5)
         ORDER BY updated_at DESC, seq DESC LIMIT ?6",
    )?;
    let state = query.state.map(repository::status_text);
    let most = to_signed(query.most as u64 + 1);
    let rows = statement
        .query_map(params![needs_person, before, below, state, query.workflow, most], |row| {
            Ok(RunCursor { needs_person, updated_at: row.get(0)?, repo: repo.0, seq: row.get(1)? })
        })?;
    rows.collect::<Result<_, _>>()
}

fn read_run(tx: &Transaction<'_>, node: i64, place: RunCursor) -> Result<RunListRow, TransactionError> {
    let title: Option<String> = tx
        .prepare_cached(
            "SELECT CASE WHEN json_valid(detail) THEN detail ->> 'title' END FROM audit
             WHERE run = ?1 AND what = ?2 ORDER BY visit, key LIMIT 1",
        )?
        .query_row(params![place.seq, TextKind::Issue.audit_text()], |row| row.get(0))
        .optional()?
        .flatten();
    let lives = match tx {
        Transaction::File(_) => "TRUE".to_owned(),
        Transaction::Server(_) => living_node_condition("run.taken"),
    };
    let mut statement = tx.prepare_cached(&format!(
        "SELECT workflow, issue, status, parked IS NOT NULL, step, why, updated_at,
             COALESCE(taken <> ?2 AND status <> 'waiting' AND {lives}, FALSE) FROM run WHERE seq = ?1",
    ))?;
    let read = |row: &SqlRow<'_>| -> Result<RunListRow, TransactionError> {
        Ok(RunListRow {
            id: RunId { repo: RepoId(place.repo), seq: to_unsigned(place.seq) },
            cursor: place,
            workflow: row.get(0)?,
            issue: IssueNo(to_unsigned(row.get(1)?)),
            title,
            status: parse_status(&row.get::<_, String>(2)?)?,
            parked: row.get(3)?,
            running: row.get(7)?,
            step: row.get(4)?,
            why: row.get(5)?,
            updated_at: Timestamp(row.get(6)?),
        })
    };
    statement.query_row([place.seq, node], |row| Ok(read(row)))?
}

/// Converts the error of an unreadable row to a result for that row, so that the query does not fail.
fn row_or_reason<V>(read: Result<V, TransactionError>) -> Result<Result<V, String>, TransactionError> {
    match read {
        Err(TransactionError::Row(detail)) => Ok(Err(detail)),
        Err(other) => Err(other),
        Ok(value) => Ok(Ok(value)),
    }
}

/// Day, repository, workflow, role and model for which costs are summed.
type SpendKey = (Timestamp, RepoId, String, String, String);

/// Returns the total costs of calls since `since`, and the number of unreadable calls.
fn sum_spend(
    tx: &Transaction<'_>,
    repo: RepoId,
    since: Timestamp,
) -> Result<(BTreeMap<SpendKey, Spending>, usize), TransactionError> {
    let mut statement = tx.prepare(
        "SELECT call.at, run.workflow, call.body FROM call JOIN run ON run.seq = call.run WHERE call.at >= ?1",
    )?;
    let mut rows = statement.query([since.0])?;
    let (mut sums, mut unreadable) = (BTreeMap::<SpendKey, Spending>::new(), 0);
    while let Some(row) = rows.next()? {
        let Ok(call) = parse_json::<CallRow>(&row.get::<_, String>(2)?) else {
            unreadable += 1;
            continue;
        };
        let (day, spent) = (Timestamp(row.get(0)?).day_start(), Spending::from_calls([&call]));
        let kind = (day, repo, row.get(1)?, call.role, call.served.unwrap_or(call.asked));
        let sum = sums.entry(kind).or_default();
        *sum = sum.plus(&spent);
    }
    Ok((sums, unreadable))
}

#[cfg(test)]
mod tests;
