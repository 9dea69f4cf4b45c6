//! Draft tokens change no token and no log-probability.
//!
//! `OMNIBUS_FUZZ_DRAFTS` sets how many random requests are compared.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use crate::common::draft_model::FirstLayers;
use crate::common::fixture;
use crate::common::{Output, chat, complete, engine, output_tokens, run, try_engine, wait_for};
use omnibus_core::DraftPolicy;
use omnibus_core::random::Rng;
use omnibus_engine::{
    DraftSource, DraftUsage, Dry, Grammar, Handle, Input, ModelSource, Request, SamplerKind, Sampling,
    Settings, Speculation, SpeculationSettings, StructuredOutput, start,
};
use omnibus_testing::environment;
use serde_json::json;

/// Requests in a batch.
const BATCH: usize = 20;

/// An engine that drafts from this source, and verifies all drafts.
fn drafting(source: DraftSource) -> Handle {
    engine(settings(source, None))
}

fn settings(source: DraftSource, draft_model: Option<&Path>) -> Settings {
    let draft_model = draft_model.map(Path::to_owned);
    let mut settings = Settings {
        max_num_batched_tokens: Some(200),
        speculation: SpeculationSettings { source, num_draft_tokens: 6, draft_model },
        ..Settings::default()
    };
    settings.tuning.drafts = DraftPolicy::All;
    settings
}

/// A prompt that repeats itself.
fn prompt(rng: &mut Rng) -> String {
    let words = ["the bus", " stops", " at the", " market", ", then", " line", " 4", " leaves", "."];
    let part: String = (0..rng.within(3..=9)).map(|_| words[rng.within(0..=words.len() - 1)]).collect();
    part.repeat(rng.within(1..=6))
}

fn sampling(rng: &mut Rng) -> Sampling {
    let float = |rng: &mut Rng, most: f32| rng.within(0..=100) as f32 / 100.0 * most;
    let mut sampling = if rng.one_in(3) { Sampling::greedy() } else { Sampling::default() };
    if sampling.temperature > 0.0 {
        sampling.temperature = 0.1 + float(rng, 1.2);
    }
    if rng.one_in(3) {
        sampling.top_k = rng.within(1..=40);
        sampling.top_p = 0.2 + float(rng, 0.8);
        sampling.min_p = float(rng, 0.2);
    }
    if rng.one_in(5) {
        (sampling.xtc_probability, sampling.xtc_threshold) = (0.7, 0.05);
    }
    if rng.one_in(3) {
        sampling.repetition_penalty = 1.0 + float(rng, 0.5);
        sampling.presence_penalty = float(rng, 1.0);
        sampling.frequency_penalty = float(rng, 1.0);
    }
    if rng.one_in(4) {
        sampling.logit_bias = [(300, 4.0), (301, -100.0)].into();
    }
    if rng.one_in(3) {
        shape(&mut sampling, rng);
    }
    sampling.seed = Some(rng.below(1 << 40));
    sampling
}

/// Adds samplers that the kernels do not have.
fn shape(sampling: &mut Sampling, rng: &mut Rng) {
    if rng.one_in(2) {
        let multiplier = 0.3 + rng.within(0..=100) as f32 / 100.0;
        let (allowed_length, breakers) = (rng.within(0..=3), vec![".".to_owned(), ", then".to_owned()]);
        sampling.dry = Dry { multiplier, allowed_length, breakers, ..Dry::default() };
    }
    if rng.one_in(3) {
        sampling.top_n_sigma = 0.5 + rng.within(0..=4) as f32;
    }
    if rng.one_in(3) {
        sampling.typical_p = 0.3 + rng.within(0..=60) as f32 / 100.0;
    }
    if rng.one_in(3) {
        sampling.dynatemp_range = 0.4;
        sampling.dynatemp_exponent = 1.5;
    }
    if rng.one_in(3) {
        sampling.order =
            vec![SamplerKind::TopK, SamplerKind::Temperature, SamplerKind::Dry, SamplerKind::Penalties];
    }
}

/// A schema, a regular expression and a Lark grammar, whose texts repeat themselves.
fn grammars() -> [Grammar; 3] {
    let stops = json!({ "type": "array", "minItems": 2, "items": { "type": "object", "additionalProperties": false,
        "properties": { "stop": { "enum": ["market", "harbour"] }, "minutes": { "type": "integer", "maximum": 90 } },
        "required": ["stop", "minutes"] } });
    [
        Grammar::json_schema(&stops),
        Grammar::Regex("(the bus stops at [a-z ]{3,12}[.,] ?){2,9}".to_owned()),
        Grammar::Lark("start: (\"line \" /[0-9]/ \" leaves \" /[a-z]{2,5}/ \". \")~2..12".to_owned()),
    ]
}

