//! Any bytes as a sound: it ends in finite samples of at most the longest time, or in an error.

#![no_main]

#[path = "../decoders.rs"]
mod decoders;

use libfuzzer_sys::fuzz_target;
use omnibus_media::decode_audio;

const RATE: u32 = 16_000;

fuzz_target!(init: decoders::contain_panics(), |bytes: &[u8]| {
    let limits = decoders::limits();
    if let Ok(audio) = decode_audio(bytes, &limits, RATE) {
        assert!(audio.samples().iter().all(|sample| sample.is_finite()));
        assert!(audio.samples().len() as f64 <= (limits.seconds + 1.0) * f64::from(RATE));
    }
});
