//! Paged latent attention against a graph of MLX's ops, however a sequence is cut into steps and spread over blocks.

use std::collections::BTreeMap;

use mlx::cpu::{AttentionMetadata, HeadNorm, PagedLatentAttention, Rope};
use mlx::{Array, Dtype, Result, RotaryPairing};

use super::{with_each_isa, with_this_isa};

struct Case {
    heads: i32,
    nope_dim: i32,
    latent_dim: i32,
    rope_dim: i32,
    block_size: i32,
    pool: Dtype,
    rope: Option<(RotaryPairing, f32)>,
    latent_scale: f32,
    tolerance: f32,
}

const PLAIN: Case = Case {
    heads: 4,
    nope_dim: 24,
    latent_dim: 64,
    rope_dim: 16,
    block_size: 16,
    pool: Dtype::F32,
    rope: Some((RotaryPairing::Interleaved, 1.0)),
    latent_scale: 1.0,
    tolerance: 1e-5,
};

/// Lengths of the sequences.
const LENGTHS: [i32; 3] = [150, 37, 5];
const SCALE: f32 = 0.11;
const BLOCKS: i32 = 64;

fn random(shape: &[i32], seed: u64) -> Result<Array> {
    let a = mlx::random::normal(shape, Dtype::F32, 1.0, &mlx::random::key(seed)?)?;
    a.eval()?;
    Ok(a)
}

/// Queries, absorbed queries and rows of a sequence.
struct Inputs([Array; 3]);

impl Inputs {
    fn part(&self, first: i32, end: i32) -> Result<Self> {
        let part = |array: &Array| -> Result<Array> {
            let (mut from, mut to) = (vec![0; array.ndim()], array.shape().to_vec());
            (from[0], to[0]) = (first, end);
            array.slice(&from, &to)
        };
        let [queries, absorbed, rows] = &self.0;
        Ok(Self([part(queries)?, part(absorbed)?, part(rows)?]))
    }
}

impl Case {
    fn inputs(&self, sequence: usize, length: i32) -> Result<Inputs> {
        let Case { heads, nope_dim, latent_dim, rope_dim, .. } = *self;
        let seed = 100 + 10 * sequence as u64;
        Ok(Inputs([
            random(&[length, heads, nope_dim + rope_dim], seed)?,
            random(&[length, heads, latent_dim], seed + 1)?,
            random(&[length, latent_dim + rope_dim], seed + 2)?,
        ]))
    }

    fn norm(&self) -> Result<Array> {
        random(&[self.latent_dim], 7)
    }

    fn freqs(&self) -> Result<Array> {
        let dims = self.rope_dim;
        let freqs: Vec<f32> = (0..dims / 2).map(|i| 100f32.powf(-2.0 * i as f32 / dims as f32)).collect();
        Array::from_slice(&freqs, &[dims / 2])
    }

    /// `[heads or 1, length, rope_dim]` at positions from 0 on.
    fn rotated(&self, x: &Array) -> Result<Array> {
        let Some((pairs, magnitude)) = self.rope else { return Ok(x.clone()) };
        let inverse = Array::ones(&[self.rope_dim / 2], Dtype::F32)? / self.freqs()?;
        let traditional = pairs == RotaryPairing::Interleaved;
        let dims = self.rope_dim;
        let rope = mlx::fast::Rope { dims, traditional, base: None, scale: 1.0, freqs: Some(inverse) };
        rope.apply(&(x.expand_dims(&[0])? * magnitude), 0)?.squeeze(&[0])
    }

