//! The exchange of rows between the GPUs of ranks on one machine.
//!
//! Invariant: nothing waits for the host. Sums are part of the lazy pass, and of its graphs.

use std::os::unix::net::UnixStream;

use mlx::Array;
use mlx::gpu::{PeerGroup, PeerMemory, Together};
use omnibus_model::Exchange;

use super::load_wait::LoadWait;
use super::messages::{FromFollower, ToFollower};
use super::place::Place;
use crate::error::StartError;
use crate::frames;

/// Bytes of a rank's rows that are exchanged at once: 2,048 rows of 4,096 bf16. More are exchanged in parts.
const BYTES_AT_ONCE: usize = 16 << 20;

/// The memory of all ranks.
pub(super) struct PeerExchange {
    group: PeerGroup,
    ranks: usize,
}

impl PeerExchange {
    /// Of the first rank. `sockets`: to the followers, in rank order.
    pub(super) fn of_first(
        place: Place,
        load: LoadWait,
        sockets: &mut [UnixStream],
    ) -> Result<Self, StartError> {
        let memory = memory(place)?;
        let mut handles = vec![memory.handle().map_err(StartError::new)?];
        for (follower, socket) in place.followers().zip(sockets.iter_mut()) {
            match load.reply(follower, socket)? {
                FromFollower::Memory(handle) => handles.push(handle),
                _ => return Err(StartError::new(format!("rank {} shares no memory", follower.number()))),
            }
        }
        for socket in sockets {
            let memories = ToFollower::Memories(handles.clone());
            frames::write(socket, &[memories]).map_err(StartError::new)?;
        }
        Self::join(memory, place, &handles)
    }

    /// Of a follower, with its socket to the first rank.
    pub(super) fn of_follower(place: Place, socket: &mut UnixStream) -> Result<Self, StartError> {
        let memory = memory(place)?;
        let handle = memory.handle().map_err(StartError::new)?;
        frames::write(socket, &[FromFollower::Memory(handle)]).map_err(StartError::new)?;
        match frames::read(socket).map_err(StartError::new)? {
            Some(ToFollower::Memories(handles)) => Self::join(memory, place, &handles),
            _ => Err(StartError::new("the first rank shares no memory")),
        }
    }

    fn join(memory: PeerMemory, place: Place, handles: &[Vec<u8>]) -> Result<Self, StartError> {
        let group = memory.join(place.rank(), handles).map_err(|error| {
            StartError::new(format!("the GPU of rank {} does not reach the others: {error}", place.number()))
        })?;
        Ok(Self { group, ranks: place.ranks() })
    }
}

fn memory(place: Place) -> Result<PeerMemory, StartError> {
    PeerMemory::new(place.ranks(), BYTES_AT_ONCE).map_err(StartError::new)
}

impl Exchange for PeerExchange {
    fn gather(&self, own: &Array) -> mlx::Result<Vec<Array>> {
        let [rows, width] = own.dims()?;
        let all = self.group.exchange(own, Together::All)?;
        let part = |rank: i32| all.slice(&[rank, 0, 0], &[rank + 1, rows, width])?.reshape(&[rows, width]);
        (0..self.ranks as i32).map(part).collect()
    }

    fn sum(&self, own: &Array) -> mlx::Result<Array> {
        self.group.exchange(own, Together::Sum)
    }

    fn begin(&self, after: Option<&Array>) {
        self.group.begin(after);
    }

    fn arrays(&self) -> Vec<Array> {
        vec![self.group.addresses().clone()]
    }
}
