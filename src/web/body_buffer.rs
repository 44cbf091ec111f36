//! Room for the bodies of deliveries, from their first byte to their commit: a semaphore of bytes.
//!
//! Anybody may send bytes here, and only a whole body shows whom it is from. So what is not whole is kept on sufferance:
//! when the room is full, the bodies that have been on their way longest give way to newer ones. GitHub's are whole within
//! milliseconds; to push one out somebody would have to fill the whole room in that time, and whoever sends half a body and
//! waits keeps nobody out, however large or many the halves. What is whole gives way to nothing: it waits for the disk.

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

/// Bodies that are not whole, in the order in which they came, and how many have come so far.
#[derive(Default)]
struct IncomingBodies {
    bodies: BTreeMap<u64, PartialBody>,
    came: u64,
}

/// What has come of a body.
struct PartialBody {
    bytes: Vec<u8>,
    permit: Permit,
    /// Dropped with the rest: who waits for more of this body hears that it has to go.
    _stays: oneshot::Sender<Infallible>,
}

/// There is no room, or none any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BufferFull;

/// A body that is arriving.
pub(super) struct IncomingBody<'a> {
    room: &'a BodyBuffer,
    number: u64,
    /// It is not going to be longer.
    longest: usize,
    stays: oneshot::Receiver<Infallible>,
}

impl BodyBuffer {
    pub(super) fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes)), arriving: Mutex::default() }
    }

    /// Begins a body of at most this length. What is announced costs nothing to say, so only what comes gets room.
    pub(super) fn begin_body(&self, longest: usize) -> Result<IncomingBody<'_>, BufferFull> {
        let mut arriving = self.lock();
        let number = arriving.came;
        arriving.came += 1;
        let permit = self.reserve(&mut arriving, number, limits::LEAST_REQUEST_BYTES)?;
        let (sender, stays) = oneshot::channel();
        arriving.bodies.insert(number, PartialBody { bytes: Vec::new(), permit, _stays: sender });
        Ok(IncomingBody { room: self, number, longest, stays })
    }

    fn lock(&self) -> MutexGuard<'_, IncomingBodies> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so much for this body, where need be from those that came before it.
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
    /// Adds what has come.
    pub(super) fn add(&mut self, more: &[u8]) -> Result<(), BufferFull> {
        let mut arriving = self.room.lock();
        let bytes = &arriving.bodies.get(&self.number).ok_or(BufferFull)?.bytes;
        let (needed, had) = (bytes.len() + more.len(), bytes.capacity());
        let grown = if needed > had { needed.max(self.longest.min(2 * had)) } else { had };
        let permit = self.room.reserve(&mut arriving, self.number, grown - had)?;
        let part = arriving.bodies.get_mut(&self.number).ok_or(BufferFull)?;
        part.permit.merge(permit);
        part.bytes.reserve_exact(grown - part.bytes.len());
        part.bytes.extend_from_slice(more);
        Ok(())
    }

    /// Resolves when this body has given way.
    pub(super) async fn wait_until_evicted(&mut self) {
        // Nothing is ever sent: an answer means that the sender is gone.
        drop((&mut self.stays).await);
    }

    /// The body, now whole, and its share of the room, which it holds until that is dropped.
    pub(super) fn finish(self) -> Result<(Vec<u8>, Permit), BufferFull> {
        let part = self.room.lock().bodies.remove(&self.number).ok_or(BufferFull)?;
        Ok((part.bytes, part.permit))
    }
}

impl Drop for IncomingBody<'_> {
    fn drop(&mut self) {
        self.room.lock().bodies.remove(&self.number);
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
    fn the_oldest_that_is_not_whole_gives_way() {
        let room = BodyBuffer::new(100 * KILOBYTE);
        let mut bodies: Vec<_> = (0..3).map(|_| room.begin_body(0).unwrap()).collect();
        for one in &mut bodies {
            one.add(&body(30 * KILOBYTE)).unwrap();
        }
        let mut newer = room.begin_body(0).unwrap();
        assert!(bodies[0].wait_until_evicted().now_or_never().is_none(), "there was room for it");
        newer.add(&body(30 * KILOBYTE)).unwrap();
        assert!(bodies[0].wait_until_evicted().now_or_never().is_some());
        assert_eq!(bodies[0].add(b"x"), Err(BufferFull));
        assert!(bodies[1].wait_until_evicted().now_or_never().is_none());
        assert_eq!(bodies[1].add(&body(30 * KILOBYTE)), Err(BufferFull), "newer ones do not give way");
        assert_eq!(bodies.remove(0).finish().err(), Some(BufferFull));
        assert_eq!(newer.finish().unwrap().0.len(), body(30 * KILOBYTE).len());
    }

    #[test]
    fn only_what_came_takes_room_and_what_is_whole_keeps_it() {
        let room = BodyBuffer::new(100 * KILOBYTE);
        let mut first = room.begin_body(25 * KILOBYTE * KILOBYTE).unwrap();
        assert_eq!(room.free.available_permits(), 100 * KILOBYTE - limits::LEAST_REQUEST_BYTES);
        for part in body(90 * KILOBYTE).chunks(7 * KILOBYTE) {
            let held = 100 * KILOBYTE - room.free.available_permits();
            assert!(room.lock().bodies[&0].bytes.capacity() <= held);
            drop(first.add(part));
        }
        drop(first);
        let mut place = room.begin_body(0).unwrap();
        place.add(&body(90 * KILOBYTE)).unwrap();
        let whole = place.finish().unwrap();
        let mut second = room.begin_body(0).unwrap();
        assert_eq!(second.add(&body(20 * KILOBYTE)), Err(BufferFull));
        drop(whole);
        second.add(&body(20 * KILOBYTE)).unwrap();
        drop(second);
        assert_eq!(room.free.available_permits(), 100 * KILOBYTE);
    }
}
