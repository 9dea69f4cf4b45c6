//! Exchanges of rows: what one rank sends, reads and gives.

use mlx::Dtype::{self, Bf16, F16, F32, I32};
use mlx::gpu::{Dialect, PeerRoom, PeerRows, Plan, Together};

use crate::emulator::{Break, Numbers, Program, Tensor};

/// Bytes before the packets, and of a packet.
const HEAD: usize = 256;
const PACKET: usize = 16;

/// Bytes of rows in packets or in pieces of chunks.
const IN_PACKET: usize = 8;

/// One exchange of a rank, whose peers' rows are there.
struct Case {
    plan: Plan,
    spec: PeerRows,
    /// Of each rank.
    rows: Vec<Tensor>,
    /// Of the exchange.
    number: u32,
}

/// How rows are exchanged.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Packets,
    Chunks,
}

fn case(
    by: By,
    dtype: Dtype,
    (rows, width): (i32, i32),
    (rank, ranks): (i32, i32),
    together: Together,
) -> Case {
    let bytes = rows * width * dtype.size_of() as i32;
    let room = match by {
        By::Packets => PeerRoom { packets: bytes / IN_PACKET as i32 + 3, pieces: 5 },
        By::Chunks => PeerRoom { packets: 1, pieces: bytes / PACKET as i32 + 64 * rows },
    };
    let spec = PeerRows { dtype, rows, width, rank, ranks, room, together };
    let mut numbers = Numbers(rows as u64 * 31 + width as u64);
    let of_ranks = (0..ranks).map(|_| numbers.tensor(dtype, &[rows, width])).collect();
    Case { plan: spec.plan().unwrap(), spec, rows: of_ranks, number: 6 + rank as u32 % 2 }
}

impl Case {
    /// Bytes of the memory of a rank.
    fn size(&self) -> usize {
        self.spec.room.bytes(self.spec.ranks as usize).next_multiple_of(PACKET)
    }

    /// What a rank sends: texts and their places in the memory of another.
    fn sent(&self, of: i32, from: i32) -> Vec<(usize, Vec<u8>)> {
        let PeerRoom { packets, pieces } = self.spec.room;
        let (bytes, flag) = (&self.rows[from as usize].bytes, self.number.to_ne_bytes());
        let ranks = self.spec.ranks as usize;
        let place = (self.number % 2) as usize * ranks + from as usize;
        let memory = of as usize * self.size() + HEAD;
        if self.plan.kernel.name == "peer_rows" {
            let halves = bytes.chunks_exact(4);
            let text = halves.flat_map(|half| half.iter().chain(&flag).copied().collect::<Vec<u8>>());
            return vec![(memory + place * packets as usize * PACKET, text.collect())];
        }
        let at = memory + 2 * ranks * packets as usize * PACKET;
        let flags = flag.repeat((self.plan.groups[0] * self.plan.groups[1]) as usize);
        let of_a_rank = pieces as usize * PACKET;
        let all_flags = self.spec.room.bytes(ranks) - HEAD - 2 * ranks * (packets + pieces) as usize * PACKET;
        let flags_at = at + 2 * ranks * of_a_rank + place * (all_flags / (2 * ranks));
        vec![(at + place * of_a_rank, bytes.clone()), (flags_at, flags)]
    }

    /// The memory of all ranks, with what these ranks send to that one.
    fn memory(&self, of: i32, from: &[i32], number: u32) -> Vec<u8> {
        let mut memory = vec![0; self.size() * self.spec.ranks as usize];
        from.iter().for_each(|from| self.send(&mut memory, of, *from));
        let own = self.spec.rank as usize * self.size();
        memory[own..own + 4].copy_from_slice(&number.to_ne_bytes());
        memory
    }

    fn send(&self, memory: &mut [u8], of: i32, from: i32) {
        for (at, text) in self.sent(of, from) {
            memory[at..at + text.len()].copy_from_slice(&text);
        }
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
        others.iter().for_each(|other| self.send(&mut memory, *other, rank));
        arrays[2].bytes == memory && arrays[3].bytes == self.expected()
    }

    fn broken(&self, broken: Break) -> (Plan, Vec<Dtype>, Break) {
        (self.plan.clone(), vec![self.spec.dtype, I32, I32], broken)
    }
}

