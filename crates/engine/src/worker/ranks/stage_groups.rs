//! Layer groups of one stage among those of the network: the scheduler counts blocks of the network's groups, and a stage has
//! those that its layers are in, with the same block ids.

use omnibus_core::BlockCopy;
use omnibus_model::{KvCacheGroup, KvStorage, Model};

use super::messages::StageCapacity;
use crate::error::StartError;
use crate::worker::capacity::Capacity;
use crate::worker::device_call::DeviceCall;
use crate::worker::step_input::{InputSegment, StepInput};

/// Of each group of a stage, which group of the network it is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::worker) struct StageGroups {
    of_network: Vec<usize>,
    network: usize,
}

impl StageGroups {
    /// Of a loaded stage.
    pub(in crate::worker) fn of(model: &Model, storage: KvStorage) -> Result<Self, StartError> {
        let groups = model.blueprint().kv_cache_groups(storage);
        Self::among(&groups, &model.network().kv_cache_groups(storage))
    }

    fn among(own: &[KvCacheGroup], network: &[KvCacheGroup]) -> Result<Self, StartError> {
        let place = |group: &KvCacheGroup| {
            let is_same =
                |of: &KvCacheGroup| (of.spec.kind, of.visible_to) == (group.spec.kind, group.visible_to);
            network.iter().position(is_same)
        };
        let of_network: Option<Vec<usize>> = own.iter().map(place).collect();
        let of_network =
            of_network.ok_or_else(|| StartError::new("a stage caches what its network does not"))?;
        Ok(Self { of_network, network: network.len() })
    }

    /// What fits the stage's memory.
    pub(super) fn capacity(&self, own: &Capacity) -> StageCapacity {
        let blocks = (0..self.network).map(|group| {
            let place = self.of_network.iter().position(|of| *of == group);
            place.and_then(|place| own.blocks.get(place).copied())
        });
        StageCapacity { blocks: blocks.collect(), max_context: own.max_context }
    }

    /// Of each group of the network, those of each group of the stage.
    pub(in crate::worker) fn blocks(&self, network: &[usize]) -> Result<Vec<usize>, String> {
        let own = self.of_network.iter().map(|group| network.get(*group).copied());
        let own: Option<Vec<usize>> = own.collect();
        own.ok_or_else(|| format!("{} layer groups, not {}", self.network, network.len()))
    }

    /// A call with the stage's groups in the place of the network's.
    pub(super) fn call(&self, call: DeviceCall) -> mlx::Result<DeviceCall> {
        Ok(match call {
            DeviceCall::Forward { step, after, input } => {
                DeviceCall::Forward { step, after, input: Box::new(self.input(*input)?) }
            }
            DeviceCall::SetBlocks(blocks) => {
                DeviceCall::SetBlocks(self.blocks(&blocks).map_err(mlx::Error::new)?)
            }
            other => other,
        })
    }

    fn input(&self, input: StepInput) -> mlx::Result<StepInput> {
        let of_segment = |segment: InputSegment| {
            let tables = self.of_network.iter().map(|group| segment.tables.get(*group).cloned());
            let tables: Option<Vec<_>> = tables.collect();
            let tables = tables.ok_or_else(|| mlx::Error::new("a block table of each layer group"))?;
            Ok(InputSegment { tables, ..segment })
        };
        let of_copy = |copy: BlockCopy| {
            let group = self.of_network.iter().position(|group| *group == copy.group)?;
            Some(BlockCopy { group, ..copy })
        };
        Ok(StepInput {
            segments: input.segments.into_iter().map(of_segment).collect::<mlx::Result<_>>()?,
            copies: input.copies.into_iter().filter_map(of_copy).collect(),
            ..input
        })
    }
}

/// What fits the memory of all stages: the least of each group's blocks.
pub(super) fn least_of(stages: &[StageCapacity]) -> Result<(Vec<usize>, usize), String> {
    let groups = stages.first().map_or(0, |first| first.blocks.len());
    if let Some(other) = stages.iter().find(|stage| stage.blocks.len() != groups) {
        return Err(format!("{} layer groups, not {groups}", other.blocks.len()));
    }
    let least = |group: usize| {
        let blocks = stages.iter().filter_map(|stage| stage.blocks.get(group).copied().flatten());
        blocks.min().ok_or_else(|| format!("no stage has layer group {group}"))
    };
    let blocks = (0..groups).map(least).collect::<Result<_, _>>()?;
    let max_context = stages.iter().map(|stage| stage.max_context).min().unwrap_or(0);
    Ok((blocks, max_context))
}

#[cfg(test)]
mod tests {
    use omnibus_core::SequenceId;
    use omnibus_kv::{BlockId, BlockTable, CacheKind};

    use super::*;

    fn stage(of_network: &[usize]) -> StageGroups {
        StageGroups { of_network: of_network.to_vec(), network: 3 }
    }

    #[test]
    fn a_stage_gets_the_tables_and_copies_of_its_own_groups() {
        let table = |id: u32| BlockTable { blocks: vec![BlockId(id)], ..BlockTable::new(CacheKind::Full, 4) };
        let copy = |group: usize, id: u32| BlockCopy { group, from: BlockId(id), to: BlockId(id + 1) };
        let segment = |tables: &[u32]| InputSegment {
            sequence: SequenceId(1),
            first: 0,
            len: 1,
            context: 0,
            prompt: 1,
            samples: 1,
            adapter: 0,
            keeps_states: false,
            tables: tables.iter().copied().map(table).collect(),
        };
        let input = StepInput {
            segments: vec![segment(&[10, 11, 12])],
            copies: vec![copy(0, 20), copy(2, 22), copy(1, 21)],
            ..StepInput::default()
        };
        let own = stage(&[1, 2]).input(input.clone()).unwrap();
        assert_eq!(own.segments, [segment(&[11, 12])]);
        assert_eq!(own.copies, [copy(1, 22), copy(0, 21)]);
        let short = StepInput { segments: vec![segment(&[10])], ..input };
        assert!(stage(&[1]).input(short).is_err());
    }

    #[test]
    fn the_least_of_all_stages_fits() {
        let capacity =
            |blocks: [Option<usize>; 2], max_context| StageCapacity { blocks: blocks.to_vec(), max_context };
        let stages = [capacity([Some(9), None], 70), capacity([Some(7), Some(2)], 90)];
        assert_eq!(least_of(&stages), Ok((vec![7, 2], 70)));
        assert!(least_of(&stages[..1]).unwrap_err().contains("no stage has layer group 1"));
        assert_eq!(stage(&[2, 0]).blocks(&[4, 5, 6]), Ok(vec![6, 4]));
        assert!(stage(&[2, 0]).blocks(&[4]).is_err());
    }
}
