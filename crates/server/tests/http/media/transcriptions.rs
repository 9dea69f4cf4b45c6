//! Transcriptions over HTTP: a tiny Whisper with a reference's weights writes what the reference writes; formats, streams,
//! windows, what repetitions cost, refusals.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use omnibus_engine::Settings;
use omnibus_server::Settings as ServerSettings;
use serde_json::{Value, json};

use super::model::{self, Golden, Words};
use super::sound_files::{flac, sound, wav};
use super::{VisionServer, body, sounds, sounds_gemma3n};
use crate::client::{self, Reply};

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const TRANSLATIONS: &str = "/v1/audio/translations";
const FIXTURE: &str = "../speech/whisper";
const END: u32 = 128;
const FIRST_TIME: u32 = 138;
/// Greedy, and kept however unlikely the result is.
const GREEDY: (&str, &str) = ("temperature", "0.000001");
const ENGLISH: (&str, &str) = ("language", "en");
const WORDS: (&str, &str) = ("timestamp_granularities[]", "word");
const VERBOSE: (&str, &str) = ("response_format", "verbose_json");

/// The model's directory, made once.
fn directory() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| made("writer", json!([[0, 1], [1, 2], [1, 3]]))).clone()
}

/// A directory of this name. `aligned`: heads that follow the sound.
fn made(name: &str, aligned: Value) -> PathBuf {
    let marks = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|en|>",
        "<|zh|>",
        "<|translate|>",
        "<|transcribe|>",
        "<|startoflm|>",
        "<|startofprev|>",
        "<|nospeech|>",
        "<|notimestamps|>",
    ];
    let times =
        (0..=50).map(|step| &*Box::leak(format!("<|{:.2}|>", f64::from(step) * 0.02).into_boxed_str()));
    let words = Words(Box::leak(marks.into_iter().chain(times).collect::<Box<[&str]>>()));
    let processor = json!({
        "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 16, "sampling_rate": 16_000,
        "hop_length": 160, "chunk_length": 1, "n_fft": 400,
    });
    let generation = json!({
        "max_initial_timestamp_index": 25, "eos_token_id": END, "is_multilingual": true, "alignment_heads": aligned,
    });
    let files = [("preprocessor_config.json", processor), ("generation_config.json", generation)];
    model::made_of(FIXTURE, name, &words, "", &files)
}

fn server() -> VisionServer {
    server_of(&directory())
}

fn server_of(directory: &Path) -> VisionServer {
    let settings = Settings { block_size: 8, ..Settings::default() };
    VisionServer::of(directory, settings, ServerSettings::default())
}

/// The bytes of a form.
fn form(fields: &[(&str, &str)], file: Option<&[u8]>) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, value) in fields {
        form.extend(
            format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes(),
        );
    }
    if let Some(file) = file {
        let head = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
                    content-type: audio/wav\r\n\r\n";
        form.extend(head.bytes().chain(file.iter().copied()).chain(*b"\r\n"));
    }
    form.extend(b"--edge--\r\n");
    form
}

fn post(server: &VisionServer, path: &str, form: &[u8]) -> Reply {
    let kind = ("content-type", "multipart/form-data; boundary=edge");
    client::exchange(server.address, &client::request("POST", path, &[kind], form)).unwrap()
}

fn transcript(server: &VisionServer, file: &[u8], fields: &[(&str, &str)]) -> Reply {
    let reply = post(server, TRANSCRIPTIONS, &form(fields, Some(file)));
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply
}

fn segments(reply: &Reply) -> Vec<Value> {
    reply.json()["segments"].as_array().unwrap().clone()
}

/// The reference's segments of a window: times in hundredths of a second, and tokens.
fn expected(written: &[u32]) -> Vec<(u64, u64, Vec<u32>)> {
    let is_time = |token: &u32| *token >= FIRST_TIME;
    let segments = written.chunk_by(|one, next| !(is_time(one) && is_time(next)));
    let whole = segments.filter(|segment| segment.len() > 2 && segment.last().is_some_and(is_time));
    let time = |token: u32| u64::from(2 * (token - FIRST_TIME));
    whole.map(|segment| (time(segment[0]), time(segment[segment.len() - 1]), segment.to_vec())).collect()
}

