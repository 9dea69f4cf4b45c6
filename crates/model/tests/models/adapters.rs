//! Adapters give the logits of mlx-lm's, in both formats, and one that does not fit is refused by name.

use std::fs;
use std::path::{Path, PathBuf};

use omnibus_model::{Kernels, Model, Source};

use crate::golden::{Fixture, fixtures, ways};

/// A base model's directory of its own, removed in the end.
struct Base(PathBuf);

impl Base {
    fn of(fixture: &Fixture) -> Self {
        let name = format!("omnibus-adapters-{}-{}", std::process::id(), fixture.name);
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
    assert!(embedding.starts_with("DIR: `model.embed_tokens` is no layer whose adapters"), "{embedding}");
    // Nothing of them is left.
    let found = ways::distances(&fixture, &model).unwrap();
    assert!(found.iter().all(|way| way.distance <= fixture.bound));
}
