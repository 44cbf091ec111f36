//! What a step gathers on its way and is written with its next write: documents, ledger rows, and a count of calls.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{LedgerRecord, compression, error::TransactionError};
use crate::types::Hash;

/// Calls of GitHub's API: how many, and how many of them changed something there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GitHubCallCount {
    pub calls: u64,
    pub writes: u64,
}

/// Counts calls while a step makes them.
#[derive(Debug, Default)]
pub struct GitHubCallCounter {
    calls: AtomicU64,
    writes: AtomicU64,
}

impl GitHubCallCounter {
    /// One more call; `write`: it may have changed something.
    pub fn count_call(&self, write: bool) {
        self.add_count(GitHubCallCount { calls: 1, writes: u64::from(write) });
    }

    /// What was counted and not taken yet; whoever takes it sees that it is written down.
    pub fn take(&self) -> GitHubCallCount {
        GitHubCallCount { calls: self.calls.swap(0, Relaxed), writes: self.writes.swap(0, Relaxed) }
    }

    fn add_count(&self, calls: GitHubCallCount) {
        self.calls.fetch_add(calls.calls, Relaxed);
        self.writes.fetch_add(calls.writes, Relaxed);
    }
}

/// A document as it lies on disk.
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

/// A row for one of the ledgers, with the visit and the key it is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingRecord {
    pub(super) visit: u64,
    pub(super) key: String,
    pub(super) record: LedgerRecord,
}

/// What one attempt has gathered and nobody has written yet. A document that nothing refers to yet may be
/// lost with the attempt; whatever refers to it is written with it.
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

    /// A ledger row that is to be kept with what the step writes next, or not at all.
    pub fn add_record(&self, visit: u64, key: &str, record: LedgerRecord) {
        self.lock().records.push(PendingRecord { visit, key: key.to_owned(), record });
    }

    /// Is there nothing that has to be written? A document by itself has not.
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

    /// What the next write is to take along. It stays here until it is [`written`](Self::remove_written).
    pub(super) fn batch(&self) -> WriteBatch {
        let held = self.lock();
        let documents = held.documents.iter().map(|(hash, document)| (*hash, Arc::clone(document))).collect();
        WriteBatch { documents, records: held.records.clone(), calls: self.github_calls.take() }
    }

    /// The attempt came to nothing, and nothing refers to what is left. What was booked holds all the same.
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

/// What one write takes along.
#[derive(Debug, Clone)]
pub(super) struct WriteBatch {
    pub(super) documents: Vec<(Hash, Arc<PackedDocument>)>,
    pub(super) records: Vec<PendingRecord>,
    pub(super) calls: GitHubCallCount,
}
