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
