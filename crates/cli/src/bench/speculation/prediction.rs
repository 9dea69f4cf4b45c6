//! What the simulator makes of a round.

use omnibus_engine::{DraftSource, Settings, Usage};
use omnibus_offline::sim::{Arrival, CostModel, DraftWork, Machine, simulate};

use super::draft_stats::DraftStats;
use crate::settings::Config;

/// What a prediction follows from, but for the drafts.
pub struct Prediction<'a> {
    pub config: &'a Config,
    /// As the engine has learned it.
    pub cost: &'a CostModel,
    /// Requests at once.
    pub streams: usize,
}

impl Prediction<'_> {
    /// How much faster a round of such requests is with such drafts. `None` where no draft or no step was measured.
    pub fn ratio(&self, usages: &[Usage], stats: &DraftStats) -> Option<f64> {
        let speculation = &self.config.engine.speculation;
        let work = match (speculation.source, speculation.checkpoint()) {
            (DraftSource::Mtp, _) | (_, Some(_)) => DraftWork::Model,
            _ => DraftWork::None,
        };
        let drafts = stats.measured(speculation.num_draft_tokens, work)?;
        if self.cost.decode.samples == 0 || self.cost.prefill.samples == 0 {
            return None;
        }
        let machine = Machine::Learned(Box::new(self.cost.clone()));
        let settings = Settings { max_num_seqs: self.streams, ..self.config.engine.clone() };
        let arrivals: Vec<Arrival> =
            (1..).zip(usages).map(|(number, usage)| arrival(number, usage)).collect();
        let [plain, drafted] =
            [None, Some(drafts)].map(|drafts| simulate(&settings, &machine, &arrivals, drafts).end as f64);
        // Nothing ends where no request fits.
        (plain > 0.0 && drafted > 0.0).then(|| plain / drafted)
    }
}

/// A request that waits for its turn from the beginning.
fn arrival(conversation: u64, usage: &Usage) -> Arrival {
    let answer = usage.completion_tokens.max(1);
    Arrival {
        prompt: usage.prompt_tokens.max(1),
        max_new_tokens: answer,
        answer,
        conversation,
        ..Arrival::default()
    }
}
