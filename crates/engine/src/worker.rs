//! The thread that owns every array, and the loop it runs.
//!
//! Invariant: nothing here waits for a client, and no error of a request or of a step ends the thread: rows fail alone,
//! failed steps are replayed, and a sequence that cannot run even alone ends with an event.

mod adapters;
mod alignment;
mod capacity;
mod catch_panic;
mod device_call;
mod device_client;
mod drafting;
mod drafts;
mod engine_loop;
mod faulty_device;
mod grammars;
mod hidden;
mod kv_events;
mod kv_offload;
mod measured_calls;
mod media;
mod memory;
mod model_runner;
mod model_traits;
mod outcome;
mod planned_memory;
mod prompt_file;
mod prompt_logprobs;
mod prompt_output;
mod proposer;
mod ranks;
mod replica_share;
mod rows;
mod step_input;
mod token_logits;
mod warm_up;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use omnibus_model::{Head, Kernels, Loading, Model, ModelPart, Source};

use crate::command_buffers::{self, Chip};
use crate::device_memory::DeviceMemory;
use crate::error::StartError;
use crate::front::tokenizer_of;
use crate::load_progress::{LoadProgress, ProgressSender};
use crate::log_span::in_this;
use crate::logits_processor::LogitsProcessors;
use crate::memory_plan::MemoryPlan;
use crate::message::{Command, Ready, ReportSender};
use crate::settings::{CpuActivations, DeviceChoice, NamedAdapter, Settings};
use crate::whisper::rules::{SPEECH_RULES, SpeechRules};
use crate::whisper::tokens::SpeechTokens;
use device_call::Device;
use device_client::DeviceClient;
use drafting::LoadedDrafter;
use drafts::Drafts;
use faulty_device::FaultyDevice;
pub use memory::memory_for_models;
pub(crate) use memory::release_memory;
pub use planned_memory::{PlannedMemory, plan_memory};
use proposer::DraftNetwork;
pub(crate) use ranks::{FollowerStart, RankLaunch, follow};
use ranks::{LaterStages, LoadingStages, Place, RankGroup, RankedDevice, StagedDevice};
use warm_up::WarmUpModel;

/// What the thread owns besides the model's files.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) settings: Settings,
    pub(crate) processors: LogitsProcessors,
    /// How further ranks are started; `None` inside of the front's process.
    pub(crate) launch: Option<RankLaunch>,
    /// Where the progress of the load goes.
    pub(crate) progress: Option<ProgressSender>,
}

/// Starts the thread and waits until it has loaded its model. The process must not exit before the thread has ended: at
/// exit MLX frees what running computations use.
pub(crate) fn start(
    source: Source,
    own: Own,
    inbox: Receiver<Command>,
    report_tx: ReportSender,
) -> Result<(Ready, JoinHandle<()>), StartError> {
    let (ready_tx, ready_rx) = channel();
    let source = source.with_adapter(own.settings.adapter.as_deref());
    let body = move || match load_publishing(&source, &own) {
        Err(error) => {
            let _starter_gone = ready_tx.send(Err(error));
        }
        Ok((loaded, kv_events)) => {
            let _starter_gone = ready_tx.send(Ok(loaded.ready.clone()));
            engine_loop::EngineLoop::new(loaded, inbox, report_tx).publishing(kv_events).run();
        }
    };
    let thread = std::thread::Builder::new()
        .name("omnibus-engine".to_owned())
        .spawn(in_this(body))
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    match ready_rx.recv() {
        Ok(Ok(ready)) => Ok((ready, thread)),
        Ok(Err(error)) => {
            let _reported = thread.join();
            Err(error)
        }
        Err(_) => Err(StartError::new("the engine's thread ended while it loaded the model")),
    }
}

/// Attention sinks of a sequence with bounded attention: the first tokens, which every token keeps attending to (arXiv
/// 2309.17453).
const SINK_TOKENS: usize = 4;

/// A loaded model, and what the loop needs to run it.
struct Loaded {
    ready: Ready,
    device: DeviceClient,
    scheduler: omnibus_core::Scheduler,
    offload: Option<kv_offload::KvOffload>,
    prompt_file: Option<prompt_file::PromptFile>,
    /// Of the KV cache, the largest first.
    smaller_pools: VecDeque<capacity::PoolSize>,
    grammars: grammars::Grammars,
    drafts: Option<Drafts>,
    energy: Option<engine_loop::LoopEnergy>,
}

/// Loads the model, and listens for subscribers of its KV events.
fn load_publishing(source: &Source, own: &Own) -> Result<(Loaded, Option<kv_events::KvEvents>), StartError> {
    let loaded = load(source, own)?;
    let kv_events = kv_events::KvEvents::start(&own.settings, &loaded.ready.adapters)?;
    Ok((loaded, kv_events))
}

