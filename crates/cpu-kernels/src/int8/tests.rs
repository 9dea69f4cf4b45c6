//! Every implementation against a plain one of the same rounding, over random shapes.

use crate::element::{Float, Input, Output};
use crate::gemm::{Q4, Q8};
use crate::half::{f16_from_f32, f16_to_f32};
use crate::simd::dot::{BLOCK, DotIsa, has};
use crate::weights::{Source, Weights};

use super::Product;

const ALL: [DotIsa; 6] =
    [DotIsa::Portable, DotIsa::Avx2, DotIsa::AvxVnni, DotIsa::Avx512, DotIsa::Avx512Vnni, DotIsa::Neon];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// From −1 to 1.
    fn float(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A product and its inputs.
#[derive(Debug)]
struct Case {
    bits: usize,
    group: usize,
    n: usize,
    k: usize,
    rows: usize,
    x: Vec<f32>,
    words: Vec<u32>,
    /// f16 numbers.
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Case {
    fn random(random: &mut Random) -> Self {
        let (bits, group) = (random.pick(&[4, 8]), random.pick(&[32, 64, 128]));
        let (n, k) = (1 + random.below(70), group * (1 + random.below(1400 / group)));
        let rows = random.pick(&[1, 2, 3, 4, 5, 6, 7, 13, 40, 530]);
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
        let mut x = floats(rows * k);
        let half = |v: &f32| f16_to_f32(f16_from_f32(*v));
        let scales = floats(n * k / group).iter().map(half).collect();
        let biases = floats(n * k / group).iter().map(half).collect();
        // Blocks of all magnitudes, and some of zeros.
        for block in x.chunks_mut(BLOCK) {
            let factor = random.pick(&[0.0, 1e-3, 1.0, 1.0, 300.0]);
            block.iter_mut().for_each(|v| *v *= factor);
        }
        let words = (0..n * k * bits / 32).map(|_| random.word() as u32).collect();
        Self { bits, group, n, k, rows, x, words, scales, biases }
    }

    fn product(&self, isa: DotIsa, float: Float, rows: std::ops::Range<usize>) -> Vec<f32> {
        let halves = |values: &[f32]| -> Vec<u16> { values.iter().map(|v| f16_from_f32(*v)).collect() };
        let (half_scales, half_biases) = (halves(&self.scales), halves(&self.biases));
        let (scales, biases): (*const u8, *const u8) = match float {
            Float::F32 => (self.scales.as_ptr().cast(), self.biases.as_ptr().cast()),
            _ => (half_scales.as_ptr().cast(), half_biases.as_ptr().cast()),
        };
        let mut out = vec![f32::NAN; rows.len() * self.n];
        let source = Source {
            table: std::ptr::null(),
            weights: Weights::Affine { bits: self.bits, group: self.group, scales: float },
            words: self.words.as_ptr().cast(),
            scales,
            biases,
            n: self.n,
            k: self.k,
        };
        let product = Product {
            source,
            group: self.group,
            by_expert: vec![rows.clone().zip(0..rows.len()).collect()],
            x: Input(self.x.as_ptr().cast(), Float::F32),
            out: Output { to: out.as_mut_ptr().cast(), float: Float::F32, bias: None },
        };
        // SAFETY: the buffers have the sizes of the product, and the caller chose instructions that are there.
        unsafe { if self.bits == 4 { product.run::<Q4>(isa) } else { product.run::<Q8>(isa) } }
        out
    }

    fn weight(&self, n: usize, k: usize) -> i32 {
        let bit = (n * self.k + k) * self.bits;
        (self.words[bit / 32] >> (bit % 32)) as i32 & ((1 << self.bits) - 1)
    }

    /// The row in 8 bits, with the scale of each block.
    fn rounded(&self, row: usize) -> (Vec<i32>, Vec<f32>) {
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        for block in self.x[row * self.k..(row + 1) * self.k].chunks(BLOCK) {
            let most = block.iter().fold(0f32, |most, v| most.max(v.abs()));
            let factor = if most == 0.0 { 0.0 } else { 127.0 / most };
            bytes.extend(block.iter().map(|v| (v * factor).round_ties_even() as i32));
            scales.push(most / 127.0);
        }
        (bytes, scales)
    }

    fn reference(&self) -> Vec<f32> {
        let mut out = Vec::new();
        for row in 0..self.rows {
            let (bytes, scales) = self.rounded(row);
            for n in 0..self.n {
                let mut total = 0f32;
                for g in 0..self.k / self.group {
                    let (scale, bias) =
                        (self.scales[n * self.k / self.group + g], self.biases[n * self.k / self.group + g]);
                    let mut sum = 0f32;
                    for block in g * self.group / BLOCK..(g + 1) * self.group / BLOCK {
                        let places = block * BLOCK..(block + 1) * BLOCK;
                        let dot: i32 = places.clone().map(|k| bytes[k] * self.weight(n, k)).sum();
                        let plain: i32 = places.map(|k| bytes[k]).sum();
                        total = (dot as f32).mul_add(scale * scales[block], total);
                        sum = scales[block].mul_add(plain as f32, sum);
                    }
                    total = bias.mul_add(sum, total);
                }
                out.push(total);
            }
        }
        out
    }
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    let largest = b.iter().fold(1e-20f32, |most, v| most.max(v.abs()));
    a.iter().zip(b).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

#[test]
fn every_implementation_gives_the_sums_of_the_plain_one() {
    let tested: Vec<_> = ALL.into_iter().filter(|isa| has(*isa)).collect();
    println!("skipped, since this machine lacks them: {:?}", ALL.map(|isa| (isa, has(isa))));
    for seed in 0..60 {
        let case = Case::random(&mut Random(seed));
        let Case { bits, group, n, k, rows, .. } = case;
        let what = format!("seed {seed}: {rows} rows, {n} × {k}, {bits} bits in groups of {group}");
        let expected = case.reference();
        for isa in &tested {
            for float in [Float::F32, Float::F16] {
                let product = case.product(*isa, float, 0..rows);
                let off = largest_difference(&product, &expected);
                assert!(off <= 1e-5, "{what}, {isa:?}: off by {off}");
                // Without fused multiply-add, sums are rounded once more.
                let same = product.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same || *isa == DotIsa::Portable, "{what}, {isa:?}: other bits");
            }
        }
    }
}

#[test]
fn a_row_depends_on_itself_only() {
    for seed in 100..120 {
        let case = Case::random(&mut Random(seed));
        for isa in ALL.into_iter().filter(|isa| has(*isa)) {
            let all = case.product(isa, Float::F32, 0..case.rows);
            for rows in [1, 2, 5, 6, 11].into_iter().filter(|rows| *rows <= case.rows) {
                // The last rows, so that a row also changes its place.
                let some = case.product(isa, Float::F32, case.rows - rows..case.rows);
                let same = some
                    .iter()
                    .zip(&all[all.len() - rows * case.n..])
                    .all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "seed {seed}, {isa:?}: {rows} rows differ from {}", case.rows);
            }
        }
    }
}

#[test]
fn a_row_that_is_not_finite_stays_so() {
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut case = Case::random(&mut Random(7));
        let (k, n) = (case.k, case.n);
        case.x[k / 2] = wrong;
        for isa in ALL.into_iter().filter(|isa| has(*isa)) {
            let product = case.product(isa, Float::F32, 0..case.rows);
            assert!(product[..n].iter().all(|v| !v.is_finite()), "{wrong} is lost with {isa:?}");
            assert!(product[n..].iter().all(|v| v.is_finite()), "{wrong} spreads with {isa:?}");
        }
    }
}

#[test]
fn rounding_costs_less_than_a_hundredth() {
    let mut random = Random(3);
    let (n, k, group) = (64, 2048, 64);
    let mut case = Case { n, k, rows: 4, ..Case::random(&mut random) };
    let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
    (case.bits, case.group, case.x) = (4, group, floats(4 * k));
    case.scales = vec![0.25; n * k / group];
    case.biases = vec![-2.0; n * k / group];
    case.words = floats(n * k / 8).iter().map(|v| v.to_bits().wrapping_mul(0x9e37_79b1)).collect();
    let exact: Vec<f32> = (0..4 * n)
        .map(|at| {
            let (row, n) = (at / n, at % n);
            (0..k).map(|i| case.x[row * k + i] * (case.weight(n, i) as f32 * 0.25 - 2.0)).sum()
        })
        .collect();
    let product = case.product(DotIsa::Portable, Float::F32, 0..4);
    let off = largest_difference(&product, &exact);
    assert!(off < 0.01, "off by {off}");
}
