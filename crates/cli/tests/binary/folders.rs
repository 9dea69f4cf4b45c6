//! Model directories that are broken or hostile.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::process::{run, text};

const MINI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/omnibus-mini");

/// A copy of the embedded model to change, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-folder-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for entry in std::fs::read_dir(MINI).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(file), bytes).unwrap();
    }

    fn config(&self, change: impl FnOnce(&mut Value)) {
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(self.0.join("config.json")).unwrap()).unwrap();
        change(&mut config);
        self.write("config.json", config.to_string());
    }

    /// Replaces the weights by this safetensors header and data.
    fn weights(&self, header: &str, data: &[u8]) {
        let length = (header.len() as u64).to_le_bytes();
        self.write("model.safetensors", [length.as_slice(), header.as_bytes(), data].concat());
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.0.join(file)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit code 1 and one line with the reason, after this change to the model.
fn check_refused(name: &str, change: impl FnOnce(&Folder), expected: &str) {
    let folder = Folder::new(name);
    change(&folder);
    let output =
        run(&["generate", "-m", folder.0.to_str().unwrap(), "--raw", "-p", "a", "--max-tokens", "1"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{name}: {stderr}");
    assert!(stderr.contains(expected), "{name}: {stderr}");
}

#[test]
fn an_unchanged_copy_is_served() {
    let folder = Folder::new("whole");
    let output = run(&["generate", "-m", folder.0.to_str().unwrap(), "-p", "hi", "--max-tokens", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(Path::new(MINI).is_dir());
}

#[test]
fn broken_configurations_are_refused_in_one_line() {
    check_refused("no-config", |folder| folder.remove("config.json"), "config.json");
    check_refused("config-cut", |folder| folder.write("config.json", "{\"model_type\":"), "config.json");
    check_refused("config-list", |folder| folder.write("config.json", "[]"), "config.json");
    check_refused("config-deep", |folder| folder.write("config.json", "[".repeat(100_000)), "config.json");
    check_refused(
        "unknown-type",
        |folder| folder.config(|config| config["model_type"] = json!("mystery")),
        "mystery",
    );
    check_refused(
        "unread-field",
        |folder| folder.config(|config| config["secret_sauce"] = json!(7)),
        "secret_sauce",
    );
    check_refused("no-layers", |folder| folder.config(|config| config["num_hidden_layers"] = json!(0)), "");
    check_refused(
        "many-layers",
        |folder| folder.config(|config| config["num_hidden_layers"] = json!(1_u64 << 60)),
        "",
    );
    check_refused(
        "negative",
        |folder| folder.config(|config| config["hidden_size"] = json!(-256)),
        "hidden_size",
    );
    check_refused("odd-heads", |folder| folder.config(|config| config["num_key_value_heads"] = json!(3)), "");
    check_refused(
        "text-size",
        |folder| folder.config(|config| config["vocab_size"] = json!("many")),
        "vocab_size",
    );
    check_refused(
        "odd-bits",
        |folder| folder.config(|config| config["quantization"]["bits"] = json!(77)),
        "",
    );
}

#[test]
fn broken_weights_are_refused_in_one_line() {
    let tensor = |shape: &str, offsets: &str| {
        format!(r#"{{"model.norm.weight":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    check_refused("no-weights", |folder| folder.remove("model.safetensors"), "safetensors");
    check_refused("empty-weights", |folder| folder.write("model.safetensors", ""), "");
    check_refused("huge-header", |folder| folder.write("model.safetensors", (1_u64 << 60).to_le_bytes()), "");
    check_refused("no-json", |folder| folder.weights("not json", b""), "");
    check_refused("past-the-end", |folder| folder.weights(&tensor("[256]", "[0,1024]"), b"1234"), "");
    check_refused("backwards", |folder| folder.weights(&tensor("[1]", "[4,0]"), b"1234"), "");
    check_refused("wrong-size", |folder| folder.weights(&tensor("[300]", "[0,4]"), b"1234"), "");
    check_refused(
        "overflow",
        |folder| folder.weights(&tensor("[4294967296,4294967296]", "[0,4]"), b"1234"),
        "",
    );
    check_refused("too-few", |folder| folder.weights(&tensor("[1]", "[0,4]"), b"1234"), "");
    let index = r#"{"weight_map":{"model.norm.weight":"../../../../etc/passwd"}}"#;
    let escape = |folder: &Folder| {
        folder.remove("model.safetensors");
        folder.write("model.safetensors.index.json", index);
    };
    check_refused("index-escapes", escape, "");
}

#[test]
fn broken_tokenizers_are_refused_in_one_line() {
    check_refused("no-tokenizer", |folder| folder.remove("tokenizer.json"), "tokenizer");
    check_refused("tokenizer-cut", |folder| folder.write("tokenizer.json", "{\"model\":"), "tokenizer");
    check_refused(
        "tokenizer-panics",
        |folder| {
            let bytes = std::fs::read(folder.0.join("tokenizer.json")).unwrap();
            let mut tokenizer: Value = serde_json::from_slice(&bytes).unwrap();
            // The tokenizers crate cuts this off the parts of each merge, whatever their length.
            tokenizer["model"]["continuing_subword_prefix"] = json!("x".repeat(40));
            folder.write("tokenizer.json", tokenizer.to_string());
        },
        "the tokenizer panicked",
    );
    check_refused("tokenizer-empty", |folder| folder.write("tokenizer.json", "{}"), "tokenizer");
}

#[test]
fn code_in_a_model_directory_is_not_run() {
    let folder = Folder::new("code");
    let trace = folder.0.join("trace");
    folder.write("evil.py", format!("open({:?}, 'w')", trace.display().to_string()));
    folder.config(|config| config["auto_map"] = json!({"AutoModelForCausalLM": "evil.Model"}));
    run(&["generate", "-m", folder.0.to_str().unwrap(), "-p", "a", "--max-tokens", "1"]);
    assert!(!trace.exists());
}
