//! How the pools hold keys and values.

use crate::element::{Float, read, write};
use crate::packing::Packing;
use crate::simd::Simd;

/// How the pools hold keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Float(Float),
    Packed(Packing),
}

impl Store {
    /// Bytes of `width` elements, which groups divide.
    pub(super) fn bytes(self, width: usize) -> usize {
        match self {
            Store::Float(float) => width * float.bytes(),
            Store::Packed(packing) => 4 * packing.words(width),
        }
    }

    /// Head `index` of the pool, each `width` wide, from or to f32.
    #[inline(always)]
    pub(super) unsafe fn read<S: Simd>(self, pool: *const u8, index: usize, out: *mut f32, width: usize) {
        match self {
            Store::Float(float) => read::<S>(pool, float, index * width, out, width),
            Store::Packed(packing) => packing.unpack(pool.add(index * self.bytes(width)).cast(), width, out),
        }
    }

    #[inline(always)]
    pub(super) unsafe fn write<S: Simd>(self, pool: *mut u8, index: usize, values: *const f32, width: usize) {
        match self {
            Store::Float(float) => write::<S>(pool, float, index * width, values, width),
            Store::Packed(packing) => packing.pack(values, width, pool.add(index * self.bytes(width)).cast()),
        }
    }
}
