//! Lowering of chat requests, and their refusals.

mod calls;
mod extras;

use expect_test::{Expect, expect};
use omnibus_engine::{ReportedTokens, Request};
use omnibus_text::{ChatTemplate, GenerationPrompt, RenderInput};

use super::*;
use crate::wire::json;

fn caller() -> Caller {
    Caller { response_id: "chatcmpl-1".into(), tenant: "key-1".into() }
}

fn read(body: &str) -> Result<GenerationBatch, String> {
    let wire = json::parse(body.as_bytes()).and_then(ChatRequest::read);
    wire.map(|wire| lower(wire, &caller()))
        .map_err(|error| format!("{}: {}", error.param().unwrap_or_default(), error.message()))
}

/// The messages as a chat template sees them.
fn rendered(messages: &[Message]) -> String {
    let template = ChatTemplate::new("{{ messages | tojson(separators=(',', ':')) }}").unwrap();
    let input = RenderInput {
        messages,
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Add,
        reasoning_field: "reasoning_content",
        special_tokens: &[],
        kwargs: &Map::new(),
        now: jiff::civil::DateTime::ZERO,
    };
    template.render(&input).unwrap()
}

/// Checks the messages that the chat template gets.
fn check_messages(messages: &str, expected: Expect) {
    let lowered = match read(&format!(r#"{{"messages":{messages}}}"#)) {
        Ok(batch) => match &batch.prompts[0].input {
            Input::Chat(chat) => rendered(&chat.messages),
            other => format!("{other:?}"),
        },
        Err(error) => error,
    };
    expected.assert_eq(&lowered);
}

/// Checks the error for these fields in an otherwise valid request.
fn check_refused(fields: &str, expected: Expect) {
    let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{fields}}}"#);
    expected.assert_eq(&read(&body).expect_err("a refusal"));
}

fn lowered(fields: &str) -> Request {
    let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{fields}}}"#);
    read(&body).unwrap().prompts.remove(0)
}

