//! The inner loops of every product `x @ w.T`, written so that a row's result never depends on other rows.
//!
//! One result is summed over K in four lanes, in steps of four k; the lanes are added at the end of each
//! block of [`K_BLOCK`], and the blocks one after the other. Both ways through (weights decoded in registers
//! for few rows, or to a panel for many) make exactly these sums from exactly the same decoded weights.
//!
//! Weights are read in units of 16 bytes of a row, four 32-bit words with `STEPS` weights each. Step `i` of a
//! unit takes weight `i` of each word, so k runs as `unit * 4 * STEPS + lane * STEPS + i`; x is packed to match.

use std::marker::PhantomData;

use super::element::{Float, load1};
use super::simd::{Simd, Work};

/// K is summed in blocks of this many: a panel of 16 columns is then 32 KB.
pub(super) const K_BLOCK: usize = 512;

/// Most rows that share weights decoded in registers.
pub(super) const DIRECT_ROWS: usize = 8;

/// How weights are stored.
///
/// # Safety
/// `decode` needs the instruction set.
pub(super) trait Format: Copy + Send + Sync + 'static {
    /// Weights in a 32-bit word.
    const STEPS: usize;
    /// Whether scales and biases apply.
    const SCALED: bool;
    /// Most rows for which decoding in registers beats a panel, with AVX-512; at most [`DIRECT_ROWS`].
    const FEW_ROWS: usize = DIRECT_ROWS;
    /// Weights in the 16 bytes that are read of a row at once.
    const UNIT: usize = 4 * Self::STEPS;

    /// Weight `i` of each word.
    unsafe fn decode<S: Simd>(words: S::I, i: usize, scale: S::F, bias: S::F) -> S::F;
}

#[derive(Clone, Copy)]
pub(super) struct Q4;
#[derive(Clone, Copy)]
pub(super) struct Q8;
#[derive(Clone, Copy)]
pub(super) struct F32;
#[derive(Clone, Copy)]
pub(super) struct F16;
#[derive(Clone, Copy)]
pub(super) struct Bf16;

impl Format for Q4 {
    const STEPS: usize = 8;
    const SCALED: bool = true;
    const FEW_ROWS: usize = 4;
    #[inline(always)]
    unsafe fn decode<S: Simd>(words: S::I, i: usize, scale: S::F, bias: S::F) -> S::F {
        S::fma(S::low_nibble(S::shift_right(words, 4 * i as u32)), scale, bias)
    }
}

impl Format for Q8 {
    const STEPS: usize = 4;
    const SCALED: bool = true;
    #[inline(always)]
    unsafe fn decode<S: Simd>(words: S::I, i: usize, scale: S::F, bias: S::F) -> S::F {
        S::fma(S::to_float(S::and(S::shift_right(words, 8 * i as u32), 255)), scale, bias)
    }
}

impl Format for F32 {
    const STEPS: usize = 1;
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn decode<S: Simd>(words: S::I, _: usize, _: S::F, _: S::F) -> S::F {
        S::as_float(words)
    }
}

impl Format for Bf16 {
    const STEPS: usize = 2;
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn decode<S: Simd>(words: S::I, i: usize, _: S::F, _: S::F) -> S::F {
        S::as_float(if i == 0 { S::shift_left(words, 16) } else { S::and(words, 0xffff_0000) })
    }
}

impl Format for F16 {
    const STEPS: usize = 2;
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn decode<S: Simd>(words: S::I, i: usize, _: S::F, _: S::F) -> S::F {
        // Exponent and mantissa move to their place in an f32; 2^112 is the difference of the biases.
        // Infinities become 65536 and more, which no weight needs.
        let half = if i == 0 { S::shift_left(words, 16) } else { words };
        let magnitude = S::shift_right(S::and(half, 0x7fff_0000), 3);
        let bits = S::or(magnitude, S::and(half, 0x8000_0000));
        S::mul(S::as_float(bits), S::splat(f32::from_bits((127 + 112) << 23)))
    }
}

/// `LANES` rows of weights (columns of the result) over at most [`K_BLOCK`] of K.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub words: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
    pub scales: *const f32,
    pub biases: *const f32,
    /// Groups from row to row.
    pub group_stride: usize,
    pub groups: usize,
    pub units_per_group: usize,
}

impl Tile {
    /// Steps of four k.
    #[inline(always)]
    pub fn steps<F: Format>(&self) -> usize {
        self.groups * self.units_per_group * F::STEPS
    }
}

