//! Rescaling and normalization of 8-bit levels, as a table: a level has one value per channel.
//!
//! Invariant: the table has the float32 values of the reference, to the last bit.

use omnibus_picture::CHANNELS;

use super::settings::Settings;
use crate::error::Error;

/// In which precision a reference computes. They differ in the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Times the factor in float64, rounded to float32; then float32. Transformers with Pillow.
    Float64,
    /// All in float32, times the factor. mlx-vlm.
    Float32,
    /// Divided by 255 in float32; then float32. mlx-vlm's internvl, llama4, kimi_vl.
    Divide,
    /// Divided by 255 in float32; then float64. mlx-vlm's phi3_v.
    DivideFloat64,
    /// All in float64, divided by 255. mlx-vlm's paddleocr_vl.
    AllFloat64,
}

/// The value of each level of each channel.
#[derive(Clone, PartialEq)]
pub(crate) struct Levels {
    table: Vec<[f32; 256]>,
}

impl std::fmt::Debug for Levels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The ends tell one table from another: each channel is linear.
        let ends = self.table.iter().map(|channel| (channel[0].to_bits(), channel[255].to_bits()));
        f.debug_list().entries(ends).finish()
    }
}

/// What a processor does where its config says nothing.
pub(crate) struct Defaults {
    pub normalize: bool,
    pub mean: [f64; CHANNELS],
    pub std: [f64; CHANNELS],
}

pub(crate) const CLIP: Defaults = Defaults {
    normalize: true,
    mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
    std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
};
pub(crate) const HALF: Defaults = Defaults { normalize: true, mean: [0.5; 3], std: [0.5; 3] };
pub(crate) const IMAGENET: Defaults =
    Defaults { normalize: true, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
pub(crate) const PLAIN: Defaults = Defaults { normalize: false, mean: [0.0; 3], std: [1.0; 3] };

impl Levels {
    /// Reads `do_rescale`, `rescale_factor`, `do_normalize`, `image_mean` and `image_std`.
    pub fn read(settings: &Settings, defaults: &Defaults, arithmetic: Arithmetic) -> Result<Levels, Error> {
        let rescale = settings.flag("do_rescale")?.unwrap_or(true);
        let factor = if rescale { settings.number("rescale_factor")?.unwrap_or(1.0 / 255.0) } else { 1.0 };
        let normalize = settings.flag("do_normalize")?.unwrap_or(defaults.normalize);
        let mean = settings.channels("image_mean")?.unwrap_or(defaults.mean);
        let std = settings.channels("image_std")?.unwrap_or(defaults.std);
        if normalize && std.contains(&0.0) {
            return Err(settings.wrong("image_std", "must not be 0"));
        }
        let (mean, std) = if normalize { (mean, std) } else { ([0.0; CHANNELS], [1.0; CHANNELS]) };
        let table = (0..CHANNELS).map(|channel| table(factor, mean[channel], std[channel], arithmetic));
        Ok(Levels { table: table.collect() })
    }

    /// The value of a level in a channel.
    pub fn value(&self, channel: usize, level: u8) -> f32 {
        self.table[channel][usize::from(level)]
    }

    /// The table of a channel.
    pub fn channel(&self, channel: usize) -> &[f32; 256] {
        &self.table[channel]
    }
}

fn table(factor: f64, mean: f64, std: f64, arithmetic: Arithmetic) -> [f32; 256] {
    std::array::from_fn(|level| {
        let level = level as f64;
        let (mean32, std32) = (mean as f32, std as f32);
        match arithmetic {
            Arithmetic::Float64 => ((level * factor) as f32 - mean32) / std32,
            Arithmetic::Float32 => (level as f32 * factor as f32 - mean32) / std32,
            Arithmetic::Divide => (level as f32 / 255.0 - mean32) / std32,
            Arithmetic::AllFloat64 => ((level / 255.0 - mean) / std) as f32,
            Arithmetic::DivideFloat64 => ((f64::from(level as f32 / 255.0) - mean) / std) as f32,
        }
    })
}
