//! Embedders: golden hidden states of each token of texts, alone and packed in one batch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlx::{Array, Dtype};
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::{
    Batch, HiddenPlace, HiddenRows, Kernels, KvCache, KvCacheGroup, Model, MultimodalRows, Segment, Source,
};
use serde_json::Value;

use crate::cores::each;
use crate::golden::generate;

const BLOCK_SIZE: usize = 4;

struct Fixture {
    name: String,
    model: Model,
    golden: BTreeMap<String, Array>,
    bound: f32,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedders")
}

/// A fixture with golden hidden states.
fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| folder().join(name).join("golden.safetensors").is_file())
        .collect();
    names.sort();
    names
}

impl Fixture {
    fn read(name: &str, kernels: Kernels) -> Self {
        let at = folder().join(name);
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedders").join(format!("{name}.{kernels:?}"));
        std::fs::create_dir_all(&to).unwrap();
        let recipe: Value = serde_json::from_slice(&std::fs::read(at.join("tensors.json")).unwrap()).unwrap();
        let mut weights = generate::weights(&recipe).unwrap();
        let more = at.join("extra.safetensors");
        if more.is_file() {
            weights.extend(mlx::io::load_safetensors(more).unwrap());
        }
        let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
        mlx::io::save_safetensors(to.join("model.safetensors"), tensors, []).unwrap();
        std::fs::copy(at.join("config.json"), to.join("config.json")).unwrap();
        let model =
            Model::load(&Source::Directory(to), kernels).unwrap_or_else(|error| panic!("{name}: {error}"));
        let golden = at.join("golden.safetensors");
        let bytes = std::fs::read(&golden).unwrap();
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().clone().unwrap_or_default();
        let sensitivity: f32 = metadata["sensitivity"].parse().unwrap();
        let golden = mlx::io::load_safetensors(&golden).unwrap().into_iter().collect();
        Self { name: name.to_owned(), model, golden, bound: (10.0 * sensitivity).max(2e-5) }
    }

    /// The tokens of each text, with their types, by its number.
    fn texts(&self) -> Vec<(String, Vec<i32>)> {
        let of = |name: &str| self.golden.get(name).map(|array| array.to_vec::<i32>().unwrap());
        let vocab = self.model.blueprint().vocab as i32;
        let ids = self.golden.keys().filter_map(|name| name.strip_prefix("ids."));
        let numbered = ids.filter(|number| number.parse::<usize>().is_ok());
        numbered
            .map(|number| {
                let mut tokens = of(&format!("ids.{number}")).unwrap();
                let types = of(&format!("types.{number}")).unwrap_or_default();
                tokens.iter_mut().zip(types).for_each(|(token, kind)| *token += kind * vocab);
                (number.to_owned(), tokens)
            })
            .filter(|(_, tokens)| !tokens.is_empty())
            .collect()
    }

    /// Hidden states of all tokens of texts that are packed in one batch, `[tokens, hidden]` each.
    fn states(&self, texts: &[&[i32]]) -> Vec<Array> {
        let groups = self.model.blueprint().kv_cache_groups(self.model.kv_float());
        let of_text = texts.iter().map(|text| text.len()).max().unwrap_or(0).div_ceil(BLOCK_SIZE);
        let blocks = vec![of_text * texts.len(); groups.len()];
        let mut cache =
            KvCache::new(self.model.blueprint(), &blocks, BLOCK_SIZE, self.model.kv_float()).unwrap();
        let rows: usize = texts.iter().map(|text| text.len()).sum();
        let mut first = 0;
        let (mut segments, mut spans) = (Vec::new(), Vec::new());
        for (number, text) in texts.iter().enumerate() {
            let table = |group: &KvCacheGroup| {
                let blocks = (0..of_text).rev().map(|block| BlockId((number * of_text + block) as u32));
                BlockTable { blocks: blocks.collect(), ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
            };
            let tables = cache.groups().iter().map(table).collect();
            let (len, prompt) = (text.len(), text.len());
            segments.push(Segment { first, len, context: 0, prompt, samples: 0, adapter: None, tables });
            let tokens: Vec<u32> = text.iter().map(|token| *token as u32).collect();
            for runs in self.model.blueprint().bidirectional_spans(&tokens, &[]) {
                spans.push(runs.iter().map(|run| first + run.start..first + run.end).collect());
            }
            first += len;
        }
        let tokens = Array::from_slice(&texts.concat(), &[rows as i32]).unwrap();
        let multimodal =
            (!spans.is_empty()).then(|| MultimodalRows { bidirectional: spans, ..Default::default() });
        let hidden = HiddenRows { rows: (0..rows).collect(), places: vec![HiddenPlace::FinalNorm] };
        let batch = Batch { tokens, segments, logits_at: Vec::new(), multimodal, hidden: Some(hidden) };
        let pass = self.model.forward(&batch, &mut cache).unwrap();
        let all = pass.hidden[0].astype(Dtype::F32).unwrap();
        let mut from = 0;
        let part = |text: &&[i32]| {
            let to = from + text.len() as i32;
            let states = all.slice(&[from, 0], &[to, all.dim(1).unwrap()]).unwrap();
            from = to;
            states
        };
        texts.iter().map(part).collect()
    }
}

/// The largest difference, relative to the largest number.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    found.iter().zip(expected).map(|(one, other)| (one - other).abs()).fold(0f32, f32::max) / largest
}

fn check(kernels: Kernels) {
    let checked = each(names(), |name| {
        let fixture = Fixture::read(&name, kernels);
        let texts = fixture.texts();
        if texts.is_empty() {
            return 0;
        }
        let packed: Vec<&[i32]> = texts.iter().map(|(_, tokens)| tokens.as_slice()).collect();
        let together = fixture.states(&packed);
        let mut compared = 0;
        for ((number, tokens), together) in texts.iter().zip(&together) {
            let [alone] = fixture.states(&[tokens]).try_into().map_err(|_| ()).unwrap();
            let (alone, together) = (alone.to_vec::<f32>().unwrap(), together.to_vec::<f32>().unwrap());
            let apart = distance(&together, &alone);
            assert!(apart <= 1e-5, "{} text {number}: {apart} in another batch", fixture.name);
            if let Some(golden) = fixture.golden.get(&format!("tokens.{number}")) {
                let off = distance(&alone, &golden.to_vec::<f32>().unwrap());
                assert!(off <= fixture.bound, "{} text {number}: {off} of {}", fixture.name, fixture.bound);
                compared += 1;
            }
            let width = alone.len() / tokens.len();
            let rows: Vec<&[f32]> = alone.chunks(width).collect();
            let mean: Vec<f32> = (0..width)
                .map(|at| rows.iter().map(|row| row[at]).sum::<f32>() / rows.len() as f32)
                .collect();
            for (mode, found) in [("cls", rows[0]), ("lasttoken", rows[rows.len() - 1]), ("mean", &mean)] {
                let Some(golden) = fixture.golden.get(&format!("pool.{mode}.{number}")) else { continue };
                let off = distance(found, &golden.to_vec::<f32>().unwrap());
                assert!(off <= fixture.bound, "{} {mode} {number}: {off} of {}", fixture.name, fixture.bound);
                compared += 1;
            }
        }
        compared
    });
    assert!(checked.iter().sum::<usize>() > 0);
}

#[test]
fn mlx_gives_the_golden_states_of_embedders() {
    check(Kernels::Mlx);
}

#[test]
fn the_cpu_primitives_give_the_golden_states_of_embedders() {
    check(Kernels::Cpu);
}
