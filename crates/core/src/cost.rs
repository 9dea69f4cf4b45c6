//! The cost model: predicts the time of a step, learned from measured steps.
//!
//! A step's time is `a + b · new tokens + c · context`, once for decode-only steps and once for steps with prefill,
//! because memory bounds the one and arithmetic the other. Both are fitted to measured steps by least squares of the
//! relative error, with decay, and coefficients are never negative: more work never takes less time. A step far from
//! its prediction counts less, so that an outlier is not learned. Decode steps of some numbers of rows differ from that
//! sum; what they take is kept beside it.
//!
//! Other load on the machine slows all steps for a while: the drift is how much longer than fitted the last few steps
//! took, and predictions are multiplied by it. So the fit need not follow other load, and no prediction is wrong for
//! long.
//!
//! Invariant: the same measurements in the same order give the same model.

mod drafts;
mod rows;
mod transfer;

use serde::{Deserialize, Serialize};

use crate::padding::Padding;
use crate::plan::{Plan, ScheduledSequence};
use crate::request::Tick;
pub use drafts::{DraftCost, DraftLoad};
use rows::Line;
pub(crate) use rows::ROWS_KNOWN;
pub use rows::RowCurve;
pub use transfer::{Transfer, TransferCost, TransferCosts};

/// The load of one step in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StepLoad {
    /// Tokens of decoding sequences: one each, and draft tokens.
    pub decode_tokens: f64,
    /// Positions that they attend to, added up over sequences.
    pub decode_context: f64,
    /// Prefill tokens.
    pub prefill_tokens: f64,
    /// Positions that each of those tokens attends to, added up.
    pub prefill_context: f64,
}

impl StepLoad {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Self {
        Self::of_part(plan.scheduled.iter())
    }

    /// Of a part of a plan.
    pub(crate) fn of_part<'a>(scheduled: impl Iterator<Item = &'a ScheduledSequence>) -> Self {
        scheduled.map(Self::of_sequence).fold(Self::default(), Self::plus)
    }

    fn of_sequence(scheduled: &ScheduledSequence) -> Self {
        if scheduled.is_decode() {
            Self::verify(scheduled.positions.start, scheduled.positions.len())
        } else {
            Self::prefill(scheduled.positions.start, scheduled.positions.len())
        }
    }

    /// One token after others, itself included in `context`.
    pub fn decode(context: usize) -> Self {
        Self { decode_tokens: 1.0, decode_context: context as f64, ..Self::default() }
    }

    /// A decode step of `tokens` positions from `start` on: the newest token, and draft tokens after it. What they attend to is read
    /// once.
    pub fn verify(start: usize, tokens: usize) -> Self {
        Self { decode_tokens: tokens as f64, decode_context: (start + tokens) as f64, ..Self::default() }
    }

    /// One more draft token beside others of its sequence.
    pub(crate) fn draft() -> Self {
        Self { decode_tokens: 1.0, decode_context: 1.0, ..Self::default() }
    }

    /// A prefill chunk of `tokens` from position `start` on.
    pub fn prefill(start: usize, tokens: usize) -> Self {
        let (start, tokens) = (start as f64, tokens as f64);
        let prefill_context = tokens * start + tokens * (tokens + 1.0) / 2.0;
        Self { prefill_tokens: tokens, prefill_context, ..Self::default() }
    }

    /// Both in one step.
    pub fn plus(self, other: Self) -> Self {
        Self {
            decode_tokens: self.decode_tokens + other.decode_tokens,
            decode_context: self.decode_context + other.decode_context,
            prefill_tokens: self.prefill_tokens + other.prefill_tokens,
            prefill_context: self.prefill_context + other.prefill_context,
        }
    }
}

/// The cost model of this machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CostModel {
    /// Of decode-only steps.
    pub decode: StepCost,
    /// What decode-only steps of some numbers of rows take, where that was measured.
    #[serde(default)]
    pub rows: RowCurve,
    /// Of steps with prefill. Decodes beside prefill cost what they add to a decode-only step.
    pub prefill: StepCost,
    /// The most prefill tokens of a measured step.
    pub prefill_tokens_max: f64,
    /// The last few steps' time divided by the fit, minus one.
    #[serde(skip)]
    drift: f64,
    /// Of transfers of blocks.
    #[serde(default)]
    pub transfers: TransferCosts,
    /// Of draft tokens that a model computes.
    #[serde(default)]
    pub drafts: DraftCost,
    /// How decode-only steps are padded.
    #[serde(default)]
    pub padding: Padding,
}

/// `base + token · tokens + context · positions`, in microseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepCost {
    /// Of any step.
    pub base_us: f64,
    /// Of each new token.
    pub token_us: f64,
    /// Of each position that a new token attends to.
    pub context_us: f64,
    /// Steps it was fitted to.
    pub samples: u64,
    /// The recent prediction error, as a share of the time taken: the mean over some twenty steps, before they were
    /// learned.
    pub error_ratio: f64,
    /// The fit's state. Absent in a profile that only predicts.
    #[serde(skip)]
    moments: Moments<3>,
}

