//! PostgreSQL backend: a transaction that executes statements written for SQLite.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    error::Error,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use postgres::{
    IsolationLevel, SimpleQueryMessage,
    config::{Host, SslMode, TargetSessionAttrs},
    fallible_iterator::FallibleIterator,
    types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked},
};
use rusqlite::types::{ToSqlOutput, ValueRef};

use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    StoreError,
    error::{TransactionError, postgres_hint},
    sql::{ColumnIndex, Transaction},
};
use crate::types::{RepoId, with_causes};

/// Prepared statements of one connection, keyed by their SQLite text.
type PreparedStatements = RefCell<HashMap<String, postgres::Statement>>;

/// An open transaction.
pub(super) trait PostgresSession {
    fn prepare(&self, sql: &str) -> Result<postgres::Statement, TransactionError>;
    fn prepare_cached(&self, sql: &str) -> Result<postgres::Statement, TransactionError>;
    fn execute(
        &self,
        statement: &postgres::Statement,
        values: &[ToSqlOutput<'_>],
    ) -> Result<usize, TransactionError>;
    fn query(
        &self,
        statement: &postgres::Statement,
        values: &[ToSqlOutput<'_>],
    ) -> Result<PostgresRows, TransactionError>;
    fn for_each_row(
        &self,
        statement: &postgres::Statement,
        values: &[ToSqlOutput<'_>],
        each: &mut dyn FnMut(&postgres::Row) -> Result<(), TransactionError>,
    ) -> Result<(), TransactionError>;
    fn execute_batch(&self, sql: &str) -> Result<(), TransactionError>;
    /// Returns whether the connection was lost, and with it the transaction.
    fn is_lost(&self) -> bool;
    /// Returns the ID of the node that owns the connection, or 0 if the node has not joined yet.
    fn node(&self) -> i64;
}

/// Number of rows that are fetched at a time from a long result.
const PORTAL_ROWS: i32 = 50;

struct PostgresTransaction<'a> {
    transaction: RefCell<postgres::Transaction<'a>>,
    prepared: &'a PreparedStatements,
    lost: Cell<bool>,
    scope: &'a PostgresScope,
}

impl<'a> PostgresTransaction<'a> {
    fn new(
        transaction: postgres::Transaction<'a>,
        kept: &'a PreparedStatements,
        part: &'a PostgresScope,
    ) -> Self {
        Self { transaction: RefCell::new(transaction), prepared: kept, lost: Cell::new(false), scope: part }
    }

    /// Converts an error. If the error means that the connection was lost, also records the transaction as lost.
    fn note_loss<V>(&self, answer: Result<V, postgres::Error>) -> Result<V, TransactionError> {
        answer.map_err(|error| {
            self.lost.set(self.lost.get() || error.code().is_none() && error.is_closed());
            TransactionError::from(error)
        })
    }
}

impl PostgresSession for PostgresTransaction<'_> {
    fn prepare(&self, sql: &str) -> Result<postgres::Statement, TransactionError> {
        self.note_loss(self.transaction.borrow_mut().prepare(&translate_sql(sql, self.scope.repo.is_some())))
    }

    fn prepare_cached(&self, sql: &str) -> Result<postgres::Statement, TransactionError> {
        if let Some(statement) = self.prepared.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.prepare(sql)?;
        self.prepared.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn execute(
        &self,
        statement: &postgres::Statement,
        values: &[ToSqlOutput<'_>],
    ) -> Result<usize, TransactionError> {
        let args = postgres_arguments(values)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|arg| arg as _).collect();
        let rows = self.note_loss(self.transaction.borrow_mut().execute(statement, &args))?;
        Ok(usize::try_from(rows).unwrap_or(usize::MAX))
    }

    fn query(
        &self,
        statement: &postgres::Statement,
        values: &[ToSqlOutput<'_>],
    ) -> Result<PostgresRows, TransactionError> {
        let args = postgres_arguments(values)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|arg| arg as _).collect();
        let rows = self.note_loss(self.transaction.borrow_mut().query(statement, &args))?;
        Ok(PostgresRows { rows: rows.into_iter(), row: None })
    }

    fn for_each_row(
        &self,
        statement: &postgres::Statement,
        values: &[ToSqlOutput<'_>],
        each: &mut dyn FnMut(&postgres::Row) -> Result<(), TransactionError>,
    ) -> Result<(), TransactionError> {
        let args = postgres_arguments(values)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|arg| arg as _).collect();
        let portal = self.note_loss(self.transaction.borrow_mut().bind(statement, &args))?;
        loop {
            let rows = self.note_loss(self.transaction.borrow_mut().query_portal(&portal, PORTAL_ROWS))?;
            rows.iter().try_for_each(&mut *each)?;
            if rows.len() < PORTAL_ROWS as usize {
                return Ok(());
            }
        }
    }

    fn execute_batch(&self, sql: &str) -> Result<(), TransactionError> {
        self.note_loss(self.transaction.borrow_mut().batch_execute(sql))
    }

    fn is_lost(&self) -> bool {
        self.lost.get()
    }

    fn node(&self) -> i64 {
        self.scope.pool.node.get().copied().unwrap_or(0)
    }
}

/// Translates a statement from SQLite to PostgreSQL: parameters become `$1`, `INDEXED BY` is removed, and the conflict
/// keys of a repository's table start with the repository.
fn translate_sql(sql: &str, of_repository: bool) -> String {
    let mut words = String::with_capacity(sql.len() + 16);
    let mut rest = sql;
    while let Some((before, named)) = rest.split_once("INDEXED BY ") {
        words.push_str(before);
        rest = &named[named.find([' ', '\n']).unwrap_or(named.len())..];
    }
    words.push_str(rest);
    let words = words.replace('?', "$");
    if of_repository { words.replace("ON CONFLICT (", "ON CONFLICT (repo, ") } else { words }
}

/// All rows of a completed query.
pub(super) struct PostgresRows {
    rows: std::vec::IntoIter<postgres::Row>,
    row: Option<postgres::Row>,
}

impl PostgresRows {
    pub(super) fn next(&mut self) -> Option<&postgres::Row> {
        self.row = self.rows.next();
        self.row.as_ref()
    }
}

fn postgres_arguments<'a>(
    values: &'a [ToSqlOutput<'_>],
) -> Result<Vec<PostgresArgument<'a>>, TransactionError> {
    let arg = |value: &'a ToSqlOutput<'_>| match value {
        ToSqlOutput::Borrowed(value) => Ok(PostgresArgument(*value)),
        ToSqlOutput::Owned(value) => Ok(PostgresArgument(value.into())),
        _ => Err(TransactionError::Row("a value that no column holds".to_owned())),
    };
    values.iter().map(arg).collect()
}

