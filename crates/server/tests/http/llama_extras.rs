//! What clients of llama.cpp's server look for: times, progress, templates and infills.

use serde_json::Value;

use super::client::{Reply, get, post};
use super::server;

const CHAT: &str = "/v1/chat/completions";

fn hi(fields: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"hi you"}}],"max_tokens":2{fields}}}"#)
}

/// The names and counts of an object, without times.
fn counts(timings: &Value) -> [&Value; 3] {
    ["cache_n", "prompt_n", "predicted_n"].map(|name| &timings[name])
}

#[test]
fn timings_are_in_a_response_that_was_to_have_them() {
    let server = server();
    let plain = post(server.address, CHAT, &hi("")).json();
    assert!(plain.get("timings").is_none(), "{plain}");
    for (path, body) in [
        (CHAT, hi(r#","timings_per_token":true"#)),
        ("/v1/completions", r#"{"prompt":"hi you","max_tokens":2,"timings_per_token":true}"#.to_owned()),
    ] {
        let full = post(server.address, path, &body).json();
        assert_eq!(counts(&full["timings"]), [1, 1, 2], "{full}");
        for name in
            ["prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"]
        {
            assert!(full["timings"][name].is_number(), "{name} in {full}");
        }
        assert!(full["timings"].get("draft_n").is_none(), "there were no drafts: {full}");
    }
}

#[test]
fn each_chunk_of_a_choice_has_its_timings_so_far() {
    let server = server();
    let stream = post(server.address, CHAT, &hi(r#","timings_per_token":true,"stream":true"#));
    let predicted: Vec<Value> =
        stream.chunks().iter().map(|chunk| chunk["timings"]["predicted_n"].clone()).collect();
    assert_eq!(predicted, [0, 1, 2, 2]);
    let silent = post(server.address, CHAT, &hi(r#","stream":true"#));
    assert!(silent.chunks().iter().all(|chunk| chunk.get("timings").is_none()));
}

/// The progress that the chunks of a stream report: cached, processed and all tokens.
fn progress(reply: &Reply) -> Vec<[u64; 3]> {
    let chunks = reply.chunks();
    let reports = chunks.iter().filter_map(|chunk| chunk.get("prompt_progress"));
    reports.map(|of| ["cache", "processed", "total"].map(|name| of[name].as_u64().unwrap())).collect()
}

#[test]
fn a_stream_reports_how_much_of_its_prompt_is_computed() {
    let server = server();
    let long = |fields: &str| format!(r#"{{"prompt":"long a b c d e f g","max_tokens":2{fields}}}"#);
    let stream = post(server.address, "/v1/completions", &long(r#","return_progress":true,"stream":true"#));
    assert_eq!(progress(&stream), [[1, 1, 8], [1, 4, 8]]);
    assert!(progress(&post(server.address, "/v1/completions", &long(r#","stream":true"#))).is_empty());
    let full = post(server.address, "/v1/completions", &long(r#","return_progress":true"#));
    assert_eq!((full.status, full.json().get("prompt_progress")), (200, None));
    let chat = r#"{"messages":[{"role":"user","content":"long b"}],"return_progress":true,"stream":true,"max_tokens":1}"#;
    let chat = post(server.address, CHAT, chat);
    assert_eq!(progress(&chat), [[1, 1, 2], [1, 1, 2]]);
}

#[test]
fn a_conversation_is_rendered_and_not_answered() {
    let server = server();
    let rendered =
        post(server.address, "/apply-template", r#"{"messages":[{"role":"user","content":"a b"}]}"#);
    assert_eq!((rendered.status, rendered.json()), (200, serde_json::json!({"prompt": "a b"})));
    let refused = |body: &str| post(server.address, "/apply-template", body).error()["param"].clone();
    assert_eq!(refused(r#"{"model":"other","messages":[{"role":"user","content":"a"}]}"#), "model");
    assert_eq!(refused("{}"), "messages");
    assert!(server.request_events.try_recv().is_err(), "nothing was generated");
}

#[test]
fn an_infill_has_llama_cpps_shape() {
    let server = server();
    let body = r#"{"input_prefix":"fn a() {","input_suffix":"}","input_extra":[{"filename":"b.rs","text":"mod"}],
        "prompt":" let","n_predict":2,"samplers":["top_k","infill"],"t_max_predict_ms":500,"id_slot":0"#;
    let full = post(server.address, "/infill", &format!("{body}}}")).json();
    assert_eq!(full["content"], "w0 w1 ");
    assert_eq!(
        (&full["stop"], &full["stop_type"], &full["tokens_predicted"]),
        (&true.into(), &"limit".into(), &2.into())
    );
    assert_eq!(full["tokens_evaluated"], 7, "the other file, its name and both texts");
    assert_eq!(full["timings"]["predicted_n"], 2);
    let stream = post(server.address, "/infill", &format!(r#"{body},"stream":true}}"#));
    let events = stream.events();
    let chunks: Vec<(String, bool)> = events
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap())
        .map(|chunk| (chunk["content"].as_str().unwrap().to_owned(), chunk["stop"].as_bool().unwrap()))
        .collect();
    assert_eq!(chunks, [("w0 ".to_owned(), false), ("w1 ".to_owned(), false), (String::new(), true)]);
}

#[test]
fn a_wrong_infill_names_its_field() {
    let server = server();
    let refused = |fields: &str| {
        let body = format!(r#"{{"input_prefix":"a"{fields}}}"#);
        post(server.address, "/infill", &body).error()["param"].clone()
    };
    assert_eq!(refused(""), "input_suffix");
    assert_eq!(refused(r#","input_suffix":"b","n":2"#), "n");
    assert_eq!(refused(r#","input_suffix":"b","n_predict":-2"#), "n_predict");
    assert_eq!(refused(r#","input_suffix":"b","input_extra":["c"]"#), "input_extra[0]");
    assert_eq!(refused(r#","input_suffix":"b","input_extra":[{"filename":"c"}]"#), "input_extra[0].text");
    assert_eq!(refused(r#","input_suffix":"b","samplers":["best"]"#), "samplers");
}

#[test]
fn a_listed_model_says_what_requests_leave_out() {
    let server = server();
    let model = get(server.address, "/v1/models/scripted").json();
    assert_eq!(
        (&model["default_generation_settings"]["temperature"], &model["modalities"][0]),
        (&1.0.into(), &"text".into())
    );
    assert_eq!(model["chat_template_hash"], "00000000000000000000000000000005");
}

#[test]
fn the_usage_has_energy_where_a_request_asks_for_it() {
    let server = server();
    let expected = serde_json::json!({"prompt_joules": 1.5, "completion_joules": 0.25, "source": "estimate"});
    for (path, body) in [
        (CHAT, hi(r#","include_energy":true"#)),
        ("/v1/completions", r#"{"prompt":"hi you","max_tokens":2,"include_energy":true}"#.to_owned()),
    ] {
        assert_eq!(post(server.address, path, &body).json()["usage"]["energy"], expected, "{path}");
    }
    let streamed = r#","include_energy":true,"stream":true,"stream_options":{"include_usage":true}"#;
    let chunks = post(server.address, CHAT, &hi(streamed)).chunks();
    assert_eq!(chunks.last().unwrap()["usage"]["energy"], expected);
    let plain = post(server.address, CHAT, &hi("")).json();
    assert!(plain["usage"].get("energy").is_none(), "{plain}");
}

#[test]
fn responses_and_messages_have_energy_where_a_request_asks_for_it() {
    let server = server();
    let expected = serde_json::json!({"prompt_joules": 1.5, "completion_joules": 0.25, "source": "estimate"});
    let message = r#""max_tokens":2,"messages":[{"role":"user","content":"hi you"}]"#;
    for (path, fields) in [("/v1/responses", r#""input":"hi you""#), ("/v1/messages", message)] {
        let post = |more: &str| post(server.address, path, &format!("{{{fields}{more}}}"));
        assert_eq!(post(r#","include_energy":true"#).json()["usage"]["energy"], expected, "{path}");
        for more in ["", r#","include_energy":false"#] {
            let usage = post(more).json()["usage"].take();
            assert!(usage.is_object() && usage.get("energy").is_none(), "{path} {usage}");
        }
        let streamed = post(r#","include_energy":true,"stream":true"#);
        let with_usage = |event: &Value| {
            let usages = [&event["usage"], &event["response"]["usage"]];
            usages.into_iter().find(|usage| usage.is_object()).cloned()
        };
        let events: Vec<Value> =
            streamed.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        let usage = events.iter().rev().find_map(with_usage).unwrap();
        assert_eq!(usage["energy"], expected, "{path}");
        let wrong = post(r#","include_energy":1"#);
        assert!(wrong.status == 400 && wrong.body.contains("include_energy"), "{}", wrong.body);
    }
}

#[test]
fn a_response_has_no_energy_without_a_sensor() {
    let server = server();
    let input = r#"{"input":"script: say x","include_energy":true}"#;
    let usage = post(server.address, "/v1/responses", input).json()["usage"].take();
    assert!(usage.is_object() && usage.get("energy").is_none(), "{usage}");
}
