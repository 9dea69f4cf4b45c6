//! Key files over HTTP: names, roles, models, limits and usage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use omnibus_server::{AdapterUpdates, Clock, Keys, Settings};
use serde_json::{Value, json};

use super::client::{JSON, Reply, connect, exchange, request};
use super::scripted::{RequestEvent, UNLOADED};
use super::stream::Client;
use super::{Server, server, server_with};

const CHAT: &str = "/v1/chat/completions";

/// A server whose keys are in a file, with a clock that the test moves.
pub struct Keyed {
    pub server: Server,
    keys: Keys,
    file: tempfile::NamedTempFile,
    millis: Arc<AtomicU64>,
}

impl Keyed {
    pub fn new(text: &str) -> Self {
        Self::with(text, Settings::default())
    }

    fn with(text: &str, settings: Settings) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let millis = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&millis);
        let clock = Clock::new(move || Duration::from_millis(now.load(Ordering::Relaxed)));
        let keys = Keys::read(Vec::new(), Some(file.path().to_owned()), clock).unwrap();
        let server = server_with(Settings { keys: keys.clone(), ..settings });
        Self { server, keys, file, millis }
    }

    /// Other keys from now on.
    pub fn rewrite(&self, text: &str) {
        std::fs::write(self.file.path(), text).unwrap();
        self.keys.reload().unwrap();
    }

    fn wait(&self, seconds: f64) {
        self.millis.fetch_add((seconds * 1e3) as u64, Ordering::Relaxed);
    }

    fn ask(&self, method: &str, path: &str, key: &str, body: &str) -> Reply {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), JSON];
        exchange(self.server.address, &request(method, path, &headers, body.as_bytes())).unwrap()
    }

    fn get(&self, path: &str, key: &str) -> Reply {
        self.ask("GET", path, key, "")
    }

    /// A chat of this many tokens of prompt, and `tokens` of completion.
    fn chat(&self, key: &str, prompt: &str, tokens: usize) -> Reply {
        let body = json!({"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens});
        self.ask("POST", CHAT, key, &body.to_string())
    }

    fn hi(&self, key: &str) -> Reply {
        self.chat(key, "hi", 1)
    }

    /// Begins a response that ends when its connection is dropped.
    pub fn endless(&self, key: &str) -> (std::net::TcpStream, String) {
        let bearer = format!("Bearer {key}");
        let body = r#"{"messages":[{"role":"user","content":"forever"}],"stream":true}"#;
        let mut stream = connect(self.server.address);
        let bytes = request("POST", CHAT, &[("authorization", &bearer), JSON], body.as_bytes());
        std::io::Write::write_all(&mut stream, &bytes).unwrap();
        let id = self.server.submitted().id;
        (stream, id)
    }

    fn usage(&self, key: &str) -> Vec<Value> {
        self.get("/v1/usage", key).json()["data"].as_array().unwrap().clone()
    }
}

pub fn table(name: &str, more: &str) -> String {
    format!("[[key]]\nname = \"{name}\"\nkey = \"sk-{name}\"\n{more}\n")
}

fn check_limited(reply: &Reply, retry_after: &str, about: &str) {
    assert_eq!(reply.status, 429, "{}", reply.body);
    assert_eq!(reply.header("retry-after"), Some(retry_after), "{}", reply.body);
    assert_eq!(reply.header("x-should-retry"), Some("true"));
    let millis: u64 = reply.header("retry-after-ms").unwrap().parse().unwrap();
    assert_eq!(millis.div_ceil(1_000).to_string(), retry_after);
    let error = reply.error();
    assert_eq!(
        (error["code"].as_str(), error["type"].as_str()),
        (Some("rate_limit_exceeded"), Some("rate_limit_error"))
    );
    assert!(error["message"].as_str().unwrap().contains(about), "{error}");
}

#[test]
fn keys_of_a_file_are_tenants_with_names() {
    let keyed = Keyed::new(&(table("alice", "") + &table("bob", "")));
    for name in ["alice", "bob"] {
        assert_eq!(keyed.hi(&format!("sk-{name}")).status, 200);
        assert_eq!(keyed.server.submitted().tenant, name);
    }
    for wrong in ["sk-carol", "alice", "", "sk-alic", "sk-alicee"] {
        assert_eq!(keyed.hi(wrong).status, 401, "{wrong}");
    }
}

#[test]
fn requests_of_a_minute_are_limited_and_come_back() {
    let keyed = Keyed::new(&(table("alice", "requests-per-minute = 2") + &table("bob", "")));
    let first = keyed.hi("sk-alice");
    let header =
        |reply: &Reply, name: &str| reply.header(&format!("x-ratelimit-{name}-requests")).map(str::to_owned);
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(header(&first, "limit").as_deref(), Some("2"));
    assert_eq!(header(&first, "remaining").as_deref(), Some("1"));
    assert_eq!(header(&first, "reset").as_deref(), Some("30s"));
    assert_eq!(first.header("x-ratelimit-limit-tokens"), None);
    assert_eq!(keyed.hi("sk-alice").status, 200);
    let refused = keyed.hi("sk-alice");
    check_limited(&refused, "30", "the key `alice` may have at most 2 requests a minute; retry in 30 s");
    assert_eq!(header(&refused, "remaining").as_deref(), Some("0"));
    assert_eq!(header(&refused, "reset").as_deref(), Some("1m0s"));
    assert_eq!(keyed.hi("sk-bob").status, 200, "limits are of one key");
    assert_eq!(header(&keyed.hi("sk-bob"), "limit"), None);
    keyed.wait(29.9);
    check_limited(&keyed.hi("sk-alice"), "1", "2 requests");
    keyed.wait(0.2);
    assert_eq!(keyed.hi("sk-alice").status, 200);
    assert_eq!(keyed.get("/v1/models", "sk-alice").status, 200, "only generations count");
    assert_eq!(keyed.usage("sk-alice")[0]["limited_requests"], 2);
}

#[test]
fn anthropics_routes_have_anthropics_headers() {
    let keyed = Keyed::new(&table("alice", "requests-per-minute = 1\ntokens-per-minute = 600"));
    let ask = || {
        let body = r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":2}"#;
        let headers = [("x-api-key", "sk-alice"), JSON];
        exchange(keyed.server.address, &request("POST", "/v1/messages", &headers, body.as_bytes())).unwrap()
    };
    let reply = ask();
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    let header = |name: &str| reply.header(&format!("anthropic-ratelimit-{name}"));
    assert_eq!((header("requests-limit"), header("requests-remaining")), (Some("1"), Some("0")));
    assert_eq!((header("tokens-limit"), header("tokens-remaining")), (Some("600"), Some("597")));
    assert!(header("tokens-reset").unwrap().parse::<jiff::Timestamp>().is_ok());
    assert_eq!(reply.header("x-ratelimit-limit-requests"), None);
    let refused = ask();
    assert_eq!((refused.status, refused.error()["type"].as_str()), (429, Some("rate_limit_error")));
    assert_eq!(refused.header("retry-after"), Some("60"));
}

#[test]
fn tokens_of_a_minute_are_counted_and_waited_for() {
    let keyed = Keyed::new(&table("alice", "tokens-per-minute = 60"));
    let reply = keyed.chat("sk-alice", "a b c d", 96);
    assert_eq!(reply.status, 200, "a request may take more than is left");
    let usage = keyed.usage("sk-alice")[0].clone();
    assert_eq!((usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64()), (Some(4), Some(96)));
    assert_eq!((usage["cached_tokens"].as_u64(), usage["total_tokens"].as_u64()), (Some(1), Some(100)));
    assert_eq!(
        usage["limits"]["tokens_per_minute"],
        json!({"limit": 60, "remaining": 0, "reset_seconds": 100.0})
    );
    check_limited(&keyed.hi("sk-alice"), "41", "60 tokens a minute");
    keyed.wait(41.0);
    let reply = keyed.hi("sk-alice");
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining-tokens")), (200, Some("0")));
}

#[test]
fn a_prompt_of_several_choices_counts_once_as_in_the_response() {
    let keyed = Keyed::new(&table("alice", ""));
    let body = r#"{"prompt":["a b","c"],"n":2,"max_tokens":3}"#;
    let reply = keyed.ask("POST", "/v1/completions", "sk-alice", body).json();
    let usage = keyed.usage("sk-alice")[0].clone();
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(usage[field], reply["usage"][field], "{field} of {reply}");
    }
    assert_eq!((usage["requests"].as_u64(), usage["prompt_tokens"].as_u64()), (Some(1), Some(3)));
}

