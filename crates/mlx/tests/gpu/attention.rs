//! Attention over blocks: rows that decode, prompt chunks, and batches of both.

mod matrix;

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{Dialect, HeadShape, ITEM_FIELDS, MatrixUnit, PagedAttention, Plan, PoolFormat, SinkLogits};

use crate::emulator::{Numbers, Program, Tensor, error, tolerance};
use crate::pools;

/// Rows of one sequence, after `context` earlier tokens.
#[derive(Clone, Copy)]
struct Segment {
    context: usize,
    rows: usize,
}

/// A layer and a batch with its pools. What no row may read is NaN, and unused entries of tables are out of range.
struct World {
    attention: PagedAttention,
    segments: Vec<Segment>,
    queries: Tensor,
    pools: [Tensor; 2],
    /// Of each query head.
    sinks: Tensor,
    tables: Vec<Vec<i32>>,
    freed: Vec<usize>,
    expected: Vec<f64>,
}

impl World {
    fn new(attention: PagedAttention, segments: &[(usize, usize)]) -> Self {
        let segments: Vec<Segment> =
            segments.iter().map(|(context, rows)| Segment { context: *context, rows: *rows }).collect();
        let HeadShape { heads, kv_heads, head_dim } = attention.shape;
        let mut numbers = Numbers(segments.len() as u64 + heads as u64 * 31);
        let rows: usize = segments.iter().map(|segment| segment.rows).sum();
        let size = attention.block_size as usize;
        let blocks: usize = segments.iter().map(|one| (one.context + one.rows).div_ceil(size) + 1).sum();
        let heads_held = [blocks as i32, attention.block_size, kv_heads];
        let mut pool = || pools::random(attention.pool, &heads_held, head_dim, &mut numbers);
        let pools = [pool(), pool()];
        let sinks = numbers.tensor(F32, &[heads]);
        let queries = numbers.tensor(attention.dtype, &[rows as i32, heads * head_dim]);
        let mut free: Vec<i32> = (0..blocks as i32).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, numbers.below(i + 1));
        }
        let mut world = Self {
            attention,
            segments,
            queries,
            pools,
            sinks,
            tables: vec![],
            freed: vec![],
            expected: vec![],
        };
        let mut held = vec![false; blocks * size];
        for segment in world.segments.clone() {
            let end = segment.context + segment.rows;
            let sinks = (attention.sink_tokens as usize).div_ceil(size);
            let passed = attention
                .window
                .map_or(0, |window| (segment.context + 1).saturating_sub(window as usize) / size);
            let freed = passed.saturating_sub(sinks);
            let table: Vec<i32> = (0..end.div_ceil(size) - freed).map(|_| free.pop().unwrap()).collect();
            for key in 0..end {
                let block = key / size;
                if block < sinks || block >= sinks + freed {
                    let at = table[if block < sinks { block } else { block - freed }];
                    held[at as usize * size + key % size] = true;
                }
            }
            world.tables.push(table);
            world.freed.push(freed);
        }
        for pool in &mut world.pools {
            let width = pool.bytes.len() / held.len();
            for (row, held) in pool.bytes.chunks_exact_mut(width).zip(&held) {
                if !held {
                    row.fill(0xff);
                }
            }
        }
        world.expected = world.reference();
        world
    }

    fn reference(&self) -> Vec<f64> {
        let HeadShape { heads, kv_heads, head_dim } = self.attention.shape;
        let (heads, kv_heads, dim) = (heads as usize, kv_heads as usize, head_dim as usize);
        let size = self.attention.block_size as usize;
        let sinks = self.attention.sink_tokens as usize;
        let (queries, sink_logits) = (self.queries.to_f64(), self.sinks.to_f64());
        let [keys, values] = self.pools.each_ref().map(|pool| pools::floats(self.attention.pool, pool, dim));
        let (mut out, mut row) = (Vec::new(), 0);
        for ((segment, table), freed) in self.segments.iter().zip(&self.tables).zip(&self.freed) {
            for position in segment.context..segment.context + segment.rows {
                let seen = |key: &usize| {
                    self.attention.window.is_none_or(|window| key + window as usize > position)
                        || *key < sinks
                };
                let slots: Vec<usize> = (0..=position)
                    .filter(seen)
                    .map(|key| {
                        let block = key / size;
                        let at = if block < sinks.div_ceil(size) { block } else { block - freed };
                        table[at] as usize * size + key % size
                    })
                    .collect();
                for head in 0..heads {
                    let q = &queries[(row * heads + head) * dim..][..dim];
                    let at = |slot: usize| (slot * kv_heads + head / (heads / kv_heads)) * dim;
                    let score = |slot: &usize| {
                        let k = &keys[at(*slot)..][..dim];
                        let score = q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
                            * f64::from(self.attention.scale);
                        self.attention.softcap.map_or(score, |cap| {
                            let cap = f64::from(cap);
                            cap * (score / cap).tanh()
                        })
                    };
                    let scores: Vec<f64> = slots.iter().map(score).collect();
                    let sink = match self.attention.sink_logits {
                        SinkLogits::Absent => f64::NEG_INFINITY,
                        SinkLogits::PerHead => sink_logits[head],
                    };
                    let top = scores.iter().copied().fold(sink, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                    let total: f64 = weights.iter().sum::<f64>() + (sink - top).exp();
                    out.extend((0..dim).map(|i| {
                        slots
                            .iter()
                            .zip(&weights)
                            .map(|(slot, w)| w / total * values[at(*slot) + i])
                            .sum::<f64>()
                    }));
                }
                row += 1;
            }
        }
        out
    }

    /// One item for every `most` rows of the segments with these numbers of rows, and padding if wanted.
    fn items(&self, most: usize, wanted: impl Fn(usize) -> Item) -> Vec<i32> {
        let (mut items, mut row, mut start) = (Vec::new(), 0, 0);
        for ((segment, table), freed) in self.segments.iter().zip(&self.tables).zip(&self.freed) {
            for first in (0..segment.rows).step_by(most) {
                let rows = most.min(segment.rows - first);
                let position = (segment.context + first) as i32;
                let (position, kind) = match wanted(segment.rows) {
                    Item::Attend => (position, 0),
                    Item::Zero => (-(rows as i32), 0),
                    Item::Copy => (position, 1),
                };
                let numbers = [(row + first) as i32, rows as i32, position, start, *freed as i32, kind, 0, 0];
                items.extend(numbers);
            }
            row += segment.rows;
            start += table.len() as i32 + 3;
        }
        items
    }

    fn table(&self) -> Tensor {
        let unused = [1 << 28; 3];
        let entries: Vec<i32> =
            self.tables.iter().flat_map(|table| table.iter().chain(&unused).copied()).collect();
        Tensor::ints(&entries)
    }

    fn inputs(&self, plan: &Plan, items: &[i32], other: &Tensor) -> Vec<Tensor> {
        let input = |name: &&str| match *name {
            "q" => self.queries.clone(),
            "kpool" => self.pools[0].clone(),
            "vpool" => self.pools[1].clone(),
            "items" => Tensor::ints(items),
            "table" => self.table(),
            "sinks" => self.sinks.clone(),
            "counter" => Tensor { dtype: Dtype::U32, ..Tensor::ints(&vec![0; 1024]) },
            _ => other.clone(),
        };
        plan.kernel.inputs.iter().map(input).collect()
    }
}

