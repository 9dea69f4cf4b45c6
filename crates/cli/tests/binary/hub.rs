//! `pull`, `ls`, `rm`, and models by their name on the hub, through the binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::client::{get, post};
use super::hub_server::{Answer, COMMIT, FakeHub};
use super::process::{Server, omnibus, text};

const MINI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/omnibus-mini");
const MODEL: &str = "org/tiny";

/// A hub that has the embedded model, and a cache, removed when dropped.
struct Hub {
    server: FakeHub,
    cache: PathBuf,
}

impl Hub {
    fn new(name: &str) -> Self {
        let cache = std::env::temp_dir().join(format!("omnibus-binary-hub-{}-{name}", std::process::id()));
        _ = std::fs::remove_dir_all(&cache);
        let files = std::fs::read_dir(MINI).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        });
        Self { server: FakeHub::with(files.collect::<BTreeMap<_, _>>()), cache }
    }

    fn variables(&self) -> [(&'static str, String); 2] {
        [("HF_ENDPOINT", self.server.url()), ("HF_HUB_CACHE", self.cache.display().to_string())]
    }

    fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut command = omnibus(arguments);
        for name in ["HF_HOME", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"] {
            command.env_remove(name);
        }
        command.envs(self.variables()).envs(variables.iter().copied()).output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(&[], arguments)
    }

    /// What the command prints.
    fn result(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn check_failed(&self, variables: &[(&str, &str)], arguments: &[&str], expected: &str) {
        let output = self.run_with(variables, arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        let reasons: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(matches!(reasons.as_slice(), [one] if one.contains(expected)), "{arguments:?}: {stderr}");
    }

    fn listed(&self) -> Value {
        serde_json::from_str(&self.result(&["ls", "--json"])).unwrap()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.cache);
    }
}

#[test]
fn a_model_is_planned_before_it_is_downloaded() {
    let hub = Hub::new("plan");
    let printed = hub.result(&["plan", MODEL, "--as", "m4-16gb", "--json"]);
    let plan: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&plan["fits"], &plan["error"]), (&Value::from(true), &Value::Null), "{plan}");
    assert!(plan["download_bytes"].as_u64() > plan["weight_bytes"].as_u64(), "{plan}");
    assert!(plan["kv_tokens"].as_u64() > Some(1000), "{plan}");
    assert_eq!(hub.listed(), serde_json::json!([]), "nothing is in the cache");
    assert!(hub.result(&["plan", "-m", MODEL]).contains(" to download in "));
    hub.check_failed(&[("HF_HUB_OFFLINE", "1")], &["plan", MODEL], MODEL);
}

#[test]
fn a_model_that_does_not_fit_names_a_packing_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131_072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let path = folder.path().display().to_string();
    let output = omnibus(&["plan", &path, "--as", "m2-24gb", "--json"]).output().unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&plan["fits"], &plan["instead"]["bits"]), (&Value::from(false), &Value::from(8)), "{plan}");
    let text = text(&omnibus(&["plan", &path, "--as", "m2-24gb"]).output().unwrap().stdout);
    assert!(text.contains("does not fit: ") && text.contains("`omnibus convert -q --q-bits 8`"), "{text}");
}

#[test]
fn a_draft_model_takes_its_share_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let model = |name: &str, layers: u32| {
        let config = serde_json::json!({
            "model_type": "llama", "vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 5632,
            "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131_072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"
        });
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("config.json"), config.to_string()).unwrap();
        path.display().to_string()
    };
    let (target, draft) = (model("target", 22), model("draft", 2));
    let plan = |more: &[&str]| -> Value {
        let arguments = [["plan", &target, "--as", "m4-16gb", "--json"].as_slice(), more].concat();
        serde_json::from_slice(&omnibus(&arguments).output().unwrap().stdout).unwrap()
    };
    let (alone, beside) = (plan(&[]), plan(&["--draft-model", &draft]));
    let number = |plan: &Value, name: &str| plan[name].as_f64().unwrap();
    assert_eq!(alone["draft_model"], Value::Null);
    assert_eq!(beside["draft_model"], Value::from(draft.as_str()));
    let kept = number(&alone, "kv_tokens") * number(&alone, "kv_token_bytes");
    let taken = number(&beside, "draft_weight_bytes")
        + number(&beside, "kv_tokens")
            * (number(&beside, "kv_token_bytes") + number(&beside, "draft_kv_token_bytes"));
    assert!((taken / kept - 1.0).abs() < 1e-3, "{alone} {beside}");
    assert!(number(&beside, "draft_kv_token_bytes") * 10.0 < number(&beside, "kv_token_bytes"));
}

