//! What Whisper may write next: tokens of time come in pairs and never go back.
//!
//! Source: arXiv 2212.04356 §4.5; openai/whisper `decoding.py`, whose rules transformers has, too.

use super::tokens::SpeechTokens;
use crate::logits_processor::{LogitsProcessor, SequenceTokens};

/// The name of the rules among an engine's logits processors.
pub(crate) const SPEECH_RULES: &str = "speech";

/// The rules of a model.
pub(crate) struct SpeechRules(pub(crate) SpeechTokens);

impl LogitsProcessor for SpeechRules {
    fn process(&self, tokens: SequenceTokens<'_>, logits: &mut [f32]) {
        let speech = &self.0;
        let vocab = logits.len();
        let mut forbid = |from: usize, to: usize| {
            logits
                .get_mut(from..to.min(vocab))
                .into_iter()
                .flatten()
                .for_each(|logit| *logit = f32::NEG_INFINITY);
        };
        let (end, first_time) = (speech.end as usize, speech.first_time() as usize);
        let answer = tokens.answer;
        let one = |id: &u32| (*id as usize, *id as usize + 1);
        let not_first = speech.not_first.iter().filter(|_| answer.is_empty());
        speech.suppressed.iter().chain(not_first).map(one).for_each(|(from, to)| forbid(from, to));
        let is_time = |at: usize| {
            answer.len().checked_sub(at).and_then(|at| answer.get(at)).map(|id| speech.time(*id).is_some())
        };
        let ends_in_time = is_time(1) == Some(true);
        // The second of a pair begins the next segment; the first token counts as one.
        let ends_in_pair = ends_in_time && is_time(2).unwrap_or(true);
        if ends_in_pair {
            forbid(first_time, usize::MAX);
        } else if ends_in_time {
            forbid(0, end);
        }
        if let Some(last) = answer.iter().rev().find(|id| speech.time(**id).is_some()) {
            let next = if ends_in_time && !ends_in_pair { *last } else { last + 1 };
            forbid(first_time, next as usize);
        }
        if answer.is_empty() {
            forbid(0, first_time);
            forbid(speech.latest_first_time as usize + 1, usize::MAX);
        }
        prefer_times(logits, first_time);
    }
}

/// Where all times together are more likely than any other token, it is a time.
fn prefer_times(logits: &mut [f32], first_time: usize) {
    let Some((others, times)) = logits.split_at_mut_checked(first_time) else { return };
    let largest = |logits: &[f32]| logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (of_others, of_times) = (largest(others), largest(times));
    if of_times == f32::NEG_INFINITY {
        return;
    }
    let sum: f32 = times.iter().map(|logit| (logit - of_times).exp()).sum();
    if of_times + sum.ln() > of_others {
        others.fill(f32::NEG_INFINITY);
    }
}
