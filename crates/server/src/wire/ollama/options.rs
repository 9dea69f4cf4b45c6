//! `options`: sampling and limits.

use serde_json::Value;

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured, type_error};
use crate::wire::generation::{Generation, Sampling, Stop, TOKENS_MAX};

/// Fields of `options`. Absent ones have Ollama's defaults.
pub const OPTIONS: &[Field] = &[
    honoured("num_predict", "most tokens to generate; -1, 0 and absent are until the context ends"),
    honoured("temperature", "0 is greedy; 0.8 when absent"),
    honoured("top_k", "keeps the k most likely tokens; 0 keeps all; 40 when absent"),
    honoured("top_p", "nucleus sampling; 0.9 when absent"),
    honoured("min_p", "keeps tokens at least this fraction as likely as the most likely one"),
    honoured("repeat_penalty", "over the last `repeat_last_n` tokens, prompt included"),
    honoured("repeat_last_n", "64 when absent; 0 switches the penalty off, -1 is the whole context"),
    honoured("presence_penalty", "over the generated tokens"),
    honoured("frequency_penalty", "over the generated tokens"),
    honoured("seed", "the same seed gives the same text; -1 and absent choose a fresh one"),
    honoured("stop", "a list of at most 64 strings, or one"),
    honoured("typical_p", "only 1, which keeps all tokens"),
    honoured("num_ctx", "checked; the context is the server's, as `/api/show` lists it"),
    harmless("num_keep", "the context is never shifted"),
    harmless("num_batch", "the server chooses"),
    harmless("num_gpu", "the whole model is on the device"),
    harmless("main_gpu", "the server chooses"),
    harmless("num_thread", "the server chooses"),
    harmless("use_mmap", "the server chooses"),
    harmless("use_mlock", "the server chooses"),
    harmless("numa", "the server chooses"),
    harmless("low_vram", "the server chooses"),
    harmless("f16_kv", "`--kv-bits` says how keys and values are stored"),
    harmless("vocab_only", "a loading option of former versions"),
    harmless("logits_all", "a loading option of former versions"),
    harmless("embedding_only", "a loading option of former versions"),
    harmless("draft_num_predict", "the server chooses"),
    harmless("mirostat", "gone from Ollama"),
    harmless("mirostat_eta", "gone from Ollama"),
    harmless("mirostat_tau", "gone from Ollama"),
    harmless("tfs_z", "gone from Ollama"),
    harmless("penalize_newline", "gone from Ollama"),
];

/// Ollama's defaults, where they are not the engine's.
const TEMPERATURE: f64 = 0.8;
const TOP_K: usize = 40;
const TOP_P: f64 = 0.9;
const REPEAT_LAST_N: i64 = 64;
/// The most tokens that a penalty looks back.
const CONTEXT_MAX: usize = 1 << 20;

/// Takes `options` out of a body.
pub fn read(fields: &mut Fields) -> Result<Generation, ApiError> {
    let value = fields.value("options").unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut options = Fields::tolerant(value, "options", &[OPTIONS])?;
    check_neutral(&mut options)?;
    let num_predict = whole(&mut options, "num_predict")?;
    let last = whole(&mut options, "repeat_last_n")?.unwrap_or(REPEAT_LAST_N);
    let repetition_context = usize::try_from(last).map_or(CONTEXT_MAX, |last| last.min(CONTEXT_MAX));
    let top_k = whole(&mut options, "top_k")?;
    let sampling = Sampling {
        temperature: Some(options.number("temperature")?.unwrap_or(TEMPERATURE)),
        top_k: Some(top_k.map_or(TOP_K, |k| usize::try_from(k).unwrap_or(0).min(TOKENS_MAX))),
        top_p: Some(options.number("top_p")?.unwrap_or(TOP_P)),
        min_p: options.number("min_p")?,
        repetition_penalty: options.number("repeat_penalty")?,
        repetition_context: Some(repetition_context),
        presence_penalty: options.number("presence_penalty")?,
        frequency_penalty: options.number("frequency_penalty")?,
        seed: whole(&mut options, "seed")?.and_then(|seed| u64::try_from(seed).ok()),
        ..Sampling::default()
    };
    Ok(Generation {
        max_tokens: num_predict.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0),
        sampling,
        stop: Stop { strings: stop(&mut options)?, ..Stop::default() },
        n: 1,
        ..Generation::default()
    })
}

