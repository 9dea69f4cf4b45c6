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

/// The sensor of a Mac, whose chip is counted as a whole; `None` on other machines.
#[cfg(target_os = "macos")]
fn of_mac() -> Option<Result<Box<dyn Sensor>, SensorError>> {
    let channels = crate::io_report::AppleChannels::open();
    let opened = channels.and_then(crate::io_report::EnergyModel::open);
    Some(opened.map(|model| Box::new(model) as Box<dyn Sensor>))
}

#[cfg(not(target_os = "macos"))]
fn of_mac() -> Option<Result<Box<dyn Sensor>, SensorError>> {
    None
}

/// The sensor of a device. With `model_watts` an estimate takes its place: that much power at every moment. Fails where
/// there is no sensor, or none that this process may read.
pub fn open(device: Device, model_watts: Option<f64>) -> Result<Box<dyn Sensor>, SensorError> {
    if let (None, Some(opened)) = (model_watts, of_mac()) {
        return opened;
    }
    Ok(match (model_watts, device) {
        (Some(watts), _) => Box::new(Estimate::new(watts)),
        (None, Device::Gpu) => Box::new(Nvml::open()?),
        (None, Device::Cpu) => Box::new(Rapl::open(POWERCAP)?),
    })
}
