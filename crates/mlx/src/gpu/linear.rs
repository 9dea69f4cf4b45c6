//! Products of a few rows with weights, on tensor cores or by simdgroup matrices.

use mlx_sys as sys;

use super::flow::{FlowProduct, TILE};
use super::plan::{Plan, dtype, int};
use super::program::{has_warpgroups, is_used};
use super::source::{Dialect, WMM, WMM_DENSE, WMM_FLOW, WMM_MATRIX, WMM_STAGED, WMM_SUM, WMM_WIDE};
use super::weight_format::WeightFormat;
use crate::array::Array;
use crate::device;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::fast::{TemplateArg, TemplateValue};
use crate::quant::{QuantMode, Quantized};

/// What multiplies matrices on a CUDA GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnit {
    /// Instructions of a simd group.
    SimdGroup,
    /// Instructions of four simd groups, which read one side from shared memory: compute capability 9.0 alone.
    Warpgroup,
}

impl MatrixUnit {
    /// Of the GPU that this process uses. Kernels by warpgroups are our own programs.
    pub fn of_device() -> Self {
        if has_warpgroups() && is_used() { Self::Warpgroup } else { Self::SimdGroup }
    }
}

/// `x · wᵀ`, and perhaps a bias, for up to [`FewRows::most`] rows of bf16 or f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewRows {
    /// Of `x`, and of what is not packed in the weights.
    pub dtype: Dtype,
    /// How the weights are stored.
    pub format: WeightFormat,
    /// Rows of `x`.
    pub rows: i32,
    /// Columns of `x` and of `w`.
    pub inputs: i32,
    /// Rows of `w`.
    pub outputs: i32,
    /// Whether a number is added to each output.
    pub has_bias: bool,
    /// For more than 16 rows. Where there are warpgroups, groups have threadgroup memory for more stages, too.
    pub unit: MatrixUnit,
}

/// The most rows of a product by instructions of a simd group.
const ROWS_MAX: i32 = 64;
/// The most by warpgroups.
const WARPGROUP_ROWS_MAX: i32 = 256;
/// Groups that keep a large GPU busy.
const GROUPS_WANTED: i32 = 128;
/// Groups that keep a large GPU busy where a group stages its rows: two or three fit a multiprocessor.
const STAGED_GROUPS_WANTED: i32 = 304;
/// The most where warpgroups multiply: one for each of an H200's multiprocessors.
pub(super) const WIDE_GROUPS_WANTED: i32 = 132;
/// Groups that keep a large GPU of Apple's busy: two for each of an M4 Max's cores.
const MATRIX_GROUPS_WANTED: i32 = 80;
/// Simd groups of a group that put its rows into shared memory.
const PRODUCERS: i32 = 4;

/// The most tiles of 8 rows of a group of warpgroups, by the registers that its sums leave.
const ROW_TILES_MAX: i32 = 16;
/// Warpgroups of a group that share its rows.
const WARPGROUPS: i32 = 3;
/// Stages of a group's rows in the order of its products, and as they are.
const WIDE_STAGES: i32 = 3;
const WIDE_COPIES: i32 = 3;
/// Warpgroups of a group that share its rows, with weights that are not packed.
const DENSE_WARPGROUPS: i32 = 2;
/// Threadgroup memory of a group's stages.
pub(super) const SHARED_MAX: i32 = 7 << 15;
/// The most stages of a group's rows and weights: each has two barriers, of which there are 15.
const DENSE_STAGES_MAX: i32 = 7;

impl FewRows {
    /// The most rows of a product, whatever the weights: with packed ones there may be more.
    pub fn most(unit: MatrixUnit) -> i32 {
        match unit {
            MatrixUnit::SimdGroup => ROWS_MAX,
            MatrixUnit::Warpgroup => WARPGROUP_ROWS_MAX,
        }
    }

