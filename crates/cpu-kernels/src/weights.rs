//! Weights of a product, dense or packed, in tiles of some columns over a block of K.

use super::element::{Float, load1};
use super::gemm::{Format, K_BLOCK, Tile};
use super::simd::Simd;

/// How the weights of a `Linear` are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weights {
    Dense(Float),
    /// MLX's affine format: `q * scale + bias` in groups along K.
    Affine {
        bits: usize,
        group: usize,
        scales: Float,
    },
}

/// Addresses of an expert's words, scales and biases. Without words the expert is not computed.
pub type ExpertAddresses = [*const u8; 3];

/// Weights of one expert.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub weights: Weights,
    /// Of every expert, where they do not follow each other; else null.
    pub table: *const ExpertAddresses,
    pub words: *const u8,
    pub scales: *const u8,
    pub biases: *const u8,
    pub n: usize,
    pub k: usize,
}

// SAFETY: read-only views of arrays that outlive the call.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

/// Room to bring an irregular tile into a regular form.
#[repr(C, align(64))]
pub(super) struct Stage {
    words: [u8; 16 * K_BLOCK * 4],
    scales: [f32; 16 * K_BLOCK / 32],
    biases: [f32; 16 * K_BLOCK / 32],
}

impl Source {
    /// Bytes of one row.
    fn stride(&self) -> usize {
        match self.weights {
            Weights::Dense(float) => self.k * float.bytes(),
            Weights::Affine { bits, .. } => self.k * bits / 8,
        }
    }

    pub(super) unsafe fn expert(mut self, expert: usize) -> Self {
        if !self.table.is_null() {
            [self.words, self.scales, self.biases] = *self.table.add(expert);
            return self;
        }
        self.words = self.words.add(expert * self.n * self.stride());
        if let Weights::Affine { group, scales, .. } = self.weights {
            let bytes = expert * self.n * (self.k / group) * scales.bytes();
            self.scales = self.scales.add(bytes);
            self.biases = self.biases.add(bytes);
        }
        self
    }

    /// Rows `n..n + LANES` over the block of K from `k` on. Missing rows are zeros.
    #[inline(always)]
    pub(super) unsafe fn tile<S: Simd, F: Format>(&self, n: usize, k: usize, stage: *mut Stage) -> Tile {
        let width = K_BLOCK.min(self.k - k);
        let whole = n + S::LANES <= self.n;
        let rows = S::LANES.min(self.n - n);
        let stride = self.stride();
        let units = width.div_ceil(F::UNIT);
        let mut tile = Tile {
            words: self.words.wrapping_add(n * stride + k / F::UNIT * 16),
            stride,
            scales: std::ptr::null(),
            biases: std::ptr::null(),
            group_stride: 0,
            groups: 1,
            units_per_group: units,
        };
        match self.weights {
            Weights::Affine { bits: 4 | 8, group, scales } => {
                if !whole {
                    copy_rows::<S>(&mut tile, stage, rows, units * 16);
                }
                (tile.groups, tile.units_per_group) = (width / group, group / F::UNIT);
                self.scale_tile::<S>(&mut tile, n, rows, (k, group, scales), stage);
            }
            Weights::Affine { bits, group, scales } => {
                tile.groups = width / group;
                self.scale_tile::<S>(&mut tile, n, rows, (k, group, scales), stage);
                tile.words = self.words.add(n * stride);
                decode_rows::<S>(&mut tile, stage, rows, (k, width), (bits, group));
                (tile.groups, tile.units_per_group) = (1, units);
            }
            Weights::Dense(float) => {
                if !whole || !width.is_multiple_of(F::UNIT) {
                    copy_rows::<S>(&mut tile, stage, rows, width * float.bytes());
                }
            }
        }
        tile
    }