enum Item {
    Attend,
    Zero,
    Copy,
}

/// A launch, or two of which the second reduces what the first left, and what must come out.
struct Case {
    plans: Vec<Plan>,
    inputs: Vec<Tensor>,
    items: Vec<i32>,
    sinks: Tensor,
    expected: Vec<f64>,
    dtype: Dtype,
}

fn decode(dialect: Dialect, world: &World, splits: i32) -> Case {
    let rows = world.segments.len() as i32;
    let items = world.items(1, |_| Item::Attend);
    let plans = world.attention.decode_split(dialect, rows, rows, splits);
    let inputs = world.inputs(&plans[0], &items, &world.queries);
    let (expected, sinks) = (world.expected.clone(), world.sinks.clone());
    Case { plans, inputs, items, sinks, expected, dtype: world.attention.dtype }
}

/// Chunks are computed; single rows are copied from the queries.
fn chunks(dialect: Dialect, world: &World) -> Case {
    let rows: usize = world.segments.iter().map(|segment| segment.rows).sum();
    let most = world.attention.chunk_rows(dialect) as usize;
    let items = world.items(most, |rows| match rows {
        1 => Item::Copy,
        2 => Item::Zero,
        _ => Item::Attend,
    });
    let plan = world.attention.chunks(dialect, rows as i32, (items.len() / ITEM_FIELDS) as i32);
    let (mut expected, queries) = (world.expected.clone(), world.queries.to_f64());
    let (width, mut row) = (expected.len() / rows, 0);
    for segment in &world.segments {
        let range = row * width..(row + segment.rows) * width;
        match segment.rows {
            1 => expected[range.clone()].copy_from_slice(&queries[range]),
            2 => expected[range].fill(0.0),
            _ => {}
        }
        row += segment.rows;
    }
    let inputs = world.inputs(&plan, &items, &world.queries);
    let (sinks, dtype) = (world.sinks.clone(), world.attention.dtype);
    Case { plans: vec![plan], inputs, items, sinks, expected, dtype }
}

