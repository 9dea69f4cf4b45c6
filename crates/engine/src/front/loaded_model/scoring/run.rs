//! Prompts and replies in the engine: what they begin with in common, then the prompts, then replies of several tokens.

use std::collections::VecDeque;
use std::sync::Arc;

use super::prepare::{PreparedPrompt, PreparedReplies};
use crate::error::Failure;
use crate::event::Event;
use crate::front::event_stream::EventStream;
use crate::front::loaded_model::LoadedModel;
use crate::front::scoring::Scoring;
use crate::request::{Input, Request};

/// Parts of one call that are queued or run at a time: enough to fill steps.
const AT_A_TIME: usize = 64;

/// A common beginning of fewer tokens is computed with each prompt, in the same step.
const COMMON_MIN: usize = 64;

/// The prompts of one call. Dropping it cancels them.
pub struct ScoringRun {
    model: Arc<LoadedModel>,
    /// What all parts have in common.
    request: Request,
    prompts: Vec<PreparedPrompt>,
    /// Tokens that stand before each prompt.
    before: usize,
    logprobs: Vec<Vec<f64>>,
    /// Positions so far.
    computed: usize,
    /// Parts so far, for their ids.
    parts: usize,
}

/// What is computed as one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// So many tokens that all prompts begin with.
    Beginning(usize),
    /// A prompt.
    Prompt(usize),
    /// A prompt with one of its replies.
    Reply(usize, usize),
}

impl ScoringRun {
    /// `before`: tokens that the engine puts before each prompt.
    pub(super) fn new(
        model: Arc<LoadedModel>,
        request: Request,
        prompts: Vec<PreparedPrompt>,
        before: usize,
    ) -> Self {
        let logprobs = prompts.iter().map(|prompt| vec![f64::NAN; prompt.replies.len()]).collect();
        Self { model, request, prompts, before, logprobs, computed: 0, parts: 0 }
    }

    /// Scores all replies. Fails with the first part that fails.
    pub async fn results(mut self) -> Result<Scoring, Failure> {
        for parts in self.plan() {
            self.run(parts).await?;
        }
        if self.logprobs.iter().flatten().any(|logprob| logprob.is_nan()) {
            return Err(Failure::Engine { message: "the likelihoods of replies are not numbers".to_owned() });
        }
        let prompt_tokens = self.prompts.iter().map(|prompt| prompt.tokens(self.before)).sum::<usize>();
        let cached_tokens = prompt_tokens.saturating_sub(self.computed);
        Ok(Scoring { logprobs: self.logprobs, prompt_tokens, cached_tokens })
    }

    /// Parts that run together, in order: each shares blocks with those of the ones before.
    fn plan(&self) -> [Vec<Part>; 3] {
        let shares = self.model.shares_prefixes;
        let common = common(self.prompts.iter().map(|prompt| prompt.tokens.as_slice()));
        let is_shared = shares && self.prompts.len() > 1 && common >= COMMON_MIN;
        let beginning = is_shared.then_some(Part::Beginning(common)).into_iter().collect();
        let (mut prompts, mut replies) = (Vec::new(), Vec::new());
        for (at, prompt) in self.prompts.iter().enumerate() {
            let count = match &prompt.replies {
                PreparedReplies::Tokens(_) => 0,
                PreparedReplies::Texts(texts) => texts.len(),
            };
            if count == 0 || (count > 1 && shares) {
                prompts.push(Part::Prompt(at));
            }
            replies.extend((0..count).map(|reply| Part::Reply(at, reply)));
        }
        [beginning, prompts, replies]
    }

    /// Runs parts, some at a time, until all have ended. While the queue is full, those that run are waited for.
    async fn run(&mut self, parts: Vec<Part>) -> Result<(), Failure> {
        let (mut waiting, mut running) = (VecDeque::from(parts), VecDeque::new());
        loop {
            while running.len() < AT_A_TIME
                && let Some(part) = waiting.pop_front()
            {
                let request = self.request(part);
                match self.model.submit(request) {
                    Ok(events) => running.push_back((part, events)),
                    Err(Failure::Busy { .. }) if !running.is_empty() => {
                        waiting.push_front(part);
                        break;
                    }
                    Err(failure) => return Err(failure),
                }
            }
            let Some((part, events)) = running.pop_front() else { return Ok(()) };
            self.end(part, events).await?;
        }
    }

