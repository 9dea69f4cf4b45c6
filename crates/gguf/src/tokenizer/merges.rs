//! Merges of a SentencePiece vocabulary, which has scores alone.
//!
//! Source: transformers `convert_slow_tokenizer.py`, `generate_merges`.

use std::collections::HashMap;

/// Every pair of tokens whose texts together are a token's, the token with the highest score first.
pub fn of_scores<'a>(tokens: &'a [String], scores: &[f32]) -> Vec<[&'a str; 2]> {
    let ids: HashMap<&str, usize> =
        tokens.iter().enumerate().rev().map(|(id, token)| (token.as_str(), id)).collect();
    let mut merges = Vec::new();
    for (token, score) in tokens.iter().zip(scores) {
        let cuts = token.char_indices().skip(1).filter_map(|(at, _)| token.split_at_checked(at));
        let mut pairs: Vec<_> = cuts
            .filter_map(|(left, right)| Some(((*ids.get(left)?, *ids.get(right)?), [left, right])))
            .collect();
        pairs.sort_by_key(|(ids, _)| *ids);
        merges.extend(pairs.into_iter().map(|(_, pair)| (*score, pair)));
    }
    let length = |text: &str| text.chars().count();
    merges.sort_by(|(score_a, [left_a, right_a]), (score_b, [left_b, right_b])| {
        score_b
            .total_cmp(score_a)
            .then_with(|| length(left_b).cmp(&length(left_a)))
            .then_with(|| length(right_b).cmp(&length(right_a)))
    });
    merges.into_iter().map(|(_, pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_come_in_the_order_of_scores() {
        let tokens = ["a", "b", "c", "bc", "ab", "abc"].map(str::to_owned);
        let merges = of_scores(&tokens, &[0.0, 0.0, 0.0, -2.0, -1.0, -3.0]);
        assert_eq!(merges, [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]);
    }
}
