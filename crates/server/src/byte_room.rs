//! Memory for bytes that arrive: as many as have room, of all requests together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A permit for each byte that may still arrive.
#[derive(Debug, Clone)]
pub struct ByteRoom(Arc<Semaphore>);

/// Bytes that have arrived. Others have room once it is dropped.
#[derive(Debug)]
pub struct Arrived {
    room: ByteRoom,
    permit: Option<OwnedSemaphorePermit>,
}

impl ByteRoom {
    /// For so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Nothing yet.
    pub fn arrived(&self) -> Arrived {
        Arrived { room: self.clone(), permit: None }
    }
}

impl Arrived {
    /// Takes room for more bytes; `false` if there is none.
    pub fn add(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let Ok(more) = Arc::clone(&self.room.0).try_acquire_many_owned(bytes) else { return false };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_room_until_it_is_taken_and_again_when_it_is_given_back() {
        let room = ByteRoom::new(10);
        let (mut first, mut second) = (room.arrived(), room.arrived());
        assert!(first.add(4) && first.add(2) && second.add(4));
        assert!(!second.add(1), "ten are taken");
        drop(first);
        assert!(second.add(6) && !second.add(1));
    }
}
