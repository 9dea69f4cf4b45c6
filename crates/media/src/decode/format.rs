//! Which format bytes are in, by their first bytes.

/// A format of pictures, video or sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG, also animated.
    Png,
    /// WebP, also animated.
    WebP,
    /// GIF, also animated.
    Gif,
    /// Windows bitmap.
    Bmp,
    /// TIFF.
    Tiff,
    /// AVIF.
    Avif,
    /// HEIC and other HEIF.
    Heic,
    /// MP4, MOV and M4A.
    Mp4,
    /// Matroska and WebM.
    Matroska,
    /// AVI.
    Avi,
    /// MPEG transport stream.
    MpegTs,
    /// MPEG program stream.
    MpegPs,
    /// Flash video.
    Flv,
    /// WAV.
    Wav,
    /// AIFF.
    Aiff,
    /// FLAC.
    Flac,
    /// Ogg with Vorbis, FLAC or Opus.
    Ogg,
    /// MP3.
    Mp3,
    /// AAC in ADTS.
    Adts,
    /// Apple's CAF.
    Caf,
}

/// Beginnings, with the offset at which they stand. The first that matches counts.
const MAGIC: &[(usize, &[u8], Format)] = &[
    (0, b"\xFF\xD8\xFF", Format::Jpeg),
    (0, b"\x89PNG\r\n\x1A\n", Format::Png),
    (0, b"GIF87a", Format::Gif),
    (0, b"GIF89a", Format::Gif),
    (0, b"II*\0", Format::Tiff),
    (0, b"MM\0*", Format::Tiff),
    (0, b"\x1A\x45\xDF\xA3", Format::Matroska),
    (0, b"FLV\x01", Format::Flv),
    (0, b"\0\0\x01\xBA", Format::MpegPs),
    (0, b"fLaC", Format::Flac),
    (0, b"OggS", Format::Ogg),
    (0, b"caff", Format::Caf),
    (0, b"ID3", Format::Mp3),
];

/// Kinds of RIFF and of IFF files, at offset 8.
const RIFF: &[(&[u8], Format)] = &[(b"WEBP", Format::WebP), (b"WAVE", Format::Wav), (b"AVI ", Format::Avi)];
const FORM: &[(&[u8], Format)] = &[(b"AIFF", Format::Aiff), (b"AIFC", Format::Aiff)];

/// Bytes between the beginnings of packets of a transport stream.
const TS_PACKET: usize = 188;

impl Format {
    /// The format that bytes begin as.
    pub fn of(bytes: &[u8]) -> Option<Format> {
        let starts = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|bytes| bytes.starts_with(magic));
        let plain = MAGIC.iter().find(|(at, magic, _)| starts(*at, magic)).map(|(_, _, format)| *format);
        let inner = |kinds: &[(&[u8], Format)]| {
            kinds.iter().find(|(magic, _)| starts(8, magic)).map(|(_, format)| *format)
        };
        plain
            .or_else(|| starts(0, b"RIFF").then(|| inner(RIFF)).flatten())
            .or_else(|| starts(0, b"FORM").then(|| inner(FORM)).flatten())
            .or_else(|| starts(4, b"ftyp").then(|| brand(bytes)))
            .or_else(|| {
                (starts(4, b"moov") || starts(4, b"mdat") || starts(4, b"wide")).then_some(Format::Mp4)
            })
            .or_else(|| mpeg_audio(bytes))
            .or_else(|| (starts(0, b"G") && starts(TS_PACKET, b"G")).then_some(Format::MpegTs))
            .or_else(|| (starts(0, b"BM") && bytes.len() >= 26).then_some(Format::Bmp))
    }

    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG image",
            Format::Png => "PNG image",
            Format::WebP => "WebP image",
            Format::Gif => "GIF image",
            Format::Bmp => "BMP image",
            Format::Tiff => "TIFF image",
            Format::Avif => "AVIF image",
            Format::Heic => "HEIC image",
            Format::Mp4 => "MP4 file",
            Format::Matroska => "Matroska file",
            Format::Avi => "AVI file",
            Format::MpegTs => "MPEG transport stream",
            Format::MpegPs => "MPEG program stream",
            Format::Flv => "FLV file",
            Format::Wav => "WAV sound",
            Format::Aiff => "AIFF sound",
            Format::Flac => "FLAC sound",
            Format::Ogg => "Ogg sound",
            Format::Mp3 => "MP3 sound",
            Format::Adts => "AAC sound",
            Format::Caf => "CAF sound",
        }
    }
}

/// The kind of an ISO base media file, by its major brand and the ones that it says are compatible.
fn brand(bytes: &[u8]) -> Format {
    let brands = bytes.get(8..64.min(bytes.len())).unwrap_or_default();
    let has =
        |wanted: &[&[u8]]| wanted.iter().any(|brand| brands.chunks_exact(4).any(|other| other == *brand));
    let major = brands.get(..4).unwrap_or_default();
    match major {
        b"avif" | b"avis" => Format::Avif,
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" => Format::Heic,
        b"mif1" | b"msf1" if has(&[b"avif", b"avis"]) => Format::Avif,
        b"mif1" | b"msf1" => Format::Heic,
        _ => Format::Mp4,
    }
}

/// MP3 and AAC without a container begin with 11 set bits.
fn mpeg_audio(bytes: &[u8]) -> Option<Format> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let layer = (second >> 1) & 3;
    match first == 0xFF && second & 0xE0 == 0xE0 {
        true if second & 0xF6 == 0xF0 => Some(Format::Adts),
        true if layer != 0 && (second >> 3) & 3 != 1 => Some(Format::Mp3),
        _ => None,
    }
}

/// What bytes of no supported format are, as far as they tell.
pub(super) fn describe(bytes: &[u8]) -> String {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"%PDF", "a PDF file"),
        (b"PK\x03\x04", "a ZIP file"),
        (b"\x1F\x8B", "a gzip file"),
        (b"<svg", "an SVG file"),
        (b"<?xml", "an XML file"),
        (b"<!DOCTYPE", "an HTML page"),
        (b"<!doctype", "an HTML page"),
        (b"<html", "an HTML page"),
        (b"{", "JSON or other text"),
        (b"\xFF\x0A", "a JPEG XL image"),
        (b"\0\0\0\x0CJXL ", "a JPEG XL image"),
        (b"\0\0\0\x0CjP  ", "a JPEG 2000 image"),
        (b"8BPS", "a Photoshop file"),
        (b"\0\0\x01\0", "an icon"),
    ];
    if let Some(format) = Format::of(bytes) {
        return format!("a {}", format.name())
            .replace("a A", "an A")
            .replace("a M", "an M")
            .replace("a H", "an H");
    }
    let known = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| "of no known format".to_owned())
}
