//! Golden hidden states of embedders: each token's, pooled, and those of texts in another batch.

use std::collections::BTreeMap;
use std::path::Path;

use mlx::{Array, Dtype};
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::{
    Batch, HiddenPlace, HiddenRows, Kernels, KvCache, KvCacheGroup, Model, MultimodalRows, Quantization,
    Segment, families,
};
use serde_json::{Map, Value};

use super::generate;
use super::ways::Distance;

const BLOCK_SIZE: usize = 4;

/// How far a text's states in another batch may be from those alone.
pub const APART: f32 = 1e-5;

/// An embedder with its golden states.
pub struct EmbedderFixture {
    pub name: String,
    #[allow(dead_code, reason = "the example prints what it is of")]
    pub config: Map<String, Value>,
    pub bound: f32,
    golden: BTreeMap<String, Array>,
    /// What the pooler makes of states where the network's own class does: EmbeddingGemma 2's projection.
    projection: Option<Array>,
    model: Model,
}

impl EmbedderFixture {
    /// Whether a folder has such a fixture: other cases are of pictures.
    #[allow(dead_code, reason = "tests know what they read")]
    pub fn is_in(at: &Path) -> bool {
        let case = std::fs::read(at.join("case.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&case).is_ok_and(|case| case.get("kind").is_some())
    }

    /// Reads a folder, and builds the network of its weights.
    pub fn read(at: &Path, kernels: Kernels) -> Result<Self, String> {
        let name = at.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let config = config_of(at);
        let recipe: Value = serde_json::from_slice(&std::fs::read(at.join("tensors.json")).unwrap()).unwrap();
        let mut weights = generate::weights(&recipe).unwrap();
        let more = at.join("extra.safetensors");
        if more.is_file() {
            weights.extend(mlx::io::load_safetensors(more).unwrap());
        }
        let projection = weights.remove("language_model.embedding_projection.weight");
        let blueprint = families::read(&config).map_err(|error| format!("{name}: {error}"))?;
        let quantization = Quantization::read(&config).map_err(|error| format!("{name}: {error}"))?;
        let model = Model::build(blueprint, quantization, weights, kernels);
        let model = model.map_err(|error| format!("{name}: {error}"))?;
        let golden = at.join("golden.safetensors");
        let bytes = std::fs::read(&golden).unwrap();
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().clone().unwrap_or_default();
        let sensitivity: f32 = metadata["sensitivity"].parse().unwrap();
        let golden = mlx::io::load_safetensors(&golden).unwrap().into_iter().collect();
        Ok(Self { name, config, bound: (10.0 * sensitivity).max(2e-5), golden, projection, model })
    }

    /// The states of each text against the golden ones, and in one batch with all others against those alone. Empty without
    /// texts: pairs of rerankers are compared as scores.
    pub fn distances(&self) -> Vec<Distance> {
        let texts = self.texts();
        if texts.is_empty() {
            return Vec::new();
        }
        let packed: Vec<&[i32]> = texts.iter().map(|(_, tokens)| tokens.as_slice()).collect();
        let together = self.states(&packed);
        let mut found = Vec::new();
        for ((number, tokens), together) in texts.iter().zip(&together) {
            let [alone] = self.states(&[tokens]).try_into().map_err(|_| ()).unwrap();
            let (alone, together) = (alone.to_vec::<f32>().unwrap(), together.to_vec::<f32>().unwrap());
            found.push(Distance { way: PACKED, distance: distance(&together, &alone) });
            if let Some(golden) = self.golden.get(&format!("tokens.{number}")) {
                found.push(Distance {
                    way: "tokens",
                    distance: distance(&alone, &golden.to_vec::<f32>().unwrap()),
                });
            }
            let width = alone.len() / tokens.len();
            let rows: Vec<&[f32]> = alone.chunks(width).collect();
            let mean: Vec<f32> = (0..width)
                .map(|at| rows.iter().map(|row| row[at]).sum::<f32>() / rows.len() as f32)
                .collect();
            for (way, pooled) in [("cls", rows[0]), ("lasttoken", rows[rows.len() - 1]), ("mean", &mean)] {
                let Some(golden) = self.golden.get(&format!("pool.{way}.{number}")) else { continue };
                found.push(Distance { way, distance: distance(pooled, &golden.to_vec::<f32>().unwrap()) });
            }
        }
        found
    }

    /// The bound of a way.
    pub fn bound_of(&self, way: &str) -> f32 {
        if way == PACKED { APART } else { self.bound }
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
        let all = match &self.projection {
            Some(projection) => all.matmul(&projection.t().unwrap()).unwrap(),
            None => all,
        };
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

/// A text in one batch with others.
const PACKED: &str = "packed";

/// The config of a fixture.
pub fn config_of(path: &Path) -> Map<String, Value> {
    let json = |file: &str| {
        std::fs::read(path.join(file)).map(|text| serde_json::from_slice::<Value>(&text).unwrap())
    };
    if let Ok(Value::Object(config)) = json("config.json") {
        return config;
    }
    // A table of vectors may have no config: its sizes are all there is.
    let recipe = json("tensors.json").unwrap();
    let [vocab, hidden] = [0, 1].map(|axis| recipe["tensors"][0][1][axis].clone());
    let config = serde_json::json!({
        "model_type": "static_embedding", "vocab_size": vocab, "hidden_size": hidden,
    });
    config.as_object().unwrap().clone()
}

/// The largest difference, relative to the largest number.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    found.iter().zip(expected).map(|(one, other)| (one - other).abs()).fold(0f32, f32::max) / largest
}