/// Weighted sums over measurements, with decay.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Moments<const N: usize> {
    products: [[f64; N]; N],
    times: [f64; N],
}

impl<const N: usize> Default for Moments<N> {
    fn default() -> Self {
        Self { products: [[0.0; N]; N], times: [0.0; N] }
    }
}

impl<const N: usize> Moments<N> {
    /// `row`: the coefficients' factors. `time`: the sum to explain.
    fn add(&mut self, row: [f64; N], time: f64, weight: f64) {
        for (products, x) in self.products.iter_mut().zip(row) {
            for (product, y) in products.iter_mut().zip(row) {
                *product = *product * FORGETTING + weight * x * y;
            }
        }
        for (sum, x) in self.times.iter_mut().zip(row) {
            *sum = *sum * FORGETTING + weight * x * time;
        }
    }

    /// Moves the coefficients, one at a time and none below zero, to the least squares.
    fn fit(&self, found: &mut [f64; N]) {
        for _ in 0..ROUNDS {
            for at in 0..N {
                let curvature = self.products[at][at];
                if curvature <= 0.0 {
                    continue;
                }
                let explained: f64 =
                    self.products[at].iter().zip(*found).map(|(product, value)| product * value).sum();
                let step = (self.times[at] - explained) / curvature;
                found[at] = (found[at] + step).max(0.0);
            }
        }
    }
}

/// A measured step, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The fit's prediction.
    usual: f64,
    /// The prediction with drift.
    expected: f64,
    took: f64,
}

/// The weight of a measurement with this relative error.
fn trust(samples: u64, error_ratio: f64, off: f64) -> f64 {
    let usual = error_ratio.max(ERROR_MIN);
    if samples < SAMPLES_MIN { 1.0 } else { (OUTLIER * usual / off.max(1e-9)).min(1.0) }
}

/// The usual error after a measurement with this relative error.
fn after(samples: u64, error_ratio: f64, off: f64) -> f64 {
    match samples {
        // The first measurement had no prediction.
        0 => error_ratio,
        samples => error_ratio + ERROR_GAIN.max(1.0 / samples as f64) * (off.min(1.0) - error_ratio),
    }
}

/// Decay of a step's weight with each later step.
const FORGETTING: f64 = 0.99;
/// The weight of the newest step in the error.
const ERROR_GAIN: f64 = 0.05;
/// How many usual errors a step is assumed to be late: one in a hundred is later, for errors with a Laplace
/// distribution.
const ERRORS_APART: f64 = 4.0;
/// With a larger margin no prefill fits any more, and nothing is learned.
const DOUBT_MAX: f64 = 0.2;
/// The weight of the newest step in the drift: other load comes and goes within some steps.
const DRIFT_GAIN: f64 = 0.3;
/// The largest ratio that a single step counts with.
const DRIFT_MAX: f64 = 0.5;
/// A step further off than this many times the usual error counts less.
const OUTLIER: f64 = 3.0;
/// The least usual error that is assumed.
const ERROR_MIN: f64 = 0.02;
/// Steps before outliers are detected.
const SAMPLES_MIN: u64 = 8;
/// Rounds of coordinate descent after each step; they start from the last result.
const ROUNDS: usize = 40;

impl CostModel {
    /// One that has measured nothing, of a device that pads decode-only steps like this.
    pub fn padded(padding: Padding) -> Self {
        Self { padding, ..Self::default() }
    }

    /// Rows that a decode-only step computes.
    fn computed_rows(&self, load: &StepLoad) -> f64 {
        self.padding.of(load.decode_tokens as usize) as f64
    }

    /// Expected microseconds of a step of this load. Zero without measurements.
    pub fn predict(&self, load: &StepLoad) -> f64 {
        self.usual(load) * (1.0 + self.drift)
    }

    /// Expected microseconds of a step of this load, without drift.
    fn usual(&self, load: &StepLoad) -> f64 {
        if load.prefill_tokens > 0.0 {
            self.prefill.at(load.prefill_tokens, load.prefill_context) + self.beside(load)
        } else if load.decode_tokens > 0.0 {
            self.rows.at(self.computed_rows(load), self.decode.line())
                + self.decode.context_us * load.decode_context
        } else {
            0.0
        }
    }

    /// What decodes add to a step with prefill.
    fn beside(&self, load: &StepLoad) -> f64 {
        self.decode.token_us * load.decode_tokens + self.decode.context_us * load.decode_context
    }

    /// The largest number of rows of a decode-only step, of those from `least` on that cost less than `most`, of which little was
    /// measured.
    pub(crate) fn little_known_rows(&self, least: usize, most: usize) -> Option<usize> {
        let (padding, most) = (self.padding, self.padding.of(most));
        let is_computed = |rows: &usize| (least..most).contains(rows) && padding.of(*rows) == *rows;
        self.rows.little_known().map(|rows| rows as usize).rev().find(is_computed)
    }

