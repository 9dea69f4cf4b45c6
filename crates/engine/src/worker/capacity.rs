//! How many blocks of each layer group fit the memory, and how long a sequence they hold.

use omnibus_core as core;
use omnibus_kv::{CacheKind, FloatType, KvCacheSpec, KvFormat as StoredFormat};
use omnibus_model::{GroupKind, KvCacheGroup, KvFormat, KvStorage, Model, UnquantizedPrefix};

use super::memory::MemoryPlan;
use crate::StartError;
use crate::settings::{PrefixCache, Settings};

/// On a CPU, the share of what is left that keys and values take when nobody says: others live there, too.
const CPU_SHARE: f64 = 0.25;
/// On a CPU, more than this is not taken unasked; a step of a small model never needs it.
const CPU_BYTES_MAX: u64 = 2 << 30;
/// What is taken where nobody knows how much there is.
const UNKNOWN_BYTES: u64 = 256 << 20;

/// Blocks of each layer group, and what they hold.
pub(super) struct Capacity {
    pub(super) block_size: usize,
    /// How keys and values are stored.
    pub(super) storage: KvStorage,
    /// In the order of the blueprint's state groups.
    pub(super) blocks: Vec<usize>,
    /// Longest sequence, in tokens.
    pub(super) max_context: usize,
    /// Where the memory goes.
    pub(super) memory: MemoryPlan,
}

impl Capacity {
    /// Divides the memory for keys and values among the groups, so that all hold equally many tokens.
    pub(super) fn of(model: &Model, settings: &Settings) -> Result<Self, StartError> {
        let context = settings.max_model_len.or(model.blueprint().context).unwrap_or(DEFAULT_CONTEXT);
        let storage = storage(model, settings, context)?;
        let groups = model.blueprint().kv_cache_groups(storage);
        let slots = SLOTS_PER_SEQUENCE.saturating_mul(settings.max_num_seqs).min(SLOTS_MAX);
        let mut plan = Plan { groups: &groups, settings, context, slots, openings: usize::MAX };
        let useful = plan.bytes(settings.max_num_seqs.saturating_mul(context));
        let mut memory = MemoryPlan::before_kv(model, settings);
        let budget = match settings.kv_cache_memory {
            Some(asked) => asked_bytes(asked, &memory)?,
            None => unasked_bytes(&memory).min(useful),
        };
        plan.slots = plan.slots_within(budget);
        plan.openings = plan.openings_within(budget);
        // The most tokens, in all sequences together, that fit.
        let (mut fits, mut too_many) = (0, settings.max_num_seqs.saturating_mul(context).saturating_add(1));
        while too_many - fits > settings.block_size {
            let middle = fits + (too_many - fits) / 2;
            if plan.bytes(middle) <= budget { fits = middle } else { too_many = middle }
        }
        let blocks: Vec<usize> = groups.iter().map(|group| plan.blocks(group, fits)).collect();
        let longest = fits / settings.block_size * settings.block_size;
        let needed = settings.block_size * 2;
        if longest < needed {
            plan.openings = 0;
            let bytes = plan.bytes(needed + settings.block_size);
            return Err(StartError::new(format!(
                "{budget} bytes for keys and values hold no sequence; --kv-cache-memory needs at least {bytes}"
            )));
        }
        if let Some(asked) = settings.max_model_len.filter(|asked| *asked > longest) {
            plan.openings = 0;
            let bytes = plan.bytes(asked + settings.block_size);
            return Err(StartError::new(format!(
                "--max-model-len {asked} does not fit; --kv-cache-memory needs at least {bytes} bytes for it"
            )));
        }
        (memory.kv_bytes, memory.kv_tokens) = (plan.bytes(fits), longest);
        memory.swap_bytes = settings.swap_space.unwrap_or_else(|| memory.unasked_swap_bytes());
        memory.apply().map_err(StartError::new)?;
        Ok(Self {
            block_size: settings.block_size,
            storage,
            blocks,
            max_context: context.min(longest),
            memory,
        })
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
        let groups = model.blueprint().kv_cache_groups(self.storage);
        let shares = model.blueprint().shares_prefixes();
        core::Settings {
            block_size: self.block_size,
            groups: groups
                .iter()
                .zip(&self.blocks)
                .map(|(group, blocks)| core::CacheGroup { spec: spec_of(group), blocks: *blocks as u32 })
                .collect(),
            max_sequences: settings.max_num_seqs,
            max_step_tokens: settings.max_num_batched_tokens,
            max_queue: settings.max_queue.max(1),
            max_context: self.max_context,
            schedule: settings.schedule,
            tuning: settings.tuning.clone(),
            prefix_cache: if shares { settings.prefix_cache } else { PrefixCache::Off },
            session_ttl: (settings.session_ttl_s * 1e6) as core::Tick,
            swap: core::SwapSettings { preemption: settings.preemption, offload: self.offload(settings) },
        }
    }
}

/// The cache spec of a model's layer group.
fn spec_of(group: &KvCacheGroup) -> KvCacheSpec {
    let kind = match group.kind {
        GroupKind::Full => CacheKind::Full,
        GroupKind::Window { tokens, sink_tokens } => CacheKind::SlidingWindow { tokens, sinks: sink_tokens },
        GroupKind::UnquantizedPrefix { tokens } => CacheKind::UnquantizedPrefix { tokens },
        GroupKind::State => return KvCacheSpec::state(group.elements_per_slot),
    };
    let format = match group.format {
        KvFormat::Float(mlx::Dtype::F16) => StoredFormat::Float(FloatType::F16),
        KvFormat::Float(mlx::Dtype::Bf16) => StoredFormat::Float(FloatType::Bf16),
        KvFormat::Float(_) => StoredFormat::Float(FloatType::F32),
        KvFormat::Packed { bits, group } => StoredFormat::Packed { bits, group_size: group },
    };
    KvCacheSpec { kind, format, elements: group.elements_per_token }
}

