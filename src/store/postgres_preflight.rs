//! Preflight check of a PostgreSQL server. It only reads.

use std::{path::Path, time::Duration};

use secrecy::ExposeSecret;

use super::{
    PostgresServer, StoreError,
    cluster::MAX_CLOCK_SKEW,
    error::TransactionError,
    postgres_backend::{ConnectionPool, MAX_CONNECTIONS, POSTGRES_SCHEMA_VERSION, run_on_own_thread},
};
use crate::clock::SharedClock;

/// State of a PostgreSQL server, as found by the preflight check.
#[derive(Debug, Clone)]
pub struct PostgresPreflight {
    /// Version number as the server reports it.
    pub version: String,
    /// Schema version of our tables, or `None` if the tables do not exist.
    pub schema: Option<u32>,
    /// Number of further connections that the server would accept from this role.
    pub connections: i64,
    /// Problems that prevent a node from using this server, each with a suggested fix.
    pub problems: Vec<String>,
    /// Remarks about the server that do not prevent its use.
    pub notes: Vec<String>,
}

/// Minimum `server_version_num` that is supported.
const MIN_SERVER_VERSION: i64 = 130_000;

/// SQL query for all checks that do not need our tables. It only counts other connections, because most roles cannot
/// see details of them.
const PREFLIGHT_QUERY: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::bigint,
    current_setting('server_encoding'), EXISTS (SELECT 1 FROM pg_collation WHERE collprovider = 'i'),
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,
    COALESCE((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = current_schema()),
        has_database_privilege(current_database(), 'CREATE')),
    to_regclass('meta') IS NOT NULL,
    CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT),
    LEAST(current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
            - (SELECT COUNT(*) FROM pg_stat_activity WHERE datid IS NOT NULL),
        (SELECT rolconnlimit - (SELECT COUNT(*) FROM pg_stat_activity WHERE usename = current_user) FROM pg_roles
            WHERE rolname = current_user AND rolconnlimit >= 0)) + 1";

/// Checks the PostgreSQL server that nodes would join.
pub fn check_postgres(server: &PostgresServer, clock: &SharedClock) -> Result<PostgresPreflight, StoreError> {
    run_on_own_thread(|| check_postgres_blocking(server, clock))
}

fn check_postgres_blocking(
    server: &PostgresServer,
    clock: &SharedClock,
) -> Result<PostgresPreflight, StoreError> {
    let pool = ConnectionPool::new(server.address.expose_secret())?;
    let read = || -> Result<PostgresPreflight, TransactionError> {
        let mut client = pool.connect()?;
        let before = clock.now();
        let row = client.query_one(PREFLIGHT_QUERY, &[])?;
        let (mut lacks, mut notes) = (Vec::new(), Vec::new());
        if row.get::<_, i64>(1) < MIN_SERVER_VERSION {
            lacks.push("it is too old; take Postgres 13 or newer".to_owned());
        }
        let encoding: String = row.get(2);
        if encoding != "UTF8" {
            lacks.push(format!(
                "the database's encoding is {encoding}; make one with createdb --encoding=UTF8 --template=template0"
            ));
        }
        if !row.get::<_, bool>(3) {
            lacks.push("it knows nothing of ICU; take one that was built with it, as Debian's is".to_owned());
        }
        if row.get(4) {
            lacks.push(
                "it takes no writes; name all hosts in the address, so that the one that does is found"
                    .to_owned(),
            );
        } else if !row.get::<_, bool>(5) {
            lacks.push(
                "the role may not make our tables or change them; make it the owner of the database and of its schema countersign"
                    .to_owned(),
            );
        }
        let mut schema = None;
        if row.get(6) {
            let row = client.query_opt("SELECT value FROM meta WHERE key = 'schema'", &[])?;
            schema = row.and_then(|row| row.get::<_, String>(0).parse().ok());
        }
        if let Some(newer) = schema.filter(|schema| *schema > POSTGRES_SCHEMA_VERSION) {
            lacks.push(format!("its tables are of a newer countersign, schema {newer}; run that version"));
        }
        let off = Duration::from_millis(before.0.abs_diff(row.get(7)));
        if off > MAX_CLOCK_SKEW {
            notes.push(format!(
                "its clock and this machine's are {} s apart; let NTP set both",
                off.as_secs()
            ));
        }
        let connections: i64 = row.get(8);
        if connections < MAX_CONNECTIONS {
            notes.push(format!(
                "it takes {connections} connections more, and one more node may want {MAX_CONNECTIONS}; raise \
                 max_connections, or the role's CONNECTION LIMIT"
            ));
        }
        Ok(PostgresPreflight { version: row.get(0), schema, connections, problems: lacks, notes })
    };
    read().map_err(|fault| fault.with_path(Path::new("a look at it")))
}
