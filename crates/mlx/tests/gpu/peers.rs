//! Exchanges of rows: what one rank sends, reads and gives.

use mlx::Dtype::{self, Bf16, F16, F32, I32};
use mlx::gpu::{Dialect, PeerRows, Plan, Together};

use crate::emulator::{Break, Numbers, Program, Tensor};

/// Bytes before the packets, and of a packet.
const HEAD: usize = 256;
const PACKET: usize = 16;

/// One exchange of a rank, whose peers' packets are there.
struct Case {
    plan: Plan,
    spec: PeerRows,
    /// Of each rank.
    rows: Vec<Tensor>,
    /// Of the exchange.
    number: u32,
}

fn case(dtype: Dtype, (rows, width): (i32, i32), (rank, ranks): (i32, i32), together: Together) -> Case {
    let capacity = rows * width * dtype.size_of() as i32 / 8 + 3;
    let spec = PeerRows { dtype, rows, width, rank, ranks, capacity, together };
    let mut numbers = Numbers(rows as u64 * 31 + width as u64);
    let of_ranks = (0..ranks).map(|_| numbers.tensor(dtype, &[rows, width])).collect();
    Case { plan: spec.plan().unwrap(), spec, rows: of_ranks, number: 6 + rank as u32 % 2 }
}

impl Case {
    /// Bytes of the memory of a rank.
    fn size(&self) -> usize {
        HEAD + 2 * (self.spec.ranks * self.spec.capacity) as usize * PACKET
    }

    /// Where a rank's packets begin in the memory of another.
    fn place(&self, of: i32, from: i32) -> usize {
        let half = (self.number % 2) as i32 * self.spec.ranks;
        of as usize * self.size() + HEAD + ((half + from) * self.spec.capacity) as usize * PACKET
    }

    fn packets(&self, rank: i32) -> Vec<u8> {
        let flag = self.number.to_ne_bytes();
        let halves = self.rows[rank as usize].bytes.chunks_exact(4);
        halves.flat_map(|half| half.iter().chain(&flag).copied().collect::<Vec<u8>>()).collect()
    }

    /// The memory of all ranks, with the packets of these ranks in the memory of that one.
    fn memory(&self, of: i32, from: &[i32], number: u32) -> Vec<u8> {
        let mut memory = vec![0; self.size() * self.spec.ranks as usize];
        for from in from {
            let (at, packets) = (self.place(of, *from), self.packets(*from));
            memory[at..at + packets.len()].copy_from_slice(&packets);
        }
        let own = self.spec.rank as usize * self.size();
        memory[own..own + 4].copy_from_slice(&number.to_ne_bytes());
        memory
    }

    fn expected(&self) -> Vec<u8> {
        match self.spec.together {
            Together::All => self.rows.iter().flat_map(|rows| rows.bytes.clone()).collect(),
            Together::Sum => {
                let mut sum = self.rows[0].to_f64().iter().map(|x| *x as f32).collect::<Vec<_>>();
                for rows in &self.rows[1..] {
                    sum.iter_mut().zip(rows.to_f64()).for_each(|(sum, x)| *sum += x as f32);
                }
                Tensor::floats(self.spec.dtype, &[self.spec.rows, self.spec.width], &sum).bytes
            }
        }
    }

    /// Whether the plan at this place of a program does what it should.
    fn is_right(&self, program: &Program, at: usize) -> bool {
        let (rank, ranks) = (self.spec.rank, self.spec.ranks);
        let others: Vec<i32> = (0..ranks).filter(|other| *other != rank).collect();
        let memory = self.memory(rank, &others, self.number - 1);
        let addresses: Vec<i32> = (0..ranks).flat_map(|of| [of * self.size() as i32, 0]).collect();
        let shape = vec![memory.len() as i32 / 4];
        let memory = Tensor { dtype: I32, shape, bytes: memory };
        let inputs = [self.rows[rank as usize].clone(), Tensor::ints(&addresses), memory];
        let Ok(arrays) = program.run(at, &self.plan, &inputs, 5) else { return false };
        let mut memory = self.memory(rank, &others, self.number);
        for other in others {
            let (at, packets) = (self.place(other, rank), self.packets(rank));
            memory[at..at + packets.len()].copy_from_slice(&packets);
        }
        arrays[2].bytes == memory && arrays[3].bytes == self.expected()
    }

    fn broken(&self, broken: Break) -> (Plan, Vec<Dtype>, Break) {
        (self.plan.clone(), vec![self.spec.dtype, I32, I32], broken)
    }
}

#[test]
fn ranks_send_their_rows_and_add_those_of_all_in_order() {
    let cases = [
        case(Bf16, (1, 4), (0, 2), Together::Sum),
        case(Bf16, (3, 4096), (1, 2), Together::Sum),
        case(F16, (2, 260), (2, 3), Together::Sum),
        case(F32, (5, 2050), (3, 4), Together::Sum),
        case(F32, (3, 1026), (1, 3), Together::All),
        case(Bf16, (2, 64), (0, 2), Together::All),
    ];
    let plans: Vec<_> = cases.iter().map(|case| case.broken(None)).collect();
    let program = Program::new("peer_rows", Dialect::Cuda, &plans);
    for (at, case) in cases.iter().enumerate() {
        assert!(case.is_right(&program, at), "{:?}", case.spec);
    }
}

#[test]
fn what_is_wrong_in_an_exchange_is_noticed() {
    let case = case(F32, (3, 700), (1, 3), Together::Sum);
    // It reads the other half, sends to the wrong place, takes another rank's rows for its own, does not count, or subtracts.
    let broken = [
        ("(gk_long)(number & 1) * RANKS", "(gk_long)(~number & 1) * RANKS"),
        ("gk_push(to + ((half + RANK)", "gk_push(to + ((half + r)"),
        ("r == RANK ? from[i]", "r == 0 ? from[i]"),
        ("*own = number", "*own = 0"),
        ("gk_to<T>::of(sum.v[k])", "gk_to<T>::of(-sum.v[k])"),
    ];
    let plans: Vec<_> = broken.iter().map(|broken| case.broken(Some(*broken))).collect();
    let program = Program::new("peer_rows_broken", Dialect::Cuda, &plans);
    for (at, broken) in broken.iter().enumerate() {
        assert!(!case.is_right(&program, at), "{broken:?}");
    }
}

#[test]
fn rows_that_end_within_a_packet_or_do_not_fit_have_no_plan() {
    let spec = case(Bf16, (2, 64), (0, 2), Together::Sum).spec;
    assert!(PeerRows { width: 62, ..spec }.plan().is_none());
    assert!(PeerRows { width: 0, ..spec }.plan().is_none());
    assert!(PeerRows { rows: 3, ..spec }.plan().is_none());
    assert!(PeerRows { dtype: I32, ..spec }.plan().is_none());
}
