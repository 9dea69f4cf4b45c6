//! Media as clients send them: files here or at a URL, and lists of frames.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use omnibus_media::{ContentKey, Error, decode_base64};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A media part of a conversation, as the client sent it. What it is says the part that refers to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaItem {
    /// Its field in the API's body, for errors.
    pub field: String,
    /// Where its bytes are.
    pub source: MediaSource,
}

/// Where the bytes of a part are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaSource {
    /// Here: a file in any format that is read.
    Bytes(MediaBytes),
    /// Here, in base64, which is decoded where the file was not seen lately.
    Base64(MediaBytes),
    /// At a URL, which the engine does not fetch: the request is refused.
    Url(String),
    /// Images that are the frames of a video, so many in 1,000 seconds.
    Frames {
        /// None of them has frames itself.
        files: Vec<MediaSource>,
        #[allow(missing_docs)]
        per_1000_s: u32,
    },
}

/// The files of a part.
pub(crate) enum MediaFiles<'a> {
    One(Cow<'a, [u8]>),
    /// Images that are the frames of a video, and how many a second.
    Frames(Vec<Cow<'a, [u8]>>, f64),
}

impl MediaFiles<'_> {
    /// The file, or that of the first frame.
    pub(crate) fn first(&self) -> &[u8] {
        match self {
            Self::One(file) => file,
            Self::Frames(files, _) => files.first().map_or(&[], |file| file),
        }
    }
}

impl MediaSource {
    /// The key of the file as it was sent, which spares the decoding of one that was seen before; `None` for a URL.
    pub(crate) fn key(&self) -> Option<ContentKey> {
        match self {
            Self::Bytes(bytes) => Some(ContentKey::of_bytes(bytes.as_slice())),
            Self::Base64(text) => Some(ContentKey::of_base64(text.as_slice())),
            Self::Url(_) => None,
            Self::Frames { files, per_1000_s } => {
                let keys = files.iter().map(Self::key).collect::<Option<Vec<_>>>()?;
                Some(ContentKey::of_frames(&keys, *per_1000_s))
            }
        }
    }

    /// The files; `None` where one is at a URL.
    pub(crate) fn files(&self) -> Result<Option<MediaFiles<'_>>, Error> {
        let Self::Frames { files, per_1000_s } = self else {
            return Ok(self.file()?.map(MediaFiles::One));
        };
        let frames = files.iter().enumerate().map(|(frame, file)| {
            file.file().map_err(|error| Error::Frame { frame, error: Box::new(error) }).transpose()
        });
        let frames: Option<Result<Vec<_>, Error>> = frames.collect();
        Ok(frames.transpose()?.map(|frames| MediaFiles::Frames(frames, f64::from(*per_1000_s) / 1000.0)))
    }

    /// The one file; `None` for a URL and for frames.
    fn file(&self) -> Result<Option<Cow<'_, [u8]>>, Error> {
        match self {
            Self::Bytes(bytes) => Ok(Some(Cow::Borrowed(bytes.as_slice()))),
            Self::Base64(text) => decode_base64(text.as_slice()).map(|bytes| Some(Cow::Owned(bytes))),
            Self::Url(_) | Self::Frames { .. } => Ok(None),
        }
    }

    /// The source itself, or each of its frames.
    pub fn each_file(&mut self) -> impl Iterator<Item = &mut Self> {
        match self {
            Self::Frames { files, .. } => files.iter_mut(),
            one => std::slice::from_mut(one).iter_mut(),
        }
    }

    /// Bytes of the file, or some more.
    pub(crate) fn file_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.as_slice().len() as u64,
            Self::Base64(text) => text.as_slice().len() as u64 / 4 * 3 + 3,
            Self::Url(_) => 0,
            Self::Frames { files, .. } => files.iter().map(Self::file_bytes).sum(),
        }
    }
}

/// The bytes of a file. Clones share them.
#[derive(Clone, PartialEq, Eq)]
pub struct MediaBytes(Bytes);

impl MediaBytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for MediaBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Bytes> for MediaBytes {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for MediaBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for MediaBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for MediaBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(Self::from)
    }
}
