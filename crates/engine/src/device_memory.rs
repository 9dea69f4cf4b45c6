//! A device's memory: what there is, how much a model may use, and what MLX's allocator is limited to.
//!
//! Invariant: [`DeviceMemory::read`] alone asks MLX and the system, [`AllocatorLimits::apply`] alone sets limits. All
//! between them is arithmetic, so that tests run it for devices that are not there.

pub(crate) mod mac;

use mlx::device::{Backend, Device, Info};

use crate::available_memory::available_bytes;
use crate::memory_plan::{MemoryLimit, MemoryPlan};
use crate::settings::WiredLimit;

/// Share of the limit for everything that is not counted: code, driver buffers, fragmentation.
const HEADROOM_SHARE: f64 = 0.05;
/// Upper bound of the headroom on a CPU.
const HEADROOM_BYTES_MAX: u64 = 2 << 30;
/// Share of the limit for what is not counted, on a GPU. It has no bound: workspaces of libraries and compiled kernels
/// are in it, and what does not fit fails instead of being paged out.
const GPU_HEADROOM_SHARE: f64 = 0.08;
/// How many times more intermediate results CUDA has than a CPU. Measured on an H200 with steps of 8,192 rows: 3 to 5.
const CUDA_SCRATCH: u64 = 3;
/// Largest share of a limit that is kept for that.
const CUDA_SCRATCH_SHARE: f64 = 0.1;
/// Lower bound of MLX's buffer cache.
const REUSE_BYTES_MIN: u64 = 256 << 20;
/// On a CPU, the share of the free memory that the KV cache takes by default: other programs use it, too.
const CPU_SHARE: f64 = 0.25;
/// On a CPU, the largest default size of the KV cache.
const CPU_BYTES_MAX: u64 = 2 << 30;
/// The default size of the KV cache where the free memory is unknown.
const UNKNOWN_BYTES: u64 = 256 << 20;
/// On unified memory, the least that other programs and the system are left by default, and the least share of it.
const SYSTEM_BYTES_MIN: u64 = 8 << 30;
const SYSTEM_SHARE: f64 = 0.25;
/// The largest share that they are left: a machine of 8 GiB still serves a small model.
const SYSTEM_SHARE_MAX: f64 = 0.5;
/// The first macOS that keeps a process's GPU memory resident on request.
const WIRED_SINCE_MACOS: u32 = 15;

/// The memory of the device that models run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceMemory {
    /// `Cpu` also where models run on the CPU beside a GPU.
    pub(crate) backend: Backend,
    /// Bytes of a GPU; on a Mac the machine's.
    pub(crate) total_bytes: Option<u64>,
    /// Bytes of a GPU that other processes leave: free ones, and what MLX holds in this one. CUDA only.
    pub(crate) free_bytes: Option<u64>,
    /// Bytes that Metal recommends to use at most. More fails or is paged.
    pub(crate) working_set_bytes: Option<u64>,
    /// Free bytes of the host; on a CPU with what this process uses already.
    pub(crate) host_bytes: Option<u64>,
    /// The control group's limit.
    pub(crate) group_bytes: Option<u64>,
    /// MLX's own limit, for systems that report nothing.
    pub(crate) allocator_bytes: u64,
    /// The setting `--memory-limit`.
    pub(crate) requested_bytes: Option<u64>,
    /// The version of macOS; `None` elsewhere.
    pub(crate) macos_major: Option<u32>,
}

/// What MLX's allocator is limited to, in bytes. `None` keeps MLX's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AllocatorLimits {
    /// Freed buffers that are kept for reuse.
    pub(crate) cache_bytes: Option<u64>,
    /// Above this, evaluation waits for running work, and kept buffers are freed.
    pub(crate) memory_bytes: Option<u64>,
    /// What stays resident while the model is idle.
    pub(crate) wired_bytes: Option<u64>,
}

