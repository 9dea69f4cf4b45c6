//! Any bytes as a picture: it ends in one within its limits, or in an error.

#![no_main]

#[path = "../decoders.rs"]
mod decoders;

use libfuzzer_sys::fuzz_target;
use omnibus_media::{Alpha, decode_image};

fuzz_target!(init: decoders::contain_panics(), |bytes: &[u8]| {
    let limits = decoders::limits();
    if let Ok(image) = decode_image(bytes, &limits, Alpha::OverWhite) {
        assert!(u64::from(image.width()) * u64::from(image.height()) <= limits.pixels);
    }
});
