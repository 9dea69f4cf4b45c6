//! The engine with the embedded model: each request's output is independent of the batch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Output, chat, complete, engine, run, wait_for};
use crate::logits::Logits;
use omnibus_engine::{
    AddSpecial, Event, Failure, FinishReason, Handle, Input, ProgressReports, Request, Sampling, Settings,
    StopMatch, TokenInfo,
};

/// The tokens of a text as a request has them.
fn tokens_of(engine: &Handle, text: &str) -> Vec<u32> {
    engine.tokenize(None, &Input::Text(text.to_owned()), AddSpecial::Yes).unwrap()
}

/// The generated tokens.
fn drawn(output: &Output) -> Vec<TokenInfo> {
    let of_event = |event: &Event| match event {
        Event::Delta { tokens, .. } => tokens.clone(),
        _ => Vec::new(),
    };
    output.events.iter().flat_map(of_event).collect()
}

#[test]
fn a_chat_request_ends_with_an_end_token() {
    let engine = engine(Settings::default());
    let output = run(&engine, chat("a", "What is omnibus?"));
    assert_eq!(output.reason, FinishReason::Stop);
    assert!(!output.text.trim().is_empty(), "{output:?}");
    assert!(output.usage.completion_tokens > 1);
}

#[test]
fn twenty_four_streams_give_the_same_output_in_a_batch_and_alone() {
    let prompts: Vec<String> =
        (0..24).map(|i| format!("{} and then", "the bus stops here, ".repeat(1 + i * 3))).collect();
    let small = Settings { max_num_batched_tokens: Some(96), ..Settings::default() };
    let engine = engine(small);
    let request = |i: usize, prompt: &String| complete(&format!("r{i}"), prompt, 12 + i);
    let alone: Vec<String> =
        prompts.iter().enumerate().map(|(i, prompt)| run(&engine, request(i, prompt)).text).collect();
    let streams: Vec<_> =
        prompts.iter().enumerate().map(|(i, prompt)| engine.submit(request(i, prompt)).unwrap()).collect();
    let together: Vec<String> = streams.into_iter().map(|stream| wait_for(stream).text).collect();
    assert_eq!(alone, together);
    let fresh =
        self::engine(Settings { prefix_cache: omnibus_engine::PrefixCache::Off, ..Settings::default() });
    let uncached: Vec<String> =
        prompts.iter().enumerate().map(|(i, prompt)| run(&fresh, request(i, prompt)).text).collect();
    assert_eq!(alone, uncached);
}

#[test]
fn preempted_streams_give_the_same_output_as_alone() {
    let roomy = engine(Settings::default());
    // Blocks for one and a half of these sequences.
    let tight = engine(Settings { kv_cache_memory: Some(3 << 20), block_size: 8, ..Settings::default() });
    let prompts: Vec<String> = (0..6).map(|i| format!("number {i}: ")).collect();
    let tokens = tight.details().unwrap().max_model_len * 2 / 3;
    let request = |i: usize, prompt: &String| complete(&format!("r{i}"), prompt, tokens);
    let alone: Vec<String> =
        prompts.iter().enumerate().map(|(i, prompt)| run(&roomy, request(i, prompt)).text).collect();
    let streams: Vec<_> =
        prompts.iter().enumerate().map(|(i, prompt)| tight.submit(request(i, prompt)).unwrap()).collect();
    let together: Vec<String> = streams.into_iter().map(|stream| wait_for(stream).text).collect();
    assert_eq!(alone, together);
    assert!(tight.stats().scheduler.preemptions_total > 0, "{:?}", tight.stats());
}

#[test]
fn a_shared_prompt_is_computed_once() {
    let engine = engine(Settings::default());
    let prompt = "all aboard the omnibus ".repeat(20);
    let first = run(&engine, complete("a", &prompt, 4));
    let second = run(&engine, complete("b", &prompt, 4));
    assert_eq!(first.usage.cached_tokens, 0);
    assert!(second.usage.cached_tokens > first.usage.prompt_tokens / 2, "{:?}", second.usage);
    assert_eq!(first.text, second.text);
    let mut stranger = complete("c", &prompt, 4);
    stranger.cache_salt = Some("another tenant".to_owned());
    assert_eq!(run(&engine, stranger).usage.cached_tokens, 0);
}