/// The largest error of any case, as a share of what is tolerated.
fn worst(name: &str, dialect: Dialect, cases: &[Case]) -> f64 {
    let plans: Vec<_> = cases.iter().map(|case| (case.plans[0].clone(), types(case), None)).collect();
    let program = Program::new(name, dialect, &plans);
    let halves: Vec<_> = cases.iter().filter_map(|case| case.plans.get(1)).collect();
    let reducer = (!halves.is_empty()).then(|| {
        let plans: Vec<_> =
            halves.iter().map(|plan| ((*plan).clone(), vec![F32, Dtype::I32, F32], None)).collect();
        Program::new(&format!("{name}_reduce"), dialect, &plans)
    });
    let (mut most, mut reduced) = (0f64, 0);
    for (at, case) in cases.iter().enumerate() {
        for seed in [1, 2] {
            let Ok(arrays) = program.run(at, &case.plans[0], &case.inputs, seed) else {
                return f64::INFINITY;
            };
            let mut outputs = arrays[case.inputs.len()..].to_vec();
            if let (Some(plan), Some(reducer)) = (case.plans.get(1), &reducer) {
                let inputs = [outputs[1].clone(), Tensor::ints(&case.items), case.sinks.clone()];
                let Ok(arrays) = reducer.run(reduced, plan, &inputs, seed) else { return f64::INFINITY };
                outputs = arrays[3..].to_vec();
            }
            most = most.max(error(&outputs[0].to_f64(), &case.expected) / tolerance(case.dtype));
        }
        reduced += usize::from(case.plans.len() > 1);
    }
    most
}

fn types(case: &Case) -> Vec<Dtype> {
    case.inputs.iter().map(|input| input.dtype).collect()
}

/// Each text replaced in turn, and the index of a case that must notice.
fn all_noticed(name: &str, dialect: Dialect, cases: &[Case], breaks: &[(usize, &'static str, &'static str)]) {
    let plan = |(case, old, new): &(usize, &'static str, &'static str)| {
        (cases[*case].plans[0].clone(), types(&cases[*case]), Some((*old, *new)))
    };
    let program = Program::new(name, dialect, &breaks.iter().map(plan).collect::<Vec<_>>());
    for (at, (case, old, _)) in breaks.iter().enumerate() {
        let case = &cases[*case];
        let fails = |seed| match program.run(at, &case.plans[0], &case.inputs, seed) {
            Ok(arrays) => error(&arrays[case.inputs.len()].to_f64(), &case.expected) > tolerance(case.dtype),
            Err(_) => true,
        };
        assert!(
            (1..=4).chain(101..=104).chain(201..=204).any(fails),
            "{name}: `{old}` was replaced, and nothing noticed"
        );
    }
}

fn attention(dtype: Dtype, heads: [i32; 3], block_size: i32) -> PagedAttention {
    let [heads, kv_heads, head_dim] = heads;
    let shape = HeadShape { heads, kv_heads, head_dim };
    let scale = (head_dim as f32).powf(-0.5);
    PagedAttention {
        dtype,
        pool: PoolFormat::Float(dtype),
        shape,
        block_size,
        window: None,
        sink_tokens: 0,
        scale,
        softcap: None,
        sink_logits: SinkLogits::Absent,
        unit: MatrixUnit::SimdGroup,
    }
}

fn windowed(attention: PagedAttention, window: i32, sink_tokens: i32) -> PagedAttention {
    PagedAttention { window: Some(window), sink_tokens, ..attention }
}

