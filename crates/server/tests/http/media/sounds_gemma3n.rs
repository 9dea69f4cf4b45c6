//! Sound and pictures over HTTP, through a tiny Gemma 3n with a reference's weights, whose sounds all have one number of
//! tokens.

use omnibus_engine::Settings;
use omnibus_server::Settings as ServerSettings;
use serde_json::{Value, json};

use super::files::Picture;
use super::model::{Golden, Words, file, made_of};
use super::sound_files::{sound, wav};
use super::sounds::{audio, question};
use super::{VisionServer, image, text};

/// Largest distance of a log-probability from the reference's.
const BOUND: f32 = 2e-3;
const FIXTURE: &str = "gemma3n.hf";
const PICTURE: i32 = 131;
const SOUND: i32 = 134;
const WORDS: Words = Words(&[
    "<start_of_image>",
    "<start_of_audio>",
    "<end_of_image>",
    "<image_soft_token>",
    "x132",
    "<end_of_audio>",
    "<audio_soft_token>",
]);
const TEMPLATE: &str = "{% for message in messages %}\
    {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
    {% if part.type == 'image' %}<image_soft_token>{% elif part.type == 'audio' %}<audio_soft_token>\
    {% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}";

fn server(name: &str, files: &[(&str, Value)], settings: Settings) -> VisionServer {
    let own = ["preprocessor_config.json", "processor_config.json"].map(|name| (name, file(FIXTURE, name)));
    let directory = made_of(FIXTURE, name, &WORDS, TEMPLATE, &[&own, files].concat());
    let settings = Settings { block_size: 8, ..settings };
    VisionServer::of(&directory, settings, ServerSettings::default())
}

/// A server of a model whose sounds may have 30 seconds.
pub fn hearer() -> VisionServer {
    const TOKENS: usize = 256;
    let mut config = file(FIXTURE, "config.json");
    config["audio_soft_tokens_per_image"] = TOKENS.into();
    config["text_config"]["max_position_embeddings"] = 2048.into();
    let processor = json!({"processor_class": "Gemma3nProcessor", "audio_seq_length": TOKENS});
    let files = [("config.json", config), ("processor_config.json", processor)];
    server("hearer-gemma3n", &files, Settings::default())
}

/// The parts of a golden case with so many of the tokens behind its prompt.
fn content(golden: &Golden, case: &str, behind: usize) -> Value {
    let cases = file(FIXTURE, "case.json");
    let of_case = cases["cases"].as_array().unwrap().iter().find(|of| of["name"] == case).unwrap();
    let rows = |medium: &str| of_case[medium].as_array().cloned().unwrap_or_default().into_iter();
    let (mut pictures, mut sounds) = (rows("images"), rows("sounds"));
    let number = |row: &Value, at: usize| row[at].as_u64().unwrap() as u32;
    let mut tokens = golden.tokens("raw", case);
    tokens.extend(&golden.tokens("decode", case)[..behind]);
    let parts = tokens.chunk_by(|one, next| ![one, next].iter().any(|id| [PICTURE, SOUND].contains(id)));
    let part = |ids: &[i32]| match ids {
        [PICTURE] => {
            let row = pictures.next().unwrap();
            image(&Picture::new(number(&row, 0), number(&row, 1), number(&row, 2)))
        }
        [SOUND] => {
            let row = sounds.next().unwrap();
            audio(&wav(&sound(number(&row, 0).into(), number(&row, 1).into())))
        }
        ids => text(&WORDS.words(ids)),
    };
    Value::Array(parts.map(part).collect())
}

#[test]
fn answers_to_sounds_and_pictures_are_those_of_the_reference_in_chunks_of_any_size() {
    let golden = Golden::of(FIXTURE);
    for step_tokens in [512, 7] {
        let settings = Settings { max_num_batched_tokens: Some(step_tokens), ..Settings::default() };
        let server = server("hears-gemma3n", &[], settings);
        for (case, behind) in [("sound", 0), ("both", 0), ("sound", 2), ("both", 2)] {
            let answer = server.answer(&content(&golden, case, behind));
            let expected = golden.logprobs(case, behind);
            for (token, logprob) in answer.first_of(&WORDS) {
                let wanted = expected.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
                let what = format!("{case}, {behind} behind, in steps of {step_tokens}: token {token}");
                assert!((logprob - wanted).abs() < BOUND, "{what} has {logprob}, not {wanted}");
            }
        }
        assert_eq!(server.media().encoder_runs_total, 3, "two sounds and a picture");
    }
}

#[test]
fn every_sound_has_as_many_tokens_and_one_that_is_too_long_is_refused() {
    let server = hearer();
    for samples in [700, 480_000] {
        let answer = server.answer(&question(&wav(&sound(samples, 5)), "w1", "w2"));
        assert_eq!(answer.0["usage"]["prompt_tokens_details"]["audio_tokens"], 256, "{samples} samples");
    }
    for samples in [300, 480_001] {
        let body = super::body(&question(&wav(&sound(samples, 5)), "w1", "w2"), 1);
        let reply = server.post(super::CHAT, &body);
        let param = reply.error()["param"].clone();
        assert_eq!((reply.status, param), (400, super::sounds::FIELD.into()), "{}", reply.body);
    }
}
