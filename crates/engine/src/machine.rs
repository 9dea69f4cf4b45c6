//! The machine's backend and GPU.

use std::collections::BTreeMap;

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

/// What MLX says about the device that models run on, but for what identifies the piece of hardware.
pub fn device_properties() -> BTreeMap<String, String> {
    let device = match mlx::device::gpu_available() {
        true => mlx::device::Device::Gpu,
        false => mlx::device::Device::Cpu,
    };
    let mut properties = mlx::device::info_of(device).unwrap_or_default().properties;
    properties.retain(|name, _| !name.contains("uuid") && !name.contains("serial"));
    properties
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