    /// The whole sequence at once, from MLX's ops: `[length, heads · latent_dim]`.
    fn reference(&self, sequence: usize) -> Result<Array> {
        let length = LENGTHS[sequence];
        let Case { heads, nope_dim, latent_dim, rope_dim, .. } = *self;
        let Inputs([queries, absorbed, rows]) = self.inputs(sequence, length)?;
        let by_head = |x: &Array| x.transpose(&[1, 0, 2]);
        let stored = |x: &Array| x.astype(self.pool)?.astype(Dtype::F32);
        let turning = queries.slice(&[0, 0, nope_dim], &[length, heads, nope_dim + rope_dim])?;
        let q = mlx::concatenate(&[&by_head(&absorbed)?, &self.rotated(&by_head(&turning)?)?], -1)?;
        let latent = rows.slice(&[0, 0], &[length, latent_dim])?.contiguous()?;
        let latent = mlx::fast::rms_norm(&latent, Some(&self.norm()?), 1e-5)? * self.latent_scale;
        let latent = stored(&latent.expand_dims(&[0])?)?;
        let key = rows.slice(&[0, latent_dim], &[length, latent_dim + rope_dim])?.expand_dims(&[0])?;
        let k = mlx::concatenate(&[&latent, &stored(&self.rotated(&key)?)?], -1)?;
        let mask: Vec<f32> = (0..length * length)
            .map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        let scores =
            q.matmul(&k.swapaxes(-1, -2)?)? * SCALE + Array::from_slice(&mask, &[1, length, length])?;
        let out = scores.softmax(-1)?.matmul(&latent)?;
        out.transpose(&[1, 0, 2])?.reshape(&[length, heads * latent_dim])
    }

