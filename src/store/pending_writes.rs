//! Buffer for documents, ledger rows and API call counts. The next write of a step stores them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{LedgerRecord, compression, error::TransactionError};
use crate::types::Hash;

/// Number of GitHub API calls, and number of those calls that were writes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GitHubCallCount {
    pub calls: u64,
    pub writes: u64,
}

/// Counter of the GitHub API calls that a step makes.
#[derive(Debug, Default)]
pub struct GitHubCallCounter {
    calls: AtomicU64,
    writes: AtomicU64,
}

impl GitHubCallCounter {
    /// Counts a call. `write` tells whether the call may have changed something.
    pub fn count_call(&self, write: bool) {
        self.add_count(GitHubCallCount { calls: 1, writes: u64::from(write) });
    }

    /// Returns the count and resets it to zero. The caller must store the returned count.
    pub fn take(&self) -> GitHubCallCount {
        GitHubCallCount { calls: self.calls.swap(0, Relaxed), writes: self.writes.swap(0, Relaxed) }
    }

    fn add_count(&self, calls: GitHubCallCount) {
        self.calls.fetch_add(calls.calls, Relaxed);
        self.writes.fetch_add(calls.writes, Relaxed);
    }
}

/// A document in the form in which it is stored.
#[derive(Debug)]
pub(super) struct PackedDocument {
    pub(super) bytes: usize,
    pub(super) zstd: Vec<u8>,
}

impl PackedDocument {
    pub(super) fn pack(hash: Hash, bytes: &[u8]) -> Result<Self, TransactionError> {
        let zstd = compression::pack(bytes).map_err(|error| {
            TransactionError::Row(format!("document {hash} cannot be compressed: {error}"))
        })?;
        Ok(Self { bytes: bytes.len(), zstd })
    }

    pub(super) fn unpack(&self, hash: Hash) -> Result<Vec<u8>, TransactionError> {
        let bytes = compression::unpack(&self.zstd, self.bytes)
            .map_err(|error| TransactionError::Row(format!("document {hash} cannot be unpacked: {error}")))?;
        if Hash::digest(&bytes) == hash {
            Ok(bytes)
        } else {
            Err(TransactionError::Row(format!("document {hash} does not hash to its name")))
        }
    }
}

/// A ledger row, with its visit and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingRecord {
    pub(super) visit: u64,
    pub(super) key: String,
    pub(super) record: LedgerRecord,
}

/// Data of one attempt that has not been written yet. A document that no row references may be lost with the attempt. A
/// row is written together with the documents that it references.
#[derive(Debug, Default)]
pub struct PendingWrites {
    github_calls: Arc<GitHubCallCounter>,
    state: Mutex<PendingWritesState>,
}

#[derive(Debug, Default)]
struct PendingWritesState {
    documents: HashMap<Hash, Arc<PackedDocument>>,
    records: Vec<PendingRecord>,
}

impl PendingWrites {
    pub fn github_calls(&self) -> &Arc<GitHubCallCounter> {
        &self.github_calls
    }

    /// Buffers a ledger row for the step's next write.
    pub fn add_record(&self, visit: u64, key: &str, record: LedgerRecord) {
        self.lock().records.push(PendingRecord { visit, key: key.to_owned(), record });
    }

    /// Returns whether there are neither ledger rows nor API call counts to write. Documents alone do not require a
    /// write.
    pub(super) fn is_empty(&self) -> bool {
        self.github_calls.calls.load(Relaxed) == 0 && self.lock().records.is_empty()
    }

    pub(super) fn add_document(&self, hash: Hash, document: PackedDocument) {
        self.lock().documents.insert(hash, Arc::new(document));
    }

    pub(super) fn has_document(&self, hash: Hash) -> bool {
        self.lock().documents.contains_key(&hash)
    }

    pub(super) fn document(&self, hash: Hash) -> Option<Arc<PackedDocument>> {
        self.lock().documents.get(&hash).cloned()
    }

    /// Returns the data for the next write. The data stays buffered until [`remove_written`](Self::remove_written) is
    /// called.
    pub(super) fn batch(&self) -> WriteBatch {
        let held = self.lock();
        let documents = held.documents.iter().map(|(hash, document)| (*hash, Arc::clone(document))).collect();
        WriteBatch { documents, records: held.records.clone(), calls: self.github_calls.take() }
    }

    /// Drops the documents of a failed attempt, because nothing references them. Ledger rows are kept.
    pub(super) fn drop_documents(&self) {
        self.lock().documents.clear();
    }

    pub(super) fn remove_written(&self, load: &WriteBatch) {
        let mut held = self.lock();
        for (hash, _) in &load.documents {
            held.documents.remove(hash);
        }
        held.records.retain(|booking| !load.records.contains(booking));
    }

    pub(super) fn restore_counts(&self, load: &WriteBatch) {
        self.github_calls.add_count(load.calls);
    }

    fn lock(&self) -> MutexGuard<'_, PendingWritesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Data of one write.
#[derive(Debug, Clone)]
pub(super) struct WriteBatch {
    pub(super) documents: Vec<(Hash, Arc<PackedDocument>)>,
    pub(super) records: Vec<PendingRecord>,
    pub(super) calls: GitHubCallCount,
}