fn load(source: &Source, Own { settings, processors, launch, progress }: &Own) -> Result<Loaded, StartError> {
    choose_device(settings.device)?;
    let config = source.config().map_err(StartError::new)?;
    if settings.cluster.is_none() {
        MemoryPlan::check_weights(source, settings, &DeviceMemory::read(settings.memory_limit))?;
    }
    // Begins here, so that it has readings before the first request.
    let energy = engine_loop::LoopEnergy::start(
        mlx::device::default().map_err(StartError::new)?,
        settings.power_model_watts,
    );
    let kernels = kernels_of(settings);
    let settings = &replica_share::settings_of_a_replica(settings)?;
    let launch = (launch.as_ref(), settings.cluster.as_ref());
    let settings = &ranks::settings_of_a_rank(settings)?;
    ranks::check_step_bytes(&config, settings)?;
    let place = Place::first(settings);
    let stages = LoadingStages::start(source, settings, launch, place)?;
    let group = RankGroup::start(source, settings, launch, place)?;
    let part = place.part(group.as_ref().map(RankGroup::shard))?;
    let model = load_model(source, kernels, settings, (part, progress.as_ref()))?;
    ranks::without_masked_head(model.network(), settings)?;
    let media = media::MediaEncoding::load(source, kernels, settings)?;
    let media = ranks::without_encoders(media, settings)?;
    let adapters = adapters::load(&model, settings)?;
    if let Some(bytes) = settings.adapter_memory {
        model.limit_adapter_bytes(bytes);
    }
    let draft = ranks::without_head(LoadedDrafter::load(source, &model, settings)?, settings)?;
    let mut settings = settings_on_device(settings, &model)?;
    let prompt_file = prompt_file::PromptFile::open(&mut settings, source, model.blueprint())?;
    let settings = &settings;
    let media_memory = media.as_ref().map(|media| media.memory(source)).unwrap_or_default();
    let mut capacity = capacity::Capacity::of(&model, draft.as_ref(), media_memory, settings)?;
    let (stages, own_blocks) = ranks::agree(stages, &model, &mut capacity)?;
    warm_up::compile_ahead(&model, draft.as_ref(), &capacity, settings);
    for warning in model.switch_off_failing_kernels(capacity.storage) {
        tracing::warn!("{warning}");
    }
    if let Some(media) = &media {
        media.use_kernels(&model.kernel_choice());
    }
    let ready = ready(&config, (&model, &capacity), (prompt_file.as_ref(), media.as_ref()), adapters);
    let scheduler = omnibus_core::Scheduler::new(capacity.scheduler_settings(&model, settings));
    let asked = draft.as_ref().map(DraftNetwork::of);
    let draft = draft.map(|draft| capacity.drafter(draft, &model)).transpose()?;
    let mut runner = model_runner::ModelRunner::new(model, own_blocks.clone(), &capacity, settings)
        .map_err(StartError::new)?;
    runner.set_processors(all_processors(source, processors, settings));
    runner.set_media(media);
    runner.set_draft(draft);
    runner.set_prompt_cache(prompt_file.as_ref().and_then(prompt_file::PromptFile::cache));
    let traits = runner.traits();
    let offload = kv_offload::KvOffload::open(settings, source, &traits.kv, &capacity)?;
    if let Some(group) = &group {
        group.allocate(&own_blocks, &runner.kernel_choice())?;
    }
    let blocks = runner.least_blocks();
    let of_steps = WarmUpModel::of(&runner);
    let mut device = with_processes(runner, group, stages);
    warm_up::warm_up(&mut device, &of_steps, settings).map_err(StartError::new)?;
    let device = match settings.faults.is_empty() {
        true => DeviceClient::new(device, traits),
        false => DeviceClient::new(FaultyDevice::new(device, settings.faults.clone(), blocks), traits),
    };
    let smaller_pools = capacity.smaller.into();
    let grammars = grammars::Grammars::new(source, ready.vocab_size, &settings.grammar_limits);
    let drafts = drafts_of(settings, asked);
    Ok(Loaded { ready, device, scheduler, offload, prompt_file, smaller_pools, grammars, drafts, energy })
}

/// The settings with what the device decides: tokens of a step, and on a Mac how long one with a prompt may take.
fn settings_on_device(settings: &Settings, model: &Model) -> Result<Settings, StartError> {
    let mut settings = settings.on(mlx::device::default().map_err(StartError::new)?);
    let chip = Chip::of_this_machine();
    settings.tuning.step_time = chip.map(|chip| command_buffers::step_time(chip, model.network()));
    Ok(settings)
}

/// The device of the loop: the runner, the ranks of its stage, and the later stages.
fn with_processes(
    runner: model_runner::ModelRunner,
    group: Option<RankGroup>,
    stages: Option<LaterStages>,
) -> Box<dyn Device> {
    let device: Box<dyn Device> = match group {
        Some(group) => Box::new(RankedDevice::new(runner, group)),
        None => Box::new(runner),
    };
    match stages {
        Some(stages) => Box::new(StagedDevice::new(device, stages)),
        None => device,
    }
}

