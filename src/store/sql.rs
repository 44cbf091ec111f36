//! SQL interface for the store's other modules. The database behind it is an SQLite file or PostgreSQL.
//!
//! The interface mirrors `rusqlite`, so queries read as usual. Each statement is written once, in the dialect that both
//! databases understand; [`postgres_backend`](super::postgres_backend) translates the few differences. Values use
//! SQLite's types: integer (booleans are 0 or 1), text, blob and null.

use rusqlite::{
    Connection, ToSql, params_from_iter,
    types::{FromSql, ToSqlOutput, ValueRef},
};

use super::{
    error::TransactionError,
    postgres_backend::{PostgresRows, PostgresSession},
};

/// An open transaction. The code that opened the transaction commits it or rolls it back.
#[derive(Clone, Copy)]
pub(super) enum Transaction<'a> {
    File(&'a Connection),
    Server(&'a (dyn PostgresSession + 'a)),
}

/// Values of a statement's numbered parameters.
pub(super) trait SqlArguments {
    fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>>;
}

impl SqlArguments for [&dyn ToSql; 0] {
    fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>> {
        Ok(Vec::new())
    }
}

impl SqlArguments for &[&dyn ToSql] {
    fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>> {
        self.iter().map(|value| value.to_sql()).collect()
    }
}

impl<V: ToSql> SqlArguments for Vec<V> {
    fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>> {
        self.iter().map(ToSql::to_sql).collect()
    }
}

macro_rules! arrays {
    ($($length:literal)*) => {$(
        impl<V: ToSql> SqlArguments for [V; $length] {
            fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>> {
                self.iter().map(ToSql::to_sql).collect()
            }
        }
    )*};
}
arrays!(1 2 3 4 5 6 7 8 9 10);

impl<A: ToSql, B: ToSql> SqlArguments for (A, B) {
    fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>> {
        [self.0.to_sql(), self.1.to_sql()].into_iter().collect()
    }
}

impl<A: ToSql, B: ToSql, C: ToSql> SqlArguments for (A, B, C) {
    fn values(&self) -> rusqlite::Result<Vec<ToSqlOutput<'_>>> {
        [self.0.to_sql(), self.1.to_sql(), self.2.to_sql()].into_iter().collect()
    }
}

