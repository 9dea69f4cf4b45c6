//! Draft heads: golden logits of their first pass, of passes that follow their own, and of those after a rejection.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::convert::{Conversion, Packing, Recipe, SHARD_BYTES};
use omnibus_model::{
    Batch, DraftBlock, DraftHead, DraftHeadOutput, DraftStates, HiddenRows, Kernels, KvCache, KvCacheGroup,
    Model, MultimodalRows, QuantizationChoice, RandomWeights, Segment, Source, SpanRuns,
};
use serde_json::Value;

use crate::golden::generate;

const BLOCK_SIZE: usize = 4;

/// Tokens of the prompt.
const PROMPT: usize = 23;

/// A head, its target, and what the reference computes with them.
struct Fixture {
    name: String,
    target: Model,
    head: DraftHead,
    /// Of the target.
    source: Source,
    golden: BTreeMap<String, Array>,
    tokens: Vec<i32>,
    bound: f32,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/draft-heads").join(name)
}

/// Where a checkpoint is written: tests beside each other write the same ones.
fn written(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("draft-heads").join(number.to_string()).join(name)
}

/// A directory with the weights of a recipe.
fn checkpoint(of: &Path, name: &str) -> Source {
    let to = written(name);
    std::fs::create_dir_all(&to).unwrap();
    let recipe: Value = serde_json::from_slice(&std::fs::read(of.join("tensors.json")).unwrap()).unwrap();
    let mut weights = generate::weights(&recipe).unwrap();
    if let Some(stored) = recipe["stored"].as_str() {
        weights.extend(mlx::io::load_safetensors(of.join(stored)).unwrap());
    }
    let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
    mlx::io::save_safetensors(to.join("model.safetensors"), tensors, []).unwrap();
    std::fs::copy(of.join("config.json"), to.join("config.json")).unwrap();
    Source::Directory(to)
}

impl Fixture {
    fn read(name: &str, kernels: Kernels) -> Self {
        let at = folder(name);
        let (source, target, head) = if at.join("draft").is_dir() {
            let source = checkpoint(&at.join("target"), &format!("{name}.target"));
            let target = Model::load(&source, kernels).unwrap();
            let head = checkpoint(&at.join("draft"), &format!("{name}.draft"));
            let head = match DraftHead::is_dflash(&head).unwrap() {
                true => DraftHead::dflash(&head, &target).unwrap(),
                false => DraftHead::eagle3(&head, &target).unwrap(),
            };
            (source, target, head)
        } else {
            let source = checkpoint(&at, name);
            let target = Model::load(&source, kernels).unwrap();
            let head = DraftHead::of_checkpoint(&source, &target).unwrap().unwrap();
            (source, target, head)
        };
        let golden = at.join("golden.safetensors");
        let bytes = std::fs::read(&golden).unwrap();
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().clone().unwrap_or_default();
        let sensitivity: f32 = metadata["sensitivity"].parse().unwrap();
        let golden: BTreeMap<String, Array> =
            mlx::io::load_safetensors(&golden).unwrap().into_iter().collect();
        let mut tokens = golden["prompt.0"].to_vec::<i32>().unwrap();
        tokens.extend(golden["decode.0"].to_vec::<i32>().unwrap());
        Self {
            name: name.to_owned(),
            target,
            head,
            golden,
            tokens,
            bound: (20.0 * sensitivity).max(1e-4),
            source,
        }
    }

    /// The target's hidden states of the prompt and the three tokens behind it, and its logits behind the last four.
    fn target_states(&self) -> (Array, Array) {
        let mut cache = Cached::of(&self.target);
        let rows: Vec<usize> = (0..PROMPT + 3).collect();
        let hidden = HiddenRows { rows, places: self.head.places().to_vec() };
        let tokens = &self.tokens[..PROMPT + 3];
        let batch =
            Batch { hidden: Some(hidden), ..cache.batch(tokens, 0, (PROMPT - 1..PROMPT + 3).collect()) };
        let pass = self.target.forward(&batch, &mut cache.0).unwrap();
        let states = mlx::concatenate(&pass.hidden.iter().collect::<Vec<_>>(), -1).unwrap();
        (states, pass.logits.unwrap().0)
    }

