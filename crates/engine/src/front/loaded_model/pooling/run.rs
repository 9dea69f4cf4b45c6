//! Texts in the engine: some at a time, until all have their states.

use std::collections::VecDeque;
use std::sync::Arc;

use omnibus_pooler::{Pooler, PoolingOutput, Rows, VectorLength};

use crate::error::Failure;
use crate::event::Event;
use crate::front::event_stream::EventStream;
use crate::front::loaded_model::LoadedModel;
use crate::front::pooling::Pooled;
use crate::hidden::HiddenStates;
use crate::request::{Input, Request};

fn not_finite() -> Failure {
    Failure::Engine { message: "a text's numbers are not finite".to_owned() }
}

/// Texts of one call that are queued or run at a time: enough to fill steps.
const AT_A_TIME: usize = 64;

/// Most numbers of the states of texts that are queued or run, but for a single text.
const STATES_MAX: usize = 1 << 26;

/// A text that can be queued.
pub(super) struct PreparedText {
    pub(super) request: Request,
    pub(super) tokens: usize,
    /// Positions with a vector or a weight, of a text that has them for each token.
    pub(super) kept: Vec<usize>,
    pub(super) cut_from: Option<usize>,
}

/// What is made of all texts.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) output: PoolingOutput,
    pub(super) length: VectorLength,
    /// Of a state.
    pub(super) width: usize,
    /// Tokens of the vocabulary.
    pub(super) vocab: usize,
    /// How many tokens of each text are a prompt's.
    pub(super) prompt: usize,
}

/// The texts of one call. Dropping it cancels them.
pub struct PoolingRun {
    model: Arc<LoadedModel>,
    waiting: VecDeque<PreparedText>,
    running: VecDeque<Running>,
    made: Made,
    count: usize,
}

/// A text in the engine, or one without tokens.
struct Running {
    events: Option<EventStream>,
    /// As its states are reported.
    ids: Vec<u32>,
    tokens: usize,
    kept: Vec<usize>,
    cut_from: Option<usize>,
}

impl PoolingRun {
    pub(super) fn new(model: Arc<LoadedModel>, texts: Vec<PreparedText>, made: Made) -> Self {
        Self { model, count: texts.len(), waiting: texts.into(), running: VecDeque::new(), made }
    }

    /// What all texts became, in their order. Fails with the first that fails.
    pub async fn results(mut self) -> Result<Vec<Pooled>, Failure> {
        let mut results = Vec::with_capacity(self.count);
        self.fill()?;
        while let Some(text) = self.running.pop_front() {
            results.push(self.result(text).await?);
            self.fill()?;
        }
        Ok(results)
    }

    /// Queues texts. While the queue is full, those that run are waited for.
    fn fill(&mut self) -> Result<(), Failure> {
        while self.running.len() < AT_A_TIME
            && self.has_room()
            && let Some(text) = self.waiting.pop_front()
        {
            let events = match text.tokens {
                0 => None,
                _ => match self.model.submit(text.request.clone()) {
                    Ok(events) => Some(events),
                    Err(Failure::Busy { .. }) if !self.running.is_empty() => {
                        self.waiting.push_front(text);
                        return Ok(());
                    }
                    Err(failure) => return Err(failure),
                },
            };
            let PreparedText { request, tokens, kept, cut_from } = text;
            let ids = match request.input {
                Input::Tokens(ids) => ids,
                _ => Vec::new(),
            };
            self.running.push_back(Running { events, ids, tokens, kept, cut_from });
        }
        Ok(())
    }

    /// Whether the next text's states may be reported, which are read behind those of earlier texts.
    fn has_room(&self) -> bool {
        if self.model.pooler().rows(self.made.output) != Rows::All {
            return true;
        }
        let tokens: usize = self.running.iter().map(|text| text.tokens).sum();
        let next = self.waiting.front().map_or(0, |text| text.tokens);
        self.running.is_empty() || (tokens + next) * self.made.width <= STATES_MAX
    }

    async fn result(&self, mut text: Running) -> Result<Pooled, Failure> {
        let (pooler, Made { output, width, vocab, .. }) = (self.model.pooler(), self.made);
        let Some(events) = &mut text.events else {
            return text.pooled(pooler.of_no_tokens(width));
        };
        let (rows, width) = match pooler.rows(output) {
            Rows::Last => (1, width),
            Rows::All => (text.tokens, width),
            Rows::Vocabulary => (1, vocab),
        };
        let first_row = if pooler.rows(output) == Rows::Last { text.tokens - rows } else { 0 };
        let (mut states, mut of_tokens) = (vec![0f32; rows * width], None);
        while let Some(event) = events.next().await {
            match event {
                Event::Hidden(HiddenStates { first, values, .. }) => {
                    let at = first.saturating_sub(first_row) * width;
                    if let Some(place) = states.get_mut(at..at + values.len()) {
                        place.copy_from_slice(&values);
                    }
                }
                Event::TokenLogits(of) => of_tokens = Some(of.logits),
                Event::Failed(failure) => return Err(failure),
                Event::Finished { .. } => {
                    let numbers = match of_tokens {
                        Some(logits) => Pooler::score_of(&logits),
                        None => self.numbers(&states, width, &text.kept),
                    };
                    return text.pooled(numbers);
                }
                _ => {}
            }
        }
        Err(Failure::unavailable("the engine has stopped"))
    }

    /// What the head gives of a text's states.
    fn numbers(&self, states: &[f32], width: usize, kept: &[usize]) -> Vec<f32> {
        let (pooler, Made { output, length, prompt, .. }) = (self.model.pooler(), self.made);
        let (of_all, of_one) = match output {
            PoolingOutput::Task => {
                let pooled = pooler.pool((states, width), prompt, length);
                if kept.is_empty() {
                    return pooled;
                }
                (pooled, pooler.token_width(width))
            }
            PoolingOutput::TokenVectors => {
                (pooler.token_vectors((states, width), length), pooler.token_width(width))
            }
            PoolingOutput::TokenWeights => (pooler.token_weights((states, width)), 1),
        };
        let row = |at: &usize| of_all.get(at * of_one..(at + 1) * of_one).unwrap_or_default();
        kept.iter().flat_map(row).copied().collect()
    }
}

impl Running {
    fn pooled(self, numbers: Vec<f32>) -> Result<Pooled, Failure> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(not_finite());
        }
        let of_tokens = self.kept.iter().filter_map(|at| self.ids.get(*at).copied()).collect();
        Ok(Pooled { numbers, of_tokens, tokens: self.tokens, cut_from: self.cut_from })
    }
}
