//! Experts that stay in the checkpoint's files: the bits of resident experts, within the bound, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use mlx::QuantMode;
use mlx::cpu::ExpertMemoryStats;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::convert::{Conversion, Packing, Recipe, SHARD_BYTES};
use omnibus_model::{
    Batch, Kernels, KvCache, KvCacheGroup, Loading, Model, ModelPart, QuantizationChoice, RandomWeights,
    Segment, Source,
};

const BLOCK_SIZE: usize = 4;
/// A prompt in chunks, and then decode steps.
const STEPS: [&[i32]; 8] = [&[5, 90, 17, 3, 44, 61], &[8, 29, 70], &[12], &[77], &[5], &[61], &[61], &[61]];
/// So that a quarter holds those that a token chooses.
const EXPERTS: &str = "\"num_experts\":24";

/// A folder of its own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    /// Random weights of a fixture's config, as a checkpoint.
    fn new(test: &str, fixture: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-experts-{}-{test}", std::process::id()));
        let _absent = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let config =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture).join("config.json");
        let config = fs::read_to_string(config).unwrap().replace("\"num_experts\":8", EXPERTS);
        let weights = Source::Random(RandomWeights::new(fixture, &config, None).unwrap()).weights().unwrap();
        let tensors = weights.iter().map(|(name, tensor)| (name.as_str(), tensor));
        mlx::io::save_safetensors(path.join("model.safetensors"), tensors, []).unwrap();
        fs::write(path.join("config.json"), config).unwrap();
        Self(path)
    }

    fn source(&self) -> Source {
        Source::Directory(self.0.clone())
    }

    fn quantized(&self) -> Source {
        let choice = QuantizationChoice { group: 32, bits: 4, mode: QuantMode::Affine };
        let packing = Packing::Quantize { choice, recipe: Recipe::Uniform };
        let to = self.0.join("quantized");
        let conversion = Conversion {
            source: self.source(),
            to: to.clone(),
            packing,
            inputs: None,
            dtype: None,
            shard_bytes: SHARD_BYTES,
        };
        conversion.run(&mut |_| {}).unwrap();
        Source::Directory(to)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

fn load(
    source: &Source,
    kernels: Kernels,
    expert_memory: Option<u64>,
) -> Result<Model, omnibus_model::Error> {
    let loading = Loading { part: ModelPart::default(), progress: &mut |_| (), expert_memory };
    Model::load_part(source, kernels, loading)
}

fn refusal(source: &Source, kernels: Kernels, expert_memory: u64) -> String {
    match load(source, kernels, Some(expert_memory)) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

/// The bits of all logits of the steps.
fn logits(model: &Model) -> Vec<u32> {
    let groups = model.blueprint().kv_cache_groups(model.kv_float());
    let mut cache =
        KvCache::new(model.blueprint(), &vec![8; groups.len()], BLOCK_SIZE, model.kv_float()).unwrap();
    let (mut context, mut bits) = (0, Vec::new());
    for tokens in STEPS {
        let table = |group: &KvCacheGroup| {
            let blocks = [7, 3, 1, 4, 6].map(BlockId).to_vec();
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
        };
        let tables = cache.groups().iter().map(table).collect();
        let len = tokens.len();
        let segments = vec![Segment { first: 0, len, context, prompt: 9, samples: 1, adapter: None, tables }];
        let tokens = mlx::Array::from_slice(tokens, &[len as i32]).unwrap();
        let batch = Batch { tokens, segments, logits_at: (0..len).collect(), multimodal: None, hidden: None };
        let made = model.forward(&batch, &mut cache).unwrap().logits.unwrap();
        bits.extend(made.0.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits));
        context += len;
    }
    bits
}

/// With resident experts, and with a quarter of them: equal bits, and never more than the quarter.
#[track_caller]
fn check(source: &Source, kernels: Kernels) {
    let quarter = (source.resident_bytes(None).unwrap() - source.resident_bytes(Some(0)).unwrap()) / 4;
    let resident = load(source, kernels, None).unwrap();
    let stored = load(source, kernels, Some(quarter)).unwrap();
    assert_eq!(logits(&stored), logits(&resident));
    let memory = stored.expert_memory().unwrap();
    let ExpertMemoryStats { hits_total, misses_total, read_bytes_total, resident_bytes, limit_bytes, .. } =
        memory.stats();
    assert!(hits_total > 0 && misses_total > 0, "{hits_total} hits, {misses_total} misses");
    assert!(read_bytes_total > quarter, "{read_bytes_total}");
    assert!(0 < resident_bytes && resident_bytes <= limit_bytes, "{resident_bytes} of {limit_bytes}");
    assert_eq!((limit_bytes, memory.take_failure()), (quarter, None));
}

#[test]
fn a_quarter_of_the_experts_gives_the_bits_of_all() {
    let folder = Folder::new("floats", "qwen3_moe");
    check(&folder.source(), Kernels::Cpu);
    let quantized = folder.quantized();
    check(&quantized, Kernels::Cpu);
    check(&quantized, Kernels::CpuInt8);
}

/// Most for one expert of a product at a time.
#[test]
fn a_product_of_more_experts_than_fit_is_computed_in_parts() {
    let folder = Folder::new("parts", "qwen3_moe");
    let source = folder.source();
    let message = refusal(&source, Kernels::Cpu, 1);
    let least: u64 = message
        .split_once("takes ")
        .and_then(|(_, rest)| rest.split(':').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{message}"));
    let stored = load(&source, Kernels::Cpu, Some(least)).unwrap();
    assert_eq!(logits(&stored), logits(&load(&source, Kernels::Cpu, None).unwrap()));
    assert!(stored.expert_memory().unwrap().stats().resident_bytes <= least);
}

#[test]
fn what_cannot_keep_experts_in_files_is_refused() {
    let experts = Folder::new("refused", "qwen3_moe");
    assert!(refusal(&experts.source(), Kernels::Mlx, 1 << 20).contains("--device cpu"));
    let dense = Folder::new("dense", "qwen3");
    assert!(refusal(&dense.source(), Kernels::Cpu, 1 << 20).contains("has no experts"));
    let config = fs::read_to_string(experts.0.join("config.json")).unwrap();
    let random = Source::Random(RandomWeights::new("qwen3_moe", &config, None).unwrap());
    assert!(refusal(&random, Kernels::Cpu, 1 << 20).contains("a folder with *.safetensors"));
}

/// A file that became shorter: what was computed is marked as wrong.
#[test]
fn experts_that_cannot_be_read_are_reported() {
    let folder = Folder::new("short", "qwen3_moe");
    let stored = load(&folder.source(), Kernels::Cpu, Some(1 << 30)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(folder.0.join("model.safetensors")).unwrap();
    file.set_len(64).unwrap();
    logits(&stored);
    let failure = stored.expert_memory().unwrap().take_failure();
    assert!(failure.as_ref().is_some_and(|why| why.contains("model.safetensors")), "{failure:?}");
}
