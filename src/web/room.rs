//! Room for the bodies of deliveries, from their first byte to their commit.
//!
//! Anybody may send bytes here, and only a whole body shows whom it is from. So what is not whole is kept on sufferance:
//! when the room is full, the bodies that have been on their way longest give way to newer ones. GitHub's are whole within
//! milliseconds; to push one out somebody would have to fill the whole room in that time, and whoever sends half a body and
//! waits keeps nobody out, however large or many the halves. What is whole gives way to nothing: it waits for the disk.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::limits;

pub(super) struct Room(Mutex<Inside>);

struct Inside {
    free: usize,
    /// How many have come so far.
    came: u64,
    /// Bodies that are not whole, in the order in which they came.
    arriving: BTreeMap<u64, Arriving>,
}

struct Arriving {
    bytes: Vec<u8>,
    share: usize,
    /// Dropped with the rest: who waits for more of this body hears that it has to go.
    _stays: oneshot::Sender<Infallible>,
}

/// There is no place, or none any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The place of a body that is arriving.
pub(super) struct Place<'a> {
    room: &'a Room,
    number: u64,
    /// The body is not going to be longer.
    longest: usize,
    stays: oneshot::Receiver<Infallible>,
}

/// The share of the room that a whole body holds until this is dropped.
pub(super) struct Share<'a> {
    room: &'a Room,
    share: usize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Mutex::new(Inside { free: bytes, came: 0, arriving: BTreeMap::new() }))
    }

    /// Makes place for a body of at most this length. What is announced costs nothing to say, so only what comes gets
    /// room.
    pub(super) fn enter(&self, longest: usize) -> Result<Place<'_>, Full> {
        let mut inside = self.inside();
        let (number, share) = (inside.came, limits::DOOR_REQUEST_BYTES);
        inside.came += 1;
        inside.take(number, share)?;
        let (sender, stays) = oneshot::channel();
        let arriving = Arriving { bytes: Vec::new(), share, _stays: sender };
        inside.arriving.insert(number, arriving);
        Ok(Place { room: self, number, longest, stays })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Takes so much for this body, where need be from those that came before it.
    fn take(&mut self, number: u64, much: usize) -> Result<(), Full> {
        while self.free < much {
            let oldest = self.arriving.first_entry().filter(|oldest| *oldest.key() < number).ok_or(Full)?;
            self.free += oldest.remove().share;
        }
        self.free -= much;
        Ok(())
    }
}

