//! Resampling of sound in chunks, without the resampler's delay.

use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _};

use crate::error::Error;

/// Samples that are resampled at a time, about.
const CHUNK: usize = 4096;

/// Converts mono samples from one rate to another, with an anti-aliasing filter.
pub(super) struct Resampler {
    fft: Fft<f32>,
    /// Samples that do not fill a chunk yet.
    waiting: Vec<f32>,
    output: Vec<f32>,
    /// Samples at the start that are the filter's delay.
    delay: usize,
    taken: u64,
    ratio: f64,
}

/// How much of a chunk waits.
enum Chunk {
    /// All of it.
    Whole,
    /// The beginning; the rest is silence.
    Padded,
}

impl Resampler {
    pub fn new(from: u32, to: u32) -> Result<Resampler, Error> {
        let fft = Fft::new(from as usize, to as usize, CHUNK, 1, FixedSync::Both).map_err(failed)?;
        let (delay, output) = (fft.output_delay(), vec![0.0; fft.output_frames_max()]);
        let ratio = f64::from(to) / f64::from(from);
        Ok(Resampler { fft, waiting: Vec::new(), output, delay, taken: 0, ratio })
    }

    /// Appends what `samples` become to `to`; some are held back until more follow.
    pub fn push(&mut self, samples: &[f32], to: &mut Vec<f32>) -> Result<(), Error> {
        self.taken += samples.len() as u64;
        self.waiting.extend(samples);
        let mut used = 0;
        while self.waiting.len() - used >= self.fft.input_frames_next() {
            used += self.process(used, Chunk::Whole, to)?;
        }
        self.waiting.drain(..used);
        Ok(())
    }

    /// Appends the rest. The result has as many samples as the duration needs.
    pub fn finish(mut self, to: &mut Vec<f32>) -> Result<(), Error> {
        let wanted = (self.taken as f64 * self.ratio).ceil() as usize;
        self.process(0, Chunk::Padded, to)?;
        self.waiting.clear();
        // Silence pushes the delayed samples out.
        while to.len() < wanted {
            self.process(0, Chunk::Padded, to)?;
        }
        to.truncate(wanted);
        Ok(())
    }

    /// Resamples a chunk of what waits from `start`. Returns how many samples were used.
    fn process(&mut self, start: usize, chunk: Chunk, to: &mut Vec<f32>) -> Result<usize, Error> {
        let needed = self.fft.input_frames_next();
        let mut padded = Vec::new();
        let input = match chunk {
            Chunk::Whole => self.waiting.get(start..).unwrap_or_default(),
            Chunk::Padded => {
                padded.extend(&self.waiting);
                padded.resize(needed.max(padded.len()), 0.0);
                &padded
            }
        };
        let input = SequentialSlice::new(input, 1, input.len()).map_err(failed)?;
        let room = self.output.len();
        let mut output = SequentialSlice::new_mut(&mut self.output, 1, room).map_err(failed)?;
        let indexing = Indexing::new();
        let (used, made) =
            self.fft.process_into_buffer(&input, &mut output, Some(&indexing)).map_err(failed)?;
        let late = self.delay.min(made);
        self.delay -= late;
        to.extend(self.output.get(late..made).unwrap_or_default());
        Ok(used)
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::broken("sound", format!("it cannot be resampled: {error}"))
}
