//! TypeSafe's answers and errors.

use axum::http::StatusCode;
use omnibus_engine::Scoring;

use super::Probabilities;
use crate::error::{ApiError, ErrorKind};
use crate::response::JsonBody;
use crate::wire::decisions::systemone::{
    Answer, ErrorBody, ErrorDetail, InvalidPart, NamedQuestion, ReadoutNumbers, SystemOneRequest,
    SystemOneResponse, SystemOneUsage,
};
use crate::wire::decisions::{ChoiceOption, QuestionKind, Readout};

/// The answers to a request. `model`: the one that answered.
pub fn response(request: &SystemOneRequest, scoring: &Scoring, model: String) -> SystemOneResponse {
    let answers = request.questions.iter().zip(&scoring.logprobs);
    let answers =
        answers.map(|(named, logprobs)| (named.key.clone(), answer(named, logprobs, request.readout)));
    SystemOneResponse {
        model,
        answers: answers.collect(),
        usage: SystemOneUsage {
            input_tokens: scoring.prompt_tokens,
            output_tokens: 0,
            x_cached_tokens: scoring.cached_tokens,
        },
    }
}

fn answer(named: &NamedQuestion, logprobs: &[f64], readout: Readout) -> Answer {
    let of = Probabilities::of(logprobs);
    let by_labels = readout == Readout::Labels || matches!(named.question.kind, QuestionKind::Noul { .. });
    let readout = ReadoutNumbers {
        x_label_mass: by_labels.then(|| of.mass()),
        x_log_likelihoods: (!by_labels)
            .then(|| logprobs.iter().map(|logprob| logprob.max(f64::MIN)).collect()),
    };
    match &named.question.kind {
        QuestionKind::Noul { .. } => Answer::Noul { noul: of.first(), readout },
        QuestionKind::Choice(options) => Answer::Choice {
            choice: options.get(of.best()).map(|option| option.name.clone()).unwrap_or_default(),
            probabilities: by_name(options, &of),
            confidence: of.choice_confidence(),
            readout,
        },
        QuestionKind::Score(_) => {
            let number = |(number, level): (usize, &serde_json::Value)| (number.to_string(), level.clone());
            Answer::Score {
                score: of.score(),
                legend: named.legend.iter().enumerate().map(number).collect(),
                probabilities: of
                    .values()
                    .iter()
                    .enumerate()
                    .map(|(at, value)| (at.to_string(), *value))
                    .collect(),
                confidence: of.score_confidence(),
                readout,
            }
        }
    }
}

fn by_name(options: &[ChoiceOption], of: &Probabilities) -> Vec<(String, f64)> {
    options.iter().map(|option| option.name.clone()).zip(of.values().iter().copied()).collect()
}

/// The body of an error response.
pub fn error_body(error: &ApiError) -> JsonBody {
    let message = error.message().to_owned();
    let detail = match error.kind() {
        ErrorKind::InvalidRequest => {
            ErrorDetail::Invalid([InvalidPart { loc: loc(error.param()), msg: message, kind: error.code() }])
        }
        kind => ErrorDetail::Failed { error_type: error_type(kind), message },
    };
    JsonBody::of(&ErrorBody { detail })
}

/// The status of an error: an invalid request is 422.
pub fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidRequest => StatusCode::UNPROCESSABLE_ENTITY,
        other => other.status(),
    }
}

/// A path of fields, in parts. A key with a dot is several parts.
fn loc(param: Option<&str>) -> Vec<String> {
    // Errors about the whole body name it in words.
    let path = param.filter(|param| *param != "the body").unwrap_or_default();
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    std::iter::once("body").chain(parts).map(str::to_owned).collect()
}

fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest
        | ErrorKind::MethodNotAllowed
        | ErrorKind::BodyTimeout
        | ErrorKind::Conflict
        | ErrorKind::TooLarge
        | ErrorKind::UnsupportedMediaType => "invalid_request_error",
        ErrorKind::Unauthorized => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::NotFound => "not_found",
        ErrorKind::RateLimited => "rate_limit_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::Internal => "internal_error",
        ErrorKind::Unavailable => "overloaded_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_at_fault_is_a_path() {
        let error = ApiError::invalid("questions.q.criteria[1]", "no");
        assert_eq!(
            error_body(&error).into_text(),
            r#"{"detail":[{"loc":["body","questions","q","criteria","1"],"msg":"no","type":"invalid_value"}]}"#
        );
        assert_eq!(status(error.kind()), StatusCode::UNPROCESSABLE_ENTITY);
        let text = error_body(&ApiError::unauthorized()).into_text();
        assert!(text.starts_with(r#"{"detail":{"error_type":"authentication_error","message":""#), "{text}");
        assert_eq!(status(ErrorKind::RateLimited), StatusCode::TOO_MANY_REQUESTS);
    }
}
