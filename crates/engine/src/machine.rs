//! The machine's backend, GPU and memory limit.

use serde::{Deserialize, Serialize};

/// The machine, as MLX sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The version of libmlx that is loaded.
    pub mlx_version: String,
    /// What it was built for: `metal`, `cuda` or `cpu`.
    pub backend: String,
    /// The GPU models would run on; `None` where they run on the CPU.
    pub gpu: Option<Gpu>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The product's name.
    pub name: String,
    /// Bytes of memory; on a Mac the machine's.
    pub memory_bytes: Option<u64>,
}

/// Asks MLX. Loads no model.
pub fn machine() -> Machine {
    let backend = match mlx::device::backend() {
        mlx::device::Backend::Metal => "metal",
        mlx::device::Backend::Cuda => "cuda",
        mlx::device::Backend::Cpu => "cpu",
    };
    let found =
        mlx::device::gpu_available().then(|| mlx::device::info_of(mlx::device::Device::Gpu).ok()).flatten();
    let gpu =
        found.map(|info| Gpu { name: info.name, memory_bytes: info.memory_size.map(|bytes| bytes as u64) });
    Machine { mlx_version: mlx::device::version(), backend: backend.to_owned(), gpu }
}

/// How much memory a model may use, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// Bytes that may be in use at once, this process's present use included.
    pub bytes: u64,
    /// The limit's source, for messages.
    pub source: String,
}

/// The limit of the default device and of the system.
pub(crate) fn memory_limit() -> Option<MemoryLimit> {
    let limit = |bytes: u64, source: &str| Some(MemoryLimit { bytes, source: source.to_owned() });
    if matches!(mlx::device::default(), Ok(mlx::device::Device::Gpu)) {
        let info = mlx::device::info().ok()?;
        return match (info.max_recommended_working_set_size, info.memory_size) {
            (Some(bytes), _) => limit(bytes as u64, "the GPU's recommended working set"),
            (None, Some(bytes)) => limit(bytes as u64, "the GPU's memory"),
            (None, None) => None,
        };
    }
    let ours = mlx::memory::active_memory() as u64;
    let free = host_free_bytes().map(|bytes| bytes + ours);
    let group = control_group_bytes();
    match (free, group) {
        (Some(free), Some(group)) if group < free => limit(group, "the control group's memory limit"),
        (Some(free), _) => limit(free, "available memory"),
        (None, Some(group)) => limit(group, "the control group's memory limit"),
        (None, None) => limit(mlx::memory::memory_limit() as u64, "MLX's share of the machine's memory"),
    }
}

/// Free bytes of host memory, where the system reports them.
pub(crate) fn host_free_bytes() -> Option<u64> {
    linux_number("/proc/meminfo", "MemAvailable:").map(|kilobytes| kilobytes * 1024)
}

/// The memory limit of this process's control group, if any.
fn control_group_bytes() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let text = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).ok()?;
    text.trim().parse().ok()
}

/// The number after a word at the start of a line.
fn linux_number(file: &str, word: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(word))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
