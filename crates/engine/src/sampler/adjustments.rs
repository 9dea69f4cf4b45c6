//! What a request changes about its logits before sampling: biases and penalties.
//!
//! In this order: `logit_bias`; the repetition penalty over the last `repetition_context` tokens, prompt included (arXiv
//! 1909.05858 §4.1, as mlx-lm has it); presence and frequency penalties over the whole answer, as OpenAI has them.
//!
//! Invariant: a new token costs the same however long the sequence is.

use std::collections::{BTreeMap, VecDeque};

use mlx::{Array, Dtype};

use super::Chooser;
use crate::request::Sampling;

/// The adjusted tokens of one sequence, one column entry each.
#[derive(Debug, Clone, Default)]
pub(super) struct LogitAdjustments {
    penalties: Penalties,
    /// Each token's place in the columns.
    places: BTreeMap<u32, usize>,
    tokens: Vec<u32>,
    bias: Vec<f32>,
    /// Divides positive and multiplies negative logits.
    repetition: Vec<f32>,
    subtract: Vec<f32>,
    /// How often the token is in the answer.
    in_answer: Vec<u32>,
    /// How often the token is among the recent ones.
    in_recent: Vec<u32>,
    /// Recent tokens, as far as the repetition penalty applies to them.
    recent: VecDeque<u32>,
    /// Changes with the columns.
    version: u64,
}

/// What changes one logit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Adjustment {
    /// Added first.
    pub(super) bias: f32,
    repetition: f32,
    subtract: f32,
}

