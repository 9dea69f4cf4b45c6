//! Messages on a socket: the length in four bytes, little-endian, then postcard.

use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::{Command, Ready, Report};
use crate::settings::Settings;

/// Larger than any message: a prompt of a million tokens is about four megabytes.
const BYTES_MAX: u32 = 1 << 28;

/// From the front to the engine process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToEngine {
    /// Load a model. The first message, and only that.
    Start(Box<Start>),
    /// A command to the loop.
    Command(Command),
}

/// The first message to an engine process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) source: SourceName,
    pub(crate) settings: Settings,
}

/// Where a model is. Files compiled into the binary are in the engine process's binary, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SourceName {
    Directory(PathBuf),
    Embedded,
}

/// From the engine process to the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum FromEngine {
    /// Its model is loaded.
    Ready(Box<Ready>),
    /// It cannot start; the process ends.
    Refused(String),
    /// A report of the loop.
    Report(Box<Report>),
}

/// Small messages are written together; what is larger in a message, as pixels are, is written from where it lies.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes messages.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, messages: &[T]) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, to);
    for message in messages {
        let length = serialize_with_flavor(message, Size::default()).map_err(io::Error::other)?;
        let length = u32::try_from(length).ok().filter(|length| *length <= BYTES_MAX);
        let length =
            length.ok_or_else(|| io::Error::other(format!("a message is over {BYTES_MAX} bytes")))?;
        to.write_all(&length.to_le_bytes())?;
        let mut result = Ok(());
        let written = serialize_with_flavor(message, Stream { to: &mut to, result: &mut result });
        // What the socket said comes before what postcard makes of it.
        result.and(written.map_err(io::Error::other))?;
    }
    to.flush()
}

/// Writes what is serialized.
struct Stream<'a, W> {
    to: &'a mut W,
    result: &'a mut io::Result<()>,
}

impl<W: Write> Flavor for Stream<'_, W> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        *self.result = self.to.write_all(bytes);
        self.result.as_ref().map_err(|_| postcard::Error::SerializeBufferFull).copied()
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Reads one message; `None` when the other side has closed the socket, even inside a message.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if !fill(from, &mut length)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length);
    if length > BYTES_MAX {
        return Err(io::Error::other(format!("a message of {length} bytes is over {BYTES_MAX}")));
    }
    let mut bytes = vec![0; length as usize];
    if !fill(from, &mut bytes)? {
        return Ok(None);
    }
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}