    #[track_caller]
    fn assert_near(&self, found: &Array, golden: &str) {
        let expected = self.golden[golden].to_vec::<f32>().unwrap();
        let found = found.astype(mlx::Dtype::F32).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found.len(), expected.len(), "{} {golden}", self.name);
        let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
        let distance =
            found.iter().zip(&expected).map(|(one, other)| (one - other).abs()).fold(0f32, f32::max);
        assert!(distance <= self.bound * largest, "{} {golden}: {}", self.name, distance / largest);
    }
}

/// A KV cache with the blocks of one sequence.
struct Cached(KvCache);

impl Cached {
    fn of(model: &Model) -> Self {
        let groups = model.blueprint().kv_cache_groups(model.kv_float());
        let blocks = vec![12; groups.len()];
        Self(KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.kv_float()).unwrap())
    }

    fn batch(&self, tokens: &[i32], context: usize, logits_at: Vec<usize>) -> Batch {
        let table = |group: &KvCacheGroup| {
            let blocks: &[u32] =
                if group.spec.kind.is_state() { &[5] } else { &[7, 3, 1, 4, 6, 9, 2, 8, 10] };
            let blocks = blocks.iter().copied().map(BlockId).collect();
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
        };
        let tables = self.0.groups().iter().map(table).collect();
        let len = tokens.len();
        let segments =
            vec![Segment { first: 0, len, context, prompt: PROMPT, samples: 1, adapter: None, tables }];
        let tokens = Array::from_slice(tokens, &[len as i32]).unwrap();
        Batch { tokens, segments, logits_at, multimodal: None, hidden: None }
    }
}

/// Passes of a head over one sequence.
struct Drafting<'a> {
    fixture: &'a Fixture,
    cache: Cached,
    states: &'a Array,
}

impl Drafting<'_> {
    /// The tokens behind the rows from `context` on, with the target's states.
    fn first(&mut self, tokens: &[i32], context: usize) -> DraftHeadOutput {
        let end = (context + tokens.len()) as i32;
        let states = self.states.slice(&[context as i32, 0], &[end, self.states.dim(1).unwrap()]).unwrap();
        self.pass(tokens, context, DraftStates::OfTarget(&states))
    }

    fn pass(&mut self, tokens: &[i32], context: usize, states: DraftStates<'_>) -> DraftHeadOutput {
        let batch = self.cache.batch(tokens, context, vec![tokens.len() - 1]);
        let Fixture { head, target, .. } = self.fixture;
        head.forward(target, Some(states), &batch, &mut self.cache.0).unwrap().unwrap()
    }

    /// A first pass over `tokens`, and one after it for each of `fed`. Gives the logits of all.
    fn round(&mut self, tokens: &[i32], context: usize, fed: &[i32]) -> Array {
        let mut outputs = vec![self.first(tokens, context)];
        for (token, at) in fed.iter().zip(context + tokens.len()..) {
            let before = outputs.last().unwrap().states.clone();
            outputs.push(self.pass(&[*token], at, DraftStates::OfHead(&before)));
        }
        let logits: Vec<&Array> = outputs.iter().map(|output| &output.logits).collect();
        mlx::concatenate(&logits, 0).unwrap()
    }
}

const HEADS: [&str; 11] = [
    "deepseek_v3.mtp.hf",
    "glm4_moe.mtp.hf",
    "qwen3_next.mtp.hf",
    "qwen3_5.mtp.hf",
    "mimo.mtp",
    "ernie4_5_moe.mtp",
    "mimo_v2_flash.mtp",
    "longcat_flash.mtp",
    "nemotron_h.moe.mtp",
    "eagle3.llama",
    "eagle3.qwen3",
];

/// A fixture with the weights of both seeds, and both kinds of kernels.
fn in_all_ways(name: &str) -> Vec<(String, Kernels)> {
    let seeds = [name.to_owned(), format!("seed-11/{name}")];
    let ways = |name: String| [(name.clone(), Kernels::Mlx), (name, Kernels::fastest())];
    seeds.into_iter().flat_map(ways).collect()
}

