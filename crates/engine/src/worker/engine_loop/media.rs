//! Media of jobs: positions on three axes, and encoding before the steps that need features.
//!
//! A sequence is held in the queue until its media are encoded, in parts between steps, as many as the scheduler says. The
//! features stay until its prefill is past them. Where they are missing in spite of that, as after a preemption, they are
//! made before the step.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use omnibus_core::{HoldReason, Plan, PrefixLookup, SequenceId};
use omnibus_model::mrope::{MediaSpan, MultimodalPositions};

use super::{ActiveJob, EngineLoop, FeatureOrigin};
use crate::error::Failure;
use crate::event::{EncoderUsage, MediaUsage};
use crate::media::{ContentKind, EncoderPixels, JobMedia, MediaKey, crossed_in};
use crate::message::{Job, JobId};
use crate::worker::catch_panic::catch_panic;
use crate::worker::device_call::{EncodingParts, MediaHit};

impl ActiveJob {
    /// What its media took so far.
    pub(super) fn media_usage(&self) -> MediaUsage {
        let (mut images, mut audio) = (Vec::new(), Vec::new());
        for media in &self.job.media {
            match media.summary.kind {
                ContentKind::Picture => images.push(media),
                ContentKind::Sound => audio.push(media),
            }
        }
        MediaUsage { images: self.encoder_usage(&images), audio: self.encoder_usage(&audio) }
    }

    /// Drops the pixels that were requested. They can be requested again.
    fn drop_requested(&mut self, key: MediaKey) {
        if self.requested.remove(&key) {
            let same = self.job.media.iter_mut().filter(|media| media.key == key);
            same.for_each(|media| media.pixels = None);
        }
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
}

impl EngineLoop {
    /// Positions of a job's rows on three axes, if it has media and the model counts so.
    pub(super) fn positions(&self, job: &Job) -> Result<Option<MultimodalPositions>, Failure> {
        if job.media.is_empty() || !self.device.traits().has_axis_positions {
            return Ok(None);
        }
        let misplaced =
            || Failure::Engine { message: "the media of this request are no grids of features".to_owned() };
        let span = |grid: &crate::media::GridSpan| MediaSpan {
            first: grid.first,
            frames: grid.frames,
            rows: grid.rows,
            columns: grid.columns,
        };
        let spans: Vec<MediaSpan> = job.media.iter().flat_map(|media| &media.grids).map(span).collect();
        // The first content of a part has the grids of all.
        let in_grids: usize = spans.iter().map(MediaSpan::tokens).sum();
        if in_grids != job.media.iter().map(JobMedia::features).sum::<usize>() {
            return Err(misplaced());
        }
        MultimodalPositions::new(job.prompt, &spans).map(Some).ok_or_else(misplaced)
    }

    /// Keeps a waiting sequence with media in the queue until they are encoded.
    pub(super) fn hold_for_encoding(&mut self, sequence: SequenceId) {
        if self.jobs.get(&sequence).is_some_and(|active| !active.job.media.is_empty()) {
            self.scheduler.hold(sequence, HoldReason::Encoding);
        }
    }

    /// Requests the pixels of a sequence's media that have to be encoded, unless another job has done so or features may come
    /// from disk. What is missing when its turn comes is requested then.
    pub(super) fn request_pixels(&mut self, sequence: SequenceId) {
        let Some(active) = self.jobs.get(&sequence) else { return };
        if active.job.media.iter().all(|media| media.pixels.is_some()) {
            return;
        }
        let cached = self.scheduler.cached_tokens(sequence);
        let others_request = |key: &MediaKey| self.jobs.values().any(|active| active.requested.contains(key));
        let device = &mut self.device;
        let mut is_missing = |media: &&JobMedia| {
            media.pixels.is_none()
                && media.is_read(cached)
                && !others_request(&media.key)
                && !device.has_stored_features(media.key)
                && !device.has_features(media.key)
        };
        let missing: Vec<MediaKey> =
            active.job.media.iter().filter(&mut is_missing).map(|media| media.key).collect();
        missing.into_iter().for_each(|key| self.request(sequence, key));
    }

    fn request(&mut self, sequence: SequenceId, key: MediaKey) {
        if let Some(active) = self.jobs.get_mut(&sequence)
            && active.requested.insert(key)
        {
            self.requested_pixels.push((active.job.id, key));
        }
    }

    /// Takes what was requested.
    pub(super) fn take_pixels(&mut self, job: JobId, key: MediaKey, pixels: &EncoderPixels) {
        self.awaits_pixels = None;
        let Some(active) = self.jobs.values_mut().find(|active| active.job.id == job) else { return };
        let same = active.job.media.iter_mut().filter(|media| media.key == key);
        same.for_each(|media| media.pixels = Some(pixels.clone()));
    }

    /// Whether there is something to encode now.
    pub(super) fn is_encoding(&mut self) -> bool {
        let next = self.scheduler.next_encoding();
        next.is_some() && next != self.awaits_pixels && !self.device.awaits_features()
    }

