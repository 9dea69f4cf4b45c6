//! Media at URLs: from where they come, and from where they do not.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use omnibus_engine::Settings;
use omnibus_server::MediaUrls;
use serde_json::{Value, json};

use super::files::Picture;
use super::{CHAT, VisionServer, body, image, model, text};

const FIELD: &str = "messages[0].content[1].image_url.url";

/// A server of files that counts its requests. It never ends.
pub struct Files {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Files {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    // The client may have left.
                    _ = stream.write_all(&response(&path, address));
                    if path == "/slow.png" {
                        std::thread::park();
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn response(path: &str, address: SocketAddr) -> Vec<u8> {
    let of = |status: &str, headers: &str, body: &[u8]| {
        let length = body.len();
        let mut bytes =
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n")
                .into_bytes();
        bytes.extend_from_slice(body);
        bytes
    };
    let to = |url: &str| of("302 Found", &format!("location: {url}\r\n"), b"");
    let png = Picture::one().png();
    match path {
        "/one.png" => of("200 OK", "content-type: image/png\r\n", &png),
        "/page.html" => of("200 OK", "content-type: text/html\r\n", b"<html>"),
        "/zipped.png" => of("200 OK", "content-encoding: gzip\r\ncontent-type: image/png\r\n", &png),
        "/large.png" => of("200 OK", "content-type: image/png\r\n", &vec![0; 300_000]),
        "/endless.png" => {
            // More than it says, so that only the count of bytes ends it.
            let mut bytes =
                b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\nconnection: close\r\n\r\n".to_vec();
            bytes.resize(400_000, 0);
            bytes
        }
        "/slow.png" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\ncontent-type: image/png\r\n\r\n".to_vec(),
        "/moved.png" => to("/one.png"),
        "/loop.png" => to("/loop.png"),
        "/to-metadata.png" => to("http://169.254.169.254/latest/meta-data"),
        "/to-file.png" => to("file:///etc/passwd"),
        "/to-port.png" => {
            to(&format!("http://127.0.0.1:{}/one.png", address.port().wrapping_add(1).max(1024)))
        }
        _ => of("404 Not Found", "", b""),
    }
}

fn server(urls: MediaUrls) -> VisionServer {
    let settings = omnibus_server::Settings { media_urls: urls, ..omnibus_server::Settings::default() };
    VisionServer::of(&model::directory(), Settings::default(), settings)
}

fn part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn refused(server: &VisionServer, url: &str, says: &str) {
    let reply = server.post(CHAT, &body(&json!([text("w1"), part(url)]), 1));
    assert_eq!(reply.status, 400, "{url}: {}", reply.body);
    let error = reply.error();
    assert_eq!(error["param"], FIELD, "{url}: {error}");
    assert!(error["message"].as_str().unwrap().contains(says), "{url}: {error}");
}

#[test]
fn images_come_from_allowed_domains_only() {
    let files = Files::new();
    let urls = MediaUrls::new(&[files.address.to_string()], &[]).unwrap();
    let urls = urls.within(200_000, Duration::from_secs(60));
    let server = server(urls);
    let expected = server.answer(&json!([text("w1"), image(&Picture::one())])).exact();
    for path in ["/one.png", "/moved.png"] {
        assert_eq!(server.answer(&json!([text("w1"), part(&files.url(path))])).exact(), expected, "{path}");
    }
    for (path, says) in [
        ("/page.html", "text/html"),
        ("/zipped.png", "compressed"),
        ("/large.png", "more than 200000 bytes"),
        ("/endless.png", "more than 200000 bytes"),
        ("/loop.png", "more than 3 times"),
        ("/to-metadata.png", "not allowed"),
        ("/to-file.png", "without a host"),
        ("/to-port.png", "not allowed"),
        ("/none.png", "404"),
    ] {
        refused(&server, &files.url(path), says);
    }
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "https://example.com/a.png",
        "http://127.0.0.1/one.png",
        "http://[::1]/one.png",
        "http://2130706433/one.png",
    ] {
        refused(&server, url, "not allowed");
    }
    refused(&server, &format!("http://a:b@{}/one.png", files.address), "password");
    refused(&server, "file:///etc/passwd", "--allow-media-dir");
    server.answer(&json!([text("w1"), image(&Picture::one())]));
}

#[test]
fn a_slow_server_is_not_waited_for() {
    let files = Files::new();
    let urls = MediaUrls::new(&[files.address.to_string()], &[]).unwrap();
    let server = server(urls.within(200_000, Duration::from_millis(10)));
    refused(&server, &files.url("/slow.png"), "within 0.01 s");
}

/// A name that leads to this machine is no way around the list of addresses.
#[test]
fn names_with_private_addresses_are_not_fetched() {
    let files = Files::new();
    let name = format!("localhost:{}", files.address.port());
    let server = server(MediaUrls::new(std::slice::from_ref(&name), &[]).unwrap());
    refused(&server, &format!("http://{name}/one.png"), "private network");
    assert_eq!(files.requests(), 0);
}

#[test]
fn nothing_is_fetched_by_default() {
    let files = Files::new();
    let server = server(MediaUrls::default());
    refused(&server, &files.url("/one.png"), "--allow-media-domain");
    assert_eq!(files.requests(), 0);
}

#[test]
fn files_come_from_allowed_directories_only() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("media-files");
    let (inside, outside) = (folder.join("inside"), folder.join("outside"));
    for directory in [&inside, &outside] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let png = Picture::one().png();
    std::fs::write(inside.join("a b.png"), &png).unwrap();
    std::fs::write(outside.join("c.png"), &png).unwrap();
    _ = std::fs::remove_file(inside.join("link.png"));
    std::os::unix::fs::symlink(outside.join("c.png"), inside.join("link.png")).unwrap();
    let server = server(MediaUrls::new(&[], std::slice::from_ref(&inside)).unwrap());
    let url = |path: &str| format!("file://{}/{path}", inside.display());
    let expected = server.answer(&json!([text("w1"), image(&Picture::one())])).exact();
    assert_eq!(server.answer(&json!([text("w1"), part(&url("a%20b.png"))])).exact(), expected);
    let frames = |urls: &[String]| json!([text("w1"), {"type": "video", "video": urls}]);
    let here = super::files::data_url("image/png", &png);
    let expected = server.answer(&frames(&[here.clone(), here.clone()])).exact();
    assert_eq!(server.answer(&frames(&[url("a%20b.png"), here.clone()])).exact(), expected);
    let reply = server.post(CHAT, &body(&frames(&[here, url("link.png")]), 1));
    let refusal = (reply.status, reply.error()["param"].clone());
    assert_eq!(refusal, (400, "messages[0].content[1].video".into()), "{}", reply.body);
    for path in ["../outside/c.png", "link.png", "none.png", "", "%2e%2e/outside/c.png"] {
        refused(&server, &url(path), "allowed directories");
    }
    refused(&server, "file:///etc/passwd", "allowed directories");
    refused(&server, "http://127.0.0.1/one.png", "--allow-media-domain");
}
