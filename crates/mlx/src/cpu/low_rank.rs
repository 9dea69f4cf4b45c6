//! The low-rank products of adapters.

use omnibus_cpu_kernels::{self as kernels, Kernel, LowRankPart};

use super::{Op, Output, node, size};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;

/// Low-rank matrices of several adapters, or of each expert of several: `count` of them, chosen by rows.
#[derive(Clone, Copy, Debug)]
pub struct LowRank<'a> {
    /// The first matrices of all parts with an `up`, one after the other, `[count, in, rank]`.
    pub down: &'a Array,
    /// Parts of the outputs in order: how many, and `[count, part's rank, outputs]` where something is added to them.
    pub parts: &'a [(i32, Option<&'a Array>)],
    /// Factors of the sums, `[count + 1, out]` f32; the last are not read, nor are those of parts without an `up`.
    pub gain: Option<&'a Array>,
}

impl LowRank<'_> {
    /// `(product + (x · down) · up) · gain`, in place, for each row with the matrices that it chose. `product`: `[rows,
    /// out]`, or `[rows, chosen, out]`; `x`: `[rows, in]`, or a row for each choice, `[rows, chosen, in]`; `chosen`: `[rows,
    /// chosen]` i32 or u32, where one that does not exist adds nothing.
    pub fn add_to(&self, product: Array, x: &Array, chosen: &Array) -> Result<Array> {
        let ups = self.parts.iter().filter_map(|(_, up)| *up);
        let inputs: Vec<_> =
            [&product, x, chosen, self.down].into_iter().chain(ups).chain(self.gain).collect();
        let op = Op { name: "cpu::low_rank", inputs: &inputs };
        let kernel = self.kernel(&op, &product, x, chosen)?;
        let output = Output { shape: product.shape(), dtype: product.dtype()?, shares: Some(0) };
        let made = node(&op, Kernel::LowRank(kernel), &inputs, &[output])?;
        made.into_iter().next().ok_or_else(|| op.fail("MLX made no array"))
    }

    /// Checks all shapes.
    fn kernel(&self, op: &Op, product: &Array, x: &Array, chosen: &Array) -> Result<kernels::LowRank> {
        op.ids(chosen)?;
        let &[rows, choices] = chosen.shape() else { return Err(op.fail("ids have two axes")) };
        let &[count, k, rank] = self.down.shape() else {
            return Err(op.fail("the matrices have three axes"));
        };
        let results = rows as usize * choices as usize;
        let sharing = match *x.shape() {
            [r, last] if (r, last) == (rows, k) => choices as usize,
            [r, c, last] if (r, c, last) == (rows, choices, k) => 1,
            _ => return Err(op.fail("x is [rows, in] or [rows, chosen, in], as ids and matrices say")),
        };
        op.require(product.dtype()? == x.dtype()?, "the product and x have the same dtype")?;
        let (mut parts, mut first_column, mut first_rank) = (Vec::new(), 0, 0);
        for (columns, up) in self.parts {
            let columns = usize::try_from(*columns).map_err(|_| op.fail("a part has negative outputs"))?;
            if let Some(up) = up {
                let [_, own, _] = *up.shape() else { return Err(op.fail("the matrices have three axes")) };
                op.require(up.shape() == [count, own, size(columns)?], "up is [count, rank, outputs]")?;
                let (up, own) = (op.float(up)?, own as usize);
                parts.push(LowRankPart { up, first_column, columns, first_rank, rank: own });
                first_rank += own;
            }
            first_column += columns;
        }
        op.require(first_rank == rank as usize, "the parts' ranks are that of down")?;
        let elements = product.size();
        op.require(elements == results * first_column, "the product has the parts' outputs for each choice")?;
        if let Some(gain) = self.gain {
            let fits = gain.shape() == [count + 1, size(first_column)?] && gain.dtype()? == Dtype::F32;
            op.require(fits, "factors are [count + 1, out] float32")?;
        }
        Ok(kernels::LowRank {
            float: op.float(x)?,
            down: op.float(self.down)?,
            results,
            sharing: sharing.max(1),
            count: count as usize,
            n: first_column,
            k: k as usize,
            rank: first_rank,
            parts,
            gain: self.gain.is_some(),
        })
    }
}
