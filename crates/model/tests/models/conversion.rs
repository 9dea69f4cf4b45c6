//! Conversions: what is written is in mlx-lm's layout, and loads as what it was.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mlx::{Array, Dtype, QuantMode, Quantized};
use omnibus_model::convert::{Conversion, Packing, Recipe, SHARD_BYTES};
use omnibus_model::{Kernels, Model, QuantizationChoice, Source, WeightRewrite, Weights, families};

use crate::cores;
use crate::golden::{Fixture, fixtures, ways};

fn all() -> Vec<PathBuf> {
    fixtures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"), &[]).unwrap()
}

/// A directory of its own, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-convert-{}-{name}", std::process::id()));
        let _absent = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a fixture as a checkpoint.
    fn with(&self, fixture: &Fixture) -> PathBuf {
        let directory = self.0.join(&fixture.name);
        fs::create_dir_all(&directory).unwrap();
        let config = serde_json::Value::Object(fixture.config.clone());
        fs::write(directory.join("config.json"), config.to_string()).unwrap();
        save(&directory.join("model.safetensors"), &fixture.weights().unwrap());
        directory
    }

    fn conversion(&self, source: &Path, packing: Packing) -> Conversion {
        let to = self.0.join("converted").join(source.file_name().unwrap());
        let source = Source::Directory(source.to_owned());
        Conversion { source, to, packing, inputs: None, dtype: None, shard_bytes: SHARD_BYTES }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

fn save(path: &Path, weights: &Weights) {
    let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
    mlx::io::save_safetensors(path, tensors, []).unwrap();
}

fn tensors(directory: &Path) -> Weights {
    Source::Directory(directory.to_owned()).weights().unwrap()
}

fn bits(bits: i32) -> Packing {
    let choice = QuantizationChoice { group: 32, bits, mode: QuantMode::Affine };
    Packing::Quantize { choice, recipe: Recipe::Uniform }
}

/// True of rotated modules, which mlx-lm loads with the bits that they have.
fn is_refused(error: &omnibus_model::Error) -> bool {
    error.to_string().contains("mlx-lm loads rotated ones with 2 bits alone")
}

/// A checkpoint in mlx-lm's layout comes out as it went in; a published one as the fixture in mlx-lm's layout.
#[test]
fn converted_checkpoints_have_the_tensors_of_mlx_lm() {
    let directory = Directory::new("layout");
    let wrong = cores::each(all(), |path| {
        let fixture = Fixture::read(&path).unwrap();
        let source = directory.with(&fixture);
        let conversion = directory.conversion(&source, Packing::AsStored);
        if let Err(error) = conversion.run(&mut |_| {}) {
            return Some(format!("{}: {error}", fixture.name));
        }
        let found = tensors(&conversion.to);
        let published = fixture.name.strip_suffix(".hf");
        let shapes = |weights: &Weights| -> BTreeSet<(String, Vec<i32>)> {
            weights.iter().map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect()
        };
        let base = published.unwrap_or(&fixture.name);
        let reference = path.with_file_name(base);
        // Formats of other libraries have no fixture in mlx-lm's layout.
        if !reference.is_dir() {
            return None;
        }
        let want_fixture = Fixture::read(&reference).unwrap();
        let want = want_fixture.weights().unwrap();
        let (found_shapes, want_shapes) = (shapes(&found), shapes(&want));
        if found_shapes != want_shapes {
            let extra: Vec<_> = found_shapes.difference(&want_shapes).take(3).collect();
            let missing: Vec<_> = want_shapes.difference(&found_shapes).take(3).collect();
            // A head that is published only where it is not the embedding.
            let tied = extra.is_empty() && missing.iter().all(|(name, _)| name.ends_with("lm_head.weight"));
            // Packed as published.
            let is_known = tied || fixture.name == "gpt_oss.hf";
            return (!is_known).then(|| format!("{}: has {extra:?}, lacks {missing:?}", fixture.name));
        } else if published.is_none() {
            // A head that is normalized whenever it is loaded.
            let is_normed = |name: &str| name == "lm_head.weight" && normalizes_head(&want_fixture.config);
            let differs = |name: &&String| {
                !is_normed(name) && found[*name].to_bytes().unwrap() != want[*name].to_bytes().unwrap()
            };
            return want.keys().find(differs).map(|name| format!("{}: {name} differs", fixture.name));
        }
        None
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn normalizes_head(config: &serde_json::Map<String, serde_json::Value>) -> bool {
    families::read(config).unwrap().rewrites.iter().any(|rewrite| {
        matches!(rewrite, WeightRewrite::NormalizeInputs { .. } | WeightRewrite::NormalizeOutputs { .. })
    })
}

/// The head is normalized before it is packed, and its codes are left alone when it is loaded.
#[test]
fn packed_heads_are_normalized_once() {
    let directory = Directory::new("heads");
    let fixtures: Vec<Fixture> = all().iter().map(|path| Fixture::read(path).unwrap()).collect();
    let normed: Vec<&Fixture> = fixtures.iter().filter(|fixture| normalizes_head(&fixture.config)).collect();
    assert!(normed.len() > 1);
    for fixture in normed {
        let source = directory.with(fixture);
        let conversion = directory.conversion(&source, bits(8));
        conversion.run(&mut |_| {}).unwrap();
        let model = Model::load(&Source::Directory(conversion.to.clone()), Kernels::fastest()).unwrap();
        for way in ways::distances(fixture, &model).unwrap() {
            assert!(way.distance < 0.2, "{}: {}", fixture.name, way.distance);
        }
    }
}

/// Packed here, loaded again, and near what the floats give.
#[test]
fn every_family_can_be_quantized_and_loaded() {
    let directory = Directory::new("quantized");
    let wrong = cores::each(all(), |path| {
        let fixture = Fixture::read(&path).unwrap();
        if fixture.name.contains(".q-") {
            return None;
        }
        let source = directory.with(&fixture);
        let conversion = directory.conversion(&source, bits(8));
        let result = conversion
            .run(&mut |_| {})
            .and_then(|_| Model::load(&Source::Directory(conversion.to.clone()), Kernels::fastest()));
        match result {
            Err(error) if fixture.name == "prism_hadamard_qwen35" && is_refused(&error) => None,
            Err(error) => Some(format!("{}: {error}", fixture.name)),
            Ok(model) => {
                // Other ways differ in what a conversion leaves alone.
                let found = ways::distances_of(&fixture.prompts[..1], &model).unwrap();
                let worst = found.iter().fold(0f32, |worst, way| worst.max(way.distance));
                // Experts may be chosen otherwise, so that it need not be small.
                println!("{:28} {worst:.1e}", fixture.name);
                (!worst.is_finite()).then(|| format!("{}: {worst}", fixture.name))
            }
        }
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The second of two layers, which two passes compute, is the last: it has more bits. Shape by mlx-lm 0.32.2.
/// mlx-lm has no layout for it, and without its encoder it is of no use.
#[test]
fn a_model_that_only_writes_down_speech_is_not_converted() {
    let directory = Directory::new("speech");
    let fixture = Fixture::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speech/whisper")).unwrap();
    let source = directory.with(&fixture);
    let error = directory.conversion(&source, Packing::AsStored).run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("serve this checkpoint as it is"), "{error}");
}

#[test]
fn mixed_recipes_count_the_layers_of_the_checkpoint() {
    let directory = Directory::new("mixed");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nanbeige");
    let source = directory.with(&Fixture::read(&path).unwrap());
    let choice = QuantizationChoice { group: 32, bits: 3, mode: QuantMode::Affine };
    let recipe = Recipe::from_name("mixed_3_6").unwrap();
    let conversion = directory.conversion(&source, Packing::Quantize { choice, recipe });
    conversion.run(&mut |_| {}).unwrap();
    assert_eq!(tensors(&conversion.to)["model.layers.1.self_attn.v_proj.weight"].shape(), [32, 12]);
}

fn small(directory: &Directory) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3.hf");
    directory.with(&Fixture::read(&path).unwrap())
}

/// A packed module of a checkpoint as floats.
fn unpacked(tensors: &Weights, path: &str) -> Array {
    let tensor = |part: &str| tensors[&format!("{path}.{part}")].clone();
    let (weight, scales, biases) = (tensor("weight"), tensor("scales"), Some(tensor("biases")));
    let packed = Quantized { weight, scales, biases, group: 32, bits: 4, mode: QuantMode::Affine };
    packed.dequantize(Dtype::F32).unwrap()
}

/// Every packed module has known inputs, and its outputs are nearer to those of the floats.
#[test]
fn packing_by_inputs_keeps_outputs_nearer() {
    let directory = Directory::new("by-inputs");
    for name in ["llama", "mixtral", "deepseek_v3"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let fixture = Fixture::read(&path).unwrap();
        let source = directory.with(&fixture);
        let plain = directory.conversion(&source, bits(4));
        let model = Model::load(&plain.source, Kernels::fastest()).unwrap();
        let inputs = model.input_squares(|evaluate| {
            ways::distances(&fixture, &model)?;
            evaluate()
        });
        let inputs = inputs.unwrap();
        let to = directory.0.join(format!("{name}-by-inputs"));
        let by_inputs = Conversion { inputs: Some(inputs.clone()), to, ..plain.clone() };
        plain.run(&mut |_| {}).unwrap();
        by_inputs.run(&mut |_| {}).unwrap();
        let [plain, by_inputs, floats] = [&plain.to, &by_inputs.to, &source].map(|to| tensors(to));
        let (mut before, mut after, mut unknown) = (0.0, 0.0, Vec::new());
        for path in plain.keys().filter_map(|name| name.strip_suffix(".scales")) {
            let Some(squares) = inputs.of(path) else {
                unknown.push(path);
                continue;
            };
            let squares = Array::from_slice(squares, &[squares.len() as i32]).unwrap();
            let error = |tensors: &Weights| {
                let apart = unpacked(tensors, path) - &floats[&format!("{path}.weight")];
                let error = (&apart * &apart * &squares).reshape(&[-1]).unwrap().sum(&[0]).unwrap();
                f64::from(error.to_vec::<f32>().unwrap()[0])
            };
            (before, after) = (before + error(&plain), after + error(&by_inputs));
        }
        println!("{name}: {after:.3e} beside {before:.3e}, unknown {unknown:?}");
        assert!(after < 0.9 * before, "{name}: {after} beside {before}");
        // Embeddings have no inputs.
        assert!(unknown.iter().all(|path| path.ends_with("embed_tokens")), "{name}: {unknown:?}");
    }
}

#[test]
fn an_interrupted_conversion_is_completed() {
    let directory = Directory::new("resumed");
    let source = small(&directory);
    let conversion = Conversion { shard_bytes: 8 << 10, ..directory.conversion(&source, bits(4)) };
    let whole = conversion.run(&mut |_| {}).unwrap();
    assert_eq!(whole.files_kept, 0);
    let files = |ending: &str| {
        let entries = fs::read_dir(&conversion.to).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
        files.sort();
        files
    };
    let all = files(".safetensors");
    assert!(all.len() > 3, "{all:?}");
    let bytes: Vec<Vec<u8>> = all.iter().map(|file| fs::read(file).unwrap()).collect();
    let again = conversion.run(&mut |_| {}).unwrap_err().to_string();
    assert!(again.contains("exists; remove it or name another directory"), "{again}");
    // As it would be had it ended within the second file.
    fs::remove_dir_all(&conversion.to).unwrap();
    let mut seen = 0;
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        conversion.run(&mut |progress| {
            seen = progress.files_done;
            assert!(seen < 2, "stop");
        })
    }));
    assert!(stopped.is_err() && seen == 2);
    let other = Conversion { dtype: Some(Dtype::F16), ..conversion.clone() };
    let refused = other.run(&mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("an unfinished conversion of another kind"), "{refused}");
    let resumed = conversion.run(&mut |_| {}).unwrap();
    assert_eq!(resumed.files_kept, 2);
    let after: Vec<Vec<u8>> = files(".safetensors").iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(bytes == after && files(".part").is_empty());
}

#[test]
fn memory_holds_one_tensor_at_a_time() {
    let directory = Directory::new("memory");
    let source = directory.0.join("large");
    fs::create_dir_all(&source).unwrap();
    let config = r#"{"model_type": "llama", "vocab_size": 512, "hidden_size": 512, "num_hidden_layers": 12,
        "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "torch_dtype": "float32"}"#;
    let random = omnibus_model::RandomWeights::new("large", config, None).unwrap();
    fs::write(source.join("config.json"), config).unwrap();
    save(&source.join("model.safetensors"), &Source::Random(random).weights().unwrap());
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    let before = mlx::memory::active_memory();
    let summary = directory.conversion(&source, bits(4)).run(&mut |_| {}).unwrap();
    let peak = mlx::memory::peak_memory() - before;
    let largest = 512 * 1024 * 4;
    println!(
        "{} parameters, {:.2} bits each, {peak} bytes at most",
        summary.parameters,
        summary.bits_per_weight()
    );
    assert!(summary.parameters > 25_000_000 && peak < 4 * largest, "{peak} bytes");
}
