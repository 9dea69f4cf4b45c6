//! Exchanges of rows between the GPUs of several processes on one machine, by kernels that write to each other's memory.
//!
//! Few rows go in packets of eight bytes of data and the number of their exchange, so that a reader knows when one is there (the
//! low-latency protocol of NCCL). Many go as they are, in chunks with one flag behind each. Two halves of the memory are used in turn: a rank
//! sends the rows of an exchange only after it has read those of the one before it from all others, who have then read those of the one before that.

use std::cell::RefCell;

use cxx::UniquePtr;
use mlx_sys as sys;

use super::elementwise::{is_float, upload};
use super::plan::{GROUPS_MAX, Plan, dtype, int};
use super::source::{Kernel, PEER_CHUNKS, PEER_ROWS};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::fast::TemplateArg;
use crate::shape::concatenate;

/// Bytes by which another process opens a memory.
pub const HANDLE_BYTES: usize = 64;

/// Bytes of data that a packet has.
const DATA_BYTES: usize = 8;
/// Bytes of a packet, and of a piece of a chunk.
const PACKET_BYTES: usize = 16;
/// Most bytes of a rank's rows that go in packets.
const IN_PACKETS_MAX: usize = 512 << 10;
/// Pieces of a rank for each flag that there is room for.
const PIECES_OF_A_FLAG: i32 = 64;
const FLAG_BYTES: usize = 4;
/// Bytes of the counters before the packets.
const HEAD_BYTES: usize = 256;
const THREADS: i32 = 256;
/// Packets or pieces that a group sends and reads, where rows are that long.
const OF_A_GROUP: i32 = 2 * THREADS;

/// Room for the rows of a rank, in half of the memory of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRoom {
    /// How many packets.
    pub packets: i32,
    /// How many pieces of chunks.
    pub pieces: i32,
}

impl PeerRoom {
    /// Room for at most so many bytes at a time; `None` for more than 2^31 pieces.
    pub fn of(bytes: usize) -> Option<Self> {
        let packets = bytes.min(IN_PACKETS_MAX).div_ceil(DATA_BYTES);
        Some(Self {
            packets: i32::try_from(packets).ok()?,
            pieces: i32::try_from(bytes.div_ceil(PACKET_BYTES)).ok()?,
        })
    }

    fn flags(self) -> i32 {
        self.pieces.div_euclid(PIECES_OF_A_FLAG) + 1
    }

    /// Bytes of the memory of a rank.
    pub fn bytes(self, ranks: usize) -> usize {
        let [packets, pieces, flags] =
            [self.packets, self.pieces, self.flags()].map(|count| count.max(0) as usize);
        HEAD_BYTES + 2 * ranks * ((packets + pieces) * PACKET_BYTES + flags * FLAG_BYTES)
    }
}

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
    /// Of a rank.
    pub room: PeerRoom,
    /// What is made of the rows.
    pub together: Together,
}

impl PeerRows {
    /// Inputs: this rank's rows `[rows, width]`; the addresses of the memory of each rank, 64 bits each, as i32; an array that is computed
    /// before, which is not read. Output: `[rows, width]`, or `[ranks, rows, width]`. `None` for rows that do not end with a packet, and
    /// where they do not fit.
    pub fn plan(&self) -> Option<Plan> {
        match self.rows <= self.rows_in_packets()? {
            true => self.plan_of(&PEER_ROWS, self.pieces_of_a_row(DATA_BYTES)?, Vec::new()),
            false if self.rows <= self.rows_in_chunks()? => {
                let room = vec![int("PIECES", self.room.pieces), int("FLAGS", self.room.flags())];
                self.plan_of(&PEER_CHUNKS, self.pieces_of_a_row(PACKET_BYTES)?, room)
            }
            false => None,
        }
    }

    fn plan_of(&self, kernel: &'static Kernel, pieces: i32, room: Vec<TemplateArg<'static>>) -> Option<Plan> {
        let shape = match self.together {
            Together::Sum => vec![self.rows, self.width],
            Together::All => vec![self.ranks, self.rows, self.width],
        };
        let constants = vec![
            dtype("T", self.dtype),
            int("W", self.width),
            int("RANK", self.rank),
            int("RANKS", self.ranks),
            int("PACKETS", self.room.packets),
            int("SUM", i32::from(self.together == Together::Sum)),
            int("NT", THREADS),
        ];
        Plan {
            kernel,
            constants: [constants, room].concat(),
            groups: [groups_of_a_row(pieces), self.rows, 1],
            threads: THREADS,
            outputs: vec![(shape, self.dtype)],
        }
        .within_grid()
    }

    /// Rows that are exchanged at once.
    fn rows_at_once(&self) -> Option<i32> {
        Some(self.rows_in_packets()?.max(self.rows_in_chunks().unwrap_or(0))).filter(|rows| *rows > 0)
    }

    fn rows_in_packets(&self) -> Option<i32> {
        Some((self.room.packets / self.pieces_of_a_row(DATA_BYTES)?).min(GROUPS_MAX))
    }

    fn rows_in_chunks(&self) -> Option<i32> {
        let pieces = self.pieces_of_a_row(PACKET_BYTES)?;
        let of_flags = self.room.flags() / groups_of_a_row(pieces);
        Some((self.room.pieces / pieces).min(of_flags).min(GROUPS_MAX))
    }

    /// `None` for rows that do not end with a piece of so many bytes.
    fn pieces_of_a_row(&self, piece: usize) -> Option<i32> {
        let bytes = usize::try_from(self.width).ok()? * self.dtype.size_of();
        let is_whole = bytes > 0 && bytes.is_multiple_of(piece) && is_float(self.dtype);
        is_whole.then(|| i32::try_from(bytes / piece).ok()).flatten()
    }
}

fn groups_of_a_row(pieces: i32) -> i32 {
    pieces.div_euclid(OF_A_GROUP) + i32::from(pieces % OF_A_GROUP > 0)
}

/// This process's memory for an exchange.
pub struct PeerMemory {
    memory: UniquePtr<sys::PeerMemory>,
    room: PeerRoom,
}

impl PeerMemory {
    /// Memory of the first GPU for an exchange among `ranks`, of at most `bytes` of data of each at a time. Fails without CUDA or room.
    pub fn new(ranks: usize, bytes: usize) -> Result<Self> {
        let room = PeerRoom::of(bytes).ok_or_else(|| Error::new("an exchange of more pieces than 2^31"))?;
        Ok(Self { memory: sys::peer_memory(room.bytes(ranks))?, room })
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
        let (Ok(rank), Ok(ranks)) = (i32::try_from(rank), i32::try_from(handles.len())) else {
            return Err(Error::new("an exchange among more ranks than 2^31"));
        };
        Ok(PeerGroup {
            _memory: self.memory,
            addresses,
            rank,
            ranks,
            room: self.room,
            last: RefCell::new(None),
        })
    }
}

/// Ranks that exchange rows. All make the same exchanges in the same order, on one stream.
pub struct PeerGroup {
    /// The kernels write to it.
    _memory: UniquePtr<sys::PeerMemory>,
    addresses: Array,
    rank: i32,
    ranks: i32,
    room: PeerRoom,
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
        let (rank, ranks, room) = (self.rank, self.ranks, self.room);
        let spec = |rows| PeerRows { dtype, rows, width, rank, ranks, room, together };
        let at_once = spec(rows).rows_at_once();
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
