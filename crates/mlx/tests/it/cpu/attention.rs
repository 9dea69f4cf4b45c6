//! Paged attention against a graph of MLX's ops, however a sequence is cut into steps and spread over blocks.

use std::collections::BTreeMap;

use mlx::cpu::{AttentionMetadata, Ends, HeadNorm, PagedAttention, Projected, Rope, RotaryAxes};
use mlx::{Array, Dtype, Result, RotaryPairing};

use super::with_each_isa;

#[derive(Clone, Copy)]
struct Case {
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    v_dim: i32,
    block_size: i32,
    float: Dtype,
    pool: Dtype,
    norms: bool,
    value_norm: Option<f32>,
    projected: Projected,
    rope: Option<(i32, RotaryPairing, f32)>,
    axes: RotaryAxes,
    softcap: Option<f32>,
    window: Option<i32>,
    sink_tokens: i32,
    sinks: bool,
    spans: Option<Ends>,
    tolerance: f32,
}

const PLAIN: Case = Case {
    heads: 6,
    kv_heads: 2,
    head_dim: 64,
    v_dim: 64,
    block_size: 16,
    float: Dtype::F32,
    pool: Dtype::F32,
    norms: false,
    value_norm: None,
    projected: Projected::QueriesKeysValues,
    rope: None,
    axes: RotaryAxes::One,
    softcap: None,
    window: None,
    sink_tokens: 0,
    sinks: false,
    spans: None,
    tolerance: 1e-5,
};

/// Lengths of the sequences.
const LENGTHS: [i32; 3] = [150, 37, 5];

/// Rows that attend in both directions, of sequences: first, end, and the end that they see. Two of them are one span, with
/// causal rows between.
const SPANS: [(usize, i32, i32, i32); 4] =
    [(0, 20, 40, 63), (0, 46, 63, 63), (0, 90, 131, 131), (1, 12, 29, 29)];

fn random(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    let a = mlx::random::normal(shape, Dtype::F32, 1.0, &mlx::random::key(seed)?)?.astype(dtype)?;
    a.eval()?;
    Ok(a)
}

