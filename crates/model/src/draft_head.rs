//! Draft heads: networks of one layer that draft tokens from the hidden states of a target model. They read the target's table of
//! embeddings and its output matrix where they have none of their own.
//!
//! Row `i` of a pass has the token that follows position `i` and the hidden state of position `i`; its logits are of the token
//! behind that one. The next pass reads that token with what this one gave.

mod dflash;
mod eagle3;
pub(crate) mod mtp;

use mlx::Array;

use crate::batch::{Batch, HiddenPlace};
use crate::blueprint::{Blueprint, HeadStates};
use crate::decoder::{DraftPass, DraftPassInput, Model, PassShape, StepLaunches};
use crate::draft_states::DraftStates;
use crate::error::Error;
use crate::kv_cache::KvCache;
use crate::kv_format::KvStorage;
use crate::weights::Source;

/// A draft head with its weights. Stays on the thread that built it.
pub struct DraftHead {
    network: Model,
    places: Vec<HiddenPlace>,
    block: Option<DraftBlock>,
    /// For each token of the target, its row of the head's own logits, `[vocab]` i32; one row behind the last for tokens that it
    /// never drafts.
    own_rows: Option<Array>,
}

/// The block of a head that drafts several tokens in one pass: the newest token, then masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftBlock {
    /// Tokens, the newest included.
    pub size: usize,
    /// What stands for a token that is not known.
    pub mask_token: u32,
}

/// What a pass gives of the rows that the batch names.
pub struct DraftHeadOutput {
    /// Float32, `[n, vocab]`, of the target's tokens. The next pass may write to the same memory: what reads it is launched before.
    pub logits: Array,
    /// What the next pass reads, `[n, hidden]`.
    pub states: Array,
}

impl DraftHead {
    /// The head that a checkpoint has for predicting further tokens (MTP), among its weights or in `mtp.safetensors`. `None` if it
    /// has none, or none of a known form.
    ///
    /// Source: `DeepSeek-V3 Technical Report`, section 2.2; vLLM `model_executor/models/deepseek_mtp.py`, `qwen3_next_mtp.py`,
    /// `mimo_mtp.py`, `ernie_mtp.py`, `mimo_v2_mtp.py`, `longcat_flash_mtp.py`, `nemotron_h_mtp.py`.
    pub fn of_checkpoint(source: &Source, target: &Model) -> Result<Option<Self>, Error> {
        let config = source.config()?;
        let Some((blueprint, weights)) = mtp::found(source, target.blueprint())? else { return Ok(None) };
        let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
        let quantization = crate::quantization::Quantization::read(&config).map_err(in_config)?;
        let network = Model::build(blueprint, quantization, weights, target.kernels())?;
        network.use_kernels(target.kernel_choice());
        Ok(Some(Self { network, places: vec![HiddenPlace::FinalNorm], block: None, own_rows: None }))
    }

    /// An EAGLE-3 head for this target, of a checkpoint of its own, in the layout of SafeAILab and SpecForge or that of
    /// speculators.
    ///
    /// Source: `EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test` (arXiv 2503.01840);
    /// SafeAILab/EAGLE `eagle/model/cnets.py`; vLLM `model_executor/models/llama_eagle3.py`.
    pub fn eagle3(source: &Source, target: &Model) -> Result<Self, Error> {
        let eagle3::Checkpoint { blueprint, weights, places, own_rows } = eagle3::read(source, target)?;
        let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
        let quantization = crate::quantization::Quantization::read(&source.config()?).map_err(in_config)?;
        let network = Model::build(blueprint, quantization, weights, target.kernels())?;
        network.use_kernels(target.kernel_choice());
        Ok(Self { network, places, block: None, own_rows })
    }

    /// A DFlash head for this target, of a checkpoint of its own.
    ///
    /// Source: `DFlash: Block Diffusion for Flash Speculative Decoding` (arXiv 2602.06036); z-lab/dflash `dflash/model.py`.
    pub fn dflash(source: &Source, target: &Model) -> Result<Self, Error> {
        let dflash::Described { blueprint, places, block } = dflash::read(source, target.blueprint())?;
        let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
        let quantization = crate::quantization::Quantization::read(&source.config()?).map_err(in_config)?;
        let network = Model::build(blueprint, quantization, source.weights()?, target.kernels())?;
        network.use_kernels(target.kernel_choice());
        Ok(Self { network, places, block: Some(block), own_rows: None })
    }

    /// Whether a config is that of a DFlash head.
    pub fn is_dflash(source: &Source) -> Result<bool, Error> {
        Ok(dflash::is_dflash(&source.config()?))
    }

    /// The block that it drafts in one pass, if it does.
    pub fn block(&self) -> Option<DraftBlock> {
        self.block
    }

    /// Writes the keys and values of rows whose states are there, of a head with a block. `states`: the target's, `[T, width]`; tokens
    /// of the batch count for nothing.
    pub fn write_context(&self, states: &Array, batch: &Batch, cache: &mut KvCache) -> mlx::Result<()> {
        self.network.write_context(states, batch, cache)
    }

    /// Whether a config is that of an EAGLE-3 head.
    pub fn is_eagle3(source: &Source) -> Result<bool, Error> {
        Ok(eagle3::is_eagle3(&source.config()?))
    }

    /// Its own network: its caches and shapes.
    pub fn blueprint(&self) -> &Blueprint {
        self.network.blueprint()
    }

    /// Its own network.
    pub fn network(&self) -> &Model {
        &self.network
    }

    /// Where the target's hidden states are read. What passes read are those of all places, one beside the other.
    pub fn places(&self) -> &[HiddenPlace] {
        &self.places
    }

    /// Whether its layer is one of the target's kind, as those of MTP heads are.
    pub fn is_like_target(&self) -> bool {
        let states = self.blueprint().stage.draft_head().map(|input| input.states);
        states == Some(HeadStates::FinalNorm)
    }

    /// Compiles the kernels of these passes on all cores: how many. Nothing is computed. `storage`: of its keys and values.
    pub fn compile_ahead(
        &self,
        target: &Model,
        storage: KvStorage,
        block_size: usize,
        passes: &[PassShape],
    ) -> mlx::Result<usize> {
        if self.block.is_some() {
            return Ok(0);
        }
        let (own_rows, places) = (self.own_rows.as_ref(), self.places.len());
        self.network.compile_drafts_ahead(target, own_rows, places, (storage, block_size), passes)
    }

    /// Launches of a pass, for [`mlx::on_planned_gpu`]: nothing is computed, and `cache` is as before.
    pub fn pass_launches(
        &self,
        target: &Model,
        states: DraftStates<'_>,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<StepLaunches> {
        self.network.draft_launches(self.input(target, Some(states)), batch, cache)
    }

    /// Builds the graph of one pass. `None` if the batch names no rows for logits.
    ///
    /// `batch.tokens`: for each row the token that follows it; of a head with a block the block's own. `states`: of the rows; a head
    /// with a block reads none.
    pub fn forward(
        &self,
        target: &Model,
        states: Option<DraftStates<'_>>,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<Option<DraftHeadOutput>> {
        let pass = self.network.draft_pass(self.input(target, states), batch, cache)?;
        Ok(pass.map(|DraftPass { logits, states }| DraftHeadOutput { logits, states }))
    }

    fn input<'a>(&'a self, target: &'a Model, states: Option<DraftStates<'a>>) -> DraftPassInput<'a> {
        DraftPassInput { target, states, own_rows: self.own_rows.as_ref() }
    }
}
