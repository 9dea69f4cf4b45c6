//! How long each kernel of one pass takes by itself: where the time of a step goes.
//!
//! Invariant: no loop and no scheduler; passes are made as a step of the loop would make them.

use std::collections::BTreeMap;

use mlx::device::{Backend, Device};
use omnibus_engine::{DeviceChoice, StartError, choose_device};
use omnibus_kv::KvFormat;
use omnibus_model::{Kernels, KvStorage, Model, Source};
use serde::Serialize;

use super::BenchModel;
use crate::pass_input::PassInput;

/// Runs of which the mean is taken.
const RUNS: u32 = 10;

/// A pass to take apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfiledPass {
    /// One token of each of so many sequences.
    Decode {
        /// Sequences.
        streams: usize,
        /// Tokens before each.
        context: usize,
    },
    /// A whole prompt of so many tokens.
    Prefill {
        /// Tokens.
        tokens: usize,
    },
}

/// The kernels of one pass, those that take longest first.
#[derive(Debug, Clone, Serialize)]
pub struct PassProfile {
    /// `decode, 16 streams at 512`.
    pub pass: String,
    /// Its kernels.
    pub kernels: Vec<KernelShare>,
}

/// All launches of one kernel in a pass.
#[derive(Debug, Clone, Serialize)]
pub struct KernelShare {
    /// Our kernel's name, or that of MLX's operation.
    pub kernel: String,
    /// How often it is launched.
    pub launches: usize,
    /// All of them together.
    pub milliseconds: f64,
}

/// Loads a model and measures passes of it, on CUDA.
pub fn measure_kernels(
    model: &BenchModel,
    device: DeviceChoice,
    passes: &[ProfiledPass],
) -> Result<Vec<PassProfile>, StartError> {
    choose_device(device)?;
    if mlx::device::backend() != Backend::Cuda || mlx::device::default().ok() != Some(Device::Gpu) {
        return Err(StartError::new("kernels are timed on CUDA alone; this run computes elsewhere"));
    }
    let source = match model {
        BenchModel::Stored(source) => source.files(),
        BenchModel::Random(random) => Source::Random(random.clone()),
    };
    let model = Model::load(&source, Kernels::fastest()).map_err(StartError::new)?;
    let storage = KvStorage::from(KvFormat::Float(model.kv_float()));
    for warning in model.switch_off_failing_kernels(storage) {
        tracing::warn!("{warning}");
    }
    passes.iter().map(|pass| pass.measure(&model, storage).map_err(StartError::new)).collect()
}

impl ProfiledPass {
    fn measure(self, model: &Model, storage: KvStorage) -> mlx::Result<PassProfile> {
        let (sequences, len, context) = match self {
            Self::Decode { streams, context } => (streams, 1, context),
            Self::Prefill { tokens } => (1, tokens, 0),
        };
        let input = PassInput { sequences, len, context, rows: sequences * len };
        let (batch, mut cache) = input.build(model, storage)?;
        let mut kernels: BTreeMap<String, KernelShare> = BTreeMap::new();
        for time in model.kernel_times(&batch, &mut cache, RUNS)? {
            let share = kernels.entry(time.name.clone()).or_insert_with(|| KernelShare {
                kernel: time.name,
                launches: 0,
                milliseconds: 0.0,
            });
            share.launches += 1;
            share.milliseconds += time.microseconds / 1e3;
        }
        let mut kernels: Vec<KernelShare> = kernels.into_values().collect();
        kernels.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        Ok(PassProfile { pass: self.name(), kernels })
    }

    fn name(self) -> String {
        match self {
            Self::Decode { streams: 1, context } => format!("decode, 1 stream at {context}"),
            Self::Decode { streams, context } => format!("decode, {streams} streams at {context}"),
            Self::Prefill { tokens } => format!("prefill of {tokens}"),
        }
    }
}
