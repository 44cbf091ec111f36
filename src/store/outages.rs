//! Which ways to a model failed lately.

use super::{
    Store, StoreError,
    cluster::Tell,
    database::{signed, unsigned},
};
use crate::types::Timestamp;

/// Failures in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    pub failures: u32,
    /// The way is left alone until then, if these are enough failures for it.
    pub until: Timestamp,
}

impl Store {
    pub async fn outages(&self) -> Result<Vec<(String, Outage)>, StoreError> {
        self.main
            .read(|tx| {
                let mut statement = tx.prepare("SELECT way, failures, until FROM outage")?;
                let rows = statement.query_map([], |row| {
                    let failures = u32::try_from(unsigned(row.get(1)?)).unwrap_or(u32::MAX);
                    Ok((row.get(0)?, Outage { failures, until: Timestamp(row.get(2)?) }))
                })?;
                rows.collect::<Result<_, _>>()
            })
            .await
    }

    /// None: it is over.
    pub async fn set_outage(&self, way: &str, outage: Option<Outage>) -> Result<(), StoreError> {
        let way = way.to_owned();
        self.main
            .write(move |tx| {
                match outage {
                    Some(Outage { failures, until }) => tx.execute(
                        "INSERT INTO outage (way, failures, until) VALUES (?1, ?2, ?3) \
                         ON CONFLICT (way) DO UPDATE SET failures = excluded.failures, until = excluded.until",
                        (&way, signed(failures.into()), until.0),
                    )?,
                    None => tx.execute("DELETE FROM outage WHERE way = ?1", [&way])?,
                };
                Tell::Settings.say(tx)
            })
            .await
    }
}
