//! Norms and gated activations: each row (or element) by itself, in f32.

use super::element::{Float, load, load1, store, store1};
use super::math;
use super::pool;
use super::simd::{self, Simd, Work};

/// Fewer elements than this are faster on one thread.
const SMALL: usize = 1 << 14;

/// Inputs: x `[rows, width]`, the residual if `residual`, then weight and bias as named, `[width]`.
/// Outputs: x + residual if `residual`, then the normed rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    pub center: Center,
    pub float: Float,
    pub rows: usize,
    pub width: usize,
    pub eps: f32,
    pub residual: bool,
    pub weight: Option<Float>,
    pub bias: Option<Float>,
}

/// What is subtracted before the division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Center {
    /// Nothing: RMS norm.
    Zero,
    /// The mean: layer norm.
    Mean,
}

/// Activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Silu,
    /// By the normal distribution's integral.
    Gelu,
    /// By tanh.
    GeluTanh,
    /// No more than a gate.
    Sigmoid,
    Relu,
}

/// `act(gate) * up`, or `act(gate)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    pub act: Act,
    pub float: Float,
    pub rows: usize,
    pub width: usize,
    pub inputs: Gates,
}

/// The inputs of a gated activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    /// One, `[rows, 2 * width]`: gate, then up.
    Joined,
    /// Gate and up, `[rows, width]`.
    Apart,
    /// The gate, `[rows, width]`, and nothing to multiply.
    Alone,
}

#[derive(Clone, Copy)]
struct NormRows<'a> {
    what: &'a Norm,
    x: *const u8,
    residual: *const u8,
    weight: *const u8,
    bias: *const u8,
    sum: *mut u8,
    out: *mut u8,
    first: usize,
    end: usize,
}

// SAFETY: tasks write disjoint rows.
unsafe impl Sync for NormRows<'_> {}

impl Norm {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let mut rest = inputs[1..].iter().copied();
        let mut named = |there: bool| if there { rest.next() } else { None }.unwrap_or(std::ptr::null());
        let (residual, weight) = (named(self.residual), named(self.weight.is_some()));
        let bias = named(self.bias.is_some());
        let all = NormRows {
            what: self,
            x: inputs[0],
            residual,
            weight,
            bias,
            sum: outputs[0],
            out: outputs[outputs.len() - 1],
            first: 0,
            end: self.rows,
        };
        let isa = simd::isa();
        by_rows(self.rows, self.width, |first, end| {
            let all = &all;
            simd::with(isa, NormRows { first, end, ..*all })
        });
    }
}

/// Calls `part` with ranges that cover all rows.
pub(super) fn by_rows(rows: usize, width: usize, part: impl Fn(usize, usize) + Sync) {
    if rows * width <= SMALL {
        return part(0, rows);
    }
    let each = rows.div_ceil(pool::threads() * 4).max(SMALL / 4 / width.max(1)).max(1);
    pool::run(rows.div_ceil(each), |i| part(i * each, rows.min((i + 1) * each)));
}

impl Work for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Norm { width, float, residual, .. } = *self.what;
        for row in self.first..self.end {
            let at = row * width;
            if residual {
                add_rows::<S>((self.x, self.residual, self.sum), float, at, width);
            }
            let x = if residual { self.sum.cast_const() } else { self.x };
            self.norm::<S>(x, at);
        }
    }
}

#[inline(always)]
unsafe fn add_rows<S: Simd>((a, b, out): (*const u8, *const u8, *mut u8), float: Float, at: usize, n: usize) {
    let whole = n / S::LANES * S::LANES;
    for i in (at..at + whole).step_by(S::LANES) {
        store::<S>(out, float, i, S::add(load::<S>(a, float, i), load::<S>(b, float, i)));
    }
    for i in at + whole..at + n {
        store1(out, float, i, load1(a, float, i) + load1(b, float, i));
    }
}