#[test]
fn responses_at_once_are_limited_until_they_end() {
    let keyed = Keyed::new(&table("alice", "streams = 1"));
    let (mut stream, id) = keyed.endless("sk-alice");
    // Its prompt is charged once the first token has come.
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("w0 ") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
        received.extend(byte);
    }
    check_limited(&keyed.hi("sk-alice"), "1", "1 responses at once");
    assert_eq!(keyed.usage("sk-alice")[0]["streams"], 1);
    drop(stream);
    while keyed.server.next_event() != RequestEvent::Dropped(id.clone()) {}
    // The place is given back with the response, right after its events.
    while keyed.hi("sk-alice").status == 429 {
        std::thread::yield_now();
    }
    assert_eq!(keyed.hi("sk-alice").status, 200);
    let usage = keyed.usage("sk-alice")[0].clone();
    assert_eq!(usage["streams"], 0);
    assert_eq!(usage["prompt_tokens"], 3, "one of the stream that its client left, and one of each other");
}

#[test]
fn choices_have_the_keys_share_of_the_queue() {
    let settings = Settings { queue_places: 8, ..Settings::default() };
    let keyed = Keyed::with(&(table("alice", "queue-share = 0.25") + &table("bob", "")), settings);
    let ask = |key: &str, n: usize| {
        let body = json!({"prompt": "hi", "n": n, "max_tokens": 1});
        keyed.ask("POST", "/v1/completions", key, &body.to_string())
    };
    assert_eq!(ask("sk-alice", 2).status, 200);
    check_limited(&ask("sk-alice", 3), "1", "2 sequences in the queue");
    assert_eq!(ask("sk-bob", 3).status, 200);
    assert_eq!(ask("sk-alice", 2).status, 200, "a refused request leaves no place taken");
}