/// A parameter that is converted to the type that PostgreSQL expects.
#[derive(Debug)]
struct PostgresArgument<'a>(ValueRef<'a>);

impl ToSql for PostgresArgument<'_> {
    fn to_sql(&self, wanted: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self.0, wanted) {
            (ValueRef::Null, _) => Ok(IsNull::Yes),
            (ValueRef::Integer(number), &Type::INT8) => number.to_sql(wanted, out),
            (ValueRef::Integer(number), &Type::INT4) => i32::try_from(number)?.to_sql(wanted, out),
            // The only floating-point parameters here are intervals.
            (ValueRef::Integer(number), &Type::FLOAT8) => (number as f64).to_sql(wanted, out),
            (ValueRef::Integer(number), &Type::BOOL) => (number != 0).to_sql(wanted, out),
            (ValueRef::Integer(number), &Type::TEXT) => number.to_string().to_sql(wanted, out),
            (ValueRef::Text(text), &Type::TEXT) => postgres_text(text).to_sql(wanted, out),
            (ValueRef::Blob(bytes), &Type::BYTEA) => bytes.to_sql(wanted, out),
            (value, wanted) => Err(format!("{value:?} in the place of {wanted}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Replaces invalid UTF-8 and NUL characters, which PostgreSQL does not accept in text.
pub(super) fn postgres_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

/// A column that has not been decoded yet: its type and its bytes.
struct RawColumn<'a>(Type, Option<&'a [u8]>);

impl<'a> FromSql<'a> for RawColumn<'a> {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(of.clone(), Some(raw)))
    }

    fn from_sql_null(of: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(of.clone(), None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Returns the value of a column as SQLite would return it.
pub(super) fn sqlite_value<C: ColumnIndex>(
    row: &postgres::Row,
    column: C,
) -> Result<ValueRef<'_>, TransactionError> {
    let RawColumn(of, bytes) = row.try_get(column)?;
    let Some(bytes) = bytes else { return Ok(ValueRef::Null) };
    let number = |number: Option<i64>| number.map(ValueRef::Integer);
    let value = match of {
        Type::INT8 => number(bytes.try_into().ok().map(i64::from_be_bytes)),
        Type::INT4 => number(bytes.try_into().ok().map(i32::from_be_bytes).map(i64::from)),
        Type::BOOL => number(bytes.first().map(|byte| i64::from(*byte))),
        Type::TEXT | Type::UNKNOWN => Some(ValueRef::Text(bytes)),
        Type::BYTEA => Some(ValueRef::Blob(bytes)),
        _ => None,
    };
    value.ok_or_else(|| TransactionError::Row(format!("a column of the type {of}, which none of ours has")))
}

/// Runs blocking client calls on a separate thread, because the client must not block inside the async runtime.
pub(super) fn run_on_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Scope of a transaction: either the server's own tables, or those of one repository.
#[derive(Clone)]
pub(super) struct PostgresScope {
    pool: Arc<ConnectionPool>,
    repo: Option<RepoId>,
}

impl PostgresScope {
    pub(super) fn new(pool: Arc<ConnectionPool>, repo: Option<RepoId>) -> Self {
        Self { pool, repo }
    }

    /// Returns the scope's name for error messages.
    pub(super) fn name(&self) -> PathBuf {
        match self.repo {
            Some(repo) => format!("repository {repo}").into(),
            None => "the server's own tables".into(),
        }
    }

    /// Runs `work` in a transaction, and commits the transaction if `work` returns `true`. Transactions on one scope
    /// are serialized across all nodes. As in an SQLite file, rows that a transaction has read therefore stay valid
    /// until it ends.
    pub(super) fn transact(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<bool, TransactionError>,
    ) -> Result<bool, TransactionError> {
        let lock = LOCK_NAMESPACE | self.repo.map_or(0, |repo| i64::try_from(repo.0).unwrap_or(i64::MAX));
        let begin = format!("SELECT pg_advisory_xact_lock({lock}), pg_current_xact_id()");
        let (ended, number) = {
            let mut taken = self.pool.take_connection();
            let link = taken.connection()?;
            let mut transaction = link.client.transaction()?;
            let number = transaction_number(&transaction.simple_query(&self.with_repository(&begin))?);
            let open = PostgresTransaction::new(transaction, &link.prepared, self);
            if !work(&Transaction::Server(&open))? {
                return Ok(false);
            }
            (open.transaction.into_inner().commit(), number)
        };
        match ended {
            Ok(()) => Ok(true),
            Err(error) if error.code().is_some() => Err(error.into()),
            Err(error) => self.pool.commit_outcome(number).ok_or_else(|| error.into()),
        }
    }

    /// Runs `work` on one snapshot, without taking a lock.
    pub(super) fn snapshot<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
    ) -> Result<R, TransactionError> {
        let mut taken = self.pool.take_connection();
        let link = taken.connection()?;
        let builder = link.client.build_transaction().read_only(true);
        let mut transaction = builder.isolation_level(IsolationLevel::RepeatableRead).start()?;
        if self.repo.is_some() {
            transaction.batch_execute(&self.with_repository("SELECT 1"))?;
        }
        work(&Transaction::Server(&PostgresTransaction::new(transaction, &link.prepared, self)))
    }

    /// Prepends to a statement the setting that selects the repository.
    fn with_repository(&self, sql: &str) -> String {
        match self.repo {
            Some(repo) => format!("SET LOCAL countersign.repo = '{repo}'; {sql}"),
            None => sql.to_owned(),
        }
    }
}

/// Prefix of our advisory lock IDs, which distinguishes them from the lock IDs of other programs.
const LOCK_NAMESPACE: i64 = 0x4353_0000_0000_0000;

/// Returns the transaction ID from the last row of the query's results.
fn transaction_number(messages: &[SimpleQueryMessage]) -> Option<String> {
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(1).map(str::to_owned),
        _ => None,
    };
    messages.iter().rev().find_map(row)
}

