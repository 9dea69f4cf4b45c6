//! Rows that verify draft tokens: which ones are before each row.

use std::collections::BTreeMap;

use omnibus_core::SequenceId;

use super::SampleRow;

/// The draft tokens of a step, of sequences whose logits depend on the tokens before them.
#[derive(Debug, Default)]
pub(super) struct DraftedTokens(BTreeMap<SequenceId, Vec<u32>>);

impl DraftedTokens {
    pub(super) fn extend(&mut self, drafts: &[(SequenceId, Vec<u32>)]) {
        self.0.extend(drafts.iter().cloned());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The draft tokens before each row: none before the first of a sequence, and one more before each further one. The
    /// rows of a sequence follow each other.
    pub(super) fn before_rows(&self, rows: &[SampleRow]) -> Vec<&[u32]> {
        let before = rows.iter().zip(places(rows)).map(|(row, place)| {
            self.0.get(&row.sequence).and_then(|drafts| drafts.get(..place)).unwrap_or_default()
        });
        before.collect()
    }
}

/// Each row's place among the rows of its sequence, which follow each other.
pub(super) fn places(rows: &[SampleRow]) -> Vec<usize> {
    let mut place = 0;
    let mut before = None;
    let places = rows.iter().map(|row| {
        place = if before == Some(row.sequence) { place + 1 } else { 0 };
        before = Some(row.sequence);
        place
    });
    places.collect()
}
