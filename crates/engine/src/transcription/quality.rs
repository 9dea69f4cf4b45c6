//! Whether what was written of a window looks right.
//!
//! Source: arXiv 2212.04356 §4.5, with the thresholds of openai/whisper `transcribe.py`.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::WindowQuality;

/// Repeated text compresses more than this.
const COMPRESSION_RATIO_MAX: f32 = 2.4;
/// Tokens are less likely than this on average.
const AVG_LOGPROB_MIN: f32 = -1.0;
/// Silence is more likely than this.
const NO_SPEECH_PROB_MAX: f32 = 0.6;
/// Text of a hotter sampling is no prompt for the next window.
const PROMPT_TEMPERATURE_MAX: f32 = 0.5;

/// Temperatures to try, the first one first. One that a client chooses is the only one.
pub(super) fn temperatures(requested: f32) -> Vec<f32> {
    if requested > 0.0 { vec![requested] } else { vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0] }
}

impl WindowQuality {
    /// Nothing is spoken.
    pub(super) fn is_silent(&self) -> bool {
        self.no_speech_prob > NO_SPEECH_PROB_MAX && self.avg_logprob < AVG_LOGPROB_MIN
    }

    /// Another temperature may give something better.
    pub(super) fn is_doubtful(&self) -> bool {
        let is_wrong = self.compression_ratio > COMPRESSION_RATIO_MAX || self.avg_logprob < AVG_LOGPROB_MIN;
        is_wrong && !self.is_silent()
    }

    /// The next window may continue it.
    pub(super) fn is_continued(&self) -> bool {
        self.temperature <= PROMPT_TEMPERATURE_MAX
    }
}

/// Bytes of a text over those of its compressed form.
pub(super) fn compression_ratio(text: &str) -> f32 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    compressed.map_or(1.0, |compressed| text.len() as f32 / compressed.len().max(1) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_doubtful() {
        let quality = |text: &str| WindowQuality {
            compression_ratio: compression_ratio(text),
            ..WindowQuality::default()
        };
        assert!(quality(&"and so on ".repeat(20)).is_doubtful());
        assert!(!quality("The quick brown fox jumps over the lazy dog.").is_doubtful());
    }

    #[test]
    fn silence_is_not_tried_again() {
        let quality = WindowQuality { avg_logprob: -2.0, no_speech_prob: 0.9, ..WindowQuality::default() };
        assert!(quality.is_silent() && !quality.is_doubtful());
        assert!(WindowQuality { no_speech_prob: 0.1, ..quality }.is_doubtful());
    }
}
