//! Logits processors of programs that embed the engine: code that changes what a request may say next.
//!
//! Invariant: requests name them, so that a request stays a plain value. Without one, no logits leave the device.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a processor sees of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct SequenceTokens<'a> {
    /// Tokens of the request.
    pub prompt: &'a [u32],
    /// Tokens of the answer so far.
    pub answer: &'a [u32],
}

/// Changes the logits of the next token of a sequence. It is called once for each sampled token, and again for the same one
/// when a step is repeated, so it keeps no state of its own.
pub trait LogitsProcessor: Send + Sync {
    /// Changes the logits, one for each token of the model; −∞ forbids one. It runs between two steps: while it does,
    /// nothing else is computed. A panic fails the request.
    fn process(&self, tokens: SequenceTokens<'_>, logits: &mut [f32]);
}

impl<F: Fn(SequenceTokens<'_>, &mut [f32]) + Send + Sync> LogitsProcessor for F {
    fn process(&self, tokens: SequenceTokens<'_>, logits: &mut [f32]) {
        self(tokens, logits);
    }
}

/// The processors of an engine, by the names that requests give.
#[derive(Clone, Default)]
pub struct LogitsProcessors(BTreeMap<String, Arc<dyn LogitsProcessor>>);

impl LogitsProcessors {
    /// Adds a processor, in place of one of that name.
    pub fn with(mut self, name: impl Into<String>, processor: impl LogitsProcessor + 'static) -> Self {
        self.0.insert(name.into(), Arc::new(processor));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&dyn LogitsProcessor> {
        self.0.get(name).map(AsRef::as_ref)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl fmt::Debug for LogitsProcessors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}
