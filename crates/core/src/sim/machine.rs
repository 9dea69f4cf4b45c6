//! How long a step takes on the machine that is played.

use serde::{Deserialize, Serialize};

use super::Cost;
use crate::cost::{CostModel, DraftLoad, StepLoad};
use crate::plan::Plan;
use crate::request::Tick;

/// How long a step takes on the machine that is played.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Machine {
    /// Prices for tokens and for positions attended to.
    Priced(Cost),
    /// What a server has learned of its own steps.
    Learned(Box<CostModel>),
    /// Times as they were measured at some numbers of rows.
    Rows {
        /// Tokens of a step, those of decodes and prompts together, and its milliseconds. Ascending, at least one.
        curve: Vec<(u64, f64)>,
    },
    /// Throughput as it was measured at some numbers of streams.
    Curves {
        /// Streams, and tokens a second of all of them, of steps that only decode. Ascending, at least one.
        decode: Vec<(u64, f64)>,
        /// Prompts, and tokens a second of all of them, of steps that only prefill. A step that does both takes as long
        /// as both.
        prefill: Vec<(u64, f64)>,
    },
}

impl Machine {
    /// Microseconds that the plan takes, at least one.
    pub fn of(&self, plan: &Plan) -> Tick {
        match self {
            Self::Priced(cost) => cost.of(plan),
            Self::Learned(model) => (model.predict(&StepLoad::of(plan)) as Tick).max(1),
            Self::Rows { curve } => ((1e3 * on_line(curve, plan.tokens() as f64)) as Tick).max(1),
            Self::Curves { decode, prefill } => {
                let load = StepLoad::of(plan);
                let prompts = plan.scheduled.iter().filter(|scheduled| !scheduled.is_decode()).count();
                let decoding = seconds(decode, load.decode_tokens, load.decode_tokens);
                let prefilling = seconds(prefill, prompts as f64, load.prefill_tokens);
                (((decoding + prefilling) * 1e6) as Tick).max(1)
            }
        }
    }

    /// Microseconds of the draft model, which nothing but a learned model knows.
    pub(super) fn of_drafts(&self, load: DraftLoad) -> Tick {
        match self {
            Self::Learned(model) => model.drafts.predict(load) as Tick,
            Self::Priced(_) | Self::Rows { .. } | Self::Curves { .. } => 0,
        }
    }

    /// Llama-3.3-70B in four bits on an M5 Max with prompts of 4096 tokens, as published: 27 to 168 tokens a second from
    /// one stream to sixteen, prompts at 380 to 2440.
    pub fn m5_max_70b() -> Self {
        Self::Curves {
            decode: vec![(1, 27.0), (2, 49.0), (4, 84.0), (8, 132.0), (16, 168.0)],
            prefill: vec![(1, 380.0), (2, 690.0), (4, 1180.0), (8, 1820.0), (16, 2440.0)],
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::Priced(Cost::default())
    }
}

/// Seconds for so many tokens at the throughput of so many streams, beyond the last measured number as fast as there.
fn seconds(curve: &[(u64, f64)], streams: f64, tokens: f64) -> f64 {
    let most = curve.last().map_or(0.0, |(at, _)| *at as f64);
    tokens / on_line(curve, streams.min(most)).max(1e-9)
}

/// The value at `x`: on the line between two measured points, and beyond the last on the line through the last two.
fn on_line(curve: &[(u64, f64)], x: f64) -> f64 {
    let at = curve.iter().position(|(at, _)| *at as f64 >= x).unwrap_or(curve.len().saturating_sub(1));
    let (Some(above), Some(below)) = (curve.get(at), curve.get(at.saturating_sub(1))) else { return 0.0 };
    let width = above.0 as f64 - below.0 as f64;
    let share = if width > 0.0 { ((x - below.0 as f64) / width).max(0.0) } else { 0.0 };
    below.1 + share * (above.1 - below.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_followed_between_its_points_and_flat_beyond() {
        let curve = [(1, 10.0), (3, 20.0)];
        let rate = |streams: f64| 1.0 / seconds(&curve, streams, 1.0);
        assert_eq!([0.5, 1.0, 2.0, 3.0, 9.0].map(rate), [10.0, 10.0, 15.0, 20.0, 20.0]);
    }
}
