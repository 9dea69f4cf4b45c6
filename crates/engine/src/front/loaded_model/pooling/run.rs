//! Texts in the engine: some at a time, until all have their states.

use std::collections::VecDeque;
use std::sync::Arc;

use omnibus_pooler::{Pooler, Rows};

use crate::error::Failure;
use crate::event::Event;
use crate::front::event_stream::EventStream;
use crate::front::loaded_model::LoadedModel;
use crate::front::pooling::Pooled;
use crate::hidden::HiddenStates;
use crate::request::Request;

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
    pub(super) cut_from: Option<usize>,
}

/// The texts of one call. Dropping it cancels them.
pub struct PoolingRun {
    model: Arc<LoadedModel>,
    waiting: VecDeque<PreparedText>,
    running: VecDeque<Running>,
    /// Of a state.
    width: usize,
    /// How many tokens of each text are a prompt's.
    prompt: usize,
    count: usize,
}

/// A text in the engine.
struct Running {
    events: EventStream,
    tokens: usize,
    cut_from: Option<usize>,
}

impl PoolingRun {
    pub(super) fn new(
        model: Arc<LoadedModel>,
        texts: Vec<PreparedText>,
        width: usize,
        prompt: usize,
    ) -> Self {
        Self { model, count: texts.len(), waiting: texts.into(), running: VecDeque::new(), width, prompt }
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
            && let Some(PreparedText { request, tokens, cut_from }) = self.waiting.pop_front()
        {
            match self.model.submit(request.clone()) {
                Ok(events) => self.running.push_back(Running { events, tokens, cut_from }),
                Err(Failure::Busy { .. }) if !self.running.is_empty() => {
                    self.waiting.push_front(PreparedText { request, tokens, cut_from });
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Whether the next text's states may be reported, which are read behind those of earlier texts.
    fn has_room(&self) -> bool {
        if self.model.pooler().rows() == Rows::Last {
            return true;
        }
        let tokens: usize = self.running.iter().map(|text| text.tokens).sum();
        let next = self.waiting.front().map_or(0, |text| text.tokens);
        self.running.is_empty() || (tokens + next) * self.width <= STATES_MAX
    }

    async fn result(&self, mut text: Running) -> Result<Pooled, Failure> {
        let pooler = self.model.pooler();
        let rows = if pooler.rows() == Rows::Last { 1 } else { text.tokens };
        let first_row = text.tokens - rows;
        let (mut states, mut of_tokens) = (vec![0f32; rows * self.width], None);
        while let Some(event) = text.events.next().await {
            match event {
                Event::Hidden(HiddenStates { first, values, .. }) => {
                    let at = first.saturating_sub(first_row) * self.width;
                    if let Some(place) = states.get_mut(at..at + values.len()) {
                        place.copy_from_slice(&values);
                    }
                }
                Event::TokenLogits(of) => of_tokens = Some(of.logits),
                Event::Failed(failure) => return Err(failure),
                Event::Finished { .. } => {
                    let numbers = match of_tokens {
                        Some(logits) => Pooler::score_of(&logits),
                        None => pooler.pool(&states, self.width, self.prompt),
                    };
                    if numbers.iter().any(|number| !number.is_finite()) {
                        return Err(not_finite());
                    }
                    return Ok(Pooled { numbers, tokens: text.tokens, cut_from: text.cut_from });
                }
                _ => {}
            }
        }
        Err(Failure::unavailable("the engine has stopped"))
    }
}
