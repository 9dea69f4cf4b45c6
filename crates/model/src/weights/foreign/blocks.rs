//! gpt-oss's MXFP4: `X_blocks` `[experts, out, groups, 16]` and `X_scales` `[experts, out, groups]`, in bytes.

use mlx::{Dtype, QuantMode, Quantized};

use super::module::{Modules, refused};
use crate::weights::LoadError;

/// Bytes of a group: 32 elements of 4 bits.
const GROUP_BYTES: i32 = 16;

/// Modules with blocks, whose bias is an `X_bias`.
pub(super) fn convert(modules: &mut Modules) -> Result<(), LoadError> {
    for path in modules.ending("_blocks") {
        let Some(blocks) = modules.take_named(&format!("{path}_blocks")) else { continue };
        let Some(scales) = modules.take_named(&format!("{path}_scales")) else {
            return Err(refused(&path, "has no `_scales`, which this format needs".to_owned()));
        };
        let fits = matches!(*blocks.shape(), [.., _, _, GROUP_BYTES])
            && blocks.shape().split_last().is_some_and(|(_, outer)| outer == scales.shape());
        if !fits || blocks.dtype()? != Dtype::U8 {
            return Err(refused(
                &path,
                format!("has blocks {:?} with scales {:?}", blocks.shape(), scales.shape()),
            ));
        }
        let weight = blocks.view(Dtype::U32)?.flatten(-2, -1)?;
        let packed = Quantized { weight, scales, biases: None, group: 32, bits: 4, mode: QuantMode::Mxfp4 };
        modules.put_packed(&path, packed);
        if let Some(bias) = modules.take_named(&format!("{path}_bias")) {
            modules.put(&path, "bias", bias);
        }
    }
    Ok(())
}