/// Where sums go: `LANES` of each row, rows `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    pub to: *mut f32,
    pub stride: usize,
    pub merge: Merge,
}

/// What happens to sums that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    Replace,
    Add,
}

impl Sums {
    #[inline(always)]
    unsafe fn put<S: Simd>(&self, row: usize, sums: [S::F; 4]) {
        let to = self.to.add(row * self.stride);
        let sum = S::sum_quads(sums);
        S::store(to, if self.merge == Merge::Add { S::add(S::load(to), sum) } else { sum });
    }
}

/// Rows that the packed form of `rows` has, for the path that decodes in registers: fewer sizes, less code.
pub(super) fn direct_rows(rows: usize) -> usize {
    rows.next_power_of_two()
}

/// Sums of packed rows, `[steps][mr][4]` with an `mr` of [`direct_rows`], with a tile.
///
/// # Safety
/// The tile and x are readable and the sums writable; as for all below.
#[inline(always)]
pub(super) unsafe fn direct<S: Simd, F: Format>(mr: usize, x: *const f32, tile: Tile, sums: Sums) {
    match mr {
        1 => S::call(Direct::<F, 1> { x, tile, sums, format: PhantomData }),
        2 => S::call(Direct::<F, 2> { x, tile, sums, format: PhantomData }),
        4 => S::call(Direct::<F, 4> { x, tile, sums, format: PhantomData }),
        _ => S::call(Direct::<F, 8> { x, tile, sums, format: PhantomData }),
    }
}

struct Direct<F, const MR: usize> {
    x: *const f32,
    tile: Tile,
    sums: Sums,
    format: PhantomData<F>,
}

impl<F: Format, const MR: usize> Work for Direct<F, MR> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut sums = [[S::splat(0.0); 4]; MR];
        // As many columns at once as accumulators fit.
        match (S::MANY_REGISTERS, MR) {
            (true, 1..=2) => self.columns::<S, 4>(&mut sums),
            (true, _) | (false, 1..=2) => self.columns::<S, 2>(&mut sums),
            (false, _) => self.columns::<S, 1>(&mut sums),
        }
        for r in 0..MR {
            self.sums.put::<S>(r, sums[r]);
        }
    }
}

impl<F: Format, const MR: usize> Direct<F, MR> {
    /// Takes `NV` of the four vectors at a time.
    #[inline(always)]
    unsafe fn columns<S: Simd, const NV: usize>(&self, sums: &mut [[S::F; 4]; MR]) {
        let tile = self.tile;
        for first in (0..4).step_by(NV) {
            let mut acc = [[S::splat(0.0); NV]; MR];
            let mut x = self.x;
            let mut words = tile.words.add(first * S::QUADS * tile.stride);
            for group in 0..tile.groups {
                let (mut scale, mut bias) = ([S::splat(0.0); NV], [S::splat(0.0); NV]);
                if F::SCALED {
                    for v in 0..NV {
                        let at = (first + v) * S::QUADS * tile.group_stride + group;
                        scale[v] = S::rows_splat(tile.scales.add(at), tile.group_stride);
                        bias[v] = S::rows_splat(tile.biases.add(at), tile.group_stride);
                    }
                }
                for _ in 0..tile.units_per_group {
                    let mut unit = [S::rows(words, tile.stride); NV];
                    for v in 1..NV {
                        unit[v] = S::rows(words.add(v * S::QUADS * tile.stride), tile.stride);
                    }
                    words = words.add(16);
                    for i in 0..F::STEPS {
                        let mut w = [S::splat(0.0); NV];
                        for v in 0..NV {
                            w[v] = F::decode::<S>(unit[v], i, scale[v], bias[v]);
                        }
                        for r in 0..MR {
                            let x = S::quad(x.add(4 * r));
                            for v in 0..NV {
                                acc[r][v] = S::fma(x, w[v], acc[r][v]);
                            }
                        }
                        x = x.add(4 * MR);
                    }
                }
            }
            for r in 0..MR {
                sums[r][first..first + NV].copy_from_slice(&acc[r]);
            }
        }
    }
}

/// Decodes a tile to a panel `[steps][4][LANES]`.
pub(super) struct Fill<F> {
    pub panel: *mut f32,
    pub tile: Tile,
    pub format: PhantomData<F>,
}

