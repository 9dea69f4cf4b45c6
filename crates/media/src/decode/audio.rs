//! Sound of every format: mixed to mono, and resampled while it is decoded.
//!
//! Invariant: memory is that of the result and of one packet; a sound that is too long is refused as soon as it shows.

use std::io::{Cursor, ErrorKind};

use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

use super::format::{Format, describe};
use super::resample::Resampler;
use crate::audio::{Audio, RATES};
use crate::error::Error;
use crate::limits::Limits;

/// Formats of sound, for messages.
const SUPPORTED: &str = "WAV, AIFF, MP3, AAC, FLAC, Ogg Vorbis, MP4/M4A and Matroska/WebM";

/// Most channels that are mixed.
const CHANNELS_MAX: usize = 32;

/// Decodes sound to mono samples at `rate` Hz: the mean of all channels, resampled if the file has another rate.
///
/// Of a container the first audio track counts. Damaged packets are skipped, as players do, unless there are more of
/// them than good ones.
pub fn decode_audio(bytes: &[u8], limits: &Limits, rate: u32) -> Result<Audio, Error> {
    super::check_file("audio", bytes, limits)?;
    let format = Format::of(bytes).filter(|format| has_sound(*format));
    let format = format.ok_or_else(|| Error::Unsupported {
        what: "audio",
        found: describe(bytes),
        supported: SUPPORTED,
    })?;
    super::contained(format.name(), || decode(bytes, format.name(), limits, rate))
}

fn decode(bytes: &[u8], name: &'static str, limits: &Limits, rate: u32) -> Result<Audio, Error> {
    let mut reader = open(bytes, name)?;
    let (track, parameters) = audio_track(reader.as_ref(), name)?;
    let mut decoder = symphonia::default::get_codecs()
        .make_audio_decoder(&parameters, &AudioDecoderOptions::default())
        .map_err(|error| broken(name, &error))?;
    let mut sound = Mix::new(rate, limits)?;
    let (mut good, mut bad) = (0u64, 0u64);
    while let Some(packet) = next_packet(reader.as_mut(), name)? {
        if packet.track_id != track {
            continue;
        }
        match sound.add(decoder.as_mut(), &packet) {
            Ok(()) => good += 1,
            Err(Failure::Packet) => bad += 1,
            Err(Failure::Sound(error)) => return Err(error),
        }
    }
    if bad > good {
        return Err(Error::broken(name, format!("{bad} of its {} packets are damaged", good + bad)));
    }
    sound.finish(name)
}

fn has_sound(format: Format) -> bool {
    match format {
        Format::Wav | Format::Aiff | Format::Flac | Format::Ogg | Format::Mp3 | Format::Adts => true,
        Format::Mp4 | Format::Matroska => true,
        Format::Jpeg | Format::Png | Format::WebP | Format::Gif | Format::Bmp | Format::Tiff => false,
        Format::Avif | Format::Heic => false,
        Format::Avi | Format::MpegTs | Format::MpegPs | Format::Flv | Format::Caf => false,
    }
}

pub(super) fn open<'a>(bytes: &'a [u8], name: &'static str) -> Result<Box<dyn FormatReader + 'a>, Error> {
    let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), MediaSourceStreamOptions::default());
    symphonia::default::get_probe()
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .map_err(|error| broken(name, &error))
}

fn audio_track(reader: &dyn FormatReader, name: &'static str) -> Result<(u32, AudioCodecParameters), Error> {
    let track = reader.default_track(TrackType::Audio).or_else(|| reader.first_track(TrackType::Audio));
    let track = track.ok_or(Error::Empty { what: "audio", missing: "samples" })?;
    match &track.codec_params {
        Some(CodecParameters::Audio(parameters)) => {
            let channels = parameters.channels.as_ref().map_or(1, |channels| channels.count());
            if channels == 0 || channels > CHANNELS_MAX {
                return Err(Error::broken(name, format!("it has {channels} channels")));
            }
            Ok((track.id, parameters.clone()))
        }
        _ => Err(Error::broken(name, "its codec is not known")),
    }
}