/// Checks options of which one value can be honoured, or whose value changes no answer.
fn check_neutral(options: &mut Fields) -> Result<(), ApiError> {
    if options.number("typical_p")?.is_some_and(|p| p != 1.0) {
        let at = options.at("typical_p");
        return Err(ApiError::unsupported(&at, format!("`{at}` must be 1; use `top_p` or `min_p`")));
    }
    if whole(options, "num_ctx")?.is_some_and(|tokens| tokens < 0) {
        let at = options.at("num_ctx");
        return Err(ApiError::invalid(&at, format!("`{at}` must not be negative")));
    }
    Ok(())
}

/// A whole number, which clients in languages without integers write as `5.0`.
fn whole(options: &mut Fields, name: &str) -> Result<Option<i64>, ApiError> {
    let at = options.at(name);
    let Some(value) = options.value(name) else { return Ok(None) };
    let exact =
        |number: f64| (number.fract() == 0.0 && number.abs() < 2_f64.powi(53)).then_some(number as i64);
    match value.as_i64().or_else(|| value.as_f64().and_then(exact)) {
        Some(number) => Ok(Some(number)),
        None => Err(type_error(&at, "an integer", &value)),
    }
}

fn stop(options: &mut Fields) -> Result<Vec<String>, ApiError> {
    let at = options.at("stop");
    let text = |(index, value): (usize, Value)| match value {
        Value::String(text) => Ok(text),
        other => Err(type_error(&format!("{at}[{index}]"), "a string", &other)),
    };
    match options.value("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(list)) => list.into_iter().enumerate().map(text).collect(),
        Some(other) => Err(type_error(&at, "a list of strings", &other)),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::wire::ollama::FIELDS;

    fn check(options: Value, expected: Expect) {
        let mut body = Fields::tolerant(json!({"options": options}), "", &[FIELDS]).unwrap();
        let seen = match read(&mut body) {
            Err(error) => format!("{}: {}", error.param().unwrap_or_default(), error.message()),
            Ok(Generation { max_tokens, sampling: s, stop, .. }) => format!(
                "{max_tokens:?} t={:?} k={:?} p={:?} min_p={:?} repeat={:?}/{:?} seed={:?} stop={:?}",
                s.temperature,
                s.top_k,
                s.top_p,
                s.min_p,
                s.repetition_penalty,
                s.repetition_context,
                s.seed,
                stop.strings
            ),
        };
        expected.assert_eq(&seen);
    }

    #[test]
    fn absent_options_have_ollamas_defaults() {
        check(
            json!({}),
            expect![[
                r#"None t=Some(0.8) k=Some(40) p=Some(0.9) min_p=None repeat=None/Some(64) seed=None stop=[]"#
            ]],
        );
        check(
            json!(null),
            expect![[
                r#"None t=Some(0.8) k=Some(40) p=Some(0.9) min_p=None repeat=None/Some(64) seed=None stop=[]"#
            ]],
        );
    }

    #[test]
    fn options_become_sampling_and_limits() {
        check(
            json!({"num_predict": 5.0, "temperature": 0, "top_k": 3, "top_p": 1, "min_p": 0.1, "repeat_penalty": 1.1,
                "repeat_last_n": -1, "seed": 7, "stop": ["a", "b"], "num_ctx": 8192.0, "num_gpu": 1, "new_option": true}),
            expect![[
                r#"Some(5) t=Some(0.0) k=Some(3) p=Some(1.0) min_p=Some(0.1) repeat=Some(1.1)/Some(1048576) seed=Some(7) stop=["a", "b"]"#
            ]],
        );
        check(
            json!({"num_predict": -1, "seed": -1, "top_k": -1, "stop": "x", "repeat_last_n": 0}),
            expect![[
                r#"None t=Some(0.8) k=Some(0) p=Some(0.9) min_p=None repeat=None/Some(0) seed=None stop=["x"]"#
            ]],
        );
    }

    #[test]
    fn wrong_types_are_refused_by_name() {
        check(
            json!({"num_predict": "5"}),
            expect!["options.num_predict: `options.num_predict` must be an integer, not a string"],
        );
        check(
            json!({"top_k": 1.5}),
            expect!["options.top_k: `options.top_k` must be an integer, not a fraction"],
        );
        check(
            json!({"temperature": "hot"}),
            expect!["options.temperature: `options.temperature` must be a number, not a string"],
        );
        check(
            json!({"stop": [1]}),
            expect!["options.stop[0]: `options.stop[0]` must be a string, not an integer"],
        );
        check(
            json!({"typical_p": 0.5}),
            expect!["options.typical_p: `options.typical_p` must be 1; use `top_p` or `min_p`"],
        );
        check(json!({"num_ctx": -4}), expect!["options.num_ctx: `options.num_ctx` must not be negative"]);
        check(json!([]), expect!["options: `options` must be an object, not a list"]);
    }
}
