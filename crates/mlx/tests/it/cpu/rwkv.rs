//! The kernels of RWKV-7 against plain loops, whatever the instruction set and however a sequence is cut.

use mlx::cpu::{self, TokenShift, Wkv};
use mlx::{Array, Dtype, Result};

use super::with_each_isa;

const SLOTS: usize = 4;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7919 + seed * 104_729) as f32 * 0.37).sin()).collect()
}

fn array(values: &[f32], shape: &[usize]) -> Result<Array> {
    Array::from_slice(values, &shape.iter().map(|size| *size as i32).collect::<Vec<_>>())
}

fn runs(runs: &[[i32; 4]]) -> Result<Array> {
    Array::from_slice(&runs.concat(), &[runs.len() as i32, 4])
}

#[track_caller]
fn check_close(what: &str, found: &[f32], want: &[f32]) {
    let apart = found.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(found.len() == want.len() && apart < 2e-5, "{what} by {:?}: {apart} apart", cpu::isa());
}

/// Two sequences, one of which goes on from slot 2 to slot 3; a row belongs to none.
#[test]
fn mixes_with_the_row_before_are_those_of_the_sequence() -> Result<()> {
    with_each_isa(|_| {
        for width in [3, 64, 700] {
            let (rows, mixes) = (8, 3);
            let (x, shares, pool) =
                (numbers(rows * width, 1), numbers(mixes * width, 2), numbers(SLOTS * width, 3));
            let before = |row: usize| -> Vec<f32> {
                match row {
                    0 => vec![0.0; width],
                    3 => pool[2 * width..3 * width].to_vec(),
                    _ => x[(row - 1) * width..row * width].to_vec(),
                }
            };
            let (found, pool_after) = TokenShift {
                x: &array(&x, &[rows, width])?,
                shares: &array(&shares, &[mixes, width])?,
                runs: &runs(&[[0, 3, 1, -1], [3, 2, 2, 2], [5, 2, 3, 2]])?,
                pool: array(&pool, &[SLOTS, 1, width])?,
            }
            .run()?;
            for (mix, found) in found.iter().enumerate() {
                let mut want = Vec::new();
                for row in 0..rows - 1 {
                    let (own, share) = (&x[row * width..], &shares[mix * width..]);
                    let before = before(row);
                    want.extend((0..width).map(|at| own[at] + (before[at] - own[at]) * share[at]));
                }
                want.extend(vec![0.0; width]);
                check_close("a mix", &found.to_vec::<f32>()?, &want);
            }
            let kept = pool_after.to_vec::<f32>()?;
            check_close("slot 1", &kept[width..2 * width], &x[2 * width..3 * width]);
            check_close("slot 2", &kept[2 * width..3 * width], &x[4 * width..5 * width]);
            check_close("slot 3", &kept[3 * width..], &x[6 * width..7 * width]);
        }
        Ok(())
    })
}

/// One layer of a size.
struct Layer {
    heads: usize,
    dim: usize,
    mixes_values: bool,
}

impl Layer {
    fn row(&self, input: usize, row: usize) -> Vec<f32> {
        numbers(self.heads * self.dim, 50 * input + row)
    }

    fn weights(&self, which: usize) -> Vec<f32> {
        numbers(self.heads * self.dim, 9000 + which)
    }

