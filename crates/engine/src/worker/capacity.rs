//! How many blocks of each layer group fit the memory, and how long a sequence they hold.

use omnibus_core::{self as core, Padding};
use omnibus_kv::CacheKind;
use omnibus_model::{Blueprint, KvCacheGroup, KvStorage, Model, UnquantizedPrefix};

use super::drafting::{Drafter, LoadedDrafter, full_attention_group};
use crate::device_memory::DeviceMemory;
use crate::error::StartError;
use crate::memory_plan::MemoryPlan;
use crate::settings::{LongContext, PrefixCache, Settings};
use crate::speculation::DraftSource;

/// Of the tokens that the KV cache holds, what smaller ones hold.
const SMALLER_SHARES: &[f64] = &[0.75, 0.5, 0.375, 0.25];

/// The KV cache's size.
pub(super) struct PoolSize {
    /// In the order of the blueprint's state groups.
    pub(super) blocks: Vec<usize>,
    /// Longest sequence, in tokens.
    pub(super) max_context: usize,
}

/// Memory of media: nothing for a model without encoders.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MediaMemory {
    /// Most bytes of features.
    pub(super) media_bytes: u64,
    /// Most bytes of intermediate results of encoders.
    pub(super) encoder_bytes: u64,
}

/// Blocks of each layer group, and how many tokens they hold.
pub(super) struct Capacity {
    pub(super) block_size: usize,
    /// How keys and values are stored.
    pub(super) storage: KvStorage,
    /// In the order of the blueprint's state groups.
    pub(super) blocks: Vec<usize>,
    /// Longest sequence, in tokens.
    pub(super) max_context: usize,
    /// How the memory is divided.
    pub(super) memory: MemoryPlan,
    /// Smaller sizes of the KV cache, the largest first, for when the planned one proves too large.
    pub(super) smaller: Vec<PoolSize>,
}

impl Capacity {
    /// Divides the KV cache's memory among the groups, so that all hold equally many tokens.
    /// A network that drafts has as many blocks as the group that holds whole sequences.
    pub(super) fn of(
        model: &Model,
        draft: Option<&LoadedDrafter>,
        media: MediaMemory,
        settings: &Settings,
    ) -> Result<Self, StartError> {
        let device = DeviceMemory::read(settings.memory_limit);
        let MediaMemory { media_bytes, encoder_bytes } = media;
        let before = MemoryPlan::before_kv(model, draft, settings, &device);
        let before = MemoryPlan { media_bytes, encoder_bytes, ..before };
        let capacity = Self::within(before, &device, (model, draft), settings)?;
        let limits = device.allocator_limits(&capacity.memory, settings.wired_limit);
        limits.apply().map_err(StartError::new)?;
        Ok(capacity)
    }

    /// As [`Self::of`], on this device. `memory`: what is planned beside the KV cache. Sets no limits.
    pub(super) fn within(
        mut memory: MemoryPlan,
        device: &DeviceMemory,
        (model, draft): (&Model, Option<&LoadedDrafter>),
        settings: &Settings,
    ) -> Result<Self, StartError> {
        check_context(model, settings)?;
        let context = settings.max_model_len.or(model.blueprint().context).unwrap_or(DEFAULT_CONTEXT);
        let storage = storage(model, settings, context)?;
        let groups = model.blueprint().kv_cache_groups(storage);
        let slots = SLOTS_PER_SEQUENCE.saturating_mul(settings.max_num_seqs);
        let slots = slots.saturating_add(draft_slots(settings)).min(SLOTS_MAX);
        let span = span_tokens(model.network(), context);
        let draft_groups = draft_groups(draft, storage, &groups)?;
        let mut sizing = Sizing {
            groups: &groups,
            draft_groups: &draft_groups,
            settings,
            context,
            span,
            slots,
            unquantized: usize::MAX,
        };
        let useful = sizing.bytes(settings.max_num_seqs.saturating_mul(context));
        let budget = match settings.kv_cache_memory {
            Some(bytes) => requested_bytes(bytes, &memory)?,
            None => device.default_kv_bytes(memory.left_bytes()).min(useful),
        };
        sizing.slots = sizing.slots_within(budget);
        sizing.unquantized = sizing.unquantized_within(budget);
        let fits = sizing.most_tokens(budget);
        let blocks: Vec<usize> = groups.iter().map(|group| sizing.blocks(group, fits)).collect();
        let whole_blocks = |tokens: usize| tokens / settings.block_size * settings.block_size;
        let longest = whole_blocks(fits);
        let needed = settings.block_size * 2;
        if longest < needed {
            sizing.unquantized = 0;
            let bytes = sizing.bytes(needed + settings.block_size);
            return Err(StartError::new(format!(
                "{budget} bytes for keys and values hold no sequence; --kv-cache-memory needs at least {bytes}"
            )));
        }
        if let Some(asked) = settings.max_model_len.filter(|asked| *asked > longest) {
            sizing.unquantized = 0;
            let bytes = sizing.bytes(asked + settings.block_size);
            return Err(StartError::new(format!(
                "--max-model-len {asked} does not fit; --kv-cache-memory needs at least {bytes} bytes for it"
            )));
        }
        (memory.kv_bytes, memory.draft_kv_bytes) = (sizing.bytes(fits), sizing.draft_bytes(fits));
        memory.kv_tokens = longest;
        memory.swap_bytes = settings.swap_space.unwrap_or_else(|| memory.default_swap_bytes(device));
        let smaller = sizing.smaller(longest, needed);
        Ok(Self {
            smaller,
            block_size: settings.block_size,
            storage,
            blocks,
            max_context: context.min(longest),
            memory,
        })
    }