/// False when there is no more.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if is_hang_up(error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_hang_up(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use omnibus_core::Request;

    use super::*;
    use crate::alignment::{AlignedTokens, Alignment};
    use crate::error::Failure;
    use crate::hidden::{HiddenPositions, HiddenStates};
    use crate::media::{EncoderPixels, GridSpan, JobMedia, MediaKey, ViewPixels};
    use crate::message::{
        Answer, Job, JobId, JobReport, JobUpdate, QueryId, QueryReply, StatsReport, TokenLogprobs,
    };
    use crate::request::Sampling;
    use crate::settings::NamedAdapter;
    use crate::speculation::Speculation;
    use crate::stats::{SchedulerStats, SessionStats, Stats};

    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(messages: Vec<T>) {
        let mut bytes = Vec::new();
        write(&mut bytes, &messages).unwrap();
        let mut rest = bytes.as_slice();
        for message in &messages {
            assert_eq!(read(&mut rest).unwrap().as_ref(), Some(message));
        }
        assert_eq!(read::<T>(&mut rest).unwrap(), None);
        // A message cut short was not sent.
        for cut in 1..4 {
            let mut part = &bytes[..bytes.len() - cut];
            let whole = std::iter::from_fn(|| read::<T>(&mut part).unwrap()).count();
            assert_eq!(whole, messages.len() - 1);
        }
    }

    /// A job with a value in every field that crosses, and the pixels of its picture, which do not cross with it.
    fn job() -> (Job, MediaKey, EncoderPixels) {
        let sampling =
            Sampling { logit_bias: [(3, -1.5)].into(), seed: Some(u64::MAX), ..Sampling::default() };
        let view = ViewPixels { shape: vec![1, 2], values: vec![0.5, -1.0], grid: [1, 1, 1] };
        let (key, pixels) = (MediaKey::new(&[3; 32], u128::MAX), EncoderPixels::new(vec![view]));
        let media = JobMedia::of(key, std::iter::once(1..2).collect(), pixels.clone());
        let grids = vec![GridSpan { first: 1, frames: 1, rows: 1, columns: 1 }];
        let media = JobMedia { grids, pixels: None, ..media };
        let job = Job {
            id: JobId(7),
            request: Request {
                priority: -3,
                adapter: u128::MAX - 1,
                cache_salt: u128::MAX,
                session: Some(4),
                boundaries: vec![1, 3],
                history: 1..2,
                ..Request::new(vec![1, 2, 300_000, 9], 5)
            },
            prompt: 3,
            sampling,
            stop_tokens: vec![0],
            min_tokens: 0,
            xtc_kept: Vec::new(),
            dry_breakers: Vec::new(),
            logprobs: Some(2),
            logprob_token_ids: vec![8],
            prompt_logprobs: None,
            logprob_start: 2,
            alignment: Some(Alignment { heads: vec![(1, 2)], frames: 3 }),
            hidden: Some(HiddenPositions::Last),
            token_logits: vec![7],
            unattended: 1,
            grammar: None,
            speculation: Speculation::Off,
            progress: crate::request::ProgressReports::On,
            prediction: vec![5, 6],
            media: vec![media],
            timeout_s: Some(0.25),
        };
        (job, key, pixels)
    }

    #[test]
    fn messages_to_the_engine_round_trip() {
        let (job, key, pixels) = job();
        let settings = Settings { chat_template: Some("{{ a }}".into()), ..Settings::default() };
        let start = Start { source: SourceName::Directory("a/b".into()), settings };
        check(vec![
            ToEngine::Start(Box::new(start)),
            ToEngine::Command(Command::Submit(Box::new(job))),
            ToEngine::Command(Command::Cancel(JobId(1))),
            ToEngine::Command(Command::Pixels(JobId(7), key, pixels)),
            ToEngine::Command(Command::LoadAdapter(QueryId(2), NamedAdapter::new("a", "b/c"))),
            ToEngine::Command(Command::UnloadAdapter(u128::MAX)),
        ]);
    }

    #[test]
    fn messages_from_the_engine_round_trip() {
        let token =
            TokenLogprobs { token: 5, logprob: Some(-0.5), top: vec![(5, -0.5), (6, f32::NEG_INFINITY)] };
        let report = |update| JobReport { job: JobId(3), update };
        let (_, key, _) = job();
        let jobs = vec![
            report(JobUpdate::Started {
                cached_tokens: 32,
                history_changed_at: Some(7),
                media: Default::default(),
            }),
            report(JobUpdate::Hidden(HiddenStates { first: 2, width: 2, values: vec![0.5, -1.0] })),
            report(JobUpdate::Alignment(AlignedTokens { first: 4, weights: vec![0.25, f32::MIN_POSITIVE] })),
            report(JobUpdate::Token(token)),
            report(JobUpdate::Failed(Failure::Busy { retry_after_s: 2 })),
        ];
        let scheduler = SchedulerStats { queued: 3, ..SchedulerStats::default() };
        let stats = Stats { scheduler, wait_seconds_total: 0.5, ..Stats::default() };
        let stats = Some(Box::new(StatsReport { stats, steps: Vec::new() }));
        let session = SessionStats { session: u128::MAX, tokens: 3, blocks: 1, idle_s: 0.5 };
        let answers = [Answer::Sessions(vec![session]), Answer::Adapter(Err("no".into()))];
        let replies = answers.into_iter().map(|answer| QueryReply { query: QueryId(7), answer }).collect();
        check(vec![
            FromEngine::Refused("no".into()),
            FromEngine::Report(Box::new(Report {
                jobs,
                stats,
                replies,
                requested_pixels: vec![(JobId(7), key)],
            })),
        ]);
    }

    #[test]
    fn what_the_socket_says_is_the_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        // One that is buffered, and one that is not.
        for bytes in [1, 2 * BUFFER_BYTES] {
            let error = write(&mut Closed, &[FromEngine::Refused("x".repeat(bytes))]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn invalid_bytes_are_an_error_and_not_a_panic() {
        assert!(read::<FromEngine>(&mut [255u8; 9].as_slice()).is_err());
        assert!(read::<FromEngine>(&mut [1u8, 0, 0, 0, 200].as_slice()).is_err());
    }
}
