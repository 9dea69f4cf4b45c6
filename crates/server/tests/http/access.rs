//! Hosts and origins of requests: browsers' pages, DNS rebinding, preflights, and UNIX sockets.

use std::os::unix::net::UnixStream;

use super::client::{JSON, Reply, exchange, exchange_on, request};
use super::refusals::check_works;
use super::{Server, server, server_on, server_with, server_with_keys};
use omnibus_server::{Access, AllowedHosts, AllowedOrigins, Listeners, RootPath, Settings};

const CHAT: &str = "/v1/chat/completions";
const HI: &[u8] = br#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}"#;

/// A request with these headers alone.
fn raw(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(request(method, path, headers, body)).unwrap();
    text.replacen("host: localhost\r\n", "", 1).into_bytes()
}

fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    exchange(server.address, &raw(method, path, headers, body)).unwrap()
}

fn with(hosts: &[&str], origins: &[&str]) -> Settings {
    let of = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    let access = Access {
        hosts: AllowedHosts::new(of(hosts)).unwrap(),
        origins: AllowedOrigins::new(of(origins)).unwrap(),
    };
    Settings { access, ..Settings::default() }
}

/// No request has reached the engine.
fn check_nothing_ran(server: &Server) {
    assert!(server.request_events.try_recv().is_err());
}

#[test]
fn a_request_for_another_host_is_refused_on_every_route() {
    let server = server();
    for (method, path) in [
        ("POST", CHAT),
        ("GET", "/health"),
        ("GET", "/v1/models"),
        ("OPTIONS", CHAT),
        ("GET", "/none"),
        ("GET", "/v1/stream"),
    ] {
        for host in ["evil.example", "localhost.evil.example:8000", "192.168.7.7", "a b", "x@localhost"] {
            let reply = ask(&server, method, path, &[("host", host), JSON], HI);
            assert_eq!(reply.status, 403, "{method} {path} {host}: {}", reply.body);
            assert_eq!(reply.error()["code"], "host_not_allowed", "{host}");
            assert!(reply.header("x-request-id").is_some());
            assert!(reply.header("access-control-allow-origin").is_none());
        }
    }
    check_nothing_ran(&server);
    check_works(server.address, "a foreign host");
}

#[test]
fn a_host_counts_wherever_a_request_names_it() {
    let server = server();
    let lines =
        |head: &str| exchange(server.address, format!("{head}\r\nconnection: close\r\n\r\n").as_bytes());
    let status = |head: &str| lines(head).map(|reply| reply.status);
    assert_eq!(status("GET /ready HTTP/1.1\r\nhost: localhost\r\nhost: evil.example"), Some(403));
    assert_eq!(status("GET http://evil.example/ready HTTP/1.1\r\nhost: localhost"), Some(403));
    assert_eq!(status("GET http://localhost/ready HTTP/1.1\r\nhost: localhost"), Some(200));
    assert_eq!(status("GET /ready HTTP/1.0"), Some(200), "no browser leaves it out");
    for own in ["localhost:1", "127.0.0.1", "[::1]:8000", "LocalHost", "a.localhost", ""] {
        assert_eq!(ask(&server, "GET", "/ready", &[("host", own)], b"").status, 200, "{own}");
    }
}

#[test]
fn errors_of_foreign_requests_have_the_format_of_their_api() {
    let server = server();
    let reply = ask(&server, "POST", "/v1/messages", &[("host", "evil.example"), JSON], HI);
    assert_eq!((reply.status, reply.json()["type"].as_str()), (403, Some("error")));
    assert_eq!(reply.error()["type"], "permission_error");
}

#[test]
fn named_hosts_are_allowed() {
    let server = server_with(with(&["chat.example", "*.lan.example"], &[]));
    for (host, status) in [
        ("chat.example", 200),
        ("a.lan.example:443", 200),
        ("localhost", 200),
        ("lan.example", 403),
        ("evil.example", 403),
    ] {
        assert_eq!(ask(&server, "GET", "/ready", &[("host", host)], b"").status, status, "{host}");
    }
    let any = server_with(with(&["*"], &[]));
    assert_eq!(ask(&any, "GET", "/ready", &[("host", "evil.example")], b"").status, 200);
}

