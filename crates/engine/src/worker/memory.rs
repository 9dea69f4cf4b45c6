//! The memory plan of a model, made before the KV cache is allocated.

use mlx::device::Backend;
use omnibus_model::{Model, Source};

use super::capacity::span_tokens;
use super::choose_device;
use super::drafting::LoadedDrafter;
use super::ranks::weight_devices;
use crate::buffer_count::{BufferBound, BufferStats, MlxBuffers};
use crate::device_memory::DeviceMemory;
use crate::error::StartError;
use crate::memory_plan::{MemoryLimit, MemoryPlan, gigabytes};
use crate::settings::Settings;

/// Share of the free host memory for swapped blocks by default.
const SWAP_SHARE: f64 = 0.1;
/// Upper bound of the default swap space.
const SWAP_BYTES_MAX: u64 = 4 << 30;

/// How much memory all models together may use on the device that the settings choose, without what is left free on purpose.
/// `None` where it is unknown. Asks MLX.
pub fn memory_for_models(settings: &Settings) -> Result<Option<MemoryLimit>, StartError> {
    choose_device(settings.device)?;
    let device = DeviceMemory::read(settings.memory_limit);
    let usable = |limit: MemoryLimit| {
        let bytes = limit.bytes.saturating_sub(device.headroom_bytes(limit.bytes));
        MemoryLimit { bytes, ..limit }
    };
    Ok(device.limit().map(usable))
}

/// Frees what the allocator keeps and has wired, for a process whose loop has ended.
pub(crate) fn release_memory() {
    mlx::memory::clear_cache();
    if mlx::device::backend() == Backend::Metal
        && let Err(error) = mlx::memory::set_wired_limit(0)
    {
        tracing::debug!(%error, "the system frees the wired memory with the process");
    }
}

/// What MLX's allocator keeps of freed buffers while memory is short.
const SHORT_REUSE_BYTES: usize = 32 << 20;

/// The buffers that MLX's allocator keeps: their bytes, which memory pressure lowers, and on Metal their number.
#[derive(Debug, Default)]
pub(super) struct BufferCache {
    /// The limit without pressure, while there is some.
    usual_bytes: Option<usize>,
    bound: BufferBound,
}

impl BufferCache {
    /// Gives freed buffers back to the system, and keeps few from now on.
    pub(super) fn shrink(&mut self) {
        if self.usual_bytes.is_none() {
            self.usual_bytes = set_cache_limit(SHORT_REUSE_BYTES);
        }
        mlx::memory::clear_cache();
        mlx::memory::return_freed();
    }

    /// Gives freed buffers back to the system where Metal has too many.
    pub(super) fn hold_count(&mut self) {
        self.bound.hold(&mut MlxBuffers);
    }

    /// How many there are, as of the last [`Self::hold_count`].
    pub(super) fn count(&self) -> BufferStats {
        self.bound.stats()
    }

    /// Keeps as many as without pressure.
    pub(super) fn restore(&mut self) {
        if let Some(bytes) = self.usual_bytes.take() {
            set_cache_limit(bytes);
        }
    }
}

/// Returns the limit before. A refusal leaves it.
fn set_cache_limit(bytes: usize) -> Option<usize> {
    mlx::memory::set_cache_limit(bytes)
        .inspect_err(|error| tracing::warn!(%error, "the buffer cache keeps its limit"))
        .ok()
}

impl MemoryPlan {
    /// Refuses weights that do not fit into memory beside what is loaded, before they are: the model's, and those of what drafts
    /// for it.
    pub(super) fn check_weights(
        source: &Source,
        settings: &Settings,
        device: &DeviceMemory,
    ) -> Result<(), StartError> {
        let Some(limit) = device.limit() else { return Ok(()) };
        let loaded = mlx::memory::active_memory() as u64;
        let drafting = settings.speculation.weight_bytes(source)?;
        let own = source.resident_bytes(settings.expert_memory).map_err(StartError::new)?;
        let own = own.div_ceil(weight_devices(settings));
        let weights = own.saturating_add(drafting).saturating_add(loaded);
        if weights <= limit.bytes {
            return Ok(());
        }
        let of_these = match drafting {
            0 => String::new(),
            bytes => format!(", {} of them to draft (--draft)", gigabytes(bytes)),
        };
        Err(StartError::new(format!(
            "the weights take {}{of_these}, and {} is {}: choose a smaller model, or one with fewer bits",
            gigabytes(weights),
            limit.source,
            gigabytes(limit.bytes),
        )))
    }

    /// The plan of a loaded model and what drafts for it, without their KV caches.
    pub(super) fn before_kv(
        model: &Model,
        draft: Option<&LoadedDrafter>,
        settings: &Settings,
        device: &DeviceMemory,
    ) -> Self {
        let limit = device.limit();
        let headroom = limit.as_ref().map_or(0, |limit| device.headroom_bytes(limit.bytes));
        let context = settings.max_model_len.or(model.blueprint().context).unwrap_or(usize::MAX);
        // One span may exceed a step.
        let rows = settings.step_tokens().saturating_add(span_tokens(model.blueprint(), context));
        let sampled = settings.max_num_seqs.min(settings.step_tokens());
        let scratch = model.blueprint().scratch_bytes(rows, sampled, model.dtype().size_of());
        let scratch =
            scratch.saturating_add(draft.map_or(0, |draft| draft.states_bytes(model, rows, sampled)));
        // Their buffers are not MLX's.
        let experts = model.expert_memory().map_or(0, mlx::cpu::ExpertMemory::planned_bytes);
        Self {
            limit,
            weights_bytes: (mlx::memory::active_memory() as u64).saturating_add(experts),
            expert_bytes: experts,
            adapter_bytes: settings
                .adapter_memory
                .map_or(0, |most| most.saturating_sub(model.adapter_bytes())),
            kv_bytes: 0,
            kv_tokens: 0,
            draft_weights_bytes: draft.map_or(0, LoadedDrafter::weights_bytes),
            draft_kv_bytes: 0,
            scratch_bytes: device.scratch_bytes(scratch),
            media_bytes: 0,
            encoder_bytes: 0,
            headroom_bytes: headroom,
            swap_bytes: 0,
        }
    }

    /// The default swap space, after everything else is planned. It is small where the device's memory is the host's: more
    /// KV cache would be the better use.
    pub(super) fn default_swap_bytes(&self, device: &DeviceMemory) -> u64 {
        let free = device.swap_bytes(self.left_bytes());
        ((free.unwrap_or(0) as f64 * SWAP_SHARE) as u64).min(SWAP_BYTES_MAX)
    }
}
