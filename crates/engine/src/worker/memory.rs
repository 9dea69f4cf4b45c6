//! Where a model's memory goes, decided before keys and values take any.

use mlx::device::{Backend, Device};
use omnibus_model::{Model, Source};
use serde::{Deserialize, Serialize};

use crate::StartError;
use crate::machine::{MemoryLimit, host_free_bytes, memory_limit};
use crate::settings::Settings;

/// Of the limit, what is left to everything that is not counted: code, buffers of the driver, fragmentation.
const HEADROOM_SHARE: f64 = 0.05;
/// But not more than this.
const HEADROOM_BYTES_MAX: u64 = 2 << 30;
/// The share of what is left of the host's memory that preempted sequences may take when nobody says.
const SWAP_SHARE: f64 = 0.1;
/// But not more than this.
const SWAP_BYTES_MAX: u64 = 4 << 30;
/// MLX keeps at least so much for reuse.
const REUSE_BYTES_MIN: u64 = 256 << 20;

/// Where a model's memory goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// What the machine gives; `None` where nobody knows.
    pub limit: Option<MemoryLimit>,
    /// Bytes of the weights.
    pub weights_bytes: u64,
    /// Bytes of the blocks of keys and values, and of recurrent states.
    pub kv_bytes: u64,
    /// Tokens that those hold.
    pub kv_tokens: usize,
    /// Bytes of intermediate results of the largest steps.
    pub scratch_bytes: u64,
    /// Bytes left free on purpose.
    pub headroom_bytes: u64,
    /// Bytes of the host's memory for blocks of sequences that are preempted. They are taken when they are needed.
    pub swap_bytes: u64,
}

impl MemoryPlan {
    /// The most that arrays are expected to take.
    pub fn expected_peak_bytes(&self) -> u64 {
        self.weights_bytes + self.kv_bytes + self.scratch_bytes
    }

    /// Refuses, before anything is loaded, weights that could not even be in memory alone.
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

    /// The plan of a model that is in memory, before it has keys and values.
    pub(super) fn before_kv(model: &Model, settings: &Settings) -> Self {
        let limit = memory_limit();
        let headroom = limit.as_ref().map_or(0, |limit| (limit.bytes as f64 * HEADROOM_SHARE) as u64);
        let rows = settings.max_num_batched_tokens;
        let sampled = settings.max_num_seqs.min(rows);
        Self {
            limit,
            weights_bytes: mlx::memory::active_memory() as u64,
            kv_bytes: 0,
            kv_tokens: 0,
            scratch_bytes: model.blueprint().scratch_bytes(rows, sampled, model.dtype().size_of()),
            headroom_bytes: headroom.min(HEADROOM_BYTES_MAX),
            swap_bytes: 0,
        }
    }

    /// What is left for keys and values.
    pub(super) fn left_bytes(&self) -> Option<u64> {
        let taken = self.expected_peak_bytes() + self.headroom_bytes;
        self.limit.as_ref().map(|limit| limit.bytes.saturating_sub(taken))
    }

    /// What preempted sequences may take of the host's memory when nobody says, once everything else is planned. Where
    /// the device's memory is the host's, that is little: it had better be used for keys and values.
    pub(super) fn unasked_swap_bytes(&self) -> u64 {
        let free = match (mlx::device::default(), mlx::device::backend()) {
            (Ok(Device::Gpu), Backend::Cuda) => host_free_bytes(),
            _ => self.left_bytes(),
        };
        ((free.unwrap_or(0) as f64 * SWAP_SHARE) as u64).min(SWAP_BYTES_MAX)
    }

    /// Tells MLX what to keep: resident what the system allows, for reuse what steps need again and again.
    pub(super) fn apply(&self) -> mlx::Result<()> {
        if mlx::device::default()? != Device::Gpu {
            return Ok(());
        }
        mlx::memory::set_cache_limit((2 * self.scratch_bytes).max(REUSE_BYTES_MIN) as usize)?;
        let Some(limit) = &self.limit else { return Ok(()) };
        mlx::memory::set_memory_limit(limit.bytes as usize)?;
        if mlx::device::backend() == Backend::Metal {
            let resident = limit.bytes.min(self.expected_peak_bytes() + self.headroom_bytes);
            // Systems before macOS 15 have no such limit and say so.
            if let Err(error) = mlx::memory::set_wired_limit(resident as usize) {
                tracing::warn!(%error, "the model may be moved out of memory while it is idle");
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of weights, {} of keys and values for {} tokens, up to {} while computing",
            gigabytes(self.weights_bytes),
            gigabytes(self.kv_bytes),
            self.kv_tokens,
            gigabytes(self.scratch_bytes),
        )?;
        if self.swap_bytes > 0 {
            write!(f, ", up to {} of the host's for requests that give way", gigabytes(self.swap_bytes))?;
        }
        match &self.limit {
            Some(limit) => write!(f, "; {} is {}", limit.source, gigabytes(limit.bytes)),
            None => Ok(()),
        }
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}
