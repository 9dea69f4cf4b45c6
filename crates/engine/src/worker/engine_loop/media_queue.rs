//! Media of the loop's sequences: whose features are there, whose pixels have to come, and what is encoded next.
//!
//! Invariant: a sequence waits in the scheduler's queue until the features that its prompt reads are in memory, and they
//! stay there until its rows have read them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use omnibus_core::{HoldReason, Plan, PrefixLookup, Scheduler, SequenceId, Tick};
use omnibus_model::mrope::MultimodalPositions;

use crate::event::{EncoderUsage, MediaUsage};
use crate::media::{ContentKind, EncoderPixels, JobMedia, MediaKey, crossed_in};
use crate::message::JobId;
use crate::worker::catch_panic::catch_panic;
use crate::worker::device_call::{EncodingParts, MediaHit};
use crate::worker::device_client::DeviceClient;

/// Media of all sequences that have any.
#[derive(Default)]
pub(super) struct MediaQueue {
    sequences: BTreeMap<SequenceId, SequenceMedia>,
    /// For the next report.
    requested: Vec<(JobId, MediaKey)>,
    /// The sequence that is encoded next, if its pixels have to come first.
    awaits_pixels: Option<SequenceId>,
}

/// Media of a sequence.
pub(super) struct SequenceMedia {
    job: JobId,
    media: Vec<JobMedia>,
    /// Positions of its rows on three axes (M-RoPE), if the model uses them.
    positions: Option<MultimodalPositions>,
    /// Media whose features were not in memory, and where they came from.
    fetched: BTreeMap<MediaKey, FeatureOrigin>,
    /// Time that encoding each took.
    encoding: BTreeMap<MediaKey, Duration>,
    /// Media whose pixels were requested. They leave this process once features are made.
    requested: BTreeSet<MediaKey>,
    /// Whether its features must stay in memory.
    keeps_features: bool,
}

/// Where features came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeatureOrigin {
    Encoder,
    Disk,
}

/// A failure of encoding, which ends its sequence.
pub(super) struct EncodingFailure {
    pub(super) sequence: SequenceId,
    pub(super) error: mlx::Error,
    pub(super) reach: Reach,
}

/// What a failure has disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing was computed, so no other sequence is disturbed.
    Sequence,
    /// All steps.
    Steps,
}

impl SequenceMedia {
    /// Its media, in the order of the prompt.
    pub(super) fn media(&self) -> &[JobMedia] {
        &self.media
    }

    /// Positions of its rows on three axes, if the model counts so.
    pub(super) fn positions(&self) -> Option<&MultimodalPositions> {
        self.positions.as_ref()
    }

    fn usage(&self) -> MediaUsage {
        let (mut images, mut audio) = (Vec::new(), Vec::new());
        for media in &self.media {
            match media.summary.kind {
                ContentKind::Picture => images.push(media),
                ContentKind::Sound => audio.push(media),
            }
        }
        MediaUsage { images: self.encoder_usage(&images), audio: self.encoder_usage(&audio) }
    }

    fn encoder_usage(&self, media: &[&JobMedia]) -> EncoderUsage {
        // Content that is there twice is encoded once.
        let keys: BTreeSet<MediaKey> = media.iter().map(|media| media.key).collect();
        let is_encoded = |key: &&MediaKey| self.fetched.get(key) == Some(&FeatureOrigin::Encoder);
        let time: Duration = keys.iter().filter_map(|key| self.encoding.get(key)).sum();
        EncoderUsage {
            tokens: media.iter().map(|media| media.features()).sum(),
            encoded: keys.iter().filter(is_encoded).count(),
            encode_ms: time.as_millis() as u64,
        }
    }

    /// Drops the pixels that were requested. They can be requested again.
    fn drop_requested(&mut self, key: MediaKey) {
        if self.requested.remove(&key) {
            let same = self.media.iter_mut().filter(|media| media.key == key);
            same.for_each(|media| media.pixels = None);
        }
    }
}

impl MediaQueue {
    /// Adds the media of a new sequence, and keeps it in the scheduler's queue until they are encoded.
    pub(super) fn insert(
        &mut self,
        sequence: SequenceId,
        (job, media): (JobId, Vec<JobMedia>),
        positions: Option<MultimodalPositions>,
        (scheduler, device): (&mut Scheduler, &mut DeviceClient),
    ) {
        if media.is_empty() {
            return;
        }
        let (fetched, encoding, requested, keeps_features) = Default::default();
        let new = SequenceMedia { job, media, positions, fetched, encoding, requested, keeps_features };
        self.sequences.insert(sequence, new);
        scheduler.hold(sequence, HoldReason::Encoding);
        self.request_missing(sequence, scheduler, device);
    }

