//! Batches of messages, in the shapes of Anthropic's API.

use super::*;

fn message(custom_id: &str, text: &str) -> Value {
    let params =
        json!({"model": "scripted", "max_tokens": 2, "messages": [{"role": "user", "content": text}]});
    json!({"custom_id": custom_id, "params": params})
}

fn send(server: &Server, requests: &Value) -> Reply {
    post(server.address, "/v1/messages/batches", &json!({"requests": requests}).to_string())
}

fn path_of(batch: &Value) -> String {
    format!("/v1/messages/batches/{}", batch["id"].as_str().unwrap())
}

#[test]
fn a_batch_of_messages_has_results_in_anthropics_shape() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let mut wrong = message("wrong", "hi");
    wrong["params"]["max_tokens"] = json!("many");
    let created = send(&server, &json!([message("b", "two words"), wrong, message("a", "hi")])).json();
    assert_eq!((&created["type"], &created["results_url"]), (&json!("message_batch"), &Value::Null));
    assert!(created["created_at"].as_str().unwrap().ends_with('Z'), "{created}");
    let batch = once(&server, &path_of(&created), |batch| batch["processing_status"] == "ended");
    let counts = json!({"processing": 0, "succeeded": 2, "errored": 1, "canceled": 0, "expired": 0});
    assert_eq!(batch["request_counts"], counts);
    let results = get(server.address, batch["results_url"].as_str().unwrap());
    assert_eq!(results.header("content-type"), Some("application/jsonl"));
    let results = sorted(&results.body);
    assert_eq!((&results[0]["custom_id"], &results[0]["result"]["type"]), (&json!("a"), &json!("succeeded")));
    assert_eq!(results[0]["result"]["message"]["type"], "message");
    let error = &results[2]["result"]["error"];
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    // The other API knows nothing of it.
    assert_eq!(get(server.address, "/v1/files").json()["data"], json!([]));
    assert_eq!(get(server.address, "/v1/batches").json()["data"], json!([]));
    let removed = delete(&server, &path_of(&batch));
    assert_eq!(removed.json(), json!({"id": batch["id"], "type": "message_batch_deleted"}));
    assert_eq!(get(server.address, &path_of(&batch)).status, 404);
    let left = std::fs::read_dir(state.path().join("batches/files")).unwrap().count();
    assert_eq!(left, 0, "nothing of it stays");
}

#[test]
fn a_cancelled_batch_of_messages_ends_with_canceled_results() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let created = send(&server, &json!([message("a", "forever"), message("b", "forever")])).json();
    let path = path_of(&created);
    assert_eq!(created["request_counts"]["processing"], 2);
    let early = get(server.address, &format!("{path}/results"));
    assert_eq!((early.status, &early.json()["type"]), (409, &json!("error")));
    assert_eq!(delete(&server, &path).status, 409);
    server.submitted();
    let cancelling = post(server.address, &format!("{path}/cancel"), "{}").json();
    assert_eq!(cancelling["processing_status"], "canceling");
    assert!(cancelling["cancel_initiated_at"].is_string());
    let batch = once(&server, &path, |batch| batch["processing_status"] == "ended");
    assert_eq!(batch["request_counts"]["canceled"], 2);
    let results = sorted(&get(server.address, &format!("{path}/results")).body);
    assert!(results.iter().all(|line| line["result"] == json!({"type": "canceled"})));
}

#[test]
fn pages_go_both_ways() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let ids: Vec<Value> =
        (0..4).map(|_| send(&server, &json!([message("a", "hi")])).json()["id"].clone()).collect();
    let page = |query: String| {
        let list = get(server.address, &format!("/v1/messages/batches?{query}")).json();
        let ids: Vec<Value> =
            list["data"].as_array().unwrap().iter().map(|batch| batch["id"].clone()).collect();
        (ids, list["has_more"].as_bool().unwrap())
    };
    let (newest, oldest) = (ids[3].as_str().unwrap(), ids[0].as_str().unwrap());
    assert_eq!(page("limit=3".into()), (vec![ids[3].clone(), ids[2].clone(), ids[1].clone()], true));
    assert_eq!(page(format!("limit=2&after_id={newest}")), (vec![ids[2].clone(), ids[1].clone()], true));
    assert_eq!(page(format!("limit=2&before_id={oldest}")), (vec![ids[2].clone(), ids[1].clone()], true));
}

#[test]
fn a_batch_of_messages_that_cannot_be_made_names_its_request() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let mut streamed = message("a", "hi");
    streamed["params"]["stream"] = json!(true);
    for (requests, named) in [
        (json!([]), "`requests`"),
        (json!([message("a", "hi"), message("a", "ho")]), "`requests[1].custom_id` is there twice"),
        (json!([message("a b", "hi")]), "`requests[0].custom_id`"),
        (json!([{"custom_id": "a"}]), "`requests[0].params` is missing"),
        (json!([streamed]), "`params.stream`"),
    ] {
        let reply = send(&server, &requests);
        assert_eq!((reply.status, &reply.error()["type"]), (400, &json!("invalid_request_error")));
        assert!(reply.body.contains(named), "{}", reply.body);
    }
    assert_eq!(get(server.address, "/v1/messages/batches/msgbatch_x").json()["type"], "error");
}
