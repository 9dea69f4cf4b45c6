//! A model that was trained on pictures of shapes and numbers answers questions about others.

use std::path::Path;

use omnibus_engine::Settings;
use omnibus_server::Settings as ServerSettings;
use serde_json::{Value, json};

use super::{CHAT, VisionServer, image_bytes, text};

#[test]
fn a_trained_model_tells_colours_shapes_numbers_and_how_many() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../training/vision");
    let server =
        VisionServer::of(&folder.join("omnibus-see"), Settings::default(), ServerSettings::default());
    let examples = std::fs::read_to_string(folder.join("examples/answers.tsv")).unwrap();
    let mut asked = 0;
    for line in examples.lines().skip(1) {
        let [picture, question, answer] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let bytes = std::fs::read(folder.join("examples").join(picture)).unwrap();
        let content = json!([image_bytes("image/png", &bytes), text(question)]);
        let messages = json!([{"role": "user", "content": content}]);
        let reply = server.post(CHAT, &json!({"messages": messages, "max_tokens": 8, "temperature": 0}));
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["choices"][0]["message"]["content"], answer, "{picture}: {question}");
        asked += 1;
    }
    assert_eq!((asked, server.media().encoder_runs_total), (8, 8));
}

/// A model directory whose processor makes other pictures than its encoder takes.
#[test]
fn a_picture_that_the_encoder_does_not_take_fails_its_request_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../training/vision");
    let model = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("other-size-{}", std::process::id()));
    std::fs::create_dir_all(&model).unwrap();
    for file in std::fs::read_dir(folder.join("omnibus-see")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), model.join(file.file_name())).unwrap();
    }
    let processor = model.join("preprocessor_config.json");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(&processor).unwrap()).unwrap();
    settings["size"] = json!({"height": 160, "width": 160});
    std::fs::write(&processor, settings.to_string()).unwrap();
    let server = VisionServer::of(&model, Settings::default(), ServerSettings::default());
    let picture = std::fs::read(folder.join("examples/count-1.png")).unwrap();
    let ask = |content: Value| {
        let messages = json!([{"role": "user", "content": content}]);
        server.post(CHAT, &json!({"messages": messages, "max_tokens": 8, "temperature": 0}))
    };
    let first = ask(json!([text("Hello")])).json();
    assert_eq!(ask(json!([image_bytes("image/png", &picture), text("What is this?")])).status, 500);
    let second = ask(json!([text("Hello")])).json();
    assert_eq!(first["choices"], second["choices"]);
    assert_eq!(server.engine.stats().failed_steps_total, 0, "the KV cache was dropped");
    std::fs::remove_dir_all(&model).unwrap();
}
