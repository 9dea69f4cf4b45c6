//! One launch of a kernel: constants, grid and outputs, without its input arrays.

use super::source::{Dialect, Kernel};
use crate::dtype::Dtype;
use crate::fast::{TemplateArg, TemplateValue};

/// One launch of a kernel, without its input arrays.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The constants that are compiled in.
    pub constants: Vec<TemplateArg<'static>>,
    /// Groups of threads, per axis.
    pub groups: [i32; 3],
    /// Threads of a group.
    pub threads: i32,
    /// Shape and type of each output.
    pub outputs: Vec<(Vec<i32>, Dtype)>,
}

/// Groups that CUDA launches on any axis but the first.
pub(super) const GROUPS_MAX: i32 = 65_535;

impl Plan {
    /// The plan, unless it has more groups than CUDA launches. For plans with rows on the second axis, which may be rows of a
    /// prompt times experts or heads, or the patches of a video; MLX's operations take any number.
    pub(super) fn within_grid(self) -> Option<Self> {
        let [_, second, third] = self.groups;
        (second <= GROUPS_MAX && third <= GROUPS_MAX).then_some(self)
    }

    /// Threads in all, per axis.
    pub fn grid(&self) -> [i32; 3] {
        let [x, y, z] = self.groups;
        [x * self.threads, y, z]
    }

    /// Declarations of the constants, which go in front of the kernel's body. As arguments of a template they would cost the host
    /// twice as much at each call: MLX writes and compares them.
    pub fn declarations(&self, dialect: Dialect) -> String {
        let declaration = |(name, value): &TemplateArg<'_>| match value {
            TemplateValue::Int(value) => format!("constexpr int {name} = {value};\n"),
            TemplateValue::Bool(value) => format!("constexpr bool {name} = {value};\n"),
            TemplateValue::Dtype(dtype) => format!("using {name} = {};\n", dialect.type_name(*dtype)),
        };
        self.constants.iter().map(declaration).collect()
    }

    /// The values of the constants, in their order, which is a kernel's own.
    pub(super) fn numbers(&self) -> impl Iterator<Item = i32> {
        self.constants.iter().map(|(_, value)| match value {
            TemplateValue::Int(value) => *value,
            TemplateValue::Bool(value) => i32::from(*value),
            TemplateValue::Dtype(dtype) => *dtype as i32,
        })
    }

    /// Threadgroup memory that a launch gets beside what the kernel declares: its constant `SHARED`.
    pub fn shared_bytes(&self) -> i32 {
        self.number("SHARED").unwrap_or(0)
    }

    /// Groups that a multiprocessor has room for, if that was decided: its constant `RESIDENT`.
    pub(super) fn resident(&self) -> Option<i32> {
        self.number("RESIDENT")
    }

    fn number(&self, of: &str) -> Option<i32> {
        match self.constants.iter().find(|(name, _)| *name == of)?.1 {
            TemplateValue::Int(number) => Some(number),
            TemplateValue::Bool(_) | TemplateValue::Dtype(_) => None,
        }
    }
}

/// How rows that a kernel reads are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// As rows.
    Whole,
    /// As the parts of a product, `[parts, rows, ..]` f32, which the kernel adds up: see
    /// [`parts_of`](super::parts_of).
    Parts,
}

impl Operand {
    pub(super) fn constant(self) -> TemplateArg<'static> {
        ("PARTS", TemplateValue::Bool(self == Self::Parts))
    }
}

/// An `int` constant.
pub(super) fn int(name: &'static str, value: i32) -> TemplateArg<'static> {
    (name, TemplateValue::Int(value))
}

/// The bits of a float, for `GK_FLOAT`.
pub(super) fn bits(name: &'static str, value: f32) -> TemplateArg<'static> {
    int(name, i32::from_ne_bytes(value.to_ne_bytes()))
}

/// A type.
pub(super) fn dtype(name: &'static str, value: Dtype) -> TemplateArg<'static> {
    (name, TemplateValue::Dtype(value))
}

/// An output that holds nothing, larger than what MLX keeps in managed memory.
pub(super) fn unused_output() -> (Vec<i32>, Dtype) {
    (vec![64], Dtype::F32)
}