    /// Rows of one sequence from an empty state, one number after the other.
    fn reference(&self, rows: usize) -> Vec<f32> {
        let Self { heads, dim, mixes_values } = *self;
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let [k_k, k_a, r_k, weight, bias] = [0, 1, 2, 3, 4].map(|which| self.weights(which));
        let mut states = vec![vec![0f32; dim * dim]; heads];
        let mut out = Vec::new();
        for row in 0..rows {
            let [r, w, k, v, a, gate, share, first] =
                [0, 1, 2, 3, 4, 5, 6, 7].map(|input| self.row(input, row));
            for (head, state) in states.iter_mut().enumerate() {
                let at = |i: usize| head * dim + i;
                let rate: Vec<f32> = (0..dim).map(|i| sigmoid(a[at(i)])).collect();
                let removed: Vec<f32> = (0..dim).map(|i| k[at(i)] * k_k[at(i)]).collect();
                let length = removed.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-7);
                let removed: Vec<f32> = removed.iter().map(|x| x / length).collect();
                let key: Vec<f32> =
                    (0..dim).map(|i| k[at(i)] * ((rate[i] - 1.0) * k_a[at(i)] + 1.0)).collect();
                let value: Vec<f32> = (0..dim)
                    .map(|i| match mixes_values {
                        true => v[at(i)] + (first[at(i)] - v[at(i)]) * sigmoid(share[at(i)]),
                        false => v[at(i)],
                    })
                    .collect();
                let mut read = Vec::new();
                for i in 0..dim {
                    let state = &mut state[i * dim..(i + 1) * dim];
                    let known: f32 = (0..dim).map(|j| state[j] * removed[j]).sum();
                    for j in 0..dim {
                        let decay = (-0.606_531 * sigmoid(w[at(j)])).exp();
                        state[j] = state[j] * decay + value[i] * key[j] - known * removed[j] * rate[j];
                    }
                    read.push((0..dim).map(|j| state[j] * r[at(j)]).sum::<f32>());
                }
                let mean = read.iter().sum::<f32>() / dim as f32;
                let variance = read.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / dim as f32;
                let bonus: f32 = (0..dim).map(|i| r[at(i)] * key[i] * r_k[at(i)]).sum();
                for i in 0..dim {
                    let normed = (read[i] - mean) / (variance + 64e-5).sqrt() * weight[at(i)] + bias[at(i)];
                    out.push((normed + bonus * value[i]) * gate[at(i)]);
                }
            }
        }
        out
    }

    /// Rows `first..end` in each of some runs.
    fn step(&self, spans: &[(std::ops::Range<usize>, [i32; 2])], pool: Array) -> Result<(Vec<f32>, Array)> {
        let Self { heads, dim, mixes_values } = *self;
        let mut numbers_of_runs = Vec::new();
        let mut rows = Vec::new();
        for (span, [slot, from]) in spans {
            numbers_of_runs.push([rows.len() as i32, span.len() as i32, *slot, *from]);
            rows.extend(span.clone());
        }
        let input = |input: usize| {
            let values: Vec<f32> = rows.iter().flat_map(|row| self.row(input, *row)).collect();
            array(&values, &[rows.len(), heads * dim])
        };
        let [r, w, k, v] = [input(0)?, input(1)?, input(2)?, input(3)?];
        let [a, gate, share, first] = [input(4)?, input(5)?, input(6)?, input(7)?];
        let weight = |which: usize| array(&self.weights(which), &[heads, dim]);
        let weights = [weight(0)?, weight(1)?, weight(2)?, weight(3)?, weight(4)?];
        let (out, pool) = Wkv {
            rows: [&r, &w, &k, &v, &a, &gate],
            first_values: mixes_values.then_some([&share, &first]),
            weights: weights.each_ref(),
            runs: &runs(&numbers_of_runs)?,
            pool,
        }
        .run()?;
        Ok((out.to_vec::<f32>()?, pool))
    }

    fn pool(&self) -> Result<Array> {
        Array::full(&[SLOTS as i32, self.heads as i32, self.dim as i32, self.dim as i32], 0.5, Dtype::F32)
    }
}

#[test]
fn the_recurrence_is_that_of_plain_loops_however_it_is_cut() -> Result<()> {
    with_each_isa(|_| {
        for (heads, dim, mixes_values) in [(2, 64, false), (3, 16, true), (1, 11, true)] {
            let layer = Layer { heads, dim, mixes_values };
            let (whole, _) = layer.step(&[(0..9, [1, -1])], layer.pool()?)?;
            check_close("a sequence", &whole, &layer.reference(9));
            // In pieces, beside another sequence, and over to another slot.
            let (mut pieces, pool) = layer.step(&[(0..4, [2, -1]), (0..2, [0, -1])], layer.pool()?)?;
            let width = heads * dim;
            assert_eq!(pieces.split_off(4 * width), whole[..2 * width], "the other sequence");
            let (rest, _) = layer.step(&[(4..5, [2, 2]), (5..9, [3, 2])], pool)?;
            pieces.extend(rest);
            assert_eq!(pieces, whole, "in pieces by {:?}", cpu::isa());
        }
        Ok(())
    })
}
