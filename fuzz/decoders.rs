//! What the targets for media share: limits, and what a panic of a decoder of another project means.

use omnibus_media::Limits;

/// Small enough that a run takes milliseconds.
pub fn limits() -> Limits {
    Limits {
        pixels: 1 << 20,
        clip_pixels: 4 << 20,
        decoded_pixels: 32 << 20,
        seconds: 60.0,
        ..Limits::default()
    }
}

/// Panics that `omnibus_media` catches are results, as in the server: such a file is refused. libFuzzer's own hook would
/// abort at them. One that is not caught still ends the run.
pub fn contain_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
