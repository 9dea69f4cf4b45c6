//! Sound over HTTP, through a tiny Gemma 4 with a reference's weights: its answers, what repetitions cost, refusals.

use std::path::PathBuf;
use std::sync::OnceLock;

use omnibus_engine::{DiskSettings, PrefixCache, Settings};
use omnibus_server::Settings as ServerSettings;
use serde_json::{Value, json};

use super::files::{Picture, base64};
use super::model::{self, Golden, Words};
use super::sound_files::{flac, hostile, sound, wav};
use super::{Answer, CHAT, VisionServer, body, client, image, text};

/// Largest distance of a log-probability from the reference's.
const BOUND: f32 = 5e-3;
pub const FIELD: &str = "messages[0].content[1].input_audio.data";
const WORDS: Words = Words(&[
    "<|image>",
    "<|image|>",
    "<image|>",
    "<|audio>",
    "<|audio|>",
    "<audio|>",
    "<|video|>",
    "<|turn>",
    "<turn|>",
]);
const TEMPLATE: &str = "{% for message in messages %}\
    {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
    {% if part.type == 'image' %}<|image|>{% elif part.type == 'audio' %}<|audio|>\
    {% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}";

/// The model's directory, made once.
fn directory() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let processor = json!({
            "processor_class": "Gemma4Processor", "audio_seq_length": 750, "audio_ms_per_token": 40,
            "image_processor": {
                "image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 12, "patch_size": 16,
                "pooling_kernel_size": 2, "resample": 3, "do_normalize": false,
            },
        });
        model::made_of("gemma4", "hearer", &WORDS, TEMPLATE, &[("processor_config.json", processor)])
    };
    MADE.get_or_init(make).clone()
}

pub fn server(settings: Settings) -> VisionServer {
    let settings = Settings { block_size: 8, ..settings };
    VisionServer::of(&directory(), settings, ServerSettings::default())
}

/// A server of a model that hears.
pub fn hearer() -> VisionServer {
    server(Settings::default())
}

pub fn audio(bytes: &[u8]) -> Value {
    json!({"type": "input_audio", "input_audio": {"data": base64(bytes), "format": "wav"}})
}

/// The golden prompt and so many of the tokens behind it.
fn golden_content(golden: &Golden, behind: usize) -> Value {
    const START: i32 = 131;
    const END: i32 = 133;
    let mut tokens = golden.tokens("prompt", "sound");
    tokens.extend(&golden.tokens("decode", "sound")[..behind]);
    let place = |id: i32| tokens.iter().position(|token| *token == id).unwrap();
    let (before, after) = (&tokens[..place(START)], &tokens[place(END) + 1..]);
    json!([text(&WORDS.words(before)), audio(&wav(&sound(16_000, 31))), text(&WORDS.words(after))])
}

pub fn question(file: &[u8], before: &str, behind: &str) -> Value {
    json!([text(before), audio(file), text(behind)])
}

#[test]
fn answers_to_sound_are_those_of_the_reference_in_chunks_of_any_size() {
    let golden = Golden::of("gemma4");
    for step_tokens in [512, 7] {
        let server = server(Settings { max_num_batched_tokens: Some(step_tokens), ..Settings::default() });
        for behind in [0, 4] {
            let answer = server.answer(&golden_content(&golden, behind));
            let expected = golden.logprobs("sound", behind);
            for (token, logprob) in answer.first_of(&WORDS) {
                let wanted = expected[token as usize];
                let what = format!("{behind} behind, in steps of {step_tokens}: token {token}");
                assert!((logprob - wanted).abs() < BOUND, "{what} has {logprob}, not {wanted}");
            }
        }
        assert_eq!(server.media().encoder_runs_total, 1);
    }
}

