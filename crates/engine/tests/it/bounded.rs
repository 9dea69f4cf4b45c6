//! Quantized KV caches and bounded attention: each request's output is independent of the batch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{complete, engine, run, try_engine, wait_for};
use omnibus_engine::{DraftSource, LongContext, PrefixCache, Settings, SpeculationSettings};

/// A stream's output is the same in a batch and alone, with and without a prefix cache hit.
fn check(settings: Settings) {
    let prompts: Vec<String> =
        (0..10).map(|i| format!("{} and then", "the bus stops here, ".repeat(1 + i * 3))).collect();
    let request = |i: usize, prompt: &String| complete(&format!("r{i}"), prompt, 12 + i);
    let uncached = engine(Settings { prefix_cache: PrefixCache::Off, ..settings.clone() });
    let alone: Vec<String> =
        prompts.iter().enumerate().map(|(i, prompt)| run(&uncached, request(i, prompt)).text).collect();
    let crowded = engine(Settings { max_num_batched_tokens: Some(64), ..settings });
    for round in ["first", "again"] {
        let streams: Vec<_> = prompts
            .iter()
            .enumerate()
            .map(|(i, prompt)| crowded.submit(request(i, prompt)).unwrap())
            .collect();
        let together: Vec<String> = streams.into_iter().map(|stream| wait_for(stream).text).collect();
        assert_eq!(together, alone, "{round}");
    }
    assert!(crowded.stats().scheduler.cached_tokens_total > 0, "{:?}", crowded.stats());
}

#[test]
fn streams_with_quantized_kv_give_the_same_output_in_a_batch_and_alone() {
    for bits in [4, 8] {
        check(Settings { kv_bits: Some(bits), ..Settings::default() });
    }
}

/// The model's head has keys and values, too, and no unquantized prefix.
fn without_drafts() -> SpeculationSettings {
    SpeculationSettings { source: DraftSource::Off, ..SpeculationSettings::default() }
}

#[test]
fn streams_with_an_unquantized_prefix_give_the_same_output_in_a_batch_and_alone() {
    // Starts inside a block and inside prompts; with memory for few prefixes; before and after most prompts' ends.
    for (start, kv_cache_memory) in [(45, None), (64, Some(3 << 19)), (150, Some(5 << 19))] {
        let settings = Settings {
            max_model_len: Some(400),
            kv_bits: Some(4),
            quantized_kv_start: start,
            kv_cache_memory,
            speculation: without_drafts(),
            ..Settings::default()
        };
        check(settings);
    }
}

#[test]
fn a_sequence_is_unquantized_up_to_quantized_kv_start() {
    let output_tokens = |kv_bits, quantized_kv_start| {
        let settings = Settings { kv_bits, quantized_kv_start, ..Settings::default() };
        run(&engine(settings), complete("a", "One two three four", 60)).text
    };
    let (floats, codes) = (output_tokens(None, 0), output_tokens(Some(4), 0));
    let same =
        |other: &str| floats.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    assert!(same(&codes) < floats.chars().count(), "four bits change this model's output");
    // A letter is a token of this model.
    let begins = output_tokens(Some(4), 50);
    assert!(same(&begins) > same(&codes), "in floats: {floats}\nin codes: {codes}\nfirst floats: {begins}");
    assert_ne!(begins, floats, "later tokens are quantized");
}

#[test]
fn streams_with_bounded_attention_give_the_same_output_in_a_batch_and_alone() {
    check(Settings { max_kv_size: Some(40), block_size: 8, ..Settings::default() });
}

#[test]
fn fewer_bits_hold_more_tokens() {
    let blocks = |kv_bits| {
        let settings = Settings { kv_bits, kv_cache_memory: Some(8 << 20), ..Settings::default() };
        let engine = engine(settings);
        run(&engine, complete("a", "The bus", 2));
        engine.stats().scheduler.blocks().total as f64
    };
    let (floats, eight, four) = (blocks(None), blocks(Some(8)), blocks(Some(4)));
    // 64 floats of 32 bits against 18 and 10 words.
    assert!((eight / floats / (64.0 / 18.0) - 1.0).abs() < 0.05, "{floats} became {eight}");
    assert!((four / floats / (64.0 / 10.0) - 1.0).abs() < 0.05, "{floats} became {four}");
}

#[test]
fn unquantized_prefixes_take_at_most_half_of_the_memory() {
    let blocks = |quantized_kv_start| {
        let settings = Settings {
            kv_bits: Some(4),
            quantized_kv_start,
            kv_cache_memory: Some(64 << 20),
            speculation: without_drafts(),
            ..Settings::default()
        };
        let engine = engine(settings);
        run(&engine, complete("a", "The bus", 2));
        engine.stats().scheduler.blocks().total as f64
    };
    // Half of the bytes in blocks of codes, half in blocks of floats, which are 6.4 times as large.
    let expected = blocks(0) * (0.5 + 0.5 / 6.4);
    let found = blocks(512);
    assert!((found / expected - 1.0).abs() < 0.05, "{found} blocks, not {expected}");
}

#[test]
fn a_context_below_quantized_kv_start_is_unquantized() {
    let settings = Settings {
        max_model_len: Some(256),
        kv_bits: Some(4),
        quantized_kv_start: 256,
        ..Settings::default()
    };
    let floats = Settings { max_model_len: Some(256), ..Settings::default() };
    let output_tokens =
        |settings: Settings| run(&engine(settings), complete("a", "One two three four", 40)).text;
    assert_eq!(output_tokens(settings), output_tokens(floats));
}

#[test]
fn a_longer_context_than_the_models_is_refused_unless_it_is_allowed() {
    let settings =
        |long_context| Settings { max_model_len: Some(5_000), long_context, ..Settings::default() };
    let refused = try_engine(settings(LongContext::Refused)).unwrap_err().to_string();
    assert!(refused.contains("5000") && refused.contains("the 4096 tokens"), "{refused}");
    assert!(refused.contains("--allow-long-max-model-len"), "{refused}");
    let allowed = engine(settings(LongContext::Allowed));
    assert_eq!(allowed.details().unwrap().max_model_len, 5_000);
}
