//! Element types that kernels read and write: all arithmetic is in f32, these convert at the borders.

use super::half::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32};
use super::simd::Simd;

/// Floating-point types of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    F32,
    F16,
    Bf16,
}

impl Float {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Float::F32 => 4,
            Float::F16 | Float::Bf16 => 2,
        }
    }

    /// Address of element `i`.
    ///
    /// # Safety
    /// As for [`pointer::add`].
    #[inline(always)]
    pub(super) unsafe fn at(self, base: *const u8, i: usize) -> *const u8 {
        base.add(i * self.bytes())
    }
}

/// Reads a vector that starts at element `i`.
///
/// # Safety
/// All lanes are inside the buffer, as for everything below.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(base: *const u8, float: Float, i: usize) -> S::F {
    match float {
        Float::F32 => S::load(base.cast::<f32>().add(i)),
        Float::F16 => S::load_f16(base.cast::<u16>().add(i)),
        Float::Bf16 => S::load_bf16(base.cast::<u16>().add(i)),
    }
}

#[inline(always)]
pub(super) unsafe fn store<S: Simd>(base: *mut u8, float: Float, i: usize, v: S::F) {
    match float {
        Float::F32 => S::store(base.cast::<f32>().add(i), v),
        Float::F16 => S::store_f16(base.cast::<u16>().add(i), v),
        Float::Bf16 => S::store_bf16(base.cast::<u16>().add(i), v),
    }
}

#[inline(always)]
pub(super) unsafe fn load1(base: *const u8, float: Float, i: usize) -> f32 {
    match float {
        Float::F32 => base.cast::<f32>().add(i).read_unaligned(),
        Float::F16 => f16_to_f32(base.cast::<u16>().add(i).read_unaligned()),
        Float::Bf16 => bf16_to_f32(base.cast::<u16>().add(i).read_unaligned()),
    }
}

#[inline(always)]
pub(super) unsafe fn store1(base: *mut u8, float: Float, i: usize, v: f32) {
    match float {
        Float::F32 => *base.cast::<f32>().add(i) = v,
        Float::F16 => *base.cast::<u16>().add(i) = f16_from_f32(v),
        Float::Bf16 => *base.cast::<u16>().add(i) = bf16_from_f32(v),
    }
}

/// `n` elements from `i` on, as f32.
#[inline(always)]
pub(super) unsafe fn read<S: Simd>(base: *const u8, float: Float, i: usize, out: *mut f32, n: usize) {
    let mut j = 0;
    while j + S::LANES <= n {
        S::store(out.add(j), load::<S>(base, float, i + j));
        j += S::LANES;
    }
    while j < n {
        *out.add(j) = load1(base, float, i + j);
        j += 1;
    }
}

/// `n` f32 values to the elements from `i` on.
#[inline(always)]
pub(super) unsafe fn write<S: Simd>(base: *mut u8, float: Float, i: usize, values: *const f32, n: usize) {
    let mut j = 0;
    while j + S::LANES <= n {
        store::<S>(base, float, i + j, S::load(values.add(j)));
        j += S::LANES;
    }
    while j < n {
        store1(base, float, i + j, *values.add(j));
        j += 1;
    }
}

/// Rows of a product, or what is added to them.
#[derive(Clone, Copy)]
pub(super) struct Input(pub *const u8, pub Float);
/// Results of a product.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub to: *mut u8,
    pub float: Float,
    /// Is added to each row.
    pub bias: Option<Input>,
}
// SAFETY: x is only read; tasks write disjoint parts of the output.
unsafe impl Sync for Input {}
// SAFETY: as above.
unsafe impl Sync for Output {}

impl Input {
    /// Address and type of element `i`.
    pub(super) unsafe fn at(&self, i: usize) -> (*const u8, Float) {
        (self.1.at(self.0, i), self.1)
    }
}

/// The lanes of `v` that come before `end`, with their bias, to the columns from `n` on of the row that starts at element
/// `row`.
#[inline(always)]
pub(super) unsafe fn store_columns<S: Simd>(out: Output, row: usize, n: usize, end: usize, v: S::F) {
    let Output { to, float, bias } = out;
    if n + S::LANES <= end {
        let v = match bias {
            Some(Input(bias, float)) => S::add(v, load::<S>(bias, float, n)),
            None => v,
        };
        return store::<S>(to, float, row + n, v);
    }
    let mut lanes = [0f32; 16];
    S::store(lanes.as_mut_ptr(), v);
    for i in 0..end - n {
        let bias = match bias {
            Some(Input(bias, float)) => load1(bias, float, n + i),
            None => 0.0,
        };
        store1(to, float, row + n + i, lanes[i] + bias);
    }
}
