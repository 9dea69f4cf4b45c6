//! Structured output by a model of random weights, at temperature 1: whatever it says must match.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::LazyLock;

use crate::common::{Output, fixture, output_tokens, run, wait_for};
use crate::schemas;
use omnibus_engine::{
    AsyncScheduling, CallLimit, CallRule, Chat, Delta, Event, EventStream, Failure, FinishReason, Grammar,
    GrammarLimits, Handle, Input, Message, ModelSource, OutputMode, Request, Role, Sampling, SchemaUse,
    Settings, StopMatch, StructuredOutput, Tool, ToolChoice, Whitespace, start,
};
use omnibus_testing::environment;
use serde_json::{Value, json};

static MODEL: LazyLock<std::path::PathBuf> = LazyLock::new(|| fixture::with_full_vocabulary("structured"));

fn engine(settings: Settings) -> Handle {
    let settings =
        Settings { kv_cache_memory: Some(settings.kv_cache_memory.unwrap_or(64 << 20)), ..settings };
    start(vec![ModelSource::Directory { path: MODEL.clone(), served_names: Vec::new() }], settings).unwrap()
}

fn free(id: &str, seed: u64, tokens: usize) -> Request {
    let mut request = Request::new(id, Input::Text(format!("the bus number {seed}")));
    request.sampling = Sampling { seed: Some(seed), ..Sampling::default() };
    request.max_new_tokens = Some(tokens);
    request
}

fn structured(id: &str, seed: u64, grammar: Grammar) -> Request {
    let structured = Some(StructuredOutput::new(grammar, "response_format"));
    Request { structured, ..free(id, seed, 600) }
}

fn submit(engine: &Handle, requests: Vec<Request>) -> Vec<EventStream> {
    requests.into_iter().map(|request| engine.submit(request).unwrap()).collect()
}

fn texts(engine: &Handle, requests: &[Request]) -> Vec<String> {
    submit(engine, requests.to_vec()).into_iter().map(|stream| said(&wait_for(stream))).collect()
}

/// The text and the calls of an answer.
fn said(output: &Output) -> String {
    let delta = |event: &Event| match event {
        Event::Delta { delta: Delta::ToolCallStart { name, .. }, .. } => format!("<call {name}>"),
        Event::Delta { delta: Delta::ToolCallArguments(json), .. } => json.clone(),
        Event::Delta { delta, .. } => delta.text().to_owned(),
        _ => String::new(),
    };
    output.events.iter().map(delta).collect()
}

/// A request with a strict tool.
fn with_tool(id: &str, seed: u64, tool_choice: ToolChoice) -> Request {
    let parameters = json!({ "type": "object", "properties": { "stop": { "enum": ["market", "harbour"] },
        "minutes": { "type": "integer" } }, "required": ["stop"], "additionalProperties": false });
    let tools = vec![Tool { rule: CallRule::Strict, ..Tool::new("depart", None, parameters) }];
    let messages = vec![Message::new(Role::User, "When does the bus leave?")];
    let chat = Chat { messages, tools, ..Chat::default() };
    Request {
        input: Input::Chat(chat),
        output: OutputMode::Message { calls: Some(CallLimit::Any) },
        tool_choice,
        ..free(id, seed, 80)
    }
}

fn failure(engine: &Handle, request: Request) -> Failure {
    let mut stream = match engine.submit(request) {
        Ok(stream) => stream,
        Err(failure) => return failure,
    };
    loop {
        match stream.blocking_next() {
            Some(Event::Failed(failure)) => return failure,
            Some(Event::Finished { .. }) | None => panic!("it was not refused"),
            Some(_) => {}
        }
    }
}