/// A connection with its prepared statements and the time since which it is idle.
struct PostgresConnection {
    client: postgres::Client,
    prepared: PreparedStatements,
    idle_since: Instant,
}

impl PostgresConnection {
    /// Returns whether the connection still works. Without this check, a broken idle connection would be noticed only
    /// when the next statement fails.
    fn is_alive(&mut self) -> bool {
        !self.client.is_closed()
            && (self.idle_since.elapsed() < VALIDATE_AFTER || self.client.is_valid(SILENCE_TIMEOUT).is_ok())
    }
}

/// Pool of connections to one PostgreSQL database.
pub(super) struct ConnectionPool {
    config: postgres::Config,
    tls: rustls::ClientConfig,
    /// ID of the node that this process represents.
    pub(super) node: OnceLock<i64>,
    idle: Mutex<IdleConnections>,
    returned: Condvar,
}

#[derive(Default)]
struct IdleConnections {
    connections: Vec<PostgresConnection>,
    in_use: usize,
}

/// Name of our schema, which separates our tables from everything else in the database.
const SCHEMA: &str = "countersign";

/// Options of each connection. Their timeouts prevent a stalled process from blocking other processes for long.
const OPTIONS: &str = "-c search_path=countersign -c idle_in_transaction_session_timeout=10s -c lock_timeout=30s \
    -c statement_timeout=60s -c client_min_messages=warning";

