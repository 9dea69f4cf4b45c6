//! What the device can do at best, measured: bytes read per second and multiply-adds per second.

use std::time::Instant;

use mlx::device::Device;
use mlx::{Array, Dtype, cpu, random};
use omnibus_engine::{DeviceChoice, StartError, choose_device};
use serde::Serialize;

/// Bytes that a GPU reads in one pass: far more than its caches hold.
const GPU_READ_BYTES: usize = 2 << 30;
/// Bytes that a CPU reads in one pass.
const CPU_READ_BYTES: usize = 256 << 20;
/// Rows and columns of the products on a GPU.
const GPU_MATMUL: i32 = 8192;
/// Rows and columns of the products on a CPU.
const CPU_MATMUL: i32 = 1024;
/// Passes of each measurement; the fastest counts.
const PASSES: usize = 5;

/// What the device can do at best.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceLimits {
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Floating-point operations per second of a large matrix product; a multiply-add counts as two.
    pub matmul_flops: f64,
    /// The dtype of that product: `bf16`, and `f32` on a CPU.
    pub matmul_dtype: &'static str,
}

/// Measures the device on a thread of its own, so that the caller's default device stays.
pub fn measure_limits(device: DeviceChoice) -> Result<DeviceLimits, StartError> {
    let measuring = std::thread::spawn(move || {
        choose_device(device)?;
        measure().map_err(StartError::new)
    });
    measuring.join().map_err(|_| StartError::new("measuring the device panicked"))?
}

fn measure() -> mlx::Result<DeviceLimits> {
    let limits = match mlx::device::default()? {
        Device::Gpu => DeviceLimits {
            read_bytes_per_s: gpu_read_bytes_per_s()?,
            matmul_flops: matmul_flops(GPU_MATMUL, Dtype::Bf16, |a, b| a.matmul(b))?,
            matmul_dtype: "bf16",
        },
        Device::Cpu => DeviceLimits {
            read_bytes_per_s: cpu_read_bytes_per_s(),
            // The kernels that models run on: MLX's own product may have no BLAS behind it.
            matmul_flops: matmul_flops(CPU_MATMUL, Dtype::F32, |x, w| {
                cpu::matmul_t(x, w, None, cpu::Unit::Vector)
            })?,
            matmul_dtype: "f32",
        },
    };
    mlx::memory::clear_cache();
    Ok(limits)
}

/// The faster of a sum, which reads, and a copy, which reads and writes as many bytes.
fn gpu_read_bytes_per_s() -> mlx::Result<f64> {
    let elements = (GPU_READ_BYTES / 4) as i32;
    let array = Array::ones(&[elements], Dtype::F32)?;
    let sum = fastest(|| array.sum(&[])?.eval())?;
    let copy = fastest(|| (&array + 1.0).eval())?;
    Ok((GPU_READ_BYTES as f64 / sum).max(2.0 * GPU_READ_BYTES as f64 / copy))
}

/// Every core sums its share: MLX's own sum has one thread on a CPU.
fn cpu_read_bytes_per_s() -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let numbers = vec![1_u64; CPU_READ_BYTES / 8];
    let share = numbers.len().div_ceil(cores);
    let pass = || {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for part in numbers.chunks(share) {
                scope.spawn(move || std::hint::black_box(part.iter().fold(0_u64, |a, b| a.wrapping_add(*b))));
            }
        });
        begun.elapsed().as_secs_f64()
    };
    let fastest = (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min);
    CPU_READ_BYTES as f64 / fastest
}

fn matmul_flops(
    size: i32,
    dtype: Dtype,
    product: impl Fn(&Array, &Array) -> mlx::Result<Array>,
) -> mlx::Result<f64> {
    let matrix = |seed| random::uniform(&[size, size], dtype, -1.0..1.0, &random::key(seed)?);
    let (a, b) = (matrix(0)?, matrix(1)?);
    mlx::eval([&a, &b])?;
    let seconds = fastest(|| product(&a, &b)?.eval())?;
    Ok(2.0 * f64::from(size).powi(3) / seconds)
}

/// Seconds of the fastest pass, after one that is not measured.
fn fastest(pass: impl Fn() -> mlx::Result<()>) -> mlx::Result<f64> {
    let mut seconds = f64::INFINITY;
    for number in 0..=PASSES {
        let begun = Instant::now();
        pass()?;
        if number > 0 {
            seconds = seconds.min(begun.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}