fn packed(attention: PagedAttention, bits: i32, group: i32) -> PagedAttention {
    PagedAttention { pool: PoolFormat::Packed { bits, group }, ..attention }
}

fn capped(attention: PagedAttention, cap: f32) -> PagedAttention {
    PagedAttention { softcap: Some(cap), ..attention }
}

fn with_sinks(attention: PagedAttention) -> PagedAttention {
    PagedAttention { sink_logits: SinkLogits::PerHead, ..attention }
}

/// Single rows after these contexts.
fn rows(contexts: &[usize]) -> Vec<(usize, usize)> {
    contexts.iter().map(|context| (*context, 1)).collect()
}

fn by_warpgroups(attention: PagedAttention) -> PagedAttention {
    PagedAttention { unit: MatrixUnit::Warpgroup, ..attention }
}

fn plain_decodes(dialect: Dialect) -> Vec<Case> {
    let world = |attention, contexts: &[usize]| World::new(attention, &rows(contexts));
    vec![
        decode(dialect, &world(attention(F32, [8, 2, 128], 16), &[0, 36, 99]), 3),
        decode(dialect, &world(attention(F32, [4, 2, 64], 32), &[76, 1]), 1),
        decode(dialect, &world(attention(F32, [6, 1, 80], 16), &[129]), 4),
        decode(dialect, &world(attention(F16, [7, 1, 248], 16), &[32, 64]), 2),
        decode(dialect, &world(windowed(attention(F32, [4, 2, 128], 32), 41, 0), &[149, 8]), 2),
        decode(dialect, &world(windowed(attention(F32, [2, 2, 8], 4), 9, 5), &[60, 12, 3, 13]), 2),
        decode(
            dialect,
            &world(PagedAttention { pool: PoolFormat::Float(F16), ..attention(Bf16, [3, 1, 96], 8) }, &[20]),
            1,
        ),
        decode(dialect, &world(packed(attention(F32, [8, 2, 128], 16), 8, 64), &[0, 36, 99]), 3),
        decode(dialect, &world(packed(attention(F32, [5, 1, 96], 16), 4, 32), &[51]), 1),
        decode(dialect, &world(capped(attention(F32, [4, 2, 256], 16), 1.5), &[40, 3]), 2),
        decode(dialect, &world(with_sinks(attention(F32, [6, 2, 64], 16)), &[0, 70]), 2),
        decode(dialect, &world(attention(F32, [8, 1, 512], 16), &[33, 70]), 3),
        decode(dialect, &world(packed(windowed(attention(F32, [3, 1, 320], 8), 19, 0), 8, 64), &[40, 3]), 1),
        decode(dialect, &world(with_sinks(windowed(attention(F32, [4, 4, 64], 16), 17, 0)), &[44]), 1),
    ]
}

fn plain_chunks(dialect: Dialect) -> Vec<Case> {
    vec![
        chunks(dialect, &World::new(attention(F32, [8, 2, 128], 16), &[(0, 21), (40, 1), (13, 5)])),
        chunks(dialect, &World::new(attention(F32, [5, 1, 40], 8), &[(0, 2), (3, 33)])),
        chunks(dialect, &World::new(windowed(attention(F32, [2, 2, 64], 16), 19, 3), &[(50, 30), (2, 20)])),
        chunks(dialect, &World::new(windowed(attention(F16, [4, 1, 256], 16), 24, 0), &[(30, 9)])),
        chunks(dialect, &World::new(packed(attention(F32, [4, 2, 64], 16), 4, 64), &[(20, 19), (0, 1)])),
        chunks(dialect, &World::new(attention(Bf16, [8, 1, 512], 16), &[(5, 9), (0, 2)])),
        chunks(dialect, &World::new(packed(attention(Bf16, [6, 3, 512], 16), 4, 64), &[(0, 7)])),
        chunks(dialect, &World::new(with_sinks(capped(attention(F32, [4, 2, 64], 16), 2.0)), &[(20, 19)])),
    ]
}

