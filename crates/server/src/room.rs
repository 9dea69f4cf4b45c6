//! Room for the bytes of requests. Who finds none waits for its turn, for a while.
//!
//! Invariant: places are given in the order in which they were wanted, so that a large one is not passed for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one unit of a room.
const UNIT: usize = 1 << 10;

/// Room for this many bytes at once.
#[derive(Debug, Clone)]
pub struct Room {
    units: Arc<Semaphore>,
    most: u32,
    wait: Duration,
}

/// Bytes of a room, given back when dropped.
#[derive(Debug)]
pub struct Place {
    _units: OwnedSemaphorePermit,
}

impl Room {
    /// For this many bytes. `wait` is how long they are waited for.
    pub fn new(bytes: usize, wait: Duration) -> Self {
        let most = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        let units = Arc::new(Semaphore::new(most.try_into().unwrap_or(Semaphore::MAX_PERMITS)));
        Self { units, most, wait }
    }

    /// Waits for a place of this many bytes; of all there is for more than that. `None` if it does not become free in time.
    pub async fn place(&self, bytes: usize) -> Option<Place> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.most);
        let turn = Arc::clone(&self.units).acquire_many_owned(units);
        let taken = tokio::time::timeout(self.wait, turn).await;
        taken.ok()?.ok().map(|units| Place { _units: units })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn room(bytes: usize) -> Room {
        Room::new(bytes, Duration::from_secs(1_000_000))
    }

    #[tokio::test]
    async fn a_place_is_waited_for_and_not_passed() {
        let room = room(10 * UNIT);
        let held = room.place(6 * UNIT).await.unwrap();
        let mut large = Box::pin(room.place(8 * UNIT));
        assert!((&mut large).now_or_never().is_none(), "it waits");
        let mut small = Box::pin(room.place(UNIT));
        assert!((&mut small).now_or_never().is_none(), "it does not pass the large one");
        drop(held);
        let large = large.await.unwrap();
        let small = small.await.unwrap();
        assert!(room.place(2 * UNIT).now_or_never().is_none());
        drop((large, small));
        assert!(room.place(10 * UNIT).now_or_never().is_some());
    }

    #[tokio::test]
    async fn more_than_there_is_takes_all() {
        let room = room(10 * UNIT);
        let all = room.place(usize::MAX).await.unwrap();
        assert!(room.place(1).now_or_never().is_none());
        drop(all);
        assert!(room.place(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_wait_ends() {
        let room = Room::new(UNIT, Duration::ZERO);
        let held = room.place(1).await.unwrap();
        assert!(room.place(1).await.is_none());
        drop(held);
        assert!(room.place(1).await.is_some());
    }
}
