//! Images, video and audio for multimodal models: decoded within limits, and preprocessed as the models' processors do.
//!
//! Start at [`Processor::read`], which turns a model's config files into a processor, and [`Processor::image`], which
//! turns a picture into an encoder's input and says which tokens stand for it in a prompt. [`AudioProcessor`] does the
//! same for sound. [`decode_image`], [`decode_video`] and [`decode_audio`] read files.
//!
//! Invariants: no arrays, no HTTP, no async, and of the crates of the workspace `omnibus-picture` alone.
//! Media and the files of a model are untrusted: what they cost is limited before memory is allocated, and what is wrong
//! with them is an [`Error`] of one line. Equal input gives equal output, bit for bit, on every machine.

mod audio;
mod clip;
mod content;
mod decode;
mod error;
mod features;
mod limits;
mod processor;
mod spectrum;

pub use audio::Audio;
pub use clip::{Clip, Frame, Sampling};
pub use content::ContentKey;
pub use decode::{
    Alpha, Ffmpeg, Format, decode_audio, decode_base64, decode_frames, decode_image, decode_video,
};
pub use error::Error;
pub use features::{Canvas, Elements, Expansion, Features, Grid, Layout, Piece, Tensor};
pub use limits::Limits;
pub use omnibus_picture::{Filter, Image, PassOrder, resize};
pub use processor::{ConfigFiles, KINDS, Kind, Processor, Size, SmartResize, smart_resize};
pub use spectrum::{AUDIO_KINDS, AudioKind, AudioProcessor};
