//! Steps as they happen, of a running engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use crate::common::{complete, engine, wait_for};
use omnibus_engine::{HeldBlocks, Settings, StepRecord, StepWatch};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// Requests that steps are recorded. The loop takes commands in order, so they are before a later request's first.
async fn request(watch: &mut StepWatch) {
    assert!(tokio::time::timeout(Duration::ZERO, watch.next()).await.is_err(), "the engine is idle");
}

#[test]
fn a_watch_has_the_steps_of_requests_and_ends_with_the_engine() {
    let engine = engine(Settings::default());
    let mut watch = engine.watch_steps().unwrap();
    let runtime = runtime();
    runtime.block_on(request(&mut watch));
    let output = wait_for(engine.submit(complete("a", "the bus stops at", 8)).unwrap());
    let mut steps: Vec<StepRecord> = Vec::new();
    let sum = |steps: &[StepRecord], of: fn(&StepRecord) -> usize| steps.iter().map(of).sum::<usize>();
    while sum(&steps, |step| step.prefill) < output.usage.prompt_tokens
        || sum(&steps, |step| step.decodes) == 0
    {
        let next = runtime.block_on(watch.next()).unwrap();
        assert_eq!(next.lost, 0);
        steps.extend(next.steps);
    }
    assert_eq!(sum(&steps, |step| step.prefill), output.usage.prompt_tokens);
    engine.unload();
    while runtime.block_on(watch.next()).is_some() {}
    assert!(engine.watch_steps().is_err());
}

#[test]
fn a_request_has_its_blocks_while_a_client_looks() {
    let engine = engine(Settings::default());
    let mut stream = engine.submit(complete("a", "the bus stops at", 2000)).unwrap();
    while stream.blocking_next().is_some_and(|event| !matches!(event, omnibus_engine::Event::Delta { .. })) {}
    assert_eq!(engine.requests()[0].blocks, None);
    let mut watch = engine.watch_steps().unwrap();
    let runtime = runtime();
    while engine.requests()[0].blocks.is_none() {
        assert!(runtime.block_on(watch.next()).is_some());
    }
    let HeldBlocks { blocks, shared } = engine.requests()[0].blocks.unwrap();
    assert!(blocks > 0 && shared == 0, "{blocks} blocks, {shared} of them shared");
}
