//! What drafts on the device: a draft model or a draft head. It is loaded before memory is planned, and gets its KV cache after.

mod head;
mod model;
mod rounds;
mod unread_states;

use omnibus_core::{Padding, SequenceId};
use omnibus_kv::{BlockId, KvFormat};
use omnibus_model::{DraftHead, HiddenPlace, KvCacheGroup, KvStorage, Model, PassShape, Source};

use super::hidden::KeptStates;
use crate::error::StartError;
use crate::sampler::Sampler;
use crate::settings::Settings;
use crate::speculation::DraftSource;
use head::HeadDrafter;
use model::DraftModel;
pub(super) use model::full_attention_group;
use rounds::draft;
pub(super) use rounds::{DraftRounds, DraftSegment};

/// A network that drafts, without a KV cache.
pub(super) struct LoadedDrafter {
    network: Network,
    /// Bytes of its weights, without those that it shares with the target.
    weights_bytes: u64,
}

/// What drafts.
enum Network {
    Model(Model),
    Head(DraftHead),
}

/// A network that drafts.
pub(super) enum Drafter {
    Model(DraftModel),
    Head(HeadDrafter),
}

/// Rows of a sequence whose states are kept for a draft head, before they are shown to it without a draft. A row of a step keeps
/// the states of all rows of the step in memory.
pub(super) const STATES_KEPT_MAX: usize = 32;

/// What a network that drafts is shown of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DraftReads {
    /// Its tokens.
    Tokens,
    /// For each row the token that follows it, beside the target's hidden state.
    States,
}

impl LoadedDrafter {
    /// Loads what the settings name. `None` without any.
    pub(super) fn load(
        source: &Source,
        target: &Model,
        settings: &Settings,
    ) -> Result<Option<Self>, StartError> {
        let before = mlx::memory::active_memory();
        let network = Network::load(source, target, settings)?;
        let weights_bytes = mlx::memory::active_memory().saturating_sub(before) as u64;
        Ok(network.map(|network| Self { network, weights_bytes }))
    }

    /// Bytes of its weights, without those that it shares with the target.
    pub(super) fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// Bytes of the target's hidden states that the device keeps for it: of the rows of a step, and of those that sequences that
    /// decode have not shown to it.
    pub(super) fn states_bytes(&self, target: &Model, rows: usize, sequences: usize) -> u64 {
        let places = match &self.network {
            Network::Model(_) => 0,
            Network::Head(head) => head.places().len(),
        };
        let row = places * target.blueprint().hidden * target.dtype().size_of();
        let kept = rows.saturating_add(sequences.saturating_mul(STATES_KEPT_MAX));
        (kept as u64).saturating_mul(row as u64)
    }

    /// Its layers, shapes and caches.
    pub(super) fn network(&self) -> &Model {
        match &self.network {
            Network::Model(model) => model,
            Network::Head(head) => head.network(),
        }
    }

    /// How it stores keys and values: the layer of an MTP head is like the target's, so it takes the target's `storage`.
    fn format(&self, storage: KvStorage) -> KvFormat {
        match &self.network {
            Network::Head(head) if head.is_like_target() && storage.unquantized_prefix.is_none() => {
                storage.format
            }
            Network::Model(_) | Network::Head(_) => model::floats(self.network()),
        }
    }

    /// What it stores, where the target model has this storage.
    pub(super) fn groups(&self, storage: KvStorage) -> Vec<KvCacheGroup> {
        self.network().blueprint().kv_cache_groups(self.format(storage))
    }

    /// Compiles the kernels of these passes on all cores: how many. `storage`: of the target model.
    pub(super) fn compile_ahead(
        &self,
        target: &Model,
        (storage, block_size): (KvStorage, usize),
        passes: &[PassShape],
    ) -> mlx::Result<usize> {
        let storage = KvStorage::from(self.format(storage));
        match &self.network {
            Network::Model(model) => model.compile_ahead(storage, block_size, passes),
            Network::Head(head) => head.compile_ahead(target, storage, block_size, passes),
        }
    }

    /// Most draft tokens that it can give at once.
    pub(super) fn most(&self) -> usize {
        match &self.network {
            Network::Model(_) => usize::MAX,
            Network::Head(head) => head.block().map_or(usize::MAX, |block| block.size - 1),
        }
    }

    /// Longest sequence that it was trained for.
    pub(super) fn context(&self) -> usize {
        self.network().blueprint().context.unwrap_or(usize::MAX)
    }

    pub(super) fn reads(&self) -> DraftReads {
        match self.network {
            Network::Model(_) => DraftReads::Tokens,
            Network::Head(_) => DraftReads::States,
        }
    }

    /// With a KV cache of so many blocks. `vocab`: token ids of the target model; `storage`: of its keys and values.
    pub(super) fn with_cache(
        self,
        vocab: usize,
        (blocks, block_size): (usize, usize),
        storage: KvStorage,
    ) -> mlx::Result<Drafter> {
        let format = self.format(storage);
        match self.network {
            Network::Model(model) => DraftModel::new(model, vocab, blocks, block_size).map(Drafter::Model),
            Network::Head(head) => HeadDrafter::new(head, blocks, block_size, format).map(Drafter::Head),
        }
    }
}

