//! Every hostile input against servers of their own process: each is refused by its part, and costs no memory that stays.

use std::alloc::System;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use omnibus_engine::Settings;
use omnibus_server::{MediaUrls, Settings as ServerSettings};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use super::files::{Picture, animation, base64, data_url};
use super::sound_files::{sound, wav};
use super::urls::Files;
use super::{CHAT, VisionServer, body, hostile, image_bytes, model, sound_files, sounds, text};

/// Counts what is allocated and freed. The resident size would count what the allocator keeps for its threads, too, which
/// depends on how many there are and on which of them decodes.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NAME: &str = "media::hostile_inputs::hostile_media_are_refused_by_their_part_and_memory_stays_flat";
/// Bytes that the process may ever have in use beyond those of idle servers: smaller than any decompression bomb here.
const PEAK_BYTES_MAX: u64 = 768 << 20;
/// Rounds of all inputs after the first.
const LATER_ROUNDS: usize = 6;
/// Bytes that each of the later rounds may add on average: less than any of the files here, once decoded.
const GROWTH_BYTES_MAX: usize = 64 << 10;

/// An input: what it is, the part of a message, and the field that the refusal names.
struct Hostile {
    name: String,
    part: Value,
    field: &'static str,
}

fn part(kind: &str, bytes: &[u8]) -> (Value, &'static str) {
    match kind {
        "image" => (image_bytes("image/png", bytes), "image_url.url"),
        "video" => (
            json!({"type": "video_url", "video_url": {"url": data_url("video/mp4", bytes)}}),
            "video_url.url",
        ),
        _ => (
            json!({"type": "input_audio", "input_audio": {"data": base64(bytes), "format": "wav"}}),
            "input_audio.data",
        ),
    }
}

fn of(kind: &str, inputs: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<Hostile> {
    let input = |(name, bytes): (String, Vec<u8>)| {
        let (part, field) = part(kind, &bytes);
        Hostile { name: format!("{kind}: {name}"), part, field }
    };
    inputs.into_iter().map(input).collect()
}

fn named<const N: usize>(inputs: [(&str, Vec<u8>); N]) -> Vec<(String, Vec<u8>)> {
    inputs.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

/// A file of the tests of `media`.
fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../media/tests/fixtures").join(name)).unwrap()
}

/// The file with one four-letter box named otherwise.
fn renamed(name: &str, from: &[u8; 4], to: &[u8; 4]) -> Vec<u8> {
    let mut bytes = fixture(name);
    let at = bytes.windows(4).position(|window| window == from).unwrap();
    bytes[at..at + 4].copy_from_slice(to);
    bytes
}

fn cut(name: &str, share: f64) -> Vec<u8> {
    let bytes = fixture(name);
    bytes[..(bytes.len() as f64 * share) as usize].to_vec()
}

/// A GIF of so many frames of this size, each of one code, shown for half a second.
fn gif_bomb(side: u16, frames: usize) -> Vec<u8> {
    let [low, high] = side.to_le_bytes();
    let frame =
        [b"!\xF9\x04\0\x32\0\0\0,\0\0\0\0".as_slice(), &[low, high, low, high], b"\0\x02\x02\x44\x01\0"];
    hostile::gif(side, side, &[frame.concat().repeat(frames), b";".to_vec()].concat())
}

fn videos() -> Vec<Hostile> {
    let frames: Vec<Picture> = (0..3).map(|seed| Picture::new(40, 40, seed)).collect();
    let apng = animation(&frames);
    of(
        "video",
        named([
            ("nothing", vec![]),
            ("text", b"hello, this is no video".to_vec()),
            ("a playlist", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n".to_vec()),
            ("a list of files", b"ffconcat version 1.0\nfile /etc/passwd\n".to_vec()),
            ("a sound", wav(&sound(2_000, 1))),
            ("MP4 header only", fixture("video/b_frames.mp4")[..32].to_vec()),
            ("MP4 cut in half", cut("video/b_frames.mp4", 0.1)),
            ("MP4 without its index", renamed("video/b_frames.mp4", b"moov", b"free")),
            ("MP4 without decoder parameters", renamed("video/b_frames.mp4", b"avcC", b"free")),
            ("MP4 with only sound", fixture("sound/sine.m4a")),
            ("Matroska cut at its header", fixture("video/high.mkv")[..200].to_vec()),
            ("GIF without frames", hostile::gif(16, 16, b";")),
            ("GIF of 65,535x65,535", gif_bomb(u16::MAX, 1)),
            ("GIF of 700 frames of 2,000x2,000", gif_bomb(2_000, 700)),
            ("PNG of 30,000x30,000", hostile::png(30_000, 30_000, 8, 2, b"x")),
            ("animated PNG cut in its first frame", apng[..apng.len() / 6].to_vec()),
            ("WebP of 16,777,216x16,777,216", hostile::webp_of(1 << 24, 1 << 24)),
            ("AVI without ffmpeg", b"RIFF\x04\0\0\0AVI ".to_vec()),
            ("MPEG transport stream of zeros", [vec![b'G'], vec![0; 187], vec![b'G'], vec![0; 187]].concat()),
        ]),
    )
}

/// Files that are two things at once, and files of another kind than their part.
fn confused() -> Vec<Hostile> {
    let png = Picture::one().png();
    let mut all = of(
        "image",
        named([
            ("a script that begins as GIF", b"GIF89a=1;/*\0\0\0\0*/alert(1)".to_vec()),
            ("a page that begins as BMP", b"BM<html><script>alert(1)</script></html>".to_vec()),
            ("a ZIP with a PNG in it", [b"PK\x03\x04".as_slice(), &png].concat()),
            ("a PDF with a PNG in it", [b"%PDF-1.7\n".as_slice(), &png].concat()),
            ("a WebP that is a sound", b"RIFF\x24\0\0\0WEBPfmt \x10\0\0\0".to_vec()),
            ("a sound", wav(&sound(2_000, 1))),
            ("a video", fixture("video/b_frames.mp4")),
            ("a picture of one row and 16,384 columns", Picture::new(16_384, 1, 1).png()),
        ]),
    );
    let url = |name: &str, url: &str| Hostile {
        name: name.to_owned(),
        part: json!({"type": "image_url", "image_url": {"url": url}}),
        field: "image_url.url",
    };
    all.extend([
        url("a data URL without base64", "data:image/png,%89PNG"),
        url("a data URL of no base64", "data:image/png;base64,****"),
        url("a data URL without a comma", "data:image/png;base64"),
        url("a URL of FTP", "ftp://example.com/a.png"),
        url("a script as URL", "javascript:alert(1)"),
        url("a path as URL", "/etc/passwd"),
        url("no URL", ""),
    ]);
    all.push(Hostile {
        name: "a sound of no base64".to_owned(),
        part: json!({"type": "input_audio", "input_audio": {"data": "%%", "format": "wav"}}),
        field: "input_audio.data",
    });
    all
}

fn urls(files: &Files) -> Vec<Hostile> {
    let hosts = [
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "http://127.0.0.1/one.png",
        "http://10.0.0.1/one.png",
        "http://192.168.1.1/one.png",
        "http://[::1]/one.png",
        "http://[::ffff:127.0.0.1]/one.png",
        "http://2130706433/one.png",
        "http://0x7f.1/one.png",
        "http://0.0.0.0/one.png",
        "http://metadata.google.internal",
        "https://example.com/a.png",
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
    ];
    let paths = [
        "/page.html",
        "/zipped.png",
        "/large.png",
        "/endless.png",
        "/loop.png",
        "/to-metadata.png",
        "/to-file.png",
        "/to-port.png",
        "/none.png",
        "/slow.png",
    ];
    let own = paths.map(|path| files.url(path));
    let with_password = format!("http://a:b@{}/one.png", files.address());
    let all = hosts.map(str::to_owned).into_iter().chain(own).chain([with_password]);
    let input = |url: String| Hostile {
        part: json!({"type": "image_url", "image_url": {"url": url}}),
        name: url,
        field: "image_url.url",
    };
    all.map(input).collect()
}

fn check(server: &VisionServer, inputs: &[Hostile]) {
    for Hostile { name, part, field } in inputs {
        let reply = server.post(CHAT, &body(&json!([text("w1"), part]), 1));
        assert!((400..500).contains(&reply.status), "{name}: {} {}", reply.status, reply.body);
        let wanted = format!("messages[0].content[1].{field}");
        assert_eq!(reply.error()["param"], *wanted, "{name}: {}", reply.body);
    }
}

/// More parts than a request may have: a list of frames without end.
fn check_counts(server: &VisionServer) -> usize {
    let frame = image_bytes("image/png", &Picture::new(20, 20, 1).png());
    let frames = vec![frame; 129];
    let reply = server.post(CHAT, &body(&Value::Array(frames), 1));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(reply.error()["param"], "messages[0].content[128].image_url.url", "{}", reply.body);
    1
}

/// The most bytes of memory that this process ever had in use, where that can be read.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Bytes allocated and not freed.
pub fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Whether this process runs the test of this name alone, so that its memory is that of nothing else. Runs it in such a process
/// where it does not.
pub fn is_alone(name: &str) -> bool {
    if ["--exact", name].iter().all(|wanted| std::env::args().any(|given| given == *wanted)) {
        return true;
    }
    let test = std::env::current_exe().unwrap();
    let alone = Command::new(test).args(["--exact", name, "--nocapture"]).output().unwrap();
    let printed = [alone.stdout, alone.stderr].concat();
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&printed));
    false
}

