//! Any bytes as a video: it ends in at most as many frames as are sampled, or in an error.

#![no_main]

#[path = "../decoders.rs"]
mod decoders;

use libfuzzer_sys::fuzz_target;
use omnibus_media::{Sampling, decode_video};

fuzz_target!(init: decoders::contain_panics(), |bytes: &[u8]| {
    if let Ok(clip) = decode_video(bytes, &decoders::limits(), &Sampling::Count(8), None) {
        assert!(clip.frames().len() <= 8);
    }
});
