//! Settings of ranks: each one's share of the memory, and what does not work with several of them yet.

use crate::device_memory::DeviceMemory;
use crate::error::StartError;
use crate::settings::{AsyncScheduling, Settings, WarmUp};
use crate::speculation::DraftSource;
use crate::worker::drafting::{DraftReads, LoadedDrafter};
use crate::worker::media::MediaEncoding;

const DRAFT_HEAD: &str = "a draft head; use --draft ngram, model or off";

/// The settings of one rank of a group on this machine. An error names a setting that ranks do not have yet.
pub(in crate::worker) fn settings_of_a_rank(settings: &Settings) -> Result<Settings, StartError> {
    let ranks = settings.tensor_parallel_size;
    if ranks == 1 {
        return Ok(settings.clone());
    }
    let on_gpu = matches!(mlx::device::default(), Ok(mlx::device::Device::Gpu));
    let has_disk = settings.disk.as_ref().is_some_and(|disk| !disk.directory.as_os_str().is_empty());
    let drafts = &settings.speculation;
    let has_head = matches!(drafts.source, DraftSource::Mtp | DraftSource::Eagle3 | DraftSource::Dflash);
    let unsupported = [
        (on_gpu, "a GPU; use --device cpu"),
        (has_disk, "--cache-dir"),
        (settings.serves_blocks() || settings.fetches_blocks(), "--role or --kv-peer"),
        (settings.prompt_cache.is_some(), "a prompt cache file"),
        (settings.swap_space.is_some_and(|bytes| bytes > 0), "--swap-space above 0"),
        (!settings.adapters.is_empty() || settings.adapter_memory.is_some(), "named adapters"),
        (has_head, DRAFT_HEAD),
        (settings.async_scheduling == AsyncScheduling::On, "--async-scheduling on"),
    ];
    if let Some((_, what)) = unsupported.iter().find(|(is_set, _)| *is_set) {
        return Err(StartError::new(format!("--tensor-parallel-size {ranks} does not work with {what}")));
    }
    let mut own = settings.clone();
    let share = |bytes: u64| bytes / ranks as u64;
    let limit = DeviceMemory::read(settings.memory_limit).limit();
    own.memory_limit = limit.map(|limit| share(limit.bytes));
    own.kv_cache_memory = settings.kv_cache_memory.map(share);
    own.swap_space = Some(0);
    own.async_scheduling = AsyncScheduling::Off;
    own.warm_up = WarmUp::Off;
    // The head of the checkpoint, which `auto` would use, is not divided yet.
    if drafts.source == DraftSource::Auto && drafts.draft_model.is_none() {
        own.speculation.source = DraftSource::Ngram;
    }
    Ok(own)
}

/// Refuses a draft head, which shares the target model's embeddings and logits. A draft model is whole on the first rank.
pub(in crate::worker) fn without_head(
    draft: Option<LoadedDrafter>,
    settings: &Settings,
) -> Result<Option<LoadedDrafter>, StartError> {
    match (draft, settings.tensor_parallel_size) {
        (Some(draft), ranks @ 2..) if draft.reads() == DraftReads::States => {
            Err(StartError::new(format!("--tensor-parallel-size {ranks} does not work with {DRAFT_HEAD}")))
        }
        (draft, _) => Ok(draft),
    }
}

/// Refuses encoders of media, whose features followers do not have yet.
pub(in crate::worker) fn without_encoders(
    media: Option<MediaEncoding>,
    settings: &Settings,
) -> Result<Option<MediaEncoding>, StartError> {
    match (media, settings.tensor_parallel_size) {
        (Some(_), ranks @ 2..) => Err(StartError::new(format!(
            "--tensor-parallel-size {ranks} does not work with a model that reads images or sound"
        ))),
        (media, _) => Ok(media),
    }
}