    /// Inputs: `x` `[rows, inputs]`, or what [`Self::row_tiles`] makes of it if there is such a plan; weights, scales and biases (any
    /// arrays for dense weights), and the bias of each output `[outputs]`, floats (any without). The first plan's output is `[1, rows, outputs]` of `x`'s dtype, or `[splits, rows,
    /// outputs]` f32, which a second plan adds up. Nothing but the number of rows is compiled in, in few classes. `None` for
    /// sizes and dtypes without a kernel: on Metal there are kernels for 17 to 64 rows with packed weights.
    pub fn plans(&self, dialect: Dialect) -> Option<Vec<Plan>> {
        if !self.format.fits(self.inputs) || self.outputs < 1 || !is_half_width(self.dtype) {
            return None;
        }
        let (plan, splits) = match dialect {
            Dialect::Cuda => self.by_tensor_cores()?,
            Dialect::Metal => self.by_matrices()?,
        };
        let partial = if splits == 1 { self.dtype } else { Dtype::F32 };
        let first = plan.with_output(self, (vec![splits, self.rows, self.outputs], partial));
        if splits == 1 {
            return Some(vec![first]);
        }
        let sum = Plan {
            kernel: &WMM_SUM,
            constants: vec![dtype("T", self.dtype)],
            groups: [(self.rows * self.outputs / 8 + 127) / 128, 1, 1],
            threads: 128,
            outputs: vec![(vec![self.rows, self.outputs], self.dtype)],
        };
        Some(vec![first, sum])
    }

    fn by_tensor_cores(&self) -> Option<(Unfinished, i32)> {
        if !(self.has_tiles() || (1..=Self::most(self.unit)).contains(&self.rows)) {
            return None;
        }
        Some(match (self.unit, self.format) {
            (MatrixUnit::Warpgroup, _) if self.rows <= 16 => self.flow().unwrap_or_else(|| self.narrow()),
            (MatrixUnit::SimdGroup, _) if self.rows <= 16 => self.narrow(),
            (MatrixUnit::Warpgroup, WeightFormat::Dense) => self.dense(),
            (MatrixUnit::SimdGroup, WeightFormat::Dense) if self.is_even() => self.staged(),
            (MatrixUnit::SimdGroup, WeightFormat::Dense) => self.narrow(),
            (MatrixUnit::Warpgroup, _) if self.has_tiles() => self.tiled(),
            (MatrixUnit::Warpgroup, _) => self.wide(),
            (MatrixUnit::SimdGroup, WeightFormat::Four { group: 64 }) if self.is_even() => self.staged(),
            (MatrixUnit::SimdGroup, _) => self.narrow(),
        })
    }

    /// 17 to 64 rows on Metal: fewer are MLX's products of vectors, more its products of matrices. How a row's product is
    /// divided does not depend on the other rows.
    fn by_matrices(&self) -> Option<(Unfinished, i32)> {
        let is_affine = matches!(self.format, WeightFormat::Four { .. } | WeightFormat::Eight { .. });
        // MLX passes fewer as constants, of which kernels make no pointers.
        let scales = self.inputs / self.format.group() * self.outputs;
        if !is_affine || scales < 8 || !(17..=ROWS_MAX).contains(&self.rows) {
            return None;
        }
        let blocks = (self.outputs + 31) / 32;
        let splits = self.splits(units(self.inputs).min(MATRIX_GROUPS_WANTED / blocks));
        let plan = Unfinished {
            kernel: &WMM_MATRIX,
            format: self.format,
            // It takes any sizes.
            even: even(false),
            whole: ("WHOLE", TemplateValue::Bool(false)),
            constants: vec![("MT", if self.rows <= 32 { 4 } else { 8 })],
            groups: [blocks, splits, 1],
            simds: 4,
        };
        Some((plan, splits))
    }

    /// Whether no simd group has rows of `w` that there are not.
    fn is_even(&self) -> bool {
        self.outputs % 32 == 0
    }