#[test]
fn requests_that_wait_for_a_model_have_the_keys_share_of_the_queue() {
    let settings = Settings { queue_places: 8, ..Settings::default() };
    let keyed = Keyed::with(&(table("alice", "queue-share = 0.25") + &table("bob", "")), settings);
    let (answered, answers) = std::sync::mpsc::channel();
    for _ in 0..3 {
        let (address, answered) = (keyed.server.address, answered.clone());
        // Two of them end with the server.
        std::thread::spawn(move || {
            let body = json!({"model": UNLOADED, "prompt": "hi", "max_tokens": 1}).to_string();
            let headers = [("authorization", "Bearer sk-alice"), JSON];
            exchange(address, &request("POST", "/v1/completions", &headers, body.as_bytes()))
                .map(|reply| answered.send(reply))
        });
    }
    let refused = answers.recv_timeout(Duration::from_secs(60)).expect("none of three was refused");
    check_limited(&refused, "1", "2 sequences in the queue");
    assert_eq!(keyed.hi("sk-bob").status, 200);
}

#[test]
fn messages_of_a_websocket_count_as_requests() {
    let keyed = Keyed::new(&table("alice", "requests-per-minute = 1"));
    let mut request = tungstenite::client::IntoClientRequest::into_client_request(format!(
        "ws://{}/v1/stream",
        keyed.server.address
    ))
    .unwrap();
    request.headers_mut().insert("authorization", "Bearer sk-alice".parse().unwrap());
    let mut client = Client::with(request);
    client.ask(json!("a"), "hi");
    client.until_done("a");
    client.ask(json!("b"), "hi");
    let refused = client.until_done("b");
    assert_eq!(refused.last().unwrap()["error"]["code"], "rate_limit_exceeded", "{refused:?}");
    // The key is removed while its connection is open.
    std::fs::write(keyed.file.path(), table("bob", "")).unwrap();
    keyed.keys.reload().unwrap();
    client.ask(json!("c"), "hi");
    let refused = client.until_done("c");
    assert_eq!(refused.last().unwrap()["error"]["code"], "invalid_api_key", "{refused:?}");
}