    /// Removes a sequence, and returns its media.
    pub(super) fn remove(&mut self, sequence: SequenceId) -> Vec<JobMedia> {
        self.sequences.remove(&sequence).map(|of| of.media).unwrap_or_default()
    }

    /// The media of a sequence that has any.
    pub(super) fn get(&self, sequence: SequenceId) -> Option<&SequenceMedia> {
        self.sequences.get(&sequence)
    }

    /// What the media of a sequence took so far.
    pub(super) fn usage(&self, sequence: SequenceId) -> MediaUsage {
        self.sequences.get(&sequence).map(SequenceMedia::usage).unwrap_or_default()
    }

    /// Whether pixels were requested since the last report.
    pub(super) fn has_requests(&self) -> bool {
        !self.requested.is_empty()
    }

    /// The pixels that were requested since the last report.
    pub(super) fn take_requests(&mut self) -> Vec<(JobId, MediaKey)> {
        std::mem::take(&mut self.requested)
    }

    /// Keeps a waiting sequence with media in the scheduler's queue until they are encoded.
    pub(super) fn hold(&self, sequence: SequenceId, scheduler: &mut Scheduler) {
        if self.sequences.contains_key(&sequence) {
            scheduler.hold(sequence, HoldReason::Encoding);
        }
    }

    /// Keeps all waiting sequences with media in the scheduler's queue: features are gone after a failure.
    pub(super) fn hold_all(&self, scheduler: &mut Scheduler) {
        self.sequences.keys().for_each(|sequence| scheduler.hold(*sequence, HoldReason::Encoding));
    }

    /// Requests the pixels of a sequence's media that have to be encoded, unless another job has done so or features may come
    /// from disk. What is missing when its turn comes is requested then.
    fn request_missing(&mut self, sequence: SequenceId, scheduler: &Scheduler, device: &mut DeviceClient) {
        let Some(of) = self.sequences.get(&sequence) else { return };
        if of.media.iter().all(|media| media.pixels.is_some()) {
            return;
        }
        let cached = scheduler.cached_tokens(sequence);
        let others_request = |key: &MediaKey| self.sequences.values().any(|of| of.requested.contains(key));
        let mut is_missing = |media: &&JobMedia| {
            media.pixels.is_none()
                && media.is_read(cached)
                && !others_request(&media.key)
                && !device.has_stored_features(media.key)
                && !device.has_features(media.key)
        };
        let missing: Vec<MediaKey> = of.media.iter().filter(&mut is_missing).map(|media| media.key).collect();
        missing.into_iter().for_each(|key| self.request(sequence, key));
    }

    fn request(&mut self, sequence: SequenceId, key: MediaKey) {
        if let Some(of) = self.sequences.get_mut(&sequence)
            && of.requested.insert(key)
        {
            self.requested.push((of.job, key));
        }
    }

    /// Takes what was requested.
    pub(super) fn take_pixels(&mut self, job: JobId, key: MediaKey, pixels: &EncoderPixels) {
        self.awaits_pixels = None;
        let Some(of) = self.sequences.values_mut().find(|of| of.job == job) else { return };
        let same = of.media.iter_mut().filter(|media| media.key == key);
        same.for_each(|media| media.pixels = Some(pixels.clone()));
    }

    /// Whether there is something to encode now.
    pub(super) fn is_encoding(&self, scheduler: &Scheduler, device: &mut DeviceClient) -> bool {
        let next = scheduler.next_encoding();
        next.is_some() && next != self.awaits_pixels && !device.awaits_features()
    }

