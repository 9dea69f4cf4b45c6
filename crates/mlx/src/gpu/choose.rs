//! Sampled tokens.

use super::plan::{Plan, int};
use super::source::{CHOOSE, CHOOSE_EDITED};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// One token of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choose {
    /// How many rows.
    pub rows: i32,
}

/// One token of each row, of edited logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChooseEdited {
    /// How many rows.
    pub rows: i32,
}

/// How the logits of some rows are changed before a token is chosen.
///
/// Arrays of fewer than eight elements may be in another memory on Metal, which no function of a kernel reads: `edited` and
/// `changes` have at least that many.
#[derive(Clone, Copy, Debug)]
pub struct LogitEdits<'a> {
    /// `[rows + 1]` i32: where each row's entries begin.
    pub starts: &'a Array,
    /// `[entries]` i32: tokens, ascending in a row. Entries after the last row's are not read.
    pub edited: &'a Array,
    /// `[entries, 3]` f32: what is added first; what then divides positive logits and multiplies others; what is subtracted
    /// last.
    pub changes: &'a Array,
    /// `[rows]` i32: each row's mask, −1 for none.
    pub places: &'a Array,
    /// `[masks, words]` u32: one bit a token, the lowest of the first word for token 0.
    pub masks: &'a Array,
}

/// Words of bits that tell which tokens may be edited.
const MARKS: i32 = 1024;

/// Tokens that are looked at in threadgroup memory once so few are left.
const LIST: i32 = 2048;

impl Choose {
    /// Inputs: logits `[rows, vocab]` f32; `[rows, 4]` f32: temperature (0 for the most likely token), `top_p`, `min_p`,
    /// and a number in [0, 1); `[rows]` i32: `top_k`, below 1 for all. Output: tokens `[rows]` i32, all of the vocabulary.
    pub fn plan(&self) -> Plan {
        let simds = 16;
        Plan {
            kernel: &CHOOSE,
            constants: vec![int("NS", simds), int("CAP", LIST)],
            groups: [self.rows, 1, 1],
            threads: simds * 32,
            outputs: vec![(vec![self.rows], Dtype::I32)],
        }
    }
}

impl ChooseEdited {
    /// Inputs: those of [`Choose`], then the arrays of [`LogitEdits`] in order.
    pub fn plan(&self) -> Plan {
        let mut plan = Choose { rows: self.rows }.plan();
        plan.kernel = &CHOOSE_EDITED;
        plan.constants.push(int("MARKS", MARKS));
        plan
    }
}

/// One token for each row of `logits` `[rows, vocab]` f32 → `[rows]` i32; see
/// [`cpu::choose_tokens`](crate::cpu::choose_tokens). Weights below 2⁻³⁰ of the largest count as nothing.
pub fn choose_tokens(
    logits: &Array,
    numbers: &Array,
    top_k: &Array,
    edits: Option<LogitEdits<'_>>,
) -> Result<Array> {
    let [rows, vocab] = logits.dims()?;
    let floats = logits.dtype()? == Dtype::F32 && numbers.dtype()? == Dtype::F32;
    if !floats || top_k.dtype()? != Dtype::I32 || numbers.shape() != [rows, 4] || top_k.shape() != [rows] {
        return Err(Error::new("gpu::choose_tokens: float32 logits, four float32 and one int32 a row"));
    }
    if rows == 0 || vocab == 0 {
        return Err(Error::new("gpu::choose_tokens: there are rows and a vocabulary"));
    }
    let made = match edits {
        None => Choose { rows }.plan().call(&[logits, numbers, top_k]),
        Some(edits) => {
            edits.check(rows, vocab)?;
            let LogitEdits { starts, edited, changes, places, masks } = edits;
            let inputs = [logits, numbers, top_k, starts, edited, changes, places, masks];
            ChooseEdited { rows }.plan().call(&inputs)
        }
    };
    made?.pop().ok_or_else(|| Error::new("tokens"))
}

impl LogitEdits<'_> {
    fn check(&self, rows: i32, vocab: i32) -> Result<()> {
        let Self { starts, edited, changes, places, masks } = self;
        let &[entries] = edited.shape() else {
            return Err(Error::new("gpu::choose_tokens: the edited tokens have one axis"));
        };
        let integers = [starts, edited, places].iter().all(|array| array.dtype().ok() == Some(Dtype::I32));
        let typed = integers && changes.dtype()? == Dtype::F32 && masks.dtype()? == Dtype::U32;
        let [_, words] = masks.dims()?;
        let sized =
            starts.shape() == [rows + 1] && places.shape() == [rows] && changes.shape() == [entries, 3];
        if !typed || !sized || entries < 8 || words * 32 < vocab {
            return Err(Error::new(
                "gpu::choose_tokens: edits are int32, of at least eight entries with three float32 each, and uint32 masks of the vocabulary",
            ));
        }
        Ok(())
    }
}