#[test]
fn a_key_uses_the_models_that_it_is_allowed() {
    let keyed = Keyed::new(
        &(table("all", "")
            + &table("named", "models = [\"alias/one\"]")
            + &table("none", "models = [\"other\"]")),
    );
    for key in ["sk-all", "sk-named"] {
        for model in ["scripted", "alias/one"] {
            let body = format!(r#"{{"model":"{model}","prompt":"hi","max_tokens":1}}"#);
            assert_eq!(keyed.ask("POST", "/v1/completions", key, &body).status, 200, "{key} {model}");
        }
        assert_eq!(keyed.get("/v1/models", key).json()["data"].as_array().unwrap().len(), 2);
    }
    for (path, body) in [
        ("/v1/completions", r#"{"prompt":"hi"}"#),
        ("/v1/completions", r#"{"model":"alias/one","prompt":"hi"}"#),
        (CHAT, r#"{"messages":[{"role":"user","content":"hi"}]}"#),
        ("/v1/messages", r#"{"model":"claude","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#),
        ("/v1/messages/count_tokens", r#"{"messages":[{"role":"user","content":"hi"}]}"#),
        ("/v1/responses", r#"{"input":"hi"}"#),
        ("/tokenize", r#"{"prompt":"hi"}"#),
        ("/detokenize", r#"{"tokens":[1]}"#),
    ] {
        let refused = keyed.ask("POST", path, "sk-none", body);
        assert_eq!(refused.status, 403, "{path} {body}: {}", refused.body);
        assert!(
            refused.error()["message"].as_str().unwrap().contains("it may use: `other`"),
            "{}",
            refused.body
        );
    }
    assert_eq!(
        keyed.ask("POST", "/v1/completions", "sk-none", r#"{"model":"missing","prompt":"hi"}"#).status,
        404
    );
    assert_eq!(keyed.get("/v1/models", "sk-none").json()["data"], json!([]));
    assert_eq!(keyed.get("/v1/models/scripted", "sk-none").status, 404);
}

#[test]
fn routes_of_administrators_need_their_role() {
    let settings = Settings { adapter_updates: AdapterUpdates::Allowed, ..Settings::default() };
    let keyed = Keyed::with(&(table("root", "role = \"admin\"") + &table("alice", "")), settings);
    let load = r#"{"lora_name":"a","lora_path":"/a"}"#;
    for (method, path, body) in [
        ("POST", "/v1/load_lora_adapter", load),
        ("POST", "/v1/unload_lora_adapter", r#"{"lora_name":"a"}"#),
        ("GET", "/metrics", ""),
        ("GET", "/v1/sessions?key=root", ""),
        ("DELETE", "/v1/sessions/a?key=root", ""),
    ] {
        let refused = keyed.ask(method, path, "sk-alice", body);
        assert_eq!(
            (refused.status, refused.error()["code"].as_str()),
            (403, Some("admin_required")),
            "{path}"
        );
        assert_ne!(keyed.ask(method, path, "sk-root", body).status, 403, "{path}");
        assert_eq!(keyed.ask(method, path, "sk-none", body).status, 401, "{path}");
    }
    assert_eq!(keyed.ask("GET", "/v1/load_lora_adapter", "sk-alice", "").status, 405);
}

#[test]
fn an_administrator_sees_and_cancels_requests_of_all_keys() {
    let keyed = Keyed::new(&(table("root", "role = \"admin\"") + &table("alice", "") + &table("bob", "")));
    let (_stream, id) = keyed.endless("sk-alice");
    let listed = |key: &str| keyed.get("/v1/requests", key).json()["data"].clone();
    assert_eq!(listed("sk-bob"), json!([]));
    for key in ["sk-alice", "sk-root"] {
        assert_eq!((&listed(key)[0]["id"], &listed(key)[0]["key"]), (&json!(id), &json!("alice")));
    }
    let cancel = |key: &str| keyed.ask("DELETE", &format!("/v1/requests/{id}"), key, "");
    assert_eq!(cancel("sk-bob").status, 404);
    assert_eq!(cancel("sk-root").json()["cancelled"], 1);
    let session = |key: &str, query: &str| {
        keyed.get(&format!("/v1/sessions{query}"), key).json()["data"][0]["id"].clone()
    };
    assert_eq!(session("sk-root", "?key=alice"), "session of alice");
    assert_eq!(session("sk-root", ""), "session of root");
    assert_eq!(session("sk-alice", "?key=alice"), "session of alice");
    let dropped = keyed.ask("DELETE", "/v1/sessions/session%20of%20alice?key=alice", "sk-root", "");
    assert_eq!(dropped.json()["deleted"], true);
}

#[test]
fn usage_is_a_keys_own_and_all_of_it_for_an_administrator() {
    let keyed = Keyed::new(
        &(table("usage-root", "role = \"admin\"") + &table("usage-alice", "") + &table("usage-bob", "")),
    );
    assert_eq!(keyed.chat("sk-usage-alice", "a b c", 5).status, 200);
    let names = |key: &str| keyed.usage(key).iter().map(|row| row["key"].clone()).collect::<Vec<_>>();
    assert_eq!(names("sk-usage-bob"), ["usage-bob"]);
    assert_eq!(names("sk-usage-root"), ["usage-alice"], "the keys that were used");
    let named = |key: &str, name: &str| keyed.get(&format!("/v1/usage?key={name}"), key);
    assert_eq!(named("sk-usage-root", "usage-bob").json()["data"][0]["key"], "usage-bob");
    assert_eq!(named("sk-usage-root", "missing").status, 404);
    assert_eq!(named("sk-usage-bob", "usage-bob").status, 200);
    assert_eq!(named("sk-usage-bob", "usage-alice").error()["code"], "admin_required");
    let alice = keyed.usage("sk-usage-alice")[0].clone();
    assert_eq!((alice["requests"].as_u64(), alice["total_tokens"].as_u64()), (Some(1), Some(8)));
    assert_eq!(alice["limits"]["requests_per_minute"], json!(null));
    let metrics = keyed.get("/metrics", "sk-usage-root").body;
    for line in [
        r#"omnibus_key_requests_total{key="usage-alice"} 1"#,
        r#"omnibus_key_limited_requests_total{key="usage-alice"} 0"#,
        r#"omnibus_key_prompt_tokens_total{key="usage-alice"} 3"#,
        r#"omnibus_key_cached_tokens_total{key="usage-alice"} 1"#,
        r#"omnibus_key_generated_tokens_total{key="usage-alice"} 5"#,
        r#"omnibus_key_streams{key="usage-alice"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("usage-bob"), "a key that was not used has no series");
    assert!(!metrics.contains("sk-usage"), "keys are secret");
}

#[test]
fn a_server_without_keys_counts_one_usage() {
    let server = server();
    super::client::post(
        server.address,
        CHAT,
        r#"{"messages":[{"role":"user","content":"a b"}],"max_tokens":2}"#,
    );
    let usage = super::client::get(server.address, "/v1/usage").json()["data"][0].clone();
    assert_eq!((&usage["key"], &usage["total_tokens"]), (&json!(null), &json!(4)));
}

#[test]
fn a_reload_changes_limits_and_fills_none() {
    let keyed = Keyed::new(&table("alice", "requests-per-minute = 1"));
    assert_eq!(keyed.hi("sk-alice").status, 200);
    let reload = |text: &str| {
        std::fs::write(keyed.file.path(), text).unwrap();
        keyed.keys.reload().map_err(|error| error.to_string())
    };
    assert_eq!(reload(&table("alice", "requests-per-minute = 1")), Ok(1));
    assert_eq!(keyed.hi("sk-alice").status, 429);
    assert_eq!(reload(&(table("alice", "") + &table("bob", ""))), Ok(2));
    assert_eq!((keyed.hi("sk-alice").status, keyed.hi("sk-bob").status), (200, 200));
    let why = reload(&table("alice", "rpm = 5")).unwrap_err();
    assert!(why.contains("unknown field `rpm`") && !why.contains("sk-alice"), "{why}");
    assert_eq!(keyed.hi("sk-bob").status, 200, "a broken file changes nothing");
    assert_eq!(keyed.usage("sk-alice")[0]["requests"], 2);
}
