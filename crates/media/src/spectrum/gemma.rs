//! The log-mel spectrograms of Gemma 3n and Gemma 4.

use super::check_length;
use super::fourier::Fourier;
use super::mel::{MelFilters, Scale};
use crate::audio::Audio;
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};
use crate::processor::{ConfigFiles, Settings};

/// Sound is padded with silence to a multiple of so many samples.
const PADDED_TO: usize = 128;

/// Longest sound, in samples.
pub(super) const SAMPLES_MAX: usize = 480_000;

/// What sets one model apart from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Gemma3n,
    Gemma4,
}

impl Variant {
    /// How many tokens stand for a sound, or how many at most, if a file says so.
    fn tokens(self, files: &ConfigFiles) -> Result<Option<usize>, Error> {
        let prompt = Settings::prompt(files);
        let tokens = prompt.count("audio_seq_length")?;
        Ok(match self {
            // So many features the encoder makes of every sound.
            Self::Gemma3n => tokens.or(prompt.count("audio_soft_tokens_per_image")?),
            Self::Gemma4 => tokens,
        })
    }
}

/// Settings of the feature extractor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gemma {
    pub rate: u32,
    variant: Variant,
    bands: usize,
    frame: usize,
    hop: usize,
    fourier: usize,
    hertz: (f64, f64),
    preemphasis: f32,
    scale: f32,
    floor: f64,
    mean: Option<Vec<f64>>,
    stddev: Option<Vec<f64>>,
    tokens: usize,
}

/// Defaults of a model.
struct Defaults {
    frame_ms: f64,
    hertz: (f64, f64),
    preemphasis: f64,
    overdrive: bool,
    floor: f64,
    tokens: usize,
}

impl Gemma {
    pub fn gemma3n(files: &ConfigFiles) -> Result<Gemma, Error> {
        let defaults = Defaults {
            frame_ms: 32.0,
            hertz: (125.0, 7600.0),
            preemphasis: 0.97,
            overdrive: true,
            floor: 1e-5,
            tokens: 188,
        };
        Gemma::read(files, Variant::Gemma3n, &defaults)
    }

    pub fn gemma4(files: &ConfigFiles) -> Result<Gemma, Error> {
        let defaults = Defaults {
            frame_ms: 20.0,
            hertz: (0.0, 8000.0),
            preemphasis: 0.0,
            overdrive: false,
            floor: 1e-3,
            tokens: 750,
        };
        Gemma::read(files, Variant::Gemma4, &defaults)
    }

    fn read(files: &ConfigFiles, variant: Variant, defaults: &Defaults) -> Result<Gemma, Error> {
        let settings = Settings::audio(files);
        let rate = settings.count("sampling_rate")?.unwrap_or(16_000).min(1 << 20);
        let number = |field, default| Ok::<f64, Error>(settings.number(field)?.unwrap_or(default));
        let samples = |ms: f64| (rate as f64 * ms / 1000.0).round_ties_even().clamp(1.0, 16_384.0) as usize;
        let frame = samples(number("frame_length_ms", defaults.frame_ms)?);
        let overdrive = settings.flag("fft_overdrive")?.unwrap_or(defaults.overdrive);
        let gemma = Gemma {
            rate: rate as u32,
            variant,
            bands: settings.count("feature_size")?.unwrap_or(128),
            frame,
            hop: samples(number("hop_length_ms", 10.0)?),
            fourier: frame.next_power_of_two() << usize::from(overdrive),
            hertz: (number("min_frequency", defaults.hertz.0)?, number("max_frequency", defaults.hertz.1)?),
            preemphasis: number("preemphasis", defaults.preemphasis)? as f32,
            scale: number("input_scale_factor", 1.0)? as f32,
            floor: number("mel_floor", defaults.floor)?,
            mean: settings.numbers("per_bin_mean")?,
            stddev: settings.numbers("per_bin_stddev")?,
            tokens: variant.tokens(files)?.unwrap_or(defaults.tokens),
        };
        gemma.check(&settings)?;
        Ok(gemma)
    }

    fn check(&self, settings: &Settings) -> Result<(), Error> {
        if self.bands > 1024 {
            return Err(settings.wrong("feature_size", "must not be over 1024"));
        }
        if self.hertz.0 < 0.0 || self.hertz.1 <= self.hertz.0 {
            return Err(settings.wrong("max_frequency", "must be more than `min_frequency`"));
        }
        if settings.flag("preemphasis_htk_flavor")? == Some(false) {
            return Err(settings.wrong("preemphasis_htk_flavor", "must be true"));
        }
        let fits = |numbers: &Option<Vec<f64>>| numbers.as_ref().is_none_or(|list| list.len() == self.bands);
        if !fits(&self.mean) || !fits(&self.stddev) {
            return Err(
                settings.wrong("per_bin_mean", "and `per_bin_stddev` must have a number for each band")
            );
        }
        Ok(())
    }

