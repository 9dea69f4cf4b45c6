//! Rows in 8 bits: for each block of 32 a scale, for each group of the weights the sum that their bias multiplies.

use std::marker::PhantomData;

use crate::element::{self, Input};
use crate::gemm::{Format, K_BLOCK};
use crate::simd::Simd;
use crate::simd::dot::{BLOCK, Dot, DotWork};

/// The smallest magnitude that is not rounded to zero with its block: its inverse is finite.
const MAGNITUDE_MIN: f32 = 1e-30;

/// Rows of a whole tile: as many as registers hold integer and float sums of.
pub(super) const fn tile_rows(many_registers: bool) -> usize {
    if many_registers { 6 } else { 4 }
}

/// Rows that the packed form of the last `rows` has: fewer sizes, less code.
fn last_rows(rows: usize) -> usize {
    if rows == 1 { 1 } else { rows.next_multiple_of(2) }
}

/// Packed rows: `[block of K][tile of rows]`, and in a tile bytes `[step of 4][row][4]` in the order of the weights'
/// words, scales `[block of 32][row]` and sums `[group][row]`.
#[derive(Clone, Copy)]
pub(super) struct PackedRows {
    base: *mut u32,
    /// Rows, padded to those of whole tiles but the last.
    padded: usize,
    /// Rows of a whole tile.
    pub tile_rows: usize,
    k: usize,
    pub group: usize,
}

// SAFETY: tiles are written by one task each, and read after all are written.
unsafe impl Send for PackedRows {}
// SAFETY: as above.
unsafe impl Sync for PackedRows {}

/// One tile over a block of K.
#[derive(Clone, Copy)]
pub(super) struct RowTile {
    pub rows: usize,
    pub bytes: *mut u32,
    pub scales: *mut f32,
    pub sums: *mut f32,
}

impl PackedRows {
    /// 32-bit words that they take. `k` in groups of `group`.
    pub fn words(rows: usize, tile_rows: usize, (k, group): (usize, usize)) -> usize {
        padded_rows(rows, tile_rows) * (k / 4 + k / BLOCK + k / group)
    }

    /// Rows in the words from `base` on.
    pub fn new(base: *mut u32, rows: usize, tile_rows: usize, (k, group): (usize, usize)) -> Self {
        Self { base, padded: padded_rows(rows, tile_rows), tile_rows, k, group }
    }

    /// The tile that starts with row `first`, over the block of K that starts at `from`.
    #[inline(always)]
    pub unsafe fn tile(&self, first: usize, from: usize) -> RowTile {
        let width = K_BLOCK.min(self.k - from);
        let scales = self.base.add(self.padded * self.k / 4).cast::<f32>();
        let sums = scales.add(self.padded * self.k / BLOCK);
        let at = |each: usize| from / each * self.padded + first * (width / each);
        RowTile {
            rows: self.tile_rows.min(self.padded - first),
            bytes: self.base.add(at(4)),
            scales: scales.add(at(BLOCK)),
            sums: sums.add(at(self.group)),
        }
    }
}

fn padded_rows(rows: usize, tile_rows: usize) -> usize {
    rows / tile_rows * tile_rows + last_rows(rows % tile_rows)
}

/// Rounds and packs the tile of rows that starts with `first`.
pub(super) struct Pack<'a, F> {
    pub packed: PackedRows,
    pub rows: &'a [(usize, usize)],
    pub x: Input,
    pub first: usize,
    pub format: PhantomData<F>,
}

impl<F: Format> DotWork for Pack<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let PackedRows { k, group, .. } = self.packed;
        for from in (0..k).step_by(K_BLOCK) {
            let tile = self.packed.tile(self.first, from);
            let width = K_BLOCK.min(k - from);
            for r in 0..tile.rows {
                match self.rows.get(self.first + r) {
                    Some(row) => pack::<D, F>(tile, r, (self.x, row.0 * k + from), (width, group)),
                    None => pad(tile, r, (width, group)),
                }
            }
        }
    }
}

/// Row `r` of the tile: the elements from `at` on.
#[inline(always)]
unsafe fn pack<D: Dot, F: Format>(
    tile: RowTile,
    r: usize,
    (x, at): (Input, usize),
    (width, group): (usize, usize),
) {
    let mut values = [0f32; BLOCK];
    for g in 0..width / group {
        let mut sum = 0f32;
        for block in g * (group / BLOCK)..(g + 1) * (group / BLOCK) {
            element::read::<D::S>(x.0, x.1, at + block * BLOCK, values.as_mut_ptr(), BLOCK);
            let (factor, scale) = scale_of::<D::S>(values.as_ptr());
            let bytes = D::S::to_bytes(values.as_ptr(), factor);
            let mut total = 0i32;
            for i in 0..BLOCK {
                total += i32::from(bytes[i]);
            }
            sum = D::S::fma1(scale, total as f32, sum);
            *tile.scales.add(block * tile.rows + r) = scale;
            let words = in_order::<F>(bytes);
            for step in 0..BLOCK / 4 {
                *tile.bytes.add((block * BLOCK / 4 + step) * tile.rows + r) = words[step];
            }
        }
        *tile.sums.add(g * tile.rows + r) = sum;
    }
}

/// A row of zeros.
unsafe fn pad(tile: RowTile, r: usize, (width, group): (usize, usize)) {
    (0..width / 4).for_each(|i| *tile.bytes.add(i * tile.rows + r) = 0);
    (0..width / BLOCK).for_each(|i| *tile.scales.add(i * tile.rows + r) = 0.0);
    (0..width / group).for_each(|i| *tile.sums.add(i * tile.rows + r) = 0.0);
}

/// What a block is multiplied by, and what brings it back. A block with a value that is not finite has no finite scale,
/// and so no finite product.
#[inline(always)]
unsafe fn scale_of<S: Simd>(values: *const f32) -> (f32, f32) {
    let (mut most, mut wrong) = (S::splat(0.0), S::splat(0.0));
    for i in (0..BLOCK).step_by(S::LANES) {
        let v = S::load(values.add(i));
        most = S::max(S::copysign(v, S::splat(0.0)), most);
        wrong = S::fma(v, S::splat(0.0), wrong);
    }
    let (most, wrong) = (S::largest(most), S::sum(wrong));
    if most < MAGNITUDE_MIN {
        return (0.0, wrong);
    }
    (127.0 / most, most / 127.0 + wrong)
}

/// Four bytes for each step, in the order in which the weights of a word are taken: nibbles with even places, then
/// those with odd ones.
#[inline(always)]
fn in_order<F: Format>(bytes: [i8; BLOCK]) -> [u32; BLOCK / 4] {
    // SAFETY: both are 32 bytes without padding.
    let eights: [u64; 4] = unsafe { std::mem::transmute(bytes) };
    let mut words = [0u32; BLOCK / 4];
    for i in 0..4 {
        let eight = u64::from_le(eights[i]);
        let [first, second] = match F::STEPS {
            8 => [every_other(eight), every_other(eight >> 8)],
            _ => [eight as u32, (eight >> 32) as u32],
        };
        (words[2 * i], words[2 * i + 1]) = (first.to_le(), second.to_le());
    }
    words
}

/// Bytes 0, 2, 4 and 6.
#[inline(always)]
fn every_other(eight: u64) -> u32 {
    let pairs = eight & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    (fours | fours >> 16) as u32
}
