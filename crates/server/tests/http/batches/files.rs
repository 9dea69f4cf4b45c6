//! Files: stored, listed, read in ranges and removed; and what is refused.

use super::*;

#[test]
fn a_file_is_stored_listed_read_and_removed() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    let (first, second) = (upload(&server, &chat("a", "hi")), upload(&server, "second"));
    let file = get(server.address, &format!("/v1/files/{second}")).json();
    let fields = (&file["object"], &file["bytes"], &file["filename"], &file["purpose"], &file["status"]);
    assert_eq!(fields, (&json!("file"), &json!(6), &json!("in.jsonl"), &json!("batch"), &json!("processed")));
    assert_eq!(file["expires_at"].as_u64().unwrap() - file["created_at"].as_u64().unwrap(), 30 * 24 * 3600);
    let list = get(server.address, "/v1/files?purpose=batch&limit=1").json();
    assert_eq!((&list["data"][0]["id"], &list["has_more"]), (&json!(second), &json!(true)));
    let rest = get(server.address, &format!("/v1/files?after={second}")).json();
    assert_eq!((&rest["data"][0]["id"], &rest["has_more"]), (&json!(first), &json!(false)));
    assert_eq!(get(server.address, "/v1/files?purpose=batch_output").json()["data"], json!([]));
    let path = format!("/v1/files/{second}/content");
    let whole = get(server.address, &path);
    assert_eq!((whole.body.as_str(), whole.header("content-length")), ("second", Some("6")));
    let part = exchange(server.address, &request("GET", &path, &[("range", "bytes=1-3")], b"")).unwrap();
    assert_eq!(
        (part.status, part.body.as_str(), part.header("content-range")),
        (206, "eco", Some("bytes 1-3/6"))
    );
    let removed = delete(&server, &format!("/v1/files/{second}")).json();
    assert_eq!(removed, json!({"id": second, "object": "file", "deleted": true}));
    for path in [format!("/v1/files/{second}"), path, "/v1/files/..%2f..%2flock".to_owned()] {
        assert_eq!(get(server.address, &path).status, 404, "{path}");
    }
}

#[test]
fn what_is_no_file_for_a_batch_is_refused_by_its_field() {
    let state = tempfile::tempdir().unwrap();
    let server = server_in(state.path());
    for (fields, param) in [
        (&[("purpose", "batch")] as &[_], "file"),
        (&[("file", "x")], "purpose"),
        (&[("purpose", "fine-tune"), ("file", "x")], "purpose"),
        (&[("purpose", "batch"), ("file", "")], "file"),
        (&[("purpose", "batch"), ("file", "x"), ("file", "y")], "file"),
        (&[("file", "x"), ("purpose", "batch"), ("colour", "red")], "colour"),
        (&[("purpose", "batch"), ("file", "x"), ("expires_after[seconds]", "5")], "expires_after[seconds]"),
        (&[("purpose", "batch"), ("file", "x"), ("expires_after[anchor]", "now")], "expires_after[anchor]"),
    ] {
        let reply = send_form(&server, fields);
        assert_eq!(
            (reply.status, &reply.error()["param"]),
            (400, &json!(param)),
            "{fields:?}: {}",
            reply.body
        );
    }
    assert_eq!(post(server.address, "/v1/files", "{}").status, 415);
    let torn = exchange(server.address, &request("POST", "/v1/files", &[FORM], b"--edge\r\nx")).unwrap();
    assert_eq!((torn.status, &torn.error()["code"]), (400, &json!("invalid_form")));
    for (query, param) in
        [("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "after")]
    {
        let reply = get(server.address, &format!("/v1/files?{query}"));
        assert_eq!((reply.status, &reply.error()["param"]), (400, &json!(param)), "{query}");
    }
    let left = std::fs::read_dir(state.path().join("batches/files")).unwrap().count();
    assert_eq!(left, 0, "nothing of them stays");
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let state = tempfile::tempdir().unwrap();
    let server = server_of(state.path(), Settings::default(), 1000);
    let declared = "POST /v1/files HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\n\
        content-type: multipart/form-data; boundary=edge\r\ncontent-length: 2000000000\r\n\r\n";
    assert_eq!(exchange(server.address, declared.as_bytes()).unwrap().status, 413);
    let reply = send_form(&server, &[("purpose", "batch"), ("file", &"x".repeat(2000))]);
    assert_eq!((reply.status, &reply.error()["code"]), (413, &json!("storage_full")));
    // The bytes of a file that was refused or removed are free again.
    for _ in 0..3 {
        let id = upload(&server, &"x".repeat(900));
        assert_eq!(delete(&server, &format!("/v1/files/{id}")).status, 200);
    }
}

#[test]
fn files_and_batches_are_their_keys() {
    let state = tempfile::tempdir().unwrap();
    let server = with_keys(state.path(), &["one", "two"]);
    let bytes = form(&[("purpose", "batch"), ("file", &chat("a", "forever"))]);
    let headers = [("authorization", "Bearer one"), FORM];
    let file = exchange(server.address, &request("POST", "/v1/files", &headers, bytes.as_bytes())).unwrap();
    let file = file.json()["id"].as_str().unwrap().to_owned();
    let body = json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    let create = |key: &str| {
        let header = format!("Bearer {key}");
        let headers = [("authorization", header.as_str()), JSON];
        exchange(server.address, &request("POST", "/v1/batches", &headers, body.to_string().as_bytes()))
            .unwrap()
    };
    let refused = create("two");
    assert_eq!((refused.status, &refused.error()["param"]), (404, &json!("input_file_id")));
    let batch = create("one").json()["id"].as_str().unwrap().to_owned();
    let seen = server.submitted();
    assert_eq!((seen.tenant.as_str(), seen.class), ("key-1", omnibus_engine::Class::Offline));
    for (method, path) in [
        ("GET", format!("/v1/files/{file}")),
        ("GET", format!("/v1/files/{file}/content")),
        ("DELETE", format!("/v1/files/{file}")),
        ("GET", format!("/v1/batches/{batch}")),
        ("POST", format!("/v1/batches/{batch}/cancel")),
    ] {
        assert_eq!(keyed(&server, method, &path, "two").status, 404, "{method} {path}");
    }
    assert_eq!(keyed(&server, "GET", "/v1/batches", "two").json()["data"], json!([]));
    let in_use = keyed(&server, "DELETE", &format!("/v1/files/{file}"), "one");
    assert_eq!((in_use.status, &in_use.error()["code"]), (409, &json!("conflict")));
    assert_eq!(keyed(&server, "POST", &format!("/v1/batches/{batch}/cancel"), "one").status, 200);
}

#[test]
fn a_server_without_a_folder_has_neither() {
    let server = super::super::server();
    for path in ["/v1/files", "/v1/batches", "/v1/messages/batches"] {
        let reply = get(server.address, path);
        assert_eq!(reply.status, 404);
        assert!(reply.body.contains("--state-dir"), "{}", reply.body);
    }
}