#[test]
fn a_model_is_pulled_listed_used_and_removed() {
    let hub = Hub::new("all");
    assert_eq!(hub.listed(), serde_json::json!([]));
    let printed = hub.result(&["pull", MODEL]);
    let folder = Path::new(printed.trim());
    assert!(folder.starts_with(&hub.cache) && folder.ends_with(COMMIT), "{printed}");
    for (name, content) in hub.server.files() {
        assert_eq!(std::fs::read(folder.join(&name)).unwrap(), content, "{name}");
    }
    let listed = hub.listed();
    let bytes: usize = hub.server.files().values().map(Vec::len).sum();
    assert_eq!((&listed[0]["model"], &listed[0]["bytes"]), (&MODEL.into(), &bytes.into()), "{listed}");
    assert!(listed[0]["revisions"].to_string().contains(COMMIT), "{listed}");
    assert!(hub.result(&["ls"]).starts_with(MODEL));
    // The cache is enough.
    let generate = ["generate", "-m", MODEL, "-p", "hi", "--max-tokens", "1"];
    let offline = hub.run_with(&[("HF_HUB_OFFLINE", "1")], &generate);
    assert!(offline.status.success(), "{}", text(&offline.stderr));
    hub.result(&["rm", MODEL]);
    assert_eq!(hub.listed(), serde_json::json!([]));
    hub.check_failed(&[], &["rm", MODEL], "org/tiny is not in the cache");
    hub.check_failed(&[("HF_HUB_OFFLINE", "1")], &generate, "HF_HUB_OFFLINE");
}

#[test]
fn a_model_is_downloaded_to_be_served_and_named_as_on_the_hub() {
    let hub = Hub::new("serve");
    let variables = hub.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = Server::start_with(&[MODEL], &variables);
    let models = get(server.address, "/v1/models").json();
    assert!(models["data"].to_string().contains(MODEL), "{models}");
    assert_eq!(hub.listed()[0]["model"], MODEL);
}

#[test]
fn what_is_not_on_the_hub_or_arrives_changed_is_said_and_not_used() {
    let hub = Hub::new("wrong");
    hub.check_failed(&[], &["pull", "org/none"], "org/none");
    hub.check_failed(&[], &["serve", "org/none", "--port", "0"], "org/none");
    hub.server.next("model.safetensors", &[Answer::WrongBytes; 8]);
    hub.check_failed(&[], &["pull", MODEL], "model.safetensors");
    hub.server.next("model.safetensors", &[Answer::CutAt(1000)]);
    hub.result(&["pull", MODEL]);
    let usage = hub.run(&["pull", "tiny"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(text(&usage.stderr).contains("org/name[@revision]"), "{}", text(&usage.stderr));
}

#[test]
fn a_converted_model_is_uploaded() {
    let hub = Hub::new("uploaded");
    let folder = hub.cache.join("converted");
    let folder = folder.to_str().unwrap();
    let convert = ["convert", MINI, "--mlx-path", folder, "--upload-repo", "me/mini"];
    hub.check_failed(&[], &convert, "uploads need a token");
    let output = hub.run_with(&[("HF_TOKEN", "secret")], &convert);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = format!("{}/me/mini", hub.server.url());
    assert_eq!(text(&output.stdout).trim(), page);
    assert!(hub.server.uploads().private["me/mini"]);
    let card = String::from_utf8(hub.server.uploads().files["me/mini"]["README.md"].clone()).unwrap();
    assert!(card.contains("library_name: mlx"), "{card}");
    let again = hub.run_with(&[("HF_TOKEN", "secret")], &["push", folder, "me/mini"]);
    assert!(text(&again.stderr).contains("files were there already"), "{}", text(&again.stderr));
    assert_eq!(text(&again.stdout).trim(), page);
    hub.check_failed(&[("HF_TOKEN", "secret")], &["push", "/nonexistent", "me/mini"], "/nonexistent");
    let wrong = hub.run(&["push", folder, "../mini"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn a_request_names_a_model_of_the_hub_where_that_is_allowed() {
    let hub = Hub::new("pull-by-request");
    let variables = hub.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = |model: &str| serde_json::json!({"model": model, "prompt": "x", "max_tokens": 1}).to_string();
    let complete = |server: &Server, model: &str| post(server.address, "/v1/completions", &body(model));
    let refusing = Server::start_with(&["--log", "off"], &variables);
    let plan = |server: &Server, model: &str| {
        let body = serde_json::json!({"model": model}).to_string();
        post(server.address, "/v1/models/plan", &body)
    };
    assert_eq!((complete(&refusing, MODEL).status, plan(&refusing, MODEL).status), (404, 404));
    let server = Server::start_with(&["--log", "off", "--allow-pull"], &variables);
    let planned = plan(&server, MODEL);
    assert_eq!(
        (planned.status, &planned.json()["fits"]),
        (200, &serde_json::json!(true)),
        "{}",
        planned.body
    );
    assert!(planned.json()["download_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{}", planned.body);
    assert_eq!((plan(&server, "--help").status, plan(&server, "org/none").status), (400, 503));
    let reply = complete(&server, MODEL);
    assert_eq!((reply.status, reply.json()["model"].as_str()), (200, Some(MODEL)), "{}", reply.body);
    let missing = complete(&server, "org/none");
    assert_eq!(missing.status, 503, "{}", missing.body);
    assert!(missing.body.contains("the model `org/none` is not available: "), "{}", missing.body);
    assert_eq!(complete(&server, "none").status, 404);
}
