//! What the loop needs of a runner: forward passes, sampling, results.
//!
//! Invariant: all of a step that a runner gets is a [`StepInput`], and the changes that come between its forward pass and
//! its sampling. The forward pass and the sampling are two calls, so that what sampling depends on can be computed while
//! the forward pass runs.

use std::path::Path;
use std::time::Duration;

use mlx::Array;
use omnibus_core::{SequenceId, Token};
use omnibus_model::SpanRuns;

use super::kv_store::KvStore;
use super::media_encoding::MediaEncoding;
use super::prompt_output::PromptOutput;
use super::step_input::StepInput;
use crate::LaunchStats;
use crate::media::JobMedia;
use crate::message::{JobUpdate, TokenLogprobs};
use crate::sampler::{PendingSample, SampleRow, SamplingChanges};

/// Computes steps.
pub(super) trait Runner {
    /// Its KV cache, between steps.
    fn kv(&self) -> &dyn KvStore;

    /// The same, to be changed.
    fn kv_mut(&mut self) -> &mut dyn KvStore;

    /// Time spent in dispatching graphs to MLX since the last call.
    fn take_dispatching(&mut self) -> Duration;

    /// How work is launched.
    fn launches(&self) -> LaunchStats;

    /// Most steps in flight.
    fn depth(&mut self) -> usize;

    /// Applies the changes of sampling state and builds the forward pass of a step. `before`: the step in flight before
    /// it, if any.
    fn forward(&mut self, input: &StepInput, before: Option<&StepOutput>) -> mlx::Result<ForwardOutput>;

    /// Starts a forward pass whose sampling has to wait.
    fn dispatch(&mut self, forward: &ForwardOutput) -> mlx::Result<()>;

    /// Applies more changes, builds the step's sampling and starts all of it.
    fn sample(&mut self, forward: ForwardOutput, changes: &SamplingChanges) -> mlx::Result<StepOutput>;

    /// Waits for a step.
    fn read(&mut self, output: &StepOutput) -> mlx::Result<StepResult>;

    /// Drops all sequences and allocates the KV cache again, after a failure.
    fn reset(&mut self) -> mlx::Result<()>;

    /// The blocks of each layer group from the next reset on.
    fn set_blocks(&mut self, blocks: &[usize]);

    /// Whether positions of prompts with media are on three axes.
    fn has_axis_positions(&self) -> bool;

    /// Positions of a prompt whose tokens attend to each other in both directions, ascending and apart. `media`: in order.
    fn bidirectional_spans(&self, prompt: &[Token], media: &[JobMedia]) -> Vec<SpanRuns>;

    /// Its encoders, and the features that they made.
    fn media(&self) -> &dyn MediaEncoding;

    /// The same, to be changed.
    fn media_mut(&mut self) -> &mut dyn MediaEncoding;

    /// Loads the adapter in a directory, between steps. Fails with a line that names the file.
    fn load_adapter(&mut self, directory: &Path) -> Result<u128, String>;

    /// Unloads an adapter that no sequence uses.
    fn unload_adapter(&mut self, adapter: u128) -> Result<(), String>;

    /// Whether an adapter is loaded.
    fn has_adapter(&self, adapter: u128) -> bool;
}

/// A forward pass, before sampling.
pub(super) struct ForwardOutput {
    /// `[n, vocab]` f32: the rows of `logits_at`; `None` if there are none.
    pub(super) logits: Option<Array>,
    pub(super) samples: Vec<SampleRow>,
    pub(super) prompts: Vec<PromptOutput>,
}

/// A step that computes.
pub(super) struct StepOutput {
    /// `None` when nothing is sampled.
    pub(super) sample: Option<PendingSample>,
    pub(super) prompts: Vec<PromptOutput>,
    /// An array of the KV cache; evaluated to learn of failures when nothing is sampled.
    pub(super) tail: Option<Array>,
}

/// The results of a step.
pub(super) struct StepResult {
    /// One for each sampled row, in order; `None` for a row that failed.
    pub(super) sampled: Vec<Option<TokenLogprobs>>,
    /// What was requested of prompts, by sequence.
    pub(super) prompts: Vec<(SequenceId, JobUpdate)>,
}