    pub fn audio(&self, audio: &Audio) -> Result<Features, Error> {
        check_length(audio, SAMPLES_MAX)?;
        let real = audio.samples().len();
        // Gemma 4 begins half a frame before the sound.
        let lead = if self.variant == Variant::Gemma4 { self.frame / 2 } else { 0 };
        let length = lead + real.next_multiple_of(PADDED_TO);
        // A frame takes a sample more than it uses.
        let Some(last) = length.checked_sub(self.frame + 1) else {
            return Err(Error::unsuitable("audio", format!("it is shorter than {} samples", self.frame + 1)));
        };
        let frames = last / self.hop + 1;
        let shape = [1, frames, self.bands];
        let mut values = Vec::with_capacity(check_size("audio", &shape)?);
        let is_real = |frame: usize| match self.variant {
            Variant::Gemma3n => frame * self.hop < real,
            Variant::Gemma4 => frame * self.hop + self.frame < lead + real,
        };
        self.append_log_mel(&mut values, audio.samples(), lead, frames);
        if self.variant == Variant::Gemma4 {
            let silent = (0..frames).filter(|frame| !is_real(*frame));
            silent.for_each(|frame| values[frame * self.bands..(frame + 1) * self.bands].fill(0.0));
        }
        let mask: Vec<i64> = (0..frames).map(|frame| i64::from(is_real(frame))).collect();
        let valid = mask.iter().filter(|value| **value == 1).count();
        let tensors = [
            ("input_features", Tensor::f32(&shape, values)),
            ("input_features_mask", Tensor::i64(&[1, frames], mask)),
        ];
        Ok(Features::new(tensors, self.expansion(valid)))
    }

    fn expansion(&self, frames: usize) -> Expansion {
        match self.variant {
            Variant::Gemma4 => {
                // Two convolutions halve the frames, rounding up.
                let rows = frames.div_ceil(2).div_ceil(2).min(self.tokens);
                let mut expansion = Expansion::empty("<|audio|>", "<|audio|>");
                expansion.text("<|audio>").tokens(rows).text("<audio|>");
                expansion
            }
            Variant::Gemma3n => {
                let mut expansion = Expansion::empty("<audio_soft_token>", "<audio_soft_token>");
                expansion.text("\n\n<start_of_audio>").tokens(self.tokens).text("<end_of_audio>\n\n");
                expansion
            }
        }
    }

    /// Appends `[frames, bands]`.
    fn append_log_mel(&self, values: &mut Vec<f32>, samples: &[f32], lead: usize, frames: usize) {
        let bins = self.fourier / 2 + 1;
        let filters = MelFilters::new(Scale::Htk, self.bands, self.hertz, bins, f64::from(self.rate));
        let window: Vec<f32> = (0..self.frame).map(|at| hann(at, self.frame)).collect();
        let mut fourier = Fourier::new(self.fourier);
        let sample = |at: usize| match at.checked_sub(lead) {
            Some(at) => samples.get(at).copied().unwrap_or(0.0) * self.scale,
            None => 0.0,
        };
        let band_value = |band: usize, energy: f64| {
            let energy = match self.variant {
                Variant::Gemma3n => energy.max(self.floor),
                Variant::Gemma4 => energy + self.floor,
            };
            let mean = self.mean.as_ref().and_then(|mean| mean.get(band)).copied().unwrap_or(0.0);
            let stddev = self.stddev.as_ref().and_then(|stddev| stddev.get(band)).copied().unwrap_or(1.0);
            ((energy.ln() - mean) / stddev) as f32
        };
        for frame in 0..frames {
            let start = frame * self.hop;
            let emphasized = |at: usize| match (self.preemphasis, at) {
                (0.0, _) => sample(start + at),
                (share, 0) => sample(start) * (1.0 - share),
                (share, _) => sample(start + at) - share * sample(start + at - 1),
            };
            let windowed = window.iter().enumerate().map(|(at, weight)| f64::from(emphasized(at) * weight));
            let spectrum: Vec<f64> = fourier.bins(windowed).map(|(re, im)| re.hypot(im)).collect();
            let bands = filters.apply(&spectrum).enumerate();
            values.extend(bands.map(|(band, energy)| band_value(band, energy)));
        }
    }
}

/// A periodic Hann window, in float32 as the reference computes it.
fn hann(at: usize, length: usize) -> f32 {
    0.5 * (1.0 - (2.0 * std::f32::consts::PI * at as f32 / length as f32).cos())
}
