//! Requests whose media are still fetched or decoded count for the limit of the queue.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use omnibus_engine::Settings;
use omnibus_server::{MediaUrls, Settings as ServerSettings};
use serde_json::{Value, json};

use super::client::{self, Reply};
use super::files::{Picture, data_url};
use super::{CHAT, VisionServer, body, image, model, text};

const QUEUE: usize = 2;

fn server(settings: Settings, urls: MediaUrls) -> VisionServer {
    let settings = Settings { max_queue: QUEUE, ..settings };
    VisionServer::of(
        &model::directory(),
        settings,
        ServerSettings { media_urls: urls, ..ServerSettings::default() },
    )
}

fn sent(server: &VisionServer, content: Value) -> std::thread::JoinHandle<Reply> {
    let address = server.address;
    std::thread::spawn(move || client::post(address, CHAT, &body(&content, 1).to_string()))
}

fn is_refused(server: &VisionServer, content: &Value) {
    let reply = server.post(CHAT, &body(content, 1));
    assert_eq!(reply.status, 429, "{}", reply.body);
    assert!(reply.header("retry-after").is_some());
}

fn video(bytes: &[u8]) -> Value {
    json!({"type": "video_url", "video_url": {"url": data_url("video/x-msvideo", bytes)}})
}

/// A program in the place of ffmpeg that says that it has begun, and ends once a line is written to its gate.
fn slow_decoder(folder: &Path) -> (Settings, File) {
    let [program, started, gate] = ["decoder", "started", "gate"].map(|name| folder.join(name));
    let script =
        format!("#!/bin/sh\necho >> {}\nread line < {}\nexit 1\n", started.display(), gate.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&started, "").unwrap();
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    // Open for both, so that it waits for no reader.
    let gate = File::options().read(true).write(true).open(&gate).unwrap();
    (Settings { ffmpeg: Some(program), ..Settings::default() }, gate)
}

#[test]
fn a_flood_of_slow_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, mut gate) = slow_decoder(folder.path());
    let server = server(settings, MediaUrls::default());
    let slow =
        |number: u8| json!([text("w1"), video(&[b"RIFF\x04\0\0\0AVI ".as_slice(), &[number]].concat())]);
    let held: Vec<_> = (0..QUEUE as u8).map(|number| sent(&server, slow(number))).collect();
    while std::fs::read(folder.path().join("started")).unwrap().len() < QUEUE {
        std::thread::yield_now();
    }
    is_refused(&server, &slow(9));
    is_refused(&server, &json!("w1 w2"));
    let reply = server.post("/tokenize", &json!({"messages": [{"role": "user", "content": slow(9)}]}));
    assert_eq!(reply.status, 429, "{}", reply.body);
    std::io::Write::write_all(&mut gate, "\n".repeat(QUEUE).as_bytes()).unwrap();
    for reply in held {
        let reply = reply.join().unwrap();
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_eq!(reply.error()["param"], "messages[0].content[1].video_url.url", "{}", reply.body);
    }
    server.answer(&json!("w1 w2"));
}

#[test]
fn a_flood_of_large_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, mut gate) = slow_decoder(folder.path());
    let settings = Settings { media_files_memory: 10_000, ..settings };
    let server = VisionServer::of(&model::directory(), settings, ServerSettings::default());
    let file = |bytes: usize| video(&[b"RIFF\x04\0\0\0AVI ".as_slice(), &vec![0; bytes]].concat());
    let held = sent(&server, json!([text("w1"), file(6_000)]));
    while std::fs::read(folder.path().join("started")).unwrap().is_empty() {
        std::thread::yield_now();
    }
    is_refused(&server, &json!([text("w1"), file(6_001)]));
    is_refused(&server, &json!([text("w1"), file(2_000), file(2_001)]));
    server.answer(&json!([text("w1"), image(&Picture::new(20, 20, 1))]));
    let reply = server.post(CHAT, &body(&json!([text("w1"), file(5_000), file(6_000)]), 1));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(reply.error()["param"], "messages[0].content[2].video_url.url", "{}", reply.body);
    std::io::Write::write_all(&mut gate, "\n".repeat(2).as_bytes()).unwrap();
    for reply in [held.join().unwrap(), server.post(CHAT, &body(&json!([text("w1"), file(6_001)]), 1))] {
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_eq!(reply.error()["param"], "messages[0].content[1].video_url.url", "{}", reply.body);
    }
}

/// A server that answers nothing: its address, and its connections.
fn slow_server() -> (SocketAddr, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, connections) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if arrived.send(stream.unwrap()).is_err() {
                return;
            }
        }
    });
    (address, connections)
}

#[test]
fn a_flood_of_slow_servers_is_refused() {
    let (address, connections) = slow_server();
    let urls = MediaUrls::new(&[address.to_string()], &[]).unwrap();
    let server = server(Settings::default(), urls.within(1 << 20, Duration::from_secs(60)));
    let url = format!("http://{address}/a.png");
    let slow = json!([text("w1"), {"type": "image_url", "image_url": {"url": url}}]);
    let held: Vec<_> = (0..QUEUE).map(|_| sent(&server, slow.clone())).collect();
    let arrived: Vec<TcpStream> = connections.iter().take(QUEUE).collect();
    is_refused(&server, &slow);
    is_refused(&server, &json!("w1 w2"));
    drop((arrived, connections));
    for reply in held {
        let reply = reply.join().unwrap();
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_eq!(reply.error()["param"], "messages[0].content[1].image_url.url", "{}", reply.body);
    }
    server.answer(&json!("w1 w2"));
}
