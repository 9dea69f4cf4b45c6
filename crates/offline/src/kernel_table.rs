//! Our GPU kernels at the shapes of some models, beside MLX's operations: what `omnibus doctor --kernels` prints.

use mlx::Dtype;
use omnibus_engine::StartError;
use omnibus_model::families;
pub use omnibus_model::kernel_check::CheckExtent;
use omnibus_model::kernel_check::{self, KernelCheck, Measure};

/// One kernel at one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRow {
    /// The model whose shape it is.
    pub model: &'static str,
    /// Error and times.
    pub check: KernelCheck,
    /// The part of the read rate that it reaches, if times were measured.
    pub share: Option<f64>,
}

/// A model at whose shapes kernels are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelModel {
    /// Its name.
    pub name: &'static str,
    /// Its config.json.
    pub config: &'static str,
    /// Which kernels.
    pub extent: CheckExtent,
}

/// The device's read rate in bytes a second. Fails without a GPU.
pub fn kernel_read_rate() -> Result<f64, StartError> {
    if !mlx::gpu::available() {
        return Err(StartError::new("there is no GPU with kernels of ours"));
    }
    kernel_check::read_rate().map_err(StartError::new)
}

/// Measures the kernels of a model on the default GPU, with activations in bfloat16.
pub fn kernel_rows(model: KernelModel, read_rate: f64) -> Result<Vec<KernelRow>, StartError> {
    let KernelModel { name, config, extent } = model;
    let config = serde_json::from_str(config).map_err(|error| StartError::new(format!("{name}: {error}")))?;
    let blueprint = families::read(&config).map_err(StartError::new)?;
    let checks = kernel_check::check(&blueprint, Dtype::Bf16, Measure::Table, extent);
    mlx::memory::clear_cache();
    let row = |check: KernelCheck| {
        let share = check.times.map(|times| times.bytes / (times.ours_us * 1e-6) / read_rate);
        KernelRow { model: name, check, share }
    };
    Ok(checks.into_iter().map(row).collect())
}