    /// A network that drafts with its KV cache, for a loaded model.
    pub(super) fn drafter(&self, draft: LoadedDrafter, model: &Model) -> Result<Drafter, StartError> {
        let whole = full_attention_group(&model.blueprint().kv_cache_groups(self.storage));
        let blocks = whole.and_then(|group| self.blocks.get(group)).copied().unwrap_or(0);
        let sizes = (blocks, self.block_size);
        draft.with_cache(model.blueprint().vocab, sizes, self.storage).map_err(StartError::new)
    }

    /// Whether there is memory besides the pools that blocks can be copied to.
    fn offload(&self, settings: &Settings) -> core::Offload {
        let has_disk = settings.disk.as_ref().is_some_and(|disk| !disk.directory.as_os_str().is_empty());
        match has_disk || self.memory.swap_bytes > 0 {
            true => core::Offload::Available,
            false => core::Offload::Unavailable,
        }
    }

    /// The scheduler's settings.
    pub(super) fn scheduler_settings(&self, model: &Model, settings: &Settings) -> core::Settings {
        let groups = model.network().kv_cache_groups(self.storage);
        let shares = model.network().shares_prefixes();
        core::Settings {
            block_size: self.block_size,
            groups: groups
                .iter()
                .zip(&self.blocks)
                .map(|(group, blocks)| core::CacheGroup { spec: group.spec, blocks: *blocks as u32 })
                .collect(),
            max_sequences: settings.max_num_seqs,
            max_step_tokens: settings.step_tokens(),
            max_queue: settings.max_queue.max(1),
            max_offline_queue: settings.max_queue.max(1),
            max_context: self.max_context,
            max_span_tokens: span_tokens(model.network(), self.max_context),
            schedule: settings.schedule,
            tuning: core::Tuning { padding: padding(model), ..settings.tuning.clone() },
            prefix_cache: if shares { settings.prefix_cache } else { PrefixCache::Off },
            cache_events: match settings.kv_events {
                Some(_) => core::CacheEvents::Kept,
                None => core::CacheEvents::Ignored,
            },
            session_ttl: (settings.session_ttl_s * 1e6) as core::Tick,
            swap: core::SwapSettings { preemption: settings.preemption, offload: self.offload(settings) },
        }
    }
}

/// Most tokens of a picture, and of a prompt, that attend to each other in both directions, what is between them included:
/// one step computes all of them.
const PICTURE_SPAN_TOKENS: usize = 2048;
const PROMPT_SPAN_TOKENS: usize = 8192;

/// Most tokens that a model may have in one span. Zero for one that attends to earlier tokens only.
pub(super) fn span_tokens(blueprint: &Blueprint, context: usize) -> usize {
    blueprint.longest_span(PROMPT_SPAN_TOKENS, PICTURE_SPAN_TOKENS).min(context)
}