    /// Parts of a product: so many, or one where the kernels that add parts up do not read such rows.
    pub(super) fn splits(&self, wanted: i32) -> i32 {
        if self.outputs % 8 == 0 { wanted.max(1) } else { 1 }
    }

    /// Up to 16 rows, by persistent groups.
    fn flow(&self) -> Option<(Unfinished, i32)> {
        let FewRows { format, rows, inputs, outputs, .. } = *self;
        let product = FlowProduct { format, rows, inputs, outputs };
        let flow = product.plan()?;
        let plan = Unfinished {
            kernel: &WMM_FLOW,
            format,
            even: even(outputs % TILE == 0),
            whole: whole(inputs),
            constants: flow.constants(&product),
            groups: [flow.groups, flow.splits, 1],
            simds: flow.simds,
        };
        Some((plan, flow.splits))
    }

    /// Up to 16 rows elsewhere, and without warpgroups all of 8 bits: simd groups share the inputs of a product.
    fn narrow(&self) -> (Unfinished, i32) {
        let bits = self.format.bits();
        let units = units(self.inputs);
        let row_tiles = if bits == 16 && self.rows > 8 && self.outputs >= 4096 { 2 } else { 1 };
        let blocks = (self.outputs + 16 * row_tiles - 1) / (16 * row_tiles);
        let most = if bits == 4 && self.rows > 8 { 4 } else { 8 };
        let (key_simds, splits) = match blocks < GROUPS_WANTED {
            true => (4.min(units), self.splits((units / 4).min((GROUPS_WANTED + blocks - 1) / blocks))),
            false => (most.min(units), 1),
        };
        let tiles = ((self.rows as u32).div_ceil(8)).next_power_of_two() as i32;
        let constants = [("MT", tiles), ("RT", row_tiles), ("WN", 1), ("WK", key_simds)];
        let plan = Unfinished {
            kernel: &WMM,
            format: self.format,
            even: even(self.is_even()),
            whole: whole(self.inputs),
            constants: constants.to_vec(),
            groups: [blocks, splits, 1],
            simds: key_simds,
        };
        (plan, splits)
    }

    /// 17 to 64 rows, which pass through shared memory.
    fn staged(&self) -> (Unfinished, i32) {
        let row_tiles = if self.format == WeightFormat::Dense { 1 } else { 2 };
        let blocks = (self.outputs + 64 * row_tiles - 1) / (64 * row_tiles);
        let splits = (units(self.inputs) / 2).min(STAGED_GROUPS_WANTED / blocks).clamp(1, 10);
        let tiles = if self.rows <= 32 { 4 } else { 8 };
        let constants = vec![("MT", tiles), ("RT", row_tiles), ("WN", 4)];
        let (format, whole, even) = (self.format, whole(self.inputs), even(true));
        let groups = [blocks, splits, 1];
        (Unfinished { kernel: &WMM_STAGED, format, whole, even, constants, groups, simds: 4 }, splits)
    }

    /// Groups that share the rows, and the tiles of 8 rows of each: few classes, as each is compiled. Fourteen tiles need as
    /// many registers as sixteen, and are no faster.
    fn row_blocks(&self) -> (i32, i32) {
        let blocks = (self.rows + 8 * ROW_TILES_MAX - 1) / (8 * ROW_TILES_MAX);
        let tiles = (self.rows + 8 * blocks - 1) / (8 * blocks);
        (blocks, if tiles > 12 { ROW_TILES_MAX } else { (tiles + tiles % 2).max(4) })
    }

