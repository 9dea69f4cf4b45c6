//! Settings of ranks: each one's share of the memory, and what does not work with several of them yet.

use omnibus_model::{Blueprint, families};
use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::device_memory::DeviceMemory;
use crate::error::StartError;
use crate::settings::{AsyncScheduling, Settings, WarmUp};
use crate::speculation::DraftSource;
use crate::worker::drafting::{DraftReads, LoadedDrafter};
use crate::worker::media::MediaEncoding;

const DRAFT_HEAD: &str = "a draft head; use --draft ngram, model or off";
const DRAFT_MODEL: &str = "a draft model or head; use --draft ngram or off";

/// Most bytes of the hidden states of a step: half of what a message may have.
const STEP_BYTES_MAX: usize = 1 << 27;

/// How many processes compute the model.
fn processes(settings: &Settings) -> usize {
    settings.tensor_parallel_size.max(1) * settings.pipeline_parallel_size.max(1)
}

/// Whether a model's ranks compute on GPUs.
pub(super) fn on_gpu() -> bool {
    matches!(mlx::device::default(), Ok(mlx::device::Device::Gpu))
}

/// Whether the GPUs of the processes can exchange rows: ranks on one machine, by CUDA.
fn can_exchange(settings: &Settings) -> bool {
    let is_cuda = mlx::device::backend() == mlx::device::Backend::Cuda;
    is_cuda && settings.pipeline_parallel_size <= 1 && settings.cluster.is_none()
}

/// Among how many devices' memories the weights are divided.
pub(in crate::worker) fn weight_devices(settings: &Settings) -> u64 {
    if on_gpu() { settings.tensor_parallel_size.max(1) as u64 } else { 1 }
}

/// The error of something that does not work with several processes.
fn unsupported(settings: &Settings, what: &str) -> StartError {
    let flag = match settings.pipeline_parallel_size {
        0 | 1 => format!("--tensor-parallel-size {}", settings.tensor_parallel_size),
        stages => format!("--pipeline-parallel-size {stages}"),
    };
    StartError::new(format!("{flag} does not work with {what}"))
}

/// The settings of one process of several for a model on this machine. An error names a setting that they do not have yet.
pub(in crate::worker) fn settings_of_a_rank(settings: &Settings) -> Result<Settings, StartError> {
    let processes = processes(settings);
    if processes == 1 {
        return Ok(settings.clone());
    }
    let has_disk = settings.disk.as_ref().is_some_and(|disk| !disk.directory.as_os_str().is_empty());
    let drafts = &settings.speculation;
    let has_head = matches!(drafts.source, DraftSource::Mtp | DraftSource::Eagle3 | DraftSource::Dflash);
    let has_draft_model = has_head || drafts.draft_model.is_some();
    let in_stages = settings.pipeline_parallel_size > 1;
    let refused = [
        (on_gpu() && !can_exchange(settings), "a GPU; use --device cpu"),
        (has_disk, "--cache-dir"),
        (settings.serves_blocks() || settings.fetches_blocks(), "--role or --kv-peer"),
        (settings.expert_memory.is_some(), "--expert-memory"),
        (settings.prompt_cache.is_some(), "a prompt cache file"),
        (settings.swap_space.is_some_and(|bytes| bytes > 0), "--swap-space above 0"),
        (!settings.adapters.is_empty() || settings.adapter_memory.is_some(), "named adapters"),
        (in_stages && has_draft_model, DRAFT_MODEL),
        (has_head, DRAFT_HEAD),
        (in_stages && settings.async_scheduling == AsyncScheduling::On, "--async-scheduling on"),
    ];
    if let Some((_, what)) = refused.iter().find(|(is_set, _)| *is_set) {
        return Err(unsupported(settings, what));
    }
    if on_gpu() && processes > mlx::device::gpu_count() {
        let (flag, gpus) = ("--tensor-parallel-size", mlx::device::gpu_count());
        return Err(StartError::new(format!(
            "{flag} {processes} needs as many GPUs; this machine has {gpus}"
        )));
    }
    let mut own = settings.clone();
    let share = |bytes: u64| bytes / processes as u64;
    let on_a_device = match on_gpu() {
        true => 1,
        false => settings.cluster.as_ref().map_or(processes, Cluster::processes_on_a_host),
    };
    own.memory_limit = match on_a_device {
        // Each machine, and each GPU, has a limit of its own.
        1 => settings.memory_limit,
        here => {
            let limit = DeviceMemory::read(settings.memory_limit).limit();
            limit.map(|limit| limit.bytes / here as u64)
        }
    };
    own.cluster = None;
    own.kv_cache_memory = settings.kv_cache_memory.map(share);
    own.swap_space = Some(0);
    if in_stages {
        own.async_scheduling = AsyncScheduling::Off;
        own.warm_up = WarmUp::Off;
    }
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
    match draft {
        Some(draft) if draft.reads() == DraftReads::States && processes(settings) > 1 => {
            Err(unsupported(settings, DRAFT_HEAD))
        }
        draft => Ok(draft),
    }
}

/// Refuses encoders of media, whose features followers do not have yet.
pub(in crate::worker) fn without_encoders(
    media: Option<MediaEncoding>,
    settings: &Settings,
) -> Result<Option<MediaEncoding>, StartError> {
    match media {
        Some(_) if processes(settings) > 1 => {
            Err(unsupported(settings, "a model that reads images or sound"))
        }
        media => Ok(media),
    }
}

/// Refuses a head whose logits are no sampler's, which only the last stage has.
pub(in crate::worker) fn without_masked_head(
    network: &Blueprint,
    settings: &Settings,
) -> Result<(), StartError> {
    match network.masked_head {
        Some(_) if settings.pipeline_parallel_size > 1 => {
            Err(unsupported(settings, "a model with the head of a masked language model"))
        }
        _ => Ok(()),
    }
}

/// Refuses steps whose hidden states are larger than the messages between stages. `config`: of the model; what is wrong with it
/// is said when it is loaded.
pub(in crate::worker) fn check_step_bytes(
    config: &Map<String, Value>,
    settings: &Settings,
) -> Result<(), StartError> {
    if settings.pipeline_parallel_size <= 1 {
        return Ok(());
    }
    let Ok(blueprint) = families::read(config) else { return Ok(()) };
    let row = (blueprint.hidden * size_of::<f32>()).max(1);
    let (tokens, most) = (settings.step_tokens(), STEP_BYTES_MAX / row);
    if tokens > most {
        return Err(StartError::new(format!(
            "--max-num-batched-tokens {tokens} is above the {most} whose hidden states, {} wide, stages pass on in one message",
            blueprint.hidden
        )));
    }
    Ok(())
}
