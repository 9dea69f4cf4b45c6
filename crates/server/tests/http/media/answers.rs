//! Answers are those of the reference, however the picture comes and however the prompt is cut.

use std::process::Command;

use image::ImageFormat;
use omnibus_engine::Settings;
use serde_json::{Value, json};

use super::files::{Picture, animation, data_url};
use super::model::{Golden, words};
use super::{Answer, CHAT, VisionServer, body, image, image_bytes, text};

/// Largest distance of a log-probability from the reference's.
const BOUND: f32 = 2e-3;

fn settings(step_tokens: usize) -> Settings {
    Settings { max_num_batched_tokens: Some(step_tokens), block_size: 8, ..Settings::default() }
}

/// The pictures of a golden case.
fn pictures(case: &str) -> Vec<Picture> {
    match case {
        "one" => vec![Picture::one()],
        "two" => vec![Picture::new(300, 180, 12), Picture::new(33, 90, 13)],
        "same" | "turns" => vec![Picture::one(), Picture::one()],
        _ => Vec::new(),
    }
}

/// The parts of a golden prompt and so many of the tokens behind it.
pub fn content(golden: &Golden, case: &str, behind: usize) -> Value {
    const START: i32 = 130;
    const END: i32 = 131;
    let mut tokens = golden.tokens("prompt", case);
    tokens.extend(&golden.tokens("decode", case)[..behind]);
    let (mut parts, mut pictures) = (Vec::new(), pictures(case).into_iter());
    for piece in tokens.split_inclusive(|token| *token == END) {
        let (words_before, picture) = match piece.iter().position(|token| *token == START) {
            Some(at) => (&piece[..at], pictures.next()),
            None => (piece, None),
        };
        parts.push(text(&words(words_before)));
        parts.extend(picture.as_ref().map(image));
    }
    Value::Array(parts)
}

fn check_first(answer: &Answer, expected: &[f32], what: &str) {
    for (id, logprob) in answer.first() {
        let wanted = expected[id as usize];
        assert!((logprob - wanted).abs() < BOUND, "{what}: token {id} has {logprob}, not {wanted}");
    }
    let best = expected.iter().copied().fold(f32::MIN, f32::max);
    assert!((answer.first()[0].1 - best).abs() < BOUND, "{what}");
}

#[test]
fn answers_are_those_of_the_reference_in_chunks_of_any_size() {
    let golden = Golden::read();
    for step_tokens in [512, 5, 3] {
        let server = VisionServer::new(settings(step_tokens));
        for case in ["one", "two", "text", "same", "turns"] {
            for behind in [0, 4] {
                let answer = server.answer(&content(&golden, case, behind));
                let what = format!("{case} and {behind} in steps of {step_tokens}");
                check_first(&answer, &golden.logprobs(case, behind), &what);
            }
        }
        assert_eq!(server.media().encoder_runs_total, 3, "one for each different picture");
    }
}

#[test]
fn videos_are_seen_as_the_reference_sees_them() {
    let golden = Golden::read();
    let server = VisionServer::new(settings(24));
    let frames: Vec<Picture> = (0..5).map(|frame| Picture::new(60, 40, 21 + frame)).collect();
    let url = data_url("video/apng", &animation(&frames));
    let tokens = golden.tokens("prompt", "video");
    let last = tokens.iter().rposition(|token| *token == 131).unwrap();
    // The processor writes a time before each part.
    let first = tokens.iter().position(|token| *token < 64).unwrap();
    let content = json!([
        text(&words(&tokens[..first])),
        {"type": "video_url", "video_url": {"url": url}},
        text(&words(&tokens[last + 1..])),
    ]);
    for _ in 0..2 {
        check_first(&server.answer(&content), &golden.logprobs("video", 0), "video");
    }
    let stats = server.media();
    assert_eq!((stats.encoder_runs_total, stats.prefix_hits_total), (1, 1));
    // An animation sent as a picture is its first frame.
    let picture = server.answer(&json!([image_bytes("image/png", &animation(&frames)), text("w1")]));
    assert_eq!(picture.exact(), server.answer(&json!([image(&frames[0]), text("w1")])).exact());
}

