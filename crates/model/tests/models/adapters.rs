//! Adapters give the logits of mlx-lm's, in both formats, and one that does not fit is refused by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use omnibus_model::{AdapterId, Kernels, Model, Source};

use crate::golden::{Fixture, Prompt, fixtures, ways};

/// A base model's directory of its own, removed in the end.
struct Base(PathBuf);

impl Base {
    fn of(fixture: &Fixture) -> Self {
        // Tests beside this one make the same.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("omnibus-adapters-{}-{made}-{}", std::process::id(), fixture.name);
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let config = serde_json::Value::Object(fixture.config.clone());
        fs::write(path.join("config.json"), config.to_string()).unwrap();
        let weights = fixture.weights().unwrap();
        let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
        mlx::io::save_safetensors(path.join("model.safetensors"), tensors, []).unwrap();
        Self(path)
    }

    fn source(&self, adapter: Option<&Path>) -> Source {
        Source::Directory(self.0.clone()).with_adapter(adapter)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

fn all() -> Vec<PathBuf> {
    fixtures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters"), &[]).unwrap()
}

#[test]
fn adapters_give_the_golden_logits() {
    let mut prints = Vec::new();
    for path in all() {
        let fixture = Fixture::read(&path).unwrap();
        let base = Base::of(&fixture);
        let source = base.source(Some(&path));
        prints.extend([source.fingerprint().unwrap(), base.source(None).fingerprint().unwrap()]);
        let model = Model::load(&source, Kernels::fastest()).unwrap();
        for found in ways::distances(&fixture, &model).unwrap() {
            assert!(found.distance <= fixture.bound, "{} {}: {:e}", fixture.name, found.way, found.distance);
        }
        let without = Model::load(&base.source(None), Kernels::fastest()).unwrap();
        let changed = ways::distances(&fixture, &without).unwrap();
        assert!(changed.iter().all(|way| way.distance > 0.01), "{}: changes nothing", fixture.name);
    }
    // Blocks of the prefix cache are never shared between a model and its adapters.
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert!(count > 10 && prints.len() == count);
}

#[test]
fn an_adapter_for_another_model_is_refused_by_its_modules() {
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters");
    let base = Base::of(&Fixture::read(&adapters.join("qwen3.lora")).unwrap());
    let said = |adapter: &str| {
        let source = base.source(Some(&adapters.join(adapter)));
        let error = Model::load(&source, Kernels::fastest()).err().map(|error| error.to_string());
        error.unwrap_or_default().replace(&adapters.display().to_string(), "DIR")
    };
    let moe = said("qwen3_moe.lora");
    assert!(moe.starts_with("DIR/qwen3_moe.lora: is for modules that the model has not, "), "{moe}");
    let absent = said("nothing");
    assert!(absent.starts_with("DIR/nothing/adapter_config.json: "), "{absent}");
}

fn adapter(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters").join(name)
}

/// Of the base model that the adapters named `qwen3.` are for.
fn qwen3() -> (Base, Fixture) {
    let fixture = Fixture::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3")).unwrap();
    (Base::of(&fixture), fixture)
}

/// A fixture's prompts with its adapter, which is loaded beside the weights.
fn named(model: &Model, name: &str) -> Fixture {
    let mut fixture = Fixture::read(&adapter(name)).unwrap();
    let id = model.load_adapter(&adapter(name)).unwrap();
    fixture.prompts.iter_mut().for_each(|prompt| prompt.adapter = Some(id));
    fixture
}

const NAMED: &[&str] =
    &["qwen3.lora", "qwen3.dora", "qwen3.peft", "qwen3.peft-dora", "llama.q-4bit.lora", "qwen3_moe.lora"];

#[test]
fn adapters_beside_the_weights_give_the_golden_logits() {
    for name in NAMED {
        for kernels in [Kernels::fastest(), Kernels::Mlx] {
            let base = Base::of(&Fixture::read(&adapter(name)).unwrap());
            let model = Model::load(&base.source(None), kernels).unwrap();
            let fixture = named(&model, name);
            for found in ways::distances(&fixture, &model).unwrap() {
                let close = found.distance <= fixture.bound;
                assert!(close, "{name} {kernels:?} {}: {:e}", found.way, found.distance);
            }
        }
    }
}

#[test]
fn one_batch_has_the_base_model_and_several_adapters() {
    let (base, mut mixed) = qwen3();
    let model = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    mixed.prompts.truncate(1);
    for name in ["qwen3.lora", "qwen3.dora", "qwen3.peft"] {
        mixed.prompts.extend(named(&model, name).prompts);
    }
    for found in ways::distances(&mixed, &model).unwrap() {
        assert!(found.distance <= mixed.bound, "{}: {:e}", found.way, found.distance);
    }
    let all: Vec<_> = mixed.prompts.iter().collect();
    let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>();
    let together = ways::last_logits(&model, &all).unwrap();
    for (prompt, found) in all.iter().zip(&together) {
        let alone = ways::last_logits(&model, &[prompt]).unwrap().remove(0);
        assert_eq!(bits(&alone), bits(found), "a row depends on the other rows");
    }
    // Without an adapter, the same model has none of its changes.
    let plain = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    let alone = ways::last_logits(&plain, &all[..1]).unwrap().remove(0);
    assert_eq!(bits(&alone), bits(&together[0]));
}

#[test]
fn an_adapter_can_be_unloaded_between_others() {
    let (base, _) = qwen3();
    let model = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    let [lora, dora, peft] = ["qwen3.lora", "qwen3.dora", "qwen3.peft"].map(|name| named(&model, name));
    let gone = lora.prompts[0].adapter.unwrap();
    model.unload_adapter(gone).unwrap();
    assert!(!model.has_adapter(gone) && ways::last_logits(&model, &[&lora.prompts[0]]).is_err());
    for fixture in [&dora, &peft, &named(&model, "qwen3.lora")] {
        for found in ways::distances(fixture, &model).unwrap() {
            assert!(found.distance <= fixture.bound, "{} {}: {:e}", fixture.name, found.way, found.distance);
        }
    }
}

/// A copy of an adapter with another tensor, and how the model refuses it.
fn refused(model: &Model, from: &str, change: impl Fn(&mut Vec<(String, mlx::Array)>)) -> String {
    let folder = std::env::temp_dir().join(format!("omnibus-misfit-{}-{from}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::copy(adapter(from).join("adapter_config.json"), folder.join("adapter_config.json")).unwrap();
    let mut tensors: Vec<_> =
        mlx::io::load_safetensors(adapter(from).join("adapters.safetensors")).unwrap().into_iter().collect();
    change(&mut tensors);
    let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    mlx::io::save_safetensors(folder.join("adapters.safetensors"), named, []).unwrap();
    let error = model.load_adapter(&folder).unwrap_err().to_string();
    fs::remove_dir_all(&folder).unwrap();
    error.replace(&folder.display().to_string(), "DIR")
}

/// A copy of an adapter with another config, and how it is refused.
fn refused_config(from: &str, change: impl Fn(&mut serde_json::Value)) -> String {
    let folder = std::env::temp_dir().join(format!("omnibus-claims-{}-{from}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(adapter(from)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let file = folder.join("adapter_config.json");
    let mut config = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut config);
    fs::write(&file, config.to_string()).unwrap();
    let (base, _) = qwen3();
    let model = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    let error = model.load_adapter(&folder).unwrap_err().to_string();
    fs::remove_dir_all(&folder).unwrap();
    error.replace(&folder.display().to_string(), "DIR")
}

#[test]
fn a_config_that_contradicts_its_tensors_is_refused_by_the_field() {
    let cases: [(&str, &str, serde_json::Value, &str); 5] = [
        ("qwen3.peft", "/r", 8.into(), "`r` is 8, but the matrices of"),
        (
            "qwen3.lora",
            "/lora_parameters/rank",
            16.into(),
            "`lora_parameters.rank` is 16, but the matrices of",
        ),
        ("qwen3.peft", "/use_dora", true.into(), "`use_dora` says DoRA, but"),
        ("qwen3.dora", "/fine_tune_type", "lora".into(), "`fine_tune_type` says no DoRA, but"),
        (
            "qwen3.peft",
            "/target_modules/0",
            "out_proj".into(),
            "`target_modules` names `out_proj`, but no tensor",
        ),
    ];
    for (from, field, value, expected) in cases {
        let error = refused_config(from, |config| *config.pointer_mut(field).unwrap() = value.clone());
        assert!(
            error.starts_with("DIR/adapter_config.json: ") && error.contains(expected),
            "{field}: {error}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let (base, fixture) = qwen3();
    let model = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    let full = model.load_adapter(&adapter("qwen3.full")).unwrap_err().to_string();
    assert!(full.contains("is replaced") && full.contains("--adapter-path"), "{full}");
    let narrow = refused(&model, "qwen3.lora", |tensors| {
        for (_, tensor) in
            tensors.iter_mut().filter(|(name, _)| name.contains("layers.1.mlp.down_proj.lora_a"))
        {
            *tensor = tensor.slice(&[0, 0], &[7, 4]).unwrap();
        }
    });
    expect_test::expect!["DIR: `model.layers.1.mlp.down_proj` takes 7 inputs, the model's module 80"]
        .assert_eq(&narrow);
    let unknown = refused(&model, "qwen3.lora", |tensors| {
        tensors
            .iter_mut()
            .for_each(|(name, _)| *name = name.replace("layers.1.mlp.down_proj", "layers.9.mlp"));
    });
    expect_test::expect!["DIR: is for modules that the model has not, 1 in all: model.layers.9.mlp"]
        .assert_eq(&unknown);
    let embedding = refused(&model, "qwen3.lora", |tensors| {
        tensors.iter_mut().for_each(|(name, _)| {
            *name = name.replace("model.layers.1.mlp.down_proj", "model.embed_tokens");
        });
    });
    assert!(embedding.starts_with("DIR: `model.embed_tokens` is not a layer whose adapters"), "{embedding}");
    // Nothing of them is left.
    let found = ways::distances(&fixture, &model).unwrap();
    assert!(found.iter().all(|way| way.distance <= fixture.bound));
}

/// A random adapter of these modules, `[out, in]` each, in a directory of its own.
fn random_adapter(folder: &Path, modules: &BTreeMap<String, [i32; 2]>) {
    const RANK: i32 = 3;
    fs::create_dir_all(folder).unwrap();
    let mut tensors = Vec::new();
    for (seed, (module, [outputs, inputs])) in modules.iter().enumerate() {
        let key = mlx::random::key(seed as u64).unwrap();
        let matrix = |shape: &[i32]| mlx::random::normal(shape, mlx::Dtype::F32, 0.1, &key).unwrap();
        tensors.push((format!("{module}.lora_a"), matrix(&[*inputs, RANK])));
        tensors.push((format!("{module}.lora_b"), matrix(&[RANK, *outputs])));
    }
    let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    mlx::io::save_safetensors(folder.join("adapters.safetensors"), named, []).unwrap();
    let config = r#"{"fine_tune_type": "lora", "lora_parameters": {"rank": 3, "scale": 1.0}}"#;
    fs::write(folder.join("adapter_config.json"), config).unwrap();
}

/// The modules of a fixture with two axes that its model keeps adapters of.
fn adaptable(fixture: &Fixture, model: &Model, folder: &Path) -> BTreeMap<String, [i32; 2]> {
    let weights = fixture.weights().unwrap();
    let of_two_axes = |(name, tensor): (&String, &mlx::Array)| {
        let module = name.strip_suffix(".weight")?;
        Some((module.to_owned(), tensor.dims().ok()?))
    };
    let mut modules: BTreeMap<String, [i32; 2]> = weights.iter().filter_map(of_two_axes).collect();
    while !modules.is_empty() {
        random_adapter(folder, &modules);
        let Err(error) = model.load_adapter(folder) else { break };
        let error = error.to_string();
        let named = |module: &str| {
            let listed = || error.split([' ', ',']).any(|word| word == module);
            error.contains(&format!("`{module}`")) || (error.contains("the model has not") && listed())
        };
        let before = modules.len();
        modules.retain(|module, _| !named(module));
        assert!(modules.len() < before, "{}: {error}", fixture.name);
    }
    modules
}

/// Mixers and MLPs of all kinds. Some adapters are refused: of layers that compute rows of one run alone (`mamba`, `plamo2`),
/// and of inputs that the model reorders (`plamo`).
const KINDS: &[&str] = &[
    "mamba",
    "plamo",
    "plamo2",
    "recurrent_gemma",
    "rwkv7",
    "mamba2",
    "lfm2",
    "kimi_linear",
    "deepseek_v41",
    "minimax",
    "gemma3n",
    "longcat_flash_ngram",
    "qwen3_next",
];

/// A prompt alone, with an adapter.
fn with_adapter(prompt: &Prompt, adapter: Option<AdapterId>) -> Prompt {
    let (tokens, media) = (prompt.tokens.clone(), prompt.media.clone());
    Prompt { adapter, tokens, decode: Vec::new(), logits: Vec::new(), media }
}

/// Unequal rows with and without a named adapter, beside models with and without the merged one. Gives the modules that it
/// changes: all that the model keeps adapters of.
fn check_named_as_merged(path: &Path) -> BTreeMap<String, [i32; 2]> {
    let fixture = Fixture::read(path).unwrap();
    let base = Base::of(&fixture);
    let model = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    let folder = base.0.join("adapter");
    let modules = adaptable(&fixture, &model, &folder);
    if modules.is_empty() {
        return modules;
    }
    let id = model.load_adapter(&folder).unwrap();
    let adapters = [Some(id), None, Some(id)];
    let prompts: Vec<Prompt> =
        fixture.prompts.iter().zip(adapters).map(|(prompt, adapter)| with_adapter(prompt, adapter)).collect();
    let found = ways::last_logits(&model, &prompts.iter().collect::<Vec<_>>());
    let found = found.unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
    let merged = Model::load(&base.source(Some(&folder)), Kernels::fastest()).unwrap();
    let plain = Model::load(&base.source(None), Kernels::fastest()).unwrap();
    for (prompt, found) in prompts.iter().zip(&found) {
        let model = if prompt.adapter.is_some() { &merged } else { &plain };
        let expected = ways::last_logits(model, &[&with_adapter(prompt, None)]).unwrap().remove(0);
        let largest = expected.iter().fold(0f32, |most, logit| most.max(logit.abs()));
        let apart = expected.iter().zip(found).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(apart <= 20.0 * fixture.bound * largest, "{}: {apart:e} of {largest}", fixture.name);
    }
    modules
}

#[test]
fn named_adapters_of_all_kinds_of_layers_are_as_merged_ones() {
    let fixtures_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for name in KINDS {
        let modules = check_named_as_merged(&fixtures_at.join(name));
        let has = |end: &str| modules.keys().any(|module| module.ends_with(end));
        match *name {
            "mamba" => assert!(has("in_proj") && !has("x_proj") && !has("dt_proj")),
            "plamo" => assert!(has("q_proj") && !has("o_proj")),
            "plamo2" => assert!(has("in_proj") && !has("bcdt_proj") && !has("dt_proj")),
            _ => assert!(!modules.is_empty(), "{name}"),
        }
    }
}

#[test]
#[ignore = "all fixtures in mlx-lm's layout, half a minute: run by hand after a change of mixers"]
fn named_adapters_of_every_fixture_are_as_merged_ones() {
    let fixtures_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let is_ours = |path: &PathBuf| !path.to_string_lossy().ends_with(".hf");
    let failed: Vec<PathBuf> = fixtures(&fixtures_at, &[])
        .unwrap()
        .into_iter()
        .filter(is_ours)
        .filter(|path| std::panic::catch_unwind(|| drop(check_named_as_merged(path))).is_err())
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}