impl Case {
    fn width(&self) -> i32 {
        let of_values = match self.projected {
            Projected::QueriesAndKeys => 0,
            Projected::QueriesKeysValues | Projected::Queries => self.kv_heads * self.v_dim,
        };
        (self.heads + self.kv_heads) * self.head_dim + of_values
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn norm(&self, seed: u64) -> Result<Option<Array>> {
        self.norms.then(|| random(&[self.head_dim], Dtype::F32, seed)).transpose()
    }

    fn freqs(&self) -> Result<Option<Array>> {
        let Some((dims, ..)) = self.rope else { return Ok(None) };
        let freqs: Vec<f32> = (0..dims / 2).map(|i| 100f32.powf(-2.0 * i as f32 / dims as f32)).collect();
        Ok(Some(Array::from_slice(&freqs, &[dims / 2])?))
    }

    fn sinks(&self) -> Result<Option<Array>> {
        self.sinks.then(|| random(&[self.heads], Dtype::F32, 90)).transpose()
    }

    /// The axis of each pair, if rows have three positions.
    fn pair_axes(&self) -> Option<Vec<i32>> {
        let (dims, ..) = self.rope.filter(|_| self.axes == RotaryAxes::Three)?;
        Some((0..dims / 2).map(|pair| (pair + pair / 7) % 3).collect())
    }

    /// The positions by which a row turns.
    fn axis_positions(&self, position: i32) -> Vec<i32> {
        match self.axes {
            RotaryAxes::One => vec![position],
            RotaryAxes::Three => vec![position, position * 2 + 3, position / 5],
        }
    }

    /// The halves of heads `[1, heads, length, 2 · pairs]`, turned by each pair's own position.
    fn turned_by_axes(&self, heads: &Array, pairs: i32) -> Result<Array> {
        let missing = || mlx::Error::new("a rotation by three positions");
        let axes = self.pair_axes().ok_or_else(missing)?;
        let freqs = self.freqs()?.ok_or_else(missing)?.to_vec::<f32>()?;
        let [_, _, length, _] = heads.dims()?;
        let angle = |position: i32| {
            let positions = self.axis_positions(position);
            axes.iter().zip(&freqs).map(move |(axis, freq)| positions[*axis as usize] as f32 * freq).collect()
        };
        let angles: Vec<f32> = (0..length).flat_map(|position| -> Vec<f32> { angle(position) }).collect();
        let angles = Array::from_slice(&angles, &[length, pairs])?;
        let (cos, sin, halves) = (angles.cos()?, angles.sin()?, heads.split(&[pairs], -1)?);
        let (a, b) = (&halves[0], &halves[1]);
        mlx::concatenate(&[&(a * &cos - b * &sin), &(a * &sin + b * &cos)], -1)
    }

    /// Position behind the last key that a row sees.
    fn end(&self, sequence: usize, row: i32) -> i32 {
        let span = SPANS.iter().filter(|_| self.spans.is_some());
        let span = span.filter(|(of, first, end, _)| *of == sequence && (*first..*end).contains(&row));
        span.map(|(.., end)| *end).next().unwrap_or(row + 1)
    }

    fn qkv(&self, sequence: usize) -> Result<Array> {
        random(&[LENGTHS[sequence], self.width()], self.float, 100 + sequence as u64)
    }

    /// The whole sequence at once, from MLX's ops: `[length, heads * v_dim]`.
    fn reference(&self, sequence: usize) -> Result<Array> {
        let length = LENGTHS[sequence];
        let qkv = self.qkv(sequence)?.astype(Dtype::F32)?;
        let (q_end, k_end) = (self.heads * self.head_dim, (self.heads + self.kv_heads) * self.head_dim);
        let heads = |from, to, count, dim| -> Result<Array> {
            qkv.slice(&[0, from], &[length, to])?.reshape(&[1, length, count, dim])?.transpose(&[0, 2, 1, 3])
        };
        let mut q = heads(0, q_end, self.heads, self.head_dim)?;
        let mut k = heads(q_end, k_end, self.kv_heads, self.head_dim)?;
        let mut v = match self.projected {
            Projected::QueriesAndKeys => k.clone(),
            Projected::QueriesKeysValues | Projected::Queries => {
                heads(k_end, self.width(), self.kv_heads, self.v_dim)?
            }
        };
        if let Some(eps) = self.value_norm {
            v = mlx::fast::rms_norm(&v, None, eps)?;
        }
        if let (Some(qn), Some(kn)) = (self.norm(1)?, self.norm(2)?) {
            q = mlx::fast::rms_norm(&q, Some(&qn), 1e-5)?;
            k = mlx::fast::rms_norm(&k, Some(&kn), 1e-5)?;
        }
        if let (Some((dims, pairs, magnitude)), Some(freqs)) = (self.rope, self.freqs()?) {
            let inverse = Array::ones(&[dims / 2], Dtype::F32)? / freqs;
            let traditional = pairs == RotaryPairing::Interleaved;
            let rope = mlx::fast::Rope { dims, traditional, base: None, scale: 1.0, freqs: Some(inverse) };
            let turn = |a: &Array| -> Result<Array> {
                let [_, h, l, d] = a.dims()?;
                if self.axes == RotaryAxes::Three {
                    return self.turned_by_axes(a, dims / 2);
                }
                let turned = a.slice(&[0, 0, 0, 0], &[1, h, l, dims])? * magnitude;
                rope.apply(&mlx::concatenate(&[&turned, &a.slice(&[0, 0, 0, dims], &[1, h, l, d])?], -1)?, 0)
            };
            (q, k) = (turn(&q)?, turn(&k)?);
        }
        (k, v) = (k.astype(self.pool)?.astype(Dtype::F32)?, v.astype(self.pool)?.astype(Dtype::F32)?);
        let group = self.heads / self.kv_heads;
        let spread = |a: &Array| a.repeat(group, 1);
        let mut scores = q.matmul(&spread(&k)?.swapaxes(-1, -2)?)? * self.scale();
        if let Some(cap) = self.softcap {
            scores = (scores / cap).tanh()? * cap;
        }
        let mut mask = vec![0f32; (length * length) as usize];
        for (i, m) in mask.iter_mut().enumerate() {
            let (row, key) = (i as i32 / length, i as i32 % length);
            let is_hidden = key > row && self.end(sequence, key) != self.end(sequence, row);
            let is_behind = self.spans == Some(Ends::Windowed) && self.window.is_some_and(|w| key >= row + w);
            if key >= self.end(sequence, row)
                || is_hidden
                || is_behind
                || self.window.is_some_and(|w| key <= row - w && key >= self.sink_tokens)
            {
                *m = f32::NEG_INFINITY;
            }
        }
        scores = scores + Array::from_slice(&mask, &[1, 1, length, length])?;
        if let Some(sinks) = self.sinks()? {
            let column = sinks.reshape(&[1, self.heads, 1, 1])?.broadcast_to(&[1, self.heads, length, 1])?;
            scores = mlx::concatenate(&[&scores, &column], -1)?;
        }
        let weights = scores.softmax(-1)?.slice(&[0, 0, 0, 0], &[1, self.heads, length, length])?;
        let out = weights.matmul(&spread(&v)?)?.transpose(&[0, 2, 1, 3])?;
        out.reshape(&[length, self.heads * self.v_dim])
    }

    /// Runs steps, each a list of (sequence, tokens), and returns each sequence's rows. `blocks_of` places
    /// logical blocks.
    fn run(
        &self,
        steps: &[Vec<(usize, i32)>],
        blocks_of: impl Fn(usize, i32) -> i32,
    ) -> Result<BTreeMap<usize, Vec<f32>>> {
        let blocks = 64;
        let mut k_pool =
            Array::full(&[blocks, self.block_size, self.kv_heads, self.head_dim], f32::NAN, self.pool)?;
        let mut v_pool =
            Array::full(&[blocks, self.block_size, self.kv_heads, self.v_dim], f32::NAN, self.pool)?;
        let mut done = [0i32; LENGTHS.len()];
        let mut rows: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        let (q_norm, k_norm, freqs, sinks) = (self.norm(1)?, self.norm(2)?, self.freqs()?, self.sinks()?);
        for step in steps {
            let (mut parts, mut positions, mut slots, mut segments, mut tables, mut ends) =
                (vec![], vec![], vec![], vec![], vec![], vec![]);
            for &(sequence, tokens) in step {
                let first = done[sequence];
                // Blocks out of the window are freed.
                let begin = self.window.map_or(0, |w| (first - w + 1).max(0) / self.block_size);
                let kept = begin.min((self.sink_tokens + self.block_size - 1) / self.block_size);
                segments.extend([positions.len() as i32, tokens, first, tables.len() as i32, begin - kept]);
                let last = (first + tokens - 1) / self.block_size;
                tables.extend((0..kept).chain(begin..=last).map(|block| blocks_of(sequence, block)));
                for position in first..first + tokens {
                    positions.push(self.axis_positions(position));
                    ends.push(self.end(sequence, position));
                    let block = blocks_of(sequence, position / self.block_size);
                    slots.push(block * self.block_size + position % self.block_size);
                }
                parts.push(self.qkv(sequence)?.slice(&[first, 0], &[first + tokens, self.width()])?);
                done[sequence] += tokens;
            }
            // Rows of no segment: one writes to a block that is not read, one has no slot.
            parts.push(random(&[2, self.width()], self.float, 5)?);
            positions.extend([0, 3].map(|position| self.axis_positions(position)));
            slots.extend([(blocks - 1) * self.block_size, -1]);
            ends.extend([0, i32::MAX]);
            let numbers = |v: &[i32], shape: &[i32]| Array::from_slice(v, shape);
            let qkv = mlx::concatenate(&parts.iter().collect::<Vec<_>>(), 0)?;
            let (count, n) = (positions.len() as i32, step.len() as i32);
            let by_axis = (0..positions[0].len()).flat_map(|axis| positions.iter().map(move |of| of[axis]));
            let by_axis: Vec<i32> = by_axis.collect();
            let shape = if self.axes == RotaryAxes::Three { vec![3, count] } else { vec![count] };
            let (positions, slots) = (numbers(&by_axis, &shape)?, numbers(&slots, &[count])?);
            let (segments, tables) =
                (numbers(&segments, &[n, 5])?, numbers(&tables, &[tables.len() as i32])?);
            let ends = numbers(&ends, &[count])?;
            let rope = self.rope.zip(freqs.as_ref());
            let pair_axes = self.pair_axes().map(|axes| numbers(&axes, &[axes.len() as i32])).transpose()?;
            let axes = pair_axes.as_ref();
            let attend = |qkv: &Array, projected: Projected, [k_pool, v_pool]: [Array; 2]| {
                PagedAttention {
                    qkv,
                    projected,
                    heads: self.heads,
                    kv_heads: self.kv_heads,
                    head_dim: self.head_dim,
                    q_norm: q_norm.as_ref().map(|weight| HeadNorm { weight, eps: 1e-5 }),
                    k_norm: k_norm.as_ref().map(|weight| HeadNorm { weight, eps: 1e-5 }),
                    v_norm: self.value_norm,
                    positions: &positions,
                    rope: rope.map(|((dims, pairs, magnitude), freqs)| Rope {
                        freqs,
                        dims,
                        pairs,
                        magnitude,
                        axes,
                    }),
                    scale: self.scale(),
                    softcap: self.softcap,
                    window: self.window,
                    sink_tokens: self.sink_tokens,
                    sinks: sinks.as_ref(),
                    k_pool,
                    v_pool,
                    packing: None,
                    metadata: AttentionMetadata {
                        slots: &slots,
                        segments: &segments,
                        tables: &tables,
                        ends: self.spans.map(|reach| (&ends, reach)),
                    },
                }
                .run()
            };
            let attended = attend(&qkv, self.projected, [k_pool, v_pool])?;
            let out = attended.out.astype(Dtype::F32)?.to_vec::<f32>()?;
            // Another layer with the same queries reads what this one wrote.
            let queries = qkv.slice(&[0, 0], &[count, self.heads * self.head_dim])?;
            let pools = [attended.k_pool, attended.v_pool];
            let again = attend(&queries, Projected::Queries, pools)?;
            let read = again.out.astype(Dtype::F32)?.to_vec::<f32>()?;
            assert!(read.iter().zip(&out).all(|(a, b)| a.to_bits() == b.to_bits()), "queries alone");
            (k_pool, v_pool) = (again.k_pool, again.v_pool);
            let width = (self.heads * self.v_dim) as usize;
            let mut at = 0;
            for &(sequence, tokens) in step {
                let part = &out[at..at + tokens as usize * width];
                rows.entry(sequence).or_default().extend_from_slice(part);
                at += tokens as usize * width;
            }
            assert!(out[at..].iter().all(|v| *v == 0.0), "rows of no segment are zeros");
        }
        Ok(rows)
    }
}

#[track_caller]
fn check(name: &str, case: Case) -> Result<()> {
    with_each_isa(|isa| {
        let in_order = |sequence: usize, block: i32| [0, 30, 45][sequence] + block;
        let scattered = |sequence: usize, block: i32| (in_order(sequence, block) * 11 + 5) % 63;
        // Every sequence alone and at once.
        let alone = case.run(&[vec![(0, 150)], vec![(1, 37)], vec![(2, 5)]], in_order)?;
        for (sequence, rows) in &alone {
            let want = case.reference(*sequence)?.to_vec::<f32>()?;
            let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
            let off = rows
                .iter()
                .zip(&want)
                .fold(0f32, |m, (a, b)| if a.is_nan() { f32::NAN } else { m.max((a - b).abs()) });
            assert!(off <= case.tolerance * largest, "{name} {isa:?}: sequence {sequence} is off by {off}");
        }
        // In pieces beside others, the last tokens one by one.
        let mut steps = vec![vec![(0, 70), (1, 9)], vec![(1, 20), (0, 61)], vec![(2, 1), (0, 9), (1, 1)]];
        steps.extend((0..7).map(|i| if i < 4 { vec![(1, 1), (0, 1), (2, 1)] } else { vec![(0, 1), (1, 1)] }));
        steps.push(vec![(0, 3)]);
        let pieces = case.run(&steps, scattered)?;
        for (sequence, rows) in &pieces {
            let same = rows.iter().zip(&alone[sequence]).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(
                rows.len() == alone[sequence].len() && same,
                "{name} {isa:?}: sequence {sequence} differs in pieces"
            );
        }
        Ok(())
    })
}

#[test]
fn attention_agrees_with_mlx_and_does_not_see_how_a_sequence_is_cut() -> Result<()> {
    use RotaryPairing::{Halves, Interleaved};
    check("plain", PLAIN)?;
    check("norms and rope", Case { norms: true, rope: Some((64, Halves, 1.0)), ..PLAIN })?;
    check("part of a head rotates", Case { rope: Some((24, Interleaved, 1.25)), ..PLAIN })?;
    check(
        "positions in time, height and width",
        Case { rope: Some((64, Halves, 1.0)), axes: RotaryAxes::Three, ..PLAIN },
    )?;
    check("norms of values", Case { value_norm: Some(0.5), ..PLAIN })?;
    let as_values = Case { projected: Projected::QueriesAndKeys, ..PLAIN };
    check("keys are values", Case { norms: true, rope: Some((64, Halves, 1.0)), ..as_values })?;
    check(
        "keys are values of odd heads",
        Case { head_dim: 22, v_dim: 22, value_norm: Some(1e-5), ..as_values },
    )?;
    check("window", Case { window: Some(20), block_size: 32, ..PLAIN })?;
    check("wide window and sinks", Case { window: Some(100), sinks: true, ..PLAIN })?;
    check("softcap and sinks", Case { softcap: Some(5.0), sinks: true, ..PLAIN })?;
    check("odd blocks", Case { block_size: 5, window: Some(40), ..PLAIN })?;
    check("first keys stay", Case { window: Some(20), sink_tokens: 4, block_size: 8, ..PLAIN })?;
    check("many first keys stay", Case { window: Some(7), sink_tokens: 70, block_size: 16, ..PLAIN })?;
    check(
        "first keys stay beside sinks",
        Case { window: Some(33), sink_tokens: 5, sinks: true, block_size: 5, ..PLAIN },
    )?;
    check("spans", Case { spans: Some(Ends::Whole), ..PLAIN })?;
    check("spans in a window", Case { spans: Some(Ends::Whole), window: Some(20), block_size: 8, ..PLAIN })?;
    let windowed = Some(Ends::Windowed);
    check(
        "spans in a window on both sides",
        Case { spans: windowed, window: Some(20), block_size: 8, ..PLAIN },
    )?;
    check("spans without a window", Case { spans: windowed, ..PLAIN })?;
    check("blocks of 8", Case { block_size: 8, ..PLAIN })?;
    check("odd heads", Case { head_dim: 22, v_dim: 22, rope: Some((22, Halves, 1.0)), ..PLAIN })?;
    check("long heads", Case { head_dim: 160, v_dim: 96, norms: true, ..PLAIN })?;
    check("one kv head", Case { heads: 20, kv_heads: 1, head_dim: 32, v_dim: 48, ..PLAIN })?;
    check("no groups", Case { heads: 4, kv_heads: 4, ..PLAIN })?;
    let halves =
        Case { pool: Dtype::F16, rope: Some((64, Halves, 1.0)), norms: true, tolerance: 2e-3, ..PLAIN };
    check("f16 pool", halves)?;
    check(
        "bf16 all over",
        Case { float: Dtype::Bf16, pool: Dtype::Bf16, head_dim: 36, tolerance: 1e-2, ..PLAIN },
    )
}