const DEFAULT_CONTEXT: usize = 1 << 20;

/// A running sequence has one slot for its states; as many more hold checkpoints.
const SLOTS_PER_SEQUENCE: usize = 2;
/// Draft tokens whose states have slots of their own, of each sequence, and sequences that have such slots.
const DRAFT_SLOTS: usize = 4;
const DRAFTING_SEQUENCES: usize = 16;
/// Slots are numbered in 32 bits.
const SLOTS_MAX: usize = 1 << 20;
/// The share of the memory that states take at most, beside keys and values.
const STATES_SHARE: u64 = 2;
/// The share of the memory that unquantized prefixes take at most, unless one alone takes more.
const UNQUANTIZED_SHARE: u64 = 2;

/// Slots for the states behind draft tokens.
fn draft_slots(settings: &Settings) -> usize {
    match settings.speculation.source {
        DraftSource::Off => 0,
        _ => {
            DRAFT_SLOTS.min(settings.speculation.num_draft_tokens)
                * DRAFTING_SEQUENCES.min(settings.max_num_seqs)
        }
    }
}

/// How passes of a model are padded.
pub(super) fn padding(model: &Model) -> Padding {
    if model.kernels().on_cpu() { Padding::None } else { Padding::Buckets }
}

/// Block counts of the groups, given limits.
struct Sizing<'a> {
    groups: &'a [KvCacheGroup],
    /// Of the network that drafts.
    draft_groups: &'a [KvCacheGroup],
    settings: &'a Settings,
    context: usize,
    /// Most tokens of a span.
    span: usize,
    /// Slots of a state group.
    slots: usize,
    /// Most blocks of unquantized prefixes, unless one needs more.
    unquantized: usize,
}

/// Floats, quantized, or quantized with an unquantized prefix.
fn storage(model: &Model, settings: &Settings, context: usize) -> Result<KvStorage, StartError> {
    let float = model.kv_float();
    let Some(bits) = settings.kv_bits else { return Ok(float.into()) };
    let format = model.network().quantized_kv_format(bits, settings.kv_group_size);
    let format = format.map_err(StartError::new)?;
    Ok(match settings.quantized_kv_start {
        0 => format.into(),
        start if start >= context => float.into(),
        tokens => KvStorage { format, unquantized_prefix: Some(UnquantizedPrefix { tokens, float }) },
    })
}

