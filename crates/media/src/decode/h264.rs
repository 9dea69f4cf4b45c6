//! H.264 in MP4 and Matroska.
//!
//! Invariant: the container is read twice, first for the times of all packets, so that sampling is decided before a
//! frame is decoded.

use omnibus_picture::Image;
use openh264::decoder::{DecodeOptions, DecodedYUV, Decoder, Flush};
use openh264::formats::YUVSource;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::video::well_known::CODEC_ID_H264;
use symphonia::core::codecs::video::well_known::extra_data::VIDEO_EXTRA_DATA_ID_AVC_DECODER_CONFIG;
use symphonia::core::formats::{FormatReader, TrackType};

use super::audio::{next_packet, open};
use super::format::Format;
use super::keeping::{Keeping, rate_of};
use crate::clip::{Clip, Sampling};
use crate::error::Error;
use crate::limits::Limits;

/// Most packets of a video track.
const PACKETS_MAX: usize = 2_000_000;

/// A video track in H.264.
struct Track {
    id: u32,
    /// Seconds of a tick of its clock.
    tick: f64,
    configuration: Configuration,
}

/// What stands before the first frame.
struct Configuration {
    /// Bytes of the length before each unit.
    length_bytes: usize,
    /// Parameter sets, each after a start code.
    parameters: Vec<u8>,
}

pub(super) fn decode(
    bytes: &[u8],
    format: Format,
    limits: &Limits,
    sampling: &Sampling,
) -> Result<Clip, Error> {
    let name = format.name();
    let mut reader = open(bytes, name)?;
    let track = track(reader.as_ref(), name, limits)?;
    let times = times(reader.as_mut(), &track, name, limits)?;
    let (first, last) = (times.first().copied().unwrap_or(0.0), times.last().copied().unwrap_or(0.0));
    // The last frame is shown as long as the others are on average.
    let shown = (last - first) * times.len() as f64 / (times.len().max(2) - 1) as f64;
    let rate = rate_of(times.len(), shown);
    let mut keeping = Keeping::new(times.len(), rate, sampling, limits)?;
    let mut reader = open(bytes, name)?;
    let mut frames = Frames { times: &times, first, shown: 0 };
    let mut decoder = Decoder::new().map_err(|error| Error::broken(name, error))?;
    let options = || DecodeOptions::new().flush_after_decode(Flush::NoFlush);
    let mut unit = track.configuration.parameters.clone();
    let mut failed = 0usize;
    while let Some(packet) = next_packet(reader.as_mut(), name)? {
        if packet.track_id != track.id || keeping.is_done() {
            continue;
        }
        append_units(&mut unit, &packet.data, track.configuration.length_bytes);
        match decoder.decode_with_options(&unit, options()) {
            Ok(Some(picture)) => frames.take(&picture, &mut keeping)?,
            Ok(None) => {}
            Err(_) => failed += 1,
        }
        unit.clear();
    }
    for picture in decoder.flush_remaining().map_err(|error| Error::broken(name, error))? {
        if !keeping.is_done() {
            frames.take(&picture, &mut keeping)?;
        }
    }
    if failed * 2 > times.len() {
        return Err(Error::broken(name, format!("{failed} of its {} frames are damaged", times.len())));
    }
    keeping.finish(times.len(), rate)
}

fn track(reader: &dyn FormatReader, name: &'static str, limits: &Limits) -> Result<Track, Error> {
    let track = reader.default_track(TrackType::Video).or_else(|| reader.first_track(TrackType::Video));
    let track = track.ok_or(Error::Empty { what: "video", missing: "frames" })?;
    let Some(CodecParameters::Video(parameters)) = &track.codec_params else {
        return Err(Error::broken(name, "its codec is not known"));
    };
    if parameters.codec != CODEC_ID_H264 {
        return Err(Error::Unsupported {
            what: "video",
            found: format!("in a codec other than H.264 in an {name}"),
            supported: super::keeping::SUPPORTED,
        });
    }
    if let (Some(width), Some(height)) = (parameters.width, parameters.height) {
        super::image::check_dimensions("video", u32::from(width), u32::from(height), limits)?;
    }
    let extra = parameters.extra_data.iter().find(|data| data.id == VIDEO_EXTRA_DATA_ID_AVC_DECODER_CONFIG);
    let configuration = extra.and_then(|data| configuration(&data.data));
    let configuration = configuration.ok_or_else(|| Error::broken(name, "it has no H.264 parameters"))?;
    let tick =
        track.time_base.map_or(0.001, |base| f64::from(base.numer.get()) / f64::from(base.denom.get()));
    Ok(Track { id: track.id, tick, configuration })
}

/// The times of all packets, in the order in which frames are shown.
fn times(
    reader: &mut dyn FormatReader,
    track: &Track,
    name: &'static str,
    limits: &Limits,
) -> Result<Vec<f64>, Error> {
    let mut times = Vec::new();
    while let Some(packet) = next_packet(reader, name)? {
        if packet.track_id != track.id {
            continue;
        }
        times.push(packet.pts.get() as f64 * track.tick);
        let seconds = times.last().unwrap_or(&0.0) - times.first().unwrap_or(&0.0);
        if seconds > limits.seconds {
            let (found, most) = (seconds.ceil() as u64, limits.seconds as u64);
            return Err(Error::TooLarge { what: "video", found, most, unit: "seconds" });
        }
        if times.len() > PACKETS_MAX {
            let (found, most) = (times.len() as u64, PACKETS_MAX as u64);
            return Err(Error::TooLarge { what: "video", found, most, unit: "frames" });
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Reads an AVC decoder configuration record.
fn configuration(record: &[u8]) -> Option<Configuration> {
    let length_bytes = usize::from(record.get(4)? & 3) + 1;
    let mut parameters = Vec::new();
    let mut rest = record.get(5..)?;
    for mask in [0x1F, 0xFF] {
        let (count, after) = rest.split_first()?;
        rest = after;
        for _ in 0..count & mask {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (set, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            parameters.extend(START_CODE);
            parameters.extend(set);
            rest = after;
        }
    }
    Some(Configuration { length_bytes, parameters })
}

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Appends the units of a packet, with start codes in place of lengths. What is cut off is left out.
fn append_units(to: &mut Vec<u8>, mut packet: &[u8], length_bytes: usize) {
    while let Some((length, rest)) = packet.split_at_checked(length_bytes) {
        let length = length.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
        let Some((unit, after)) = rest.split_at_checked(length) else { return };
        to.extend(START_CODE);
        to.extend(unit);
        packet = after;
    }
}

/// Decoded pictures, in the order in which they are shown.
struct Frames<'a> {
    times: &'a [f64],
    first: f64,
    shown: usize,
}

impl Frames<'_> {
    fn take(&mut self, picture: &DecodedYUV, keeping: &mut Keeping) -> Result<(), Error> {
        let (width, height) = picture.dimensions();
        let size = (u32::try_from(width).unwrap_or(u32::MAX), u32::try_from(height).unwrap_or(u32::MAX));
        let seconds = self.times.get(self.shown).copied().unwrap_or(self.first) - self.first;
        self.shown += 1;
        if keeping.wants(size.0, size.1)? {
            let mut pixels = vec![0; 3 * width * height];
            picture.write_rgb8(&mut pixels);
            keeping.keep(Image::new(size.0, size.1, pixels)?, seconds);
        }
        Ok(())
    }
}
