//! What models' feature extractors make of sound. Start at [`AudioProcessor::read`] and [`AudioProcessor::audio`].
//!
//! Invariants: an audio processor is plain data, and what it makes follows from its settings and the samples alone.
//! Spectra are computed in float64 and rounded where the reference rounds.

mod fourier;
mod gemma;
mod mel;
mod whisper;

use crate::audio::Audio;
use crate::content::ContentKey;
use crate::error::Error;
use crate::features::Features;
use crate::processor::ConfigFiles;

/// How sound becomes the input of a model's encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioProcessor {
    kind: &'static str,
    recipe: Recipe,
}

/// What there is to do, with its settings.
#[derive(Debug, Clone, PartialEq)]
enum Recipe {
    Whisper(whisper::Whisper),
    Gemma(gemma::Gemma),
}

/// A kind of audio processor.
pub struct AudioKind {
    /// The name of the feature extractor that it computes.
    pub name: &'static str,
    /// Which models use it.
    pub model_types: &'static [&'static str],
    read: fn(&ConfigFiles) -> Result<Recipe, Error>,
}

impl std::fmt::Debug for AudioKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AudioKind").field("name", &self.name).field("model_types", &self.model_types).finish()
    }
}

/// Every kind of audio processor.
pub const AUDIO_KINDS: &[AudioKind] = &[
    AudioKind {
        name: "gemma4",
        model_types: &["gemma4"],
        read: |files| gemma::Gemma::gemma4(files).map(Recipe::Gemma),
    },
    AudioKind {
        name: "gemma3n",
        model_types: &["gemma3n"],
        read: |files| gemma::Gemma::gemma3n(files).map(Recipe::Gemma),
    },
    AudioKind {
        name: "whisper",
        model_types: &["whisper"],
        read: |files| whisper::Whisper::read(files, whisper::Padding::Chunk).map(Recipe::Whisper),
    },
    AudioKind {
        name: "whisper.unpadded",
        model_types: &[],
        read: |files| whisper::Whisper::read(files, whisper::Padding::None).map(Recipe::Whisper),
    },
];

impl AudioProcessor {
    /// The audio processor of a model, by `model_type` of its `config.json`.
    pub fn read(model_type: &str, files: &ConfigFiles) -> Result<AudioProcessor, Error> {
        AudioProcessor::find(model_type, files, |kind| kind.model_types.contains(&model_type))
    }

    /// The audio processor with a name of [`AUDIO_KINDS`].
    pub fn of_kind(name: &str, files: &ConfigFiles) -> Result<AudioProcessor, Error> {
        AudioProcessor::find(name, files, |kind| kind.name == name)
    }

    fn find(
        name: &str,
        files: &ConfigFiles,
        is_it: impl Fn(&&AudioKind) -> bool,
    ) -> Result<AudioProcessor, Error> {
        let row = AUDIO_KINDS.iter().find(is_it);
        let row = row.ok_or_else(|| Error::UnknownProcessor { model_type: crate::error::one_line(name) })?;
        Ok(AudioProcessor { kind: row.name, recipe: (row.read)(files)? })
    }

    /// Its name in [`AUDIO_KINDS`].
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Key of all its settings: equal keys give equal features for equal sound.
    pub fn key(&self) -> ContentKey {
        ContentKey::of_text(&format!("{self:?}"))
    }

    /// The rate that sound must have, in Hz: what [`decode_audio`](crate::decode_audio) is given.
    pub fn rate(&self) -> u32 {
        match &self.recipe {
            Recipe::Whisper(recipe) => recipe.rate,
            Recipe::Gemma(recipe) => recipe.rate,
        }
    }

    /// Most samples of one sound.
    pub fn window_samples(&self) -> usize {
        match &self.recipe {
            Recipe::Whisper(recipe) => recipe.chunk,
            Recipe::Gemma(_) => gemma::SAMPLES_MAX,
        }
    }

    /// The encoder's input for one sound, and the tokens that stand for it. Call it on a worker thread.
    /// Fails when the sound has another rate, or is longer than the encoder takes.
    pub fn audio(&self, audio: &Audio) -> Result<Features, Error> {
        if audio.rate() != self.rate() {
            let detail =
                format!("it has {} samples per second, and the model takes {}", audio.rate(), self.rate());
            return Err(Error::unsuitable("audio", detail));
        }
        match &self.recipe {
            Recipe::Whisper(recipe) => recipe.audio(audio),
            Recipe::Gemma(recipe) => recipe.audio(audio),
        }
    }
}

/// Refuses sound that is longer than `samples`.
fn check_length(audio: &Audio, samples: usize) -> Result<(), Error> {
    if audio.samples().len() <= samples {
        return Ok(());
    }
    let most = samples as f64 / f64::from(audio.rate());
    let detail = format!("it is {:.1} s long, and the model takes {most:.1} s", audio.seconds());
    Err(Error::unsuitable("audio", detail))
}