    /// Encodes as many parts of the media of the first held sequence as fit before the next step, and releases it when all
    /// its features are there.
    pub(super) fn advance_encoding(&mut self) -> mlx::Result<()> {
        self.awaits_pixels = None;
        let Some(sequence) = self.scheduler.next_encoding() else { return Ok(()) };
        // Sequences that are held themselves cannot make room.
        let scheduler = &self.scheduler;
        let waits_for = |id: &SequenceId| *id != sequence && !scheduler.is_held(*id);
        let others_have = self.jobs.iter().any(|(id, active)| active.keeps_features && waits_for(id));
        let stats = self.device.stats().media;
        let cached = self.scheduler.cached_tokens(sequence);
        let Some(active) = self.jobs.get_mut(&sequence) else {
            self.scheduler.release_hold(sequence, HoldReason::Encoding);
            return Ok(());
        };
        let device = &mut self.device;
        let is_missing = |media: &&JobMedia| media.is_read(cached) && !device.has_features(media.key);
        let Some(media) = active.job.media.iter().find(is_missing).cloned() else {
            active.keeps_features = true;
            self.scheduler.release_hold(sequence, HoldReason::Encoding);
            return Ok(());
        };
        if others_have && stats.bytes >= stats.limit_bytes {
            return Ok(());
        }
        active.keeps_features = true;
        if self.device.is_reading_features(&media) {
            return Ok(());
        }
        if self.device.has_features(media.key) {
            active.fetched.insert(media.key, FeatureOrigin::Disk);
            self.evict_features(&[]);
            return Ok(());
        }
        if media.pixels.is_none() {
            self.request(sequence, media.key);
            self.awaits_pixels = Some(sequence);
            return Ok(());
        }
        let device = &mut self.device;
        let left = match catch_panic(|| device.parts_left(&media)) {
            Ok(left) => left,
            Err(error) => {
                // Nothing was computed, so no other sequence is disturbed.
                let _failures = mlx::recover();
                self.fail_encoding(sequence, &error);
                return Ok(());
            }
        };
        let started = Instant::now();
        let encoded = self.encode_parts(&media, left);
        if let Some(active) = self.jobs.get_mut(&sequence) {
            *active.encoding.entry(media.key).or_default() += started.elapsed();
        }
        if let Err(error) = encoded {
            self.fail_encoding(sequence, &error);
            return Err(error);
        }
        if self.device.has_features(media.key) {
            if let Some(active) = self.jobs.get_mut(&sequence) {
                active.fetched.insert(media.key, FeatureOrigin::Encoder);
                active.drop_requested(media.key);
            }
            self.evict_features(&[]);
        }
        Ok(())
    }

    fn fail_encoding(&mut self, sequence: SequenceId, error: &mlx::Error) {
        tracing::warn!(%error, "media could not be encoded; their request fails");
        if let Some(event) = self.scheduler.fail(sequence) {
            self.handle_event(event);
        }
    }

    fn encode_parts(&mut self, media: &JobMedia, left: EncodingParts) -> mlx::Result<()> {
        let now = self.started_at.elapsed().as_micros() as u64;
        let parts = self.scheduler.parts_beside_steps(now, left.count, left.units);
        if parts == 0 {
            return Ok(());
        }
        let device = &mut self.device;
        let started = Instant::now();
        catch_panic(|| device.encode_parts(media, parts))?;
        let took = started.elapsed().as_micros() as u64;
        tracing::trace!(
            parts,
            left = left.count,
            units = left.units,
            took_us = took,
            "media encoded in part"
        );
        self.scheduler.learn_encoding(left.units * parts as u64, took);
        Ok(())
    }

    /// Evicts features beyond the limit of memory, but none that a sequence keeps, nor any of `needed`.
    fn evict_features(&mut self, needed: &[MediaKey]) {
        let keeping = self.jobs.values().filter(|active| active.keeps_features);
        let kept = keeping.flat_map(|active| &active.job.media).map(|media| media.key);
        let kept: Vec<MediaKey> = kept.chain(needed.iter().copied()).collect();
        self.device.evict_features(kept);
    }

    /// Counts the media of prompts that are admitted for the first time and were not encoded for them.
    pub(super) fn count_media(&mut self, plan: &Plan, lookups: &[PrefixLookup]) {
        let admitted = |id| lookups.iter().any(|lookup| lookup.sequence == id);
        for work in plan.scheduled.iter().filter(|work| admitted(work.sequence)) {
            let Some(ActiveJob { job, fetched, .. }) = self.jobs.get(&work.sequence) else { continue };
            for media in &job.media {
                if media.end() <= work.cached {
                    self.device.count_media_hit(MediaHit::Prefix);
                } else if !fetched.contains_key(&media.key) && self.device.has_features(media.key) {
                    self.device.count_media_hit(MediaHit::Features);
                }
            }
        }
    }

    /// Encodes the media whose features a plan needs and that are not there. Those that were preempted wait for theirs. Fails
    /// where pixels are missing, too: after a failed step, sequences wait for both.
    pub(super) fn encode_missing(&mut self, plan: &Plan) -> mlx::Result<()> {
        plan.preempt.iter().for_each(|preempted| self.hold_for_encoding(preempted.sequence));
        let mut needed: Vec<JobMedia> = Vec::new();
        for work in &plan.scheduled {
            let Some(active) = self.jobs.get_mut(&work.sequence) else { continue };
            let crossed = crossed_in(&active.job.media, &work.positions);
            let is_in = |media: &&JobMedia| match media.is_crossed() {
                true => crossed.iter().any(|(_, keys)| keys.contains(&media.key)),
                false => !media.rows_in(&work.positions).is_empty(),
            };
            needed.extend(active.job.media.iter().filter(is_in).cloned());
            let is_kept = |media: &JobMedia| media.is_crossed() || media.end() > work.positions.end;
            active.keeps_features &= active.job.media.iter().any(is_kept);
        }
        if needed.is_empty() {
            return Ok(());
        }
        let device = &mut self.device;
        for media in &needed {
            if !device.has_features(media.key) {
                catch_panic(|| device.encode_parts(media, usize::MAX))?;
            }
        }
        let keys: Vec<MediaKey> = needed.iter().map(|media| media.key).collect();
        self.evict_features(&keys);
        Ok(())
    }
}
