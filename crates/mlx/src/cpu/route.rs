//! [`Route`] and [`weighted_sum`]: which experts compute a row, and the sum of what they compute.

use omnibus_cpu_kernels::{self as kernels, Kernel, RouteGroups, RouteScores};

use super::{Op, Output, node, one, size};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;

/// The best experts of each row, and their weights.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// `[rows, experts]` f32
    pub logits: &'a Array,
    /// From logits to scores.
    pub scores: RouteScores,
    /// Logits become `cap · tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// Added to the scores that choose, `[experts]` f32; weights are the scores without it.
    pub correction: Option<&'a Array>,
    /// Scores count as zero in all but the best groups.
    pub groups: Option<RouteGroups>,
    /// How many experts a row has.
    pub chosen: i32,
    /// Weights are divided by their sum.
    pub renormalize: bool,
    /// Multiplies weights.
    pub scale: f32,
}

impl Route<'_> {
    /// Indices `[rows, chosen]` u32 and weights `[rows, chosen]` f32, the best first.
    pub fn run(self) -> Result<[Array; 2]> {
        let inputs: Vec<&Array> = [self.logits].into_iter().chain(self.correction).collect();
        let op = Op { name: "cpu::route", inputs: &inputs };
        op.want_f32(&inputs.iter().map(|input| Some(*input)).collect::<Vec<_>>())?;
        let &[rows, experts] = self.logits.shape() else { return Err(op.fail("logits have two axes")) };
        op.require((1..=experts).contains(&self.chosen), "a row has from one expert to all")?;
        op.require(self.correction.is_none_or(|by| by.shape() == [experts]), "a correction per expert")?;
        if let Some(RouteGroups { count, kept, best }) = self.groups {
            let size = (experts as usize).checked_div(count).unwrap_or(0);
            let fits = size * count == experts as usize && (1..=count).contains(&kept) && best <= size;
            op.require(fits, "groups divide the experts, and have those that count")?;
        }
        let kernel = Kernel::Route(kernels::Route {
            rows: rows as usize,
            experts: experts as usize,
            chosen: self.chosen as usize,
            scores: self.scores,
            softcap: self.softcap,
            correction: self.correction.is_some(),
            groups: self.groups,
            renormalize: self.renormalize,
            scale: self.scale,
        });
        let shape = [rows, self.chosen];
        let outputs = [Dtype::U32, Dtype::F32].map(|dtype| Output { shape: &shape, dtype, shares: None });
        let made = node(&op, kernel, &inputs, &outputs)?;
        made.try_into().map_err(|_| op.fail("MLX did not make two arrays"))
    }
}

/// The sum of each row's parts, each times its weight: `[rows, chosen, width]` and `[rows, chosen]` f32 to `[rows, width]`.
pub fn weighted_sum(parts: &Array, weights: &Array) -> Result<Array> {
    let op = Op { name: "cpu::weighted_sum", inputs: &[parts, weights] };
    let &[rows, chosen, width] = parts.shape() else { return Err(op.fail("parts have three axes")) };
    op.want_f32(&[Some(weights)])?;
    op.require(weights.shape() == [rows, chosen], "a weight per part")?;
    let kernel = kernels::WeightedSum {
        float: op.float(parts)?,
        rows: rows as usize,
        chosen: chosen as usize,
        width: width as usize,
    };
    let shape = [rows, size(kernel.width)?];
    one(&op, Kernel::WeightedSum(kernel), &[parts, weights], &shape, parts.dtype()?)
}
