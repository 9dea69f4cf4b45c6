//! Element-wise functions and operators. Two arrays are broadcast, and promoted to a common dtype.

use std::ops::{Add, Div, Mul, Neg, Sub};

use mlx_sys::{self as sys, Binary, Unary};

use crate::array::{Array, opt};
use crate::error::Result;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        /// Functions of each element.
        impl Array { $(
            $(#[$doc])*
            pub fn $name(&self) -> Result<Self> {
                Self::made(stringify!($name), [self], sys::unary(Unary::$op, self.raw()?))
            }
        )* }
    };
}
unary! {
    /// |x|.
    abs => Abs;
    /// Arc cosine.
    arccos => ArcCos;
    /// Arc sine.
    arcsin => ArcSin;
    /// Arc tangent.
    arctan => ArcTan;
    /// All bits flipped; integers and booleans.
    bitwise_invert => BitwiseInvert;
    /// The next integer up.
    ceil => Ceil;
    /// Cosine.
    cos => Cos;
    /// Hyperbolic cosine.
    cosh => Cosh;
    /// The error function.
    erf => Erf;
    /// The inverse of [`erf`](Self::erf).
    erfinv => ErfInv;
    /// eˣ.
    exp => Exp;
    /// eˣ − 1, exact near 0.
    expm1 => Expm1;
    /// The next integer down.
    floor => Floor;
    /// x·Φ(x), with the exact normal distribution.
    gelu => Gelu;
    /// x·σ(1.702 x): the fast approximation of [`gelu`](Self::gelu).
    gelu_sigmoid => GeluSigmoid;
    /// The tanh approximation of [`gelu`](Self::gelu).
    gelu_tanh => GeluTanh;
    /// Booleans: neither infinite nor NaN.
    is_finite => IsFinite;
    /// Booleans: ±∞.
    is_inf => IsInf;
    /// Booleans: NaN.
    is_nan => IsNan;
    /// Natural logarithm.
    log => Log;
    /// Logarithm to base 10.
    log10 => Log10;
    /// ln(1 + x), exact near 0.
    log1p => Log1p;
    /// Logarithm to base 2.
    log2 => Log2;
    /// Booleans: x is 0.
    logical_not => LogicalNot;
    /// −x; what the operator `-` does, with its error reported at once.
    negative => Negative;
    /// 1/x.
    reciprocal => Reciprocal;
    /// max(x, 0).
    relu => Relu;
    /// The nearest integer; halves go to the even one.
    round => Round;
    /// 1/√x.
    rsqrt => Rsqrt;
    /// 1/(1 + e⁻ˣ).
    sigmoid => Sigmoid;
    /// −1, 0 or 1.
    sign => Sign;
    /// x·σ(x).
    silu => Silu;
    /// Sine.
    sin => Sin;
    /// Hyperbolic sine.
    sinh => Sinh;
    /// ln(1 + eˣ), without overflow.
    softplus => Softplus;
    /// √x.
    sqrt => Sqrt;
    /// x².
    square => Square;
    /// x, through which no gradient flows.
    stop_gradient => StopGradient;
    /// Tangent.
    tan => Tan;
    /// Hyperbolic tangent.
    tanh => Tanh;
    /// The fraction cut off.
    trunc => Trunc;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        /// Functions of two arrays, element by element.
        impl Array { $(
            $(#[$doc])*
            pub fn $name(&self, rhs: &Array) -> Result<Self> {
                self.binary(stringify!($name), Binary::$op, rhs)
            }
        )* }
    };
}
binary! {
    /// The angle of the point (rhs, self).
    arctan2 => ArcTan2;
    /// Bits that both have; integers and booleans.
    bitwise_and => BitwiseAnd;
    /// Bits that one of them has; integers and booleans.
    bitwise_or => BitwiseOr;
    /// Bits that just one of them has; integers and booleans.
    bitwise_xor => BitwiseXor;
    /// Booleans: ==.
    equal => Equal;
    /// The quotient rounded down. Integers by 0 are undefined (0 on the CPU), and the lowest integer by −1
    /// kills the process on the CPU.
    floor_divide => FloorDivide;
    /// Booleans: >.
    greater => Greater;
    /// Booleans: ≥.
    greater_equal => GreaterEqual;
    /// Bits moved up; the count must be below the number of bits.
    left_shift => LeftShift;
    /// Booleans: <.
    less => Less;
    /// Booleans: ≤.
    less_equal => LessEqual;
    /// ln(eˣ + eʸ), without overflow.
    logaddexp => LogAddExp;
    /// Booleans: both.
    logical_and => LogicalAnd;
    /// Booleans: one or both.
    logical_or => LogicalOr;
    /// The larger one; NaN if either is.
    maximum => Maximum;
    /// The smaller one; NaN if either is.
    minimum => Minimum;
    /// Booleans: !=.
    not_equal => NotEqual;
    /// self to the power of rhs.
    power => Power;
    /// The remainder, with the sign of rhs. As [`floor_divide`](Self::floor_divide) for integers.
    remainder => Remainder;
    /// Bits moved down; the count must be below the number of bits.
    right_shift => RightShift;
}

