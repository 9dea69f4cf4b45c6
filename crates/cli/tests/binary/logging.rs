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
    let of = |id: &str| {
        let mut of_response = lines.iter().filter(|line| line.contains("response "));
        of_response.find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} in {lines:?}"))
    };
    let generation = lines.iter().find(|line| line.contains("generation ")).unwrap();
    assert!(generation.contains("valid-1") && generation.contains("generated_tokens=2"), "{generation}");
    assert!(of("valid-1").contains("status=200"), "{lines:?}");
    let invalid = of("invalid-1");
    assert!(invalid.contains("status=400") && invalid.contains("max_tokens"), "{invalid}");
}

#[test]
fn json_log_lines_are_objects_with_request_ids() {
    let lines = lines(&["--log-format", "json"]);
    let objects: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of = |id: &str| {
        let is_response =
            |object: &&Value| object["span"]["request_id"] == id && object["message"] == "response";
        objects.iter().find(is_response).expect(id)
    };
    assert_eq!(of("valid-1")["status"], 200);
    assert!(of("invalid-1")["error"].as_str().unwrap().contains("max_tokens"));
    let generation = objects.iter().find(|object| object["message"] == "generation").expect("a generation");
    assert_eq!(generation["span"]["request_id"], "valid-1");
    assert_eq!((&generation["prompt_tokens"], &generation["generated_tokens"]), (&1.into(), &2.into()));
    assert_eq!((&generation["cached_tokens"], &generation["outcome"]), (&0.into(), &"length".into()));
    let times = ["queue_s", "ttft_s", "total_s"].map(|name| generation[name].as_f64().expect(name));
    assert!(times.is_sorted() && times[0] >= 0.0, "{times:?}");
}
