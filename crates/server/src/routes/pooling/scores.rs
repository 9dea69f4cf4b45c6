//! Scores of pairs of texts: by a model that reads both together, or by the angle between their vectors.

use omnibus_engine::{Activation, Pooled, PoolingInput, PoolingRequest, Task};

use super::{PoolingCall, tokens, wrong_task};
use crate::error::ApiError;
use crate::lower;
use crate::wire::pooling::PoolingOptions;

/// Pairs of texts.
pub(super) struct Pairs<'a> {
    pub(super) options: &'a PoolingOptions,
    pub(super) texts: Vec<(String, String)>,
    /// The field of the request that the second texts are in.
    pub(super) field: &'static str,
    /// For models whose template has one.
    pub(super) instruction: Option<String>,
    /// Whether scores are those of the model's files, or the head's numbers.
    pub(super) activated: bool,
}

/// The scores of pairs, and how many tokens they had.
pub(super) struct Scores {
    pub(super) scores: Vec<f32>,
    pub(super) tokens: usize,
    /// What the model made of the second texts, or of the pairs.
    pub(super) pooled: Vec<Pooled>,
}

/// The score of each pair.
pub(super) async fn of(call: &PoolingCall, pairs: Pairs<'_>) -> Result<Scores, ApiError> {
    let pooler = call.pooler(pairs.options.model.as_deref())?;
    match pooler.task() {
        Task::Score { activation } | Task::ScoreTokens { activation, .. } => {
            together(call, pairs, *activation).await
        }
        Task::Embed => apart(call, pairs).await,
        task @ (Task::Classify { .. } | Task::ClassifyTokens { .. }) => {
            Err(wrong_task(task, "scores no pairs"))
        }
    }
}

async fn together(call: &PoolingCall, pairs: Pairs<'_>, activation: Activation) -> Result<Scores, ApiError> {
    let inputs = pairs.texts.into_iter().map(|(first, second)| PoolingInput::Pair(first, second)).collect();
    let pooling = PoolingRequest {
        instruction: pairs.instruction,
        ..lower::pooling::request(pairs.options, inputs, pairs.field, &call.caller)
    };
    let pooled = call.pool(pooling).await?;
    let activation = if pairs.activated { activation } else { Activation::Identity };
    let score = |text: &Pooled| activation.apply(&text.numbers).first().copied().unwrap_or_default();
    Ok(Scores { scores: pooled.iter().map(score).collect(), tokens: tokens(&pooled), pooled })
}

/// Each text is read once, however many pairs it is in.
async fn apart(call: &PoolingCall, pairs: Pairs<'_>) -> Result<Scores, ApiError> {
    let mut texts: Vec<String> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    let mut number_of = |text: String| {
        *numbers.entry(text.clone()).or_insert_with(|| {
            texts.push(text);
            texts.len() - 1
        })
    };
    let places: Vec<(usize, usize)> =
        pairs.texts.into_iter().map(|(first, second)| (number_of(first), number_of(second))).collect();
    let inputs = texts.into_iter().map(PoolingInput::Text).collect();
    let pooled = call.pool(lower::pooling::request(pairs.options, inputs, pairs.field, &call.caller)).await?;
    let score = |(first, second): &(usize, usize)| match (pooled.get(*first), pooled.get(*second)) {
        (Some(first), Some(second)) => cosine(&first.numbers, &second.numbers),
        _ => 0.0,
    };
    let scores = places.iter().map(score).collect();
    let of_second = places.iter().filter_map(|(_, second)| pooled.get(*second).cloned());
    Ok(Scores { scores, tokens: tokens(&pooled), pooled: of_second.collect() })
}

/// The cosine of the angle between two vectors; 0 where one of them is all zeros.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { (dot(one, other) / lengths) as f32 } else { 0.0 }
}

#[test]
fn vectors_of_one_direction_have_cosine_1() {
    assert_eq!(cosine(&[1.0, 2.0], &[2.0, 4.0]), 1.0);
    assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
    assert_eq!(cosine(&[0.0, 0.0], &[0.0, 1.0]), 0.0);
}