const DEFAULT_CONTEXT: usize = 1 << 20;

/// A running sequence has one slot for its states; as many more hold what others can start from.
const SLOTS_PER_SEQUENCE: usize = 2;
/// Slots are numbered in 32 bits.
const SLOTS_MAX: usize = 1 << 20;
/// The share of the memory that states take at most, where there are keys and values, too.
const STATES_SHARE: u64 = 2;
/// The share of the memory that what openings see takes at most, unless one alone takes more.
const OPENINGS_SHARE: u64 = 2;

struct Plan<'a> {
    groups: &'a [KvCacheGroup],
    settings: &'a Settings,
    context: usize,
    /// Of a group of states.
    slots: usize,
    /// Blocks of a group of openings at most, where one needs no more.
    openings: usize,
}

/// Floats; codes; or codes, and floats for openings.
fn storage(model: &Model, settings: &Settings, context: usize) -> Result<KvStorage, StartError> {
    let floats = KvFormat::Float(model.dtype());
    let Some(bits) = settings.kv_bits else { return Ok(floats.into()) };
    let format = KvFormat::packed(model.blueprint(), bits, settings.kv_group_size);
    let format = format.map_err(StartError::new)?;
    Ok(match settings.quantized_kv_start {
        0 => format.into(),
        start if start >= context => floats.into(),
        tokens => {
            KvStorage { format, unquantized_prefix: Some(UnquantizedPrefix { tokens, format: floats }) }
        }
    })
}

impl Plan<'_> {
    /// Blocks of a group when all sequences together have `tokens` tokens.
    fn blocks(&self, group: &KvCacheGroup, tokens: usize) -> usize {
        let size = self.settings.block_size;
        let all = tokens.div_ceil(size);
        match group.kind {
            GroupKind::Full => all,
            GroupKind::Window { tokens: window, sink_tokens: keep } => {
                // A window's blocks, the chunk being computed, a block cut at either end, and what stays; twice,
                // so that windows that have passed can be found again.
                let reach = window.saturating_add(self.settings.max_num_batched_tokens).min(self.context);
                let one = reach.div_ceil(size) + 2 + keep.div_ceil(size);
                all.min(2 * self.settings.max_num_seqs * one).max(one)
            }
            GroupKind::UnquantizedPrefix { tokens } => {
                all.min(self.openings).max(tokens.min(self.context).div_ceil(size))
            }
            GroupKind::State => self.slots,
        }
    }

    /// How many blocks of openings a budget has room for, beside the longest sequence that was asked for.
    fn openings_within(&self, budget: u64) -> usize {
        let openings =
            || self.groups.iter().filter(|group| matches!(group.kind, GroupKind::UnquantizedPrefix { .. }));
        let block: u64 = openings().map(|group| group.block_bytes(self.settings.block_size)).sum();
        let least = Plan { openings: 0, ..*self };
        let asked = self.settings.max_model_len.map_or(0, |asked| asked + self.settings.block_size);
        let one: usize = openings().map(|group| least.blocks(group, asked)).max().unwrap_or(0);
        let beside = budget.saturating_sub(least.bytes(asked)).saturating_add(one as u64 * block);
        (budget / OPENINGS_SHARE).min(beside).checked_div(block).map_or(0, |fits| fits as usize)
    }

    /// How many slots a budget has room for; at least one, so that what is missing can be said.
    fn slots_within(&self, budget: u64) -> usize {
        let bytes = |state: bool| {
            let groups = self.groups.iter().filter(|group| (group.kind == GroupKind::State) == state);
            groups.map(|group| group.block_bytes(self.settings.block_size)).sum::<u64>()
        };
        let (slot, token_block) = (bytes(true), bytes(false));
        let share = if token_block > 0 { budget / STATES_SHARE } else { budget };
        match share.checked_div(slot) {
            // One more is the scratch slot.
            Some(fits) => {
                self.slots.min(usize::try_from(fits).unwrap_or(usize::MAX).saturating_sub(1)).max(1)
            }
            None => self.slots,
        }
    }

    fn bytes(&self, tokens: usize) -> u64 {
        let bytes = self.groups.iter().map(|group| {
            let block = group.block_bytes(self.settings.block_size);
            (self.blocks(group, tokens) as u64 + 1).saturating_mul(block)
        });
        bytes.fold(0, u64::saturating_add)
    }
}

/// What keys and values take when nobody says.
fn unasked_bytes(memory: &MemoryPlan) -> u64 {
    match (memory.left_bytes(), mlx::device::default()) {
        (Some(left), Ok(mlx::device::Device::Gpu)) => left,
        (Some(left), _) => ((left as f64 * CPU_SHARE) as u64).min(CPU_BYTES_MAX),
        (None, _) => UNKNOWN_BYTES,
    }
}

/// What was asked for, if it fits beside the weights. The rest of the plan is an estimate, and refuses nothing.
fn asked_bytes(asked: u64, memory: &MemoryPlan) -> Result<u64, StartError> {
    match &memory.limit {
        Some(limit) if asked.saturating_add(memory.weights_bytes) > limit.bytes => {
            Err(StartError::new(format!(
                "--kv-cache-memory {asked} does not fit beside {} bytes of weights: {} is {} bytes",
                memory.weights_bytes, limit.source, limit.bytes
            )))
        }
        _ => Ok(asked),
    }
}
