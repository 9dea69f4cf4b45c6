//! A model's encoders: of pictures, of audio, or of both.

use mlx::Array;
use omnibus_model::encoders::{AudioEncoder, AudioInput, Encoder, EncoderInput, Features, Grid, View};
use omnibus_model::{KernelChoice, Kernels, Source, encoders};

use crate::front::LargestMedia;
use crate::media::{EncoderContent, EncoderPixels, PicturePixels, Spectrum, ViewPixels};

/// The encoders that a model has.
pub(super) struct Encoders {
    pictures: Option<Encoder>,
    audio: Option<AudioEncoder>,
}

impl Encoders {
    /// Loads the encoders whose features the text side of the model takes and whose weights its checkpoint has.
    pub(super) fn load(source: &Source, kernels: Kernels) -> Self {
        let pictures = Encoder::load(source, kernels).unwrap_or_else(|error| {
            tracing::warn!(%error, "the model is served without images");
            None
        });
        let audio = AudioEncoder::load(source, kernels).unwrap_or_else(|error| {
            tracing::warn!(%error, "the model is served without audio");
            None
        });
        Self { pictures, audio }
    }

    /// Uses the GPU kernels that were chosen for the model.
    pub(super) fn use_kernels(&self, choice: &KernelChoice) {
        if let Some(pictures) = &self.pictures {
            pictures.use_kernels(choice.clone());
        }
        if let Some(audio) = &self.audio {
            audio.use_kernels(choice.clone());
        }
    }

    /// Whether there is one of pictures.
    pub(super) fn reads_images(&self) -> bool {
        self.pictures.is_some()
    }

    /// Whether there is one of audio.
    pub(super) fn reads_audio(&self) -> bool {
        self.audio.is_some()
    }

    /// Bytes of intermediate results of the largest content.
    pub(super) fn scratch_bytes(&self, largest: LargestMedia) -> u64 {
        let of_pictures =
            |encoder: &Encoder| encoder.blueprint().scratch_bytes(largest.patches, encoder.dtype().size_of());
        let of_sounds = |encoder: &AudioEncoder| {
            encoder.blueprint().scratch_bytes(largest.frames, encoder.dtype().size_of())
        };
        let (pictures, sounds) =
            (self.pictures.as_ref().map(of_pictures), self.audio.as_ref().map(of_sounds));
        // One content is encoded at a time.
        pictures.unwrap_or(0).max(sounds.unwrap_or(0))
    }

    /// The features of a picture or of a window of sound, lazily, with what each layer makes, in order.
    pub(super) fn encode_in_stages(&self, pixels: &EncoderPixels) -> mlx::Result<(Features, Vec<Array>)> {
        match (pixels.content(), &self.pictures, &self.audio) {
            (EncoderContent::Picture(pixels), Some(encoder), _) => {
                encoder.encode_in_stages(&picture(pixels)?)
            }
            (EncoderContent::Spectrum(spectrum), _, Some(encoder)) => {
                encoder.encode_in_stages(&window(spectrum)?)
            }
            (EncoderContent::Picture(_), None, _) => Err(mlx::Error::new("the model has no image encoder")),
            (EncoderContent::Spectrum(_), _, None) => Err(mlx::Error::new("the model has no audio encoder")),
        }
    }
}

fn picture(pixels: &PicturePixels) -> mlx::Result<EncoderInput> {
    let view = |view: &ViewPixels| {
        let [count, rows, columns] = view.grid;
        Ok(View {
            pixels: Array::from_slice(&view.values, &view.shape)?,
            grid: Grid { count, rows, columns },
        })
    };
    let views = pixels.views.iter().map(view).collect::<mlx::Result<_>>()?;
    Ok(EncoderInput { views, layout: layout(&pixels.layout) })
}

/// Processors and encoders do not know each other.
fn layout(layout: &omnibus_media::Layout) -> encoders::Layout {
    use omnibus_media::Layout::{Canvas, Frames, Pools, Tiles, Views};
    match layout.clone() {
        Views => encoders::Layout::Views,
        Canvas(omnibus_media::Canvas { tiles, shown, resized }) => {
            encoders::Layout::Canvas(encoders::Canvas { tiles, shown, resized })
        }
        Frames(size) => encoders::Layout::Frames(size),
        Tiles { shape, count } => encoders::Layout::Tiles { shape, count },
        Pools { count, rows } => encoders::Layout::Pools { count, rows },
    }
}

fn window(spectrum: &Spectrum) -> mlx::Result<AudioInput> {
    let shape = [spectrum.frames() as i32, spectrum.bands as i32];
    Ok(AudioInput { spectrum: Array::from_slice(&spectrum.values, &shape)?, frames: spectrum.sound })
}