#[test]
fn a_simple_post_of_a_foreign_page_starts_nothing() {
    let server = server();
    let simple = ("content-type", "text/plain");
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "chrome-extension://a",
        "",
        "\u{fc}",
    ] {
        for kind in [simple, JSON] {
            let reply = ask(&server, "POST", CHAT, &[("host", "localhost"), ("origin", origin), kind], HI);
            assert_eq!(reply.status, 403, "{origin}: {}", reply.body);
            assert_eq!(reply.error()["code"], "origin_not_allowed", "{origin}");
            assert!(reply.header("access-control-allow-origin").is_none());
        }
    }
    let origins = [("origin", "http://localhost"), ("origin", "https://evil.example")];
    let twice = [&[("host", "localhost"), JSON], &origins[..]].concat();
    assert_eq!(ask(&server, "POST", CHAT, &twice, HI).status, 403);
    check_nothing_ran(&server);
    check_works(server.address, "a foreign page");
}

#[test]
fn local_pages_and_programs_may_use_the_server() {
    let server = server();
    for origin in
        ["http://localhost:3000", "https://127.0.0.1", "tauri://localhost", "vscode-webview://1a", "file://"]
    {
        let headers = [("host", "127.0.0.1:8000"), ("origin", origin), JSON];
        let reply = ask(&server, "POST", CHAT, &headers, HI);
        assert_eq!(reply.status, 200, "{origin}: {}", reply.body);
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
        assert_eq!(reply.header("access-control-expose-headers"), Some("*"));
        assert!(reply.header("access-control-allow-credentials").is_none());
        let error = ask(&server, "POST", CHAT, &headers, b"{");
        assert_eq!((error.status, error.header("access-control-allow-origin")), (400, Some(origin)));
        assert_eq!(error.error()["code"], "invalid_json");
    }
    let plain = ask(&server, "POST", CHAT, &[("host", "localhost"), JSON], HI);
    assert_eq!((plain.status, plain.header("access-control-allow-origin")), (200, None));
}

#[test]
fn pages_of_the_server_itself_may_use_it() {
    let server = server_with(with(&["chat.example"], &[]));
    let own = [("host", "chat.example"), ("origin", "https://chat.example"), JSON];
    assert_eq!(ask(&server, "POST", CHAT, &own, HI).status, 200);
    let other = [("host", "localhost"), ("origin", "https://chat.example"), JSON];
    assert_eq!(ask(&server, "POST", CHAT, &other, HI).status, 403);
}

#[test]
fn listed_origins_are_allowed() {
    let server = server_with(with(&[], &["https://chat.example", "https://*.lan.example"]));
    for (origin, status) in [
        ("https://chat.example", 200),
        ("https://a.lan.example", 200),
        ("http://localhost:5", 200),
        ("http://chat.example", 403),
        ("https://chat.example:444", 403),
    ] {
        let reply = ask(&server, "POST", CHAT, &[("host", "localhost"), ("origin", origin), JSON], HI);
        assert_eq!(reply.status, status, "{origin}: {}", reply.body);
    }
}

#[test]
fn a_preflight_passes_without_a_key() {
    let server = server_with_keys(&["secret"]);
    let preflight = |origin| {
        let headers = [
            ("host", "localhost"),
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,content-type,x-stainless-lang"),
            ("access-control-request-private-network", "true"),
        ];
        ask(&server, "OPTIONS", CHAT, &headers, b"")
    };
    let reply = preflight("http://localhost:3000");
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert_eq!(
        reply.header("access-control-allow-headers"),
        Some("authorization,content-type,x-stainless-lang")
    );
    assert!(reply.header("access-control-allow-methods").unwrap().contains("DELETE"));
    assert_eq!(reply.header("access-control-allow-private-network"), Some("true"));
    assert_eq!(preflight("https://evil.example").status, 403);
    let plain = ask(&server, "OPTIONS", "/v1/models", &[("host", "localhost")], b"");
    assert_eq!((plain.status, plain.body.as_str()), (200, ""));
    let posted =
        ask(&server, "POST", CHAT, &[("host", "localhost"), ("origin", "http://localhost"), JSON], HI);
    assert_eq!(
        (posted.status, posted.header("access-control-allow-origin")),
        (401, Some("http://localhost"))
    );
}