#[test]
fn hostile_media_are_refused_by_their_part_and_memory_stays_flat() {
    if !is_alone(NAME) {
        return;
    }
    let files = Files::new();
    let allowed = MediaUrls::new(&[files.address().to_string()], &[]).unwrap();
    let media_urls = allowed.within(200_000, Duration::from_millis(200));
    let sees = VisionServer::of(
        &model::directory(),
        Settings::default(),
        ServerSettings { media_urls, ..ServerSettings::default() },
    );
    let hears = sounds::server(Settings::default());
    let pictures = hostile::inputs().into_iter().map(|(name, bytes)| (name.to_owned(), bytes));
    let seen = [of("image", pictures), videos(), confused(), urls(&files)];
    let heard = of("sound", sound_files::hostile());
    let ask = |server: &VisionServer| server.answer(&json!("w1 w2 w3")).exact();
    let expected = [ask(&sees), ask(&hears)];
    let round = || {
        seen.iter().for_each(|inputs| check(&sees, inputs));
        check(&hears, &heard);
        let count = seen.iter().map(Vec::len).sum::<usize>() + heard.len() + check_counts(&sees);
        assert_eq!([ask(&sees), ask(&hears)], expected);
        count
    };
    let idle = peak();
    let count = round();
    assert!(count >= 80, "{count}");
    let before = live();
    for _ in 0..LATER_ROUNDS {
        assert_eq!(round(), count);
    }
    let growth = live().saturating_sub(before) / LATER_ROUNDS;
    let peak = peak().zip(idle).map_or(0, |(peak, idle)| peak - idle);
    println!("{count} inputs; {peak} bytes at most; each later round added {growth}");
    assert!(peak <= PEAK_BYTES_MAX && growth <= GROWTH_BYTES_MAX, "{peak} bytes; {growth} a round");
    assert_eq!(sees.media().encoder_runs_total + hears.media().encoder_runs_total, 0);
}
