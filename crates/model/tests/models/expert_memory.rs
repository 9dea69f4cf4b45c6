//! Experts that stay in the checkpoint's files: the bits of resident experts, within the bound, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use mlx::QuantMode;
use mlx::cpu::ExpertMemoryStats;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::convert::{Conversion, Packing, Recipe, SHARD_BYTES};
use omnibus_model::{
    Batch, Kernels, KvCache, KvCacheGroup, Loading, Model, ModelPart, PipelineStage, QuantizationChoice,
    RandomWeights, Segment, Source,
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

    fn quantized(&self, mode: QuantMode) -> Source {
        let choice = QuantizationChoice { group: 32, bits: 4, mode };
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

/// The checkpoint of a folder with a tensor for each expert, in two files, as most publishers store them.
fn by_expert(source: &Source) -> Source {
    let Source::Directory(from) = source else { panic!("a folder") };
    let to = from.join("by-expert");
    fs::create_dir_all(&to).unwrap();
    fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    let (mut files, mut index) = ([Vec::new(), Vec::new()], serde_json::Map::new());
    for (name, tensor) in source.weights().unwrap() {
        let parts = match name.split_once(".switch_mlp.") {
            None => vec![(name, tensor)],
            Some((layer, rest)) => {
                let cuts: Vec<i32> = (1..tensor.dim(0).unwrap()).collect();
                let experts = tensor.split(&cuts, 0).unwrap().into_iter().enumerate();
                let single = |(expert, part): (usize, mlx::Array)| {
                    (format!("{layer}.experts.{expert}.{rest}"), part.squeeze(&[0]).unwrap())
                };
                experts.map(single).collect()
            }
        };
        for (at, (name, tensor)) in parts.into_iter().enumerate() {
            index.insert(name.clone(), format!("model-{}-of-2.safetensors", 1 + at % 2).into());
            files[at % 2].push((name, tensor.contiguous().unwrap()));
        }
    }
    for (at, file) in files.iter().enumerate() {
        let tensors = file.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let path = to.join(format!("model-{}-of-2.safetensors", 1 + at));
        mlx::io::save_safetensors(path, tensors, []).unwrap();
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": index});
    fs::write(to.join("model.safetensors.index.json"), index.to_string()).unwrap();
    Source::Directory(to)
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

fn expert_bytes(source: &Source) -> u64 {
    source.resident_bytes(None).unwrap() - source.resident_bytes(Some(0)).unwrap()
}

/// With resident experts, and with a quarter of them: equal bits, and never more than the quarter.
#[track_caller]
fn check(source: &Source, kernels: Kernels) {
    let quarter = expert_bytes(source) / 4;
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
    let quantized = folder.quantized(QuantMode::Affine);
    check(&quantized, Kernels::Cpu);
    check(&quantized, Kernels::CpuInt8);
}

#[test]
fn experts_in_tensors_of_their_own_are_read_as_those_of_a_stack() {
    let folder = Folder::new("single", "qwen3_moe");
    for stacked in [folder.source(), folder.quantized(QuantMode::Affine)] {
        let single = by_expert(&stacked);
        assert_eq!(expert_bytes(&single), expert_bytes(&stacked));
        check(&single, Kernels::Cpu);
        let [single, stacked] =
            [single, stacked].map(|source| logits(&load(&source, Kernels::Cpu, Some(1 << 16)).unwrap()));
        assert_eq!(single, stacked);
    }
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
    let part = ModelPart { stage: PipelineStage::new(0, 2), shard: None };
    let loading = Loading { part, progress: &mut |_| (), expert_memory: Some(1 << 20) };
    let message =
        Model::load_part(&experts.source(), Kernels::Cpu, loading).err().map(|error| error.to_string());
    assert!(message.as_ref().is_some_and(|why| why.contains("is for one process")), "{message:?}");
    let mxfp4 = refusal(&experts.quantized(QuantMode::Mxfp4), Kernels::Cpu, 1 << 20);
    assert!(mxfp4.contains("switch_mlp") && mxfp4.contains("`omnibus convert -q`"), "{mxfp4}");
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
