//! Batches of files, in the shapes of OpenAI's API; restarts and cancellation.

use super::super::RequestEvent;
use super::*;

#[test]
fn a_batch_answers_each_line_and_a_failure_is_its_lines() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let wrong = chat("wrong", "hi").replace("\"max_tokens\":2", "\"max_tokens\":-2");
    let unknown = chat("unknown", "hi").replace("scripted", "other");
    let text = [chat("b", "two words"), wrong, chat("a", "hi"), unknown, chat("broken", "break")].concat();
    let file = upload(&server, &text);
    let created = create(&server, &file);
    assert_eq!((&created["object"], &created["metadata"]["run"]), (&json!("batch"), &json!("7")));
    assert_eq!(created["output_file_id"], Value::Null);
    let batch = ended(&server, &created["id"]);
    assert_eq!(batch["status"], "completed");
    assert_eq!(batch["request_counts"], json!({"total": 5, "completed": 2, "failed": 3}));
    assert_eq!((&batch["model"], &batch["usage"]["output_tokens"]), (&json!("scripted"), &json!(4)));
    assert!(
        ["in_progress_at", "finalizing_at", "completed_at"].iter().all(|at| batch[at].is_u64()),
        "{batch}"
    );
    let output = lines(&server, &batch["output_file_id"]);
    assert_eq!((&output[0]["custom_id"], &output[1]["custom_id"]), (&json!("a"), &json!("b")));
    let response = &output[0]["response"];
    assert_eq!((&response["status_code"], &output[0]["error"]), (&json!(200), &Value::Null));
    assert_eq!(response["body"]["object"], "chat.completion");
    assert!(response["request_id"].as_str().unwrap().starts_with("req-"));
    let errors = lines(&server, &batch["error_file_id"]);
    let statuses: Vec<&Value> = errors.iter().map(|line| &line["response"]["status_code"]).collect();
    assert_eq!(statuses, [500, 404, 400], "broken, unknown, wrong");
    assert_eq!(errors[2]["response"]["body"]["error"]["param"], "max_tokens");
    let seen = server.request_events.try_iter().filter_map(|event| match event {
        RequestEvent::Submitted(seen) => Some(seen.class),
        _ => None,
    });
    assert!(seen.collect::<Vec<_>>().iter().all(|class| *class == omnibus_engine::Class::Offline));
    let metrics = get(server.address, "/metrics").body;
    for (name, least) in [
        ("omnibus_batches_total{status=\"completed\"} ", 1),
        ("omnibus_batch_requests_total{outcome=\"succeeded\"} ", 2),
        ("omnibus_batch_requests_total{outcome=\"failed\"} ", 3),
    ] {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        assert!(line.and_then(|count| count.parse::<u64>().ok()) >= Some(least), "{name}: {line:?}");
    }
    let listed = get(server.address, "/v1/batches?limit=1").json();
    assert_eq!((&listed["data"][0], &listed["has_more"]), (&batch, &json!(false)));
    let files = get(server.address, "/v1/files?purpose=batch_output").json();
    assert_eq!(files["data"].as_array().unwrap().len(), 2);
    assert_eq!(delete(&server, &format!("/v1/files/{file}")).status, 200, "the batch has ended");
}

#[test]
fn other_endpoints_run_through_their_own_routes() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    for (endpoint, body, object) in [
        ("/v1/embeddings", json!({"input": ["a", "b"]}), "list"),
        ("/v1/completions", json!({"prompt": "hi", "max_tokens": 1}), "text_completion"),
        ("/v1/responses", json!({"input": "hi"}), "response"),
    ] {
        let file = upload(&server, &json!({"custom_id": "a", "url": endpoint, "body": body}).to_string());
        let body = json!({"input_file_id": file, "endpoint": endpoint, "completion_window": "2d"});
        let created = post(server.address, "/v1/batches", &body.to_string()).json();
        let batch = ended(&server, &created["id"]);
        let output = lines(&server, &batch["output_file_id"]);
        assert_eq!(output[0]["response"]["body"]["object"], object, "{batch}");
        assert_eq!((&batch["completion_window"], &batch["error_file_id"]), (&json!("2d"), &Value::Null));
    }
}

#[test]
fn a_file_with_bad_lines_fails_before_any_runs() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let many: String = (0..7000).map(|number| chat(&number.to_string(), "hi")).collect();
    for (text, line, code) in [
        (format!("{many}{{\n"), json!(7001), "invalid_json_line"),
        (format!("{}{}", chat("a", "hi"), chat("a", "ho")), json!(2), "duplicate_custom_id"),
        (chat("a", "hi").replace("/v1/chat/completions", "/v1/embeddings"), json!(1), "invalid_value"),
        (chat("a", "hi").replace("\"max_tokens\":2", "\"stream\":true"), json!(1), "invalid_value"),
        ("\n\n".to_owned(), Value::Null, "empty_file"),
    ] {
        let batch = ended(&server, &create(&server, &upload(&server, &text))["id"]);
        assert_eq!((&batch["status"], &batch["output_file_id"]), (&json!("failed"), &Value::Null));
        let error = &batch["errors"]["data"][0];
        assert_eq!((&error["line"], &error["code"]), (&line, &json!(code)), "{error}");
    }
    assert!(server.request_events.try_recv().is_err(), "nothing ran");
}

