//! Decisions: shapes of answers, and what is refused. The scripted engine gives each answer half of the one before it.

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use super::client::{JSON, Reply, exchange, get, post, request};
use super::{Server, server, server_with, server_with_keys};

fn send(server: &Server, path: &str, body: &Value) -> Reply {
    post(server.address, path, &body.to_string())
}

fn ticket() -> Value {
    json!({"model": "jev-latest", "state": "I was charged twice.", "questions": {
        "refund": {"type": "noul", "instructions": "Is money wanted back?"},
        "team 🙂": {"type": "choice", "instructions": "Which team?", "criteria": {"tech": null, "billing": "Payments"}},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["Calm", {"label": "Furious"}]},
    }})
}

#[track_caller]
fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn answers_have_the_shape_of_typesafe() {
    let server = server();
    for path in ["/v1/systemone", "/systemone"] {
        let reply = send(&server, path, &ticket());
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.header("x-typesafe-request-id"), reply.header("x-request-id"));
        let answer = reply.json();
        assert_eq!(answer["model"], "scripted");
        assert_eq!(answer["usage"], json!({"input_tokens": 30, "output_tokens": 0, "x_cached_tokens": 20}));
        let keys: Vec<&String> = answer["answers"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["refund", "team 🙂", "anger"]);
        let (third, mass) = (1.0 / 3.0, (-0.8f64).exp() * 1.5);
        let refund = &answer["answers"]["refund"];
        near(&refund["noul"], 2.0 * third);
        near(&refund["x_label_mass"], mass);
        assert_eq!(refund.as_object().unwrap().len(), 3, "no confidence: {refund}");
        let team = &answer["answers"]["team 🙂"];
        assert_eq!((&team["type"], &team["choice"]), (&json!("choice"), &json!("tech")));
        near(&team["probabilities"]["billing"], third);
        near(&team["confidence"], third);
        let anger = &answer["answers"]["anger"];
        assert_eq!(anger["legend"], json!({"0": "Calm", "1": {"label": "Furious"}}));
        near(&anger["score"], third);
        near(&anger["probabilities"]["1"], third);
        near(&anger["confidence"], third);
    }
}

#[test]
fn whole_answers_have_their_likelihoods() {
    let mut body = ticket();
    body["x_readout"] = "options".into();
    let answers = send(&server(), "/v1/systemone", &body).json()["answers"].clone();
    near(&answers["team 🙂"]["x_log_likelihoods"][1], -0.8 - 2f64.ln());
    assert_eq!(answers["team 🙂"].get("x_label_mass"), None);
    near(&answers["refund"]["noul"], 2.0 / 3.0);
}