impl Sizing<'_> {
    /// The most tokens, in all sequences together, that fit.
    fn most_tokens(&self, budget: u64) -> usize {
        let (mut fits, mut too_many) =
            (0, self.settings.max_num_seqs.saturating_mul(self.context).saturating_add(1));
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if self.bytes(middle) <= budget { fits = middle } else { too_many = middle }
        }
        fits
    }

    /// Smaller sizes than that for `longest` tokens, of `needed` at least, the largest first.
    fn smaller(&self, longest: usize, needed: usize) -> Vec<PoolSize> {
        let size = self.settings.block_size;
        let tokens = SMALLER_SHARES.iter().map(|share| (longest as f64 * share) as usize / size * size);
        let pool = |tokens: usize| PoolSize {
            blocks: self.groups.iter().map(|group| self.blocks(group, tokens)).collect(),
            max_context: self.context.min(tokens),
        };
        tokens.filter(|tokens| *tokens >= needed).map(pool).collect()
    }

    /// Blocks of a group when all sequences together have `tokens` tokens.
    fn blocks(&self, group: &KvCacheGroup, tokens: usize) -> usize {
        let size = self.settings.block_size;
        let all = tokens.div_ceil(size);
        match group.spec.kind {
            CacheKind::Full | CacheKind::Latent => all,
            CacheKind::SlidingWindow { tokens: window, .. } => {
                // A window's blocks, the chunk being computed, a partial block at either end, and the sinks; twice, so
                // that cached blocks of earlier windows can be found.
                let chunk = self.settings.step_tokens().max(self.span);
                let reach = window.saturating_add(chunk).min(self.context);
                let one = reach.div_ceil(size) + 2 + group.spec.kind.sink_blocks(size);
                all.min(2 * self.settings.max_num_seqs * one).max(one)
            }
            CacheKind::UnquantizedPrefix { tokens } => {
                all.min(self.unquantized).max(tokens.min(self.context).div_ceil(size))
            }
            CacheKind::State => self.slots,
        }
    }

    /// How many blocks of unquantized prefixes fit the budget beside the longest requested sequence.
    fn unquantized_within(&self, budget: u64) -> usize {
        let unquantized = || {
            self.groups.iter().filter(|group| matches!(group.spec.kind, CacheKind::UnquantizedPrefix { .. }))
        };
        let block: u64 = unquantized().map(|group| group.spec.block_bytes(self.settings.block_size)).sum();
        let least = Sizing { unquantized: 0, ..*self };
        let asked = self.settings.max_model_len.map_or(0, |asked| asked + self.settings.block_size);
        let one: usize = unquantized().map(|group| least.blocks(group, asked)).max().unwrap_or(0);
        let beside = budget.saturating_sub(least.bytes(asked)).saturating_add(one as u64 * block);
        (budget / UNQUANTIZED_SHARE).min(beside).checked_div(block).map_or(0, |fits| fits as usize)
    }

    /// How many slots fit the budget; at least one, so that the error can name the missing bytes.
    fn slots_within(&self, budget: u64) -> usize {
        let bytes = |state: bool| {
            let groups = self.groups.iter().filter(|group| (group.spec.kind == CacheKind::State) == state);
            groups.map(|group| group.spec.block_bytes(self.settings.block_size)).sum::<u64>()
        };
        let (slot, token_block) = (bytes(true), bytes(false));
        let share = if token_block > 0 { budget / STATES_SHARE } else { budget };
        match share.checked_div(slot) {
            // One of them is the scratch slot.
            Some(fits) => {
                self.slots.min(usize::try_from(fits).unwrap_or(usize::MAX).saturating_sub(1)).max(1)
            }
            None => self.slots,
        }
    }

    fn bytes(&self, tokens: usize) -> u64 {
        let bytes = self.groups.iter().map(|group| {
            let block = group.spec.block_bytes(self.settings.block_size);
            (self.blocks(group, tokens) as u64 + 1).saturating_mul(block)
        });
        bytes.fold(self.draft_bytes(tokens), u64::saturating_add)
    }

    /// Bytes of the network that drafts.
    fn draft_bytes(&self, tokens: usize) -> u64 {
        let drafts = self.draft_groups.iter().map(|group| {
            let block = group.spec.block_bytes(self.settings.block_size);
            (tokens.div_ceil(self.settings.block_size) as u64 + 1).saturating_mul(block)
        });
        drafts.fold(0, u64::saturating_add)
    }
}

/// Refuses longer sequences than the model was trained for, unless the settings allow them.
fn check_context(model: &Model, settings: &Settings) -> Result<(), StartError> {
    let (Some(asked), Some(trained)) = (settings.max_model_len, model.blueprint().context) else {
        return Ok(());
    };
    if asked <= trained || settings.long_context == LongContext::Allowed {
        return Ok(());
    }
    Err(StartError::new(format!(
        "--max-model-len {asked} is above the {trained} tokens that the model was trained for; \
         give at most that, or --allow-long-max-model-len as well"
    )))
}

/// The groups of a network that drafts, which needs a group of the target model's with whole sequences.
fn draft_groups(
    draft: Option<&LoadedDrafter>,
    storage: KvStorage,
    groups: &[KvCacheGroup],
) -> Result<Vec<KvCacheGroup>, StartError> {
    if draft.is_some() && full_attention_group(groups).is_none() {
        return Err(StartError::new(
            "this model has no layers that attend to all tokens; a draft model or head needs one",
        ));
    }
    Ok(draft.map(|draft| draft.groups(storage)).unwrap_or_default())
}

/// The requested size of the KV cache, if it fits beside the weights. The rest of the plan is an estimate, so it refuses
/// nothing.
fn requested_bytes(requested: u64, memory: &MemoryPlan) -> Result<u64, StartError> {
    match &memory.limit {
        Some(limit) if requested.saturating_add(memory.weights_bytes) > limit.bytes => {
            Err(StartError::new(format!(
                "--kv-cache-memory {requested} does not fit beside {} bytes of weights: {} is {} bytes",
                memory.weights_bytes, limit.source, limit.bytes
            )))
        }
        _ => Ok(requested),
    }
}
