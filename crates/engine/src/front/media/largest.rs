//! The largest content that a model's processors make of one picture, of a video's frames, and of a sound: what the memory of
//! encoders is planned for.

use omnibus_media::{Audio, Clip, Frame, Image, Sampling};
use omnibus_model::Source;

use super::{MediaReader, Pictures, REQUEST_BYTES_MAX, frame_groups, views};
use crate::media::EncoderPixels;

/// Side of the picture that stands for the largest ones, in pixels: 8.3 megapixels, of which two patches of 32-bit numbers
/// for each pixel are as much as a request may have.
const PICTURE_SIDE: u32 = 2_880;
/// Side of the frames of a video, in pixels.
const FRAME_SIDE: u32 = 448;
/// Frames of a video, unless the processor takes fewer.
const FRAMES_MAX: usize = 32;
/// Length of a sound, in seconds.
const SOUND_SECONDS: u32 = 30;

/// Sizes of the largest contents. Zero for a model that has none of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LargestMedia {
    /// Patches of a picture, or of the frames that are encoded at once.
    pub(crate) patches: usize,
    /// Frames of a spectrum.
    pub(crate) frames: usize,
}

impl LargestMedia {
    /// The largest media that a model's processors make.
    pub(crate) fn of(source: &Source) -> Self {
        MediaReader::read(source, None, 0).map_or_else(Self::default, |reader| Self {
            patches: reader.pictures.as_ref().map_or(0, patches),
            frames: reader.audio.as_ref().map_or(0, |processor| {
                let rate = processor.rate();
                let sound = Audio::new(rate, vec![0.0; (rate * SOUND_SECONDS) as usize]);
                let features = sound.and_then(|sound| processor.audio(&sound));
                let spectrum = features.ok().and_then(|features| views::spectrum(features).ok());
                spectrum.map_or(0, |spectrum| spectrum.summary().units as usize)
            }),
        })
    }
}

/// Patches of the largest picture, or of the largest group of frames.
fn patches(pictures: &Pictures) -> usize {
    let patches = |pixels: &EncoderPixels| pixels.patches();
    let picture = white(PICTURE_SIDE).and_then(|image| pictures.processor.image(&image));
    let picture = picture.ok().and_then(|features| views::pixels(features, pictures.patch).ok());
    // A picture that is refused for its size is one of the largest.
    let element_bytes = (3 * pictures.patch * pictures.patch * size_of::<f32>()).max(1);
    let most = REQUEST_BYTES_MAX as usize / element_bytes;
    let of_picture = picture.as_ref().map_or(most, patches);
    let of_video = || {
        let sampling = pictures.processor.sampling()?;
        let frames = match sampling {
            Sampling::Count(most) => most.min(FRAMES_MAX),
            Sampling::Rate { .. } | Sampling::RateInSteps { .. } => FRAMES_MAX,
        };
        let image = white(FRAME_SIDE).ok()?;
        let frame = |index: usize| Frame { image: image.clone(), index, seconds: index as f64 / 2.0 };
        let clip = Clip::new((0..frames).map(frame).collect(), frames, 2.0).ok()?;
        let features = pictures.processor.video(&clip).ok()?;
        let count = features.expansion.features();
        let pixels = views::pixels(features, pictures.patch).ok()?;
        let key = pictures.processor.key();
        let groups = frame_groups::contents(key, key, count, pixels);
        groups.iter().map(|group| patches(&group.pixels)).max()
    };
    of_picture.max(of_video().unwrap_or(0)).min(most)
}

fn white(side: u32) -> Result<Image, omnibus_media::Error> {
    Ok(Image::new(side, side, vec![u8::MAX; 3 * side as usize * side as usize])?)
}
