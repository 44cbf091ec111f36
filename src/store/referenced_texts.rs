//! Finds the documents that rows of runs reference. Every hash in a row counts as a reference.

use crate::store::sql::Transaction;

use super::{
    database::{to_signed, to_unsigned},
    error::TransactionError,
};

/// SQL queries for all values that may reference a document, each with the run of the value.
pub(super) const REFERENCE_QUERIES: [&str; 16] = [
    "SELECT seq AS run, state AS value FROM run",
    "SELECT seq AS run, request AS value FROM run",
    "SELECT run, state AS value FROM trail",
    "SELECT run, value FROM journal WHERE value IS NOT NULL",
    "SELECT run, spec AS value FROM gate",
    "SELECT run, body AS value FROM answer",
    "SELECT run, body AS value FROM call",
    "SELECT run, body AS value FROM verdict",
    "SELECT run, body AS value FROM finding",
    "SELECT run, body AS value FROM approval",
    "SELECT run, detail AS value FROM audit",
    "SELECT run, body AS value FROM own_commit",
    "SELECT run, body AS value FROM pull_section",
    "SELECT run, body AS value FROM artifact",
    "SELECT run, body AS value FROM route",
    "SELECT run, body AS value FROM remark",
];

/// SQL queries for the references that a run keeps long after its end: verdicts, approvals, pushed changes, artifacts,
/// and the state that a retry would need.
pub(super) const LASTING_REFERENCE_QUERIES: [&str; 6] = [
    "SELECT run, document AS value FROM verdict WHERE document IS NOT NULL",
    "SELECT run, document AS value FROM approval WHERE document IS NOT NULL",
    "SELECT run, body AS value FROM own_commit",
    "SELECT run, body AS value FROM pull_section",
    "SELECT run, body AS value FROM artifact",
    "SELECT seq AS run, state AS value FROM run WHERE status = 'failed'",
];

/// Calls `each` with the hash of every referenced document and the run that references it. If `of` is set, reads only
/// rows of these runs.
pub(super) fn for_each_reference(
    tx: &Transaction<'_>,
    sources: &[&str],
    of: Option<&[u64]>,
    mut each: impl FnMut(u64, &str),
) -> Result<(), TransactionError> {
    for source in sources.iter().filter(|_| of.is_none_or(|runs| !runs.is_empty())) {
        let marks = of.map(|runs| {
            let marks: Vec<_> = (1..=runs.len()).map(|at| format!("?{at}")).collect();
            format!(" WHERE run IN ({})", marks.join(", "))
        });
        let sql = format!("SELECT run, value FROM ({source}) AS named{}", marks.unwrap_or_default());
        let runs: Vec<_> = of.unwrap_or_default().iter().copied().map(to_signed).collect();
        tx.for_each_row(&sql, runs, |row| {
            let run = to_unsigned(row.get(0)?);
            let value = row.get_ref(1)?;
            let bytes = value.as_bytes().map_err(|error| TransactionError::Row(error.to_string()))?;
            for word in bytes.split(|byte| !byte.is_ascii_hexdigit()).filter(|word| word.len() == 64) {
                if let Ok(word) = std::str::from_utf8(word) {
                    each(run, word);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