fn request(number: u64) -> Request {
    let mut rng = Rng::new(number);
    let mut request = complete(&format!("r{number}"), &prompt(&mut rng), rng.within(1..=60));
    request.sampling = sampling(&mut rng);
    request.logprobs = rng.one_in(2).then_some(2);
    request.stop.ignore_eos = rng.one_in(2);
    if rng.one_in(4) {
        request.stop.strings = vec!["market".to_owned()];
    }
    if rng.one_in(6) {
        request.prediction = Some(prompt(&mut rng));
    }
    if rng.one_in(3) {
        let grammar = grammars()[rng.within(0..=2)].clone();
        request.structured = Some(StructuredOutput::new(grammar, "response_format"));
    }
    request
}

fn outputs(engine: &Handle, requests: Vec<Request>) -> Vec<Output> {
    let streams: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    streams.into_iter().map(wait_for).collect()
}

/// Compares random requests to two engines. `drafting` has drafts.
fn check_bits(drafting: &Handle, default_count: u64) {
    let count =
        environment::variable("OMNIBUS_FUZZ_DRAFTS").map_or(default_count, |count| count.parse().unwrap());
    let plain = engine(settings(DraftSource::Off, None));
    let (mut drafts, mut in_grammars) = (DraftUsage::default(), DraftUsage::default());
    for batch in (0..count).collect::<Vec<u64>>().chunks(BATCH) {
        let requests = || batch.iter().map(|number| request(*number)).collect();
        let (without, with): (Vec<Output>, Vec<Output>) =
            (outputs(&plain, requests()), outputs(drafting, requests()));
        for ((number, without), with) in batch.iter().zip(&without).zip(&with) {
            assert_eq!(output_tokens(with), output_tokens(without), "request {number}");
            assert_eq!((&with.text, with.reason), (&without.text, without.reason), "request {number}");
            drafts += with.usage.drafts;
            if request(*number).structured.is_some() {
                in_grammars += with.usage.drafts;
            }
            assert_eq!(without.usage.drafts, DraftUsage::default());
        }
    }
    assert!(drafts.accepted > 100 && drafts.rejected > 100, "{drafts:?}");
    assert!(in_grammars.accepted > 20, "{in_grammars:?}");
    let stats = drafting.stats().scheduler;
    assert!(stats.draft_tokens_total >= (drafts.accepted + drafts.rejected) as u64, "{stats:?}");
}

#[test]
fn random_requests_have_the_same_bits_with_ngram_drafts_and_without() {
    check_bits(&drafting(DraftSource::Ngram), 120);
}

#[test]
fn random_requests_have_the_same_bits_with_a_draft_model_or_ngrams_and_without() {
    let draft = FirstLayers::new("draft-bits", 5);
    // Few blocks: sequences are preempted, and blocks change hands.
    let few = Settings { kv_cache_memory: Some(6 << 20), ..settings(DraftSource::Auto, Some(draft.path())) };
    check_bits(&engine(few), 60);
}

#[test]
fn random_requests_have_the_same_bits_with_an_mtp_head_and_without() {
    // Few blocks: sequences are preempted, and states of prompts are missing where their blocks are found.
    let few = Settings { kv_cache_memory: Some(6 << 20), ..settings(DraftSource::Mtp, None) };
    check_bits(&engine(few), 60);
}

#[test]
fn the_mtp_head_of_the_embedded_model_is_mostly_right() {
    let engine = engine(settings(DraftSource::Mtp, None));
    let answer = run(&engine, chat("a", "What is omnibus?"));
    let drafts = answer.usage.drafts;
    let rounds = answer.usage.completion_tokens - drafts.accepted;
    assert!(drafts.accepted > 2 * rounds, "{drafts:?} in {rounds} rounds: {}", answer.text);
    let long = format!("{}What is omnibus?", "Remember that my name is Anna. ".repeat(60));
    let (first, again) = (run(&engine, chat("b", &long)), run(&engine, chat("c", &long)));
    // The prompt is found in the prefix cache, and with it the head's own keys.
    assert!(again.usage.cached_tokens > 300 && again.text == first.text);
    let (first, again) = (first.usage.drafts, again.usage.drafts);
    assert!(first.accepted > 8 && again.accepted + 2 > first.accepted, "{first:?}, then {again:?}");
}

#[test]
fn steps_that_fail_while_a_head_drafts_are_replayed() {
    let faults = "launch@step=9,read@step=17,memory@step=25,launch-panic@step=33".parse().unwrap();
    let failing = engine(Settings { faults, ..settings(DraftSource::Mtp, None) });
    let plain = engine(settings(DraftSource::Off, None));
    let requests = || (0..12).map(|number| request(1_000 + number)).collect();
    let (with, without) = (outputs(&failing, requests()), outputs(&plain, requests()));
    for (number, (with, without)) in with.iter().zip(&without).enumerate() {
        assert_eq!(output_tokens(with), output_tokens(without), "request {number}");
    }
    let drafted: usize = with.iter().map(|of| of.usage.drafts.accepted).sum();
    assert!(drafted > 20, "the head goes on: {drafted}");
}

