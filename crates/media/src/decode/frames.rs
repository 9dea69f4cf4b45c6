//! A list of images as video.

use super::image::decode_image;
use super::keeping::Keeping;
use crate::clip::{Clip, Sampling};
use crate::decode::Alpha;
use crate::error::Error;
use crate::limits::Limits;

/// Decodes those of the images, files in any format, that `sampling` keeps of a video with `rate` frames a second. Of an
/// animation the first frame counts.
pub fn decode_frames<B: AsRef<[u8]>>(
    files: &[B],
    rate: f64,
    limits: &Limits,
    sampling: &Sampling,
) -> Result<Clip, Error> {
    let mut keeping = Keeping::new(files.len(), rate, sampling, limits)?;
    for (frame, file) in files.iter().enumerate() {
        if !keeping.keeps_next() {
            keeping.pass();
            continue;
        }
        let of_frame = |error| Error::Frame { frame, error: Box::new(error) };
        let image = decode_image(file.as_ref(), limits, Alpha::OverWhite).map_err(of_frame)?;
        keeping.wants(image.width(), image.height()).map_err(of_frame)?;
        keeping.keep(image, frame as f64 / rate);
    }
    keeping.finish(files.len(), rate)
}