impl Adjustment {
    /// A logit with its bias, penalized.
    pub(super) fn penalized(self, logit: f32) -> f32 {
        let repeated = if logit > 0.0 { logit / self.repetition } else { logit * self.repetition };
        repeated - self.subtract
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Penalties {
    repetition: Option<f32>,
    repetition_context: usize,
    presence: f32,
    frequency: f32,
}

impl Penalties {
    fn counts_answer(self) -> bool {
        self.presence != 0.0 || self.frequency != 0.0
    }
}

impl LogitAdjustments {
    /// The adjustments before any token.
    pub(super) fn new(sampling: &Sampling) -> Self {
        let repeats = sampling.repetition_penalty != 1.0 && sampling.repetition_context > 0;
        let penalties = Penalties {
            repetition: repeats.then_some(sampling.repetition_penalty),
            repetition_context: sampling.repetition_context,
            presence: sampling.presence_penalty,
            frequency: sampling.frequency_penalty,
        };
        let mut new = Self { penalties, ..Self::default() };
        for (token, bias) in &sampling.logit_bias {
            let place = new.place(*token);
            new.bias[place] = *bias;
        }
        new
    }

    /// Adds the tokens that the sequence starts with, of which the first `prompt` are the prompt.
    pub(super) fn start(&mut self, tokens: &[u32], prompt: usize) {
        let recent = tokens.len().saturating_sub(self.penalties.repetition_context);
        tokens.iter().skip(recent).for_each(|token| self.push_recent(*token));
        tokens.iter().skip(prompt).for_each(|token| self.push_answer(*token));
    }

    /// Adds a token of the answer.
    pub(super) fn push(&mut self, token: u32) {
        self.push_recent(token);
        self.push_answer(token);
    }

    fn push_recent(&mut self, token: u32) {
        let Some(penalty) = self.penalties.repetition else { return };
        let place = self.place(token);
        self.in_recent[place] += 1;
        self.repetition[place] = penalty;
        self.recent.push_back(token);
        if self.recent.len() > self.penalties.repetition_context
            && let Some(oldest) = self.recent.pop_front()
        {
            let place = self.place(oldest);
            self.in_recent[place] -= 1;
            if self.in_recent[place] == 0 {
                self.repetition[place] = 1.0;
                self.remove_if_neutral(oldest);
            }
        }
        self.version += 1;
    }

    fn push_answer(&mut self, token: u32) {
        if !self.penalties.counts_answer() {
            return;
        }
        let place = self.place(token);
        self.in_answer[place] += 1;
        self.subtract[place] =
            self.penalties.presence + self.penalties.frequency * self.in_answer[place] as f32;
        self.version += 1;
    }

    /// The token's place in the columns; adds one without effect if it has none.
    fn place(&mut self, token: u32) -> usize {
        let next = self.tokens.len();
        let place = *self.places.entry(token).or_insert(next);
        if place == next {
            self.tokens.push(token);
            self.bias.push(0.0);
            self.repetition.push(1.0);
            self.subtract.push(0.0);
            self.in_answer.push(0);
            self.in_recent.push(0);
        }
        place
    }

    /// Removes a token that has no effect; the last one takes its place.
    fn remove_if_neutral(&mut self, token: u32) {
        let Some(place) = self.places.get(&token).copied() else { return };
        if self.bias[place] != 0.0 || self.in_answer[place] > 0 || self.in_recent[place] > 0 {
            return;
        }
        self.places.remove(&token);
        self.tokens.swap_remove(place);
        self.bias.swap_remove(place);
        self.repetition.swap_remove(place);
        self.subtract.swap_remove(place);
        self.in_answer.swap_remove(place);
        self.in_recent.swap_remove(place);
        if let Some(moved) = self.tokens.get(place) {
            self.places.insert(*moved, place);
        }
    }

    /// The adjusted tokens, ascending.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, Adjustment)> {
        self.places.iter().map(|(token, place)| {
            let (bias, repetition) = (self.bias[*place], self.repetition[*place]);
            (*token, Adjustment { bias, repetition, subtract: self.subtract[*place] })
        })
    }

    /// Changes whenever the adjustments do.
    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

/// The adjustments of a step's rows as arrays, one entry for each adjusted logit; a row's entries are ascending.
pub(super) struct AdjustmentArrays {
    /// `[n + 1]` i32: where each row's entries start.
    pub(super) starts: Array,
    entries: Entries,
}

/// What reads the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryReader {
    /// A kernel of the CPU.
    CpuKernel,
    /// A kernel of the GPU.
    GpuKernel,
    /// MLX's operations.
    Operations,
}

impl EntryReader {
    pub(super) fn of(chooser: Chooser) -> Self {
        match chooser {
            _ if mlx::cpu::available() => Self::CpuKernel,
            Chooser::Kernel => Self::GpuKernel,
            Chooser::Operations => Self::Operations,
        }
    }
}

/// The entries as their reader wants them.
enum Entries {
    /// Tokens, `[entries]` i32, and their columns.
    Tokens(Array, Columns),
    /// Flat indices into `[n, vocab]`, `[entries]` i32, and their columns.
    Places(Array, Columns),
    /// At least eight entries: tokens, `[entries]` i32, and bias, repetition and what is subtracted, `[entries, 3]` f32.
    Changes { tokens: Array, changes: Array },
}

/// `[entries]` f32 each.
struct Columns {
    bias: Array,
    repetition: Array,
    subtract: Array,
}

impl AdjustmentArrays {
    /// `None` if no row has adjustments. `rows`: each row's adjustments; all tokens are of the vocabulary.
    pub(super) fn new<'a>(
        rows: impl Iterator<Item = Option<&'a LogitAdjustments>>,
        vocab: i32,
        reader: EntryReader,
    ) -> mlx::Result<Option<Self>> {
        let rows: Vec<Option<&LogitAdjustments>> = rows.collect();
        let mut starts = vec![0i32];
        for row in &rows {
            starts.push(starts.last().unwrap_or(&0) + row.map_or(0, |row| row.tokens.len()) as i32);
        }
        let length = starts.last().copied().unwrap_or(0);
        if length == 0 {
            return Ok(None);
        }
        let entries = match reader {
            EntryReader::CpuKernel => {
                Entries::Tokens(Array::from_slice(&tokens(&rows), &[length])?, Columns::new(&rows, length)?)
            }
            EntryReader::Operations => Entries::Places(
                Array::from_slice(&places(&rows, vocab), &[length])?,
                Columns::new(&rows, length)?,
            ),
            EntryReader::GpuKernel => changes(&rows, length)?,
        };
        Ok(Some(Self { entries, starts: Array::from_slice(&starts, &[starts.len() as i32])? }))
    }

