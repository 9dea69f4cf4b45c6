//! Pictures of requests and the engine process, which gets pixels only when it has to encode them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{get, post};
use super::process::{Server, signal};

const TRAINING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../training/vision");

/// A question about some pictures of the examples, and the reply: its text, and how many pictures were encoded for it.
fn ask(server: &Server, pictures: &[&str], question: &str) -> (String, u64) {
    let part = |name: &&str| {
        let bytes = std::fs::read(format!("{TRAINING}/examples/{name}.png")).unwrap();
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", STANDARD.encode(bytes))}})
    };
    let mut content: Vec<Value> = pictures.iter().map(part).collect();
    content.push(json!({"type": "text", "text": question}));
    let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0});
    let reply = post(server.address, "/v1/chat/completions", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    let encoded = reply["usage"]["prompt_tokens_details"]["encoded_images"].as_u64().unwrap();
    (reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned(), encoded)
}

#[test]
fn pictures_are_encoded_once_in_each_engine_process() {
    let server = Server::start(&["--log", "off", &format!("{TRAINING}/omnibus-see")]);
    let colour = || ask(&server, &["colour-1"], "Name the colour of the triangle.");
    assert_eq!(colour(), ("blue".to_owned(), 1));
    assert_eq!(colour(), ("blue".to_owned(), 0));
    // In another place of another conversation, once and twice.
    let (_, encoded) = ask(&server, &["digits-1", "colour-1", "digits-1"], "Which number is this?");
    assert_eq!(encoded, 1);
    let process = get(server.address, "/v1/status").json()["engine"]["process"].as_u64().unwrap();
    assert!(signal(process as u32, "KILL"));
    assert_eq!(colour(), ("blue".to_owned(), 1));
    assert_eq!(colour(), ("blue".to_owned(), 0));
}

#[test]
fn a_step_that_fails_requests_pixels_again() {
    for fault in ["memory@step=1", "memory@step=2", "read@step=3"] {
        let variables = [("OMNIBUS_FAULTS", fault)];
        let server = Server::start_with(&["--log", "off", &format!("{TRAINING}/omnibus-see")], &variables);
        let (answer, encoded) = ask(&server, &["digits-2"], "Which number is this?");
        assert_eq!((answer.as_str(), encoded), ("916", 1), "{fault}");
        let metrics = get(server.address, "/metrics").body;
        let count = |name: &str| -> f64 {
            let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert!(count("omnibus_failed_steps_total") >= 1.0, "{fault}: no step failed");
        assert_eq!(count("omnibus_media_encoder_runs_total"), 2.0, "{fault}");
    }
}

#[test]
fn features_that_were_evicted_are_encoded_again() {
    let model = format!("{TRAINING}/omnibus-see");
    let server =
        Server::start(&["--log", "off", "--media-cache-memory", "1", "--prefix-cache", "off", &model]);
    for _ in 0..2 {
        assert_eq!(ask(&server, &["colour-1"], "Name the colour of the triangle."), ("blue".to_owned(), 1));
        let (answer, encoded) = ask(&server, &["digits-1"], "Which number is this?");
        assert_eq!((answer.as_str(), encoded), ("39", 1));
    }
}

#[test]
fn questions_about_pictures_at_once_have_their_own_answers() {
    let server = Server::start(&["--log", "off", &format!("{TRAINING}/omnibus-see")]);
    let examples = std::fs::read_to_string(format!("{TRAINING}/examples/answers.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = examples.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    std::thread::scope(|scope| {
        // The second of two that ask about the same picture waits for the features of the first.
        for row in rows.iter().chain(&rows) {
            let server = &server;
            scope.spawn(move || {
                let (answer, _) = ask(server, &[row[0].trim_end_matches(".png")], row[1]);
                assert_eq!(answer, row[2], "{}", row[0]);
            });
        }
    });
    let metrics = get(server.address, "/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with("omnibus_media_encoder_runs_total")).unwrap();
    assert!(line.ends_with(&format!(" {}", rows.len())), "{line}");
}