#[test]
fn draft_heads_give_the_golden_logits() {
    for (name, kernels) in HEADS.into_iter().flat_map(in_all_ways) {
        let fixture = Fixture::read(&name, kernels);
        let (states, target_logits) = fixture.target_states();
        let states_are = if fixture.golden.contains_key("aux.0") { "aux.0" } else { "hidden.0" };
        fixture.assert_near(&states, states_are);
        fixture.assert_near(&target_logits, "target.0");
        let decode = &fixture.tokens[PROMPT..];
        let mut drafting =
            Drafting { fixture: &fixture, cache: Cached::of(fixture.head.network()), states: &states };
        let first = drafting.round(&fixture.tokens[1..=PROMPT], 0, &decode[1..4]);
        let second = drafting.round(&[decode[1], decode[2], decode[4]], PROMPT, &decode[5..8]);
        for (logits, golden) in [(first, "logits.0"), (second, "logits2.0")] {
            fixture.assert_near(&fixture.drafted(logits), golden);
        }
    }
}

#[test]
fn a_head_with_a_block_gives_the_golden_logits() {
    for (name, kernels) in in_all_ways("dflash.qwen3") {
        let fixture = Fixture::read(&name, kernels);
        let (states, target_logits) = fixture.target_states();
        fixture.assert_near(&states, "aux.0");
        fixture.assert_near(&target_logits, "target.0");
        let (head, decode) = (&fixture.head, &fixture.tokens[PROMPT..]);
        let DraftBlock { size, mask_token } = head.block().unwrap();
        let mut cache = Cached::of(head.network());
        let rounds = [(0, PROMPT, decode[0], "logits.0"), (PROMPT, PROMPT + 3, decode[4], "logits2.0")];
        for (from, to, newest, golden) in rounds {
            let rows = states.slice(&[from as i32, 0], &[to as i32, states.dim(1).unwrap()]).unwrap();
            let context = cache.batch(&vec![0; to - from], from, Vec::new());
            head.write_context(&rows, &context, &mut cache.0).unwrap();
            let mut tokens = vec![mask_token as i32; size];
            tokens[0] = newest;
            let block = 0..size;
            let bidirectional = vec![SpanRuns::from([block])];
            let multimodal = Some(MultimodalRows { bidirectional, ..MultimodalRows::default() });
            let batch = Batch { multimodal, ..cache.batch(&tokens, to, (1..size).collect()) };
            let output = head.forward(&fixture.target, None, &batch, &mut cache.0).unwrap().unwrap();
            fixture.assert_near(&output.logits, golden);
        }
    }
}

impl Fixture {
    /// Logits of the tokens that the head drafts, in the order of its own rows.
    fn drafted(&self, logits: Array) -> Array {
        let maps = folder(&self.name).join("draft/maps.safetensors");
        if !maps.is_file() {
            return logits;
        }
        let maps: BTreeMap<String, Array> = mlx::io::load_safetensors(maps).unwrap().into_iter().collect();
        let offsets = maps["d2t"].to_vec::<i32>().unwrap();
        let tokens: Vec<i32> = (0..).zip(&offsets).map(|(row, offset)| row + offset).collect();
        let never = logits.astype(mlx::Dtype::F32).unwrap().to_vec::<f32>().unwrap();
        let drafted = never.iter().filter(|logit| logit.is_finite()).count();
        assert_eq!(drafted, tokens.len() * logits.dim(0).unwrap() as usize, "others are never drafted");
        logits.take(&Array::from_slice(&tokens, &[tokens.len() as i32]).unwrap(), 1).unwrap()
    }
}

