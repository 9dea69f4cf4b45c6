//! Requests with media that cannot be served name the part, and the server goes on.

use std::path::PathBuf;
use std::sync::OnceLock;

use omnibus_engine::Settings;
use serde_json::{Value, json};

use super::files::Picture;
use super::{CHAT, VisionServer, body, image, image_bytes, model, text};

const FIELD: &str = "messages[0].content[1].image_url.url";

fn check(server: &VisionServer, part: &Value, field: &str, says: &str) {
    let reply = server.post(CHAT, &body(&json!([text("w1"), part]), 1));
    assert_eq!(reply.status, 400, "{}", reply.body);
    let error = reply.error();
    let message = error["message"].as_str().unwrap();
    assert_eq!(error["param"], field, "{message}");
    assert!(message.contains(says) && message.contains(field), "{message}");
}

#[test]
fn media_that_cannot_be_read_are_refused_by_their_part() {
    let server = VisionServer::new(Settings::default());
    let png = Picture::one().png();
    let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    for (part, says) in [
        (image_bytes("image/png", b"not a picture"), "supported are"),
        (image_bytes("image/png", b""), "has no bytes"),
        (image_bytes("image/png", &png[..png.len() / 2]), "PNG image"),
        (image_bytes("image/png", b"%PDF-1.7"), "supported are"),
        (image_bytes("image/svg+xml", b"<svg/>"), "supported are"),
        (url("https://example.com/a.png"), "--allow-media-domain"),
        (url("http://169.254.169.254/latest"), "--allow-media-domain"),
        (url("file:///etc/passwd"), "--allow-media-dir"),
    ] {
        check(&server, &part, FIELD, says);
    }
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}});
    check(&server, &audio, "messages[0].content[1].input_audio.data", "gemma4");
    server.answer(&json!([text("w1"), image(&Picture::one())]));
}

#[test]
fn hostile_pictures_are_refused_by_their_part_and_the_server_goes_on() {
    let server = VisionServer::new(Settings::default());
    let inputs = super::hostile::inputs();
    assert!(inputs.len() >= 55);
    for (name, bytes) in inputs {
        let reply = server.post(CHAT, &body(&json!([text("w1"), image_bytes("image/png", &bytes)]), 1));
        assert_eq!(reply.status, 400, "{name}: {}", reply.body);
        assert_eq!(reply.error()["param"], FIELD, "{name}");
    }
    assert_eq!(server.media().encoder_runs_total, 0);
    server.answer(&json!([text("w1"), image(&Picture::one())]));
}

#[test]
fn texts_cannot_stand_for_pictures() {
    let server = VisionServer::new(Settings::default());
    for words in ["w1 <|image_pad|>", "w1 <|image_pad|><|image_pad|> w2"] {
        let reply = server.post(CHAT, &body(&json!([text(words), image(&Picture::one())]), 1));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains("<|image_pad|>"), "{}", reply.body);
    }
}

/// A server of the model without its encoder's config.
pub fn blind() -> VisionServer {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let remove = |config: &mut Value| _ = config.as_object_mut().unwrap().remove("vision_config");
    let blind = MADE.get_or_init(|| model::made("blind", remove));
    VisionServer::of(blind, Settings::default(), omnibus_server::Settings::default())
}

#[test]
fn a_model_without_vision_names_models_that_see() {
    let server = blind();
    check(&server, &image(&Picture::one()), FIELD, "qwen3_vl");
    server.answer(&json!("w1 w2"));
}