const MIGRATIONS: &[&str] =
    &[include_str!("migrations/postgres-1.sql"), include_str!("migrations/postgres-2.sql")];

/// Schema version of the PostgreSQL tables that this binary uses.
pub(super) const POSTGRES_SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// Timeout for connecting to the server. `SILENCE_TIMEOUT` is the maximum time that a connection may be silent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle time after which a connection is validated before it is used.
const VALIDATE_AFTER: Duration = Duration::from_millis(500);

/// Interval at which a listener checks whether it should stop.
const LISTEN_POLL: Duration = Duration::from_secs(2);

/// Maximum number of pooled connections, not counting the listener's connection.
const MAX_POOLED_CONNECTIONS: usize = 12;
pub(super) const MAX_CONNECTIONS: i64 = MAX_POOLED_CONNECTIONS as i64 + 1;

impl ConnectionPool {
    /// Creates a pool for this address. Does not connect yet.
    pub(super) fn new(address: &str) -> Result<Self, StoreError> {
        let mend = postgres_hint(None);
        let refused = |said: String| StoreError::Server { place: "its address".into(), said, mend };
        let address = address.trim();
        // A malformed address may have a password anywhere, and the parser's error may show it.
        if !["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme)) {
            return Err(refused("it does not begin with postgres://".to_owned()));
        }
        let mut config: postgres::Config = address.parse().map_err(|error| refused(with_causes(&error)))?;
        // Loopback connections are as safe as a file; all others need a valid certificate.
        if config.get_ssl_mode() == SslMode::Prefer {
            let named = config.get_hosts().iter().all(|host| match host {
                Host::Tcp(name) => {
                    name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
                }
                Host::Unix(_) => true,
            });
            let here = named && config.get_hostaddrs().iter().all(IpAddr::is_loopback);
            config.ssl_mode(if here { SslMode::Disable } else { SslMode::Require });
        }
        let options = format!("{} {OPTIONS}", config.get_options().unwrap_or_default());
        config
            .options(options.trim())
            .application_name("countersign")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(SILENCE_TIMEOUT)
            .keepalives_idle(SILENCE_TIMEOUT);
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .and_then(BuilderVerifierExt::with_platform_verifier)
                .map_err(|error| refused(with_causes(&error)))?
                .with_no_client_auth();
        Ok(Self { config, tls, node: OnceLock::new(), idle: Mutex::default(), returned: Condvar::new() })
    }

