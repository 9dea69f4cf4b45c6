//! Logits processors of a program that embeds the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use crate::common;
use crate::common::{complete, output_tokens, run};
use omnibus_engine::{
    AsyncScheduling, Failure, Handle, LogitsProcessors, ModelSource, Request, SequenceTokens, Settings,
    start_with,
};

/// Allows the token whose id is this many above the last one's.
const STEP: u32 = 3;

fn engine(async_scheduling: AsyncScheduling) -> Handle {
    let counting = |tokens: SequenceTokens<'_>, logits: &mut [f32]| {
        let last = tokens.answer.last().or(tokens.prompt.last()).copied().unwrap_or(0);
        let next = (last + STEP) as usize % logits.len();
        logits
            .iter_mut()
            .enumerate()
            .filter(|(id, _)| *id != next)
            .for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
    };
    let panicking =
        |tokens: SequenceTokens<'_>, _: &mut [f32]| assert!(tokens.answer.len() < 2, "a bug of the program");
    let broken = |_: SequenceTokens<'_>, logits: &mut [f32]| logits.fill(f32::NAN);
    let processors = LogitsProcessors::default()
        .with("counting", counting)
        .with("panicking", panicking)
        .with("broken", broken);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    let settings = Settings { kv_cache_memory: Some(64 << 20), async_scheduling, ..Settings::default() };
    start_with(vec![ModelSource::Directory { path, served_names: Vec::new() }], settings, processors).unwrap()
}

fn named(id: &str, name: &str) -> Request {
    let mut request = complete(id, "Once", 12);
    request.logprobs = Some(0);
    request.sampling.processors = vec![name.to_owned()];
    request
}

#[test]
fn a_processor_decides_what_a_request_may_say_and_other_rows_stay() {
    for async_scheduling in [AsyncScheduling::Off, AsyncScheduling::On] {
        let engine = engine(async_scheduling);
        let plain = || Request { logprobs: Some(0), ..complete("plain", "Once", 12) };
        let alone = output_tokens(&run(&engine, plain()));
        let streams = [engine.submit(named("a", "counting")).unwrap(), engine.submit(plain()).unwrap()];
        let [counted, free] = streams.map(common::wait_for);
        let ids: Vec<u32> = output_tokens(&counted).iter().map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), 12);
        assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + STEP), "{ids:?}");
        assert_eq!(output_tokens(&free), alone);
    }
}

#[test]
fn a_processor_that_fails_costs_its_own_request() {
    let engine = engine(AsyncScheduling::Off);
    for name in ["panicking", "broken"] {
        let mut stream = engine.submit(named(name, name)).unwrap();
        let failed = std::iter::from_fn(|| stream.blocking_next())
            .any(|event| matches!(event, omnibus_engine::Event::Failed(Failure::Engine { .. })));
        assert!(failed, "{name}");
        assert_eq!(run(&engine, named("after", "counting")).usage.completion_tokens, 12);
    }
    let Err(Failure::BadRequest { field, message }) = engine.submit(named("x", "missing")) else {
        panic!("it is refused")
    };
    assert!(field == "logits_processors" && message.contains("`missing`"), "{message}");
}
