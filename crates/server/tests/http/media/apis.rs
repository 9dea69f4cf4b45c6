//! Pictures in the shapes of the other APIs, and in results of tools.

use omnibus_engine::Settings;
use serde_json::{Value, json};

use super::files::{Picture, base64, data_url};
use super::{CHAT, VisionServer, image, text};

/// The text of the answer to a chat.
fn chat(server: &VisionServer, messages: &Value) -> String {
    let reply = server.post(CHAT, &json!({"messages": messages, "max_tokens": 6, "temperature": 0}));
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

fn asked() -> Value {
    json!([{"role": "user", "content": [text("w1 w2"), image(&Picture::one()), text("w3")]}])
}

fn anthropic_image(picture: &Picture) -> Value {
    let source = json!({"type": "base64", "media_type": "image/png", "data": base64(&picture.png())});
    json!({"type": "image", "source": source})
}

#[test]
fn anthropics_images_are_seen() {
    let server = VisionServer::new(Settings::default());
    let expected = chat(&server, &asked());
    let content = json!([text("w1 w2"), anthropic_image(&Picture::one()), text("w3")]);
    let body = json!({
        "model": "seer", "max_tokens": 6, "temperature": 0, "messages": [{"role": "user", "content": content}],
    });
    let reply = server.post("/v1/messages", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let found = reply.json()["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert_eq!(found, expected);
    assert_eq!(server.media().encoder_runs_total, 1);
    let count = server.post("/v1/messages/count_tokens", &body).json()["input_tokens"].as_u64().unwrap();
    let usage = reply.json()["usage"].clone();
    let prompt =
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
    assert_eq!(count, prompt, "features are counted as tokens: {usage}");
}

#[test]
fn images_of_the_responses_api_are_seen() {
    let server = VisionServer::new(Settings::default());
    let expected = chat(&server, &asked());
    let url = data_url("image/png", &Picture::one().png());
    let content = json!([
        {"type": "input_text", "text": "w1 w2"}, {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": "w3"},
    ]);
    let body = json!({
        "model": "seer", "max_output_tokens": 6, "temperature": 0,
        "input": [{"role": "user", "content": content}],
    });
    let reply = server.post("/v1/responses", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let found = reply.json()["output"][0]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert_eq!(found, expected);
    assert_eq!(server.media().encoder_runs_total, 1);
}

#[test]
fn files_of_the_responses_api_are_media_by_their_type_or_name() {
    let server = VisionServer::new(Settings::default());
    let expected = chat(&server, &asked());
    let picture = Picture::one().png();
    let answer = |file: Value| {
        let content = json!([
            {"type": "input_text", "text": "w1 w2"}, file, {"type": "input_text", "text": "w3"},
        ]);
        let body = json!({
            "model": "seer", "max_output_tokens": 6, "temperature": 0,
            "input": [{"role": "user", "content": content}],
        });
        server.post("/v1/responses", &body)
    };
    let files = [
        json!({"type": "input_file", "file_data": data_url("image/png", &picture)}),
        json!({"type": "input_file", "filename": "a.PNG", "file_data": base64(&picture)}),
    ];
    for file in files {
        let reply = answer(file);
        assert_eq!(reply.status, 200, "{}", reply.body);
        let found = reply.json()["output"][0]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert_eq!(found, expected);
    }
    assert_eq!(server.media().encoder_runs_total, 1);
    let note = answer(json!({"type": "input_file", "filename": "a.zip", "file_data": base64(b"PK")}));
    assert_eq!(note.status, 200, "{}", note.body);
    for broken in [&b"%PDF"[..], b"%PDF-1.7\n"] {
        let refused = answer(json!({"type": "input_file", "filename": "a.pdf", "file_data": base64(broken)}));
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.error()["param"], "input[0].content[1].file_data", "{}", refused.body);
    }
    let url = answer(json!({"type": "input_file", "file_url": "https://pictures.invalid/a.jpg?size=1"}));
    assert_eq!(url.status, 400, "{}", url.body);
    assert!(url.body.contains("input[0].content[1].file_url"), "{}", url.body);
}

#[test]
fn results_of_tools_have_images() {
    let server = VisionServer::new(Settings::default());
    let result = |content: Value| json!({"type": "tool_result", "tool_use_id": "t1", "content": content});
    let body = |content: Value| {
        json!({
            "model": "seer", "max_tokens": 6, "temperature": 0,
            "messages": [
                {"role": "user", "content": "w1"},
                {"role": "assistant", "content": [
                    text("w2"), {"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
                {"role": "user", "content": [result(content)]},
            ],
        })
    };
    let with = server.post("/v1/messages", &body(json!([text("w4"), anthropic_image(&Picture::one())])));
    assert_eq!(with.status, 200, "{}", with.body);
    assert_eq!(server.media().encoder_runs_total, 1);
    let without = server.post("/v1/messages", &body(json!([text("w4")])));
    let tokens = |reply: &super::Reply| {
        let usage = reply.json()["usage"].clone();
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap_or(0)
    };
    assert_eq!(tokens(&with), tokens(&without) + 4, "two features between two markers");
}

/// Agents show pictures to every model; their sessions go on.
#[test]
fn a_note_stands_for_the_image_of_a_tool_where_the_model_reads_text_only() {
    let server = super::refused::blind();
    let body = json!({
        "model": "seer", "max_tokens": 2,
        "messages": [
            {"role": "user", "content": "w1"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [anthropic_image(&Picture::one())]}]},
        ],
    });
    assert_eq!(server.post("/v1/messages", &body).status, 200);
    let body = json!({
        "model": "seer", "max_tokens": 2,
        "messages": [{"role": "user", "content": [anthropic_image(&Picture::one())]}],
    });
    let reply = server.post("/v1/messages", &body);
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.body.contains("messages[0].content[0].source.data"), "{}", reply.body);
}

/// Streams go on while pictures are encoded, and say what they say alone.
#[test]
fn text_streams_go_on_beside_pictures() {
    let server = VisionServer::new(Settings::default());
    let question = |index: usize| json!(format!("w{index} w{} w5", index + 1));
    let expected: Vec<Vec<String>> = (0..4).map(|index| server.answer(&question(index)).text()).collect();
    let mut threads = Vec::new();
    for index in 0..8 {
        let address = server.address;
        let content = match index % 2 {
            0 => question(index / 2),
            _ => json!([image(&Picture::new(80 + index as u32, 60, 40 + index as u32)), text("w1")]),
        };
        let body = super::body(&content, 4).to_string();
        threads.push(std::thread::spawn(move || super::client::post(address, CHAT, &body)));
    }
    let found: Vec<Vec<String>> =
        threads.into_iter().map(|thread| super::Answer(thread.join().unwrap().json()).text()).collect();
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(&found[2 * index], expected, "stream {index}");
    }
    assert_eq!(server.media().encoder_runs_total, 4);
}
