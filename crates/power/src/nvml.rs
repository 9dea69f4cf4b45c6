//! The energy counter of an NVIDIA GPU, by NVML, whose shared library is loaded at run time.
//!
//! The counter is `nvmlDeviceGetTotalEnergyConsumption`: millijoules since the driver was loaded, on Volta and later. It
//! counts the whole GPU, other processes included.

use std::ffi::OsStr;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use crate::environment::visible_gpus;
use crate::sensor::{EnergySource, Sensor, SensorError};

/// NVML, and which GPU is counted.
pub(crate) struct Nvml {
    library: nvml_wrapper::Nvml,
    gpu: Gpu,
}

/// How the driver names a GPU. It numbers all GPUs, whatever `CUDA_VISIBLE_DEVICES` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gpu {
    Index(u32),
    Uuid(String),
}

impl Nvml {
    /// Loads the library and reads the counter once.
    pub(crate) fn open() -> Result<Self, SensorError> {
        // Installations without development files have only the name with the version.
        let versioned = nvml_wrapper::Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init();
        let library = versioned.or_else(|_| nvml_wrapper::Nvml::init()).map_err(failed)?;
        let gpu = first_visible(visible_gpus().as_deref());
        let mut nvml = Self { library, gpu };
        nvml.microjoules()?;
        Ok(nvml)
    }

    fn device(&self) -> Result<Device<'_>, NvmlError> {
        match &self.gpu {
            Gpu::Index(index) => self.library.device_by_index(*index),
            Gpu::Uuid(uuid) => self.library.device_by_uuid(uuid.as_str()),
        }
    }
}

impl Sensor for Nvml {
    fn source(&self) -> EnergySource {
        EnergySource::Nvml
    }

    fn microjoules(&mut self) -> Result<u64, SensorError> {
        let millijoules = self.device().and_then(|device| device.total_energy_consumption());
        Ok(millijoules.map_err(failed)?.saturating_mul(1000))
    }
}

fn failed(error: NvmlError) -> SensorError {
    SensorError::Nvml(error.to_string())
}

/// The first GPU that CUDA shows to this process.
fn first_visible(devices: Option<&str>) -> Gpu {
    let first = devices.and_then(|devices| devices.split(',').next()).map(str::trim).unwrap_or_default();
    match first.parse() {
        Ok(index) => Gpu::Index(index),
        Err(_) if first.is_empty() => Gpu::Index(0),
        Err(_) => Gpu::Uuid(first.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_visible_gpu_is_counted() {
        assert_eq!(first_visible(None), Gpu::Index(0));
        assert_eq!(first_visible(Some("")), Gpu::Index(0));
        assert_eq!(first_visible(Some("3,1")), Gpu::Index(3));
        assert_eq!(first_visible(Some("GPU-8f2c, 1")), Gpu::Uuid("GPU-8f2c".to_owned()));
    }
}