    /// Runs steps, each a list of (sequence, tokens), and returns each sequence's rows. `blocks_of` places logical blocks.
    fn run(
        &self,
        steps: &[Vec<(usize, i32)>],
        blocks_of: impl Fn(usize, i32) -> i32,
    ) -> Result<BTreeMap<usize, Vec<f32>>> {
        let pool = |width| Array::full(&[BLOCKS, self.block_size, 1, width], f32::NAN, self.pool);
        let (mut latent_pool, mut key_pool) = (pool(self.latent_dim)?, pool(self.rope_dim)?);
        let (norm, freqs) = (self.norm()?, self.freqs()?);
        let mut done = [0i32; LENGTHS.len()];
        let mut rows: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        for step in steps {
            let (mut parts, mut positions, mut slots, mut segments, mut tables) =
                (vec![], vec![], vec![], vec![], vec![]);
            for &(sequence, tokens) in step {
                let (first, end) = (done[sequence], done[sequence] + tokens);
                segments.extend([positions.len() as i32, tokens, first, tables.len() as i32, 0]);
                let last = (end - 1) / self.block_size;
                tables.extend((0..=last).map(|block| blocks_of(sequence, block)));
                for position in first..end {
                    positions.push(position);
                    let block = blocks_of(sequence, position / self.block_size);
                    slots.push(block * self.block_size + position % self.block_size);
                }
                parts.push(self.inputs(sequence, LENGTHS[sequence])?.part(first, end)?);
                done[sequence] = end;
            }
            // Rows of no segment: one writes to a block that is not read, one has no slot.
            parts.push(self.inputs(9, 2)?);
            positions.extend([0, 3]);
            slots.extend([(BLOCKS - 1) * self.block_size, -1]);
            let joined = |which: usize| {
                mlx::concatenate(&parts.iter().map(|part| &part.0[which]).collect::<Vec<_>>(), 0)
            };
            let numbers = |v: &[i32]| Array::from_slice(v, &[v.len() as i32]);
            let attended = PagedLatentAttention {
                queries: &joined(0)?,
                absorbed: &joined(1)?,
                rows: &joined(2)?,
                norm: HeadNorm { weight: &norm, eps: 1e-5 },
                latent_scale: self.latent_scale,
                positions: &numbers(&positions)?,
                rope: self.rope.map(|(pairs, magnitude)| Rope {
                    freqs: &freqs,
                    dims: self.rope_dim,
                    pairs,
                    magnitude,
                    axes: None,
                }),
                scale: SCALE,
                latent_pool,
                key_pool,
                packing: None,
                metadata: AttentionMetadata {
                    slots: &numbers(&slots)?,
                    segments: &Array::from_slice(&segments, &[step.len() as i32, 5])?,
                    tables: &numbers(&tables)?,
                    ends: None,
                },
            }
            .run()?;
            let out = attended.out.to_vec::<f32>()?;
            (latent_pool, key_pool) = (attended.latent_pool, attended.key_pool);
            let width = (self.heads * self.latent_dim) as usize;
            let mut at = 0;
            for &(sequence, tokens) in step {
                let end = at + tokens as usize * width;
                rows.entry(sequence).or_default().extend_from_slice(&out[at..end]);
                at = end;
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
        let alone = case.run(&[vec![(0, 150)], vec![(1, 37)], vec![(2, 5)]], in_order)?;
        for (sequence, rows) in &alone {
            let want = case.reference(*sequence)?.to_vec::<f32>()?;
            let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
            let apart =
                |m: f32, (a, b): (&f32, &f32)| if a.is_nan() { f32::NAN } else { m.max((a - b).abs()) };
            let off = rows.iter().zip(&want).fold(0f32, apart);
            assert!(off <= case.tolerance * largest, "{name} {isa:?}: sequence {sequence} is off by {off}");
        }
        // In pieces beside others, the last tokens one by one.
        let mut steps = vec![vec![(0, 70), (1, 9)], vec![(1, 20), (0, 61)], vec![(2, 1), (0, 9), (1, 1)]];
        steps.extend((0..7).map(|i| if i < 4 { vec![(1, 1), (0, 1), (2, 1)] } else { vec![(0, 1), (1, 1)] }));
        steps.push(vec![(0, 3)]);
        for (sequence, rows) in &case.run(&steps, scattered)? {
            let same = rows.iter().zip(&alone[sequence]).all(|(a, b)| a.to_bits() == b.to_bits());
            let whole = rows.len() == alone[sequence].len();
            assert!(whole && same, "{name} {isa:?}: sequence {sequence} differs in pieces");
        }
        Ok(())
    })
}

#[test]
fn latent_attention_agrees_with_mlx_and_does_not_see_how_a_sequence_is_cut() -> Result<()> {
    use RotaryPairing::{Halves, Interleaved};
    check("plain", PLAIN)?;
    check("many heads", Case { heads: 20, rope: Some((Halves, 1.25)), ..PLAIN })?;
    check("no positions", Case { rope: None, latent_scale: 1.75, ..PLAIN })?;
    check("odd widths", Case { nope_dim: 7, latent_dim: 37, rope_dim: 6, block_size: 5, ..PLAIN })?;
    check("wide latents", Case { latent_dim: 576, rope_dim: 64, block_size: 32, ..PLAIN })?;
    check("all of a query rotates", Case { nope_dim: 0, rope: Some((Interleaved, 1.0)), ..PLAIN })?;
    check("f16 pool", Case { pool: Dtype::F16, tolerance: 2e-3, ..PLAIN })
}

#[test]
fn pools_of_other_shapes_are_refused() -> Result<()> {
    let _isa = with_this_isa();
    let Inputs([queries, absorbed, rows]) = PLAIN.inputs(0, 3)?;
    let pool = |width: i32| Array::zeros(&[4, 16, 1, width], Dtype::F32);
    let numbers = Array::from_slice(&[0, 1, 2], &[3])?;
    let call = |latent_pool: Array, key_pool: Array| {
        PagedLatentAttention {
            queries: &queries,
            absorbed: &absorbed,
            rows: &rows,
            norm: HeadNorm { weight: &PLAIN.norm()?, eps: 1e-5 },
            latent_scale: 1.0,
            positions: &numbers,
            rope: None,
            scale: SCALE,
            latent_pool,
            key_pool,
            packing: None,
            metadata: AttentionMetadata {
                slots: &numbers,
                segments: &Array::from_slice(&[0, 3, 0, 0, 0], &[1, 5])?,
                tables: &Array::from_slice(&[0], &[1])?,
                ends: None,
            },
        }
        .run()
    };
    assert!(call(pool(64)?, pool(16)?).is_ok());
    let error = call(pool(16)?, pool(64)?).unwrap_err().to_string();
    assert!(error.contains("the pools are [blocks, block_size, 1, dim]"), "{error}");
    Ok(())
}