/// What drafts, as the settings say; `None` if nothing does.
fn drafts_of(settings: &Settings, asked: Option<DraftNetwork>) -> Option<Drafts> {
    let proposers = proposer::proposers_of(settings, asked);
    let speculation = &settings.speculation;
    let drafts =
        |proposers| Drafts::new(proposers, speculation.num_draft_tokens).with_outcome(&speculation.outcome);
    Some(proposers).filter(|proposers| !proposers.is_empty()).map(drafts)
}

/// What the front gets to know of a loaded model.
fn ready(
    config: &serde_json::Map<String, serde_json::Value>,
    (model, capacity): (&Model, &capacity::Capacity),
    (prompt_file, media): (Option<&prompt_file::PromptFile>, Option<&media::MediaEncoding>),
    adapters: Vec<NamedAdapter>,
) -> Ready {
    Ready {
        architecture: config.get("model_type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned(),
        quantization: model.quantization().label(),
        context_length: model.blueprint().context.unwrap_or(capacity.max_context),
        max_model_len: capacity.max_context,
        vocab_size: model.blueprint().vocab,
        token_types: model.blueprint().token_types.unwrap_or(1),
        generates: model.blueprint().head != Head::Absent,
        weighs_vocabulary: model.blueprint().masked_head.is_some(),
        hidden_size: model.blueprint().hidden,
        memory: capacity.memory.clone(),
        prefix: prompt_file.map(prompt_file::PromptFile::prefix).unwrap_or_default(),
        reads_images: media.is_some_and(media::MediaEncoding::reads_images),
        reads_audio: media.is_some_and(media::MediaEncoding::reads_audio),
        adapters,
    }
}

/// The kernels that the settings choose.
fn kernels_of(settings: &Settings) -> Kernels {
    match settings.cpu_activations {
        CpuActivations::Exact => Kernels::fastest(),
        CpuActivations::Int8 => Kernels::fastest().with_int8_activations(),
    }
}

/// Loads the model, or a part of it, with its attention bounded as the settings say.
fn load_model(
    source: &Source,
    kernels: Kernels,
    settings: &Settings,
    (part, sender): (ModelPart, Option<&ProgressSender>),
) -> Result<Model, StartError> {
    let total_bytes = source.resident_bytes(settings.expert_memory.map(|_| 0)).unwrap_or_default();
    let mut reports = 0;
    let mut progress = |bytes: u64| {
        if let Some(send) = sender {
            send(LoadProgress { loaded_bytes: bytes.min(total_bytes), total_bytes });
        }
        settings.faults.of_load(reports);
        reports += 1;
    };
    let loading = Loading { part, progress: &mut progress, expert_memory: settings.expert_memory };
    let mut model = Model::load_part(source, kernels, loading).map_err(StartError::new)?;
    // The first of the tokens of such a prompt depend on the last ones.
    if settings.prompt_cache.is_some() && !model.blueprint().bidirectional_spans(&[0; 2], &[]).is_empty() {
        return Err(StartError::new(
            "a model whose prompts attend in both directions (PaliGemma) continues no prompt cache file",
        ));
    }
    if let Some(tokens) = settings.max_kv_size {
        if tokens <= SINK_TOKENS {
            return Err(StartError::new(format!(
                "--max-kv-size {tokens} is not above the {SINK_TOKENS} first tokens"
            )));
        }
        model.limit_attention_span(tokens, SINK_TOKENS);
    }
    Ok(model)
}

/// The processors of the embedding program and of the engine itself.
fn all_processors(source: &Source, processors: &LogitsProcessors, settings: &Settings) -> LogitsProcessors {
    let processors = match settings.faults.is_empty() {
        true => processors.clone(),
        false => processors.clone().with(faulty_device::NOT_A_NUMBER, faulty_device::not_a_number),
    };
    let speech = tokenizer_of(source).ok().and_then(|tokenizer| SpeechTokens::read(source, &tokenizer));
    match speech {
        Some(tokens) => processors.with(SPEECH_RULES, SpeechRules(tokens)),
        None => processors,
    }
}

/// Sets the default device of the calling thread.
pub fn choose_device(choice: DeviceChoice) -> Result<(), StartError> {
    let gpu = mlx::device::gpu_available();
    let device = match choice {
        DeviceChoice::Gpu if !gpu => {
            return Err(StartError::new(
                "--device gpu, but this libmlx finds no GPU; use --device cpu or auto",
            ));
        }
        DeviceChoice::Gpu => mlx::device::Device::Gpu,
        DeviceChoice::Auto if gpu => mlx::device::Device::Gpu,
        DeviceChoice::Auto | DeviceChoice::Cpu => mlx::device::Device::Cpu,
    };
    mlx::device::set_default(device).map_err(StartError::new)
}
