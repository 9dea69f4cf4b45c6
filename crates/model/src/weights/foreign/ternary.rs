//! BitNet's ternary weights: bits `2k` and `2k + 1` of byte row `r` are one more than output `r + k · rows`.

use mlx::{Array, Dtype};

use super::codes::pack;
use super::module::{Integers, Modules};
use crate::quantization::TernaryScale;
use crate::weights::LoadError;

const BITS: i32 = 2;
const PER_BYTE: u8 = 4;

/// Modules whose `weight` is of bytes beside a `weight_scale`: 2-bit integers, or floats where groups do not fit.
pub(super) fn convert(modules: &mut Modules, scale: TernaryScale) -> Result<(), LoadError> {
    for path in modules.with("weight_scale") {
        let is_bytes = |weight: &Array| weight.dtype().is_ok_and(|dtype| dtype == Dtype::U8);
        if !modules.get(&path, "weight").is_some_and(is_bytes) {
            continue;
        }
        let (bytes, stored) = (modules.need(&path, "weight")?, modules.need(&path, "weight_scale")?);
        let codes = codes(&bytes)?;
        let scale = match scale {
            TernaryScale::Multiplies => stored.reshape(&[1, 1])?,
            TernaryScale::Divides => stored.reshape(&[1, 1])?.reciprocal()?,
        };
        let [outputs, inputs] = codes.dims()?;
        if inputs % 32 == 0 {
            let scales = scale.broadcast_to(&[outputs, 1])?;
            let words = pack(&codes, BITS)?;
            modules
                .put_integers(&path, Integers::new(words, scales, &Array::scalar(1.0, Dtype::F32)?, BITS)?)?;
        } else {
            let weight = (codes.astype(scale.dtype()?)? + -1.0) * scale;
            modules.put(&path, "weight", weight);
        }
    }
    Ok(())
}

/// `[rows, in]` bytes → `[4 · rows, in]` codes.
fn codes(bytes: &Array) -> mlx::Result<Array> {
    let mask = Array::scalar(3.0, Dtype::U8)?;
    let plane =
        |place: u8| bytes.right_shift(&Array::scalar(f32::from(2 * place), Dtype::U8)?)?.bitwise_and(&mask);
    let planes = (0..PER_BYTE).map(plane).collect::<mlx::Result<Vec<_>>>()?;
    mlx::concatenate(&planes.iter().collect::<Vec<_>>(), 0)
}