#[test]
fn equal_samples_in_other_files_are_the_same_sound() {
    let server = server(Settings::default());
    let samples = sound(9_000, 5);
    let first = server.answer(&question(&wav(&samples), "w1 w2", "w3"));
    let details = first.0["usage"]["prompt_tokens_details"].clone();
    assert_eq!((&details["audio_tokens"], &details["encoded_audio"]), (&14.into(), &1.into()), "{details}");
    let second = server.answer(&question(&flac(&samples), "w9", "w8 w7"));
    let details = second.0["usage"]["prompt_tokens_details"].clone();
    assert_eq!((&details["audio_tokens"], &details["encoded_audio"]), (&14.into(), &0.into()), "{details}");
    let stats = server.media();
    assert_eq!((stats.encoder_runs_total, stats.feature_hits_total, stats.entries), (1, 1, 1), "{stats:?}");
    let alone = self::server(Settings::default());
    assert_eq!(alone.answer(&question(&wav(&samples), "w9", "w8 w7")).exact(), second.exact());
    let other = server.answer(&question(&wav(&sound(9_000, 6)), "w9", "w8 w7"));
    assert_ne!(other.exact(), second.exact());
    assert_eq!(server.media().encoder_runs_total, 2);
}

#[test]
fn features_of_sound_outlive_the_process_on_disk() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("audio-features");
    _ = std::fs::remove_dir_all(&directory);
    let settings = || Settings {
        disk: Some(DiskSettings { directory: directory.clone(), ..DiskSettings::default() }),
        prefix_cache: PrefixCache::Off,
        ..Settings::default()
    };
    let asked = question(&wav(&sound(12_000, 8)), "w1", "w2");
    let first = server(settings()).answer(&asked).exact();
    let server = server(settings());
    assert_eq!(server.answer(&asked).exact(), first);
    let stats = server.media();
    assert_eq!((stats.encoder_runs_total, stats.disk_hits_total), (0, 1), "{stats:?}");
    let scraped = client::get(server.address, "/metrics").body;
    assert!(scraped.contains("omnibus_media_hits_total{kind=\"disk\"} 1"), "{scraped}");
    _ = std::fs::remove_dir_all(&directory);
}

/// Rows of one step that hear, that see, and that read only.
#[test]
fn sounds_and_pictures_share_a_batch() {
    let sounding = question(&wav(&sound(16_000, 31)), "w1 w2", "w3");
    let both = json!([image(&Picture::one()), text("w4"), audio(&wav(&sound(7_000, 2)))]);
    let contents = [sounding, both, json!("w5 w6 w7")];
    let alone = server(Settings::default());
    let expected = contents.clone().map(|content| alone.answer(&content).text());
    let server = server(Settings { max_num_batched_tokens: Some(24), ..Settings::default() });
    let threads = contents.map(|content| {
        let address = server.address;
        std::thread::spawn(move || client::post(address, CHAT, &body(&content, 4).to_string()))
    });
    let found = threads.map(|thread| Answer(thread.join().unwrap().json()).text());
    assert_eq!(found, expected);
}

#[test]
fn hostile_sounds_are_refused_by_their_part_and_the_server_goes_on() {
    let server = server(Settings::default());
    let inputs = hostile();
    assert!(inputs.len() >= 25);
    for (name, bytes) in inputs {
        let reply = server.post(CHAT, &body(&question(&bytes, "w1", "w2"), 1));
        assert_eq!(reply.status, 400, "{name}: {}", reply.body);
        assert_eq!(reply.error()["param"], FIELD, "{name}: {}", reply.body);
    }
    assert_eq!(server.media().encoder_runs_total, 0);
    server.answer(&question(&wav(&sound(9_000, 5)), "w1", "w2"));
}

#[test]
fn texts_cannot_stand_for_sounds() {
    let server = server(Settings::default());
    let reply = server.post(CHAT, &body(&question(&wav(&sound(9_000, 5)), "w1 <|audio|>", "w2"), 1));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.body.contains("<|audio|>"), "{}", reply.body);
}

#[test]
fn a_model_without_audio_names_models_that_hear() {
    let server = VisionServer::new(Settings::default());
    let reply = server.post(CHAT, &body(&question(&wav(&sound(9_000, 5)), "w1", "w2"), 1));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(reply.error()["param"], FIELD, "{}", reply.body);
    assert!(reply.body.contains("gemma4"), "{}", reply.body);
}
