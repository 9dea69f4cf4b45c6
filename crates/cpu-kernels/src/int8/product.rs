//! The inner loops: a panel of weights as bytes, and its product with a tile of rows.
//!
//! One result is `Σ fma(bias, sum)` over groups, after `Σ fma(dot, scale · row scale)` over the group's blocks, in the
//! order of K.

use std::marker::PhantomData;

use super::rows::RowTile;
use crate::gemm::{self, Format, K_BLOCK};
use crate::simd::Simd;
use crate::simd::dot::{BLOCK, Dot, DotWork};

/// Vectors of columns that a tile of rows is multiplied with at once.
pub(super) const COLUMN_VECTORS: usize = 2;

/// Columns over a block of K: bytes `[step of 4][vector][lane][4]`, scales and biases `[group][vector][lane]`.
#[repr(C, align(64))]
pub(super) struct Panel {
    words: [u32; COLUMN_VECTORS * 16 * K_BLOCK / 4],
    scales: [f32; COLUMN_VECTORS * 16 * K_BLOCK / BLOCK],
    biases: [f32; COLUMN_VECTORS * 16 * K_BLOCK / BLOCK],
}

/// Writes vector `v` of a panel; no tile means zeros.
pub(super) struct Fill<F> {
    pub panel: *mut Panel,
    pub v: usize,
    pub tile: Option<gemm::Tile>,
    pub width: usize,
    pub format: PhantomData<F>,
}

impl<F: Format> DotWork for Fill<F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let (lanes, span) = (D::S::LANES, COLUMN_VECTORS * D::S::LANES);
        let words = (&raw mut (*self.panel).words).cast::<u32>().add(self.v * lanes);
        let scales = (&raw mut (*self.panel).scales).cast::<f32>().add(self.v * lanes);
        let biases = (&raw mut (*self.panel).biases).cast::<f32>().add(self.v * lanes);
        let Some(tile) = self.tile else {
            (0..self.width / 4).for_each(|i| std::ptr::write_bytes(words.add(i * span), 0, lanes));
            (0..self.width / BLOCK).for_each(|i| std::ptr::write_bytes(scales.add(i * span), 0, lanes));
            (0..self.width / BLOCK).for_each(|i| std::ptr::write_bytes(biases.add(i * span), 0, lanes));
            return;
        };
        fill_words::<D::S, F>(&tile, words);
        fill_scales::<D::S>(tile.scales, &tile, scales);
        fill_scales::<D::S>(tile.biases, &tile, biases);
    }
}

/// Lane `i` is row `i` of the tile: row `4q + v` is quad `q` of vector `v` before the transposition.
#[inline(always)]
unsafe fn fill_words<S: Simd, F: Format>(tile: &gemm::Tile, mut out: *mut u32) {
    let (stride, span) = (tile.stride, COLUMN_VECTORS * S::LANES);
    for unit in 0..tile.groups * tile.units_per_group {
        let at = tile.words.add(16 * unit);
        let mut rows = [S::rows(at, 4 * stride); 4];
        for v in 1..4 {
            rows[v] = S::rows(at.add(v * stride), 4 * stride);
        }
        let words = S::transpose(rows);
        for i in 0..4 {
            if F::STEPS == 8 {
                S::store_words(out, S::and(words[i], 0x0f0f_0f0f));
                out = out.add(span);
                S::store_words(out, S::and(S::shift_right(words[i], 4), 0x0f0f_0f0f));
            } else {
                S::store_words(out, words[i]);
            }
            out = out.add(span);
        }
    }
}

/// Scales or biases, four groups at a time.
#[inline(always)]
unsafe fn fill_scales<S: Simd>(from: *const f32, tile: &gemm::Tile, out: *mut f32) {
    let (stride, span) = (tile.group_stride, COLUMN_VECTORS * S::LANES);
    let whole = tile.groups / 4 * 4;
    for group in (0..whole).step_by(4) {
        let at = from.add(group).cast::<u8>();
        let mut rows = [S::rows(at, 16 * stride); 4];
        for v in 1..4 {
            rows[v] = S::rows(at.add(4 * v * stride), 16 * stride);
        }
        let groups = S::transpose(rows);
        for i in 0..4 {
            S::store_words(out.add((group + i) * span).cast(), groups[i]);
        }
    }
    for group in whole..tile.groups {
        for lane in 0..S::LANES {
            *out.add(group * span + lane) = *from.add(lane * stride + group);
        }
    }
}