#[test]
fn answers_have_the_shape_of_openai() {
    let body = json!({"model": "alias/one", "input": [{"role": "user", "content": "I was charged twice."}], "questions": [
        {"type": "predicate", "name": "refund", "instructions": "Is money wanted back?"},
        {"type": "choice", "instructions": "Which?", "choices": [{"value": true}, {"value": "b", "description": "c"}]},
        {"type": "score", "name": "anger", "instructions": "How?", "levels": [{"label": "Calm"}, {"label": "Angry"}]},
    ]});
    let server = server();
    let reply = send(&server, "/v1/decisions", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut answer = reply.json();
    let third = 1.0 / 3.0;
    near(&answer["answers"][0]["probability"], 2.0 * third);
    near(&answer["answers"][1]["probabilities"][0]["probability"], 2.0 * third);
    near(&answer["answers"][2]["score"], third);
    for answer in answer["answers"].as_array_mut().unwrap() {
        let probabilities = answer.get_mut("probabilities").and_then(Value::as_array_mut);
        for probability in probabilities.into_iter().flatten() {
            probability["probability"] = json!(0);
        }
        for number in ["probability", "confidence", "score"] {
            if let Some(number) = answer.get_mut(number) {
                *number = json!(0);
            }
        }
    }
    let expected = json!({"model": "alias/one", "answers": [
        {"type": "predicate", "name": "refund", "probability": 0},
        {"type": "choice", "name": null, "choice": true, "confidence": 0,
         "probabilities": [{"value": true, "probability": 0}, {"value": "b", "probability": 0}]},
        {"type": "score", "name": "anger", "score": 0, "confidence": 0,
         "probabilities": [{"value": 0, "label": "Calm", "probability": 0}, {"value": 1, "label": "Angry", "probability": 0}]},
    ], "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
        "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 30}});
    assert_eq!(answer, expected);
    let unknown =
        send(&server, "/v1/decisions", &json!({"model": "x", "input": "s", "questions": body["questions"]}));
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["param"]),
        (404, &json!("model")),
        "{}",
        unknown.body
    );
    let refused = send(&server, "/v1/decisions", &json!({"input": "s", "questions": []}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("questions")));
}

#[test]
fn a_choice_of_255_has_labels_of_two_letters() {
    let options: serde_json::Map<String, Value> =
        (0..255).map(|number| (format!("queue {number}"), Value::Null)).collect();
    let body = json!({"state": "s", "questions": {"q": {"type": "choice", "criteria": options}}});
    let answer = send(&server(), "/v1/systemone", &body).json();
    assert_eq!(answer["answers"]["q"]["probabilities"].as_object().unwrap().len(), 255, "{answer}");
    assert_eq!(answer["answers"]["q"]["choice"], "queue 0");
}

/// Each with the path to the invalid field.
#[test]
fn invalid_requests_are_422_with_their_field() {
    let server = server();
    let noul = json!({"q": {"type": "noul", "instructions": "i"}});
    let state = |state: &str| json!({"state": state, "questions": noul});
    for (body, loc) in [
        (json!({"questions": noul}), json!(["body", "state"])),
        (json!({"state": null, "questions": noul}), json!(["body", "state"])),
        (json!({"state": "s"}), json!(["body", "questions"])),
        (json!({"state": "s", "questions": {}}), json!(["body", "questions"])),
        (
            json!({"state": "s", "questions": {"q": {"instructions": "i"}}}),
            json!(["body", "questions", "q", "type"]),
        ),
        (
            json!({"state": "s", "questions": {"q": {"type": "score", "criteria": {"0": "a"}}}}),
            json!(["body", "questions", "q", "criteria"]),
        ),
        (json!({"state": "s", "questions": noul, "assets": {"a": {}}}), json!(["body", "assets"])),
        (state("merged with the prompt"), json!(["body", "questions", "q"])),
        (state("long"), json!(["body"])),
        (json!([]), json!(["body"])),
    ] {
        let reply = send(&server, "/v1/systemone", &body);
        let answer = reply.json();
        assert_eq!((reply.status, &answer["detail"][0]["loc"]), (422, &loc), "{body}: {answer}");
        assert!(
            answer["detail"][0]["msg"].is_string() && answer["detail"][0]["type"].is_string(),
            "{answer}"
        );
    }
    let broken = post(server.address, "/v1/systemone", "{\"state\":");
    assert_eq!((broken.status, &broken.json()["detail"][0]["type"]), (422, &json!("invalid_json")));
}

#[test]
fn other_errors_have_a_type_and_a_message() {
    let failed = |reply: Reply, status: u16, kind: &str| {
        let answer = reply.json();
        assert_eq!((reply.status, &answer["detail"]["error_type"]), (status, &json!(kind)), "{answer}");
        assert!(answer["detail"]["message"].is_string());
        reply
    };
    let keyed = server_with_keys(&["k"]);
    failed(send(&keyed, "/v1/systemone", &ticket()), 401, "authentication_error");
    let server = server();
    let mut busy = ticket();
    busy["state"] = "busy".into();
    let reply = failed(send(&server, "/v1/systemone", &busy), 429, "rate_limit_error");
    assert_eq!(reply.header("retry-after"), Some("3"));
    assert!(reply.header("x-typesafe-request-id").is_some());
    failed(get(server.address, "/v1/systemone"), 405, "invalid_request_error");
    let strict = server_with(omnibus_server::Settings {
        model_names: omnibus_server::ModelNames::Strict,
        ..omnibus_server::Settings::default()
    });
    failed(send(&strict, "/v1/systemone", &ticket()), 404, "not_found");
}

#[test]
fn a_key_that_no_server_has_set_is_accepted() {
    let body = ticket().to_string();
    let headers = [JSON, ("authorization", "Bearer anything")];
    let bytes = request("POST", "/v1/systemone", &headers, body.as_bytes());
    assert_eq!(exchange(server().address, &bytes).unwrap().status, 200);
}

#[test]
fn compressed_bodies_are_read() {
    let server = server();
    let send = |path: &str, coding: &str, body: &[u8]| {
        let headers = [JSON, ("content-encoding", coding)];
        exchange(server.address, &request("POST", path, &headers, body)).unwrap()
    };
    let compressed = compress_to_vec(ticket().to_string().as_bytes(), CompressionLevel::Fastest);
    let reply = send("/v1/systemone", "zstd", &compressed);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["answers"]["refund"]["type"], "noul");
    let chat = br#"{"prompt":"hi","max_tokens":1}"#;
    let chat = compress_to_vec(chat.as_slice(), CompressionLevel::Fastest);
    assert_eq!(send("/v1/completions", "zstd", &chat).status, 200);
    assert_eq!(send("/v1/systemone", "zstd", b"{}").status, 422);
    assert_eq!(send("/v1/systemone", "gzip", b"{}").status, 415);
    let bomb = compress_to_vec(vec![b' '; 40 << 20].as_slice(), CompressionLevel::Fastest);
    assert_eq!(send("/v1/systemone", "zstd", &bomb).status, 413);
}

#[test]
fn forms_with_images_are_refused_by_name() {
    let body = b"--x\r\ncontent-disposition: form-data; name=\"request\"\r\n\r\n{}\r\n--x--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    let reply = exchange(server().address, &request("POST", "/v1/systemone", &headers, body)).unwrap();
    assert_eq!(
        (reply.status, &reply.json()["detail"][0]["loc"]),
        (422, &json!(["body", "assets"])),
        "{}",
        reply.body
    );
}

#[test]
fn models_are_listed_in_typesafes_shape_too() {
    let models = get(server().address, "/v1/models").json()["models"].clone();
    let expected = json!({"name": "scripted", "description": "script", "release_date": "1970-01-01"});
    assert_eq!((models.as_array().unwrap().len(), &models[0]), (2, &expected));
}
