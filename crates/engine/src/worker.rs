//! The thread that owns every array, and the loop it runs.
//!
//! Invariant: nothing here waits for a client, and no error of a request or of a step leaves the
//! thread: rows fail alone, steps are replayed, and what cannot run even alone ends with an event.

mod capacity;
mod contained;
mod launch;
mod memory;
mod prompt_file;
mod prompt_scores;
mod run;
mod runner;
mod tier;
mod warm_up;

use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use omnibus_model::{Kernels, Model, Source};
use serde::{Deserialize, Serialize};

use crate::StartError;
use crate::message::{Command, Report};
use crate::settings::{DeviceChoice, Settings};
pub use memory::MemoryPlan;
pub use tier::SwapStats;

/// Where the loop's reports go. Fails when nobody is left to hear them.
pub(crate) type Outlet = Box<dyn FnMut(Report) -> Result<(), NobodyListens> + Send>;

/// The front is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NobodyListens;

/// What is known once the model is in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) architecture: String,
    pub(crate) quantization: Option<String>,
    pub(crate) context_length: usize,
    pub(crate) max_model_len: usize,
    pub(crate) vocab_size: usize,
    pub(crate) memory: MemoryPlan,
    /// Tokens that every prompt goes on from.
    pub(crate) prefix: Vec<u32>,
}

/// Starts the thread and waits until it has loaded its model. The process must not end before the thread has: MLX
/// takes itself apart at exit, under the feet of whoever still computes.
pub(crate) fn start(
    source: Source,
    settings: Settings,
    inbox: Receiver<Command>,
    outlet: Outlet,
) -> Result<(Ready, JoinHandle<()>), StartError> {
    let (tell, told) = channel();
    let body = move || match load(&source, &settings) {
        Err(error) => {
            let _nobody = tell.send(Err(error));
        }
        Ok(Loaded { ready, runner, scheduler, tier, prompt_file }) => {
            let _nobody = tell.send(Ok(ready));
            run::Loop::new(runner, scheduler, tier, prompt_file, inbox, outlet, settings.faults).run();
        }
    };
    let thread = std::thread::Builder::new()
        .name("omnibus-engine".to_owned())
        .spawn(body)
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    match told.recv() {
        Ok(Ok(ready)) => Ok((ready, thread)),
        Ok(Err(error)) => {
            let _it_said_all = thread.join();
            Err(error)
        }
        Err(_) => Err(StartError::new("the engine's thread ended while it loaded the model")),
    }
}

/// First tokens that a sequence of bounded memory keeps; without them a model that was trained to see everything loses
/// its hold (arXiv 2309.17453).
const KEPT_TOKENS: usize = 4;

/// A model in memory, and everything the loop needs to run it.
struct Loaded {
    ready: Ready,
    runner: runner::Runner,
    scheduler: omnibus_core::Scheduler,
    tier: Option<tier::Tier>,
    prompt_file: Option<prompt_file::PromptFile>,
}

fn load(source: &Source, settings: &Settings) -> Result<Loaded, StartError> {
    choose_device(settings.device)?;
    let config = source.json("config.json").map_err(StartError::new)?;
    MemoryPlan::check_weights(source)?;
    let mut model = Model::load(source, Kernels::fastest()).map_err(StartError::new)?;
    if let Some(tokens) = settings.max_kv_size {
        if tokens <= KEPT_TOKENS {
            return Err(StartError::new(format!(
                "--max-kv-size {tokens} is not above the {KEPT_TOKENS} first tokens"
            )));
        }
        model.limit_attention_span(tokens, KEPT_TOKENS);
    }
    let mut settings = settings.clone();
    let prompt_file = prompt_file::PromptFile::open(&mut settings, source, model.blueprint())?;
    let settings = &settings;
    let capacity = capacity::Capacity::of(&model, settings)?;
    let ready = Ready {
        architecture: config.get("model_type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned(),
        quantization: model.quantization().label(),
        context_length: model.blueprint().context.unwrap_or(capacity.max_context),
        max_model_len: capacity.max_context,
        vocab_size: model.blueprint().vocab,
        memory: capacity.memory.clone(),
        prefix: prompt_file.as_ref().map(prompt_file::PromptFile::prefix).unwrap_or_default(),
    };
    let scheduler = omnibus_core::Scheduler::new(capacity.scheduler_settings(&model, settings));
    let mut runner = runner::Runner::new(model, &capacity, settings).map_err(StartError::new)?;
    warm_up::warm_up(&mut runner, settings).map_err(StartError::new)?;
    let tier = tier::Tier::open(settings, source, &runner, &capacity)?;
    Ok(Loaded { ready, runner, scheduler, tier, prompt_file })
}

fn choose_device(choice: DeviceChoice) -> Result<(), StartError> {
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
