//! Process groups: several processes, on one machine or more, that compute together.

use std::fmt;

use cxx::UniquePtr;
use mlx_sys as sys;

use crate::array::{Array, NONE, check_shape};
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// How ranks talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP between neighbours; in every libmlx.
    Ring,
    /// RDMA over Thunderbolt; macOS.
    Jaccl,
    /// NVIDIA's library; CUDA.
    Nccl,
    /// An installed MPI.
    Mpi,
}

impl Transport {
    /// MLX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Jaccl => "jaccl",
            Self::Nccl => "nccl",
            Self::Mpi => "mpi",
        }
    }

    /// Whether this libmlx has it.
    pub fn is_available(self) -> bool {
        sys::group_available(self.name())
    }
}

/// The processes of one group. Belongs to the thread that made it.
///
/// When a peer dies, evaluation fails, and the group is of no more use: restart all ranks.
pub struct Group(UniquePtr<sys::Group>);

impl Group {
    /// Joins the group that the environment describes (`MLX_RANK`, `MLX_HOSTFILE` for the ring). Waits for
    /// all peers without a limit: supervise it. Fails if the environment does not describe a group.
    pub fn join(transport: Transport) -> Result<Self> {
        if !transport.is_available() {
            let text = format!("this libmlx has no transport {}", transport.name());
            return Err(Error::Unavailable(text.into()));
        }
        sys::group_init(transport.name()).map(Self).map_err(|e| Error::Unavailable(e.what().into()))
    }

    /// This process' number, from 0.
    pub fn rank(&self) -> usize {
        usize::try_from(self.0.rank()).unwrap_or(0)
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        usize::try_from(self.0.size()).unwrap_or(1)
    }

    /// The sum over all ranks, on each of them.
    pub fn all_sum(&self, a: &Array) -> Result<Array> {
        Array::made("all_sum", [a], self.0.all_sum(a.raw()?))
    }

    /// The arrays of all ranks joined on axis 0, on each of them.
    pub fn all_gather(&self, a: &Array) -> Result<Array> {
        Array::made("all_gather", [a], self.0.all_gather(a.raw()?))
    }

    /// Sends to one rank; happens when the result is evaluated.
    pub fn send(&self, a: &Array, to: usize) -> Result<Array> {
        Array::made("send", [a], self.0.send(a.raw()?, self.peer(to)?))
    }

    /// Receives from one rank, which must send this shape and dtype.
    pub fn recv(&self, shape: &[i32], dtype: Dtype, from: usize) -> Result<Array> {
        check_shape("recv", shape)?;
        Array::made("recv", NONE, self.0.recv(shape, dtype.code(), self.peer(from)?))
    }

    fn peer(&self, rank: usize) -> Result<i32> {
        let known = Some(rank).filter(|rank| *rank < self.size());
        let peer = known.and_then(|rank| i32::try_from(rank).ok());
        peer.ok_or_else(|| Error::new(format!("there is no rank {rank} in a group of {}", self.size())))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("rank", &self.rank()).field("size", &self.size()).finish()
    }
}
