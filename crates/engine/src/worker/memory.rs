//! The memory plan of a model, made before the KV cache is allocated.

use mlx::device::{Backend, Device};
use omnibus_model::{Model, Source};

use crate::machine::{host_free_bytes, memory_limit};
use crate::memory_plan::gigabytes;
use crate::settings::Settings;
use crate::{MemoryPlan, StartError};

/// Share of the limit for everything that is not counted: code, driver buffers, fragmentation.
const HEADROOM_SHARE: f64 = 0.05;
/// Upper bound of the headroom on a CPU.
const HEADROOM_BYTES_MAX: u64 = 2 << 30;
/// The same share on a GPU, without a bound: the libraries' workspaces and compiled kernels are there, too, and what does
/// not fit fails instead of being paged out.
const GPU_HEADROOM_SHARE: f64 = 0.08;
/// Share of the free host memory for swapped blocks by default.
const SWAP_SHARE: f64 = 0.1;
/// Upper bound of the default swap space.
const SWAP_BYTES_MAX: u64 = 4 << 30;
/// Lower bound of MLX's buffer cache.
const REUSE_BYTES_MIN: u64 = 256 << 20;

impl MemoryPlan {
    /// Refuses weights that do not fit into memory, before anything is loaded.
    pub(super) fn check_weights(source: &Source) -> Result<(), StartError> {
        let weights = source.weight_bytes().map_err(StartError::new)?;
        match memory_limit() {
            Some(limit) if weights > limit.bytes => Err(StartError::new(format!(
                "the weights take {}, and {} is {}: choose a smaller model, or one with fewer bits",
                gigabytes(weights),
                limit.source,
                gigabytes(limit.bytes),
            ))),
            _ => Ok(()),
        }
    }

    /// The plan of a loaded model, without its KV cache.
    pub(super) fn before_kv(model: &Model, settings: &Settings) -> Self {
        let limit = memory_limit();
        let headroom = limit.as_ref().map_or(0, |limit| headroom_bytes(limit.bytes));
        let rows = settings.max_num_batched_tokens;
        let sampled = settings.max_num_seqs.min(rows);
        Self {
            limit,
            weights_bytes: mlx::memory::active_memory() as u64,
            kv_bytes: 0,
            kv_tokens: 0,
            scratch_bytes: model.blueprint().scratch_bytes(rows, sampled, model.dtype().size_of()),
            headroom_bytes: headroom,
            swap_bytes: 0,
        }
    }

    /// Bytes left for the KV cache.
    pub(super) fn left_bytes(&self) -> Option<u64> {
        let taken = self.expected_peak_bytes() + self.headroom_bytes;
        self.limit.as_ref().map(|limit| limit.bytes.saturating_sub(taken))
    }

    /// The default swap space, after everything else is planned. It is small where the device's memory is the host's: more
    /// KV cache would be the better use.
    pub(super) fn default_swap_bytes(&self) -> u64 {
        let free = match (mlx::device::default(), mlx::device::backend()) {
            (Ok(Device::Gpu), Backend::Cuda) => host_free_bytes(),
            _ => self.left_bytes(),
        };
        ((free.unwrap_or(0) as f64 * SWAP_SHARE) as u64).min(SWAP_BYTES_MAX)
    }

    /// Sets MLX's limits: the buffer cache for what steps allocate repeatedly, wired memory for what the system allows.
    pub(super) fn apply(&self) -> mlx::Result<()> {
        if mlx::device::default()? != Device::Gpu {
            return Ok(());
        }
        mlx::memory::set_cache_limit((2 * self.scratch_bytes).max(REUSE_BYTES_MIN) as usize)?;
        let Some(limit) = &self.limit else { return Ok(()) };
        mlx::memory::set_memory_limit(limit.bytes as usize)?;
        if mlx::device::backend() == Backend::Metal {
            let resident = limit.bytes.min(self.expected_peak_bytes() + self.headroom_bytes);
            // Systems before macOS 15 have no such limit and return an error.
            if let Err(error) = mlx::memory::set_wired_limit(resident as usize) {
                tracing::warn!(%error, "the system may page the model out while it is idle");
            }
        }
        Ok(())
    }
}

fn headroom_bytes(limit: u64) -> u64 {
    match mlx::device::default() {
        Ok(Device::Gpu) => (limit as f64 * GPU_HEADROOM_SHARE) as u64,
        _ => ((limit as f64 * HEADROOM_SHARE) as u64).min(HEADROOM_BYTES_MAX),
    }
}