/// A converted checkpoint has the head in a file of its own, which gives the same logits, or with 8 bits nearly the same.
#[test]
fn conversions_keep_the_head() {
    let choice = QuantizationChoice { group: 32, bits: 8, mode: mlx::QuantMode::Affine };
    let quantized = Packing::Quantize { choice, recipe: Recipe::Uniform };
    for name in HEADS.into_iter().filter(|name| name.contains(".mtp")) {
        for (packing, bound) in [(Packing::AsStored, None), (quantized, Some(0.2))] {
            let fixture = Fixture::read(name, Kernels::Mlx);
            let to = written(&format!("{name}.converted-{}", bound.is_some()));
            let _absent = std::fs::remove_dir_all(&to);
            let conversion = Conversion {
                source: fixture.source.clone(),
                to: to.clone(),
                packing,
                inputs: None,
                dtype: None,
                shard_bytes: SHARD_BYTES,
            };
            conversion.run(&mut |_| ()).unwrap();
            let converted = Source::Directory(to);
            let target = Model::load(&converted, Kernels::Mlx).unwrap();
            let head = DraftHead::of_checkpoint(&converted, &target).unwrap().expect(name);
            let fixture = Fixture { target, head, bound: bound.unwrap_or(fixture.bound), ..fixture };
            let (states, _) = fixture.target_states();
            let mut drafting =
                Drafting { fixture: &fixture, cache: Cached::of(fixture.head.network()), states: &states };
            let decode = &fixture.tokens[PROMPT..];
            fixture.assert_near(&drafting.round(&fixture.tokens[1..=PROMPT], 0, &decode[1..4]), "logits.0");
        }
    }
}

#[test]
fn a_checkpoint_without_a_head_has_none() {
    let at = folder("eagle3.llama").join("target");
    let source = checkpoint(&at, "without");
    let target = Model::load(&source, Kernels::Mlx).unwrap();
    assert!(DraftHead::of_checkpoint(&source, &target).unwrap().is_none());
}

/// For benchmarks: any model of random weights has one.
#[test]
fn random_weights_have_a_head_like_their_last_layer() {
    let config = std::fs::read_to_string(folder("eagle3.llama").join("target/config.json")).unwrap();
    for bits in [None, Some(4)] {
        let source = Source::Random(RandomWeights::new("llama", &config, bits).unwrap());
        let target = Model::load(&source, Kernels::fastest()).unwrap();
        let head = DraftHead::of_checkpoint(&source, &target).unwrap().unwrap();
        let mut cache = Cached::of(head.network());
        let hidden = target.blueprint().hidden as i32;
        let states = Array::ones(&[3, hidden], target.dtype()).unwrap();
        let batch = cache.batch(&[1, 2, 3], 0, vec![2]);
        let output = head
            .forward(&target, Some(DraftStates::OfTarget(&states)), &batch, &mut cache.0)
            .unwrap()
            .unwrap();
        let logits = output.logits.to_vec::<f32>().unwrap();
        assert_eq!(logits.len(), target.blueprint().vocab);
        assert!(logits.iter().all(|logit| logit.is_finite()) && logits[0] != logits[1], "{bits:?}");
    }
}

/// Its states could not follow rejected tokens.
#[test]
fn a_head_with_recurrent_layers_is_refused() {
    let source = checkpoint(&folder("dflash.qwen3").join("target"), "target-of-recurrent");
    let target = Model::load(&source, Kernels::Mlx).unwrap();
    let config = std::fs::read(folder("qwen3_next.mtp.hf").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["block_size"] = 8.into();
    config["dflash_config"] = serde_json::json!({ "mask_token_id": 95, "target_layer_ids": [1, 3, 5] });
    let at = written("recurrent-head");
    std::fs::create_dir_all(&at).unwrap();
    std::fs::write(at.join("config.json"), config.to_string()).unwrap();
    let error = DraftHead::dflash(&Source::Directory(at), &target).err().unwrap().to_string();
    assert!(error.contains("layers all attend") && !error.contains('\n'), "{error}");
}

#[test]
fn a_head_for_another_target_is_refused_with_what_differs() {
    let source = checkpoint(&folder("deepseek_v3.mtp.hf"), "other-target");
    let target = Model::load(&source, Kernels::Mlx).unwrap();
    let head = checkpoint(&folder("eagle3.qwen3").join("draft"), "other-head");
    let error = DraftHead::eagle3(&head, &target).err().unwrap().to_string();
    assert!(error.contains("eagle_aux_hidden_state_layer_ids") && error.contains("which has 3"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}