impl DeviceMemory {
    /// The default device of the calling thread. `requested_bytes` is the setting `--memory-limit`.
    pub(crate) fn read(requested_bytes: Option<u64>) -> Self {
        let on_gpu = matches!(mlx::device::default(), Ok(Device::Gpu));
        let backend = if on_gpu { mlx::device::backend() } else { Backend::Cpu };
        let info = if on_gpu { mlx::device::info().unwrap_or_default() } else { Info::default() };
        let held = (mlx::memory::active_memory() + mlx::memory::cache_memory()) as u64;
        let ours = if on_gpu { 0 } else { mlx::memory::active_memory() as u64 };
        Self {
            backend,
            total_bytes: info.memory_size.map(|bytes| bytes as u64),
            free_bytes: info.free_memory.map(|bytes| bytes as u64 + held),
            working_set_bytes: info.max_recommended_working_set_size.map(|bytes| bytes as u64),
            host_bytes: available_bytes().filter(|_| cfg!(target_os = "linux")).map(|bytes| bytes + ours),
            group_bytes: control_group_bytes(),
            allocator_bytes: mlx::memory::memory_limit() as u64,
            requested_bytes,
            macos_major: macos_major(),
        }
    }

    /// How much a model may use: what the device has, or less where the user says so. Unified memory is other programs',
    /// too: they are left a part of it unless the user says how much a model may use.
    pub(crate) fn limit(&self) -> Option<MemoryLimit> {
        let requested = self.requested_bytes.map(|bytes| limit(bytes, "--memory-limit"));
        match (self.own_limit(), requested.or_else(|| self.shared_limit())) {
            (Some(own), Some(lower)) if own.bytes <= lower.bytes => Some(own),
            (own, lower) => lower.or(own),
        }
    }

    /// What is left of unified memory beside the part of the system and of other programs.
    fn shared_limit(&self) -> Option<MemoryLimit> {
        let total = self.total_bytes.filter(|_| self.backend == Backend::Metal)?;
        Some(limit(total - system_bytes(total), "the Mac's memory without the system's part"))
    }

    fn own_limit(&self) -> Option<MemoryLimit> {
        if self.backend != Backend::Cpu {
            return match (self.working_set_bytes, self.free_bytes, self.total_bytes) {
                (Some(bytes), _, _) => Some(limit(bytes, "the GPU's recommended working set")),
                (None, Some(bytes), _) => Some(limit(bytes, "the GPU's free memory")),
                (None, None, Some(bytes)) => Some(limit(bytes, "the GPU's memory")),
                (None, None, None) => None,
            };
        }
        Some(match (self.host_bytes, self.group_bytes) {
            (Some(free), Some(group)) if group < free => limit(group, "the control group's memory limit"),
            (Some(free), _) => limit(free, "available memory"),
            (None, Some(group)) => limit(group, "the control group's memory limit"),
            (None, None) => limit(self.allocator_bytes, "MLX's share of the machine's memory"),
        })
    }

    /// Bytes of a limit that are left free on purpose.
    pub(crate) fn headroom_bytes(&self, limit: u64) -> u64 {
        match self.backend {
            Backend::Cpu => ((limit as f64 * HEADROOM_SHARE) as u64).min(HEADROOM_BYTES_MAX),
            Backend::Metal | Backend::Cuda => (limit as f64 * GPU_HEADROOM_SHARE) as u64,
        }
    }

    /// Bytes for the intermediate results of steps, of which `least` let a step compute. On CUDA MLX launches further ahead
    /// than on a CPU, and prompts are slower where it cannot.
    pub(crate) fn scratch_bytes(&self, least: u64) -> u64 {
        let share = |limit: MemoryLimit| (limit.bytes as f64 * CUDA_SCRATCH_SHARE) as u64;
        match (self.backend, self.limit()) {
            (Backend::Cuda, Some(limit)) => (CUDA_SCRATCH * least).min(share(limit)).max(least),
            _ => least,
        }
    }