impl<F: Format> Work for Fill<F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let tile = self.tile;
        for v in 0..4 {
            let mut out = self.panel.add(v * S::LANES);
            let mut words = tile.words.add(v * S::QUADS * tile.stride);
            for group in 0..tile.groups {
                let (mut scale, mut bias) = (S::splat(0.0), S::splat(0.0));
                if F::SCALED {
                    let at = v * S::QUADS * tile.group_stride + group;
                    scale = S::rows_splat(tile.scales.add(at), tile.group_stride);
                    bias = S::rows_splat(tile.biases.add(at), tile.group_stride);
                }
                for _ in 0..tile.units_per_group {
                    let unit = S::rows(words, tile.stride);
                    words = words.add(16);
                    for i in 0..F::STEPS {
                        S::store(out, F::decode::<S>(unit, i, scale, bias));
                        out = out.add(4 * S::LANES);
                    }
                }
            }
        }
    }
}

/// Rows of a whole tile of the panel path.
pub(super) const fn panel_rows<S: Simd>() -> usize {
    if S::MANY_REGISTERS { 6 } else { 3 }
}

/// Rows that the packed form of the last `rows` has, for the panel path.
pub(super) fn last_rows(rows: usize, panel_rows: usize) -> usize {
    if panel_rows == 6 { rows.next_multiple_of(2) } else { rows }
}

/// Sums of `rows` packed rows (those of a tile) with a panel.
#[inline(always)]
pub(super) unsafe fn panel<S: Simd>(rows: usize, x: *const f32, panel: *const f32, steps: usize, sums: Sums) {
    if S::MANY_REGISTERS {
        match rows {
            1..=2 => S::call(Panel::<2> { x, panel, steps, sums }),
            3..=4 => S::call(Panel::<4> { x, panel, steps, sums }),
            _ => S::call(Panel::<6> { x, panel, steps, sums }),
        }
    } else {
        match rows {
            1 => S::call(Panel::<1> { x, panel, steps, sums }),
            2 => S::call(Panel::<2> { x, panel, steps, sums }),
            _ => S::call(Panel::<3> { x, panel, steps, sums }),
        }
    }
}

struct Panel<const MR: usize> {
    x: *const f32,
    panel: *const f32,
    steps: usize,
    sums: Sums,
}

impl<const MR: usize> Work for Panel<MR> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut acc = [[S::splat(0.0); 4]; MR];
        let (mut x, mut panel) = (self.x, self.panel);
        for _ in 0..self.steps {
            if S::MANY_REGISTERS {
                let mut w = [S::splat(0.0); 4];
                for v in 0..4 {
                    w[v] = S::load(panel.add(v * S::LANES));
                }
                for r in 0..MR {
                    let x = S::quad(x.add(4 * r));
                    for v in 0..4 {
                        acc[r][v] = S::fma(x, w[v], acc[r][v]);
                    }
                }
            } else {
                let mut rows = [S::splat(0.0); MR];
                for r in 0..MR {
                    rows[r] = S::quad(x.add(4 * r));
                }
                for v in 0..4 {
                    let w = S::load(panel.add(v * S::LANES));
                    for r in 0..MR {
                        acc[r][v] = S::fma(rows[r], w, acc[r][v]);
                    }
                }
            }
            x = x.add(4 * MR);
            panel = panel.add(4 * S::LANES);
        }
        for r in 0..MR {
            self.sums.put::<S>(r, acc[r]);
        }
    }
}

/// Packs the part `from..from + width` of row `source` as row `r` of `[steps][mr][4]`, in the order of a format
/// with `STEPS` weights in a word; beyond `k` it is padded with zeros. No source means zeros.
pub(super) unsafe fn pack_row<F: Format>(
    out: *mut f32,
    (r, mr): (usize, usize),
    source: Option<(*const u8, Float)>,
    (from, k): (usize, usize),
    width: usize,
) {
    let out = out.add(4 * r);
    let steps = width.div_ceil(F::UNIT) * F::STEPS;
    let Some((source, float)) = source else {
        return (0..steps).for_each(|step| out.add(step * 4 * mr).cast::<[f32; 4]>().write([0.0; 4]));
    };
    for step in 0..steps {
        let first = step / F::STEPS * F::UNIT + step % F::STEPS;
        let mut four = [0f32; 4];
        if float == Float::F32 && from + width.next_multiple_of(F::UNIT) <= k {
            let source = source.cast::<f32>().add(from + first);
            four = [0, 1, 2, 3].map(|lane| *source.add(lane * F::STEPS));
        } else {
            for lane in 0..4 {
                let at = first + lane * F::STEPS;
                if at < width && from + at < k {
                    four[lane] = load1(source, float, from + at);
                }
            }
        }
        out.add(step * 4 * mr).cast::<[f32; 4]>().write(four);
    }
}