impl NormRows<'_> {
    /// Sum of `(element - shift)`, or of its square: four vectors at a time, then single ones.
    #[inline(always)]
    unsafe fn total<S: Simd, const SQUARED: bool>(&self, x: *const u8, at: usize, shift: f32) -> f32 {
        let Norm { width, float, .. } = *self.what;
        let mut acc = [S::splat(0.0); 4];
        let (four, whole) = (width / (4 * S::LANES) * 4 * S::LANES, width / S::LANES * S::LANES);
        for i in (0..four).step_by(4 * S::LANES) {
            for j in 0..4 {
                let v = S::sub(load::<S>(x, float, at + i + j * S::LANES), S::splat(shift));
                acc[j] = if SQUARED { S::fma(v, v, acc[j]) } else { S::add(v, acc[j]) };
            }
        }
        for i in (four..whole).step_by(S::LANES) {
            let v = S::sub(load::<S>(x, float, at + i), S::splat(shift));
            acc[0] = if SQUARED { S::fma(v, v, acc[0]) } else { S::add(v, acc[0]) };
        }
        let mut total = S::sum(S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3])));
        for i in whole..width {
            let v = load1(x, float, at + i) - shift;
            total += if SQUARED { v * v } else { v };
        }
        total
    }

    #[inline(always)]
    unsafe fn norm<S: Simd>(&self, x: *const u8, at: usize) {
        let Norm { width, float, eps, weight, bias, center, .. } = *self.what;
        let mean = match center {
            Center::Zero => 0.0,
            Center::Mean => self.total::<S, false>(x, at, 0.0) / width as f32,
        };
        let shift = S::splat(mean);
        let squares = self.total::<S, true>(x, at, mean);
        let factor = 1.0 / (squares / width as f32 + eps).sqrt();
        let whole = width / S::LANES * S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            let mut v = S::mul(S::sub(load::<S>(x, float, at + i), shift), S::splat(factor));
            if let Some(float) = weight {
                v = S::mul(v, load::<S>(self.weight, float, i));
            }
            if let Some(float) = bias {
                v = S::add(v, load::<S>(self.bias, float, i));
            }
            store::<S>(self.out, float, at + i, v);
        }
        for i in whole..width {
            let w = weight.map_or(1.0, |float| load1(self.weight, float, i));
            let b = bias.map_or(0.0, |float| load1(self.bias, float, i));
            store1(self.out, float, at + i, (load1(x, float, at + i) - mean) * factor * w + b);
        }
    }
}

/// Elements `first..end` of all `rows * width`.
#[derive(Clone, Copy)]
struct GatedPart<'a> {
    what: &'a Gated,
    gate: *const u8,
    up: *const u8,
    out: *mut u8,
    first: usize,
    end: usize,
}

// SAFETY: tasks write disjoint rows.
unsafe impl Sync for GatedPart<'_> {}

impl Gated {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        let up = match self.inputs {
            Gates::Joined => self.float.at(inputs[0], self.width),
            Gates::Apart => inputs[1],
            Gates::Alone => std::ptr::null(),
        };
        let all = GatedPart { what: self, gate: inputs[0], up, out, first: 0, end: self.rows };
        // An exponential costs about as much as eight additions.
        let isa = simd::isa();
        by_rows(self.rows, self.width * 8, |first, end| {
            let all = &all;
            simd::with(isa, GatedPart { first, end, ..*all })
        });
    }
}

impl Work for GatedPart<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        match self.what.act {
            Act::Silu => self.each::<S, 0>(),
            Act::Gelu => self.each::<S, 1>(),
            Act::GeluTanh => self.each::<S, 2>(),
            Act::Sigmoid => self.each::<S, 3>(),
            Act::Relu => self.each::<S, 4>(),
        }
    }
}

/// An activation by its number, so that it is a constant of the loop. (A closure would be compiled without the
/// instruction set.)
#[inline(always)]
unsafe fn activate<S: Simd, const ACT: u8>(x: S::F) -> S::F {
    match ACT {
        0 => S::mul(x, math::sigmoid::<S>(x)),
        1 => S::mul(x, math::normal_cdf::<S>(x)),
        3 => math::sigmoid::<S>(x),
        4 => S::max(S::splat(0.0), x),
        _ => {
            // x/2 (1 + tanh u) is x sigmoid(2u).
            let cube = S::mul(S::mul(x, x), x);
            let u = S::mul(S::fma(cube, S::splat(0.044_715), x), S::splat(1.595_769));
            S::mul(x, math::sigmoid::<S>(u))
        }
    }
}

impl GatedPart<'_> {
    #[inline(always)]
    unsafe fn each<S: Simd, const ACT: u8>(&self) {
        let Gated { width, float, inputs, .. } = *self.what;
        let (stride, multiplies) = match inputs {
            Gates::Joined => (2 * width, true),
            Gates::Apart => (width, true),
            Gates::Alone => (width, false),
        };
        for row in self.first..self.end {
            let (from, to) = (row * stride, row * width);
            let mut i = 0;
            while i + S::LANES <= width {
                let mut v = activate::<S, ACT>(load::<S>(self.gate, float, from + i));
                if multiplies {
                    v = S::mul(v, load::<S>(self.up, float, from + i));
                }
                store::<S>(self.out, float, to + i, v);
                i += S::LANES;
            }
            if i < width {
                let (mut gate, mut up) = ([0f32; 16], [1f32; 16]);
                for j in 0..width - i {
                    gate[j] = load1(self.gate, float, from + i + j);
                    if multiplies {
                        up[j] = load1(self.up, float, from + i + j);
                    }
                }
                let v = S::mul(activate::<S, ACT>(S::load(gate.as_ptr())), S::load(up.as_ptr()));
                S::store(gate.as_mut_ptr(), v);
                for j in 0..width - i {
                    store1(self.out, float, to + i + j, gate[j]);
                }
            }
        }
    }
}
