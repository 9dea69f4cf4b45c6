//! What can be wrong with media, one variant per remedy.
//!
//! Invariant: a message is one line of bounded length, whatever the input holds.

/// Longest part of a message that comes from a decoder or from a file.
const DETAIL_CHARS: usize = 160;

/// Why media cannot be decoded or processed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input is larger than a limit: send less, or raise the limit.
    #[error("the {what} has {found} {unit}, over the limit of {most}")]
    TooLarge {
        /// What is too large: "image", "video", "audio", "file".
        what: &'static str,
        /// How much of it there is.
        found: u64,
        /// How much is allowed.
        most: u64,
        /// What was counted: "pixels", "bytes", "frames".
        unit: &'static str,
    },
    /// The bytes are in no supported format: convert them.
    #[error("the {what} is {found}; supported are {supported}")]
    Unsupported {
        /// What was expected: "image", "video", "audio".
        what: &'static str,
        /// What the bytes are, as far as they tell.
        found: String,
        /// The supported formats.
        supported: &'static str,
    },
    /// The bytes begin as a supported format and are damaged: send them whole.
    #[error("the {format} cannot be decoded: {detail}")]
    Broken {
        /// The format, such as "PNG image".
        format: &'static str,
        /// What the decoder says.
        detail: String,
    },
    /// A text is not base64: encode the file again.
    #[error("the text is not base64: {detail}")]
    NotBase64 {
        /// The first thing that is wrong with it.
        detail: String,
    },
    /// One of the images that are the frames of a video is wrong.
    #[error("frame {frame}: {error}")]
    Frame {
        /// Which one, from 0.
        frame: usize,
        /// What is wrong with it.
        error: Box<Error>,
    },
    /// There is nothing in it: no frames, no samples, no pixels.
    #[error("the {what} has no {missing}")]
    Empty {
        /// "image", "video" or "audio".
        what: &'static str,
        /// "pixels", "frames", "samples" or "bytes".
        missing: &'static str,
    },
    /// The model's processor does not take such a picture, video or sound.
    #[error("the {what} does not suit the model: {detail}")]
    Unsuitable {
        /// "image", "video" or "audio".
        what: &'static str,
        /// Why not.
        detail: String,
    },
    /// A configuration file of the model is wrong.
    #[error("{file}: `{field}` {detail}")]
    Config {
        /// The file that has the field.
        file: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// No processor is known for the model.
    #[error("no image or audio processor is known for the model type `{model_type}`")]
    UnknownProcessor {
        /// `model_type` of `config.json`.
        model_type: String,
    },
    /// The external decoder is missing or failed.
    #[error("ffmpeg, which decodes {format}, {detail}")]
    Ffmpeg {
        /// What it was asked to decode.
        format: String,
        /// What happened.
        detail: String,
    },
}

impl From<omnibus_picture::Error> for Error {
    fn from(error: omnibus_picture::Error) -> Error {
        use omnibus_picture::Error as Picture;
        match error {
            Picture::Empty => Error::Empty { what: "image", missing: "pixels" },
            Picture::WrongSize { .. } => Error::Broken { format: "image", detail: error.to_string() },
            Picture::NothingLeft { .. } => Error::unsuitable("image", error.to_string()),
            Picture::TooLarge { found, most } => {
                Error::TooLarge { what: "resized image", found, most, unit: "pixels" }
            }
        }
    }
}

impl Error {
    pub(crate) fn broken(format: &'static str, detail: impl std::fmt::Display) -> Error {
        Error::Broken { format, detail: one_line(&detail.to_string()) }
    }

    pub(crate) fn unsuitable(what: &'static str, detail: impl Into<String>) -> Error {
        Error::Unsuitable { what, detail: detail.into() }
    }
}

/// A text without control characters, cut after [`DETAIL_CHARS`].
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty());
    let mut line = words.collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(DETAIL_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}
