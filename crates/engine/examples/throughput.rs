//! Tokens per second of the engine alone, without HTTP: `throughput MODEL_DIR [STREAMS…]`.
//!
//! For each number of streams: prefill of 512 tokens, then the rate of decoding 64 tokens each, and
//! the host's share of a decode step.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::time::Instant;

use omnibus_engine::{Event, EventStream, Input, ModelSource, Request, Sampling, Settings, start};

const TOKENS: usize = 64;

fn request(id: String, prompt: usize, seed: u32, tokens: usize) -> Request {
    let tokens_of = (0..prompt as u32).map(|i| 5 + (i * 7919 + seed * 104_729) % 1500).collect();
    let mut request = Request::new(id, Input::Tokens(tokens_of));
    request.sampling = Sampling::greedy();
    request.max_new_tokens = Some(tokens);
    request.stop.ignore_eos = true;
    request
}

fn finish(mut stream: EventStream) {
    while let Some(event) = stream.blocking_next() {
        if let Event::Failed(failure) = event {
            panic!("{failure}");
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("a model directory"));
    let streams: Vec<usize> = arguments.map(|count| count.parse().expect("a number")).collect();
    let source = ModelSource::Directory { path, served_names: Vec::new() };
    let engine = start(vec![source], Settings::default()).unwrap();
    finish(engine.submit(request("warm".to_owned(), 64, 99, 8)).unwrap());
    let started = Instant::now();
    finish(engine.submit(request("prefill".to_owned(), 512, 7, 1)).unwrap());
    println!("prefill 512: {:.0} tok/s", 512.0 / started.elapsed().as_secs_f64());
    for count in streams {
        let submitted: Vec<_> = (0..count)
            .map(|i| engine.submit(request(format!("{count}-{i}"), 16, i as u32, TOKENS)).unwrap())
            .collect();
        let (before, started) = (engine.stats(), Instant::now());
        submitted.into_iter().for_each(finish);
        let (after, elapsed) = (engine.stats(), started.elapsed().as_secs_f64());
        let host = after.host_seconds_total - before.host_seconds_total;
        let steps = after.steps_total - before.steps_total;
        println!(
            "{count:3} streams: {:6.1} tok/s, {:.2} ms a step, of which {:.2} ms on the host",
            (count * TOKENS) as f64 / elapsed,
            1e3 * elapsed / steps as f64,
            1e3 * host / steps as f64,
        );
    }
}
