//! Memory budget for the bodies of deliveries, from their first byte until they are committed. A semaphore counts the
//! bytes.
//!
//! Anybody may send bytes to this listener, and only a complete body can be verified. So when the buffer is full, the
//! oldest incomplete bodies are evicted to make room for newer ones. GitHub's bodies are complete within milliseconds,
//! so to evict one of them, an attacker would have to fill the whole buffer in that time. A client that sends half a
//! body and then waits blocks nobody. A complete body is never evicted; it stays in the buffer until it is written to
//! disk.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit as Permit, Semaphore, oneshot};

use crate::limits;

pub(super) struct BodyBuffer {
    free: Arc<Semaphore>,
    arriving: Mutex<IncomingBodies>,
}

/// The incomplete bodies in order of arrival, and the number of bodies started so far.
#[derive(Default)]
struct IncomingBodies {
    bodies: BTreeMap<u64, PartialBody>,
    started: u64,
}

/// The bytes of a body received so far.
struct PartialBody {
    bytes: Vec<u8>,
    permit: Permit,
    /// Sender whose only purpose is to be dropped together with this body. The drop tells the reader of the body that
    /// the body was evicted.
    _stays: oneshot::Sender<Infallible>,
}

/// Error: the buffer is full, or the body was evicted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BufferFull;

/// Handle of an incomplete body.
pub(super) struct IncomingBody<'a> {
    buffer: &'a BodyBuffer,
    number: u64,
    /// Maximum length of the body.
    longest: usize,
    stays: oneshot::Receiver<Infallible>,
}

impl BodyBuffer {
    pub(super) fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes)), arriving: Mutex::default() }
    }

    /// Starts a body of at most `longest` bytes. Only received bytes take up space in the buffer; nothing is reserved
    /// for the announced length.
    pub(super) fn begin_body(&self, longest: usize) -> Result<IncomingBody<'_>, BufferFull> {
        let mut arriving = self.lock();
        let number = arriving.started;
        arriving.started += 1;
        let permit = self.reserve(&mut arriving, number, limits::LEAST_REQUEST_BYTES)?;
        let (sender, stays) = oneshot::channel();
        arriving.bodies.insert(number, PartialBody { bytes: Vec::new(), permit, _stays: sender });
        Ok(IncomingBody { buffer: self, number, longest, stays })
    }

    fn lock(&self) -> MutexGuard<'_, IncomingBodies> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves bytes for this body and, if necessary, evicts older incomplete bodies.
    fn reserve(&self, arriving: &mut IncomingBodies, number: u64, much: usize) -> Result<Permit, BufferFull> {
        let much = u32::try_from(much).map_err(|_| BufferFull)?;
        loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_many_owned(much) {
                return Ok(permit);
            }
            arriving.bodies.first_entry().filter(|oldest| *oldest.key() < number).ok_or(BufferFull)?.remove();
        }
    }
}

impl IncomingBody<'_> {
    /// Appends received bytes to the body.
    pub(super) fn add(&mut self, more: &[u8]) -> Result<(), BufferFull> {
        let mut arriving = self.buffer.lock();
        let bytes = &arriving.bodies.get(&self.number).ok_or(BufferFull)?.bytes;
        let (needed, had) = (bytes.len() + more.len(), bytes.capacity());
        let grown = if needed > had { needed.max(self.longest.min(2 * had)) } else { had };
        let permit = self.buffer.reserve(&mut arriving, self.number, grown - had)?;
        let part = arriving.bodies.get_mut(&self.number).ok_or(BufferFull)?;
        part.permit.merge(permit);
        part.bytes.reserve_exact(grown - part.bytes.len());
        part.bytes.extend_from_slice(more);
        Ok(())
    }

    /// Resolves when this body is evicted.
    pub(super) async fn wait_until_evicted(&mut self) {
        // Nothing is ever sent, so this resolves only when the sender was dropped.
        drop((&mut self.stays).await);
    }

    /// Returns the complete body and its permit. The permit keeps the body's bytes reserved in the buffer until it is
    /// dropped.
    pub(super) fn finish(self) -> Result<(Vec<u8>, Permit), BufferFull> {
        let part = self.buffer.lock().bodies.remove(&self.number).ok_or(BufferFull)?;
        Ok((part.bytes, part.permit))
    }
}

impl Drop for IncomingBody<'_> {
    fn drop(&mut self) {
        self.buffer.lock().bodies.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const KILOBYTE: usize = 1024;

    fn body(size: usize) -> Vec<u8> {
        vec![b'x'; size - limits::LEAST_REQUEST_BYTES]
    }

    #[test]
    fn oldest_incomplete_body_is_evicted() {
        let buffer = BodyBuffer::new(100 * KILOBYTE);
        let mut bodies: Vec<_> = (0..3).map(|_| buffer.begin_body(0).unwrap()).collect();
        for one in &mut bodies {
            one.add(&body(30 * KILOBYTE)).unwrap();
        }
        let mut newer = buffer.begin_body(0).unwrap();
        assert!(bodies[0].wait_until_evicted().now_or_never().is_none(), "the buffer had space");
        newer.add(&body(30 * KILOBYTE)).unwrap();
        assert!(bodies[0].wait_until_evicted().now_or_never().is_some());
        assert_eq!(bodies[0].add(b"x"), Err(BufferFull));
        assert!(bodies[1].wait_until_evicted().now_or_never().is_none());
        assert_eq!(bodies[1].add(&body(30 * KILOBYTE)), Err(BufferFull), "newer ones are not evicted");
        assert_eq!(bodies.remove(0).finish().err(), Some(BufferFull));
        assert_eq!(newer.finish().unwrap().0.len(), body(30 * KILOBYTE).len());
    }

    #[test]
    fn received_bytes_count_against_the_body_buffer_until_the_body_is_dropped() {
        let buffer = BodyBuffer::new(100 * KILOBYTE);
        let mut first = buffer.begin_body(25 * KILOBYTE * KILOBYTE).unwrap();
        assert_eq!(buffer.free.available_permits(), 100 * KILOBYTE - limits::LEAST_REQUEST_BYTES);
        for part in body(90 * KILOBYTE).chunks(7 * KILOBYTE) {
            let held = 100 * KILOBYTE - buffer.free.available_permits();
            assert!(buffer.lock().bodies[&0].bytes.capacity() <= held);
            drop(first.add(part));
        }
        drop(first);
        let mut place = buffer.begin_body(0).unwrap();
        place.add(&body(90 * KILOBYTE)).unwrap();
        let whole = place.finish().unwrap();
        let mut second = buffer.begin_body(0).unwrap();
        assert_eq!(second.add(&body(20 * KILOBYTE)), Err(BufferFull));
        drop(whole);
        second.add(&body(20 * KILOBYTE)).unwrap();
        drop(second);
        assert_eq!(buffer.free.available_permits(), 100 * KILOBYTE);
    }
}
