//! Which backend this libmlx has, and what the device is.

use std::collections::BTreeMap;
use std::fmt;

use mlx_sys as sys;

use crate::error::{Error, Result};
use crate::planned::{PlannedGpu, is_planned, planned_gpu};

/// Where ops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The GPU of [`backend`].
    Gpu,
}

/// The fastest thing this libmlx can use on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Apple's GPUs.
    Metal,
    /// NVIDIA's GPUs.
    Cuda,
    /// No GPU.
    Cpu,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Metal => "Metal",
            Self::Cuda => "CUDA",
            Self::Cpu => "the CPU",
        })
    }
}

/// What is known about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The product's name; empty if unknown.
    pub name: String,
    /// The chip family; empty if unknown.
    pub architecture: String,
    /// Bytes of memory; on Metal the machine's, on CUDA the card's.
    pub memory_size: Option<usize>,
    /// Bytes of memory that no process uses; CUDA only.
    pub free_memory: Option<usize>,
    /// Bytes that may be in use without slowing down; Metal only.
    pub max_recommended_working_set_size: Option<usize>,
    /// Bytes of the largest single buffer; Metal only.
    pub max_buffer_length: Option<usize>,
    /// All properties that MLX reports, as text.
    pub properties: BTreeMap<String, String>,
}

/// MLX's version, as `0.32.4`.
pub fn version() -> String {
    sys::version()
}

/// The backend that was found.
pub fn backend() -> Backend {
    if let Some(gpu) = planned_gpu() {
        match gpu {
            PlannedGpu::Nvidia => Backend::Cuda,
            PlannedGpu::Mac => Backend::Metal,
        }
    } else if sys::metal_available() {
        Backend::Metal
    } else if gpu_available() {
        Backend::Cuda
    } else {
        Backend::Cpu
    }
}

/// Whether there is a GPU that MLX can use.
pub fn gpu_available() -> bool {
    sys::gpu_available()
}

/// How many GPUs there are.
pub fn gpu_count() -> usize {
    usize::try_from(sys::gpu_count()).unwrap_or(0)
}

/// Where the ops of the calling thread run.
pub fn default() -> Result<Device> {
    Ok(if is_planned() || sys::default_is_gpu()? { Device::Gpu } else { Device::Cpu })
}

/// Sets where new ops run. Fails for a GPU that is not there.
pub fn set_default(device: Device) -> Result<()> {
    if device == Device::Gpu && !gpu_available() {
        return Err(no_gpu());
    }
    Ok(sys::set_default_gpu(device == Device::Gpu)?)
}

/// What is known about the default device.
pub fn info() -> Result<Info> {
    info_of(default()?)
}

/// What is known about a device. Fails for a GPU that is not there.
pub fn info_of(device: Device) -> Result<Info> {
    if device == Device::Gpu && !gpu_available() {
        return Err(no_gpu());
    }
    let mut info = Info::default();
    for property in sys::device_info(device == Device::Gpu)? {
        let number = Some(property.number).filter(|_| property.text.is_empty());
        match property.key.as_str() {
            "device_name" => info.name.clone_from(&property.text),
            "architecture" => info.architecture.clone_from(&property.text),
            "memory_size" | "total_memory" => info.memory_size = number,
            "free_memory" => info.free_memory = number,
            "max_recommended_working_set_size" => info.max_recommended_working_set_size = number,
            "max_buffer_length" => info.max_buffer_length = number,
            _ => {}
        }
        let text = number.map_or(property.text, |number| number.to_string());
        info.properties.insert(property.key, text);
    }
    Ok(info)
}

fn no_gpu() -> Error {
    Error::Unavailable("there is no GPU that this libmlx can use".into())
}