impl<'a> Transaction<'a> {
    /// Prepares a statement for occasional use.
    pub(super) fn prepare(&self, sql: &str) -> Result<SqlStatement<'a>, TransactionError> {
        Ok(match self {
            Self::File(connection) => SqlStatement::File(connection.prepare(sql)?),
            Self::Server(session) => SqlStatement::Server(*session, session.prepare(sql)?),
        })
    }

    /// Prepares a statement for frequent use and caches it.
    pub(super) fn prepare_cached(&self, sql: &str) -> Result<SqlStatement<'a>, TransactionError> {
        Ok(match self {
            Self::File(connection) => SqlStatement::Cached(connection.prepare_cached(sql)?),
            Self::Server(session) => SqlStatement::Server(*session, session.prepare_cached(sql)?),
        })
    }

    /// Calls `each` with every row of the result. Only a few rows are in memory at a time, so the result may be long.
    pub(super) fn for_each_row(
        &self,
        sql: &str,
        args: impl SqlArguments,
        mut each: impl FnMut(&SqlRow<'_>) -> Result<(), TransactionError>,
    ) -> Result<(), TransactionError> {
        match self {
            Self::File(connection) => {
                let mut statement = connection.prepare(sql)?;
                let mut rows = statement.query(params_from_iter(args.values()?))?;
                while let Some(row) = rows.next()? {
                    each(&SqlRow::File(row))?;
                }
                Ok(())
            }
            Self::Server(session) => {
                session.for_each_row(&session.prepare(sql)?, &args.values()?, &mut |row| {
                    each(&SqlRow::Server(row))
                })
            }
        }
    }

    /// Executes a command such as `SAVEPOINT`.
    pub(super) fn execute_batch(&self, sql: &str) -> Result<(), TransactionError> {
        match self {
            Self::File(connection) => Ok(connection.prepare_cached(sql)?.execute([]).map(drop)?),
            Self::Server(session) => session.execute_batch(sql),
        }
    }

    /// Returns whether the database has rolled back the whole transaction by itself.
    pub(super) fn is_rolled_back(&self) -> bool {
        match self {
            Self::File(connection) => connection.is_autocommit(),
            Self::Server(session) => session.is_lost(),
        }
    }

    /// Executes a statement and returns the number of changed rows.
    pub(super) fn execute(&self, sql: &str, args: impl SqlArguments) -> Result<usize, TransactionError> {
        self.prepare(sql)?.execute(args)
    }

    pub(super) fn query_row<V>(
        &self,
        sql: &str,
        args: impl SqlArguments,
        read: impl FnOnce(&SqlRow<'_>) -> Result<V, TransactionError>,
    ) -> Result<V, TransactionError> {
        self.prepare(sql)?.query_row(args, read)
    }
}

/// A prepared statement.
pub(super) enum SqlStatement<'a> {
    File(rusqlite::Statement<'a>),
    Cached(rusqlite::CachedStatement<'a>),
    Server(&'a (dyn PostgresSession + 'a), postgres::Statement),
}

impl SqlStatement<'_> {
    pub(super) fn execute(&mut self, args: impl SqlArguments) -> Result<usize, TransactionError> {
        let values = args.values()?;
        match self {
            Self::File(statement) => Ok(statement.execute(params_from_iter(values))?),
            Self::Cached(statement) => Ok(statement.execute(params_from_iter(values))?),
            Self::Server(session, statement) => session.execute(statement, &values),
        }
    }

    pub(super) fn query(&mut self, args: impl SqlArguments) -> Result<SqlRows<'_>, TransactionError> {
        let values = args.values()?;
        Ok(match self {
            Self::File(statement) => SqlRows::File(statement.query(params_from_iter(values))?),
            Self::Cached(statement) => SqlRows::File(statement.query(params_from_iter(values))?),
            Self::Server(session, statement) => SqlRows::Server(session.query(statement, &values)?),
        })
    }

    /// Returns the first row of the result. An empty result is an error; [`OptionalRow`] turns that error into `None`.
    pub(super) fn query_row<V>(
        &mut self,
        args: impl SqlArguments,
        read: impl FnOnce(&SqlRow<'_>) -> Result<V, TransactionError>,
    ) -> Result<V, TransactionError> {
        match self.query(args)?.next()? {
            Some(row) => read(&row),
            None => Err(rusqlite::Error::QueryReturnedNoRows.into()),
        }
    }

    /// Returns all rows. Each row has its own `Result`.
    pub(super) fn query_map<V>(
        &mut self,
        args: impl SqlArguments,
        mut read: impl FnMut(&SqlRow<'_>) -> Result<V, TransactionError>,
    ) -> Result<std::vec::IntoIter<Result<V, TransactionError>>, TransactionError> {
        let (mut rows, mut all) = (self.query(args)?, Vec::new());
        while let Some(row) = rows.next()? {
            all.push(read(&row));
        }
        Ok(all.into_iter())
    }

    pub(super) fn exists(&mut self, args: impl SqlArguments) -> Result<bool, TransactionError> {
        Ok(self.query(args)?.next()?.is_some())
    }

    pub(super) fn column_names(&self) -> Vec<String> {
        match self {
            Self::File(statement) => statement.column_names().map(str::to_owned).collect(),
            Self::Cached(statement) => statement.column_names().map(str::to_owned).collect(),
            Self::Server(_, statement) => {
                statement.columns().iter().map(|column| column.name().to_owned()).collect()
            }
        }
    }
}

/// Iterator over the rows of a query result.
pub(super) enum SqlRows<'a> {
    File(rusqlite::Rows<'a>),
    Server(PostgresRows),
}

impl SqlRows<'_> {
    pub(super) fn next(&mut self) -> Result<Option<SqlRow<'_>>, TransactionError> {
        Ok(match self {
            Self::File(rows) => rows.next()?.map(SqlRow::File),
            Self::Server(answer) => answer.next().map(SqlRow::Server),
        })
    }
}

/// A row of a query result.
pub(super) enum SqlRow<'a> {
    File(&'a rusqlite::Row<'a>),
    Server(&'a postgres::Row),
}

/// Identifies a column by index or by name.
pub(super) trait ColumnIndex:
    rusqlite::RowIndex + postgres::row::RowIndex + std::fmt::Display
{
}

impl ColumnIndex for usize {}
impl ColumnIndex for &str {}

impl SqlRow<'_> {
    pub(super) fn get<C: ColumnIndex, V: FromSql>(&self, column: C) -> Result<V, TransactionError> {
        match self {
            Self::File(row) => Ok(row.get(column)?),
            Self::Server(row) => {
                let name = column.to_string();
                V::column_result(super::postgres_backend::sqlite_value(row, column)?)
                    .map_err(|error| TransactionError::Row(format!("column {name}: {error}")))
            }
        }
    }

    /// Returns a column's value without decoding it.
    pub(super) fn get_ref<C: ColumnIndex>(&self, column: C) -> Result<ValueRef<'_>, TransactionError> {
        match self {
            Self::File(row) => Ok(row.get_ref(column)?),
            Self::Server(row) => super::postgres_backend::sqlite_value(row, column),
        }
    }
}

/// Turns the error for a missing row into `None`.
pub(super) trait OptionalRow<V> {
    fn optional(self) -> Result<Option<V>, TransactionError>;
}

impl<V> OptionalRow<V> for Result<V, TransactionError> {
    fn optional(self) -> Result<Option<V>, TransactionError> {
        match self {
            Err(TransactionError::Sql(rusqlite::Error::QueryReturnedNoRows)) => Ok(None),
            other => other.map(Some),
        }
    }
}
