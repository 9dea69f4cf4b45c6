//! Several models in one server: what `omnibus.toml` says of them, and memory for two of three.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::client::{JSON, Reply, connect, get, parse, post, request};
use super::process::{Server, omnibus, run, signal, text};
use super::ranks::children;

fn model_folder() -> String {
    format!("{}/models/omnibus-mini", env!("CARGO_MANIFEST_DIR"))
}

fn adapter(name: &str) -> String {
    format!("{}/tests/adapters/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Greedy texts that mlx-lm generates for the first prompt, by the adapter's name.
fn golden() -> Value {
    let path = format!("{}/tests/adapters/golden.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn link_model(&self, name: &str) {
        std::os::unix::fs::symlink(model_folder(), self.0.join(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the temporary folder.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Three models of one size, of which two have an adapter each, and memory for two of them.
fn three_models(folder: &Folder, more: &str) -> Server {
    let (model, drift, turn) = (model_folder(), adapter("drift"), adapter("turn"));
    let file = folder.write(
        "omnibus.toml",
        &format!(
            "memory-limit = \"1200MiB\"
[models.base]
model = \"{model}\"
aliases = [\"title\", \"small\"]
max-model-len = 512
preload = true
[models.drifting]
model = \"{model}\"
adapter-path = [\"drift={drift}\"]
[models.turning]
model = \"{model}\"
adapter-path = [\"turn={turn}\"]
{more}"
        ),
    );
    Server::start_with(&["--log", "off"], &[("OMNIBUS_CONFIG", &file)])
}

fn complete(server: &Server, model: &str, prompt: &str) -> Reply {
    let body =
        json!({"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    post(server.address, "/v1/completions", &body.to_string())
}

fn status(address: SocketAddr, model: &str) -> Value {
    get(address, &format!("/v1/models/{model}")).json()
}

fn unload(server: &Server, model: &str) -> Reply {
    post(server.address, "/v1/models/unload", &json!({"model": model}).to_string())
}

#[test]
fn a_load_shows_how_far_it_is() {
    let folder = Folder::new("pool-progress");
    let file = folder.write("omnibus.toml", &format!("[models.slow]\nmodel = \"{}\"\n", model_folder()));
    // The engine process stops itself after its first report.
    let variables = [("OMNIBUS_CONFIG", file.as_str()), ("OMNIBUS_FAULTS", "load-stop@step=0")];
    let server = Server::start_with(&["--log", "off"], &variables);
    let weights = std::fs::metadata(format!("{}/model.safetensors", model_folder())).unwrap().len();
    let load = || post(server.address, "/v1/models/load", r#"{"model":"slow"}"#);
    assert_eq!(status(server.address, "slow")["status"], json!({"value": "unloaded"}));
    std::thread::scope(|scope| {
        let loading = scope.spawn(load);
        let progress = loop {
            let progress = &status(server.address, "slow")["status"]["progress"];
            if progress["loaded_bytes"].as_u64() > Some(0) {
                break progress.clone();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(progress["total_bytes"], weights);
        let loaded = progress["loaded_bytes"].as_u64().unwrap();
        assert!(loaded < weights, "{progress}");
        let listed = run(&["ps", "--url", &format!("http://{}", server.address)]);
        let listed = text(&listed.stdout);
        let percent = format!("loading {:.0} %", loaded as f64 / weights as f64 * 100.0);
        assert!(listed.contains(&percent), "{percent} in {listed}");
        for engine in children(server.id()) {
            assert!(signal(engine, "CONT"));
        }
        assert_eq!(loading.join().unwrap().status, 200);
    });
    assert_eq!(status(server.address, "slow")["status"], json!({"value": "loaded"}));
}

#[test]
fn log_lines_of_an_engine_name_its_model() {
    let folder = Folder::new("pool-log");
    let model = model_folder();
    let tables = format!("[models.one]\nmodel = \"{model}\"\n[models.two]\nmodel = \"{model}\"\n");
    let file = folder.write("omnibus.toml", &tables);
    // A loop that panics says so from the process; a process that ends, from its supervisor.
    let faults = ("OMNIBUS_FAULTS", "turn@token=300,abort@token=301");
    let mut server = Server::start_with(&["--log", "warn"], &[("OMNIBUS_CONFIG", &file), faults]);
    let address = server.address;
    for (token, said) in [(300, "the engine's loop panicked"), (301, "the engine's process has ended")] {
        let body = json!({"model": "two", "prompt": [5, token, 6], "max_tokens": 2}).to_string();
        let request = std::thread::spawn(move || post(address, "/v1/completions", &body));
        let line = server.line_with(said);
        assert!(line.contains(r#"engine{model="two"}"#), "{line}");
        assert_ne!(request.join().unwrap().status, 200);
    }
}

#[test]
fn each_request_has_its_model_although_another_has_to_go_for_it() {
    let folder = Folder::new("pool-golden");
    let server = three_models(&folder, "");
    let golden = golden();
    let check = |turn: usize| {
        let (model, of) = [("title", ""), ("drift", "drift"), ("turn", "turn")][turn % 3];
        let case = &golden[of][turn / 3 % 2];
        let reply = complete(&server, model, case["prompt"].as_str().unwrap());
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["choices"][0]["text"], case["text"], "{model}");
    };
    std::thread::scope(|scope| {
        for client in 0..6 {
            scope.spawn(move || (0..8).for_each(|turn| check(client + turn * (client % 3 + 1))));
        }
    });
    let models = ["base", "drifting", "turning"].map(|model| status(server.address, model));
    let loads: u64 = models.iter().map(|model| model["memory"]["loads"].as_u64().unwrap()).sum();
    assert!(loads > 3, "none had to go: {models:?}");
    let taken: u64 = models
        .iter()
        .filter(|model| model["loaded"] == true)
        .map(|model| model["memory"]["bytes"].as_u64().unwrap())
        .sum();
    assert!(taken <= 1200 << 20, "{models:?}");
    assert!(models.iter().all(|model| model["memory"]["active_requests"] == 0), "{models:?}");
    assert_eq!(status(server.address, "small")["root"], "base");
    let page = get(server.address, "/metrics").body;
    assert!(page.contains("omnibus_model_loads_total{model=\"drifting\"}"), "{page}");
    assert!(page.contains("omnibus_steps_total{model=\"base\"}"), "{page}");
}

#[test]
fn a_model_that_is_unloaded_ends_its_streams_first_and_comes_back() {
    let folder = Folder::new("pool-unload");
    let server = three_models(&folder, "");
    assert_eq!(status(server.address, "base")["status"]["value"], "loaded");
    assert_eq!(status(server.address, "turning")["status"]["value"], "unloaded");
    let body = json!({"model": "base", "prompt": "The bus", "max_tokens": 400, "temperature": 0,
        "ignore_eos": true, "stream": true});
    let mut stream = connect(server.address);
    let bytes = request("POST", "/v1/completions", &[JSON], body.to_string().as_bytes());
    std::io::Write::write_all(&mut stream, &bytes).unwrap();
    let mut received = vec![0; 1];
    stream.read_exact(&mut received).unwrap();
    let reply = unload(&server, "base");
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("unloaded")), "{}", reply.body);
    // It has ended, whole, before the model went.
    stream.read_to_end(&mut received).unwrap();
    let chunks = parse(&received).chunks();
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
    assert_eq!(status(server.address, "base")["status"]["value"], "unloaded");
    assert_eq!(complete(&server, "base", "The bus").status, 200);
    let loaded = post(server.address, "/models/load", r#"{"model": "turning", "ttl": 0}"#);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert!(loaded.json()["load_time_seconds"].as_f64().unwrap() > 0.0);
    while status(server.address, "turning")["status"]["value"] != "unloaded" {
        std::thread::yield_now();
    }
    let body = r#"{"model": "base", "keep_alive": 0}"#;
    assert_eq!(post(server.address, "/api/generate", body).json()["done_reason"], "unload");
    while !get(server.address, "/api/ps").json()["models"].as_array().unwrap().is_empty() {
        std::thread::yield_now();
    }
    // Longer than any clock.
    let body = r#"{"model": "base", "keep_alive": 1e19}"#;
    assert_eq!(post(server.address, "/api/generate", body).json()["done_reason"], "load");
    assert_eq!(status(server.address, "base")["memory"]["expires_at"], Value::Null);
    assert_eq!(get(server.address, "/api/ps").json()["models"].as_array().unwrap().len(), 1);
    assert_eq!(get(server.address, "/health").status, 200);
}

#[test]
fn a_model_that_slept_finds_its_prefixes_on_the_disk() {
    let folder = Folder::new("sleep");
    let server = Server::start(&["--log", "off", "--cache-dir", folder.0.to_str().unwrap()]);
    let prompt = "the bus stops here, ".repeat(40);
    let first = complete(&server, "omnibus-mini", &prompt).json();
    let asleep = || get(server.address, "/is_sleeping").json()["is_sleeping"].clone();
    assert_eq!(asleep(), false);
    assert_eq!(post(server.address, "/sleep?level=1&mode=abort", "").status, 400);
    assert_eq!(post(server.address, "/sleep?level=1", "").json()["is_sleeping"], true);
    assert_eq!(status(server.address, "omnibus-mini")["status"]["value"], "unloaded");
    assert_eq!(asleep(), true);
    assert_eq!(post(server.address, "/wake_up", "").json()["is_sleeping"], false);
    let second = complete(&server, "omnibus-mini", &prompt).json();
    assert_eq!(second["choices"][0]["text"], first["choices"][0]["text"]);
    let cached = |reply: &Value| reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached(&first), Some(0));
    assert!(cached(&second) > Some(100), "{second}");
    // A request wakes it, too.
    assert_eq!(post(server.address, "/sleep", "").status, 200);
    assert_eq!(complete(&server, "omnibus-mini", &prompt).status, 200);
    assert_eq!(asleep(), false);
}

#[test]
fn a_broken_model_is_its_own_fault_and_an_unknown_one_no_other() {
    let folder = Folder::new("pool-broken");
    let broken = folder.write("broken/config.json", "{}");
    let broken = broken.trim_end_matches("/config.json");
    let server =
        three_models(&folder, &format!("[models.broken]\nmodel = \"{broken}\"\nmemory-limit = \"600MiB\"\n"));
    let reply = complete(&server, "broken", "x");
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(
        reply.body.contains("the model `broken` is not available: it cannot be loaded: "),
        "{}",
        reply.body
    );
    assert!(reply.header("retry-after").is_some());
    let model = status(server.address, "broken");
    assert_eq!((&model["status"]["value"], &model["status"]["failed"]), (&json!("failed"), &json!(true)));
    let reply = complete(&server, "missing", "x");
    assert_eq!(reply.status, 404);
    assert!(reply.body.contains("`turning`"), "{}", reply.body);
    assert_eq!(unload(&server, "missing").status, 404);
    assert_eq!(complete(&server, "base", "x").status, 200);
    assert_eq!(get(server.address, "/ready").status, 200);
}

#[test]
fn a_folder_of_models_is_served_by_its_names_and_grows() {
    let folder = Folder::new("pool-folder");
    folder.link_model("first");
    let models = folder.0.to_str().unwrap();
    let server = Server::start(&["--log", "off", "--models-dir", models, "--memory-limit", "2GiB"]);
    let listed = |address| -> Vec<String> {
        let list = get(address, "/v1/models").json();
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(listed(server.address), ["first"]);
    assert_eq!(status(server.address, "first")["loaded"], false);
    std::fs::create_dir_all(folder.0.join("org")).unwrap();
    folder.link_model("org/second");
    assert_eq!(complete(&server, "org/second", "x").status, 200);
    assert_eq!(complete(&server, "org/none", "x").status, 404);
    assert_eq!(listed(server.address), ["first", "org/second"]);
    // A folder that vanishes is noticed when its model is loaded again.
    std::fs::remove_file(folder.0.join("org/second")).unwrap();
    assert_eq!(complete(&server, "org/second", "x").status, 200);
    assert_eq!(unload(&server, "org/second").status, 200);
    let reply = complete(&server, "org/second", "x");
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(reply.body.contains("org/second"), "{}", reply.body);
}

#[test]
fn wrong_tables_and_names_are_named() {
    let folder = Folder::new("pool-usage");
    let fails = |text: &str, why: &str| {
        let file = folder.write("omnibus.toml", text);
        let output = omnibus(&["serve", "--port", "0"]).env("OMNIBUS_CONFIG", &file).output().unwrap();
        let shown = self::text(&output.stderr);
        assert!(!output.status.success() && shown.contains(why), "{shown}");
    };
    let model = model_folder();
    fails("[models.a]\ncolour = 1", "[models.a] `colour` is no setting of a model");
    fails("[models.a]\nport = 1", "[models.a] `port` is no setting of a model");
    fails("[models.a]\npin = 3", "[models.a] `pin` must be true or false, not 3");
    fails("[models.a]\nmodel = \"/nowhere\"", "there is no directory `/nowhere`");
    fails(
        &format!("[models.a]\nmodel = \"{model}\"\n[models.b]\nmodel = \"{model}\"\naliases = [\"a\"]"),
        "two models or adapters are named `a`",
    );
    let big = format!(
        "memory-limit = \"600MiB\"\n[models.a]\nmodel = \"{model}\"\n[models.b]\nmodel = \"{model}\""
    );
    let file = folder.write("omnibus.toml", &big);
    let server = Server::start_with(&["--log", "off"], &[("OMNIBUS_CONFIG", &file)]);
    let reply = complete(&server, "a", "x");
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(reply.body.contains("bytes; all models together may take"), "{}", reply.body);
}
