//! Scores of pairs of texts: by a model that reads both together, or by the angle between their vectors.

use std::collections::HashMap;

use omnibus_engine::{
    Activation, Pooled, PoolingInput, PoolingPrompt, PoolingRequest, Similarity, Task, max_sim,
};

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
        Task::Embed | Task::EmbedSparse { .. } => apart(call, pairs, pooler.similarity()).await,
        Task::EmbedTokens => by_tokens(call, pairs).await,
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
async fn apart(call: &PoolingCall, pairs: Pairs<'_>, similarity: Similarity) -> Result<Scores, ApiError> {
    let mut texts = Distinct::default();
    let places: Vec<(usize, usize)> = pairs
        .texts
        .into_iter()
        .map(|(first, second)| (texts.number_of(first), texts.number_of(second)))
        .collect();
    let inputs = texts.texts.into_iter().map(PoolingInput::Text).collect();
    let pooled = call.pool(lower::pooling::request(pairs.options, inputs, pairs.field, &call.caller)).await?;
    let score = |(first, second): &(usize, usize)| match (pooled.get(*first), pooled.get(*second)) {
        (Some(first), Some(second)) => match similarity {
            Similarity::Cosine => cosine(&first.numbers, &second.numbers),
            Similarity::Dot => dot(&first.numbers, &second.numbers) as f32,
        },
        _ => 0.0,
    };
    let scores = places.iter().map(score).collect();
    let of_second = places.iter().filter_map(|(_, second)| pooled.get(*second).cloned());
    Ok(Scores { scores, tokens: tokens(&pooled), pooled: of_second.collect() })
}

/// Texts, each once.
#[derive(Default)]
struct Distinct {
    texts: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Distinct {
    fn number_of(&mut self, text: String) -> usize {
        *self.numbers.entry(text.clone()).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() - 1
        })
    }
}

/// Most documents whose vectors of tokens are in memory at a time.
const DOCUMENTS_AT_A_TIME: usize = 64;

/// Each query's tokens with each document's. Vectors of a document are dropped once they have been compared.
async fn by_tokens(call: &PoolingCall, pairs: Pairs<'_>) -> Result<Scores, ApiError> {
    let part = |texts: &[String], role: &str, field| PoolingRequest {
        prompt: PoolingPrompt::Named(role.to_owned()),
        ..lower::pooling::request(
            pairs.options,
            texts.iter().cloned().map(PoolingInput::Text).collect(),
            field,
            &call.caller,
        )
    };
    let (mut queries, mut documents) = (Distinct::default(), Distinct::default());
    let texts = pairs.texts.iter().cloned();
    let places: Vec<(usize, usize)> =
        texts.map(|(query, document)| (queries.number_of(query), documents.number_of(document))).collect();
    let queries = call.pool_part(part(&queries.texts, "query", "query")).await?;
    let mut tokens = tokens(&queries);
    let mut of_documents: Vec<Pooled> = Vec::with_capacity(documents.texts.len());
    let mut scores = vec![0.0; places.len()];
    for texts in documents.texts.chunks(DOCUMENTS_AT_A_TIME) {
        let first = of_documents.len();
        let mut pooled = call.pool_part(part(texts, "document", pairs.field)).await?;
        tokens += self::tokens(&pooled);
        for (score, (query, document)) in scores.iter_mut().zip(&places) {
            let document = document.checked_sub(first).and_then(|document| pooled.get(document));
            if let Some((query, document)) = queries.get(*query).zip(document) {
                let width = query.numbers.len() / query.of_tokens.len().max(1);
                *score = max_sim(&query.numbers, &document.numbers, width);
            }
        }
        pooled.iter_mut().for_each(|document| document.numbers = Vec::new());
        of_documents.extend(pooled);
    }
    call.end_pooling(tokens);
    let pooled = places.iter().filter_map(|(_, document)| of_documents.get(*document).cloned()).collect();
    Ok(Scores { scores, tokens, pooled })
}

/// The cosine of the angle between two vectors; 0 where one of them is all zeros.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { (dot(one, other) / lengths) as f32 } else { 0.0 }
}

fn dot(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[test]
fn vectors_of_one_direction_have_cosine_1() {
    assert_eq!(cosine(&[1.0, 2.0], &[2.0, 4.0]), 1.0);
    assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
    assert_eq!(cosine(&[0.0, 0.0], &[0.0, 1.0]), 0.0);
}