    /// From 17 rows on with dense weights by warpgroups.
    fn dense(&self) -> (Unfinished, i32) {
        let warpgroups = DENSE_WARPGROUPS;
        let blocks = (self.outputs + 64 * warpgroups - 1) / (64 * warpgroups);
        let (row_blocks, tiles) = self.row_blocks();
        let wanted = WIDE_GROUPS_WANTED / (blocks * row_blocks);
        let splits = self.splits((self.inputs / 64 / 4).min(wanted).min(10));
        let stage = (64 * warpgroups + 8 * tiles) * 128;
        let stages = (SHARED_MAX / stage).min(DENSE_STAGES_MAX);
        let constants = vec![
            ("MT", tiles),
            ("WN", warpgroups),
            ("PRODUCERS", PRODUCERS),
            ("ST", stages),
            ("LAG", stages - 2),
            ("SHARED", stages * stage),
        ];
        let (format, whole, even) =
            (self.format, whole(self.inputs), even(self.outputs % (64 * warpgroups) == 0));
        let simds = 4 * warpgroups + PRODUCERS;
        let blocks = blocks.min(WIDE_GROUPS_WANTED / (splits * row_blocks)).max(1);
        let groups = [blocks, splits, row_blocks];
        (Unfinished { kernel: &WMM_DENSE, format, whole, even, constants, groups, simds }, splits)
    }

    /// From 17 rows on with packed weights by warpgroups, up to those that come in tiles.
    fn wide(&self) -> (Unfinished, i32) {
        let (_, tiles) = self.row_blocks();
        let blocks = (self.outputs + 64 * WARPGROUPS - 1) / (64 * WARPGROUPS);
        let splits = self.splits((units(self.inputs) / 2).min(WIDE_GROUPS_WANTED / blocks).min(10));
        let constants = vec![
            ("MT", tiles),
            ("WN", WARPGROUPS),
            ("PRODUCERS", PRODUCERS),
            ("ST", WIDE_STAGES),
            ("RAW", WIDE_COPIES),
            ("SHARED", (WIDE_STAGES + WIDE_COPIES) * 16 * tiles * 128),
        ];
        let (format, whole, even) = (self.format, whole(self.inputs), even(self.is_even()));
        let simds = 4 * WARPGROUPS + PRODUCERS;
        let groups = [blocks, splits, 1];
        (Unfinished { kernel: &WMM_WIDE, format, whole, even, constants, groups, simds }, splits)
    }
}

/// Whether tensor cores multiply it as it is.
pub(super) fn is_half_width(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Bf16 | Dtype::F16)
}

/// Of 256 inputs, which kernels read at a time.
pub(super) fn units(inputs: i32) -> i32 {
    (inputs + 255) / 256
}

/// Whether rows of weights fill simd groups.
pub(super) fn even(is_even: bool) -> TemplateArg<'static> {
    ("EVEN", TemplateValue::Bool(is_even))
}

/// Whether the last unit has all its inputs.
pub(super) fn whole(inputs: i32) -> TemplateArg<'static> {
    ("WHOLE", TemplateValue::Bool(inputs % 256 == 0))
}