impl Network {
    fn load(source: &Source, target: &Model, settings: &Settings) -> Result<Option<Self>, StartError> {
        let speculation = &settings.speculation;
        let checkpoint = speculation.checkpoint().map(|directory| Source::Directory(directory.to_owned()));
        match (speculation.source, checkpoint) {
            (DraftSource::Off | DraftSource::Ngram, _) => Ok(None),
            (DraftSource::Model, None) => {
                Err(StartError::new("--draft model needs --draft-model, a smaller model with the same vocabulary"))
            }
            (DraftSource::Eagle3, None) => {
                Err(StartError::new("--draft eagle3 needs --draft-model, an EAGLE-3 head for this model"))
            }
            (DraftSource::Dflash, None) => {
                Err(StartError::new("--draft dflash needs --draft-model, a DFlash head for this model"))
            }
            (DraftSource::Model, Some(of)) => load_model(&of, source, target).map(Some),
            (DraftSource::Dflash, Some(of)) => load_head(DraftHead::dflash(&of, target)).map(Some),
            (DraftSource::Eagle3, Some(of)) => load_head(DraftHead::eagle3(&of, target)).map(Some),
            (DraftSource::Auto, Some(of)) => load_any(&of, source, target).map(Some),
            (DraftSource::Mtp, _) => load_mtp(source, target)?.map(Some).ok_or_else(|| {
                let file = source.path("config.json");
                StartError::new(format!(
                    "--draft mtp: the weights beside {} have no MTP head of a known form; use another --draft",
                    file.display()
                ))
            }),
            (DraftSource::Auto, None) => load_mtp_if_it_fits(source, target),
        }
    }
}

fn load_model(of: &Source, source: &Source, target: &Model) -> Result<Network, StartError> {
    let draft = Model::load(of, target.kernels()).map_err(StartError::new)?;
    model::check(&draft, of, target, source)?;
    Ok(Network::Model(draft))
}

/// Loads what a directory has, by its config.
fn load_any(of: &Source, source: &Source, target: &Model) -> Result<Network, StartError> {
    if DraftHead::is_eagle3(of).map_err(StartError::new)? {
        load_head(DraftHead::eagle3(of, target))
    } else if DraftHead::is_dflash(of).map_err(StartError::new)? {
        load_head(DraftHead::dflash(of, target))
    } else {
        load_model(of, source, target)
    }
}

fn load_head(head: Result<DraftHead, omnibus_model::Error>) -> Result<Network, StartError> {
    head.map(Network::Head).map_err(StartError::new)
}

fn load_mtp(source: &Source, target: &Model) -> Result<Option<Network>, StartError> {
    let head = DraftHead::of_checkpoint(source, target).map_err(StartError::new)?;
    Ok(head.map(Network::Head))
}

/// The head of a checkpoint that no setting names: one that cannot be used is a warning.
fn load_mtp_if_it_fits(source: &Source, target: &Model) -> Result<Option<Network>, StartError> {
    let groups = model::groups(target);
    if full_attention_group(&groups).is_none() {
        return Ok(None);
    }
    Ok(load_mtp(source, target).unwrap_or_else(|error| {
        tracing::warn!(%error, "the MTP head of the checkpoint is not used");
        None
    }))
}

impl Drafter {
    /// Shows it the tokens of all segments, and computes their draft tokens.
    pub(super) fn draft(
        &mut self,
        target: &Model,
        segments: &[DraftSegment],
        sampler: &Sampler,
        padding: Padding,
    ) -> mlx::Result<DraftRounds> {
        match self {
            Self::Model(model) => draft(model, segments, sampler, padding),
            Self::Head(head) => head.draft(target, segments, sampler, padding),
        }
    }

    /// Drops the KV cache and allocates another.
    pub(super) fn reset(&mut self, blocks: usize) -> mlx::Result<()> {
        match self {
            Self::Model(model) => model.reset(blocks),
            Self::Head(head) => head.reset(blocks),
        }
    }

    /// Keeps the target's hidden states of a step.
    pub(super) fn keep(&mut self, kept: KeptStates) {
        match self {
            Self::Model(_) => {}
            Self::Head(head) => head.keep(kept),
        }
    }

    /// Copies blocks, as the target's of the same numbers are. A draft model computes parts of blocks again.
    pub(super) fn copy_blocks(&mut self, copies: &[(BlockId, BlockId)]) -> mlx::Result<()> {
        match self {
            Self::Model(_) => Ok(()),
            Self::Head(head) => head.copy_blocks(copies),
        }
    }

    /// A sequence has ended.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        match self {
            Self::Model(_) => {}
            Self::Head(head) => head.remove(sequence),
        }
    }

    /// Its layers, shapes and caches.
    pub(super) fn network(&self) -> &Model {
        match self {
            Self::Model(model) => model.network(),
            Self::Head(head) => head.network(),
        }
    }

    /// Where the target's hidden states are read.
    pub(super) fn places(&self) -> &[HiddenPlace] {
        match self {
            Self::Model(_) => &[],
            Self::Head(head) => head.places(),
        }
    }
}