    pub(super) fn connect(&self) -> Result<postgres::Client, TransactionError> {
        Ok(self.config.connect(MakeRustlsConnect::new(self.tls.clone()))?)
    }

    /// Creates the tables, or migrates them to the schema version of this binary.
    pub(super) fn migrate(&self) -> Result<(), StoreError> {
        let at = |fault: TransactionError| fault.with_path(Path::new("its tables"));
        let mut client = self.connect().map_err(at)?;
        let mut migrate = || -> Result<Result<(), u32>, TransactionError> {
            let mut tx = client.transaction()?;
            tx.batch_execute(&format!(
                "SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({LOCK_NAMESPACE}); CREATE SCHEMA IF NOT EXISTS {SCHEMA}"
            ))?;
            let known = tx.query_one("SELECT to_regclass('meta') IS NOT NULL", &[])?.get(0);
            let version = if known {
                let row = tx.query_opt("SELECT value FROM meta WHERE key = 'schema'", &[])?;
                row.and_then(|row| row.get::<_, String>(0).parse().ok()).unwrap_or(0)
            } else {
                0
            };
            if version > POSTGRES_SCHEMA_VERSION {
                return Ok(Err(version));
            }
            for migration in MIGRATIONS.iter().skip(version as usize) {
                tx.batch_execute(migration)?;
            }
            tx.execute(
                "INSERT INTO meta (key, value) VALUES ('schema', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                &[&POSTGRES_SCHEMA_VERSION.to_string()],
            )?;
            tx.commit()?;
            Ok(Ok(()))
        };
        migrate().map_err(at)?.map_err(|found| {
            let said = format!(
                "written by a newer countersign (schema {found}, this one knows {POSTGRES_SCHEMA_VERSION})"
            );
            StoreError::Server { place: "its tables".into(), said, mend: "run that version" }
        })
    }

