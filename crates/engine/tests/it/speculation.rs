//! Draft tokens: who drafts, what is refused, and what failures change.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use crate::common::draft_model::FirstLayers;
use crate::common::fixture;
use crate::common::{Output, chat, complete, engine, output_tokens, run, try_engine, wait_for};
use crate::random_requests::request;
use omnibus_core::DraftPolicy;
use omnibus_engine::{
    DraftSource, DraftUsage, Handle, Input, ModelSource, Request, Sampling, Settings, Speculation,
    SpeculationSettings, start,
};

/// An engine that drafts from this source, and verifies all drafts.
fn drafting(source: DraftSource) -> Handle {
    engine(settings(source, None))
}

/// All drafts from this source are verified.
pub fn settings(source: DraftSource, draft_model: Option<&Path>) -> Settings {
    let draft_model = draft_model.map(Path::to_owned);
    let mut settings = Settings {
        max_num_batched_tokens: Some(200),
        speculation: SpeculationSettings {
            source,
            num_draft_tokens: 6,
            draft_model,
            ..SpeculationSettings::default()
        },
        ..Settings::default()
    };
    settings.tuning.drafts = DraftPolicy::All;
    settings
}

/// The answers to requests beside each other.
pub fn outputs(engine: &Handle, requests: Vec<Request>) -> Vec<Output> {
    let streams: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    streams.into_iter().map(wait_for).collect()
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
    let requests = || (0..12).map(|number| request(1_000 + number, &[])).collect();
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
