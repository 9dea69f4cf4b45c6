//! Pictures of one pixel, and of one row or column: each processor scales them as its reference does,
//! or refuses them.

use omnibus_engine::Settings;
use serde_json::json;

use super::families::SERVED;
use super::files::Picture;
use super::{CHAT, VisionServer, body, image, text};

const FIELD: &str = "messages[0].content[1].image_url.url";

/// The tokens of a picture in the prompt, once it is answered; or 400, which names its part.
fn tokens(server: &VisionServer, width: u32, height: u32) -> Result<u64, String> {
    let picture = image(&Picture::new(width, height, 1));
    let reply = server.post(CHAT, &body(&json!([text("w1"), picture]), 1));
    if reply.status == 400 {
        assert_eq!(reply.error()["param"], FIELD, "{width}x{height}: {}", reply.body);
        return Err(reply.error()["message"].as_str().unwrap().to_owned());
    }
    assert_eq!(reply.status, 200, "{width}x{height}: {}", reply.body);
    let reply = reply.json();
    assert!(reply["choices"][0]["logprobs"]["content"][0]["logprob"].as_f64().is_some(), "{reply}");
    Ok(reply["usage"]["prompt_tokens_details"]["image_tokens"].as_u64().unwrap())
}

#[test]
fn smart_resize_takes_one_pixel_and_rows_up_to_200_times_as_long_as_wide() {
    let server = VisionServer::new(Settings::default());
    for (width, height, expected) in [(1, 1, 4), (200, 1, 20), (1, 200, 20)] {
        assert_eq!(tokens(&server, width, height), Ok(expected), "{width}x{height}");
    }
    for (width, height) in [(201, 1), (1, 201)] {
        let refused = tokens(&server, width, height).unwrap_err();
        assert!(refused.contains("200"), "{refused}");
    }
}

/// Tokens of pictures of 1 × 1, 40 × 1 and 1 × 40 pixels, as the processors of transformers 5.24 count them, and that of Phi-3
/// Vision by its publisher's formula. A picture of LLaVA-NeXT that is narrower than a feature has rows without features, or
/// no rows.
const TOKENS: &[(&str, [u64; 3])] = &[
    ("llava_next.hf", [36, 16, 20]),
    ("llava_onevision", [36, 16, 20]),
    ("idefics2.hf", [6, 6, 6]),
    ("minicpmv4_6.hf", [4, 12, 13]),
    ("molmo2", [8, 8, 8]),
    ("gemma3n.hf", [16, 16, 16]),
    ("phi3_v", [313, 601, 625]),
    ("mllama.hf", [1, 1, 1]),
];

#[test]
fn every_processor_takes_the_smallest_pictures() {
    for served in SERVED {
        let server = served.server(64);
        let found = [(1, 1), (40, 1), (1, 40)].map(|(width, height)| tokens(&server, width, height));
        let (name, expected) = TOKENS.iter().find(|(name, _)| *name == served.fixture).unwrap();
        assert_eq!(found, expected.map(Ok), "{name}");
    }
}