pub(super) fn next_packet(
    reader: &mut dyn FormatReader,
    name: &'static str,
) -> Result<Option<symphonia::core::packet::Packet>, Error> {
    match reader.next_packet() {
        Ok(packet) => Ok(packet),
        // A file that was cut has the sound until then.
        Err(SymphoniaError::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        // Another stream follows in a chained file.
        Err(SymphoniaError::ResetRequired) => Ok(None),
        Err(error) => Err(broken(name, &error)),
    }
}

fn broken(name: &'static str, error: &SymphoniaError) -> Error {
    match error {
        SymphoniaError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Error::broken(name, "it ends too early")
        }
        other => Error::broken(name, other),
    }
}

/// Why a packet adds nothing.
enum Failure {
    /// It is damaged.
    Packet,
    /// The sound as a whole is refused.
    Sound(Error),
}

/// Sound while it is decoded.
struct Mix {
    rate: u32,
    seconds: f64,
    source_rate: Option<u32>,
    frames: u64,
    resampler: Option<Resampler>,
    samples: Vec<f32>,
    interleaved: Vec<f32>,
    mono: Vec<f32>,
}

impl Mix {
    fn new(rate: u32, limits: &Limits) -> Result<Mix, Error> {
        if !RATES.contains(&rate) {
            return Err(Error::unsuitable("audio", format!("a rate of {rate} Hz cannot be made")));
        }
        Ok(Mix {
            rate,
            seconds: limits.seconds,
            source_rate: None,
            frames: 0,
            resampler: None,
            samples: Vec::new(),
            interleaved: Vec::new(),
            mono: Vec::new(),
        })
    }

    fn add(
        &mut self,
        decoder: &mut dyn AudioDecoder,
        packet: &symphonia::core::packet::Packet,
    ) -> Result<(), Failure> {
        let buffer = match decoder.decode(packet) {
            Ok(buffer) => buffer,
            Err(SymphoniaError::DecodeError(_) | SymphoniaError::IoError(_)) => return Err(Failure::Packet),
            Err(error) => return Err(Failure::Sound(Error::broken("sound", error))),
        };
        let (rate, channels) = (buffer.spec().rate(), buffer.spec().channels().count());
        if channels == 0 || channels > CHANNELS_MAX {
            return Err(Failure::Sound(Error::broken("sound", format!("it has {channels} channels"))));
        }
        self.begin(rate).map_err(Failure::Sound)?;
        self.frames += buffer.frames() as u64;
        let seconds = self.frames as f64 / f64::from(rate);
        if seconds > self.seconds {
            let (found, most) = (seconds.ceil() as u64, self.seconds as u64);
            let error = Error::TooLarge { what: "audio", found, most, unit: "seconds" };
            return Err(Failure::Sound(error));
        }
        buffer.copy_to_vec_interleaved(&mut self.interleaved);
        self.mono.clear();
        let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
        self.mono.extend(self.interleaved.chunks_exact(channels).map(mean));
        if !self.mono.iter().all(|sample| sample.is_finite()) {
            return Err(Failure::Sound(Error::broken("sound", "it has samples that are not numbers")));
        }
        match &mut self.resampler {
            Some(resampler) => resampler.push(&self.mono, &mut self.samples).map_err(Failure::Sound),
            None => {
                self.samples.extend(&self.mono);
                Ok(())
            }
        }
    }

    /// Sets up for the rate of the first packet, which all others must have.
    fn begin(&mut self, rate: u32) -> Result<(), Error> {
        match self.source_rate {
            Some(known) if known == rate => return Ok(()),
            Some(_) => return Err(Error::broken("sound", "its rate changes")),
            None => {}
        }
        if !RATES.contains(&rate) {
            return Err(Error::broken("sound", format!("its rate of {rate} Hz is out of bounds")));
        }
        self.source_rate = Some(rate);
        self.resampler = (rate != self.rate).then(|| Resampler::new(rate, self.rate)).transpose()?;
        Ok(())
    }

    fn finish(mut self, name: &'static str) -> Result<Audio, Error> {
        if let Some(resampler) = self.resampler {
            resampler.finish(&mut self.samples)?;
        }
        if self.samples.is_empty() {
            return Err(Error::broken(name, "it has no samples"));
        }
        Audio::new(self.rate, self.samples)
    }
}