impl<'a> Place<'a> {
    /// Adds what has come.
    pub(super) fn add(&mut self, part: &[u8]) -> Result<(), Full> {
        let mut inside = self.room.inside();
        let bytes = &inside.arriving.get(&self.number).ok_or(Full)?.bytes;
        let (needed, had) = (bytes.len() + part.len(), bytes.capacity());
        let more = if needed > had { needed.max(self.longest.min(2 * had)) - had } else { 0 };
        inside.take(self.number, more)?;
        let arriving = inside.arriving.get_mut(&self.number).ok_or(Full)?;
        arriving.share += more;
        arriving.bytes.reserve_exact(had + more - arriving.bytes.len());
        arriving.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Resolves when this body has given way.
    pub(super) async fn pushed_out(&mut self) {
        // Nothing is ever sent: an answer means that the sender is gone.
        drop((&mut self.stays).await);
    }

    /// The body, now whole; it keeps its share.
    pub(super) fn whole(self) -> Result<(Vec<u8>, Share<'a>), Full> {
        let arriving = self.room.inside().arriving.remove(&self.number).ok_or(Full)?;
        Ok((arriving.bytes, Share { room: self.room, share: arriving.share }))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut inside = self.room.inside();
        if let Some(arriving) = inside.arriving.remove(&self.number) {
            inside.free += arriving.share;
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.room.inside().free += mem::take(&mut self.share);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const KILOBYTE: usize = 1024;

    fn body(size: usize) -> Vec<u8> {
        vec![b'x'; size - limits::DOOR_REQUEST_BYTES]
    }

    #[test]
    fn the_oldest_that_is_not_whole_gives_way() {
        let room = Room::new(100 * KILOBYTE);
        let mut places: Vec<_> = (0..3).map(|_| room.enter(0).unwrap()).collect();
        for place in &mut places {
            place.add(&body(30 * KILOBYTE)).unwrap();
        }
        let mut newer = room.enter(0).unwrap();
        assert!(places[0].pushed_out().now_or_never().is_none(), "there was room for it");
        newer.add(&body(30 * KILOBYTE)).unwrap();
        assert!(places[0].pushed_out().now_or_never().is_some());
        assert_eq!(places[0].add(b"x"), Err(Full));
        assert!(places[1].pushed_out().now_or_never().is_none());
        assert_eq!(places[1].add(&body(30 * KILOBYTE)), Err(Full), "newer ones do not give way");
        assert_eq!(places.remove(0).whole().err(), Some(Full));
        assert_eq!(newer.whole().unwrap().0.len(), body(30 * KILOBYTE).len());
    }

    #[test]
    fn an_announcement_takes_no_room() {
        let room = Room::new(100 * KILOBYTE);
        let mut announced: Vec<_> = (0..20).map(|_| room.enter(25 * KILOBYTE * KILOBYTE).unwrap()).collect();
        assert_eq!(room.inside().free, 100 * KILOBYTE - 20 * limits::DOOR_REQUEST_BYTES);
        assert!(announced[0].pushed_out().now_or_never().is_none(), "there is room for all of them");
        announced[0].add(b"x").unwrap();
        assert_eq!(room.inside().free, 100 * KILOBYTE - 20 * limits::DOOR_REQUEST_BYTES - 1);
    }

    #[test]
    fn what_is_whole_stays_until_it_is_kept() {
        let room = Room::new(100 * KILOBYTE);
        let mut place = room.enter(0).unwrap();
        place.add(&body(90 * KILOBYTE)).unwrap();
        let whole = place.whole().unwrap();
        let mut second = room.enter(0).unwrap();
        assert_eq!(second.add(&body(20 * KILOBYTE)), Err(Full));
        drop(whole);
        second.add(&body(20 * KILOBYTE)).unwrap();
        drop(second);
        assert_eq!(room.inside().free, 100 * KILOBYTE);
    }

    #[test]
    fn what_is_in_hand_is_never_more_than_the_room() {
        let room = Room::new(300 * KILOBYTE);
        let (mut places, mut kept, mut chance) = (Vec::new(), Vec::new(), 7_usize);
        let mut below = |end: usize| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % end
        };
        let (mut pushed, mut refused) = (0, 0);
        for _ in 0..20_000 {
            match (below(8), places.len()) {
                (0..2, _) | (_, 0) => places.extend(room.enter(below(50 * KILOBYTE))),
                (2..6, n) => {
                    let place: &mut Place<'_> = &mut places[below(n)];
                    refused += usize::from(place.add(&vec![b'x'; below(40 * KILOBYTE)]).is_err());
                }
                (6, n) => match places.remove(below(n)).whole() {
                    Ok(whole) => kept.push(whole),
                    Err(Full) => pushed += 1,
                },
                _ if kept.is_empty() => {}
                _ => drop(kept.remove(below(kept.len()))),
            }
            let inside = room.inside();
            let arriving: usize = inside.arriving.values().map(|a| a.share).sum();
            let whole: usize = kept.iter().map(|(_, share)| share.share).sum();
            assert_eq!(inside.free + arriving + whole, 300 * KILOBYTE);
            let held = inside.arriving.values().map(|a| &a.bytes).chain(kept.iter().map(|(bytes, _)| bytes));
            assert!(held.map(Vec::capacity).sum::<usize>() <= arriving + whole);
        }
        assert!(pushed > 100 && refused > 100, "{pushed} {refused}");
    }
}
