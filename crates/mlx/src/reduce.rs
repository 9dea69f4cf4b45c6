//! Functions along axes: reductions, scans, sorting.

use mlx_sys::{self as sys, Along, Counted, Reduce};

use crate::array::Array;
use crate::error::{Error, Result};

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident, $keeping:ident => $op:ident;)*) => {
        /// Reductions over a list of axes, which are gone afterwards or, in the `_keepdims` form, have size
        /// 1. An empty list means all axes.
        impl Array { $(
            $(#[$doc])*
            pub fn $name(&self, axes: &[i32]) -> Result<Self> {
                Self::made(stringify!($name), [self], sys::reduce(Reduce::$op, self.raw()?, axes, false))
            }

            #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), "); the axes stay, with size 1.")]
            pub fn $keeping(&self, axes: &[i32]) -> Result<Self> {
                Self::made(stringify!($keeping), [self], sys::reduce(Reduce::$op, self.raw()?, axes, true))
            }
        )* }
    };
}
reduce! {
    /// Booleans: none is 0.
    all, all_keepdims => All;
    /// Booleans: one is not 0.
    any, any_keepdims => Any;
    /// ln Σeˣ, without overflow.
    logsumexp, logsumexp_keepdims => LogSumExp;
    /// The largest; NaN if one is. Fails on an axis of size 0.
    max, max_keepdims => Max;
    /// The mean, a float.
    mean, mean_keepdims => Mean;
    /// The smallest; NaN if one is. Fails on an axis of size 0.
    min, min_keepdims => Min;
    /// The product.
    prod, prod_keepdims => Prod;
    /// The standard deviation, of all n (not n − 1).
    std, std_keepdims => Std;
    /// The sum. Small integers and booleans are summed as 32-bit ones.
    sum, sum_keepdims => Sum;
    /// The variance, of all n (not n − 1).
    var, var_keepdims => Var;
}

macro_rules! along {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        /// Functions along one axis.
        impl Array { $(
            $(#[$doc])*
            pub fn $name(&self, axis: i32) -> Result<Self> {
                Self::made(stringify!($name), [self], sys::along(Along::$op, self.raw()?, axis))
            }
        )* }
    };
}
along! {
    /// Where the largest is (the first of equals), u32; the axis is gone.
    argmax => ArgMax;
    /// Where the smallest is (the first of equals), u32; the axis is gone.
    argmin => ArgMin;
    /// The indices (u32) that [`sort`](Self::sort) the axis.
    argsort => ArgSort;
    /// The largest so far.
    cummax => CumMax;
    /// The smallest so far.
    cummin => CumMin;
    /// The product so far, this one included.
    cumprod => CumProd;
    /// The sum so far, this one included.
    cumsum => CumSum;
    /// ln Σeˣ so far, this one included.
    logcumsumexp => LogCumSumExp;
    /// eˣ/Σeˣ, computed in float32 whatever the dtype.
    softmax => Softmax;
    /// Ascending; NaN last.
    sort => Sort;
}

/// Partial orders along one axis.
impl Array {
    /// The indices (u32) of [`partition`](Self::partition).
    pub fn argpartition(&self, kth: i32, axis: i32) -> Result<Self> {
        self.counted("argpartition", Counted::ArgPartition, kth, axis)
    }

    /// Puts the element that [`sort`](Self::sort) would put at `kth` there, smaller ones before, larger ones
    /// after, each side in any order. A negative `kth` counts from the end.
    pub fn partition(&self, kth: i32, axis: i32) -> Result<Self> {
        self.counted("partition", Counted::Partition, kth, axis)
    }

    /// The `k` largest, in any order.
    pub fn topk(&self, k: i32, axis: i32) -> Result<Self> {
        if k < 0 {
            return Err(Error::op("topk", [self], format!("cannot take the {k} largest")));
        }
        self.counted("topk", Counted::TopK, k, axis)
    }
}
