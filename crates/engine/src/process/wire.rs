//! The messages between the front and an engine process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use crate::frames::{read, write};
use crate::load_progress::LoadProgress;
use crate::message::{Command, Ready, Report};
use crate::settings::Settings;
use crate::worker::FollowerStart;

/// From the front to the engine process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToEngine {
    /// Load a model. The first message, and only that.
    Start(Box<Start>),
    /// Load a part of a model, and follow the process with the first part. The first message, and only that.
    Follow(SourceName, Box<FollowerStart>),
    /// A command to the loop.
    Command(Command),
}

/// The first message to an engine process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) source: SourceName,
    pub(crate) settings: Settings,
    /// How long another rank may be silent.
    pub(crate) watchdog: Duration,
    /// The model's name for log lines; `None` in a server of one model.
    pub(crate) label: Option<String>,
    /// Added to the environment of other ranks, as to the process's own.
    pub(crate) variables: Vec<(OsString, OsString)>,
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
    /// Its model is being loaded, and is so far.
    Loading(LoadProgress),
    /// It cannot start; the process ends.
    Refused(String),
    /// A report of the loop.
    Report(Box<Report>),
}

#[cfg(test)]
mod tests {
    use omnibus_core::{HeldBlocks, Request};

    use std::io::{self, Write};

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::alignment::{AlignedTokens, Alignment};
    use crate::error::Failure;
    use crate::frames::BUFFER_BYTES;
    use crate::hidden::{HiddenPositions, HiddenStates};
    use crate::media::{EncoderPixels, GridSpan, JobMedia, MediaKey, ViewPixels};
    use crate::message::{
        Answer, BlocksRefused, Job, JobId, JobReport, JobUpdate, QueryId, QueryReply, StatsReport,
        StoredBlock, TokenLogprobs,
    };
    use crate::request::Sampling;
    use crate::settings::NamedAdapter;
    use crate::speculation::Speculation;
    use crate::stats::{SchedulerStats, SessionStats, Stats};
    use crate::step_record::StepRecord;

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
        let start = Start {
            source: SourceName::Directory("a/b".into()),
            settings,
            watchdog: Duration::from_secs(3),
            label: Some("chat".to_owned()),
            variables: vec![("A".into(), "b".into())],
        };
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
            report(JobUpdate::Blocks(HeldBlocks { blocks: 3, shared: 1 })),
            report(JobUpdate::Failed(Failure::Busy { retry_after_s: 2 })),
        ];
        let scheduler = SchedulerStats { queued: 3, ..SchedulerStats::default() };
        let stats = Stats { scheduler, wait_seconds_total: 0.5, ..Stats::default() };
        let stats =
            Some(Box::new(StatsReport { stats, steps: Vec::new(), watched: vec![StepRecord::default()] }));
        let session = SessionStats { session: u128::MAX, tokens: 3, blocks: 1, idle_s: 0.5 };
        let blocks = vec![StoredBlock::Absent, StoredBlock::Record(vec![1, 2].into())];
        let answers = [
            Answer::Sessions(vec![session]),
            Answer::Adapter(Err("no".into())),
            Answer::Blocks(Ok(blocks)),
            Answer::Blocks(Err(BlocksRefused::OtherModel)),
        ];
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
