//! Invalid requests of real clients and attackers, each of which must be refused by name.
//!
//! The table also runs against the real engine. It assumes that the model's vocabulary is below 4 million
//! tokens and its context below 100 million.

use crate::client::{JSON, request};

/// A request, and its expected refusal.
pub struct Case {
    /// What it is, for messages.
    pub name: String,
    /// The whole request.
    pub bytes: Vec<u8>,
    /// The expected status.
    pub status: u16,
    /// The expected `param`, when the JSON is valid.
    pub param: Option<&'static str>,
}

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const HI: &str = r#""messages":[{"role":"user","content":"hi"}],"max_tokens":4"#;

fn raw(name: &str, path: &str, body: impl AsRef<[u8]>, status: u16) -> Case {
    Case { name: name.into(), bytes: request("POST", path, &[JSON], body.as_ref()), status, param: None }
}

fn refused(path: &str, body: String, param: &'static str) -> Case {
    let name = format!("{path} {}", body.chars().take(150).collect::<String>());
    Case { param: Some(param), ..raw(&name, path, body, 400) }
}

/// A chat request that is valid except for these fields.
fn chat(fields: impl AsRef<str>, param: &'static str) -> Case {
    let fields = fields.as_ref();
    let own = |name: &str| fields.starts_with(&format!("\"{name}\":"));
    let base = match (own("messages"), own("max_tokens")) {
        (true, _) => r#""max_tokens":4"#,
        (_, true) => r#""messages":[{"role":"user","content":"hi"}]"#,
        _ => HI,
    };
    refused(CHAT, format!("{{{base},{fields}}}"), param)
}

/// A completion request that is valid except for these fields.
fn text(fields: impl AsRef<str>, param: &'static str) -> Case {
    refused(TEXT, format!("{{\"max_tokens\":4,{}}}", fields.as_ref()), param)
}

fn messages(list: &str, param: &'static str) -> Case {
    chat(format!("\"messages\":{list}"), param)
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let parts = [
        unparsable(),
        types_and_ranges(),
        huge(),
        conversations(),
        prompts(),
        unsupported(),
        tokenizing(),
        envelopes(),
    ];
    parts.into_iter().flatten().collect()
}