#[test]
fn a_window_is_written_as_the_reference_writes_it() {
    let (server, golden, mut most) = (server(), Golden::of(FIXTURE), 0);
    for (case, samples, seed) in [("plain", 16_000, 31), ("continued", 12_000, 5), ("start", 15_999, 8)] {
        let reply = transcript(&server, &wav(&sound(samples, seed)), &[GREEDY, ENGLISH, VERBOSE]);
        let written: Vec<u32> = golden.tokens("written", case).iter().map(|token| *token as u32).collect();
        let expected = expected(&written);
        assert!(!expected.is_empty(), "{case} has segments: {written:?}");
        most = most.max(expected.len());
        let found = segments(&reply).into_iter().take(expected.len()).map(|segment| {
            let hundredths = |field: &str| (segment[field].as_f64().unwrap() * 100.0).round() as u64;
            let tokens = segment["tokens"].as_array().unwrap().iter();
            (
                hundredths("start"),
                hundredths("end"),
                tokens.map(|token| token.as_u64().unwrap() as u32).collect(),
            )
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{case}");
        let mean = segments(&reply)[0]["avg_logprob"].as_f64().unwrap() as f32;
        let wanted = golden.mean("logprobs", case);
        assert!((mean - wanted).abs() < 1e-3, "{case}: {mean} is not {wanted}");
    }
    assert!(most > 1, "a case has several segments");
}

#[test]
fn words_have_the_times_that_the_reference_finds() {
    let (server, golden, case) = (server(), Golden::of(FIXTURE), "continued");
    let file = wav(&sound(12_000, 5));
    let both = [GREEDY, ("language", "zh"), VERBOSE, WORDS, (WORDS.0, "segment")];
    let reply = transcript(&server, &file, &both);
    let written: Vec<u32> = golden.tokens("spoken", case).iter().map(|token| *token as u32).collect();
    let text: Vec<u32> = expected(&written).iter().flat_map(|(_, _, tokens)| tokens.clone()).collect();
    let text: Vec<u32> = text.into_iter().filter(|token| *token < END).collect();
    assert!(text.len() > 2, "several words: {text:?}");
    // One word for each token: the language has no spaces.
    let seconds: Vec<f64> =
        golden.tokens("spoken_frames", case).iter().map(|frame| f64::from(frame * 2) / 100.0).collect();
    let of_token = |(token, times): (&u32, &[f64])| json!({"word": format!("w{}", token - 64), "start": times[0], "end": times[1]});
    let expected: Vec<Value> = text.iter().zip(seconds.windows(2)).map(of_token).collect();
    let all = reply.json()["words"].as_array().unwrap().clone();
    assert_eq!(all[..expected.len()], expected, "{}", reply.body);
    let texts: String =
        segments(&reply).iter().map(|segment| segment["text"].as_str().unwrap().to_owned()).collect();
    let words: Vec<&str> = all.iter().filter_map(|word| word["word"].as_str()).collect();
    assert_eq!(words.concat(), texts.replace(' ', ""), "every text has its words");
    let runs = server.media().encoder_runs_total;
    let alone = transcript(&server, &file, &both[..4]).json();
    assert_eq!((&alone["words"], alone.get("segments")), (&reply.json()["words"], None));
    let without = transcript(&server, &file, &both[..3]).json();
    assert_eq!((without.get("words"), &without["segments"]), (None, &reply.json()["segments"]));
    assert_eq!(server.media().encoder_runs_total, runs, "its windows were heard before");
}

#[test]
fn words_are_refused_where_no_heads_are_known() {
    let file = wav(&sound(16_000, 31));
    for (name, heads) in
        [("writer_without_heads", json!(null)), ("writer_of_other_heads", json!([[0, 1], [2, 0]]))]
    {
        let server = server_of(&made(name, heads));
        let reply = post(&server, TRANSCRIPTIONS, &form(&[GREEDY, VERBOSE, WORDS], Some(&file)));
        assert_eq!((reply.status, reply.error()["param"].as_str()), (400, Some(WORDS.0)), "{}", reply.body);
        assert!(reply.body.contains("alignment_heads"), "{}", reply.body);
        transcript(&server, &file, &[GREEDY, VERBOSE]);
    }
}

#[test]
fn the_language_is_found_by_the_model() {
    let (server, golden) = (server(), Golden::of(FIXTURE));
    let reply = transcript(&server, &wav(&sound(15_999, 8)), &[GREEDY, VERBOSE]);
    let logprobs = golden.logprobs("start", 0);
    let expected = if logprobs[130] > logprobs[131] { "english" } else { "chinese" };
    assert_eq!(reply.json()["language"], expected);
    let silence = f64::from(logprobs[136].exp());
    let found = segments(&reply)[0]["no_speech_prob"].as_f64().unwrap();
    assert!((found - silence).abs() < 1e-4, "{found} is not {silence}");
}

#[test]
fn windows_of_a_long_recording_follow_one_another() {
    let server = server();
    let reply = transcript(&server, &wav(&sound(40_000, 3)), &[GREEDY, ENGLISH, VERBOSE]);
    let segments = segments(&reply);
    let time = |segment: &Value, field: &str| segment[field].as_f64().unwrap();
    assert!(segments.iter().all(|segment| time(segment, "start") < time(segment, "end")), "{}", reply.body);
    let in_order = |pair: &[Value]| time(&pair[0], "start") <= time(&pair[1], "start");
    assert!(segments.windows(2).all(in_order), "{}", reply.body);
    let seeks: Vec<u64> = segments.iter().map(|segment| segment["seek"].as_u64().unwrap()).collect();
    assert!(seeks.last().is_some_and(|last| *last > 100), "{seeks:?}");
    assert!(segments.iter().all(|segment| time(segment, "end") <= 2.5), "{}", reply.body);
    assert_eq!(reply.json()["duration"], 2.5);
    assert_eq!(reply.json()["usage"], json!({"type": "duration", "seconds": 3}));
}

#[test]
fn every_format_has_the_same_text() {
    let (server, file) = (server(), wav(&sound(16_000, 31)));
    let in_format = |format| transcript(&server, &file, &[GREEDY, ENGLISH, ("response_format", format)]);
    let text = in_format("json").json()["text"].as_str().unwrap().to_owned();
    assert!(text.contains('w'), "{text}");
    assert_eq!(in_format("text").body, format!("{text}\n"));
    let verbose = in_format("verbose_json").json();
    assert_eq!((&verbose["text"], &verbose["task"]), (&text.clone().into(), &"transcribe".into()));
    let (srt, vtt) = (in_format("srt"), in_format("vtt"));
    assert!(srt.body.starts_with("1\n00:00:00,") && srt.body.contains(" --> "), "{}", srt.body);
    assert!(vtt.body.starts_with("WEBVTT\n\n00:00:00."), "{}", vtt.body);
    assert_eq!(vtt.header("content-type"), Some("text/vtt; charset=utf-8"));
    let stream = transcript(&server, &file, &[GREEDY, ENGLISH, ("stream", "true")]);
    let mut chunks = stream.chunks();
    let done = chunks.pop().unwrap();
    assert_eq!((&done["type"], &done["text"]), (&"transcript.text.done".into(), &text.clone().into()));
    let deltas: String = chunks.iter().map(|chunk| chunk["delta"].as_str().unwrap()).collect();
    assert!(chunks.len() > 1 && deltas.trim_end() == text, "{}", stream.body);
}

#[test]
fn doubtful_results_are_tried_again_and_a_seed_repeats_them() {
    let server = server();
    let file = wav(&sound(16_000, 31));
    let first = transcript(&server, &file, &[ENGLISH, VERBOSE, ("seed", "7")]);
    let temperature = segments(&first)[0]["temperature"].as_f64().unwrap();
    assert!((temperature - 1.0).abs() < 1e-6, "random weights are never sure: {temperature}");
    assert_eq!(
        transcript(&server, &file, &[ENGLISH, VERBOSE, ("seed", "7")]).json()["text"],
        first.json()["text"]
    );
}

#[test]
fn a_recording_that_was_heard_before_is_not_encoded_again() {
    let server = server();
    let samples = sound(16_000, 31);
    let first = transcript(&server, &wav(&samples), &[GREEDY, ENGLISH]).json()["text"].clone();
    let runs = server.media().encoder_runs_total;
    let again = transcript(&server, &flac(&samples), &[GREEDY, ENGLISH]).json()["text"].clone();
    assert_eq!((again, server.media().encoder_runs_total), (first, runs));
    transcript(&server, &wav(&sound(16_000, 30)), &[GREEDY, ENGLISH]);
    assert!(server.media().encoder_runs_total > runs);
}

#[test]
fn a_translation_has_another_prompt() {
    let server = server();
    let file = wav(&sound(16_000, 31));
    let reply = post(&server, TRANSLATIONS, &form(&[GREEDY, ("language", "zh"), VERBOSE], Some(&file)));
    assert_eq!((reply.status, &reply.json()["task"]), (200, &"translate".into()), "{}", reply.body);
    let other = transcript(&server, &file, &[GREEDY, ("language", "zh"), VERBOSE]);
    assert_ne!(segments(&reply)[0]["avg_logprob"], segments(&other)[0]["avg_logprob"]);
    let prompted = transcript(&server, &file, &[GREEDY, ("language", "zh"), VERBOSE, ("prompt", "w1 w2")]);
    assert_ne!(segments(&prompted)[0]["avg_logprob"], segments(&other)[0]["avg_logprob"]);
}

#[test]
fn recordings_of_several_clients_are_written_as_if_alone() {
    let files: Vec<Vec<u8>> = (0..4).map(|seed| wav(&sound(30_000 + 1_000 * seed, seed))).collect();
    let alone: Vec<Value> = files
        .iter()
        .map(|file| transcript(&server(), file, &[GREEDY, VERBOSE]).json()["segments"].clone())
        .collect();
    let server = server();
    let together = std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(|| transcript(&server, file, &[GREEDY, VERBOSE]).json()["segments"].clone())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let tokens = |answers: &[Value]| -> Vec<Vec<Value>> {
        let of =
            |answer: &Value| answer.as_array().unwrap().iter().map(|one| one["tokens"].clone()).collect();
        answers.iter().map(of).collect()
    };
    assert_eq!(tokens(&together), tokens(&alone));
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    let server = server();
    let file = wav(&sound(16_000, 31));
    let long = "x".repeat(1 << 20);
    let hostile = b"no recording at all".to_vec();
    type Case<'a> = (&'a str, Vec<(&'a str, &'a str)>, Option<&'a [u8]>);
    let cases: Vec<Case<'_>> = vec![
        ("file", vec![], None),
        ("file", vec![], Some(&hostile)),
        ("file", vec![], Some(b"")),
        ("sound", vec![("sound", "x")], Some(&file)),
        ("response_format", vec![("response_format", "xml")], Some(&file)),
        ("language", vec![("language", "tlh")], Some(&file)),
        ("language", vec![("language", &long)], Some(&file)),
        ("temperature", vec![("temperature", "hot")], Some(&file)),
        ("temperature", vec![("temperature", "1.5")], Some(&file)),
        (WORDS.0, vec![VERBOSE, (WORDS.0, "character")], Some(&file)),
        (WORDS.0, vec![WORDS], Some(&file)),
        ("timestamp_granularities[]", vec![("timestamp_granularities[]", "segment")], Some(&file)),
        ("stream", vec![("stream", "true"), VERBOSE], Some(&file)),
        ("include[]", vec![("include[]", "logprobs")], Some(&file)),
        ("model", vec![("model", "another")], Some(&file)),
    ];
    for (param, fields, file) in cases {
        let reply = post(&server, TRANSCRIPTIONS, &form(&fields, file));
        let wanted = if param == "model" { 404 } else { 400 };
        assert_eq!((reply.status, reply.error()["param"].as_str()), (wanted, Some(param)), "{}", reply.body);
    }
    let json = server.post(TRANSCRIPTIONS, &json!({"file": "x"}));
    assert_eq!(json.status, 415, "{}", json.body);
    for broken in [&b"--edge\r\n"[..], b"", b"--edge\r\n\r\nx\r\n--edge--"] {
        let reply = post(&server, TRANSCRIPTIONS, broken);
        assert_eq!(reply.status, 400, "{}", reply.body);
    }
    let chat = server.post(super::CHAT, &body(&json!("w1"), 4));
    let message = chat.error()["message"].as_str().unwrap().to_owned();
    assert!(chat.status == 400 && message.contains(TRANSCRIPTIONS), "{}", chat.body);
    transcript(&server, &file, &[GREEDY]);
}

#[test]
fn a_model_that_converses_and_hears_writes_down_windows() {
    // Two windows.
    let file = wav(&sound(31 * 16_000, 31));
    for server in [sounds::hearer(), sounds_gemma3n::hearer()] {
        let reply = transcript(&server, &file, &[GREEDY, ("response_format", "json")]);
        assert_eq!(reply.json()["usage"]["seconds"], 31);
        assert_eq!(server.media().encoder_runs_total, 2);
        let reply = post(&server, TRANSCRIPTIONS, &form(&[VERBOSE], Some(&file)));
        assert_eq!(
            (reply.status, reply.error()["param"].as_str()),
            (400, Some("response_format")),
            "{}",
            reply.body
        );
    }
    let deaf = super::refused::blind();
    let reply = post(&deaf, TRANSCRIPTIONS, &form(&[], Some(&file)));
    assert_eq!((reply.status, reply.error()["param"].as_str()), (400, Some("file")), "{}", reply.body);
    assert!(reply.body.contains("whisper"), "{}", reply.body);
}