#[test]
fn a_websocket_of_a_foreign_page_is_refused() {
    let server = server();
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let status = |host, origin| {
        let headers = [&[("host", host), ("origin", origin)], &upgrade[..]].concat();
        let text = String::from_utf8(raw("GET", "/v1/stream", &headers, b"")).unwrap();
        let text = text.replacen("connection: close\r\n", "", 1);
        // The response of an upgrade has no end: its first line is enough.
        let mut stream = super::client::connect(server.address);
        std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
        let mut line = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut line).unwrap();
        String::from_utf8(line.to_vec()).unwrap().split(' ').nth(1).map(str::to_owned).unwrap()
    };
    assert_eq!(status("localhost", "http://localhost:3000"), "101");
    assert_eq!(status("localhost", "https://evil.example"), "403");
    assert_eq!(status("evil.example", "http://evil.example"), "403", "DNS rebinding");
}

#[test]
fn clients_of_a_unix_socket_may_name_any_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("omnibus.sock");
    // A file of a server that is gone.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let bound = path.clone();
    let mut server = server_on(async move { Listeners::bind_unix(&bound).unwrap() }, Settings::default());
    let ask = |headers: &[(&str, &str)]| {
        exchange_on(UnixStream::connect(&path).unwrap(), &raw("POST", CHAT, headers, HI)).unwrap()
    };
    for host in ["local", "evil.example"] {
        let reply = ask(&[("host", host), JSON]);
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    assert_eq!(ask(&[("host", "local"), ("origin", "https://evil.example"), JSON]).status, 403);
    server.join();
    assert!(!path.exists(), "the socket is removed at the end");
}

#[test]
fn a_unix_socket_replaces_nothing_but_an_abandoned_socket() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bind =
        |name: &str| runtime.block_on(async { Listeners::bind_unix(&folder.path().join(name)).map(drop) });
    std::fs::write(folder.path().join("file"), "text").unwrap();
    assert!(bind("file").is_err());
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "text");
    let _served = std::os::unix::net::UnixListener::bind(folder.path().join("served")).unwrap();
    assert!(bind("served").is_err());
    assert!(folder.path().join("served").exists());
    assert!(bind("no/folder").is_err());
    assert!(bind("free").is_ok());
}

#[test]
fn a_proxys_prefix_is_taken_off() {
    let settings = Settings { root_path: RootPath::new("/omnibus").unwrap(), ..Settings::default() };
    let server = server_with(settings);
    let local = ("host", "localhost");
    for path in ["/omnibus/v1/models", "/v1/models"] {
        let reply = ask(&server, "GET", path, &[local], b"");
        assert_eq!(reply.json()["data"][0]["id"], "scripted", "{path}: {}", reply.body);
    }
    let document = ask(&server, "GET", "/omnibus/openapi.json", &[local], b"").json();
    assert_eq!(document["servers"][0]["url"], "/omnibus");
    let error = ask(&server, "POST", "/omnibus/v1/messages", &[local, JSON], b"{");
    assert_eq!((error.status, error.json()["type"].as_str()), (400, Some("error")), "the format of its API");
    assert_eq!(ask(&server, "GET", "/omnibusses/v1/models", &[local], b"").status, 404);
    assert_eq!(ask(&server, "GET", "/omnibus/omnibus/v1/models", &[local], b"").status, 404);
}