#[test]
fn a_list_of_frames_is_the_video_that_it_is() {
    let server = VisionServer::new(settings(24));
    let frames: Vec<Picture> = (0..5).map(|frame| Picture::new(60, 40, 21 + frame)).collect();
    let of = |part: Value| server.answer(&json!([part, text("w1")])).exact();
    let whole =
        of(json!({"type": "video_url", "video_url": {"url": data_url("video/apng", &animation(&frames))}}));
    let urls: Vec<String> = frames.iter().map(|frame| data_url("image/png", &frame.png())).collect();
    let bodies = urls.iter().filter_map(|url| Some(url.split_once(',')?.1.to_owned()));
    let joined = format!("data:video/jpeg;base64,{}", bodies.collect::<Vec<_>>().join(","));
    // Half a second each, as in the animation.
    assert_eq!(of(json!({"type": "video", "video": urls})), whole);
    assert_eq!(
        of(
            json!({"type": "video", "fps": 2, "video": urls.iter().map(|url| json!({"url": url})).collect::<Vec<_>>()})
        ),
        whole
    );
    assert_eq!(of(json!({"type": "video_url", "video_url": {"url": joined}})), whole);
    assert_eq!(server.media().encoder_runs_total, 1, "their pixels and times are the same");
    assert_ne!(of(json!({"type": "video", "fps": 1, "video": urls})), whole, "times are others");
}

#[test]
fn wrong_lists_of_frames_are_refused_by_their_field() {
    let server = VisionServer::new(settings(24));
    let url = |side: u32| data_url("image/png", &Picture::new(side, 40, 1).png());
    let cases = [
        (json!({"type": "video", "video": []}), "video", "1 to 4096"),
        (json!({"type": "video", "video": [url(60), 7]}), "video[1]", "a URL"),
        (json!({"type": "video", "video": [url(60), "ftp://a/b"]}), "video[1]", "data:"),
        (json!({"type": "video", "fps": 0, "video": [url(60)]}), "fps", "between"),
        (json!({"type": "video", "video": [url(60), url(64), url(60), url(60)]}), "video", "different sizes"),
        (
            json!({"type": "video", "video": [url(60), "data:image/png;base64,AAAA", url(60), url(60)]}),
            "video",
            "frame 1: ",
        ),
        (
            json!({"type": "video", "video": [url(60), "https://example.com/a.png"]}),
            "video",
            "--allow-media-domain",
        ),
    ];
    for (part, field, why) in cases {
        let reply = server.post(CHAT, &body(&json!([part, text("w1")]), 1));
        let at = format!("messages[0].content[0].{field}");
        assert_eq!(
            (reply.status, reply.error()["param"].as_str()),
            (400, Some(at.as_str())),
            "{}",
            reply.body
        );
        assert!(reply.body.contains(why), "{why}: {}", reply.body);
    }
}

/// Runs where an ffmpeg is on the search path.
#[test]
fn a_video_without_a_library_is_seen_through_ffmpeg_alone() {
    let encoder = Command::new("ffmpeg").arg("-version").output();
    if encoder.is_err() {
        return println!("skipped: there is no ffmpeg");
    }
    let folder = tempfile::tempdir().unwrap();
    let [png, avi] = ["frames.png", "video.avi"].map(|name| folder.path().join(name));
    let frames: Vec<Picture> = (0..5).map(|frame| Picture::new(60, 40, 21 + frame)).collect();
    std::fs::write(&png, animation(&frames)).unwrap();
    let lossless = ["-c:v", "ffv1", "-pix_fmt", "bgr0", "-fps_mode", "passthrough"];
    let encoded = Command::new("ffmpeg").arg("-i").arg(&png).args(lossless).arg(&avi).output().unwrap();
    assert!(encoded.status.success(), "{}", String::from_utf8_lossy(&encoded.stderr));
    let video = |mime: &str, bytes: &[u8]| json!([{"type": "video_url", "video_url": {"url": data_url(mime, bytes)}}, text("w1")]);
    let avi = std::fs::read(&avi).unwrap();
    let refused = VisionServer::new(settings(24)).post(CHAT, &body(&video("video/x-msvideo", &avi), 4));
    assert_eq!(refused.status, 400, "{}", refused.body);
    let server = VisionServer::new(Settings { ffmpeg: Some("ffmpeg".into()), ..settings(24) });
    let expected = server.answer(&video("video/apng", &animation(&frames)));
    assert_eq!(server.answer(&video("video/x-msvideo", &avi)).exact(), expected.exact());
}