    /// The tokens and changes that the GPU's kernel takes; `None` for adjustments of another backend.
    pub(super) fn changes(&self) -> Option<(&Array, &Array)> {
        match &self.entries {
            Entries::Changes { tokens, changes } => Some((tokens, changes)),
            Entries::Tokens(..) | Entries::Places(..) => None,
        }
    }

    /// The adjusted logits. `logits`: `[n, vocab]` f32. Fails for entries of the GPU's kernel, which adjusts them itself.
    pub(super) fn apply(&self, logits: &Array) -> mlx::Result<Array> {
        match &self.entries {
            Entries::Tokens(tokens, Columns { bias, repetition, subtract }) => {
                let entries =
                    mlx::cpu::LogitEntries { starts: &self.starts, tokens, bias, repetition, subtract };
                mlx::cpu::adjust_logits(logits, &entries)
            }
            Entries::Places(places, columns) => columns.apply(logits, places),
            Entries::Changes { .. } => Err(mlx::Error::new("the GPU's kernel adjusts these logits")),
        }
    }
}

impl Columns {
    fn new(rows: &[Option<&LogitAdjustments>], length: i32) -> mlx::Result<Self> {
        let floats = |of: fn(&LogitAdjustments) -> &Vec<f32>| {
            Array::from_slice(&column(rows, |row, place| of(row)[place]), &[length])
        };
        Ok(Self {
            bias: floats(|row| &row.bias)?,
            repetition: floats(|row| &row.repetition)?,
            subtract: floats(|row| &row.subtract)?,
        })
    }

    fn apply(&self, logits: &Array, places: &Array) -> mlx::Result<Array> {
        let Self { bias, repetition, subtract } = self;
        let [rows, vocab] = logits.dims()?;
        let flat = logits.reshape(&[rows * vocab])?;
        let biased = flat.take(places, 0)? + bias;
        let positive = biased.greater(&Array::scalar(0.0, Dtype::F32)?)?;
        let penalized = mlx::where_(&positive, &(&biased / repetition), &(&biased * repetition))?;
        let adjusted = penalized - subtract;
        flat.scatter_rows(places, &adjusted)?.reshape(&[rows, vocab])
    }
}

fn changes(rows: &[Option<&LogitAdjustments>], length: i32) -> mlx::Result<Entries> {
    let change =
        |row: &LogitAdjustments, place: usize| [row.bias[place], row.repetition[place], row.subtract[place]];
    let (mut tokens, mut changes) = (tokens(rows), column(rows, change).concat());
    let least = length.max(8);
    tokens.resize(least as usize, 0);
    changes.resize(least as usize * 3, 0.0);
    Ok(Entries::Changes {
        tokens: Array::from_slice(&tokens, &[least])?,
        changes: Array::from_slice(&changes, &[least, 3])?,
    })
}

fn tokens(rows: &[Option<&LogitAdjustments>]) -> Vec<i32> {
    column(rows, |row, place| row.tokens[place] as i32)
}

/// A value of each entry of all rows, ascending by token in each row, end to end.
fn column<T>(rows: &[Option<&LogitAdjustments>], of: impl Fn(&LogitAdjustments, usize) -> T) -> Vec<T> {
    let of_row =
        |row: &&LogitAdjustments| row.places.values().map(|place| of(row, *place)).collect::<Vec<T>>();
    rows.iter().flatten().flat_map(of_row).collect()
}

