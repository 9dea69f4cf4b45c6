//! Which of the processes that compute one model together a process is.

use omnibus_model::{ModelPart, PipelineStage, Shard};
use serde::{Deserialize, Serialize};

use crate::error::StartError;
use crate::settings::Settings;

/// A rank of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::worker) struct Place {
    stage: usize,
    stages: usize,
    rank: usize,
    ranks: usize,
}

impl Place {
    /// The process with the loop: the first rank of the first stage.
    pub(in crate::worker) fn first(settings: &Settings) -> Self {
        let (stages, ranks) = (settings.pipeline_parallel_size.max(1), settings.tensor_parallel_size.max(1));
        Self { stage: 0, stages, rank: 0, ranks }
    }

    /// Other ranks of the stage.
    pub(super) fn followers(self) -> impl Iterator<Item = Self> {
        (1..self.ranks).map(move |rank| Self { rank, ..self })
    }

    /// The first ranks of the stages behind this one.
    pub(super) fn later_stages(self) -> impl Iterator<Item = Self> {
        (self.stage + 1..self.stages).map(move |stage| Self { stage, rank: 0, ..self })
    }

    /// Whether it is the first rank of a stage.
    pub(super) fn leads(self) -> bool {
        self.rank == 0
    }

    /// Whether the stage has the last layer.
    pub(super) fn is_last_stage(self) -> bool {
        self.stage + 1 == self.stages
    }

    /// Its number among all processes of the model: those of a stage follow each other.
    pub(super) fn number(self) -> usize {
        self.stage * self.ranks + self.rank
    }

    pub(super) fn rank(self) -> usize {
        self.rank
    }

    pub(super) fn ranks(self) -> usize {
        self.ranks
    }

    /// What it computes of the model. `shard`: its part of every layer, with several ranks.
    pub(in crate::worker) fn part(self, shard: Option<Shard>) -> Result<ModelPart, StartError> {
        let stage = PipelineStage::new(self.stage, self.stages);
        let stage =
            stage.ok_or_else(|| StartError::new(format!("no stage {} of {}", self.stage, self.stages)))?;
        Ok(ModelPart { stage: (self.stages > 1).then_some(stage), shard })
    }
}