#[test]
fn a_batch_that_cannot_be_made_is_refused_by_its_field() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let file = upload(&server, &chat("a", "hi"));
    let long: serde_json::Map<String, Value> = (0..17).map(|key| (key.to_string(), json!("x"))).collect();
    for (field, value, status) in [
        ("input_file_id", json!("file-x"), 404),
        ("input_file_id", Value::Null, 400),
        ("endpoint", json!("/v1/models"), 400),
        ("completion_window", json!("soon"), 400),
        ("completion_window", json!("31d"), 400),
        ("metadata", json!({"a": 1}), 400),
        ("metadata", json!(long), 400),
        ("output_expires_after.seconds", json!({"anchor": "created_at", "seconds": 1}), 400),
        ("colour", json!("red"), 400),
    ] {
        let mut body =
            json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
        body[field.split('.').next().unwrap()] = value;
        let reply = post(server.address, "/v1/batches", &body.to_string());
        assert_eq!((reply.status, &reply.error()["param"]), (status, &json!(field)), "{}", reply.body);
    }
    let batch = ended(&server, &create(&server, &file)["id"]);
    let output = batch["output_file_id"].as_str().unwrap();
    let body =
        json!({"input_file_id": output, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    assert_eq!(post(server.address, "/v1/batches", &body.to_string()).error()["param"], "input_file_id");
    assert_eq!(get(server.address, "/v1/batches/batch_x").status, 404);
    assert_eq!(get(server.address, "/v1/batches?limit=101").error()["param"], "limit");
    let late = post(server.address, &format!("/v1/batches/{}/cancel", batch["id"].as_str().unwrap()), "{}");
    assert_eq!(late.status, 409);
}

#[test]
fn a_cancelled_batch_keeps_what_is_done_and_names_the_rest() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    // Lines of a window run sorted by their prompts.
    let endless: String = (0..6).map(|number| chat(&format!("x{number}"), "forever")).collect();
    let created = create(&server, &upload(&server, &(chat("done", "a") + &endless)));
    let path = format!("/v1/batches/{}", created["id"].as_str().unwrap());
    let running = once(&server, &path, |batch| batch["request_counts"]["completed"] == 1);
    assert_eq!(running["status"], "in_progress");
    let cancelling = post(server.address, &format!("{path}/cancel"), "").json();
    assert!(cancelling["cancelling_at"].is_u64() && cancelling["status"] == "cancelling", "{cancelling}");
    let batch = ended(&server, &created["id"]);
    assert_eq!(batch["status"], "cancelled");
    assert_eq!(lines(&server, &batch["output_file_id"])[0]["custom_id"], "done");
    let errors = lines(&server, &batch["error_file_id"]);
    assert_eq!(errors.len(), 6);
    assert!(
        errors.iter().all(|line| line["error"]["code"] == "batch_cancelled" && line["response"].is_null())
    );
    let dropped = server.request_events.try_iter().filter(|event| matches!(event, RequestEvent::Dropped(_)));
    assert_eq!(dropped.count(), 4, "those that ran are cancelled");
    let again = post(server.address, &format!("{path}/cancel"), "").json();
    assert_eq!(again["status"], "cancelled");
}

#[test]
fn a_new_server_goes_on_where_the_last_one_ended() {
    let state = tempfile::tempdir().unwrap();
    let mut server = server_in(state.path());
    let text = chat("done", "a") + &chat("left", "forever");
    let created = create(&server, &upload(&server, &text));
    let path = format!("/v1/batches/{}", created["id"].as_str().unwrap());
    once(&server, &path, |batch| batch["request_counts"]["completed"] == 1);
    server.join();
    drop(server);
    // As a process leaves it that died in the middle of a line.
    let files = std::fs::read_dir(state.path().join("batches/files")).unwrap();
    let results = files.map(|entry| entry.unwrap().path()).find(|path| {
        std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("{\"id\":\"batch_req_"))
    });
    let results = results.unwrap();
    let whole = std::fs::read_to_string(&results).unwrap();
    std::fs::write(&results, format!("{whole}{}", &whole[..whole.len() / 2])).unwrap();
    let server = server_in(state.path());
    let running = once(&server, &path, |batch| batch["request_counts"]["completed"] == 1);
    assert_eq!(running["status"], "in_progress");
    let seen = server.submitted();
    assert_eq!(seen.class, omnibus_engine::Class::Offline);
    post(server.address, &format!("{path}/cancel"), "");
    let batch = ended(&server, &created["id"]);
    assert_eq!(lines(&server, &batch["output_file_id"]).len(), 1);
    assert_eq!(lines(&server, &batch["error_file_id"])[0]["custom_id"], "left");
    let submitted =
        server.request_events.try_iter().filter(|event| matches!(event, RequestEvent::Submitted(_)));
    assert_eq!(submitted.count(), 0, "what was done does not run again");
}
