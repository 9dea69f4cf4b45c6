//! Model directories: a sound one loads, a broken or malicious one gives one clear line.

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use mlx::Array;
use omnibus_model::{Kernels, Model, RandomWeights, Source};
use serde_json::{Value, json};

/// A directory of its own for one test, with a sound checkpoint in it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-loading-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3");
        fs::copy(fixture.join("config.json"), path.join("config.json")).unwrap();
        let recipe: Value = serde_json::from_slice(&fs::read(fixture.join("tensors.json")).unwrap()).unwrap();
        let weights = crate::golden::generate::weights(&recipe).unwrap();
        let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
        mlx::io::save_safetensors(path.join("model.safetensors"), tensors, []).unwrap();
        Self(path)
    }

    fn config(&self, change: impl FnOnce(&mut Value)) {
        let path = self.0.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut config);
        fs::write(path, config.to_string()).unwrap();
    }

    fn load(&self) -> Result<Model, String> {
        let source = Source::Directory(self.0.clone());
        Model::load(&source, Kernels::fastest()).map_err(|error| error.to_string())
    }

    /// What loading says, without the directory's own path.
    fn check(&self, expect: Expect) {
        let said = match self.load() {
            Ok(_) => "loaded".to_owned(),
            Err(error) => error.replace(&self.0.display().to_string(), "DIR"),
        };
        assert!(!said.contains('\n'), "one line: {said}");
        expect.assert_eq(&said);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

/// A file that claims a header of `length` bytes and has this one.
fn safetensors(length: u64, header: &str, data: usize) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(std::iter::repeat_n(0, data));
    bytes
}

#[test]
fn a_sound_directory_loads() {
    Directory::new("sound").check(expect!["loaded"]);
}

#[test]
fn a_missing_config_says_what_a_directory_holds() {
    let directory = Directory::new("no-config");
    fs::remove_file(directory.0.join("config.json")).unwrap();
    directory.check(expect![
        "DIR/config.json: no such file; a model directory holds config.json, *.safetensors and tokenizer.json"
    ]);
}

#[test]
fn an_unknown_type_is_refused_by_name() {
    let directory = Directory::new("type");
    directory.config(|config| config["model_type"] = json!("perceptron"));
    directory.check(expect![
        "DIR/config.json: `model_type` is perceptron; supported: those that `omnibus models` lists"
    ]);
}

#[test]
fn an_unknown_field_is_refused() {
    let directory = Directory::new("unread");
    directory.config(|config| config["attn_output_gate"] = json!(true));
    directory.check(expect!["DIR/config.json: unknown or unsupported field: attn_output_gate"]);
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    let directory = Directory::new("sizes");
    directory.config(|config| config["num_key_value_heads"] = json!(3));
    directory.check(expect![
        "DIR/config.json: does not hold: `num_key_value_heads` (3) divides `num_attention_heads` (4)"
    ]);
    directory.config(|config| config["num_key_value_heads"] = json!(0));
    directory
        .check(expect!["DIR/config.json: `num_key_value_heads` should be a positive whole number, not 0"]);
    directory.config(|config| config["num_key_value_heads"] = json!(-1));
    directory
        .check(expect!["DIR/config.json: `num_key_value_heads` should be a positive whole number, not -1"]);
}

#[test]
fn a_size_beyond_any_model_is_refused_by_field_and_value() {
    let directory = Directory::new("large");
    directory.config(|config| config["intermediate_size"] = json!(1 << 25));
    directory.check(expect![
        "DIR/config.json: does not hold: `intermediate_size` (33554432) is from 1 to 16777216"
    ]);
}