impl Array {
    /// Each element limited to `low..=high`, where given; both are broadcast.
    pub fn clip(&self, low: Option<&Array>, high: Option<&Array>) -> Result<Self> {
        // SAFETY: both pointers are null or borrowed from arrays that outlive the call.
        let raw = unsafe { sys::clip(self.raw()?, opt(low)?, opt(high)?) };
        Self::made("clip", [Some(self), low, high], raw)
    }

    fn binary(&self, name: &'static str, op: Binary, rhs: &Array) -> Result<Self> {
        Self::made(name, [self, rhs], sys::binary(op, self.raw()?, rhs.raw()?))
    }
}

/// `yes` where `condition` is true, `no` elsewhere; all three are broadcast.
pub fn where_(condition: &Array, yes: &Array, no: &Array) -> Result<Array> {
    let raw = sys::where_(condition.raw()?, yes.raw()?, no.raw()?);
    Array::made("where_", [condition, yes, no], raw)
}

/// A number beside an array. As in Python, a float takes the array's dtype, or float32 if that is of
/// integers; an integer takes the array's dtype, or int32 if that is of booleans.
pub trait Scalar: Copy {
    /// `array op self`, or `self op array` if flipped.
    #[doc(hidden)]
    fn apply(
        self,
        op: Binary,
        array: &sys::Array,
        flipped: bool,
    ) -> Result<super::array::Raw, cxx::Exception>;
}

impl Scalar for f32 {
    fn apply(
        self,
        op: Binary,
        array: &sys::Array,
        flipped: bool,
    ) -> Result<super::array::Raw, cxx::Exception> {
        sys::binary_float(op, array, self, flipped)
    }
}

impl Scalar for i32 {
    fn apply(
        self,
        op: Binary,
        array: &sys::Array,
        flipped: bool,
    ) -> Result<super::array::Raw, cxx::Exception> {
        sys::binary_int(op, array, self, flipped)
    }
}

fn with_scalar(name: &'static str, op: Binary, array: &Array, scalar: impl Scalar, flipped: bool) -> Array {
    Array(array.raw().and_then(|raw| Array::made(name, [array], scalar.apply(op, raw, flipped))?.0))
}

/// `array op array` in all mixes of values and references, `array op number` and `number op array`.
macro_rules! operator {
    ($trait:ident, $method:ident, $op:ident) => {
        impl $trait<&Array> for &Array {
            type Output = Array;
            fn $method(self, rhs: &Array) -> Array {
                self.binary(stringify!($method), Binary::$op, rhs).unwrap_or_else(|e| Array(Err(e)))
            }
        }
        impl $trait<Array> for &Array {
            type Output = Array;
            fn $method(self, rhs: Array) -> Array {
                self.$method(&rhs)
            }
        }
        impl $trait<&Array> for Array {
            type Output = Array;
            fn $method(self, rhs: &Array) -> Array {
                (&self).$method(rhs)
            }
        }
        impl $trait<Array> for Array {
            type Output = Array;
            fn $method(self, rhs: Array) -> Array {
                (&self).$method(&rhs)
            }
        }
        operator!(scalar $trait, $method, $op, f32);
        operator!(scalar $trait, $method, $op, i32);
    };
    (scalar $trait:ident, $method:ident, $op:ident, $scalar:ty) => {
        impl $trait<$scalar> for &Array {
            type Output = Array;
            fn $method(self, rhs: $scalar) -> Array {
                with_scalar(stringify!($method), Binary::$op, self, rhs, false)
            }
        }
        impl $trait<$scalar> for Array {
            type Output = Array;
            fn $method(self, rhs: $scalar) -> Array {
                (&self).$method(rhs)
            }
        }
        impl $trait<&Array> for $scalar {
            type Output = Array;
            fn $method(self, rhs: &Array) -> Array {
                with_scalar(stringify!($method), Binary::$op, rhs, self, true)
            }
        }
        impl $trait<Array> for $scalar {
            type Output = Array;
            fn $method(self, rhs: Array) -> Array {
                self.$method(&rhs)
            }
        }
    };
}
operator!(Add, add, Add);
operator!(Sub, sub, Subtract);
operator!(Mul, mul, Multiply);
operator!(Div, div, Divide);

impl Neg for &Array {
    type Output = Array;
    fn neg(self) -> Array {
        self.negative().unwrap_or_else(|e| Array(Err(e)))
    }
}

impl Neg for Array {
    type Output = Array;
    fn neg(self) -> Array {
        -&self
    }
}