/// Runs where an ffmpeg that encodes AV1 is on the search path.
#[test]
fn a_picture_in_avif_is_seen_through_ffmpeg_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [png, avif] = ["picture.png", "picture.avif"].map(|name| folder.path().join(name));
    let picture = Picture::new(60, 40, 21);
    std::fs::write(&png, picture.png()).unwrap();
    let lossless =
        ["-c:v", "libaom-av1", "-still-picture", "1", "-pix_fmt", "gbrp", "-aom-params", "lossless=1"];
    let encoded = Command::new("ffmpeg").arg("-i").arg(&png).args(lossless).arg(&avif).output();
    if !encoded.is_ok_and(|encoded| encoded.status.success()) {
        return println!("skipped: there is no ffmpeg with libaom");
    }
    let avif = std::fs::read(&avif).unwrap();
    let asked = |bytes: &[u8]| json!([text("w1"), image_bytes("image/avif", bytes), text("w2")]);
    let refused = VisionServer::new(settings(24)).post(CHAT, &body(&asked(&avif), 4));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("an AVIF image") && refused.body.contains("--ffmpeg"), "{}", refused.body);
    let server = VisionServer::new(Settings { ffmpeg: Some("ffmpeg".into()), ..settings(24) });
    let expected = server.answer(&json!([text("w1"), image(&picture), text("w2")])).exact();
    assert_eq!(server.answer(&asked(&avif)).exact(), expected);
    let place = avif.windows(4).position(|window| window == b"pixi").unwrap();
    let mut turned = avif.clone();
    turned[place..place + 4].copy_from_slice(b"irot");
    for (bytes, says) in [(turned.as_slice(), "a rotation"), (&avif[..avif.len() / 2], "ffmpeg")] {
        let refused = server.post(CHAT, &body(&asked(bytes), 4));
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains(says), "{}", refused.body);
    }
}

/// A token that is decoded is at the position that it has in a prompt.
#[test]
fn decoding_behind_a_picture_continues_its_positions() {
    let golden = Golden::read();
    let server = VisionServer::new(settings(512));
    let mut parts = content(&golden, "two", 0);
    let answer = server.answer(&parts).text();
    for (index, token) in answer.iter().enumerate() {
        assert_eq!(&server.answer(&parts).text()[0], token, "token {index}");
        parts.as_array_mut().unwrap().push(text(&format!(" {token}")));
    }
}

#[test]
fn equal_pixels_in_other_files_are_the_same_picture() {
    let server = VisionServer::new(settings(512));
    let question = |mime: &str, bytes: &[u8]| json!([text("w1 w2"), image_bytes(mime, bytes), text("w3")]);
    let picture = Picture::one();
    let expected = server.answer(&question("image/png", &picture.png())).exact();
    for format in [ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP] {
        // The type that the client names counts for nothing.
        let found = server.answer(&question("image/jpeg", &picture.file(format)));
        assert_eq!(found.exact(), expected, "{format:?}");
        assert!(found.cached_tokens() > 0, "{format:?}");
    }
    assert_eq!(server.media().encoder_runs_total, 1);
}

/// Rows of one step that see, that see another picture, and that see none.
#[test]
fn a_batch_gives_each_row_its_own_answer() {
    let golden = Golden::read();
    let contents = ["one", "two", "text", "turns"].map(|case| content(&golden, case, 0));
    let alone = VisionServer::new(settings(512));
    let expected = contents.clone().map(|content| alone.answer(&content).text());
    let server = VisionServer::new(settings(24));
    let threads = contents.map(|content| {
        let address = server.address;
        std::thread::spawn(move || super::client::post(address, CHAT, &body(&content, 4).to_string()))
    });
    let found = threads.map(|thread| Answer(thread.join().unwrap().json()).text());
    assert_eq!(found, expected);
}

#[test]
fn several_answers_to_one_picture_share_its_features() {
    let server = VisionServer::new(settings(512));
    let mut request = body(&json!([image(&Picture::one()), text("w3")]), 2);
    request["n"] = 3.into();
    let reply = server.post(CHAT, &request);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["choices"].as_array().unwrap().len(), 3);
    assert_eq!(server.media().encoder_runs_total, 1);
}