/// Heads with random weights, which are hardly ever right: rows of rejected tokens are rolled back, states of recurrences among
/// them.
#[test]
fn heads_of_random_weights_change_no_token() {
    for (name, source) in [
        ("qwen3_next.mtp.hf", DraftSource::Mtp),
        ("deepseek_v3.mtp.hf", DraftSource::Mtp),
        ("eagle3.llama", DraftSource::Eagle3),
        ("eagle3.qwen3", DraftSource::Eagle3),
        ("dflash.qwen3", DraftSource::Dflash),
    ] {
        let (target, head) = fixture::with_draft_head(name);
        let tokens = |source: DraftSource, head: Option<&Path>| {
            let engine = fixture::engine(&target, settings(source, head));
            let requests = (0..12).map(|number| {
                let prompt = (0..10 + 5 * number).map(|at| (at * 7 + number) % 90).collect();
                let sampling =
                    Sampling { temperature: 0.8, seed: Some(number.into()), ..Sampling::default() };
                Request {
                    sampling: if number % 2 == 0 { Sampling::greedy() } else { sampling },
                    max_new_tokens: Some(24),
                    ..Request::new(format!("r{number}"), Input::Tokens(prompt))
                }
            });
            let outputs = outputs(&engine, requests.collect());
            let drafted = engine.stats().scheduler.draft_tokens_total;
            (outputs.iter().map(output_tokens).collect::<Vec<_>>(), drafted)
        };
        let (with, drafted) = tokens(source, head.as_deref());
        assert!(drafted > 100, "{name}: {drafted}");
        assert_eq!(with, tokens(DraftSource::Off, None).0, "{name}");
    }
}

#[test]
fn a_checkpoint_without_a_head_is_refused_and_an_eagle_head_of_another_model() {
    let plain = FirstLayers::new("no-head", 8);
    let path = plain.path().to_owned();
    let source = ModelSource::Directory { path, served_names: Vec::new() };
    let refused = start(vec![source], settings(DraftSource::Mtp, None)).err().unwrap().to_string();
    assert!(refused.contains("no MTP head") && !refused.contains('\n'), "{refused}");
    let missing = try_engine(settings(DraftSource::Eagle3, None)).unwrap_err().to_string();
    assert!(missing.contains("--draft-model"), "{missing}");
}

#[test]
fn a_model_that_drafts_for_itself_is_always_right() {
    let own = FirstLayers::new("draft-own", 8);
    let engine = engine(settings(DraftSource::Model, Some(own.path())));
    let text = "The harbour is old. ".repeat(40);
    let check = |id: &str, cached: bool| {
        let answer = run(&engine, complete(id, &text, 50));
        let drafts = answer.usage.drafts;
        // The answer ends within the last draft.
        assert!(drafts.accepted >= 40 && drafts.rejected <= 6, "{id}: {drafts:?}");
        assert_eq!(answer.usage.cached_tokens > 0, cached, "{id}");
        answer.text
    };
    let first = check("a", false);
    assert_eq!(check("b", true), first, "its blocks are found with the served model's");
    let sampled = Request {
        sampling: Sampling { temperature: 0.9, top_p: 0.9, seed: Some(7), ..Sampling::default() },
        ..complete("c", &text, 50)
    };
    let drafts = run(&engine, sampled).usage.drafts;
    assert!(drafts.accepted >= 40 && drafts.rejected <= 6, "drawn by the same numbers: {drafts:?}");
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused_by_the_token() {
    let draft = FirstLayers::new("draft-words", 1);
    let tokenizer = draft.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&tokenizer).unwrap();
    let swapped = text.replace("\"Ġthe\":280,\"ti\":281", "\"Ġthe\":281,\"ti\":280");
    assert_ne!(swapped, text);
    std::fs::write(&tokenizer, swapped).unwrap();
    let refused = try_engine(settings(DraftSource::Model, Some(draft.path()))).unwrap_err().to_string();
    assert!(refused.contains("another vocabulary: token") && refused.contains("Ġthe"), "{refused}");
    let missing = try_engine(settings(DraftSource::Model, None)).unwrap_err().to_string();
    assert!(missing.contains("--draft-model"), "{missing}");
}

#[test]
fn a_prediction_of_megabytes_changes_nothing() {
    let engine = drafting(DraftSource::Auto);
    let request = |id: &str| complete(id, "the bus stops at", 12);
    let plain = run(&engine, request("a"));
    let prediction = Some("é the bus stops at the market".repeat(1 << 17));
    let predicted = run(&engine, Request { prediction, ..request("b") });
    assert_eq!((predicted.text, predicted.reason), (plain.text, plain.reason));
}

#[test]
fn a_request_can_have_no_drafts() {
    let engine = drafting(DraftSource::Auto);
    let text = "the bus stops at the market, the bus stops at the market, the bus stops";
    let allowed = run(&engine, complete("a", text, 40));
    let off = run(&engine, Request { speculation: Speculation::Off, ..complete("b", text, 40) });
    assert_ne!(allowed.usage.drafts, DraftUsage::default());
    assert_eq!((off.usage.drafts, off.text), (DraftUsage::default(), allowed.text));
}