/// A tile of rows and a panel over the block of K that starts at `from`.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub x: RowTile,
    pub panel: *const Panel,
    pub from: usize,
    pub width: usize,
    pub group: usize,
    /// `[row][vector][lane]`: added to, but from zero on in the first block.
    pub sums: *mut f32,
}

/// Adds the tile's product to its sums.
#[inline(always)]
pub(super) unsafe fn multiply<D: Dot, F: Format>(tile: Tile) {
    match tile.x.rows {
        1 => D::call(Multiply::<F, 1> { tile, format: PhantomData }),
        2 => D::call(Multiply::<F, 2> { tile, format: PhantomData }),
        4 => D::call(Multiply::<F, 4> { tile, format: PhantomData }),
        _ => D::call(Multiply::<F, 6> { tile, format: PhantomData }),
    }
}

struct Multiply<F, const ROWS: usize> {
    tile: Tile,
    format: PhantomData<F>,
}

impl<F: Format, const ROWS: usize> DotWork for Multiply<F, ROWS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let Tile { x, panel, from, width, group, sums } = self.tile;
        let (lanes, span) = (D::S::LANES, COLUMN_VECTORS * D::S::LANES);
        let mut totals = [[D::S::splat(0.0); COLUMN_VECTORS]; ROWS];
        if from > 0 {
            for r in 0..ROWS {
                for v in 0..COLUMN_VECTORS {
                    totals[r][v] = D::S::load(sums.add(r * span + v * lanes));
                }
            }
        }
        let mut bytes = x.bytes.cast_const().cast::<u8>();
        let mut words = (&raw const (*panel).words).cast::<u32>();
        let (scales, biases) =
            ((&raw const (*panel).scales).cast::<f32>(), (&raw const (*panel).biases).cast::<f32>());
        for g in 0..width / group {
            for block in g * group / BLOCK..(g + 1) * group / BLOCK {
                let dots = self.block::<D>(bytes, words);
                bytes = bytes.add(BLOCK * ROWS);
                words = words.add(BLOCK / 4 * span);
                let scales = scales.add(g * span);
                for r in 0..ROWS {
                    let row_scale = D::S::splat(*x.scales.add(block * ROWS + r));
                    for v in 0..COLUMN_VECTORS {
                        let scale = D::S::mul(D::S::load(scales.add(v * lanes)), row_scale);
                        totals[r][v] = D::S::fma(dots[r][v], scale, totals[r][v]);
                    }
                }
            }
            let biases = biases.add(g * span);
            for r in 0..ROWS {
                let sum = D::S::splat(*x.sums.add(g * ROWS + r));
                for v in 0..COLUMN_VECTORS {
                    totals[r][v] = D::S::fma(D::S::load(biases.add(v * lanes)), sum, totals[r][v]);
                }
            }
        }
        for r in 0..ROWS {
            for v in 0..COLUMN_VECTORS {
                D::S::store(sums.add(r * span + v * lanes), totals[r][v]);
            }
        }
    }
}

impl<F: Format, const ROWS: usize> Multiply<F, ROWS> {
    /// Dot products over a block.
    #[inline(always)]
    unsafe fn block<D: Dot>(
        &self,
        bytes: *const u8,
        words: *const u32,
    ) -> [[<D::S as Simd>::F; COLUMN_VECTORS]; ROWS] {
        let lanes = D::S::LANES;
        let mut sums = [[D::S::no_words(); COLUMN_VECTORS]; ROWS];
        for step in 0..BLOCK / 4 {
            let mut w = [D::S::no_words(); COLUMN_VECTORS];
            for v in 0..COLUMN_VECTORS {
                w[v] = D::S::load_words(words.add((step * COLUMN_VECTORS + v) * lanes));
            }
            for r in 0..ROWS {
                let x = D::S::word(bytes.add((step * ROWS + r) * 4));
                for v in 0..COLUMN_VECTORS {
                    sums[r][v] = match F::STEPS {
                        8 => D::dot_nibbles(sums[r][v], w[v], x),
                        _ => D::dot_bytes(sums[r][v], w[v], x),
                    };
                }
            }
        }
        let mut dots = [[D::S::splat(0.0); COLUMN_VECTORS]; ROWS];
        for r in 0..ROWS {
            for v in 0..COLUMN_VECTORS {
                let sum = if F::STEPS == 8 { D::finish_nibbles(sums[r][v]) } else { sums[r][v] };
                dots[r][v] = D::S::to_float(sum);
            }
        }
        dots
    }
}
