//! Which samplers shape the logits of a sequence that needs more than the kernels have.

use super::dry::DryPenalty;
use crate::request::{SAMPLERS, SamplerKind, Sampling};

/// What shapes the logits of one sequence.
#[derive(Debug)]
pub(super) struct Shaping {
    pub(super) order: Vec<SamplerKind>,
    pub(super) dry: Option<DryPenalty>,
}

impl Shaping {
    /// `None` for a sequence that needs the kernels alone. `breakers`: the tokens of each.
    pub(super) fn new(sampling: &Sampling, breakers: &[Vec<u32>]) -> Option<Self> {
        if sampling.is_plain() {
            return None;
        }
        let order = match sampling.order.as_slice() {
            [] => SAMPLERS.iter().map(|row| row.kind).collect(),
            order => order.to_vec(),
        };
        Some(Self { order, dry: DryPenalty::new(&sampling.dry, breakers) })
    }
}
