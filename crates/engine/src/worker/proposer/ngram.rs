//! Draft tokens without a model: what followed the same tokens before, in the sequence, in what its client expects, and in
//! recent answers of the same salt.

use std::collections::BTreeMap;

use omnibus_core::{DraftKind, SequenceId};
use omnibus_draft::{Answers, Draft, History};

use super::{DraftContext, DraftTokens, Proposal, Proposer};

/// Tokens of recent answers that are kept, of all salts together: some 10 MB.
const ANSWERS_MAX: usize = 256 << 10;
/// Kinds of drafts of the sequence's own tokens, by the length of the match: below these.
const OWN_KINDS: [usize; 4] = [3, 5, 9, 17];
/// The first kind of drafts of recent answers; with a longer match it is the next one.
const ANSWER_KIND: u8 = OWN_KINDS.len() as u8 + 1;
/// From this length on a match with a recent answer is a long one.
const LONG_MATCH: usize = 9;

/// Proposes what followed the same tokens before.
pub(super) struct NgramProposer {
    sequences: BTreeMap<SequenceId, OwnTokens>,
    answers: Answers<(u128, u128)>,
}

/// What a sequence's drafts are looked up in.
struct OwnTokens {
    /// What its client expects, its prompt and its answer.
    history: History,
    answer: Vec<u32>,
    salt: (u128, u128),
    /// How many of its tokens are in the history.
    known: usize,
}

impl Default for NgramProposer {
    fn default() -> Self {
        Self { sequences: BTreeMap::new(), answers: Answers::new(ANSWERS_MAX) }
    }
}

impl OwnTokens {
    fn new(context: &DraftContext<'_>) -> Self {
        let mut history = History::default();
        if !context.prediction.is_empty() {
            history.extend(context.prediction);
            history.separate();
        }
        Self { history, answer: Vec::new(), salt: context.salt, known: 0 }
    }

    /// Takes the tokens that are new.
    fn update(&mut self, context: &DraftContext<'_>) {
        let answer = context.tokens.get(self.known.max(context.prompt)..).unwrap_or_default();
        self.answer.extend_from_slice(answer);
        self.history.extend(context.tokens.get(self.known..).unwrap_or_default());
        self.known = context.tokens.len();
    }
}

impl Proposer for NgramProposer {
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal {
        let own = self.sequences.entry(context.sequence).or_insert_with(|| OwnTokens::new(context));
        own.update(context);
        let draft = own.history.draft(context.most);
        let recent = self.answers.draft_after(context.salt, context.tokens, context.most);
        if recent.expected > draft.expected { of_answers(recent) } else { of_own(draft) }
    }

    fn remove(&mut self, sequence: SequenceId) {
        if let Some(own) = self.sequences.remove(&sequence) {
            self.answers.add(own.salt, &own.answer);
        }
    }

    fn clear(&mut self) {
        self.sequences.clear();
    }
}

fn of_own(draft: Draft) -> Proposal {
    let kind = OWN_KINDS.iter().filter(|least| draft.matched >= **least).count();
    Proposal { tokens: DraftTokens::Known(draft.tokens), kind: DraftKind(kind as u8) }
}

fn of_answers(draft: Draft) -> Proposal {
    let kind = ANSWER_KIND + u8::from(draft.matched >= LONG_MATCH);
    Proposal { tokens: DraftTokens::Known(draft.tokens), kind: DraftKind(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(sequence: u64, tokens: &[u32], salt: u128) -> DraftContext<'_> {
        DraftContext {
            sequence: SequenceId(sequence),
            tokens,
            prompt: 3,
            salt: (salt, 0),
            prediction: &[],
            most: 8,
        }
    }

    #[test]
    fn a_sequence_is_drafted_by_its_own_tokens_first() {
        let mut proposer = NgramProposer::default();
        let proposal = proposer.propose(&context(0, &[1, 2, 3, 9, 1, 2], 7));
        assert_eq!(proposal, Proposal { tokens: DraftTokens::Known(vec![3, 9, 1, 2]), kind: DraftKind(0) });
        // The prompt of three tokens is no answer.
        proposer.remove(SequenceId(0));
        assert_eq!(proposer.propose(&context(1, &[5, 6, 7, 1, 2], 7)).tokens, DraftTokens::Known(vec![]));
        assert_eq!(proposer.propose(&context(2, &[5, 6, 7, 9, 1], 7)).tokens, DraftTokens::Known(vec![2]));
        assert_eq!(
            proposer.propose(&context(3, &[5, 6, 7, 9, 1], 8)).tokens,
            DraftTokens::Known(vec![]),
            "another salt"
        );
    }

    #[test]
    fn a_number_that_another_sequence_had_before_tells_nothing_of_it() {
        let mut proposer = NgramProposer::default();
        proposer.propose(&context(0, &[1, 2, 3, 9, 1, 2], 7));
        proposer.clear();
        assert_eq!(proposer.propose(&context(0, &[5, 6, 7, 1, 2], 8)).tokens, DraftTokens::Known(vec![]));
    }

    #[test]
    fn what_the_client_expects_is_drafted() {
        let mut proposer = NgramProposer::default();
        let prediction = [4, 5, 6, 7, 8];
        let context = DraftContext { prediction: &prediction, ..context(0, &[1, 2, 3, 4, 5], 7) };
        assert_eq!(proposer.propose(&context).tokens, DraftTokens::Known(vec![6, 7, 8]));
    }
}
