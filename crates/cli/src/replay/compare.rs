//! Compares an answer with the recorded one.

use omnibus_server::Record;
use omnibus_server::answer::{Answer, AnswerFormat};
use serde_json::Value;

/// A request that was played again.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The HTTP status; none when there was no answer.
    pub status: Option<u16>,
    /// Tokens of the completion, where the answer has them.
    pub completion_tokens: Option<u64>,
    /// Seconds to the end.
    pub total_s: f64,
    /// Beside the record.
    pub outcome: Outcome,
}

/// How an answer compares with the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It says the same.
    Same,
    /// It says something else, for this reason.
    Differs(String),
    /// It may differ, for this reason.
    NotCompared(&'static str),
}

/// What an answer of this status and body is beside the record.
pub fn compare(record: &Record, status: u16, body: &[u8], total_s: f64) -> Played {
    let said = AnswerFormat::of(&record.path).map(|format| Answer::read(format, body)).unwrap_or_default();
    let outcome = outcome(record, status, &said);
    Played { status: Some(status), completion_tokens: said.completion_tokens, total_s, outcome }
}

fn outcome(record: &Record, status: u16, said: &Answer) -> Outcome {
    let recorded = &record.answer;
    if status != recorded.status {
        return Outcome::Differs(format!("status {status} and not {}", recorded.status));
    }
    if !(200..300).contains(&status) {
        return Outcome::Same;
    }
    let Some(digest) = &recorded.sha256 else {
        return Outcome::NotCompared("its client left");
    };
    if !is_reproducible(record.body.as_ref()) {
        return Outcome::NotCompared("sampled");
    }
    if recorded.completion_tokens != said.completion_tokens {
        let count = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
        let (now, then) = (count(said.completion_tokens), count(recorded.completion_tokens));
        return Outcome::Differs(format!("{now} tokens and not {then}"));
    }
    match said.digest() == *digest {
        true => Outcome::Same,
        false => Outcome::Differs("another text".to_owned()),
    }
}

/// Whether a request has one right answer: it is greedy, or it has a seed.
fn is_reproducible(body: Option<&Value>) -> bool {
    let places = [body, body.and_then(|body| body.get("options"))];
    places.into_iter().flatten().any(|place| {
        let is_greedy = place.get("temperature").and_then(Value::as_f64) == Some(0.0);
        is_greedy || place.get("seed").is_some_and(Value::is_number)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use omnibus_server::RecordedAnswer;
    use serde_json::json;

    use super::*;

    const ANSWER: &str = r#"{"id":"a","choices":[{"index":0,"text":"hi"}],"usage":{"completion_tokens":2}}"#;

    /// A record of a completion of "hi".
    pub fn record(body: Value) -> Record {
        let said = Answer::read(AnswerFormat::Chat, ANSWER.as_bytes());
        Record {
            version: 1,
            time_ms: 1000,
            method: "POST".into(),
            path: "/v1/completions".into(),
            request_id: "req-1".into(),
            headers: BTreeMap::new(),
            model: None,
            seed: None,
            body: Some(body),
            body_text: None,
            answer: RecordedAnswer {
                status: 200,
                id: said.id.clone(),
                finish: None,
                prompt_tokens: None,
                completion_tokens: Some(2),
                first_s: Some(0.1),
                total_s: 0.5,
                is_whole: true,
                sha256: Some(said.digest()),
                error: None,
            },
        }
    }

    fn outcome_of(record: &Record, status: u16, body: &str) -> Outcome {
        compare(record, status, body.as_bytes(), 0.1).outcome
    }

    #[test]
    fn texts_are_compared_where_there_is_one_right_answer() {
        let other = ANSWER.replace("hi", "ho");
        for body in [json!({"temperature": 0}), json!({"seed": 7}), json!({"options": {"seed": 7}})] {
            assert_eq!(outcome_of(&record(body.clone()), 200, ANSWER), Outcome::Same);
            assert_eq!(outcome_of(&record(body), 200, &other), Outcome::Differs("another text".into()));
        }
        assert_eq!(outcome_of(&record(json!({})), 200, &other), Outcome::NotCompared("sampled"));
        let longer = ANSWER.replace(":2", ":3");
        let differs = Outcome::Differs("3 tokens and not 2".into());
        assert_eq!(outcome_of(&record(json!({"seed": 1})), 200, &longer), differs);
    }

    #[test]
    fn a_status_is_always_compared() {
        let differs = Outcome::Differs("status 400 and not 200".into());
        assert_eq!(outcome_of(&record(json!({})), 400, "{}"), differs);
        let mut refused = record(json!({}));
        refused.answer.status = 400;
        assert_eq!(outcome_of(&refused, 400, "{}"), Outcome::Same);
        let mut left = record(json!({"seed": 1}));
        left.answer.sha256 = None;
        assert_eq!(outcome_of(&left, 200, ANSWER), Outcome::NotCompared("its client left"));
    }
}
