//! Any bytes as a picture, a video and a sound: each ends in a result or an error, within its limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use omnibus_media::{Alpha, Limits, Sampling, decode_audio, decode_image, decode_video};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        pixels: 1 << 20,
        clip_pixels: 4 << 20,
        decoded_pixels: 32 << 20,
        seconds: 60.0,
        ..Limits::default()
    };
    if let Ok(image) = decode_image(bytes, &limits, Alpha::OverWhite) {
        assert!(u64::from(image.width()) * u64::from(image.height()) <= limits.pixels);
    }
    if let Ok(clip) = decode_video(bytes, &limits, &Sampling::Count(8), None) {
        assert!(clip.frames().len() <= 8);
    }
    if let Ok(audio) = decode_audio(bytes, &limits, 16_000) {
        assert!(audio.samples().iter().all(|sample| sample.is_finite()));
    }
});