#[test]
fn a_seed_gives_the_same_text_in_any_batch() {
    let engine = engine(Settings::default());
    let drawn = |id: &str, seed| {
        let mut request = complete(id, "Once upon a time", 24);
        request.sampling =
            Sampling { temperature: 1.2, top_p: 0.95, top_k: 50, seed: Some(seed), ..Sampling::default() };
        request
    };
    let alone = run(&engine, drawn("alone", 7)).text;
    let streams: Vec<_> = (0..8).map(|i| engine.submit(drawn(&format!("r{i}"), i)).unwrap()).collect();
    let together: Vec<String> = streams.into_iter().map(|stream| wait_for(stream).text).collect();
    assert_eq!(together[7], alone);
    assert!(together.iter().any(|text| *text != alone), "seeds make a difference");
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let engine = engine(Settings::default());
    let whole = run(&engine, complete("a", "One two three four", 40)).text;
    let stop: String = whole.chars().skip(6).take(3).collect();
    let mut request = complete("b", "One two three four", 40);
    request.stop.strings = vec![stop.clone()];
    let output = run(&engine, request);
    assert_eq!(output.text, whole[..whole.find(&stop).unwrap()]);
    let Some(Event::Finished { matched, .. }) = output.events.last() else { panic!("{output:?}") };
    assert_eq!(*matched, Some(StopMatch::String(stop)));
}