    /// The default size of the KV cache, if a plan without one leaves `left` bytes.
    pub(crate) fn default_kv_bytes(&self, left: Option<u64>) -> u64 {
        match (left, self.backend) {
            (Some(left), Backend::Metal | Backend::Cuda) => left,
            (Some(left), Backend::Cpu) => ((left as f64 * CPU_SHARE) as u64).min(CPU_BYTES_MAX),
            (None, _) => UNKNOWN_BYTES,
        }
    }

    /// Free bytes of host memory that blocks can be swapped to, if a plan leaves `left` bytes. The device's memory is the
    /// host's but on CUDA.
    pub(crate) fn swap_bytes(&self, left: Option<u64>) -> Option<u64> {
        match self.backend {
            Backend::Cuda => self.host_bytes,
            Backend::Metal | Backend::Cpu => left,
        }
    }

    /// What MLX's allocator is limited to under a plan. On a CPU its defaults stay.
    ///
    /// Metal wires at most the recommended working set, and MLX refuses more. Systems before macOS 15 have no such limit.
    ///
    /// On CUDA the headroom stays free: MLX launches ahead of what computes until it meets its limit, and where a prompt fills
    /// the device, each later step waits for the driver to find memory.
    pub(crate) fn allocator_limits(&self, plan: &MemoryPlan, wired: WiredLimit) -> AllocatorLimits {
        if self.backend == Backend::Cpu {
            return AllocatorLimits::default();
        }
        let limit_bytes = plan.limit.as_ref().map(|limit| limit.bytes);
        let kept_free = if self.backend == Backend::Cuda { plan.headroom_bytes } else { 0 };
        let has_wired_limit = self.backend == Backend::Metal
            && self.macos_major.is_some_and(|version| version >= WIRED_SINCE_MACOS);
        let wired = match wired {
            WiredLimit::Off => None,
            WiredLimit::Weights => Some(plan.weights_bytes),
            WiredLimit::Bytes(bytes) => Some(bytes),
        };
        let most = limit_bytes.into_iter().chain(self.working_set_bytes).min();
        AllocatorLimits {
            cache_bytes: Some((2 * plan.scratch_bytes).max(REUSE_BYTES_MIN)),
            memory_bytes: limit_bytes.map(|bytes| bytes.saturating_sub(kept_free)),
            wired_bytes: wired.filter(|_| has_wired_limit).zip(most).map(|(wired, most)| wired.min(most)),
        }
    }
}

impl AllocatorLimits {
    /// Sets them. A system that refuses the wired limit costs a warning.
    pub(crate) fn apply(&self) -> mlx::Result<()> {
        if let Some(bytes) = self.cache_bytes {
            mlx::memory::set_cache_limit(bytes as usize)?;
        }
        if let Some(bytes) = self.memory_bytes {
            mlx::memory::set_memory_limit(bytes as usize)?;
        }
        if let Some(bytes) = self.wired_bytes
            && let Err(error) = mlx::memory::set_wired_limit(bytes as usize)
        {
            tracing::warn!(%error, "the system may page the model out while it is idle");
        }
        Ok(())
    }
}

/// Bytes of unified memory that the system and other programs are left.
fn system_bytes(total: u64) -> u64 {
    let share = |share: f64| (total as f64 * share) as u64;
    SYSTEM_BYTES_MIN.max(share(SYSTEM_SHARE)).min(share(SYSTEM_SHARE_MAX))
}

fn limit(bytes: u64, source: &str) -> MemoryLimit {
    MemoryLimit { bytes, source: source.to_owned() }
}

/// The memory limit of this process's control group, if any.
fn control_group_bytes() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let text = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).ok()?;
    text.trim().parse().ok()
}

/// The first number of the version of macOS, where this is one.
fn macos_major() -> Option<u32> {
    let text = std::fs::read_to_string("/System/Library/CoreServices/SystemVersion.plist").ok()?;
    major_of(&text)
}

/// The first number of the product's version in a property list.
fn major_of(list: &str) -> Option<u32> {
    let (_, rest) = list.split_once("<key>ProductVersion</key>")?;
    let (_, version) = rest.split_once("<string>")?;
    version.split(['.', '<']).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