/// One request for every kind of grammar, with every kind of sampling.
fn every_kind() -> Vec<Request> {
    let grammars = [
        Grammar::JsonObject,
        Grammar::json_schema(&schemas::schema(3)),
        Grammar::Regex(r"[0-9]{4}-(0[1-9]|1[0-2]) \w{3,9}".into()),
        Grammar::Choice(vec!["left at the stop".into(), "right".into(), "straight on".into()]),
        Grammar::Lark(
            "start: term (\"+\" term)~0..5\nterm: NUMBER | \"(\" start \")\"\nNUMBER: /[0-9]{1,3}/".into(),
        ),
    ];
    let mut requests = Vec::new();
    for (at, grammar) in grammars.into_iter().cycle().take(15).enumerate() {
        let mut request = structured(&format!("s{at}"), at as u64, grammar);
        request.max_new_tokens = Some(60);
        match at / 5 {
            0 => {}
            1 => {
                request.sampling.frequency_penalty = 0.7;
                request.sampling.repetition_penalty = 1.2;
                request.sampling.top_k = 40;
            }
            _ => request.sampling = Sampling { seed: Some(1), ..Sampling::greedy() },
        }
        request.stop.min_tokens = at % 4 * 5;
        requests.push(request);
        requests.push(Request { max_new_tokens: Some(40), ..free(&format!("f{at}"), at as u64, 40) });
    }
    let function = || ToolChoice::Function("depart".to_owned());
    for (at, choice) in
        [ToolChoice::Required, ToolChoice::Auto, function()].into_iter().cycle().take(6).enumerate()
    {
        requests.push(with_tool(&format!("t{at}"), at as u64, choice));
    }
    let mut xtc = free("xtc", 5, 40);
    (xtc.sampling.xtc_probability, xtc.sampling.xtc_threshold) = (0.8, 0.001);
    requests.push(xtc);
    requests
}

#[test]
fn random_schemas_are_matched_beside_free_rows() {
    let number = |name| environment::variable(name).map(|text| text.parse::<u64>().expect("a number"));
    let first = number("SEED").unwrap_or(0);
    let count = if first > 0 { 1 } else { number("OMNIBUS_FUZZ_SCHEMAS").unwrap_or(300) };
    let engine = engine(Settings { max_queue: 4096, ..Settings::default() });
    let (mut finished, mut jumped) = (0, 0);
    for batch in (first..first + count).collect::<Vec<u64>>().chunks(100) {
        let request = |seed: &u64| {
            let grammar = Grammar::json_schema(&schemas::schema(*seed));
            [structured(&format!("s{seed}"), *seed, grammar), free(&format!("f{seed}"), *seed, 30)]
        };
        let streams = submit(&engine, batch.iter().flat_map(request).collect());
        let outputs: Vec<Output> = streams.into_iter().map(wait_for).collect();
        for (seed, output) in batch.iter().zip(outputs.iter().step_by(2)) {
            if output.reason != FinishReason::Stop {
                continue;
            }
            finished += 1;
            let schema = schemas::schema(*seed);
            let value: Value = serde_json::from_str(&output.text)
                .unwrap_or_else(|error| panic!("SEED={seed}: {error}: {}", output.text));
            if let Err(error) = jsonschema::validate(&schema, &value) {
                panic!("SEED={seed}: {error}: {value} by {schema}");
            }
        }
        jumped = engine.stats().scheduler.forced_tokens_total;
    }
    let stats = engine.stats();
    println!("{finished} of {count} finished and validate; {jumped} tokens were forced; {:?}", stats.grammar);
    assert!(finished * 10 >= count * 9, "{finished} of {count} finished");
    assert!(jumped > count, "{stats:?}");
}

#[test]
fn a_batch_of_every_kind_gives_what_each_gives_alone() {
    let engine = engine(Settings::default());
    let requests = every_kind();
    let together = texts(&engine, &requests);
    let alone: Vec<String> = requests.iter().map(|request| said(&run(&engine, request.clone()))).collect();
    assert_eq!(together, alone);
    for (request, said) in requests.iter().zip(&together) {
        if request.id.starts_with('t') && request.tool_choice != ToolChoice::Auto {
            assert!(said.starts_with("<call depart>{\"stop\":"), "{said}");
        }
    }
    let ahead = self::engine(Settings { async_scheduling: AsyncScheduling::On, ..Settings::default() });
    assert_eq!(together, texts(&ahead, &requests), "with a step ahead");
    // Blocks for a few sequences, of small steps.
    let tight = Settings {
        kv_cache_memory: Some(256 << 10),
        block_size: 8,
        max_num_batched_tokens: Some(16),
        ..Settings::default()
    };
    let tight = self::engine(tight);
    assert_eq!(together, texts(&tight, &requests), "preempted");
    assert!(tight.stats().scheduler.preemptions_total > 0, "{:?}", tight.stats());
}

