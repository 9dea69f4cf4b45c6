//! Which sensor a machine has.

use crate::estimate::Estimate;
use crate::nvml::Nvml;
use crate::rapl::{POWERCAP, Rapl};
use crate::sensor::{Sensor, SensorError};

/// The device whose energy is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The first visible GPU.
    Gpu,
    /// All packages of the machine's CPUs, and their memory where it has a counter.
    Cpu,
}

/// The sensor of a device. With `model_watts` an estimate takes its place: that much power at every moment. Fails where
/// there is no sensor, or none that this process may read.
pub fn open(device: Device, model_watts: Option<f64>) -> Result<Box<dyn Sensor>, SensorError> {
    Ok(match (model_watts, device) {
        (Some(watts), _) => Box::new(Estimate::new(watts)),
        (None, Device::Gpu) => Box::new(Nvml::open()?),
        (None, Device::Cpu) => Box::new(Rapl::open(POWERCAP)?),
    })
}
