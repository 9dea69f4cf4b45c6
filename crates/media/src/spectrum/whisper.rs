//! Whisper's log-mel spectrogram.

use super::check_length;
use super::fourier::Fourier;
use super::mel::{MelFilters, Scale};
use crate::audio::Audio;
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};
use crate::processor::{ConfigFiles, Settings};

/// Least energy of a band.
const FLOOR: f64 = 1e-10;

/// How far below the loudest band values may be, in powers of ten.
const RANGE: f32 = 8.0;

/// Highest frequency of the bands.
const HERTZ_MAX: f64 = 8000.0;

/// What sound is padded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    /// A whole chunk, 30 s.
    Chunk,
    /// Nothing.
    None,
}

/// Settings of the feature extractor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Whisper {
    pub rate: u32,
    bands: usize,
    hop: usize,
    window: usize,
    pub chunk: usize,
    padding: Padding,
}

impl Whisper {
    pub fn read(files: &ConfigFiles, padding: Padding) -> Result<Whisper, Error> {
        let settings = Settings::audio(files);
        let rate = settings.count("sampling_rate")?.unwrap_or(16_000);
        let seconds = settings.count("chunk_length")?.unwrap_or(30);
        let whisper = Whisper {
            rate: rate as u32,
            bands: settings.count("feature_size")?.unwrap_or(80),
            hop: settings.count("hop_length")?.unwrap_or(160),
            window: settings.count("n_fft")?.unwrap_or(400),
            chunk: seconds.saturating_mul(rate),
            padding,
        };
        if whisper.window % 2 == 1 || whisper.window > 1 << 14 {
            return Err(settings.wrong("n_fft", "must be an even number up to 16384"));
        }
        if whisper.bands > 1024 {
            return Err(settings.wrong("feature_size", "must not be over 1024"));
        }
        if whisper.chunk > 1 << 26 {
            return Err(settings.wrong("chunk_length", "is too long"));
        }
        Ok(whisper)
    }

    pub fn audio(&self, audio: &Audio) -> Result<Features, Error> {
        check_length(audio, self.chunk)?;
        let real = audio.samples().len();
        let length = if self.padding == Padding::Chunk { self.chunk } else { real };
        let frames = length / self.hop;
        if frames == 0 {
            return Err(Error::unsuitable("audio", format!("it has less than {} samples", self.hop)));
        }
        let shape = [1, self.bands, frames];
        check_size("audio", &shape)?;
        let values = self.log_mel(audio.samples(), length, frames);
        let mask = (0..frames).map(|frame| i64::from(frame * self.hop < real)).collect();
        let tensors = [
            ("input_features", Tensor::f32(&shape, values)),
            ("attention_mask", Tensor::i64(&[1, frames], mask)),
        ];
        // The features enter by cross attention.
        Ok(Features::new(tensors, Expansion::empty("", "")))
    }

    /// `[bands, frames]`.
    fn log_mel(&self, samples: &[f32], length: usize, frames: usize) -> Vec<f32> {
        let bins = self.window / 2 + 1;
        let filters =
            MelFilters::new(Scale::Slaney, self.bands, (0.0, HERTZ_MAX), bins, f64::from(self.rate));
        let window: Vec<f64> = (0..self.window).map(|at| hann(at, self.window)).collect();
        let mut fourier = Fourier::new(self.window);
        let mut values = vec![0.0f32; self.bands * frames];
        let half = (self.window / 2) as i64;
        for frame in 0..frames {
            let start = (frame * self.hop) as i64 - half;
            let sample = |at: usize| {
                let at = reflect(start + at as i64, length);
                f64::from(samples.get(at).copied().unwrap_or(0.0))
            };
            let windowed = window.iter().enumerate().map(|(at, weight)| sample(at) * weight);
            // The reference keeps spectra in complex64.
            let power = |(re, im): (f64, f64)| {
                let (re, im) = (f64::from(re as f32), f64::from(im as f32));
                re.hypot(im).powi(2)
            };
            let spectrum: Vec<f64> = fourier.bins(windowed).map(power).collect();
            for (band, energy) in filters.apply(&spectrum).enumerate() {
                values[band * frames + frame] = energy.max(FLOOR).log10() as f32;
            }
        }
        let loudest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for value in &mut values {
            *value = (value.max(loudest - RANGE) + 4.0) / 4.0;
        }
        values
    }
}

/// A periodic Hann window, as numpy's: a symmetric one that is a sample longer.
fn hann(at: usize, length: usize) -> f64 {
    let from_centre = 2.0 * at as f64 - length as f64;
    0.5 + 0.5 * (std::f64::consts::PI * from_centre / length as f64).cos()
}

/// The sample that stands for one beyond the ends, which mirror the sound without repeating the end.
fn reflect(at: i64, length: usize) -> usize {
    let last = length as i64 - 1;
    if last <= 0 {
        return 0;
    }
    let at = at.rem_euclid(2 * last);
    (if at > last { 2 * last - at } else { at }) as usize
}