/// A plan whose output is not decided.
pub(super) struct Unfinished {
    pub(super) kernel: &'static super::Kernel,
    pub(super) format: WeightFormat,
    pub(super) whole: TemplateArg<'static>,
    pub(super) even: TemplateArg<'static>,
    pub(super) constants: Vec<(&'static str, i32)>,
    pub(super) groups: [i32; 3],
    pub(super) simds: i32,
}

impl Unfinished {
    fn with_output(self, of: &FewRows, output: (Vec<i32>, Dtype)) -> Plan {
        let mut constants =
            vec![dtype("TX", of.dtype), dtype("TO", output.1), int("PITCH", 0), self.whole, self.even];
        constants.push(("BIASED", TemplateValue::Bool(of.has_bias)));
        constants.extend(self.format.constants());
        constants.extend(self.constants.iter().map(|(name, value)| int(name, *value)));
        Plan {
            kernel: self.kernel,
            constants,
            groups: self.groups,
            threads: self.simds * 32,
            outputs: vec![output],
        }
    }
}

/// `x · wᵀ`, and a bias `[outputs]`, for rows `[.., inputs]` of bf16 or f16, up to [`FewRows::most`] in all, by our kernels. `None` where there
/// is none for them.
pub fn few_rows(x: &Array, weight: FewRowsWeight<'_>, bias: Option<&Array>) -> Result<Option<Array>> {
    let dtype = x.dtype()?;
    let Some(Stored { format, w, scales, biases }) = weight.stored(dtype)? else { return Ok(None) };
    let (Some(inputs), &[outputs, _]) = (x.shape().last().copied(), w.shape()) else { return Ok(None) };
    let rows = x.size() as i32 / inputs.max(1);
    let dialect = Dialect::of(device::backend());
    let (unit, has_bias) = (MatrixUnit::of_device(), bias.is_some());
    let product = FewRows { dtype, format, rows, inputs, outputs, has_bias, unit };
    let plans = dialect.and_then(|dialect| product.plans(dialect));
    let Some(plans) = plans else { return Ok(None) };
    let mut flat = x.reshape(&[rows, inputs])?;
    if let Some(tiles) = product.row_tiles() {
        flat = tiles.call(&[&flat])?.pop().ok_or_else(|| Error::new("tiles of rows"))?;
    }
    let mut product: Option<Array> = None;
    for plan in &plans {
        let made = match &product {
            None => plan.call(&[&flat, w, scales, biases, bias.unwrap_or(scales)])?,
            Some(parts) => plan.call(&[parts])?,
        };
        product = made.into_iter().next();
    }
    let product = product.ok_or_else(|| Error::new("a product"))?;
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = outputs;
    }
    product.reshape(&shape).map(Some)
}

/// The parts of a product that [`few_rows`] has split, `[parts, rows, outputs]` f32, while their sum is not computed: what
/// reads the parts in place of the product saves the kernel that adds them up. `None` for any other array.
pub fn parts_of(product: &Array) -> Option<Array> {
    let parts = sys::program_input(product.raw().ok()?, WMM_SUM.name).ok()?;
    (!parts.is_null()).then(|| Array::from_raw(parts))
}

/// The weights of [`few_rows`].
#[derive(Clone, Copy, Debug)]
pub enum FewRowsWeight<'a> {
    /// `[outputs, inputs]`.
    Dense(&'a Array),
    /// Affine codes.
    Packed(&'a Quantized),
}

/// Weights as kernels take them; what one does not read is any array.
pub(super) struct Stored<'a> {
    pub(super) format: WeightFormat,
    pub(super) w: &'a Array,
    pub(super) scales: &'a Array,
    pub(super) biases: &'a Array,
}

impl<'a> FewRowsWeight<'a> {
    /// Columns of the weights.
    pub(super) fn inputs(self) -> Result<i32> {
        match self {
            Self::Dense(w) => w.dim(-1),
            Self::Packed(packed) => Ok(packed.scales.dim(-1)? * packed.group),
        }
    }

    /// `None` for weights without a kernel for such rows.
    pub(super) fn stored(self, rows: Dtype) -> Result<Option<Stored<'a>>> {
        match self {
            Self::Dense(w) if w.dtype()? == rows => {
                Ok(Some(Stored { format: WeightFormat::Dense, w, scales: w, biases: w }))
            }
            Self::Dense(_) => Ok(None),
            Self::Packed(packed) => {
                let Quantized { weight: w, scales, biases, group, .. } = packed;
                let format = match (packed.mode, packed.bits) {
                    (QuantMode::Affine, 4) => WeightFormat::Four { group: *group },
                    (QuantMode::Affine, 8) => WeightFormat::Eight { group: *group },
                    (QuantMode::Mxfp4, 4) if *group == 32 => WeightFormat::MxFp4,
                    _ => return Ok(None),
                };
                let biases = match (format, biases) {
                    (WeightFormat::MxFp4, _) => {
                        return Ok(Some(Stored { format, w, scales, biases: scales }));
                    }
                    (_, Some(biases)) => biases,
                    (_, None) => return Ok(None),
                };
                let are_alike = scales.dtype()? == rows && biases.dtype()? == rows;
                Ok(are_alike.then_some(Stored { format, w, scales, biases }))
            }
        }
    }
}
