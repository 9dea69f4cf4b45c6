//! Hidden states of prompts: of the last position or of all, in one chunk or in several, and beside other requests.

use omnibus_engine::{Event, Handle, HiddenPositions, HiddenStates, Input, Request, Settings};

use crate::common;

const PROMPT: usize = 75;

fn request(id: &str, hidden: HiddenPositions) -> Request {
    let mut request =
        Request::new(id, Input::Tokens((0..PROMPT as u32).map(|at| 40 + at * at % 50).collect()));
    request.max_new_tokens = Some(0);
    request.hidden = Some(hidden);
    request
}

/// The states of a request's stream, position by position.
fn states(engine: &Handle, request: Request) -> Vec<(usize, Vec<f32>)> {
    let mut stream = engine.submit(request).unwrap();
    let mut found = Vec::new();
    while let Some(event) = stream.blocking_next() {
        match event {
            Event::Hidden(HiddenStates { first, width, values }) => {
                found.extend(
                    values.chunks(width).map(<[f32]>::to_vec).zip(first..).map(|(row, at)| (at, row)),
                );
            }
            Event::Finished { usage, .. } => {
                assert_eq!((usage.prompt_tokens, usage.completion_tokens), (PROMPT, 0))
            }
            Event::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
    found
}

#[test]
fn hidden_states_come_for_the_positions_that_were_requested() {
    let engine = common::engine(Settings::default());
    let all = states(&engine, request("all", HiddenPositions::All));
    assert_eq!(all.iter().map(|(at, _)| *at).collect::<Vec<_>>(), (0..PROMPT).collect::<Vec<_>>());
    let norm = |row: &[f32]| row.iter().map(|value| value * value).sum::<f32>();
    assert!(all.iter().all(|(_, row)| norm(row) > 0.0 && norm(row).is_finite()));
    assert_ne!(all[3].1, all[4].1);
    // A cached prefix has no hidden states, but the last position is always computed.
    for id in ["last", "cached"] {
        let last = states(&engine, request(id, HiddenPositions::Last));
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].0, PROMPT - 1);
        assert!(distance(&last[0].1, &all[PROMPT - 1].1) < 1e-4);
    }
}

#[test]
fn chunks_of_a_prompt_give_the_same_states() {
    let whole = states(&common::engine(Settings::default()), request("whole", HiddenPositions::All));
    let chunked = Settings { max_num_batched_tokens: Some(16), ..Settings::default() };
    let chunks = states(&common::engine(chunked), request("chunks", HiddenPositions::All));
    assert_eq!(chunks.len(), whole.len());
    for ((at, one), (same, other)) in whole.iter().zip(&chunks) {
        assert_eq!(at, same);
        assert!(distance(one, other) < 1e-4, "position {at}");
    }
}

#[test]
fn a_request_that_generates_has_none() {
    let engine = common::engine(Settings::default());
    let generating = Request { max_new_tokens: Some(1), ..request("g", HiddenPositions::Last) };
    let failure = engine.submit(generating).err().map(|failure| failure.to_string());
    assert_eq!(failure.as_deref(), Some("hidden is for requests with max_tokens 0"));
}

/// The largest difference, relative to the largest number.
fn distance(one: &[f32], other: &[f32]) -> f32 {
    let largest = one.iter().fold(0f32, |most, value| most.max(value.abs()));
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max) / largest
}
