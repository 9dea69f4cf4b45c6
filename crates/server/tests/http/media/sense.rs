//! A model that was trained on pictures of shapes and numbers answers questions about others.

use std::path::Path;

use omnibus_engine::Settings;
use omnibus_server::Settings as ServerSettings;
use serde_json::json;

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
