//! Pools of keys and values, as floats or packed.

use mlx::Dtype::{self, U32};
use mlx::gpu::PoolFormat;

use crate::emulator::{Numbers, Tensor};

/// Random heads. `of`: the axes before a head.
pub fn random(format: PoolFormat, of: &[i32], head_dim: i32, numbers: &mut Numbers) -> Tensor {
    let shape: Vec<i32> = of.iter().copied().chain([format.width(head_dim)]).collect();
    let PoolFormat::Packed { bits, group } = format else { return numbers.tensor(format.dtype(), &shape) };
    let (codes, groups) = (head_dim * bits / 32, head_dim / group);
    let mut bytes = Vec::new();
    for _ in 0..of.iter().product::<i32>() {
        bytes.extend((0..codes * 4).map(|_| numbers.below(256) as u8));
        let step = 4.0 / ((1 << bits) - 1) as f32;
        let scales = (0..groups).map(|_| step * (0.5 + numbers.below(100) as f32 / 100.0));
        bytes.extend(scales.flat_map(f32::to_ne_bytes));
        bytes.extend((0..groups).flat_map(|_| (-2.0 - numbers.below(100) as f32 / 100.0).to_ne_bytes()));
    }
    Tensor { dtype: U32, shape, bytes }
}

/// What a pool's heads hold.
pub fn floats(format: PoolFormat, pool: &Tensor, head_dim: usize) -> Vec<f64> {
    let PoolFormat::Packed { bits, group } = format else { return pool.to_f64() };
    let width = format.width(head_dim as i32) as usize;
    let (bits, group) = (bits as usize, group as usize);
    let words: Vec<u32> =
        pool.bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    let head = |words: &[u32]| -> Vec<f64> {
        let (codes, numbers) = words.split_at(head_dim * bits / 32);
        let (scales, biases) = numbers.split_at(head_dim / group);
        let element = |i: usize| {
            let code = codes[i * bits / 32] >> (i * bits % 32) & ((1 << bits) - 1);
            let [scale, bias] = [scales, biases].map(|of| f64::from(f32::from_bits(of[i / group])));
            f64::from(code) * scale + bias
        };
        (0..head_dim).map(element).collect()
    };
    words.chunks_exact(width).flat_map(head).collect()
}

/// What rounding to a format may cost.
pub fn tolerance(format: PoolFormat, dtype: Dtype) -> f64 {
    match format {
        PoolFormat::Float(_) => crate::emulator::tolerance(dtype),
        PoolFormat::Packed { bits: 8, .. } => 1e-2,
        PoolFormat::Packed { .. } => 0.12,
    }
}
