//! Records of requests, with a scripted engine.

use std::path::Path;

use omnibus_server::{Keys, Record, Records, Settings};
use serde_json::json;

use super::client::{JSON, exchange, get, post, request};
use super::{Server, server_with};

fn recorded_by(folder: &Path, keys: &[&str], run: impl FnOnce(&Server)) -> Vec<Record> {
    let records = Records::in_folder(folder, 1 << 20).unwrap();
    let keys = Keys::new(keys.iter().map(|key| (*key).to_owned())).unwrap();
    let mut server = server_with(Settings { records: Some(records), keys, ..Settings::default() });
    run(&server);
    // The rest is written before it ends.
    server.join();
    let read = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read(entry.unwrap().path()).unwrap();
    let texts: Vec<Vec<u8>> = std::fs::read_dir(folder).unwrap().map(read).collect();
    let mut records: Vec<Record> = texts.iter().map(|text| serde_json::from_slice(text).unwrap()).collect();
    records.sort_by_key(|record| record.path.clone());
    records
}

#[test]
fn a_record_has_the_request_and_what_its_answer_said_but_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let chat = r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"seed":7,"stream":true,"stream_options":{"include_usage":true}}"#;
    let records = recorded_by(folder.path(), &["secret"], |server| {
        let headers =
            [JSON, ("authorization", "Bearer secret"), ("x-request-id", "mine"), ("cookie", "secret")];
        let send = |path: &str, body: &str| {
            let path = format!("{path}?key=secret");
            exchange(server.address, &request("POST", &path, &headers, body.as_bytes())).unwrap()
        };
        assert_eq!(send("/v1/chat/completions", chat).status, 200);
        assert_eq!(send("/v1/responses", "{").status, 400);
        assert_eq!(post(server.address, "/v1/completions", r#"{"prompt":"x"}"#).status, 401);
        assert_eq!(get(server.address, "/health").status, 200);
    });
    assert_eq!(records.len(), 2, "{records:?}");
    let whole = &records[0];
    assert_eq!((whole.path.as_str(), whole.request_id.as_str()), ("/v1/chat/completions", "mine"));
    assert_eq!(whole.body, serde_json::from_str(chat).unwrap());
    assert_eq!(whole.seed, Some(json!(7)));
    let answer = &whole.answer;
    assert_eq!((answer.status, answer.is_whole), (200, true));
    assert_eq!((answer.prompt_tokens, answer.completion_tokens), (Some(1), Some(2)));
    assert_eq!(answer.finish.as_deref(), Some("length"));
    assert!(answer.first_s.unwrap() <= answer.total_s && answer.sha256.is_some());
    let refused = &records[1];
    assert_eq!((refused.body_text.as_deref(), refused.answer.status), (Some("{"), 400));
    assert_eq!(refused.answer.error.as_ref().unwrap()["error"]["code"], "invalid_json");
    assert!(!format!("{records:?}").contains("secret"));
}

#[test]
fn equal_answers_have_equal_hashes_and_lengths_stay_in_the_head() {
    let folder = tempfile::tempdir().unwrap();
    let body = r#"{"prompt":"hi","max_tokens":2,"seed":1}"#;
    let records = recorded_by(folder.path(), &[], |server| {
        for text in [body, body, &body.replace("2", "3")] {
            let reply = post(server.address, "/v1/completions", text);
            assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
        }
    });
    let hashes: std::collections::BTreeSet<_> =
        records.iter().map(|record| record.answer.sha256.clone().unwrap()).collect();
    assert_eq!((records.len(), hashes.len()), (3, 2));
}
