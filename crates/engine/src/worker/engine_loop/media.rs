//! Media in the loop: positions of their rows, and failures of their encoders.

use omnibus_model::mrope::{MediaSpan, MultimodalPositions};

use super::EngineLoop;
use super::media_queue::{EncodingFailure, Reach};
use crate::error::Failure;
use crate::media::JobMedia;
use crate::message::Job;

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

    /// Encodes media beside the steps. A sequence whose media cannot be encoded fails.
    pub(super) fn advance_encoding(&mut self) -> mlx::Result<()> {
        let now = self.started_at.elapsed().as_micros() as u64;
        let Err(failure) = self.media.advance(&mut self.scheduler, &mut self.device, now) else {
            return Ok(());
        };
        let EncodingFailure { sequence, error, reach } = failure;
        if reach == Reach::Sequence {
            let _failures = mlx::recover();
        }
        tracing::warn!(%error, "media could not be encoded; their request fails");
        if let Some(event) = self.scheduler.fail(sequence) {
            self.handle_event(event);
        }
        match reach {
            Reach::Sequence => Ok(()),
            Reach::Steps => Err(error),
        }
    }
}
