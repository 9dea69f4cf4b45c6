//! OpenAI's answers.

use omnibus_engine::Scoring;

use super::Probabilities;
use crate::wire::decisions::QuestionKind;
use crate::wire::decisions::openai::{
    Answer, ChoiceProbability, DecisionsRequest, DecisionsResponse, DecisionsUsage, InputDetails,
    LevelProbability, ListedQuestion, OutputDetails,
};

/// The answers to a request. `model`: as the client named it.
pub fn response(request: &DecisionsRequest, scoring: &Scoring, model: String) -> DecisionsResponse {
    let answers = request.questions.iter().zip(&scoring.logprobs);
    DecisionsResponse {
        model,
        answers: answers.map(|(listed, logprobs)| answer(listed, &Probabilities::of(logprobs))).collect(),
        usage: DecisionsUsage {
            input_tokens: scoring.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: scoring.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: 0,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: scoring.prompt_tokens,
        },
    }
}

fn answer(listed: &ListedQuestion, of: &Probabilities) -> Answer {
    let name = listed.name.clone();
    let values = listed.values.iter().cloned().zip(of.values().iter().copied());
    match listed.question.kind {
        QuestionKind::Noul { .. } => Answer::Predicate { name, probability: of.first() },
        QuestionKind::Choice(_) => Answer::Choice {
            name,
            choice: listed.values.get(of.best()).cloned().unwrap_or_default(),
            probabilities: values
                .map(|(value, probability)| ChoiceProbability { value, probability })
                .collect(),
            confidence: of.choice_confidence(),
        },
        QuestionKind::Score(_) => Answer::Score {
            name,
            score: of.score(),
            probabilities: values
                .enumerate()
                .map(|(value, (label, probability))| LevelProbability { value, label, probability })
                .collect(),
            confidence: of.score_confidence(),
        },
    }
}