fn tensor_decodes() -> Vec<Case> {
    let world = |attention, contexts: &[usize]| World::new(attention, &rows(contexts));
    vec![
        decode(Dialect::Cuda, &world(attention(Bf16, [8, 2, 128], 16), &[0, 36, 99]), 3),
        decode(Dialect::Cuda, &world(attention(F16, [5, 1, 64], 32), &[76]), 1),
        decode(Dialect::Cuda, &world(attention(Bf16, [24, 2, 64], 16), &[50, 3]), 2),
        decode(Dialect::Cuda, &world(windowed(attention(Bf16, [8, 1, 128], 32), 41, 0), &[149, 8]), 2),
        decode(Dialect::Cuda, &world(windowed(attention(F16, [2, 2, 64], 16), 20, 5), &[149, 22, 7, 36]), 2),
        decode(Dialect::Cuda, &world(packed(attention(Bf16, [8, 2, 128], 16), 8, 64), &[0, 36, 99]), 3),
        decode(Dialect::Cuda, &world(packed(attention(F16, [24, 2, 64], 16), 8, 64), &[50, 3]), 2),
        decode(Dialect::Cuda, &world(packed(attention(Bf16, [12, 1, 128], 16), 4, 128), &[177]), 1),
        decode(Dialect::Cuda, &world(packed(attention(Bf16, [4, 2, 128], 32), 4, 64), &[61, 2]), 2),
        decode(Dialect::Cuda, &world(with_sinks(attention(Bf16, [16, 2, 64], 16)), &[0, 61]), 2),
        decode(Dialect::Cuda, &world(capped(attention(F16, [4, 2, 128], 16), 1.5), &[61]), 1),
        decode(Dialect::Cuda, &world(attention(Bf16, [4, 1, 128], 16), &[600, 17]), 19),
        decode(Dialect::Cuda, &world(attention(Bf16, [2, 1, 64], 16), &[700]), 40),
        decode(Dialect::Cuda, &world(attention(Bf16, [8, 2, 256], 16), &[0, 36, 99]), 3),
        decode(Dialect::Cuda, &world(attention(F16, [8, 1, 512], 32), &[76]), 1),
        decode(Dialect::Cuda, &world(windowed(attention(Bf16, [24, 2, 256], 16), 41, 0), &[149, 8]), 2),
        decode(Dialect::Cuda, &world(attention(Bf16, [2, 1, 256], 16), &[700]), 20),
        decode(Dialect::Cuda, &world(packed(attention(Bf16, [8, 2, 256], 16), 8, 64), &[0, 36, 99]), 3),
        decode(Dialect::Cuda, &world(packed(attention(F16, [4, 1, 512], 16), 4, 128), &[61]), 2),
        decode(Dialect::Cuda, &world(packed(attention(Bf16, [12, 1, 256], 16), 4, 128), &[177]), 1),
    ]
}

fn tensor_chunks() -> Vec<Case> {
    let chunks = |world: &World| chunks(Dialect::Cuda, world);
    vec![
        chunks(&World::new(attention(Bf16, [8, 2, 128], 16), &[(0, 45), (40, 1), (13, 5)])),
        chunks(&World::new(attention(F16, [5, 1, 80], 32), &[(0, 2), (77, 30)])),
        chunks(&World::new(attention(Bf16, [2, 2, 64], 16), &[(0, 150)])),
        chunks(&World::new(windowed(attention(F16, [4, 2, 64], 16), 19, 3), &[(50, 70), (2, 20)])),
        chunks(&World::new(windowed(attention(Bf16, [2, 1, 32], 16), 40, 0), &[(100, 9)])),
        chunks(&World::new(windowed(attention(Bf16, [4, 2, 256], 32), 33, 0), &[(7, 61)])),
        chunks(&World::new(packed(attention(Bf16, [8, 2, 128], 16), 8, 64), &[(0, 45), (40, 1), (13, 5)])),
        chunks(&World::new(packed(attention(F16, [4, 2, 64], 16), 4, 32), &[(50, 70)])),
        chunks(&World::new(with_sinks(attention(Bf16, [8, 2, 64], 16)), &[(0, 2), (9, 40)])),
        chunks(&World::new(capped(with_sinks(attention(F16, [4, 2, 256], 16)), 1.5), &[(9, 40)])),
        chunks(&World::new(by_warpgroups(attention(Bf16, [8, 1, 512], 16)), &[(5, 9), (0, 2), (40, 30)])),
        chunks(&World::new(by_warpgroups(windowed(attention(F16, [4, 2, 320], 32), 33, 0)), &[(7, 61)])),
        chunks(&World::new(by_warpgroups(packed(attention(Bf16, [4, 2, 512], 16), 8, 64)), &[(0, 40)])),
    ]
}