#[test]
fn failed_steps_and_panics_of_the_loop_change_nothing() {
    let requests = every_kind();
    let expected = texts(&engine(Settings::default()), &requests);
    for faults in ["read@step=12", "launch-panic@step=9", "draw@step=14", "turn@step=15"] {
        let Ok(faults) = faults.parse() else { panic!("{faults} is no fault") };
        let engine = engine(Settings { faults, ..Settings::default() });
        assert_eq!(expected, texts(&engine, &requests));
        assert!(engine.stats().failed_steps_total > 0);
    }
}

#[test]
fn forced_tokens_have_log_probabilities_where_they_are_requested() {
    let engine = engine(Settings::default());
    let schema = json!({ "type": "object", "properties": { "a long name of a member": { "enum": [1, 2] } },
        "required": ["a long name of a member"], "additionalProperties": false });
    let plain = run(&engine, structured("a", 4, Grammar::json_schema(&schema)));
    let forced = engine.stats().scheduler.forced_tokens_total;
    assert!(forced > 3, "{plain:?}");
    let scored =
        run(&engine, Request { logprobs: Some(2), ..structured("b", 4, Grammar::json_schema(&schema)) });
    assert_eq!(engine.stats().scheduler.forced_tokens_total, forced);
    assert_eq!((&plain.text, plain.usage.completion_tokens), (&scored.text, scored.usage.completion_tokens));
    let tokens = output_tokens(&scored);
    assert_eq!(tokens.len(), scored.usage.completion_tokens);
    assert!(tokens.iter().all(|(_, logprob)| logprob.is_some()));
}

#[test]
fn a_stop_string_and_a_length_limit_end_structured_output() {
    let engine = engine(Settings::default());
    let grammar = || Grammar::Regex("a{5}b{5}stop c{50}".into());
    let whole = run(&engine, structured("a", 1, grammar()));
    assert_eq!(
        (whole.reason, whole.text.as_str()),
        (FinishReason::Stop, format!("aaaaabbbbbstop {}", "c".repeat(50)).as_str())
    );
    let mut stopped = structured("b", 1, grammar());
    stopped.stop.strings = vec!["stop".into()];
    let stopped = run(&engine, stopped);
    assert_eq!(stopped.text, "aaaaabbbbb");
    let matched = stopped.events.iter().find_map(|event| match event {
        Event::Finished { matched, .. } => matched.clone(),
        _ => None,
    });
    assert_eq!(matched, Some(StopMatch::String("stop".into())));
    let cut = run(&engine, Request { max_new_tokens: Some(3), ..structured("c", 1, grammar()) });
    assert_eq!((cut.reason, cut.usage.completion_tokens), (FinishReason::Length, 3));
    assert!(whole.text.starts_with(&cut.text));
    let one = run(&engine, Request { max_new_tokens: Some(1), ..structured("d", 1, grammar()) });
    assert_eq!(one.usage.completion_tokens, 1);
}

#[test]
fn an_end_token_is_sampled_only_where_the_grammar_may_end() {
    let engine = engine(Settings::default());
    for seed in 0..20 {
        let mut request = structured(&format!("r{seed}"), seed, Grammar::Regex("(ab){2,40}".into()));
        // The end is likely wherever it is allowed.
        request.sampling.logit_bias = [(2041, 60.0)].into();
        assert_eq!(run(&engine, request).text, "abab");
    }
}

