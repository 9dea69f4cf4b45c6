//! The lines on stderr: at start, and for requests.

use serde_json::Value;

use super::client::{JSON, exchange, request};
use super::process::Server;

/// Sends one valid and one invalid request, shuts down, and returns all lines of stderr.
fn lines(arguments: &[&str]) -> Vec<String> {
    let server = Server::start(arguments);
    let send = |id: &str, body: &str| {
        let headers = [JSON, ("x-request-id", id)];
        exchange(server.address, &request("POST", "/v1/completions", &headers, body.as_bytes())).unwrap();
    };
    send("valid-1", r#"{"prompt":"a","max_tokens":2}"#);
    send("invalid-1", r#"{"prompt":"a","max_tokens":-2}"#);
    let startup = server.startup_lines.clone();
    server.signal("TERM");
    let (status, rest) = server.wait();
    assert_eq!(status.code(), Some(0));
    startup.into_iter().chain(rest.lines().map(str::to_owned)).collect()
}

#[test]
fn the_start_prints_memory_address_and_a_curl_line() {
    let lines = lines(&["--log", "error"]);
    let starts = ["memory: ", "serving omnibus-mini on http://127.0.0.1:", "curl http://127.0.0.1:"];
    assert_eq!(lines.len(), starts.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn log_lines_carry_request_ids_and_no_colour_codes() {
    let lines = lines(&[]);
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
    let of =
        |id: &str| lines.iter().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} in {lines:?}"));
    assert!(of("valid-1").contains("status=200"), "{lines:?}");
    let invalid = of("invalid-1");
    assert!(invalid.contains("status=400") && invalid.contains("max_tokens"), "{invalid}");
}

#[test]
fn json_log_lines_are_objects_with_request_ids() {
    let lines = lines(&["--log-format", "json"]);
    let objects: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of = |id: &str| objects.iter().find(|object| object["span"]["request_id"] == id).expect(id);
    assert_eq!(of("valid-1")["status"], 200);
    assert!(of("invalid-1")["error"].as_str().unwrap().contains("max_tokens"));
    assert!(of("valid-1")["span"]["response_id"].as_str().unwrap().starts_with("cmpl-"));
}