fn wide_chunks() -> Vec<Case> {
    let chunks = |attention: PagedAttention, segments: &[(usize, usize)]| {
        chunks(Dialect::Cuda, &World::new(by_warpgroups(attention), segments))
    };
    let cases = vec![
        chunks(attention(Bf16, [8, 2, 128], 16), &[(0, 45), (40, 1), (13, 5)]),
        chunks(attention(Bf16, [5, 1, 64], 32), &[(0, 2), (77, 130)]),
        chunks(attention(Bf16, [14, 2, 64], 4), &[(0, 290)]),
        chunks(windowed(attention(Bf16, [4, 2, 64], 16), 19, 3), &[(150, 70), (2, 20)]),
        chunks(windowed(attention(Bf16, [2, 1, 128], 16), 140, 0), &[(300, 9), (10, 200)]),
        chunks(windowed(attention(Bf16, [6, 2, 64], 16), 70, 70), &[(50, 190)]),
        chunks(with_sinks(attention(Bf16, [8, 2, 64], 16)), &[(0, 2), (9, 40)]),
        chunks(capped(with_sinks(attention(Bf16, [4, 2, 128], 16)), 1.5), &[(9, 240)]),
        chunks(attention(F16, [4, 1, 64], 16), &[(0, 45), (40, 30)]),
    ];
    assert!(cases.iter().all(|case| case.plans[0].kernel.name == "attn_chunk_wide"));
    cases
}

