//! What a step gathers on its way and is written with its next write: documents, and a count of calls.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{error::Fault, packer};
use crate::types::Hash;

/// Calls of GitHub's API: how many, and how many of them changed something there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    pub calls: u64,
    pub writes: u64,
}

/// Counts calls while a step makes them.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    writes: AtomicU64,
}

impl Tally {
    /// One more call; `write`: it may have changed something.
    pub fn add(&self, write: bool) {
        self.add_all(Calls { calls: 1, writes: u64::from(write) });
    }

    /// What was counted and not taken yet; whoever takes it sees that it is written down.
    pub fn take(&self) -> Calls {
        Calls { calls: self.calls.swap(0, Relaxed), writes: self.writes.swap(0, Relaxed) }
    }

    fn add_all(&self, calls: Calls) {
        self.calls.fetch_add(calls.calls, Relaxed);
        self.writes.fetch_add(calls.writes, Relaxed);
    }
}

/// A document as it lies on disk.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) bytes: usize,
    pub(super) zstd: Vec<u8>,
}

impl Document {
    pub(super) fn pack(hash: Hash, bytes: &[u8]) -> Result<Self, Fault> {
        let zstd = packer::pack(bytes)
            .map_err(|error| Fault::Row(format!("document {hash} cannot be compressed: {error}")))?;
        Ok(Self { bytes: bytes.len(), zstd })
    }

    pub(super) fn unpack(&self, hash: Hash) -> Result<Vec<u8>, Fault> {
        let bytes = packer::unpack(&self.zstd, self.bytes)
            .map_err(|error| Fault::Row(format!("document {hash} cannot be unpacked: {error}")))?;
        if Hash::of(&bytes) == hash {
            Ok(bytes)
        } else {
            Err(Fault::Row(format!("document {hash} does not hash to its name")))
        }
    }
}

/// What one attempt has gathered and nobody has written yet. A document that nothing refers to yet may be
/// lost with the attempt; whatever refers to it is written with it.
#[derive(Debug, Default)]
pub struct Gathered {
    tally: Arc<Tally>,
    documents: Mutex<HashMap<Hash, Arc<Document>>>,
}

impl Gathered {
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    pub(super) fn add(&self, hash: Hash, document: Document) {
        self.lock().insert(hash, Arc::new(document));
    }

    pub(super) fn has(&self, hash: Hash) -> bool {
        self.lock().contains_key(&hash)
    }

    pub(super) fn document(&self, hash: Hash) -> Option<Arc<Document>> {
        self.lock().get(&hash).cloned()
    }

    /// What the next write is to take along. It stays readable here until it is [`written`](Self::written).
    pub(super) fn load(&self) -> Load {
        let documents = self.lock().iter().map(|(hash, document)| (*hash, Arc::clone(document))).collect();
        Load { documents, calls: self.tally.take() }
    }

    /// The attempt came to nothing, and nothing refers to what is left.
    pub(super) fn drop_documents(&self) {
        self.lock().clear();
    }

    pub(super) fn written(&self, load: &Load) {
        let mut documents = self.lock();
        for (hash, _) in &load.documents {
            documents.remove(hash);
        }
    }

    pub(super) fn not_written(&self, load: &Load) {
        self.tally.add_all(load.calls);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hash, Arc<Document>>> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one write takes along.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) documents: Vec<(Hash, Arc<Document>)>,
    pub(super) calls: Calls,
}