    /// Encodes as many parts of the media of the first held sequence as fit before the next step, and releases it when all
    /// its features are there.
    pub(super) fn advance(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        now: Tick,
    ) -> Result<(), EncodingFailure> {
        self.awaits_pixels = None;
        let Some(sequence) = scheduler.next_encoding() else { return Ok(()) };
        // Sequences that are held themselves cannot make room.
        let waits_for = |id: &SequenceId| *id != sequence && !scheduler.is_held(*id);
        let others_have = self.sequences.iter().any(|(id, of)| of.keeps_features && waits_for(id));
        let stats = device.stats().media;
        let cached = scheduler.cached_tokens(sequence);
        let Some(of) = self.sequences.get_mut(&sequence) else {
            scheduler.release_hold(sequence, HoldReason::Encoding);
            return Ok(());
        };
        let is_missing = |media: &&JobMedia| media.is_read(cached) && !device.has_features(media.key);
        let Some(media) = of.media.iter().find(is_missing).cloned() else {
            of.keeps_features = true;
            scheduler.release_hold(sequence, HoldReason::Encoding);
            return Ok(());
        };
        if others_have && stats.bytes >= stats.limit_bytes {
            return Ok(());
        }
        of.keeps_features = true;
        if device.is_reading_features(&media) {
            return Ok(());
        }
        if device.has_features(media.key) {
            of.fetched.insert(media.key, FeatureOrigin::Disk);
            self.evict(&[], device);
            return Ok(());
        }
        if media.pixels.is_none() {
            self.request(sequence, media.key);
            self.awaits_pixels = Some(sequence);
            return Ok(());
        }
        let failed = |reach| move |error| EncodingFailure { sequence, error, reach };
        let left = catch_panic(|| device.parts_left(&media)).map_err(failed(Reach::Sequence))?;
        let started = Instant::now();
        let encoded = encode_parts((scheduler, device), &media, left, now);
        if let Some(of) = self.sequences.get_mut(&sequence) {
            *of.encoding.entry(media.key).or_default() += started.elapsed();
        }
        encoded.map_err(failed(Reach::Steps))?;
        if device.has_features(media.key) {
            if let Some(of) = self.sequences.get_mut(&sequence) {
                of.fetched.insert(media.key, FeatureOrigin::Encoder);
                of.drop_requested(media.key);
            }
            self.evict(&[], device);
        }
        Ok(())
    }

    /// Evicts features beyond the limit of memory, but none that a sequence keeps, nor any of `needed`.
    fn evict(&self, needed: &[MediaKey], device: &mut DeviceClient) {
        let keeping = self.sequences.values().filter(|of| of.keeps_features);
        let kept = keeping.flat_map(|of| &of.media).map(|media| media.key);
        device.evict_features(kept.chain(needed.iter().copied()).collect());
    }

    /// Counts the media of prompts that are admitted for the first time and were not encoded for them.
    pub(super) fn count(&self, plan: &Plan, lookups: &[PrefixLookup], device: &mut DeviceClient) {
        let admitted = |id| lookups.iter().any(|lookup| lookup.sequence == id);
        for work in plan.scheduled.iter().filter(|work| admitted(work.sequence)) {
            let Some(SequenceMedia { media, fetched, .. }) = self.sequences.get(&work.sequence) else {
                continue;
            };
            for media in media {
                if media.end() <= work.cached {
                    device.count_media_hit(MediaHit::Prefix);
                } else if !fetched.contains_key(&media.key) && device.has_features(media.key) {
                    device.count_media_hit(MediaHit::Features);
                }
            }
        }
    }

    /// Encodes the media whose features a plan needs and that are not there. Those that were preempted wait for theirs. Fails
    /// where pixels are missing, too: after a failed step, sequences wait for both.
    pub(super) fn encode_missing(
        &mut self,
        plan: &Plan,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
    ) -> mlx::Result<()> {
        plan.preempt.iter().for_each(|preempted| self.hold(preempted.sequence, scheduler));
        let mut needed: Vec<JobMedia> = Vec::new();
        for work in &plan.scheduled {
            let Some(of) = self.sequences.get_mut(&work.sequence) else { continue };
            let crossed = crossed_in(&of.media, &work.positions);
            let is_in = |media: &&JobMedia| match media.is_crossed() {
                true => crossed.iter().any(|(_, keys)| keys.contains(&media.key)),
                false => !media.rows_in(&work.positions).is_empty(),
            };
            needed.extend(of.media.iter().filter(is_in).cloned());
            let is_kept = |media: &JobMedia| media.is_crossed() || media.end() > work.positions.end;
            of.keeps_features &= of.media.iter().any(is_kept);
        }
        if needed.is_empty() {
            return Ok(());
        }
        for media in &needed {
            if !device.has_features(media.key) {
                catch_panic(|| device.encode_parts(media, usize::MAX))?;
            }
        }
        let keys: Vec<MediaKey> = needed.iter().map(|media| media.key).collect();
        self.evict(&keys, device);
        Ok(())
    }
}

fn encode_parts(
    (scheduler, device): (&mut Scheduler, &mut DeviceClient),
    media: &JobMedia,
    left: EncodingParts,
    now: Tick,
) -> mlx::Result<()> {
    let parts = scheduler.parts_beside_steps(now, left.count, left.units);
    if parts == 0 {
        return Ok(());
    }
    let started = Instant::now();
    catch_panic(|| device.encode_parts(media, parts))?;
    let took = started.elapsed().as_micros() as u64;
    tracing::trace!(parts, left = left.count, units = left.units, took_us = took, "media encoded in part");
    scheduler.learn_encoding(left.units * parts as u64, took);
    Ok(())
}