#[test]
fn wide_chunks_equal_their_reference() {
    let worst = worst("chunk_wide_cuda", Dialect::Cuda, &wide_chunks());
    assert!(worst < 1.0, "{worst}");
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_wide_chunks_are_noticed() {
    let breaks = [
        (2, "gk_wait<LAG>();", ""),
        (
            2,
            "gk_join<256>(full(n, warpgroup));\ngk_warpgroup_begin();\nscores(n);\nadd_values",
            "gk_warpgroup_begin();\nscores(n);\nadd_values",
        ),
        (2, "if (n >= ST) gk_join<ALL>(1 + n % ST);", ""),
        (2, "acc[d][i] *= a[i >> 1];", ";"),
        (2, "gk_warpgroup_wait<1>();", ""),
        (2, "gk_before_wait(l[0] + l[1]);\ngk_warpgroup_wait<0>();", ""),
        (1, "k < keys_seen", "k < hi"),
        (4, "c % 4 * 32", "c % 4 * 16"),
        (4, "chunk % 8 ^ key % 8", "chunk % 8"),
        (6, "m[o] * scale, sink", "m[o], sink"),
        (0, "row0 + i / (G * ND)", "row0 + 1 + i / (G * ND)"),
        (3, "b0 + i < SB ? b0 + i : b0 + i - freed", "b0 + i"),
        (5, "if (SINK > 0 && lo > SINK)", "if (SINK > 0 && lo > 0)"),
    ];
    all_noticed("chunk_wide_broken", Dialect::Cuda, &wide_chunks(), &breaks);
}

#[test]
fn plain_decode_equals_its_reference() {
    for (name, dialect) in [("rows_cuda", Dialect::Cuda), ("rows_metal", Dialect::Metal)] {
        let worst = worst(name, dialect, &plain_decodes(dialect));
        assert!(worst < 1.0, "{name}: {worst}");
    }
}

#[test]
fn plain_chunks_equal_their_reference() {
    for (name, dialect) in [("chunks_cuda", Dialect::Cuda), ("chunks_metal", Dialect::Metal)] {
        let mut cases = plain_chunks(dialect);
        // Tensor cores and simdgroup matrices have others.
        cases.retain(|case| case.plans[0].kernel.name == "attn_rows");
        let worst = worst(name, dialect, &cases);
        assert!(worst < 1.0, "{name}: {worst}");
    }
}

#[test]
fn tensor_decode_equals_its_reference() {
    let worst = worst("mma_cuda", Dialect::Cuda, &tensor_decodes());
    assert!(worst < 1.0, "{worst}");
}

#[test]
fn tensor_chunks_equal_their_reference() {
    let worst = worst("chunk_mma_cuda", Dialect::Cuda, &tensor_chunks());
    assert!(worst < 1.0, "{worst}");
}

#[test]
fn broken_decode_is_noticed() {
    let breaks = [
        (0, "GK_BARRIER();\nfor (int i = GK_TID; i < R * D", "for (int i = GK_TID; i < R * D"),
        (1, "k < end && k < n[g]", "k <= end && k <= n[g]"),
        (2, "o = LPK / 2", "o = LPK / 4"),
        (5, "b : b - freed", "b : b"),
        (4, "k + WINDOW >= n[g]", "k + WINDOW > n[g]"),
        (11, "(lane % LPK) * E", "(lane % LPK) * 8"),
        (2, "(gk_uint)(GK_GROUPS_X - 1);\n  GK_BARRIER();", "(gk_uint)(GK_GROUPS_X - 1);\n"),
    ];
    all_noticed("rows_broken", Dialect::Cuda, &plain_decodes(Dialect::Cuda), &breaks);
}

#[test]
fn broken_tensor_decode_is_noticed() {
    let breaks = [
        (1, "across<P>(x.v[0][0][h], x.v[0][1][h], 2 * e),", "across<P>(x.v[0][1][h], x.v[0][0][h], 2 * e),"),
        (5, "x.kscale[e >> 1][w]", "x.kscale[0][w]"),
        (7, "biased[o][w][j] *= a[j];", ";"),
        (5, "{s0, s1, s0, s1}", "{0, 0, 0, 0}"),
        (0, "p[i] = gk_turned(p[i]);", ""),
        (9, "gk_weighted<SINK_LOGITS>(x[k], w, top, sink)", "gk_weighted<false>(x[k], w, top, sink)"),
        (1, "k < n && (WINDOW", "k <= n && (WINDOW"),
        (2, "g + 8 * o) * D + d0 + c * 32", "g) * D + d0 + c * 32"),
        (11, "from < j1; from += BATCH", "from < j0 + 1; from += BATCH"),
        (12, "gk_shfl(a, i * SIDES + side)", "gk_shfl(a, i)"),
        (
            11,
            "(gk_uint)(GK_GROUPS_X - 1);\n  GK_FENCE();\n  }\n  GK_BARRIER();",
            "(gk_uint)(GK_GROUPS_X - 1);\n  GK_FENCE();\n  }\n",
        ),
    ];
    let of_wide_heads = [
        (13, "gk_join<DS * 32>(1 + ks);", ""),
        (14, "turn ^= 1;", ""),
        (14, "s[e] += own[i * 32].v[e]", "s[e] = own[i * 32].v[e]"),
        (15, "HALVES + o) * NS + ks", "HALVES) * NS + ks"),
        (16, "piece % DS * DO + GK_LANE", "GK_LANE"),
        (17, "numbers<Head, NG * DS>(kpool + key, d0 / OF_GROUP", "numbers<Head, NG * DS>(kpool + key, 0"),
        (18, "numbers<Head, NG * DS>(vpool + key, d0 / OF_GROUP", "numbers<Head, NG * DS>(vpool + key, 0"),
    ];
    let breaks: Vec<_> = breaks.into_iter().chain(of_wide_heads).collect();
    all_noticed("mma_broken", Dialect::Cuda, &tensor_decodes(), &breaks);
}

#[test]
fn broken_tensor_chunks_are_noticed() {
    let breaks = [
        (1, "gk_wait<1>();", ""),
        (1, "gk_wait<1>();\n  GK_BARRIER();", "gk_wait<1>();"),
        (2, "store(tile + 1);\n  GK_BARRIER();\n}", "store(tile + 1);\n}"),
        (6, "store(0);\n", ""),
        (8, "m[o] * scale, sink", "m[o], sink"),
        (2, "k < keys_seen", "k < hi"),
        (4, "gk_matrices_t", "gk_matrices"),
        (0, "row0 + i / (G * (D / 8))", "row0 + 1 + i / (G * (D / 8))"),
        (10, "gk_join<DS * 32>(1 + simd);", ""),
        (10, "s[j][i] += other.v[i]", "s[j][i] += s[j][i]"),
        (11, "2 * TILE + d0", "2 * TILE"),
    ];
    all_noticed("chunk_mma_broken", Dialect::Cuda, &tensor_chunks(), &breaks);
}
