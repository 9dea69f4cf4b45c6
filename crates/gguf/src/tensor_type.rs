//! The types of tensors: how many elements a block holds, in how many bytes.
//!
//! Source: ggml `ggml.h` (numbers) and `ggml-common.h` (blocks).

/// A type that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, non_camel_case_types)]
pub enum TensorType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Mxfp4,
    Nvfp4,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
}

use TensorType::*;

/// Number in the file, type, name, elements and bytes of a block.
const TYPES: &[(u32, TensorType, &str, usize, usize)] = &[
    (0, F32, "F32", 1, 4),
    (1, F16, "F16", 1, 2),
    (2, Q4_0, "Q4_0", 32, 18),
    (3, Q4_1, "Q4_1", 32, 20),
    (6, Q5_0, "Q5_0", 32, 22),
    (7, Q5_1, "Q5_1", 32, 24),
    (8, Q8_0, "Q8_0", 32, 34),
    (10, Q2_K, "Q2_K", 256, 84),
    (11, Q3_K, "Q3_K", 256, 110),
    (12, Q4_K, "Q4_K", 256, 144),
    (13, Q5_K, "Q5_K", 256, 176),
    (14, Q6_K, "Q6_K", 256, 210),
    (16, IQ2_XXS, "IQ2_XXS", 256, 66),
    (17, IQ2_XS, "IQ2_XS", 256, 74),
    (18, IQ3_XXS, "IQ3_XXS", 256, 98),
    (19, IQ1_S, "IQ1_S", 256, 50),
    (20, IQ4_NL, "IQ4_NL", 32, 18),
    (21, IQ3_S, "IQ3_S", 256, 110),
    (22, IQ2_S, "IQ2_S", 256, 82),
    (23, IQ4_XS, "IQ4_XS", 256, 136),
    (29, IQ1_M, "IQ1_M", 256, 56),
    (30, Bf16, "BF16", 1, 2),
    (34, TQ1_0, "TQ1_0", 256, 54),
    (35, TQ2_0, "TQ2_0", 256, 66),
    (39, Mxfp4, "MXFP4", 32, 17),
    (40, Nvfp4, "NVFP4", 64, 36),
];

/// Types that are not read, so that a message can name them.
const OTHERS: &[(u32, &str)] = &[(9, "Q8_1"), (15, "Q8_K"), (28, "F64"), (41, "Q1_0")];

impl TensorType {
    /// The type with this number, or how a message names it.
    pub(crate) fn of(number: u32) -> Result<Self, String> {
        let found = TYPES.iter().find(|row| row.0 == number).map(|row| row.1);
        let name = || OTHERS.iter().find(|row| row.0 == number).map(|row| row.1.to_owned());
        found.ok_or_else(|| name().unwrap_or_else(|| number.to_string()))
    }

    fn row(self) -> (&'static str, usize, usize) {
        let row = TYPES.iter().find(|row| row.1 == self);
        row.map_or(("", 1, 1), |row| (row.2, row.3, row.4))
    }

    /// As llama.cpp names it.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Elements of a block.
    pub fn block_elements(self) -> usize {
        self.row().1
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().2
    }
}
