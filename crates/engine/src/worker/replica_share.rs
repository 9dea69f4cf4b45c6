//! Settings of one of several replicas: its share of the memory, and what does not work with several of them yet.

use crate::device_memory::DeviceMemory;
use crate::error::StartError;
use crate::settings::{PromptCacheFile, Settings};

/// The settings of one replica on this machine. An error names a setting that replicas do not have yet.
pub(super) fn settings_of_a_replica(settings: &Settings) -> Result<Settings, StartError> {
    let replicas = settings.data_parallel_size;
    if replicas <= 1 {
        return Ok(settings.clone());
    }
    let on_gpu = matches!(mlx::device::default(), Ok(mlx::device::Device::Gpu));
    let is_cuda = mlx::device::backend() == mlx::device::Backend::Cuda;
    if on_gpu && is_cuda && mlx::device::gpu_count() < replicas * settings.tensor_parallel_size.max(1) {
        return Err(StartError::new(format!(
            "--data-parallel-size {replicas} needs a GPU for each process; this one sees {}",
            mlx::device::gpu_count()
        )));
    }
    let writes_file = matches!(settings.prompt_cache, Some(PromptCacheFile::Write(_)));
    let unsupported = [
        (on_gpu && !is_cuda, "a GPU; use --device cpu"),
        (writes_file, "a prompt cache file that is written"),
        (settings.adapter_memory.is_some(), "adapters that are loaded while the server runs"),
    ];
    if let Some((_, what)) = unsupported.iter().find(|(is_set, _)| *is_set) {
        return Err(StartError::new(format!("--data-parallel-size {replicas} does not work with {what}")));
    }
    let share = |bytes: u64| bytes / replicas as u64;
    let limit = DeviceMemory::read(settings.memory_limit).limit();
    Ok(Settings {
        // Each GPU has a limit of its own.
        memory_limit: limit.map(|limit| if on_gpu { limit.bytes } else { share(limit.bytes) }),
        kv_cache_memory: settings.kv_cache_memory.map(share),
        swap_space: settings.swap_space.map(share),
        media_cache_memory: share(settings.media_cache_memory),
        ..settings.clone()
    })
}
