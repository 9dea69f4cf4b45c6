//! Charges a key for one sequence, from its events as they pass.

use std::sync::Arc;

use omnibus_engine::{TranscriptionEvent, Usage};

use crate::keys::{Account, QueuePlace, StreamPlace};
use crate::response::Event;

/// What a sequence takes of its key. A client that leaves is charged for what came until then.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    prompt: PromptCharge,
    /// Until the first step.
    queued: Option<QueuePlace>,
    _stream: Arc<StreamPlace>,
    charged: Usage,
}

/// Whether a sequence's prompt is charged: that of several choices is once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptCharge {
    /// It is the first of its prompt.
    Charged,
    /// Another sequence has the same prompt.
    Free,
}

impl Charge {
    /// Of a sequence that was just submitted.
    pub fn new(
        account: Arc<Account>,
        prompt: PromptCharge,
        queued: QueuePlace,
        stream: Arc<StreamPlace>,
    ) -> Self {
        Self { account, prompt, queued: Some(queued), _stream: stream, charged: Usage::default() }
    }

    /// Charges what an event shows.
    pub fn observe(&mut self, event: &Event) {
        use omnibus_engine::Event as Generation;
        match event {
            Event::Engine(Generation::Started { prompt_tokens, cached_tokens }) => {
                self.queued = None;
                self.charge_prompt(*prompt_tokens, *cached_tokens);
            }
            // Mostly one token. The last event has the exact number.
            Event::Engine(Generation::Delta { tokens, .. }) => {
                self.charge_completion(self.charged.completion_tokens + tokens.len().max(1));
            }
            Event::Engine(Generation::Finished { usage, .. }) => self.settle(usage),
            Event::Speech(TranscriptionEvent::Finished(summary)) => self.settle(&summary.usage),
            Event::Engine(_) | Event::Speech(_) | Event::Tool(_) | Event::Failed(_) => {}
        }
    }

    fn settle(&mut self, usage: &Usage) {
        self.charge_prompt(usage.prompt_tokens, usage.cached_tokens);
        self.charge_completion(usage.completion_tokens);
    }

    fn charge_prompt(&mut self, tokens: usize, cached: usize) {
        if self.prompt == PromptCharge::Free {
            return;
        }
        let more = |whole: usize, charged: usize| whole.saturating_sub(charged) as u64;
        let Usage { prompt_tokens, cached_tokens, .. } = &mut self.charged;
        self.account.charge_prompt(more(tokens, *prompt_tokens), more(cached, *cached_tokens));
        (*prompt_tokens, *cached_tokens) = (tokens.max(*prompt_tokens), cached.max(*cached_tokens));
    }

    fn charge_completion(&mut self, tokens: usize) {
        let charged = &mut self.charged.completion_tokens;
        self.account.charge_completion(tokens.saturating_sub(*charged) as u64);
        *charged = tokens.max(*charged);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use omnibus_engine::{Class, Delta, Event as Generation, FinishReason};

    use super::*;
    use crate::keys::KeyLimits;

    fn charged(prompt: PromptCharge, events: Vec<Generation>) -> (u64, u64, u64, usize) {
        let account = Arc::<Account>::default();
        let stream = account.admit(&KeyLimits::default(), Duration::ZERO, Class::Online).unwrap();
        let queued = account.queue(&KeyLimits::default(), 1, Class::Online).unwrap();
        let mut charge = Charge::new(Arc::clone(&account), prompt, queued, Arc::new(stream));
        events.into_iter().for_each(|event| charge.observe(&Event::Engine(event)));
        let totals = account.totals();
        drop(charge);
        assert_eq!((account.totals().streams, account.totals().queued), (0, 0));
        (totals.prompt_tokens, totals.cached_tokens, totals.completion_tokens, totals.queued)
    }

    fn delta() -> Generation {
        Generation::Delta { delta: Delta::Text("a".into()), tokens: Vec::new() }
    }

    #[test]
    fn the_last_event_has_the_exact_numbers() {
        let started = Generation::Started { prompt_tokens: 9, cached_tokens: 4 };
        let usage = Usage { prompt_tokens: 9, cached_tokens: 4, completion_tokens: 5, ..Usage::default() };
        let finished = Generation::Finished { reason: FinishReason::Stop, matched: None, usage };
        assert_eq!(charged(PromptCharge::Charged, vec![]), (0, 0, 0, 1));
        assert_eq!(charged(PromptCharge::Charged, vec![started.clone(), delta(), delta()]), (9, 4, 2, 0));
        let whole = vec![started, delta(), delta(), finished];
        assert_eq!(charged(PromptCharge::Charged, whole.clone()), (9, 4, 5, 0));
        assert_eq!(charged(PromptCharge::Free, whole), (0, 0, 5, 0));
    }
}