#[test]
fn ranks_send_their_rows_and_add_those_of_all_in_order() {
    let of = |by| {
        [
            case(by, Bf16, (1, 8), (0, 2), Together::Sum),
            case(by, Bf16, (3, 4096), (1, 2), Together::Sum),
            case(by, F16, (2, 264), (2, 3), Together::Sum),
            case(by, F32, (5, 2052), (3, 4), Together::Sum),
            case(by, F32, (3, 1028), (1, 3), Together::All),
            case(by, Bf16, (2, 64), (0, 2), Together::All),
        ]
    };
    // Rows that end within a piece go in packets, and a row in several chunks.
    let packets = [case(By::Packets, F16, (2, 260), (2, 3), Together::Sum)];
    let chunks = [case(By::Chunks, Bf16, (3, 9000), (0, 2), Together::Sum)];
    for (name, cases) in [
        ("peer_rows", of(By::Packets).into_iter().chain(packets).collect::<Vec<_>>()),
        ("peer_chunks", of(By::Chunks).into_iter().chain(chunks).collect()),
    ] {
        let plans: Vec<_> = cases.iter().map(|case| case.broken(None)).collect();
        let program = Program::new(name, Dialect::Cuda, &plans);
        for (at, case) in cases.iter().enumerate() {
            assert_eq!(case.plan.kernel.name, name);
            assert!(case.is_right(&program, at), "{name}: {:?}", case.spec);
        }
    }
}

#[test]
fn what_is_wrong_in_an_exchange_is_noticed() {
    // It sends to the wrong place, and in chunks it sends part of a row, or no flag, or one to another place.
    let of_packets: [(&str, &str); 1] = [("gk_push(to + ((half + RANK)", "gk_push(to + ((half + r)")];
    let of_chunks = [
        ("[(half + RANK) * PIECES", "[(half + r) * PIECES"),
        ("behind < pieces ? behind : pieces", "behind < pieces ? behind : pieces - 1"),
        ("gk_post(", "if (RANK > RANKS) gk_post("),
        ("FLAGS_AT + ((half + RANK) * FLAGS + flag)", "FLAGS_AT + ((half + RANK) * FLAGS + flag + 1)"),
    ];
    // It reads the other half, takes another rank's rows for its own, does not count, or subtracts.
    let of_both = [
        ("(gk_long)(number & 1) * RANKS", "(gk_long)(~number & 1) * RANKS"),
        ("r == RANK ? from[i]", "r == 0 ? from[i]"),
        ("*own = number", "*own = 0"),
        ("gk_to<T>::of(sum.v[k])", "gk_to<T>::of(-sum.v[k])"),
    ];
    for (by, name, of_one) in
        [(By::Packets, "peer_rows_broken", &of_packets[..]), (By::Chunks, "peer_chunks_broken", &of_chunks)]
    {
        let case = case(by, F32, (3, 700), (1, 3), Together::Sum);
        let broken = [of_one, &of_both].concat();
        let plans: Vec<_> = broken.iter().map(|broken| case.broken(Some(*broken))).collect();
        let program = Program::new(name, Dialect::Cuda, &plans);
        for (at, broken) in broken.iter().enumerate() {
            assert!(!case.is_right(&program, at), "{broken:?}");
        }
    }
}

#[test]
fn rows_that_end_within_a_packet_or_do_not_fit_have_no_plan() {
    let room = PeerRoom { packets: 32, pieces: 128 };
    let spec = PeerRows { dtype: Bf16, rows: 2, width: 64, rank: 0, ranks: 2, room, together: Together::Sum };
    let kernel = |spec: PeerRows| spec.plan().map(|plan| plan.kernel.name);
    assert_eq!(kernel(spec), Some("peer_rows"));
    // A row has 8 pieces, and there are 3 flags.
    assert_eq!(kernel(PeerRows { rows: 3, ..spec }), Some("peer_chunks"));
    assert_eq!(kernel(PeerRows { rows: 4, ..spec }), None);
    assert_eq!(kernel(PeerRows { rows: 3, width: 60, ..spec }), None);
    assert_eq!(kernel(PeerRows { width: 62, ..spec }), None);
    assert_eq!(kernel(PeerRows { width: 0, ..spec }), None);
    assert_eq!(kernel(PeerRows { dtype: I32, ..spec }), None);
}