fn places(rows: &[Option<&LogitAdjustments>], vocab: i32) -> Vec<i32> {
    let of_row = |(row, adjustments): (usize, &Option<&LogitAdjustments>)| {
        let tokens = adjustments.iter().flat_map(|adjustments| adjustments.places.keys());
        tokens.map(move |token| row as i32 * vocab + *token as i32).collect::<Vec<i32>>()
    };
    rows.iter().enumerate().flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token, bias, repetition, subtract; by token.
    fn entries(adjustments: &LogitAdjustments) -> Vec<(u32, f32, f32, f32)> {
        let at = |(token, place): (&u32, &usize)| {
            let place = *place;
            (*token, adjustments.bias[place], adjustments.repetition[place], adjustments.subtract[place])
        };
        adjustments.places.iter().map(at).collect()
    }

    /// What the whole history gives, counted from the start.
    fn recount(sampling: &Sampling, tokens: &[u32], prompt: usize) -> Vec<(u32, f32, f32, f32)> {
        let mut all: BTreeMap<u32, (f32, f32, f32)> = BTreeMap::new();
        for (token, bias) in &sampling.logit_bias {
            all.entry(*token).or_insert((0.0, 1.0, 0.0)).0 = *bias;
        }
        for token in tokens.iter().skip(tokens.len().saturating_sub(sampling.repetition_context)) {
            all.entry(*token).or_insert((0.0, 1.0, 0.0)).1 = sampling.repetition_penalty;
        }
        for token in tokens.iter().skip(prompt) {
            let count = tokens.iter().skip(prompt).filter(|other| *other == token).count();
            all.entry(*token).or_insert((0.0, 1.0, 0.0)).2 =
                sampling.presence_penalty + sampling.frequency_penalty * count as f32;
        }
        all.into_iter()
            .map(|(token, (bias, repetition, subtract))| (token, bias, repetition, subtract))
            .collect()
    }

    #[test]
    fn incremental_counts_equal_a_recount() {
        let sampling = Sampling {
            repetition_penalty: 1.3,
            repetition_context: 7,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            logit_bias: [(3, 1.5), (99, -2.0)].into(),
            ..Sampling::default()
        };
        let only_repetition = Sampling { presence_penalty: 0.0, frequency_penalty: 0.0, ..sampling.clone() };
        let tokens: Vec<u32> = (0..200u32).map(|at| at * at * 7 % 13).collect();
        for (sampling, prompt) in [(&sampling, 20), (&sampling, 3), (&only_repetition, 200)] {
            let mut adjustments = LogitAdjustments::new(sampling);
            let start = 25;
            adjustments.start(&tokens[..start], prompt);
            for end in start + 1..=tokens.len() {
                adjustments.push(tokens[end - 1]);
                let counted = if sampling.presence_penalty == 0.0 { tokens.len() } else { prompt };
                assert_eq!(entries(&adjustments), recount(sampling, &tokens[..end], counted), "{end}");
            }
        }
    }

    #[test]
    fn the_kernel_and_the_operations_give_equal_bits() {
        let sampling = Sampling {
            repetition_penalty: 1.3,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            logit_bias: [(3, 1.5), (7, -2.0)].into(),
            ..Sampling::default()
        };
        let mut adjustments = LogitAdjustments::new(&sampling);
        adjustments.start(&[1, 3, 4, 4, 9, 0, 3], 2);
        let rows = [Some(&adjustments), None, Some(&adjustments)];
        let logits: Vec<f32> = (0..30).map(|at| (at as f32 * 0.7).sin() * 3.0).collect();
        let logits = Array::from_slice(&logits, &[3, 10]).unwrap();
        let bits = |adjusted: Array| adjusted.to_vec::<f32>().unwrap();
        let adjusted = |reader: EntryReader| {
            let arrays = AdjustmentArrays::new(rows.into_iter(), 10, reader).unwrap().unwrap();
            bits(arrays.apply(&logits).unwrap())
        };
        let in_kernel = adjusted(EntryReader::CpuKernel);
        assert_eq!(in_kernel, adjusted(EntryReader::Operations));
        assert_ne!(in_kernel, bits(logits.clone()));
    }
}