    #[inline(always)]
    unsafe fn scale_tile<S: Simd>(
        &self,
        tile: &mut Tile,
        n: usize,
        rows: usize,
        (k, group, float): (usize, usize, Float),
        stage: *mut Stage,
    ) {
        let stride = self.k / group;
        let first = n * stride + k / group;
        if matches!(float, Float::F32) && rows == S::LANES {
            (tile.scales, tile.biases) =
                (self.scales.cast::<f32>().add(first), self.biases.cast::<f32>().add(first));
            tile.group_stride = stride;
            return;
        }
        let (scales, biases) = (&raw mut (*stage).scales, &raw mut (*stage).biases);
        let (scales, biases) = (scales.cast::<f32>(), biases.cast::<f32>());
        let groups = tile.groups;
        for r in 0..S::LANES {
            for (from, to) in [(self.scales, scales), (self.biases, biases)] {
                let to = to.add(r * groups);
                if r >= rows {
                    std::ptr::write_bytes(to, 0, groups);
                } else {
                    widen(from, float, first + r * stride, to, groups);
                }
            }
        }
        (tile.scales, tile.biases, tile.group_stride) = (scales, biases, groups);
    }
}

/// Converts a few scales. Eight at a time have a length that compilers know.
#[inline(always)]
unsafe fn widen(from: *const u8, float: Float, i: usize, to: *mut f32, n: usize) {
    let mut j = 0;
    if matches!(float, Float::Bf16) {
        let from = from.cast::<u16>().add(i);
        while j + 8 <= n {
            let eight = from.add(j).cast::<[u16; 8]>().read_unaligned();
            to.add(j).cast::<[f32; 8]>().write_unaligned(eight.map(super::half::bf16_to_f32));
            j += 8;
        }
    }
    while j < n {
        *to.add(j) = load1(from, float, i + j);
        j += 1;
    }
}

/// Copies the first `rows` rows of a tile, `bytes` each, to the stage, with zeros around.
#[inline(always)]
unsafe fn copy_rows<S: Simd>(tile: &mut Tile, stage: *mut Stage, rows: usize, bytes: usize) {
    let words = (&raw mut (*stage).words).cast::<u8>();
    let stride = bytes.next_multiple_of(16);
    std::ptr::write_bytes(words, 0, S::LANES * stride);
    for r in 0..rows {
        std::ptr::copy_nonoverlapping(tile.words.add(r * tile.stride), words.add(r * stride), bytes);
    }
    (tile.words, tile.stride) = (words, stride);
}

/// Decodes rows of any bit width to f32: weight `i` is bits `i * bits..` of its row, least significant first.
#[inline(always)]
unsafe fn decode_rows<S: Simd>(
    tile: &mut Tile,
    stage: *mut Stage,
    rows: usize,
    (k, width): (usize, usize),
    (bits, group): (usize, usize),
) {
    let out = (&raw mut (*stage).words).cast::<f32>();
    let (end, mask) = (tile.words as usize + rows * tile.stride, (1 << bits) - 1);
    if rows < S::LANES {
        std::ptr::write_bytes(out, 0, S::LANES * width);
    }
    for r in 0..rows {
        let row = tile.words.add(r * tile.stride);
        for g in 0..width / group {
            let at = r * tile.group_stride + g;
            let (scale, bias) = (*tile.scales.add(at), *tile.biases.add(at));
            for i in (g * group..(g + 1) * group).step_by(8) {
                // Eight weights are `bits` whole bytes.
                let at = row.add((k + i) / 8 * bits);
                let mut packed = [0u8; 8];
                if at as usize + 8 <= end {
                    packed = at.cast::<[u8; 8]>().read_unaligned();
                } else {
                    std::ptr::copy_nonoverlapping(at, packed.as_mut_ptr(), bits);
                }
                let packed = u64::from_le_bytes(packed);
                let mut eight = [0f32; 8];
                for j in 0..8 {
                    let q = (packed >> (j * bits)) & mask;
                    eight[j] = S::fma1(q as u32 as i32 as f32, scale, bias);
                }
                out.add(r * width + i).cast::<[f32; 8]>().write(eight);
            }
        }
    }
    (tile.words, tile.stride) = (out.cast(), width * 4);
}
