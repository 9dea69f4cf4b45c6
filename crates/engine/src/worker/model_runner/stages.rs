//! The runner of one stage of several: a pass begins or continues here, and the first stage samples what the last one computed.

use mlx::Array;
use omnibus_model::{PassOutput, RowLogits, Stage};

use super::answers::unknown_step;
use super::{Computation, ModelRunner};
use crate::worker::rows::{PassRows, Rows, joined};
use crate::worker::step_input::StepInput;

impl ModelRunner {
    /// Whether it has all layers.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.model.blueprint().stage, Stage::Whole)
    }

    /// Computes this stage's pass of a step, with its keys, values and states.
    pub(super) fn stage_pass(&mut self, step: u64, input: &StepInput) -> mlx::Result<PassRows> {
        let stage = self.model.blueprint().stage;
        if input.stream.is_none() != stage.reads_tokens() {
            return Err(mlx::Error::new(
                "a step from tokens for the first stage, from a stream for later ones",
            ));
        }
        let (pass, _) = self.run_pass(input, None)?;
        let logits = pass.logits.map(|logits| logits.0);
        let outputs = pass.stream.iter().chain(&logits).chain(&pass.hidden);
        mlx::eval(outputs.chain(self.cache.arrays()))?;
        if stage.reads_tokens() {
            let open = StepInput {
                samples: input.samples.clone(),
                prompts: input.prompts.clone(),
                hidden: input.hidden.clone(),
                token_logits: input.token_logits.clone(),
                ..StepInput::default()
            };
            self.steps.push_back((step, Computation::Open(Box::new(open))));
        }
        let rows =
            |arrays: &mut dyn Iterator<Item = &Array>| arrays.map(Rows::of).collect::<mlx::Result<_>>();
        Ok(PassRows {
            stream: pass.stream.as_ref().map(Rows::of).transpose()?,
            logits: rows(&mut logits.iter())?,
            hidden: rows(&mut pass.hidden.iter())?,
        })
    }

    /// Takes what the last stage computed of a step that began here.
    pub(super) fn complete_step(&mut self, step: u64, pass: &PassRows) -> mlx::Result<()> {
        let place = self.steps.iter().position(|(of, _)| *of == step);
        let found = place.and_then(|place| Some((place, self.steps.remove(place)?)));
        let Some((place, (_, Computation::Open(input)))) = found else { return Err(unknown_step(step)) };
        let wanted = input.hidden.iter().map(|rows| rows.len).sum::<usize>();
        let given: usize = pass.hidden.iter().map(Rows::len).sum();
        if given != wanted {
            return Err(mlx::Error::new(format!("{given} hidden states of {wanted}")));
        }
        let logits = joined(&pass.logits)?.map(RowLogits);
        let hidden = joined(&pass.hidden)?.into_iter().collect();
        let output = self.forward_output(&input, PassOutput { logits, hidden, stream: None }, None)?;
        self.steps.insert(place, (step, Computation::Forward(output)));
        Ok(())
    }
}