    /// Learns from a measured step.
    pub fn learn(&mut self, load: &StepLoad, took: Tick) {
        let took = (took as f64).max(1.0);
        let seen = Seen { usual: self.usual(load), expected: self.predict(load), took };
        if load.prefill_tokens > 0.0 {
            // At least a tenth is the prefill's, whatever decoding is predicted to take.
            let own = (took - self.beside(load)).max(took / 10.0);
            self.prefill.learn([load.prefill_tokens, 1.0, load.prefill_context], own, seen);
            self.prefill_tokens_max = self.prefill_tokens_max.max(load.prefill_tokens);
        } else if load.decode_tokens > 0.0 {
            self.decode.learn([1.0, self.computed_rows(load), load.decode_context], took, seen);
        }
        let rows = (load.prefill_tokens == 0.0).then(|| self.computed_rows(load)).filter(|rows| *rows > 0.0);
        if seen.usual > 0.0 {
            let now = (took / seen.usual - 1.0).clamp(-DRIFT_MAX, DRIFT_MAX);
            self.drift += DRIFT_GAIN * (now - self.drift);
        }
        // The order of coordinates is the order in which one measurement is explained: a decode step by its base,
        // a prefill by its tokens. So the cost of larger chunks is overestimated at first, not underestimated.
        self.decode.fit([0, 1, 2]);
        self.prefill.fit([1, 0, 2]);
        if let Some(rows) = rows {
            let own = took / (1.0 + self.drift) - self.decode.context_us * load.decode_context;
            self.rows.learn(rows, own, self.decode.line(), self.decode.most_off(seen.usual));
        }
    }

    /// Learns from a measured transfer.
    pub fn learn_transfer(&mut self, which: Transfer, bytes: u64, took: Tick) {
        self.transfers.learn(which, bytes, took);
    }

    /// Learns from a measured call of a draft model.
    pub fn learn_drafts(&mut self, load: DraftLoad, took: Tick) {
        self.drafts.learn(load, took);
    }

    /// The margin for a step with prefill, as a share of its expected time: nearly no step takes longer.
    pub fn doubt(&self) -> f64 {
        (ERRORS_APART * self.prefill.error_ratio).min(DOUBT_MAX)
    }

    /// The flat part of a step with prefill, which launches and weights take whatever the number of tokens. At least that
    /// of a decode-only step.
    pub fn flat_us(&self) -> f64 {
        self.prefill.base_us.max(self.decode.base_us) * (1.0 + self.drift)
    }

    /// Prefill tokens of which the parts that are not flat take this time; at most `most`.
    pub fn prefill_tokens_within(&self, us: f64, most: usize) -> usize {
        let token_us = self.prefill.token_us * (1.0 + self.drift);
        if token_us * (most as f64) <= us { most } else { (us / token_us) as usize }
    }

    /// The recent prediction error of steps, as a share of the time taken: the larger one of the two parts.
    pub fn error_ratio(&self) -> f64 {
        self.decode.error_ratio.max(self.prefill.error_ratio)
    }

    /// The most tokens from `start` on, at most `most`, with which a step of `load` stays within the budget.
    pub fn prefill_within(&self, load: &StepLoad, start: usize, most: usize, budget_us: f64) -> usize {
        let fits = |tokens: usize| self.predict(&load.plus(StepLoad::prefill(start, tokens))) <= budget_us;
        if fits(most) {
            return most;
        }
        let (mut fit, mut too_many) = (0, most);
        while too_many - fit > 1 {
            let middle = fit + (too_many - fit) / 2;
            if fits(middle) { fit = middle } else { too_many = middle }
        }
        fit
    }
}

impl StepCost {
    /// A part with known coefficients.
    pub fn new(base_us: f64, token_us: f64, context_us: f64) -> Self {
        Self { base_us, token_us, context_us, ..Self::default() }
    }

    fn at(&self, tokens: f64, context: f64) -> f64 {
        self.base_us + self.token_us * tokens + self.context_us * context
    }

    /// Without context.
    fn line(&self) -> Line {
        Line { base_us: self.base_us, row_us: self.token_us }
    }

    /// By how many microseconds a step may be off that is no outlier.
    fn most_off(&self, usual: f64) -> f64 {
        let error = self.error_ratio.max(ERROR_MIN);
        if self.samples < SAMPLES_MIN { f64::INFINITY } else { OUTLIER * error * usual }
    }

    /// `row`: the coefficients' factors, in the order of [`StepCost::fit`]. `own`: the part of the step's time to
    /// explain.
    fn learn(&mut self, row: [f64; 3], own: f64, seen: Seen) {
        let off = |expected: f64| (expected - seen.took).abs() / seen.took;
        let weight = trust(self.samples, self.error_ratio, off(seen.usual)) / (own * own);
        self.error_ratio = after(self.samples, self.error_ratio, off(seen.expected));
        self.moments.add(row, own, weight);
        self.samples += 1;
    }

    /// Fits the coefficients. `order`: which of base, token and context each row of the moments is.
    fn fit(&mut self, order: [usize; 3]) {
        let given = [self.base_us, self.token_us, self.context_us];
        let mut found = order.map(|at| given[at]);
        self.moments.fit(&mut found);
        let mut fitted = given;
        for (at, value) in order.into_iter().zip(found) {
            fitted[at] = value;
        }
        [self.base_us, self.token_us, self.context_us] = fitted;
    }
}
