//! Golden values: tensors and the case that they belong to.

use std::collections::BTreeMap;
use std::path::Path;

use omnibus_media::{Elements, Tensor};
use serde_json::Value;

use crate::support::crc32;

/// A golden tensor.
#[derive(Debug, Clone)]
pub struct Golden {
    pub shape: Vec<usize>,
    pub values: Values,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    F32(Vec<f32>),
    I32(Vec<i32>),
    U8(Vec<u8>),
}

/// All tensors of a file, by name.
pub fn read(path: &Path) -> BTreeMap<String, Golden> {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter().map(|(name, view)| {
        let values = match view.dtype() {
            safetensors::Dtype::F32 => Values::F32(bytemuck::pod_collect_to_vec(view.data())),
            safetensors::Dtype::I32 => Values::I32(bytemuck::pod_collect_to_vec(view.data())),
            safetensors::Dtype::U8 => Values::U8(view.data().to_vec()),
            other => panic!("{name} is {other:?}"),
        };
        (name, Golden { shape: view.shape().to_vec(), values })
    });
    tensors.collect()
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// CRC-32 of a tensor as the reference saved it: float32 or int32, little-endian.
pub fn checksum(tensor: &Tensor) -> u32 {
    match &tensor.elements {
        Elements::F32(values) => crc32(bytemuck::cast_slice(values)),
        Elements::I64(values) => {
            crc32(bytemuck::cast_slice(&values.iter().map(|value| *value as i32).collect::<Vec<_>>()))
        }
    }
}

/// Elements `floor(i * count / samples)`, as the reference sampled them.
pub fn sample(tensor: &Tensor, samples: usize) -> Values {
    let count = tensor.elements.count();
    let at = (0..samples).map(|index| index * count / samples);
    match &tensor.elements {
        Elements::F32(values) => Values::F32(at.map(|index| values[index]).collect()),
        Elements::I64(values) => Values::I32(at.map(|index| values[index] as i32).collect()),
    }
}