fn unparsable() -> Vec<Case> {
    let in_message = |content: &str| format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
    let mut bad_utf8 = in_message("\"?\"").into_bytes();
    let at = bad_utf8.iter().position(|byte| *byte == b'?').unwrap();
    bad_utf8[at] = 0xff;
    let mut overlong = in_message("\"??\"").into_bytes();
    overlong[at..at + 2].copy_from_slice(&[0xc0, 0xaf]);
    vec![
        raw("an empty body", CHAT, "", 400),
        raw("blanks", CHAT, " \n\t ", 400),
        raw("half an object", CHAT, r#"{"messages":[{"role":"user""#, 400),
        raw("not JSON", CHAT, "messages=hi", 400),
        raw("a list", CHAT, "[]", 400),
        raw("a string", CHAT, "\"hi\"", 400),
        raw("null", CHAT, "null", 400),
        raw("two objects", CHAT, "{}{}", 400),
        raw("a trailing comma", CHAT, format!("{{{HI},}}"), 400),
        raw("a comment", CHAT, format!("{{{HI}/*hi*/}}"), 400),
        raw("a byte order mark", CHAT, format!("\u{feff}{{{HI}}}"), 400),
        raw("invalid UTF-8", CHAT, bad_utf8, 400),
        raw("overlong UTF-8", CHAT, overlong, 400),
        raw("UTF-16", CHAT, "{\0}\0", 400),
        raw("a lone high surrogate", CHAT, in_message(r#""\ud800""#), 400),
        raw("a lone low surrogate", CHAT, in_message(r#""\udc00 hi""#), 400),
        raw("a raw line break in a string", CHAT, in_message("\"a\nb\""), 400),
        raw("a bad escape", CHAT, in_message(r#""\x41""#), 400),
        raw("NaN", CHAT, format!("{{{HI},\"temperature\":NaN}}"), 400),
        raw("Infinity", CHAT, format!("{{{HI},\"temperature\":Infinity}}"), 400),
        raw("a number past all floats", CHAT, format!("{{{HI},\"temperature\":1e400}}"), 400),
        raw("duplicate keys", CHAT, format!("{{{HI},\"n\":1,\"n\":2}}"), 400),
        raw(
            "duplicate keys deep inside",
            CHAT,
            format!("{{{HI},\"metadata\":{{\"a\":[{{\"b\":1,\"b\":2}}]}}}}"),
            400,
        ),
        raw("lists 100000 deep", CHAT, format!("{{{HI},\"metadata\":{}", "[".repeat(100_000)), 400),
        raw("objects 1000 deep", CHAT, "{\"a\":".repeat(1000), 400),
        raw("128 levels", CHAT, format!("{{{HI},\"metadata\":{}{}}}", "[".repeat(127), "]".repeat(127)), 400),
        raw("two million values", CHAT, format!("{{{HI},\"metadata\":[0{}]}}", ",0".repeat(2_000_000)), 400),
    ]
}

/// Fields of one value that is of another type or out of range.
const VALUES: &[(&str, &str)] = &[
    ("temperature", "-0.1"),
    ("temperature", "1e300"),
    ("temperature", "\"hot\""),
    ("temperature", "[1]"),
    ("temperature", "true"),
    ("top_p", "0"),
    ("top_p", "1.01"),
    ("top_p", "-1"),
    ("min_p", "-0.5"),
    ("min_p", "2"),
    ("top_k", "-2"),
    ("top_k", "1.5"),
    ("top_k", "9223372036854775808"),
    ("top_k", "\"all\""),
    ("repetition_penalty", "0"),
    ("repetition_penalty", "-1"),
    ("repetition_penalty", "1e30"),
    ("repetition_context_size", "-1"),
    ("presence_penalty", "3"),
    ("frequency_penalty", "-2.5"),
    ("n", "0"),
    ("n", "-1"),
    ("n", "1000000000"),
    ("n", "1.5"),
    ("n", "\"2\""),
    ("seed", "0.5"),
    ("seed", "99999999999999999999999"),
    ("seed", "\"lucky\""),
    ("max_tokens", "0"),
    ("max_tokens", "-5"),
    ("max_tokens", "9223372036854775808"),
    ("max_tokens", "1e18"),
    ("max_tokens", "2.5"),
    ("max_tokens", "\"many\""),
    ("max_tokens", "[]"),
    ("priority", "1e10"),
    ("priority", "\"high\""),
    ("stream", "1"),
    ("stream", "\"true\""),
    ("ignore_eos", "\"no\""),
    ("logprobs", "1"),
    ("model", "7"),
    ("model", "{}"),
    ("session_id", "\"\""),
    ("cache_salt", "5"),
    ("stop", "5"),
    ("stop", "{}"),
    ("stop_token_ids", "\"2\""),
    ("logit_bias", "[]"),
    ("logit_bias", "{\"cat\":1}"),
    ("logit_bias", "{\"-1\":1}"),
    ("logit_bias", "{\"1.5\":1}"),
    ("logit_bias", "{\"1\":1e308}"),
    ("logit_bias", "{\"1\":-101}"),
    ("logit_bias", "{\"4000000\":1}"),
    ("chat_template_kwargs", "[]"),
    ("chat_template_kwargs", "\"x\""),
    ("documents", "{}"),
    ("reasoning_effort", "3"),
];

fn types_and_ranges() -> Vec<Case> {
    let mut cases: Vec<Case> =
        VALUES.iter().map(|(field, value)| chat(format!("\"{field}\":{value}"), field)).collect();
    cases.extend([
        chat(r#""logit_bias":{"1":"up"}"#, "logit_bias.1"),
        chat(r#""stop":["a",7]"#, "stop[1]"),
        chat(r#""stop":[""]"#, "stop"),
        chat(r#""stop":"""#, "stop"),
        chat(r#""stop_token_ids":[1.5]"#, "stop_token_ids[0]"),
        chat(r#""top_logprobs":5"#, "top_logprobs"),
        chat(r#""logprobs":true,"top_logprobs":1000000"#, "top_logprobs"),
        chat(r#""logprobs":true,"top_logprobs":-1"#, "top_logprobs"),
        chat(r#""max_tokens":2,"max_completion_tokens":3"#, "max_completion_tokens"),
        chat(r#""stream_options":{"include_usage":true}"#, "stream_options"),
        chat(r#""stream":true,"stream_options":[]"#, "stream_options"),
        chat(r#""stream":true,"stream_options":{"include_usage":"yes"}"#, "stream_options.include_usage"),
        chat(r#""stream":true,"temperature":-1"#, "temperature"),
    ]);
    cases
}

fn huge() -> Vec<Case> {
    let many = |item: &str, count: usize| format!("[{item}{}]", format!(",{item}").repeat(count - 1));
    let biases: Vec<String> = (0..2000).map(|id| format!("\"{id}\":1")).collect();
    vec![
        chat(format!("\"stop\":{}", many("\"a\"", 10_000)), "stop"),
        chat(format!("\"stop\":\"{}\"", "a".repeat(2000)), "stop"),
        chat(format!("\"stop_token_ids\":{}", many("1", 5000)), "stop_token_ids"),
        chat(format!("\"logit_bias\":{{{}}}", biases.join(",")), "logit_bias"),
        chat(format!("\"session_id\":\"{}\"", "a".repeat(300)), "session_id"),
        chat(format!("\"tools\":{}", many(r#"{"type":"function","function":{"name":"f"}}"#, 2000)), "tools"),
        text(format!("\"prompt\":{}", many("\"a\"", 1000)), "prompt"),
        text(format!("\"n\":128,\"prompt\":{}", many("\"a\"", 100)), "n"),
        raw("33 MiB of a string", CHAT, format!("{{\"user\":\"{}\"}}", "a".repeat(33 << 20)), 413),
        raw("100 MB of blanks", TEXT, vec![b' '; 100_000_000], 413),
    ]
}

fn conversations() -> Vec<Case> {
    vec![
        refused(CHAT, r#"{"max_tokens":4}"#.into(), "messages"),
        messages("null", "messages"),
        messages("[]", "messages"),
        messages("{}", "messages"),
        messages("\"hi\"", "messages"),
        messages("[null]", "messages[0]"),
        messages("[\"hi\"]", "messages[0]"),
        messages("[[]]", "messages[0]"),
        messages("[{}]", "messages[0].role"),
        messages(r#"[{"role":7,"content":"hi"}]"#, "messages[0].role"),
        messages(r#"[{"role":"","content":"hi"}]"#, "messages[0].role"),
        messages(r#"[{"role":"wizard","content":"hi"}]"#, "messages[0].role"),
        messages(r#"[{"role":"function","name":"f","content":"hi"}]"#, "messages[0].name"),
        messages(r#"[{"role":"user","content":5}]"#, "messages[0].content"),
        messages(r#"[{"role":"user","content":{"text":"hi"}}]"#, "messages[0].content"),
        messages(r#"[{"role":"user","content":[7]}]"#, "messages[0].content[0]"),
        messages(r#"[{"role":"user","content":[{"text":"hi"}]}]"#, "messages[0].content[0].type"),
        messages(r#"[{"role":"user","content":[{"type":"text"}]}]"#, "messages[0].content[0].text"),
        messages(
            r#"[{"role":"user","content":[{"type":"text","text":["hi"]}]}]"#,
            "messages[0].content[0].text",
        ),
        messages(
            r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://169.254.169.254/"}}]}]"#,
            "messages[0].content[0].image_url.url",
        ),
        messages(
            r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png,abc"}}]}]"#,
            "messages[0].content[0].image_url.url",
        ),
        messages(
            r#"[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":7,"format":"wav"}}]}]"#,
            "messages[0].content[0].input_audio.data",
        ),
        messages(r#"[{"role":"user","content":"hi","name":["x"]}]"#, "messages[0].name"),
        messages(r#"[{"role":"user","content":"hi","extra":1}]"#, "messages[0].extra"),
        messages(r#"[{"role":"assistant","tool_calls":"f"}]"#, "messages[0].tool_calls"),
        messages(r#"[{"role":"assistant","tool_calls":[5]}]"#, "messages[0].tool_calls[0]"),
        messages(
            r#"[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}}]}]"#,
            "messages[0].tool_calls[0].function.arguments",
        ),
        messages(r#"[{"role":"tool","content":"3"}]"#, "messages[0].tool_call_id"),
        messages(r#"[{"role":"tool","content":"3","tool_call_id":"ghost"}]"#, "messages[0].tool_call_id"),
        messages(r#"[{"role":"user","content":"hi","tool_call_id":"1"}]"#, "messages[0].tool_call_id"),
        chat(r#""tools":{}"#, "tools"),
        chat(r#""tools":[5]"#, "tools[0]"),
        chat(r#""tools":[{}]"#, "tools[0].type"),
        chat(r#""tools":[{"type":"code_interpreter"}]"#, "tools[0].type"),
        chat(r#""tools":[{"type":"function"}]"#, "tools[0].function"),
        chat(r#""tools":[{"type":"function","function":{"name":5}}]"#, "tools[0].function.name"),
        chat(
            r#""tools":[{"type":"function","function":{"name":"f","parameters":"{}"}}]"#,
            "tools[0].function.parameters",
        ),
        chat(r#""tool_choice":"f""#, "tool_choice"),
        chat(r#""tool_choice":7"#, "tool_choice"),
        chat(r#""tool_choice":"required""#, "tool_choice"),
        chat(r#""chat_template_kwargs":{"messages":[]}"#, "chat_template_kwargs.messages"),
        chat(r#""chat_template_kwargs":{"bos_token":"<evil>"}"#, "chat_template_kwargs.bos_token"),
        chat(r#""continue_final_message":true"#, "continue_final_message"),
    ]
}

fn prompts() -> Vec<Case> {
    vec![
        text(r#""n":1"#, "prompt"),
        text(r#""prompt":null"#, "prompt"),
        text(r#""prompt":7"#, "prompt"),
        text(r#""prompt":{}"#, "prompt"),
        text(r#""prompt":true"#, "prompt"),
        text(r#""prompt":[]"#, "prompt"),
        text(r#""prompt":[[]]"#, "prompt[0]"),
        text(r#""prompt":["a",[]]"#, "prompt[1]"),
        text(r#""prompt":["a",null]"#, "prompt[1]"),
        text(r#""prompt":[1,"a"]"#, "prompt[0]"),
        text(r#""prompt":[1.5]"#, "prompt[0]"),
        text(r#""prompt":[-1]"#, "prompt[0]"),
        text(r#""prompt":[1e10]"#, "prompt[0]"),
        text(r#""prompt":[4294967296]"#, "prompt[0]"),
        text(r#""prompt":[[[1]]]"#, "prompt[0][0]"),
        text(r#""prompt":[4000000]"#, "prompt"),
        text(r#""prompt":"a","max_tokens_":1"#, "max_tokens_"),
        text(r#""prompt":"a","logprobs":1000000"#, "logprobs"),
        text(r#""prompt":"a","logprobs":true"#, "logprobs"),
        text(r#""prompt":"a","echo":"yes""#, "echo"),
        text(r#""prompt":[1],"suffix":"b""#, "suffix"),
        text(r#""prompt":"a","suffix":5"#, "suffix"),
        text(r#""prompt":"a","n":2,"best_of":1"#, "best_of"),
        text(r#""prompt":"a","best_of":5,"stream":true"#, "best_of"),
        text(r#""prompt":"a","best_of":500"#, "best_of"),
        text(r#""prompt":"a","min_tokens":-1"#, "min_tokens"),
        text(r#""prompt":"a","min_tokens":5"#, "min_tokens"),
        text(r#""prompt":"a","xtc_probability":1.5"#, "xtc_probability"),
        text(r#""prompt":"a","xtc_threshold":0.6"#, "xtc_threshold"),
        text(r#""prompt":"a","dynatemp_range":-1"#, "dynatemp_range"),
        text(r#""prompt":"a","dynatemp_exponent":101"#, "dynatemp_exponent"),
        text(r#""prompt":"a","top_n_sigma":-2"#, "top_n_sigma"),
        text(r#""prompt":"a","typical_p":0"#, "typical_p"),
        text(r#""prompt":"a","dry_multiplier":-0.5"#, "dry_multiplier"),
        text(r#""prompt":"a","dry_base":0.5"#, "dry_base"),
        text(r#""prompt":"a","dry_allowed_length":-1"#, "dry_allowed_length"),
        text(r#""prompt":"a","dry_penalty_last_n":1.5"#, "dry_penalty_last_n"),
        text(r#""prompt":"a","dry_sequence_breakers":[""]"#, "dry_sequence_breakers"),
        text(r#""prompt":"a","samplers":["top_k","top_k"]"#, "samplers"),
        text(r#""prompt":"a","samplers":["mirostat"]"#, "samplers"),
        text(r#""prompt":"a","stop":["a",null]"#, "stop[1]"),
        text(r#""prompt":"a","messages":[]"#, "messages"),
        text(r#""prompt":"a","logit_bias":{"4000000":5}"#, "logit_bias"),
        refused(TEXT, r#"{"prompt":"a","max_tokens":100000000}"#.into(), "prompt"),
    ]
}

fn unsupported() -> Vec<Case> {
    vec![
        chat(r#""temprature":1"#, "temprature"),
        chat(r#""__proto__":{}"#, "__proto__"),
        chat(r#""response_format":"json""#, "response_format"),
        chat(r#""response_format":{"type":"json_schema"}"#, "response_format.json_schema"),
        chat(r#""response_format":{"type":"json_object"},"guided_regex":"a""#, "guided_regex"),
        chat(r#""guided_json":"{]""#, "guided_json"),
        chat(format!(r#""guided_regex":"{}a{}""#, "(".repeat(999), ")".repeat(999)), "guided_regex"),
        chat(r#""guided_choice":[]"#, "guided_choice"),
        chat(r#""guided_choice":["a",5]"#, "guided_choice[1]"),
        chat(r#""structured_outputs":{}"#, "structured_outputs"),
        chat(r#""structured_outputs":{"regex":"a","choice":["a"]}"#, "structured_outputs.choice"),
        chat(r#""structured_outputs":{"grammer":"a"}"#, "structured_outputs.grammer"),
        chat(r#""bad_words":[""]"#, "bad_words"),
        chat(r#""chat_template":"x""#, "chat_template"),
        chat(r#""modalities":["audio"]"#, "modalities"),
        chat(r#""audio":{"voice":"x"}"#, "audio"),
        chat(r#""functions":{}"#, "functions"),
        chat(r#""chat_template":"{% for i in range(10**9) %}{% endfor %}""#, "chat_template"),
        chat(r#""best_of":2"#, "best_of"),
        chat(r#""web_search_options":{}"#, "web_search_options"),
        Case { status: 404, ..chat(r#""model":"gpt-17""#, "model") },
        Case { status: 404, ..chat(r#""model":"../../etc/passwd""#, "model") },
        Case { status: 404, ..chat(r#""model":"""#, "model") },
    ]
}

/// Cases that only an engine with a grammar engine refuses.
#[allow(dead_code, reason = "the scripted engine has none")]
pub fn grammars() -> Vec<Case> {
    vec![
        chat(r#""guided_json":{"type":"integer","minimum":2,"maximum":1}"#, "guided_json"),
        chat(r#""guided_json":{"not":{}}"#, "guided_json"),
        chat(r#""guided_regex":"(a""#, "guided_regex"),
        chat(r#""guided_grammar":"start: x""#, "guided_grammar"),
        chat(
            r#""response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"$ref":"http://evil"}}}"#,
            "response_format.json_schema.schema.$ref",
        ),
        chat(
            r##""response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"$ref":"#/$defs/none"}}}"##,
            "response_format.json_schema.schema.$ref",
        ),
    ]
}

fn tokenizing() -> Vec<Case> {
    vec![
        refused("/tokenize", "{}".into(), "messages"),
        refused("/tokenize", r#"{"prompt":5}"#.into(), "prompt"),
        refused("/tokenize", r#"{"prompt":"a","messages":[]}"#.into(), "messages"),
        refused("/tokenize", r#"{"prompt":"a","add_special_tokens":"yes"}"#.into(), "add_special_tokens"),
        refused("/tokenize", r#"{"prompt":"a","extra":1}"#.into(), "extra"),
        refused("/detokenize", "{}".into(), "tokens"),
        refused("/detokenize", r#"{"tokens":"1"}"#.into(), "tokens"),
        refused("/detokenize", r#"{"tokens":[1,-1]}"#.into(), "tokens[1]"),
        refused("/detokenize", r#"{"tokens":[1.0]}"#.into(), "tokens[0]"),
        refused("/detokenize", r#"{"tokens":[4294967295]}"#.into(), "tokens"),
        Case { status: 404, ..refused("/tokenize", r#"{"prompt":"a","model":"x"}"#.into(), "model") },
    ]
}

fn envelopes() -> Vec<Case> {
    let case =
        |name: &str, bytes: Vec<u8>, status: u16| Case { name: name.into(), bytes, status, param: None };
    let good = format!("{{{HI}}}");
    let post = |headers: &[(&str, &str)]| request("POST", CHAT, headers, good.as_bytes());
    vec![
        case("no content type", post(&[]), 415),
        case("a form", post(&[("content-type", "application/x-www-form-urlencoded")]), 415),
        case("text, as a page in a browser can send it", post(&[("content-type", "text/plain")]), 415),
        case("gzip", post(&[JSON, ("content-encoding", "gzip")]), 415),
        case("GET of a POST route", request("GET", CHAT, &[], b""), 405),
        case("POST of a GET route", request("POST", "/v1/models", &[JSON], b"{}"), 405),
        case("an invented method", request("BREW", CHAT, &[], b""), 405),
        case("no such route", request("GET", "/v1/nothing", &[], b""), 404),
        case("a path with ..", request("GET", "/v1/../../etc/passwd", &[], b""), 404),
        case("a path with encoded ..", request("GET", "/v1/models/..%2f..%2fetc%2fpasswd", &[], b""), 404),
        case("a model that is not served", request("GET", "/v1/models/unknown", &[], b""), 404),
        case("a path that is not UTF-8", request("GET", "/v1/models/%ff", &[], b""), 400),
        case("nothing to cancel", request("DELETE", "/v1/requests/ghost", &[], b""), 404),
    ]
}
