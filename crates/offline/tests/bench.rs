//! Benchmarks of the engine with random weights of a small config.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use omnibus_core::DraftPolicy;
use omnibus_engine::{DeviceChoice, DraftOutcome, DraftSource, Settings, Speculation};
use omnibus_model::RandomWeights;
use omnibus_offline::bench::{
    Adapted, AdapterLoad, BenchEngine, BenchModel, DecodeLoad, RecordedLoad, Recording, SoakLoad,
    measure_limits,
};

const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 192, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}"#;

/// Far more than any step here takes.
const TIMEOUT: Duration = Duration::from_secs(600);

fn engine(bits: Option<usize>) -> BenchEngine {
    let random = RandomWeights::new("tiny", CONFIG, bits).unwrap();
    let settings = Settings { max_num_seqs: 4, kv_cache_memory: Some(8 << 20), ..Settings::default() };
    BenchEngine::start(&BenchModel::Random(random), settings, AdapterLoad { count: 2, rank: 4 }).unwrap()
}

#[test]
fn full_steps_are_measured() {
    for bits in [None, Some(4)] {
        let mut engine = engine(bits);
        for (streams, adapted) in [(4, Adapted::No), (1, Adapted::No), (3, Adapted::Yes)] {
            let load = DecodeLoad {
                streams,
                context: 40,
                shortest: 9,
                steps: 8,
                adapted,
                speculation: Speculation::Off,
            };
            let decode = engine.decode(load, TIMEOUT).unwrap();
            assert!(decode.steps >= 8 && decode.step_ms > 0.0 && decode.tokens_per_s > 0.0, "{decode:?}");
            assert!(decode.memory.peak_bytes >= decode.memory.active_bytes, "{decode:?}");
        }
        let prefill = engine.prefill(600, TIMEOUT).unwrap();
        assert!(prefill.ms > 0.0 && prefill.tokens == 600, "{prefill:?}");
    }
}

#[test]
fn a_load_that_cannot_run_fails_with_the_reason_and_others_run() {
    let mut engine = engine(None);
    let load = DecodeLoad {
        streams: 2,
        context: 4095,
        shortest: 4095,
        steps: 8,
        adapted: Adapted::No,
        speculation: Speculation::Off,
    };
    let error = engine.decode(load, TIMEOUT).unwrap_err();
    assert!(error.starts_with("a stream reached the longest sequence"), "{error}");
    let error = engine.prefill(5000, TIMEOUT).unwrap_err();
    assert!(error.contains("maximum context length is 4096 tokens"), "{error}");
    let error = engine
        .decode(
            DecodeLoad {
                streams: 2,
                context: 16,
                shortest: 16,
                steps: 8,
                adapted: Adapted::No,
                speculation: Speculation::Off,
            },
            Duration::ZERO,
        )
        .unwrap_err();
    assert!(error.contains("it took too long: 0 of 2 streams decode"), "{error}");
    engine
        .decode(
            DecodeLoad {
                streams: 2,
                context: 16,
                shortest: 16,
                steps: 8,
                adapted: Adapted::No,
                speculation: Speculation::Off,
            },
            TIMEOUT,
        )
        .unwrap();
}

#[test]
fn a_device_has_limits() {
    let limits = measure_limits(DeviceChoice::Cpu).unwrap();
    assert!(limits.read_bytes_per_s > 1e8 && limits.matmul_flops > 1e8, "{limits:?}");
}

#[test]
fn a_soak_churns_the_prefix_cache_and_every_request_ends() {
    let random = RandomWeights::new("tiny", CONFIG, None).unwrap();
    // Two prompts of the soak take 256 KB.
    let settings = Settings { max_num_seqs: 2, kv_cache_memory: Some(512 << 10), ..Settings::default() };
    let none = AdapterLoad { count: 0, rank: 1 };
    let mut engine = BenchEngine::start(&BenchModel::Random(random), settings, none).unwrap();
    let load = SoakLoad { streams: 2, context: 256, duration: Duration::ZERO, requests: 100 };
    let soak = engine.soak(load).unwrap();
    assert_eq!((soak.requests, soak.failures.len()), (100, 0), "{soak:?}");
    assert!(soak.cancelled > 0 && soak.cancelled < 50, "{soak:?}");
    assert!(soak.evicted_misses > 0, "{soak:?}");
    assert_eq!(soak.parts.iter().map(|part| part.requests).sum::<usize>(), 100, "{soak:?}");
    assert_eq!(soak.table().lines().count(), 2 + soak.parts.len(), "{soak:?}");
    let longer = SoakLoad { context: 4096, requests: 20, ..load };
    let soak = engine.soak(longer).unwrap();
    assert!(soak.requests >= 20 && !soak.failures.is_empty(), "{soak:?}");
    assert!(soak.failures.iter().all(|why| why.contains("maximum context length")), "{soak:?}");
}

/// An engine that drafts, with this to decide which drafts are accepted.
fn drafting(outcome: DraftOutcome) -> BenchEngine {
    let random = RandomWeights::new("tiny", CONFIG, None).unwrap();
    let mut settings = Settings { max_num_seqs: 4, kv_cache_memory: Some(8 << 20), ..Settings::default() };
    settings.speculation.source = DraftSource::Ngram;
    settings.speculation.num_draft_tokens = 3;
    settings.speculation.outcome = outcome;
    settings.tuning.drafts = DraftPolicy::All;
    BenchEngine::start(&BenchModel::Random(random), settings, AdapterLoad { count: 0, rank: 1 }).unwrap()
}

#[test]
fn drafts_are_accepted_by_chance() {
    let mut engine = drafting(DraftOutcome::Synthetic(vec![100, 0]));
    for (speculation, tokens) in [(Speculation::Off, 1.0), (Speculation::Allowed, 2.0)] {
        let load =
            DecodeLoad { streams: 3, context: 16, shortest: 9, steps: 8, adapted: Adapted::No, speculation };
        let decode = engine.decode(load, TIMEOUT).unwrap();
        assert_eq!(decode.tokens_per_step, tokens, "{decode:?}");
    }
}

#[test]
fn recorded_answers_are_given_again() {
    let mut engine = drafting(DraftOutcome::Recorded);
    // Ids above the vocabulary, and text that its own prompt repeats.
    let text: Vec<u32> = (500..540).collect();
    let repeating = Recording { prompt: [&text[..], &[7]].concat(), answer: text };
    let other = Recording { prompt: vec![1, 2, 3], answer: (100..130).collect() };
    let mut given = |speculation, cache_salt| {
        let load = RecordedLoad { streams: 2, requests: 5, speculation, cache_salt };
        engine.give(&[repeating.clone(), other.clone()], load, TIMEOUT).unwrap()
    };
    let plain = given(Speculation::Off, 0);
    assert_eq!((plain.tokens, plain.tokens_per_step), (3 * 40 + 2 * 30, 1.0), "{plain:?}");
    let drafted = given(Speculation::Allowed, 8);
    assert_eq!(drafted.tokens, plain.tokens);
    assert!(drafted.tokens_per_step > 1.3 && drafted.tokens_per_s() > 0.0, "{drafted:?}");
}