#[test]
fn nothing_but_a_limit_ends_an_answer_before_its_least_tokens() {
    for async_scheduling in [AsyncScheduling::Off, AsyncScheduling::On] {
        let engine = engine(Settings { async_scheduling, ..Settings::default() });
        // The end is likely wherever it is allowed.
        let eager = |id: &str, least: usize| {
            let mut request = free(id, 3, 40);
            request.sampling.logit_bias = [(2041, 100.0)].into();
            request.stop.min_tokens = least;
            request
        };
        let lengths = [0, 1, 7, 40].map(|least| {
            let output = run(&engine, eager("plain", least));
            (output.usage.completion_tokens, output.reason)
        });
        let stop = FinishReason::Stop;
        assert_eq!(lengths, [(1, stop), (2, stop), (8, stop), (40, FinishReason::Length)]);
        let grammar = Some(StructuredOutput::new(Grammar::Regex("(ab){2,40}".into()), "guided_regex"));
        let constrained = run(&engine, Request { structured: grammar, ..eager("grammar", 9) });
        assert!(constrained.text.len() >= 9 && constrained.reason == stop, "{constrained:?}");
        let short = Some(StructuredOutput::new(Grammar::Regex("abc".into()), "guided_regex"));
        assert_eq!(run(&engine, Request { structured: short, ..eager("short", 9) }).text, "abc");
        let mut stopped = free("stop", 3, 40);
        stopped.stop.strings = ["a", "e", "i", "o", "u", "r", "n", "s", "t"].map(str::to_owned).into();
        let early = run(&engine, stopped.clone()).usage.completion_tokens;
        stopped.stop.min_tokens = 20;
        let late = run(&engine, stopped).usage.completion_tokens;
        assert!(early < 20 && late > 20, "{early} {late}");
    }
    let Failure::BadRequest { field, .. } = failure(&engine(Settings::default()), {
        let mut request = free("r", 1, 4);
        request.stop.min_tokens = 5;
        request
    }) else {
        panic!("it is refused")
    };
    assert_eq!(field, "min_tokens");
}

#[test]
fn what_is_refused_names_its_field_and_path() {
    let engine = engine(Settings {
        grammar_limits: GrammarLimits { bytes: 5000, ..GrammarLimits::default() },
        ..Settings::default()
    });
    let check =
        |grammar: Grammar, field: &str, part: &str| match failure(&engine, structured("r", 1, grammar)) {
            Failure::BadRequest { field: found, message } => {
                assert_eq!(found, field, "{message}");
                assert!(message.contains(part), "{message}");
            }
            other => panic!("{other}"),
        };
    let schema = json!({ "properties": { "a": { "items": { "uniqueItems": true } } } });
    let (schema, whitespace) = (schema.to_string(), Whitespace::Usual);
    check(
        Grammar::JsonSchema { schema, whitespace, schema_use: SchemaUse::Strict },
        "response_format.properties.a.items.uniqueItems",
        "at `/properties/a/items/uniqueItems`: the keyword `uniqueItems` cannot be enforced",
    );
    check(
        Grammar::json_schema(&json!({ "const": "x".repeat(6000) })),
        "response_format",
        "more than 5000 bytes",
    );
    check(Grammar::Regex("(a".into()), "response_format", "unclosed group");
    check(Grammar::Lark("start: other".into()), "response_format", "unknown name");
    check(
        Grammar::json_schema(&json!({ "type": "integer", "minimum": 2, "maximum": 1 })),
        "response_format",
        "minimum",
    );
    assert!(engine.stats().grammar.refused_total >= 3, "{:?}", engine.stats().grammar);
    assert_eq!(run(&engine, structured("ok", 1, Grammar::Choice(vec!["fine".into()]))).text, "fine");
}

#[test]
fn an_equal_grammar_is_compiled_once() {
    let engine = engine(Settings::default());
    let requests: Vec<Request> = (0..8)
        .map(|seed| structured(&format!("r{seed}"), seed, Grammar::json_schema(&schemas::schema(5))))
        .collect();
    run(&engine, requests[0].clone());
    texts(&engine, &requests);
    let stats = engine.stats().grammar;
    assert_eq!((stats.compiled_total, stats.cache_hits_total), (9, 8), "{stats:?}");
}