    fn request(&mut self, part: Part) -> Request {
        let tokens = |at: usize| self.prompts.get(at).map(|prompt| prompt.tokens.as_slice());
        let (at, end) = match part {
            Part::Beginning(end) => (0, end),
            Part::Prompt(at) | Part::Reply(at, _) => (at, usize::MAX),
        };
        let prompt = tokens(at).unwrap_or_default();
        let mut request = Request {
            id: format!("{}-{}", self.request.id, self.parts),
            input: Input::Tokens(prompt.iter().copied().take(end).collect()),
            max_new_tokens: Some(0),
            ..self.request.clone()
        };
        match (part, self.prompts.get(at).map(|prompt| &prompt.replies)) {
            (Part::Prompt(_), Some(PreparedReplies::Tokens(tokens))) => request.token_logits = tokens.clone(),
            (Part::Reply(_, reply), Some(PreparedReplies::Texts(texts))) => {
                request.prompt_logprobs = Some(0);
                request.logprob_start = self.before + prompt.len();
                if let (Input::Tokens(tokens), Some(reply)) = (&mut request.input, texts.get(reply)) {
                    tokens.extend(reply);
                }
            }
            _ => {}
        }
        self.parts += 1;
        request
    }

    /// Waits for the end of a part, and keeps what it reports.
    async fn end(&mut self, part: Part, mut events: EventStream) -> Result<(), Failure> {
        let (mut of_tokens, mut sum) = (Vec::new(), 0.0);
        while let Some(event) = events.next().await {
            match event {
                Event::Started { prompt_tokens, cached_tokens } => {
                    self.computed += prompt_tokens.saturating_sub(cached_tokens);
                }
                Event::TokenLogits(logits) => of_tokens = logits.logprobs().collect(),
                Event::Prompt(tokens) => {
                    sum += tokens.iter().filter_map(|token| token.logprob).map(f64::from).sum::<f64>();
                }
                Event::Failed(failure) => return Err(failure),
                Event::Finished { .. } => {
                    self.keep(part, of_tokens, sum);
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(Failure::unavailable("the engine has stopped"))
    }

    fn keep(&mut self, part: Part, of_tokens: Vec<f64>, sum: f64) {
        match part {
            Part::Prompt(at) if !of_tokens.is_empty() => {
                if let Some(logprobs) = self.logprobs.get_mut(at) {
                    *logprobs = of_tokens;
                }
            }
            Part::Reply(at, reply) => {
                if let Some(logprob) = self.logprobs.get_mut(at).and_then(|all| all.get_mut(reply)) {
                    *logprob = sum;
                }
            }
            Part::Beginning(_) | Part::Prompt(_) => {}
        }
    }
}

impl PreparedReplies {
    fn len(&self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Texts(texts) => texts.len(),
        }
    }
}

impl PreparedPrompt {
    /// Its tokens, with those of replies that are sequences of their own.
    fn tokens(&self, before: usize) -> usize {
        let replies = match &self.replies {
            PreparedReplies::Tokens(_) => 0,
            PreparedReplies::Texts(texts) => texts.iter().map(Vec::len).sum(),
        };
        before + self.tokens.len() + replies
    }
}

/// How many tokens all prompts begin with.
fn common<'a>(mut prompts: impl Iterator<Item = &'a [u32]>) -> usize {
    let Some(first) = prompts.next() else { return 0 };
    prompts.fold(first.len(), |common, prompt| {
        let equal = first.iter().zip(prompt).take(common).take_while(|(one, other)| one == other);
        equal.count()
    })
}

#[test]
fn a_common_beginning_is_that_of_all_prompts() {
    let of = |prompts: &[&[u32]]| common(prompts.iter().copied());
    assert_eq!(of(&[&[1, 2, 3], &[1, 2, 4], &[1, 2]]), 2);
    assert_eq!(of(&[&[1, 2], &[3]]), 0);
    assert_eq!(of(&[&[1, 2]]), 2);
    assert_eq!(of(&[]), 0);
}