#[test]
fn a_number_that_is_not_finite_is_refused_by_field() {
    let directory = Directory::new("finite");
    let path = directory.0.join("config.json");
    let sound = fs::read_to_string(&path).unwrap();
    let mut config: Value = serde_json::from_str(&sound).unwrap();
    config["rms_norm_eps"] = json!("EPS");
    for (eps, expect) in [
        ("NaN", expect![[r#"DIR/config.json: `rms_norm_eps` should be a finite number, not "NaN""#]]),
        (
            "Infinity",
            expect![[r#"DIR/config.json: `rms_norm_eps` should be a finite number, not "Infinity""#]],
        ),
        (
            "-Infinity",
            expect![[r#"DIR/config.json: `rms_norm_eps` should be a finite number, not "-Infinity""#]],
        ),
        ("1e39", expect!["DIR/config.json: `rms_norm_eps` should be a finite number, not 1e+39"]),
    ] {
        fs::write(&path, config.to_string().replace("\"EPS\"", eps)).unwrap();
        directory.check(expect);
    }
}

#[test]
fn a_float_tensor_stored_as_integers_is_refused_by_name() {
    let directory = Directory::new("integers");
    let file = directory.0.join("model.safetensors");
    let mut weights = mlx::io::load_safetensors(&file).unwrap();
    mlx::eval(weights.values()).unwrap();
    for name in ["model.norm.weight", "model.layers.0.mlp.up_proj.weight"] {
        let tensor = weights.get_mut(name).unwrap();
        *tensor = tensor.astype(mlx::Dtype::I32).unwrap();
    }
    mlx::eval(weights.values()).unwrap();
    fs::remove_file(&file).unwrap();
    let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
    mlx::io::save_safetensors(&file, tensors, []).unwrap();
    directory.check(expect!["the weights do not fit the config: of another type: model.layers.0.mlp.up_proj.weight is int32, not a float, model.norm.weight is int32, not a float"]);
}

#[test]
fn an_index_that_maps_to_no_file_name_is_refused() {
    let directory = Directory::new("index-numbers");
    let index = json!({"weight_map": {"model.norm.weight": 1}}).to_string();
    fs::write(directory.0.join("model.safetensors.index.json"), index).unwrap();
    directory.check(expect!["DIR/model.safetensors.index.json: `weight_map` should map `model.norm.weight` to a file name, not to 1"]);
}

#[test]
fn a_foreign_quantization_is_refused_by_name() {
    let directory = Directory::new("awq");
    directory.config(|config| config["quantization_config"] = json!({"quant_method": "bitsandbytes"}));
    directory.check(expect!["DIR/config.json: `quantization_config` is bitsandbytes; supported: mlx's own (affine, mxfp4, mxfp8, nvfp4), awq, gptq, compressed-tensors, fp8, fbgemm_fp8, mxfp4, mxfp8, modelopt, bitnet; convert other formats with the library that made them"]);
    directory.config(|config| config["quantization_config"] = json!({"quant_method": "awq", "bits": 3}));
    directory.check(expect!["DIR/config.json: `quantization_config.bits` is 3; supported: 4"]);
    directory.config(|config| {
        config["quantization_config"] = json!({"quant_method": "awq", "version": "gemv"});
    });
    directory.check(expect!["DIR/config.json: `quantization_config.version` is gemv; supported: gemm"]);
    directory.config(|config| {
        config["quantization_config"] = json!({"quant_method": "compressed-tensors", "format": "marlin-24"});
    });
    directory.check(expect!["DIR/config.json: `quantization_config.format` is marlin-24; supported: pack-quantized, mxfp4-pack-quantized, nvfp4-pack-quantized, float-quantized, int-quantized, naive-quantized, mixed-precision"]);
}

#[test]
fn tensors_must_be_those_the_config_names() {
    let directory = Directory::new("names");
    directory.config(|config| config["num_hidden_layers"] = json!(1));
    let said = directory.load().err().unwrap();
    assert!(said.contains("unexpected: model.layers.1.input_layernorm.weight"), "{said}");
    directory.config(|config| config["num_hidden_layers"] = json!(3));
    let said = directory.load().err().unwrap();
    assert!(said.contains("missing: model.layers.2.input_layernorm.weight"), "{said}");
    directory.config(|config| {
        config["num_hidden_layers"] = json!(2);
        config["intermediate_size"] = json!(81);
    });
    let said = directory.load().err().unwrap();
    assert!(said.contains("model.layers.0.mlp.down_proj.weight is [64, 80], not [64, 81]"), "{said}");
}

#[test]
fn a_header_longer_than_the_file_is_refused() {
    let directory = Directory::new("header");
    fs::write(directory.0.join("model.safetensors"), safetensors(1 << 60, "{}", 0)).unwrap();
    directory.check(expect!["DIR/model.safetensors: not a sound safetensors file: a header of 1152921504606846976 bytes in a file of 10"]);
    fs::write(directory.0.join("model.safetensors"), [1, 2, 3]).unwrap();
    directory.check(expect!["DIR/model.safetensors: not a sound safetensors file: shorter than its header"]);
}

#[test]
fn offsets_that_do_not_fit_are_refused() {
    let directory = Directory::new("offsets");
    for (why, header, data) in [
        ("past the end", r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#, 8),
        (
            "overlapping",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
            12,
        ),
        ("of another size", r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8),
        ("backwards", r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8),
        ("overflowing", r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#, 8),
        ("not JSON", "{{{{", 8),
    ] {
        let bytes = safetensors(header.len() as u64, header, data);
        fs::write(directory.0.join("model.safetensors"), bytes).unwrap();
        let said = directory.load().err().unwrap();
        assert!(said.contains("not a sound safetensors file"), "{why}: {said}");
    }
}

#[test]
fn a_truncated_download_says_so() {
    let directory = Directory::new("truncated");
    let path = directory.0.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    let said = directory.load().err().unwrap();
    assert!(said.contains("download it again"), "{said}");
}

#[test]
fn an_index_cannot_name_files_elsewhere() {
    let directory = Directory::new("index");
    let index = |file: &str| json!({"weight_map": {"model.norm.weight": file}}).to_string();
    let path = directory.0.join("model.safetensors.index.json");
    fs::write(&path, index("../../etc/passwd")).unwrap();
    directory.check(expect![
        "DIR/model.safetensors.index.json: `../../etc/passwd` is not a file of this directory"
    ]);
    fs::write(&path, index("/etc/passwd")).unwrap();
    directory
        .check(expect!["DIR/model.safetensors.index.json: `/etc/passwd` is not a file of this directory"]);
    fs::write(&path, index("model-00001-of-00002.safetensors")).unwrap();
    directory.check(expect!["DIR/model-00001-of-00002.safetensors: the index names this shard, but it is not there; download it again"]);
}

#[test]
fn shards_are_read_together_and_may_not_repeat_a_tensor() {
    let directory = Directory::new("shards");
    let whole = mlx::io::load_safetensors(directory.0.join("model.safetensors")).unwrap();
    let save = |file: &str, tensors: &[(&str, &Array)]| {
        mlx::io::save_safetensors(directory.0.join(file), tensors.iter().copied(), []).unwrap();
    };
    let tensors: Vec<(&str, &Array)> = whole.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    mlx::eval(whole.values()).unwrap();
    let (first, second) = tensors.split_at(tensors.len() / 2);
    fs::remove_file(directory.0.join("model.safetensors")).unwrap();
    save("model-00001-of-00002.safetensors", first);
    save("model-00002-of-00002.safetensors", second);
    directory.check(expect!["loaded"]);
    save("model-00002-of-00002.safetensors", &tensors[tensors.len() / 2 - 1..]);
    let said = directory.load().err().unwrap();
    assert!(said.contains("is in another shard, too"), "{said}");
}

/// Benchmarks make a model from its config alone.
#[test]
fn every_config_loads_with_random_weights() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    crate::cores::each(crate::golden::fixtures(&fixtures, &[]).unwrap(), |directory| {
        let config = fs::read_to_string(directory.join("config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        if let Some(config) = config.as_object_mut() {
            // Of the stored weights.
            config.retain(|name, _| !name.starts_with("quantization"));
        }
        let name = directory.display().to_string();
        let random = RandomWeights::new(&name, &config.to_string(), None).unwrap();
        let loaded = Model::load(&Source::Random(random), Kernels::fastest());
        assert!(
            loaded.is_ok(),
            "{name}: {}",
            loaded.err().map(|error| error.to_string()).unwrap_or_default()
        );
    });
}