#[test]
fn the_greedy_token_is_the_most_likely() {
    let engine = engine(Settings::default());
    let mut request = complete("a", "The bus", 5);
    request.logprobs = Some(3);
    request.prompt_logprobs = Some(1);
    let output = run(&engine, request);
    let (mut scored, mut prompt) = (0, Vec::new());
    for event in &output.events {
        match event {
            Event::Prompt(tokens) => prompt.extend(tokens),
            Event::Delta { tokens, .. } => {
                for token in tokens {
                    assert_eq!(token.top.len(), 3);
                    assert_eq!(token.top[0].id, token.id, "greedy takes the most likely token");
                    assert_eq!(Some(token.top[0].logprob), token.logprob);
                    scored += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!(scored, 5);
    assert_eq!(prompt.len(), output.usage.prompt_tokens);
    assert_eq!(prompt[0].logprob, None, "nothing precedes the first token");
    assert!(prompt[1..].iter().all(|token| token.logprob.is_some() && token.top.len() == 1));
}

#[test]
fn named_tokens_have_their_log_probabilities_at_each_place() {
    let engine = engine(Settings::default());
    let request = |logprobs, named: &[u32]| Request {
        logprobs,
        logprob_token_ids: named.to_vec(),
        ..complete("a", "The bus", 4)
    };
    let (all, named) = (run(&engine, request(Some(20), &[])), run(&engine, request(Some(0), &[7, 300])));
    for (all, named) in drawn(&all).iter().zip(drawn(&named)) {
        assert_eq!(named.top.iter().map(|one| one.id).collect::<Vec<_>>(), [7, 300]);
        assert!(named.top.iter().all(|one| one.logprob < 0.0));
        for one in named.top.iter().filter(|one| all.top.iter().any(|other| other.id == one.id)) {
            assert!(all.top.contains(one), "{one:?}");
        }
    }
    let refused = |request: Request| match engine.submit(request) {
        Err(Failure::BadRequest { field, .. }) => field,
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert_eq!(refused(request(Some(0), &[1_000_000])), "logprob_token_ids");
    assert_eq!(refused(request(None, &[7])), "logprob_token_ids");
    assert_eq!(refused(request(Some(0), &[7; 129])), "logprob_token_ids");
}

/// lm-eval leaves out the last log-probability of `echo` with `max_tokens` 1.
#[test]
fn an_end_token_behind_a_scored_prompt_is_scored_too() {
    let engine = engine(Settings::default());
    let first = drawn(&run(&engine, Request { logprobs: Some(0), ..complete("a", "The bus", 1) }))[0].id;
    let ends = |prompt_logprobs| {
        let mut request = Request { logprobs: Some(0), prompt_logprobs, ..complete("a", "The bus", 1) };
        request.stop.token_ids = vec![first];
        let tokens = drawn(&run(&engine, request));
        tokens.iter().map(|token| (token.id, token.logprob.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(ends(Some(0)), [(first, true)]);
    assert_eq!(ends(None), []);
}

/// Each is the log-softmax of the logits that the model has after the prompt.
#[test]
fn logprobs_are_the_log_softmax_of_the_logits() {
    let engine = engine(Settings::default());
    let prompt = tokens_of(&engine, "The bus");
    let mut request = Request { input: Input::Tokens(prompt.clone()), ..complete("a", "", 1) };
    request.logprobs = Some(20);
    let output = run(&engine, request);
    let logits = Logits::load().after(&prompt);
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let total = logits.iter().map(|logit| f64::from(logit - most).exp()).sum::<f64>().ln() as f32;
    let [first] = &drawn(&output)[..] else { panic!("{output:?}") };
    assert_eq!((first.top.len(), logits.len()), (20, engine.details().unwrap().vocab_size));
    for one in &first.top {
        let expected = logits[one.id as usize] - most - total;
        assert!((one.logprob - expected).abs() < 1e-4, "{one:?}, not {expected}");
    }
}

#[test]
fn prompt_logprobs_come_without_generation() {
    let engine = engine(Settings { max_num_batched_tokens: Some(8), ..Settings::default() });
    let mut request = complete("a", "The bus stops at every corner of the town.", 0);
    request.prompt_logprobs = Some(0);
    let output = run(&engine, request);
    let prompt = output.events.iter().map(|event| match event {
        Event::Prompt(tokens) => tokens.len(),
        _ => 0,
    });
    assert_eq!(prompt.sum::<usize>(), output.usage.prompt_tokens);
    assert!(output.usage.prompt_tokens > 8, "several chunks");
    assert_eq!((output.text.as_str(), output.usage.completion_tokens), ("", 0));
    assert_eq!(output.reason, FinishReason::Length);
}

/// The most likely tokens of the model, when the logits of earlier ones are lowered as the penalties are defined.
fn penalized_by_definition(prompt: &[u32], count: usize, sampling: &Sampling) -> Vec<u32> {
    let model = Logits::load();
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let mut logits = model.after(&tokens);
        for (id, logit) in logits.iter_mut().enumerate() {
            if tokens.contains(&(id as u32)) {
                let penalty = sampling.repetition_penalty;
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
            let drawn = tokens[prompt.len()..].iter().filter(|token| **token == id as u32).count();
            if drawn > 0 {
                *logit -= sampling.presence_penalty + drawn as f32 * sampling.frequency_penalty;
            }
        }
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        tokens.push(best.unwrap() as u32);
    }
    tokens.split_off(prompt.len())
}

#[test]
fn penalties_and_biases_change_the_output() {
    let engine = engine(Settings::default());
    let plain = run(&engine, complete("a", "a a a a a a", 12));
    let mut penalized = complete("b", "a a a a a a", 12);
    penalized.sampling.frequency_penalty = 2.0;
    penalized.sampling.presence_penalty = 2.0;
    penalized.sampling.repetition_penalty = 1.8;
    penalized.logprobs = Some(0);
    let first = run(&engine, penalized.clone());
    assert_ne!(first.text, plain.text);
    let found: Vec<u32> = drawn(&first).iter().map(|token| token.id).collect();
    let prompt = tokens_of(&engine, "a a a a a a");
    assert_eq!(found, penalized_by_definition(&prompt, 12, &penalized.sampling));
    // Penalties depend on tokens that are sampled while the next step is already launched.
    let streams: Vec<_> = (0..4)
        .map(|i| engine.submit(Request { id: format!("r{i}"), ..penalized.clone() }).unwrap())
        .collect();
    for stream in streams {
        assert_eq!(wait_for(stream).text, first.text);
    }
    let mut biased = complete("c", "a a a a a a", 3);
    let zebra = Input::Text("zebra".to_owned());
    let expected = engine.tokenize(None, &zebra, AddSpecial::No).unwrap()[0];
    biased.sampling.logit_bias.insert(expected, 100.0);
    biased.logprobs = Some(0);
    let output = run(&engine, biased);
    assert_eq!(drawn(&output).iter().map(|token| token.id).collect::<Vec<_>>(), [expected; 3]);
}

#[test]
fn a_client_that_disconnects_costs_only_its_own_request() {
    let engine = engine(Settings::default());
    let alone = run(&engine, complete("a", "The quick", 30)).text;
    let stays = engine.submit(complete("stays", "The quick", 30)).unwrap();
    let leaves: Vec<_> =
        (0..5).map(|i| engine.submit(complete(&format!("leaves{i}"), "A slow", 2000)).unwrap()).collect();
    drop(leaves);
    assert_eq!(wait_for(stays).text, alone);
    let cancelled = engine.submit(complete("cancelled", "A slow", 2000)).unwrap();
    assert!(engine.cancel("cancelled"));
    assert_eq!(wait_for(cancelled).reason, FinishReason::Cancelled);
    assert!(!engine.cancel("cancelled"), "it is over");
}

#[test]
fn an_invalid_request_is_refused_by_its_field() {
    let engine = engine(Settings::default());
    let refused = |request: Request| engine.submit(request).map(|_| ()).unwrap_err();
    let vocab = engine.details().unwrap().vocab_size as u32;
    let longest = engine.details().unwrap().max_model_len;
    assert!(matches!(refused(complete("a", "hi", longest)), Failure::TooLong { .. }));
    // Megabytes are not tokenized to be counted.
    let long = "the bus stops at the market. ".repeat(1 << 20);
    let Failure::TooLong { prompt_tokens, .. } = refused(complete("a", &long, 1)) else {
        panic!("it is too long")
    };
    assert!(prompt_tokens > 4096 && prompt_tokens < 1 << 18, "{prompt_tokens}");
    assert!(matches!(refused(chat("a", &long)), Failure::TooLong { .. }));
    let foreign = Request::new("b", Input::Tokens(vec![vocab]));
    assert!(matches!(refused(foreign), Failure::BadRequest { field, .. } if field == "prompt"));
    let mut biased = complete("c", "hi", 1);
    biased.sampling.logit_bias.insert(vocab, 1.0);
    assert!(matches!(refused(biased), Failure::BadRequest { field, .. } if field == "logit_bias"));
    let mut model = complete("d", "hi", 1);
    model.model = Some("another".to_owned());
    let served = &engine.models()[0].id;
    let unknown = format!("the model `another` is not served here; served: `{served}`");
    assert!(refused(model).to_string().starts_with(&unknown));
    let mut hot = complete("e", "hi", 1);
    hot.sampling.temperature = f32::NAN;
    assert!(matches!(refused(hot), Failure::BadRequest { field, .. } if field == "temperature"));
}

#[test]
fn a_session_is_listed_shared_by_forks_and_ended() {
    let engine = engine(Settings::default());
    let turn = |id: &str, text: &str| {
        let mut request = complete(id, text, 4);
        request.tenant = "mine".to_owned();
        request.session_id = Some("talk".to_owned());
        request
    };
    let story = "all aboard the omnibus ".repeat(20);
    let first = run(&engine, turn("a", &story));
    assert!(engine.sessions("theirs").unwrap().is_empty());
    let kept = engine.sessions("mine").unwrap();
    assert_eq!((kept.len(), kept[0].id.as_str()), (1, "talk"));
    assert!(kept[0].tokens > 0 && kept[0].tokens <= first.usage.prompt_tokens + 4, "{kept:?}");
    let forks = ["left at the church", "right at the market"].map(|way| {
        let fork = run(&engine, turn(way, &format!("{story}and then {way}, and on over the bridge")));
        assert!(fork.usage.cached_tokens >= kept[0].tokens, "{:?}", fork.usage);
        fork
    });
    assert_ne!(forks[0].text, "");
    assert!(!engine.drop_session("theirs", "talk").unwrap());
    assert!(engine.drop_session("mine", "talk").unwrap());
    assert!(engine.sessions("mine").unwrap().is_empty());
}

#[test]
fn a_cache_hit_can_end_inside_a_block() {
    let engine = engine(Settings::default());
    let story = "the bus stops at every corner of the town, ".repeat(9);
    let longer = format!("{story}even at the one with the bakery");
    let alone = run(&self::engine(Settings::default()), complete("alone", &longer, 12));
    run(&engine, complete("a", &story, 1));
    let output = run(&engine, complete("b", &longer, 12));
    assert!(engine.stats().scheduler.partial_copies_total > 0, "{:?}", engine.stats());
    assert!(!output.usage.cached_tokens.is_multiple_of(Settings::default().block_size), "{:?}", output.usage);
    assert_eq!(output.text, alone.text);
}

#[test]
fn a_callback_stops_a_generation_and_the_engine_goes_on() {
    use std::ops::ControlFlow;
    let engine = engine(Settings::default());
    let (mut text, mut calls) = (String::new(), 0);
    let stopped = engine.generate(complete("a", "Once upon a time", 400), |delta, _| {
        text.push_str(delta.text());
        calls += 1;
        if text.len() > 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(stopped.unwrap().reason, FinishReason::Cancelled);
    assert!(calls < 20, "{calls}");
    let whole = engine.generate(complete("b", "Once upon a time", 8), |_, _| ControlFlow::Continue(()));
    assert_eq!(whole.unwrap().usage.unwrap().completion_tokens, 8);
}

#[test]
fn a_request_that_wants_it_reports_each_chunk_of_its_prompt() {
    let engine = engine(Settings { max_num_batched_tokens: Some(64), ..Settings::default() });
    let prompt = "the bus stops at the market ".repeat(60);
    let reported = |progress| {
        let mut request = complete("r", &prompt, 2);
        request.progress = progress;
        // The second request would find the prompt cached.
        request.cache_salt = Some(format!("{progress:?}"));
        let output = run(&engine, request);
        let reports = output.events.iter().filter_map(|event| match event {
            Event::Progress { processed_tokens } => Some(*processed_tokens),
            _ => None,
        });
        (reports.collect::<Vec<usize>>(), output.usage.prompt_tokens)
    };
    let (reports, prompt_tokens) = reported(ProgressReports::On);
    assert!(reports.len() > 2 && reports.is_sorted(), "{reports:?}");
    assert!(reports.iter().all(|processed| *processed > 0 && *processed < prompt_tokens), "{reports:?}");
    assert!(reported(ProgressReports::Off).0.is_empty());
}