#[test]
fn ids_and_counts_of_tokens_need_the_engines_reports_of_tokens() {
    let reports = |fields: &str| lowered(fields).tokens;
    assert_eq!(reports(r#""return_token_ids":true"#), ReportedTokens::Always);
    let continuous = r#""stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
    assert_eq!(reports(continuous), ReportedTokens::Always);
    assert_eq!(reports(r#""stream":true"#), ReportedTokens::WithLogprobs);
}

#[test]
fn parameters_that_a_request_leaves_out_are_the_models() {
    use omnibus_engine::SamplingParameter::{MinP, Temperature, TopK, TopP};
    let unset = |fields: &str| lowered(fields).unset;
    assert_eq!(unset(r#""n":1"#).len(), omnibus_engine::SAMPLING_PARAMETERS.len());
    let some = unset(r#""temperature":0.5,"top_k":-1"#);
    assert!(
        ![Temperature, TopK].iter().any(|of| some.contains(of))
            && [TopP, MinP].iter().all(|of| some.contains(of))
    );
}

#[test]
fn every_field_reaches_the_engine() {
    let request = lowered(
        r#""model":"m","max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"xtc_probability":0.5,"xtc_threshold":0.2,
        "dynatemp_range":0.25,"dynatemp_exponent":1.5,"top_n_sigma":1.5,"typical_p":0.75,"dry_multiplier":0.5,"dry_base":2,
        "dry_allowed_length":3,"dry_penalty_last_n":64,"dry_sequence_breakers":["."],"samplers":["typical_p","temperature"],
        "repetition_penalty":1.1,"repetition_context_size":64,"presence_penalty":0.25,"frequency_penalty":-0.25,
        "logit_bias":{"3":-100},"seed":-1,"stop":["a","b"],"stop_token_ids":[2],"ignore_eos":true,
        "include_stop_str_in_output":true,"min_tokens":2,"priority":-3,"session_id":"s","cache_salt":"c","logprobs":true,
        "top_logprobs":4,"return_token_ids":true,"speculative":{"enabled":false},
        "prediction":{"type":"content","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]},"user":"u","metadata":{},"store":false,"tools":null,"n":1"#,
    );
    expect![[r#"
        Request {
            id: "chatcmpl-1",
            origin: RequestOrigin {
                response_id: "",
                request_id: "",
                index: 0,
            },
            model: Some(
                "m",
            ),
            input: Chat(
                Chat {
                    messages: [
                        Message {
                            role: User,
                            name: None,
                            content: [
                                Text(
                                    "hi",
                                ),
                            ],
                        },
                    ],
                    media: [],
                    tools: [],
                    documents: None,
                    template_kwargs: {},
                    template: None,
                    own_template: None,
                    end: Answer,
                },
            ),
            max_new_tokens: Some(
                5,
            ),
            sampling: Sampling {
                temperature: 0.5,
                dynatemp_range: 0.25,
                dynatemp_exponent: 1.5,
                top_k: 0,
                top_p: 0.9,
                min_p: 0.1,
                top_n_sigma: 1.5,
                typical_p: 0.75,
                xtc_probability: 0.5,
                xtc_threshold: 0.2,
                repetition_penalty: 1.1,
                repetition_context: 64,
                presence_penalty: 0.25,
                frequency_penalty: -0.25,
                dry: Dry {
                    multiplier: 0.5,
                    base: 2.0,
                    allowed_length: 3,
                    context: 64,
                    breakers: [
                        ".",
                    ],
                },
                order: [
                    TypicalP,
                    Temperature,
                ],
                logit_bias: {
                    3: -100.0,
                },
                bad_words: BadWords {
                    texts: [],
                    tokens: [],
                },
                seed: Some(
                    18446744073709551615,
                ),
                processors: [],
            },
            unset: {},
            stop: Stop {
                strings: [
                    "a",
                    "b",
                ],
                token_ids: [
                    2,
                ],
                ignore_eos: true,
                include: true,
                min_tokens: 2,
            },
            output: Message {
                calls: None,
            },
            reasoning_budget: None,
            tool_choice: Auto,
            structured: None,
            tokens: Always,
            logprobs: Some(
                4,
            ),
            logprob_token_ids: [],
            prompt_logprobs: None,
            logprob_start: 0,
            alignment: None,
            hidden: None,
            token_logits: [],
            unattended: 0,
            speculation: Off,
            progress: Off,
            prediction: Some(
                "hi",
            ),
            class: Online,
            priority: -3,
            tenant: "key-1",
            cache_salt: Some(
                "c",
            ),
            cache_namespace: None,
            session_id: Some(
                "s",
            ),
            timeout_s: None,
        }
    "#]]
    .assert_debug_eq(&request);
}

#[test]
fn absent_fields_leave_the_defaults() {
    let batch = read(r#"{"messages":[{"role":"user","content":"hi"}]}"#).unwrap();
    assert_eq!(batch.prompts[0].sampling, omnibus_engine::Sampling::default());
    assert_eq!((batch.n, batch.prompts[0].max_new_tokens, batch.prompts[0].logprobs), (1, None, None));
}

#[test]
fn messages_become_what_templates_expect() {
    check_messages(
        r#"[{"role":"developer","content":"be kind"},
            {"role":"user","name":"ann","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{}}]}]"#,
        expect![[r#"[{"role":"system","content":"be kind"},{"role":"user","content":"ab","name":"ann"}]"#]],
    );
    check_messages(
        r#"[{"role":"user","content":"hi"},
            {"role":"assistant","content":null,"refusal":null,"annotations":[],"reasoning":"hm","tool_calls":[
              {"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
              {"id":"2","type":"function","function":{"name":"g","arguments":"oops"}}]},
            {"role":"tool","tool_call_id":"1","content":"3"}]"#,
        expect![[
            r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"a":1}}},{"id":"2","type":"function","function":{"name":"g","arguments":"oops"}}]},{"role":"tool","content":"3","tool_call_id":"1"}]"#
        ]],
    );
}

#[test]
fn no_content_is_an_empty_text() {
    for message in
        [r#"{"role":"user"}"#, r#"{"role":"user","content":[]}"#, r#"{"role":"user","content":null}"#]
    {
        check_messages(&format!("[{message}]"), expect![[r#"[{"role":"user","content":""}]"#]]);
    }
    check_messages(r#"[{"role":"assistant"}]"#, expect![[r#"[{"role":"assistant","content":""}]"#]]);
}

#[test]
fn reasoning_is_switched_by_the_names_that_templates_know() {
    let of = |fields: &str| match lowered(fields).input {
        Input::Chat(chat) => Value::Object(chat.template_kwargs).to_string(),
        other => format!("{other:?}"),
    };
    expect![[r#"{"enable_thinking":false,"thinking":false}"#]].assert_eq(&of(r#""reasoning_effort":"none""#));
    expect![[r#"{"reasoning_effort":"low"}"#]].assert_eq(&of(r#""reasoning_effort":"low""#));
    expect![[r#"{"thinking":"mine","enable_thinking":true}"#]]
        .assert_eq(&of(r#""enable_thinking":true,"chat_template_kwargs":{"thinking":"mine"}"#));
}

#[test]
fn inconsistent_conversations_are_refused() {
    check_messages("[]", expect!["messages: `messages` must have at least one message"]);
    check_messages("\"hi\"", expect!["messages: `messages` must be a list, not a string"]);
    check_messages("[3]", expect!["messages[0]: `messages[0]` must be an object, not an integer"]);
    check_messages(r#"[{"content":"hi"}]"#, expect!["messages[0].role: `messages[0].role` is missing"]);
    check_messages(
        r#"[{"role":"wizard","content":"hi"}]"#,
        expect![
            "messages[0].role: `messages[0].role` must be system, developer, user, assistant or tool, not `wizard`"
        ],
    );
    check_messages(
        r#"[{"role":"user","content":7}]"#,
        expect![
            "messages[0].content: `messages[0].content` must be a string or a list of parts, not an integer"
        ],
    );
    check_messages(
        r#"[{"role":"user","content":["hi"]}]"#,
        expect!["messages[0].content[0]: `messages[0].content[0]` must be an object, not a string"],
    );
    check_messages(
        r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]"#,
        expect![
            "messages[0].content[0].image_url.url: `messages[0].content[0].image_url.url` must be a URL that begins with `data:`, `https:`, `http:` or `file:`"
        ],
    );
    check_messages(
        r#"[{"role":"user","content":"hi","mood":"blue"}]"#,
        expect!["messages[0].mood: unknown field `messages[0].mood`"],
    );
    check_messages(
        r#"[{"role":"user","content":"hi","tool_call_id":"1"}]"#,
        expect!["messages[0].tool_call_id: `messages[0].tool_call_id` does not belong to the role `user`"],
    );
    check_messages(
        r#"[{"role":"tool","content":"3","tool_call_id":"1"}]"#,
        expect![
            "messages[0].tool_call_id: `messages[0].tool_call_id` refers to `1`, which no earlier message called"
        ],
    );
    check_messages(
        r#"[{"role":"tool","content":"3"}]"#,
        expect!["messages[0].tool_call_id: `messages[0].tool_call_id` is missing"],
    );
    check_messages(
        r#"[{"role":"assistant","tool_calls":[{"id":"1"}]}]"#,
        expect!["messages[0].tool_calls[0].function: `messages[0].tool_calls[0].function` is missing"],
    );
}

#[test]
fn tools_reach_the_template_unless_tool_choice_is_none() {
    let tools = r#""tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]"#;
    let of = |fields: &str| match lowered(fields).input {
        Input::Chat(chat) => Tool::shown_by_template(&chat.tools).map(|tools| tools.to_string()),
        _ => None,
    };
    expect![[
        r#"[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]"#
    ]]
    .assert_eq(&of(tools).unwrap());
    assert_eq!(of(tools), of(&format!("{tools},\"tool_choice\":\"auto\"")));
    assert_eq!(None, of(&format!("{tools},\"tool_choice\":\"none\"")));
    let choice = |choice: &str| lowered(&format!("{tools},\"tool_choice\":{choice}")).tool_choice;
    assert_eq!(choice("\"required\""), ToolChoice::Required);
    let named = r#"{"type":"function","function":{"name":"f"}}"#;
    assert_eq!(choice(named), ToolChoice::Function("f".into()));
    check_refused(
        &format!("{tools},\"tool_choice\":\"some\""),
        expect!["tool_choice: `tool_choice` must be none, auto, required or an object, not `some`"],
    );
    let one = lowered(&format!("{tools},\"parallel_tool_calls\":false"));
    assert!(matches!(one.output, OutputMode::Message { calls: Some(CallLimit::One) }));
    check_refused(r#""tool_choice":"required""#, expect!["tool_choice: `tool_choice` needs `tools`"]);
    check_refused(
        r#""tools":[{"type":"retrieval"}]"#,
        expect!["tools[0].type: `tools[0].type` must be `function` or `custom`, not `retrieval`"],
    );
    check_refused(
        r#""tools":[{"type":"function","function":{"name":""}}]"#,
        expect!["tools[0].function.name: `tools[0].function.name` must have between 1 and 128 bytes"],
    );
}

#[test]
fn the_last_message_can_be_continued() {
    let body = r#"{"messages":[{"role":"assistant","content":"Once"}],"continue_final_message":true}"#;
    assert!(
        matches!(&read(body).unwrap().prompts[0].input, Input::Chat(chat) if chat.end == PromptEnd::OpenMessage)
    );
    check_refused(
        r#""continue_final_message":true"#,
        expect![
            "continue_final_message: `continue_final_message` needs the last message to be the assistant's"
        ],
    );
    let Input::Chat(chat) = lowered(r#""add_generation_prompt":false"#).input else { panic!() };
    assert_eq!(chat.end, PromptEnd::Messages);
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    check_refused(r#""temprature":1"#, expect!["temprature: unknown field `temprature`"]);
    check_refused(
        r#""response_format":{"type":"xml"}"#,
        expect![[
            r#"response_format.type: `response_format.type` must be text, json_object or json_schema, not `xml`"#
        ]],
    );
    check_refused(
        r#""modalities":["text","audio"]"#,
        expect![[r#"modalities: `modalities` must be ["text"]"#]],
    );
    check_refused(r#""functions":[{}]"#, expect!["functions[0].name: `functions[0].name` is missing"]);
    check_refused(
        r#""chat_template_kwargs":{"bos_token":"x"}"#,
        expect!["chat_template_kwargs.bos_token: `chat_template_kwargs.bos_token` is reserved"],
    );
    check_refused(
        r#""stream_options":{"include_usage":true}"#,
        expect!["stream_options: `stream_options` needs `stream` to be true"],
    );
    check_refused(
        r#""stream":true,"stream_options":{"every":1}"#,
        expect!["stream_options.every: unknown field `stream_options.every`"],
    );
    check_refused(r#""top_logprobs":2"#, expect!["top_logprobs: `top_logprobs` needs `logprobs` to be true"]);
}

#[test]
fn type_and_range_errors_name_the_field_and_the_limits() {
    check_refused(
        r#""temperature":"hot""#,
        expect!["temperature: `temperature` must be a number, not a string"],
    );
    check_refused(r#""stream":"yes""#, expect!["stream: `stream` must be true or false, not a string"]);
    check_refused(r#""n":0"#, expect!["n: `n` must be between 1 and 128, not 0"]);
    check_refused(r#""n":1.5"#, expect!["n: `n` must be an integer, not a fraction"]);
    check_refused(r#""n":1000000000"#, expect!["n: `n` must be between 1 and 128, not 1000000000"]);
    check_refused(r#""max_tokens":0"#, expect!["max_tokens: `max_tokens` must be at least 1"]);
    check_refused(
        r#""max_tokens":9223372036854775808"#,
        expect!["max_tokens: `max_tokens` must be between 0 and 2147483647, not 9223372036854775808"],
    );
    check_refused(
        r#""max_tokens":99999999999999999999999"#,
        expect!["max_tokens: `max_tokens` must be between 0 and 2147483647, not 1e+23"],
    );
    check_refused(
        r#""max_tokens":-1"#,
        expect!["max_tokens: `max_tokens` must be between 0 and 2147483647, not -1"],
    );
    check_refused(
        r#""max_tokens":1,"max_completion_tokens":2"#,
        expect!["max_completion_tokens: `max_completion_tokens` and `max_tokens` differ; send one of them"],
    );
    check_refused(r#""top_k":-2"#, expect!["top_k: `top_k` must be -1 or an integer of at least 0, not -2"]);
    check_refused(r#""samplers":"kt""#, expect!["samplers: `samplers` must be a list, not a string"]);
    check_refused(
        r#""samplers":["top_k","best"]"#,
        expect![
            "samplers: `samplers[1]`: there is no sampler `best`; there are penalties, dry, top_n_sigma, temperature, typ_p, min_p, top_k, top_p, xtc"
        ],
    );
    check_refused(
        r#""dry_penalty_last_n":-2"#,
        expect!["dry_penalty_last_n: `dry_penalty_last_n` must be -1 or an integer of at least 0, not -2"],
    );
    check_refused(
        r#""dry_sequence_breakers":["a",1]"#,
        expect!["dry_sequence_breakers[1]: `dry_sequence_breakers[1]` must be a string, not an integer"],
    );
    check_refused(r#""typical_p":[]"#, expect!["typical_p: `typical_p` must be a number, not a list"]);
    check_refused(r#""logprobs":5"#, expect!["logprobs: `logprobs` must be true or false, not an integer"]);
    check_refused(
        r#""logprobs":true,"top_logprobs":-2"#,
        expect!["top_logprobs: `top_logprobs` must be -1 for the whole vocabulary or a count, not -2"],
    );
    check_refused(
        r#""logit_bias":{"cat":1}"#,
        expect!["logit_bias: the key `cat` of `logit_bias` is not a token id"],
    );
    check_refused(r#""logit_bias":[1]"#, expect!["logit_bias: `logit_bias` must be an object, not a list"]);
    check_refused(r#""stop":["a",1]"#, expect!["stop[1]: `stop[1]` must be a string, not an integer"]);
    check_refused(
        r#""stop_token_ids":[-1]"#,
        expect!["stop_token_ids[0]: `stop_token_ids[0]` must be a token id, not -1"],
    );
    check_refused(r#""seed":0.5"#, expect!["seed: `seed` must be an integer of 64 bits, not a fraction"]);
    check_refused(r#""priority":99999999999"#, expect!["priority: `priority` must be an integer of 32 bits"]);
    check_refused(
        r#""session_id":"""#,
        expect!["session_id: `session_id` must have between 1 and 256 bytes"],
    );
}