    /// Listens on this channel and passes each notification to `receive`, until `receive` returns `false`. Also calls
    /// `receive` with `None` before each wait for a notification.
    pub(super) fn listen(
        &self,
        channel: &str,
        mut receive: impl FnMut(Option<&str>) -> bool,
    ) -> Result<(), TransactionError> {
        let mut client = self.connect()?;
        client.batch_execute(&format!("LISTEN {channel}"))?;
        while receive(None) {
            let note = client.notifications().timeout_iter(LISTEN_POLL).next()?;
            match note {
                Some(note) if !receive(Some(note.payload())) => return Ok(()),
                Some(_) => {}
                None => client.is_valid(SILENCE_TIMEOUT)?,
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle connection. If the pool has none, opens a new connection; if the maximum is in use, waits for one
    /// to be returned.
    fn take_connection(&self) -> PooledConnection<'_> {
        let mut idle = self.lock();
        while idle.in_use >= MAX_POOLED_CONNECTIONS {
            idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
        idle.in_use += 1;
        let known = idle.connections.pop();
        drop(idle);
        let mut taken = PooledConnection { pool: self, connection: known };
        if taken.connection.as_mut().is_some_and(|link| !link.is_alive()) {
            // The cause probably broke the other idle connections too.
            let others = std::mem::take(&mut self.lock().connections);
            drop((taken.connection.take(), others));
        }
        taken
    }
}

impl ConnectionPool {
    /// Finds out whether a transaction was committed although its connection was lost. Returns `Some(true)` if so.
    /// Returns `None` if the transaction was not committed, or if the server cannot tell.
    fn commit_outcome(&self, number: Option<String>) -> Option<bool> {
        let number = number?;
        for _ in 0..OUTCOME_TRIES {
            let status: Result<Option<String>, TransactionError> = (|| {
                let mut taken = self.take_connection();
                let sql = format!("SELECT pg_xact_status('{number}'::xid8)");
                let messages = taken.connection()?.client.simple_query(&sql)?;
                Ok(messages.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                }))
            })();
            match status.as_ref().map(Option::as_deref) {
                Ok(Some("committed")) => return Some(true),
                Ok(Some("in progress")) | Err(_) => thread::sleep(OUTCOME_WAIT),
                Ok(_) => return None,
            }
        }
        None
    }
}

/// Maximum number of queries for the outcome of a transaction. `OUTCOME_WAIT` is the pause between two queries. Many
/// are needed because a failover takes seconds.
const OUTCOME_TRIES: u32 = 40;
const OUTCOME_WAIT: Duration = Duration::from_millis(250);

impl PooledConnection<'_> {
    fn connection(&mut self) -> Result<&mut PostgresConnection, TransactionError> {
        match &mut self.connection {
            Some(link) => Ok(link),
            none => {
                let client = self.pool.connect()?;
                Ok(none.insert(PostgresConnection {
                    client,
                    prepared: PreparedStatements::default(),
                    idle_since: Instant::now(),
                }))
            }
        }
    }
}

impl Drop for ConnectionPool {
    /// Closes the connections on a separate thread, because closing blocks and the current thread may not be allowed to
    /// block.
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.lock().connections);
        if !links.is_empty() {
            drop(thread::spawn(move || drop(links)).join());
        }
    }
}

struct PooledConnection<'a> {
    pool: &'a ConnectionPool,
    connection: Option<PostgresConnection>,
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let link = self.connection.take().filter(|link| !link.client.is_closed());
        let mut idle = self.pool.lock();
        idle.in_use -= 1;
        idle.connections.extend(link.map(|link| PostgresConnection { idle_since: Instant::now(), ..link }));
        drop(idle);
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_connections_use_tls_unless_disabled() {
        for (hosts, wanted) in [
            ("127.0.0.1/bot", SslMode::Disable),
            ("localhost,[::1]/bot", SslMode::Disable),
            ("127.0.0.1/bot?sslmode=require", SslMode::Require),
            ("db.example.org/bot", SslMode::Require),
            ("localhost,db.example.org/bot", SslMode::Require),
            ("localhost/bot?hostaddr=192.0.2.1", SslMode::Require),
            ("db.example.org/bot?sslmode=disable", SslMode::Disable),
        ] {
            let pool = ConnectionPool::new(&format!("postgres://bot@{hosts}")).unwrap();
            assert_eq!(pool.config.get_ssl_mode(), wanted, "{hosts}");
        }
    }

    #[test]
    fn malformed_address_does_not_leak_a_password() {
        for address in
            ["\"postgres://bot:secret@db/x?sslmode=disable\"", "postgre://bot:secret@db/x", "secret"]
        {
            let Err(error) = ConnectionPool::new(address) else { panic!("{address}") };
            let said = with_causes(&error);
            assert!(said.contains("does not begin with postgres://") && !said.contains("secret"), "{said}");
        }
    }
}
