//! Exchanges of rows between the GPUs of several processes on one machine, by kernels that write to each other's memory.
//!
//! A packet has eight bytes of data and the number of its exchange, so that its reader knows when it is there. Two halves of
//! the memory are used in turn: a rank sends the packets of an exchange only after it has read those of the one before it from all
//! others, who have then read those of the one before that. Source: the low-latency protocol of NCCL.

use std::cell::RefCell;

use cxx::UniquePtr;
use mlx_sys as sys;

use super::elementwise::{is_float, upload};
use super::plan::{GROUPS_MAX, Plan, dtype, int};
use super::source::PEER_ROWS;
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::shape::concatenate;

/// Bytes by which another process opens a memory.
pub const HANDLE_BYTES: usize = 64;

/// Bytes of data that a packet has.
const DATA_BYTES: usize = 8;
/// Bytes of a packet.
const PACKET_BYTES: usize = 16;
/// Bytes of the counters before the packets.
const HEAD_BYTES: usize = 256;
const THREADS: i32 = 256;
/// Packets that a group sends and reads, where rows are that long.
const PACKETS_OF_A_GROUP: i32 = 2 * THREADS;

/// What is made of the ranks' rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Their sum, in rank order, in float, rounded once.
    Sum,
    /// All of them, `[ranks, rows, width]`.
    All,
}

/// An exchange of rows between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRows {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows each rank has.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// Which rank this is.
    pub rank: i32,
    /// How many ranks there are.
    pub ranks: i32,
    /// Packets of a rank in half of the memory.
    pub capacity: i32,
    /// What is made of the rows.
    pub together: Together,
}

impl PeerRows {
    /// Inputs: this rank's rows `[rows, width]`; the addresses of the memory of each rank, 64 bits each, as i32; an array that is computed
    /// before, which is not read. Output: `[rows, width]`, or `[ranks, rows, width]`. `None` for rows that do not end with a packet, and
    /// where they do not fit.
    pub fn plan(&self) -> Option<Plan> {
        let packets = self.packets_of_a_row()?;
        if packets.checked_mul(self.rows)? > self.capacity {
            return None;
        }
        let shape = match self.together {
            Together::Sum => vec![self.rows, self.width],
            Together::All => vec![self.ranks, self.rows, self.width],
        };
        Plan {
            kernel: &PEER_ROWS,
            constants: vec![
                dtype("T", self.dtype),
                int("W", self.width),
                int("RANK", self.rank),
                int("RANKS", self.ranks),
                int("CAPACITY", self.capacity),
                int("SUM", i32::from(self.together == Together::Sum)),
                int("NT", THREADS),
            ],
            groups: [
                packets.div_euclid(PACKETS_OF_A_GROUP) + i32::from(packets % PACKETS_OF_A_GROUP > 0),
                self.rows,
                1,
            ],
            threads: THREADS,
            outputs: vec![(shape, self.dtype)],
        }
        .within_grid()
    }

    fn packets_of_a_row(&self) -> Option<i32> {
        let bytes = usize::try_from(self.width).ok()? * self.dtype.size_of();
        let is_whole = bytes > 0 && bytes.is_multiple_of(DATA_BYTES) && is_float(self.dtype);
        is_whole.then(|| i32::try_from(bytes / DATA_BYTES).ok()).flatten()
    }
}

/// This process's memory for an exchange.
pub struct PeerMemory {
    memory: UniquePtr<sys::PeerMemory>,
    capacity: usize,
}

impl PeerMemory {
    /// Memory of the first GPU for an exchange among `ranks`, of at most `bytes` of data of each at a time. Fails without CUDA or room.
    pub fn new(ranks: usize, bytes: usize) -> Result<Self> {
        let capacity = bytes / DATA_BYTES;
        let memory = sys::peer_memory(HEAD_BYTES + 2 * ranks * capacity * PACKET_BYTES)?;
        Ok(Self { memory, capacity })
    }

    /// What other processes open it with, [`HANDLE_BYTES`] long.
    pub fn handle(&self) -> Result<Vec<u8>> {
        Ok(self.memory.handle()?)
    }

    /// The group of this rank and others. `handles`: of all ranks in order, of memory for as many ranks and bytes; the own one is not read.
    pub fn join(mut self, rank: usize, handles: &[Vec<u8>]) -> Result<PeerGroup> {
        let mut addresses = Vec::new();
        for (other, handle) in handles.iter().enumerate() {
            let address = match other == rank {
                true => self.memory.address(),
                false => self.memory.pin_mut().open(handle)?,
            };
            addresses.extend([address as i32, (address >> 32) as i32]);
        }
        let addresses = upload(&addresses)?;
        addresses.eval()?;
        let sizes = [rank, handles.len(), self.capacity].map(i32::try_from);
        let [Ok(rank), Ok(ranks), Ok(capacity)] = sizes else {
            return Err(Error::new("an exchange of more packets than 2^31"));
        };
        Ok(PeerGroup { _memory: self.memory, addresses, rank, ranks, capacity, last: RefCell::new(None) })
    }
}

/// Ranks that exchange rows. All make the same exchanges in the same order, on one stream.
pub struct PeerGroup {
    /// The kernels write to it.
    _memory: UniquePtr<sys::PeerMemory>,
    addresses: Array,
    rank: i32,
    ranks: i32,
    capacity: i32,
    /// What the last exchange of the computation gave: the next one runs behind it.
    last: RefCell<Option<Array>>,
}

impl PeerGroup {
    /// The array that exchanges read beside rows.
    pub fn addresses(&self) -> &Array {
        &self.addresses
    }

    /// The next exchanges are of another computation, which runs behind the last one. `after`: an array that is computed before them.
    pub fn begin(&self, after: Option<&Array>) {
        self.last.replace(after.cloned());
    }

    /// Exchanges rows, `[rows, width]`: their sum, or `[ranks, rows, width]`. Lazy. Fails for rows that do not end with a packet: their width
    /// is no multiple of 4, or of 2 for float32.
    pub fn exchange(&self, own: &Array, together: Together) -> Result<Array> {
        let ([rows, width], dtype) = (own.dims()?, own.dtype()?);
        let spec = |rows| PeerRows {
            dtype,
            rows,
            width,
            rank: self.rank,
            ranks: self.ranks,
            capacity: self.capacity,
            together,
        };
        let row = spec(1).packets_of_a_row();
        let at_once = row.map(|packets| (self.capacity / packets).min(GROUPS_MAX)).filter(|rows| *rows > 0);
        let at_once = at_once
            .ok_or_else(|| Error::new(format!("GPUs cannot exchange rows of {width} elements of {dtype}")))?;
        if rows <= at_once {
            return self.launch(spec(rows).plan(), own);
        }
        let parts = (0..rows).step_by(at_once as usize).map(|first| {
            let part = own.slice(&[first, 0], &[(first + at_once).min(rows), width])?;
            self.launch(spec(part.dims::<2>()?[0]).plan(), &part)
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        concatenate(&parts.iter().collect::<Vec<_>>(), -2)
    }

    fn launch(&self, plan: Option<Plan>, own: &Array) -> Result<Array> {
        let plan = plan.ok_or_else(|| Error::new("an exchange of too many rows"))?;
        let mut last = self.last.borrow_mut();
        let y = plan.call(&[own, &self.addresses, last.as_ref().unwrap_or(own)])?.pop();
        let y = y.ok_or_else(|| Error::new("an exchange without rows"))?;
        *last = Some(y.clone());
        Ok(y)
    }
}
