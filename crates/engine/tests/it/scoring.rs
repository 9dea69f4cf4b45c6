//! Replies that are scored: their likelihoods are those of the prompt's tokens, and prompts share what they begin with.

use omnibus_engine::{
    AddSpecial, Chat, Event, Failure, Handle, Input, Message, PrefixCache, Request, Role, Scoring,
    ScoringPrompt, ScoringRequest, Settings,
};

use crate::common::{engine, run};

fn chat(text: &str) -> Chat {
    Chat { messages: vec![Message::new(Role::User, text)], ..Chat::default() }
}

fn prompt(text: &str, replies: &[&str]) -> ScoringPrompt {
    let replies = replies.iter().map(|reply| (*reply).to_owned()).collect();
    ScoringPrompt { chat: chat(text), replies, field: format!("questions.{text:.5}") }
}

fn try_score(engine: &Handle, prompts: Vec<ScoringPrompt>) -> Result<Scoring, Failure> {
    let request = Request::new("s", Input::Tokens(Vec::new()));
    let scoring = engine.score(ScoringRequest { request, prompts })?;
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(scoring.results())
}

fn score(engine: &Handle, prompts: Vec<ScoringPrompt>) -> Scoring {
    try_score(engine, prompts).expect("it is scored")
}

fn tokens(engine: &Handle, text: &str) -> Vec<u32> {
    engine.tokenize(None, &Input::Chat(chat(text)), AddSpecial::Yes).unwrap()
}

/// By the log-probabilities of the whole prompt, with nothing shared.
fn reference(engine: &Handle, text: &str, reply: &str) -> f64 {
    let prompt = tokens(engine, text);
    let reply = engine.tokenize(None, &Input::Text(reply.to_owned()), AddSpecial::No).unwrap();
    let whole = [prompt.as_slice(), &reply].concat();
    let request = Request {
        max_new_tokens: Some(0),
        prompt_logprobs: Some(0),
        ..Request::new("reference", Input::Tokens(whole))
    };
    let output = run(engine, request);
    let infos = output.events.iter().flat_map(|event| match event {
        Event::Prompt(tokens) => tokens.iter().map(|token| token.logprob).collect(),
        _ => Vec::new(),
    });
    infos.skip(prompt.len()).map(|logprob| f64::from(logprob.unwrap())).sum()
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (one, other) in found.iter().zip(expected) {
        assert!((one - other).abs() < 1e-3, "{found:?} is not {expected:?}");
    }
}

#[test]
fn replies_have_the_likelihoods_of_their_tokens() {
    let engine = engine(Settings::default());
    // The first are single tokens, the second are not.
    for replies in [&["A", "B", "0"][..], &["The bus", "The train is late", "no"]] {
        for text in ["Does the bus stop here?", "Which way?"] {
            let scoring = score(&engine, vec![prompt(text, replies)]);
            let expected: Vec<f64> = replies.iter().map(|reply| reference(&engine, text, reply)).collect();
            assert_near(&scoring.logprobs[0], &expected);
            // Again, with all of it cached.
            let again = score(&engine, vec![prompt(text, replies)]);
            assert_near(&again.logprobs[0], &expected);
        }
    }
}

#[test]
fn what_prompts_begin_with_is_computed_once() {
    let state =
        "The bus stops at every corner of the town, and the driver knows each of them by name. ".repeat(12);
    let prompts = |from: usize, to: usize| -> Vec<ScoringPrompt> {
        let text = |number: usize| format!("{state}\n\nQuestion: Is it {number} o'clock?");
        (from..to).map(|number| prompt(&text(number), &["A", "B"])).collect()
    };
    let engine = self::engine(Settings::default());
    let scoring = score(&engine, prompts(0, 16));
    let one = tokens(&engine, &state).len();
    let computed = scoring.prompt_tokens - scoring.cached_tokens;
    assert!(scoring.prompt_tokens > 16 * one, "{scoring:?}");
    assert!(computed < one + 16 * 40, "{computed} tokens are computed; the state has {one}");
    let off = self::engine(Settings { prefix_cache: PrefixCache::Off, ..Settings::default() });
    let alone = score(&off, prompts(0, 16));
    assert_eq!(alone.cached_tokens, 0);
    for (together, alone) in scoring.logprobs.iter().zip(&alone.logprobs) {
        assert_near(together, alone);
    }
    // A question does not depend on the others.
    for (number, expected) in scoring.logprobs.iter().enumerate().step_by(5) {
        assert_near(&score(&off, prompts(number, number + 1)).logprobs[0], expected);
    }
}

#[test]
fn long_replies_and_many_of_them_fit_the_queue() {
    let engine = engine(Settings { max_queue: 3, max_num_seqs: 2, ..Settings::default() });
    let replies: Vec<String> = (0..30).map(|number| format!("The bus number {number} is late")).collect();
    let replies: Vec<&str> = replies.iter().map(String::as_str).collect();
    let scoring =
        score(&engine, vec![prompt("Which bus?", &replies), prompt("Which one is late?", &replies)]);
    for (text, logprobs) in ["Which bus?", "Which one is late?"].iter().zip(&scoring.logprobs) {
        for at in [0, 29] {
            assert_near(&logprobs[at..=at], &[reference(&engine, text, replies[at])]);
        }
    }
}

#[test]
fn what_cannot_be_scored_is_refused_with_its_field() {
    let engine = engine(Settings::default());
    let refusal = |prompts: Vec<ScoringPrompt>| match try_score(&engine, prompts) {
        Err(Failure::BadRequest { field, message }) => (field, message),
        other => panic!("{other:?}"),
    };
    let (field, message) = refusal(vec![prompt("first", &["A"]), prompt("other", &["A", ""])]);
    assert_eq!(field, "questions.other");
    assert!(message.contains("no tokens of its own"), "{message}");
    let (_, message) = refusal(vec![prompt("first", &["A", "A"])]);
    assert!(message.contains("another answer"), "{message}");
    let long = "bus ".repeat(5_000);
    assert!(matches!(try_score(&engine, vec![prompt(&long, &["A"])]), Err(Failure::TooLong { .. })));
    let reply = "bus ".repeat(4_090);
    let refused = try_score(&engine, vec![prompt("first", &["A", &reply])]);
    assert!(matches!(refused, Err(Failure::TooLong { .. })), "{refused:?}");
    let unknown = Request { model: Some("x".to_owned()), ..Request::new("s", Input::Tokens(Vec::new())) };
    let scoring = ScoringRequest { request: unknown, prompts: vec![prompt("first", &["A"])] };
    assert!(matches!(engine.score(scoring), Err(Failure::UnknownModel { .. })));
}
