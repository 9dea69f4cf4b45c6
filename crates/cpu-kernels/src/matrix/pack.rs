//! Rows and weights as tiles of bf16.

use std::arch::x86_64::*;

use super::{STEP, STEPS, TILE, TILE_BYTES};
use crate::element::{Float, Input};
use crate::weights::{Source, Weights};

/// Parts of a value.
const PARTS: usize = 3;

/// Rows of x as tiles: `[block of K][tile of rows][step][part]`, a tile is `[16 rows][32 elements]`.
pub(super) struct PackedRows {
    /// The first row of x, and how many there are.
    pub first: usize,
    pub count: usize,
    pub k: usize,
    pub to: *mut u8,
}

// SAFETY: tasks pack disjoint tiles, and later only read them.
unsafe impl Sync for PackedRows {}
// SAFETY: as above.
unsafe impl Send for PackedRows {}

impl PackedRows {
    /// Bytes of so many rows, which are padded to whole tiles.
    pub fn bytes(rows: usize, k: usize) -> usize {
        rows.div_ceil(TILE) * k.div_ceil(STEP) * PARTS * TILE_BYTES
    }

    pub fn tiles(&self) -> usize {
        self.count.div_ceil(TILE)
    }

    /// A tile over the block of K that begins at `from` and has so many steps.
    pub unsafe fn block(&self, from: usize, steps: usize, tile: usize) -> *mut u8 {
        self.to.wrapping_add((from / STEP * self.tiles() + tile * steps) * PARTS * TILE_BYTES)
    }

    /// Packs all of K of a tile. Rows that are missing are zeros.
    ///
    /// # Safety
    /// AVX-512 F and BW are present, x has the rows and `to` has room for them.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn pack(&self, tile: usize, x: Input) {
        for from in (0..self.k).step_by(STEPS * STEP) {
            let steps = STEPS.min((self.k - from).div_ceil(STEP));
            let block = self.block(from, steps, tile);
            for row in 0..TILE {
                let index = tile * TILE + row;
                for step in 0..steps {
                    let at = from + step * STEP;
                    let mut parts = [_mm512_setzero_si512(); PARTS];
                    if index < self.count {
                        let (row, float) = x.at((self.first + index) * self.k);
                        parts = split(read(row, float, at, self.k - at));
                    }
                    for part in 0..PARTS {
                        let to = block.add((step * PARTS + part) * TILE_BYTES + row * 64);
                        _mm512_store_si512(to.cast(), parts[part]);
                    }
                }
            }
        }
    }
}

/// Columns of weights over a block of K: `[step][part][2]` tiles of `[16 pairs of elements][16 columns]`.
pub(super) struct Panel {
    pub source: Source,
    pub column: usize,
    pub from: usize,
    pub steps: usize,
    pub to: *mut u8,
}

impl Panel {
    /// Fills the panel, and returns how many parts its weights have. Columns that are missing are zeros.
    ///
    /// # Safety
    /// AVX-512 F and BW are present, and the weights are dense.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn fill(&self) -> usize {
        let Weights::Dense(float) = self.source.weights else { return PARTS };
        let parts = if float == Float::Bf16 { 1 } else { PARTS };
        let Source { words, n, k, .. } = self.source;
        for step in 0..self.steps {
            let at = self.from + step * STEP;
            for half in 0..2 {
                let first = self.column + half * TILE;
                let mut columns = [[_mm512_setzero_si512(); TILE]; PARTS];
                for column in 0..TILE.min(n.saturating_sub(first)) {
                    let row = float.at(words, (first + column) * k);
                    if float == Float::Bf16 {
                        let mask = u32::MAX >> (STEP - STEP.min(k - at));
                        columns[0][column] = _mm512_maskz_loadu_epi16(mask, row.cast::<i16>().add(at));
                        continue;
                    }
                    let of_row = split(read(row, float, at, k - at));
                    for part in 0..PARTS {
                        columns[part][column] = of_row[part];
                    }
                }
                for part in 0..parts {
                    let to = self.to.add(((step * parts + part) * 2 + half) * TILE_BYTES);
                    let pairs = transpose(&columns[part]);
                    for pair in 0..TILE {
                        _mm512_store_si512(to.add(pair * 64).cast(), pairs[pair]);
                    }
                }
            }
        }
        parts
    }
}

/// 32 elements from `at` on, of which `left` are there; zeros after them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn read(row: *const u8, float: Float, at: usize, left: usize) -> [__m512; 2] {
    [read_half(row, float, at, left), read_half(row, float, at + TILE, left.saturating_sub(TILE))]
}

/// 16 elements from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn read_half(row: *const u8, float: Float, at: usize, left: usize) -> __m512 {
    let mask = ((1u32 << left.min(TILE)) - 1) as u16;
    if float == Float::F32 {
        return _mm512_maskz_loadu_ps(mask, row.cast::<f32>().wrapping_add(at));
    }
    let row = row.cast::<i16>().wrapping_add(at);
    let halves = _mm512_castsi512_si256(_mm512_maskz_loadu_epi16(mask.into(), row));
    match float {
        Float::F16 => _mm512_cvtph_ps(halves),
        _ => _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))),
    }
}

/// The parts of 32 values, each as 32 bf16 values in order. Their sum is the value, without an error.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn split([low, high]: [__m512; 2]) -> [__m512i; PARTS] {
    let upper_halves = _mm512_loadu_si512(UPPER_HALVES.as_ptr().cast());
    let upper_bits = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let mut rest = [_mm512_castps_si512(low), _mm512_castps_si512(high)];
    let mut parts = [_mm512_setzero_si512(); PARTS];
    for part in 0..PARTS {
        parts[part] = _mm512_permutex2var_epi16(rest[0], upper_halves, rest[1]);
        for half in 0..2 {
            let whole = _mm512_castsi512_ps(rest[half]);
            let part = _mm512_castsi512_ps(_mm512_and_si512(rest[half], upper_bits));
            rest[half] = _mm512_castps_si512(_mm512_sub_ps(whole, part));
        }
    }
    parts
}

/// Numbers of the upper halves of 32 lanes.
static UPPER_HALVES: [i16; 32] = {
    let mut numbers = [0; 32];
    let mut i = 0;
    while i < 32 {
        numbers[i] = 2 * i as i16 + 1;
        i += 1;
    }
    numbers
};

/// Transposes 16 rows of 16 32-bit values.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: &[__m512i; TILE]) -> [__m512i; TILE] {
    let mut pairs = *rows;
    for i in (0..TILE).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // Four lanes of each quarter are a column's values of four rows.
    let mut fours = pairs;
    for i in (0..TILE).step_by(4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    let mut columns = fours;
    for i in 0..4 {
        let (a, b, c, d) = (fours[i], fours[i + 4], fours[i + 8], fours[i + 12]);
        let (even_ab, odd_ab) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (even_cd, odd_cd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        columns[i] = _mm512_shuffle_i32x4::<0x88>(even_ab, even_cd);
        columns[i + 4] = _mm512_shuffle_i32x4::<0x88>(odd_ab, odd_cd);
        columns[i + 8] = _mm512_shuffle_i32x4::<0xdd>(even_ab, even_cd);
        columns[i + 12] = _mm512_shuffle_i32x4::<0xdd>(odd_ab, odd_cd);
    }
    columns
}
