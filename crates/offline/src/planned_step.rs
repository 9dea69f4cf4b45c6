//! The kernels of a decode step, found without a GPU: what `omnibus doctor --plan` prints.
//!
//! Invariant: no weight is computed. Kernels that a loaded model would give up, because they fail their check on the device, are
//! listed as if they held.

use omnibus_core::Padding;
use omnibus_engine::StartError;
use omnibus_kv::KvFormat;
use omnibus_model::{Kernels, KvStorage, Model, RandomWeights, Source};

pub use mlx::gpu::TracedLaunch;

use crate::pass_input::PassInput;

/// The launches of a decode step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStep {
    /// Layers of the model, all of which the step has.
    pub layers: usize,
    /// Rows of the pass, with padding.
    pub rows: usize,
    /// Bytes of all weights.
    pub weight_bytes: u64,
    /// Bytes of keys and values of a token, in all layers. Of sliding windows, only the last tokens are kept.
    pub kv_token_bytes: u64,
    /// From tokens to logits, in an order in which they can run.
    pub pass: Vec<TracedLaunch>,
    /// From logits to tokens.
    pub choice: Vec<TracedLaunch>,
    /// CUDA graphs that the pass becomes; `None` where its kernels are launched one by one.
    pub graphs: Option<usize>,
}

/// A launch, or launches that follow each other several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchGroup<'a> {
    #[allow(missing_docs)]
    One(&'a TracedLaunch),
    #[allow(missing_docs)]
    Repeated { times: usize, groups: Vec<Self> },
}

/// What a step is planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedGpu {
    /// An NVIDIA GPU of compute capability 9.0.
    Nvidia,
    /// A Mac's GPU.
    Mac,
}

/// What a decode step of so many sequences launches, each after `context` tokens.
pub fn plan_step(
    weights: &RandomWeights,
    gpu: PlannedGpu,
    sequences: usize,
    context: usize,
) -> Result<PlannedStep, StartError> {
    let plan = || plan_here(weights, sequences, context);
    match gpu {
        PlannedGpu::Nvidia => mlx::on_planned_gpu(plan),
        PlannedGpu::Mac => {
            // Metal has no graphs of launches.
            mlx::on_planned_mac(plan).map(|step| PlannedStep { graphs: None, ..step })
        }
    }
}

fn plan_here(weights: &RandomWeights, sequences: usize, context: usize) -> Result<PlannedStep, StartError> {
    let source = Source::Random(weights.clone());
    let model = Model::load(&source, Kernels::fastest()).map_err(StartError::new)?;
    let rows = Padding::Buckets.of(sequences);
    let storage = KvStorage::from(KvFormat::Float(model.kv_float()));
    let input = PassInput { sequences, len: 1, context, rows };
    let (batch, mut cache) = input.build(&model, storage).map_err(StartError::new)?;
    let launches = model.step_launches(&batch, &mut cache).map_err(StartError::new)?;
    let layers = model.blueprint().layers.len();
    let groups = model.blueprint().kv_cache_groups(storage);
    let of_tokens = groups.iter().filter(|group| !group.spec.kind.is_state());
    let kv_token_bytes = of_tokens.map(|group| group.spec.block_bytes(1)).sum();
    Ok(PlannedStep {
        layers,
        rows,
        weight_bytes: weights.bytes(),
        kv_token_bytes,
        pass: launches.pass,
        choice: launches.choice,
        graphs: launches.graphs,
    })
}

/// The launches with repetitions found, as those of layers that are alike.
pub fn grouped(launches: &[TracedLaunch]) -> Vec<LaunchGroup<'_>> {
    let (mut groups, mut rest) = (Vec::new(), launches);
    while let [first, after @ ..] = rest {
        let (period, times) = longest_repetition(rest);
        let (repeated, next) = rest.split_at_checked(period * times).unwrap_or((rest, &[]));
        if times == 1 {
            groups.push(LaunchGroup::One(first));
            rest = after;
        } else {
            let groups_of_one = grouped(repeated.get(..period).unwrap_or(repeated));
            groups.push(LaunchGroup::Repeated { times, groups: groups_of_one });
            rest = next;
        }
    }
    groups
}

/// How many launches repeat from the first on, and how often: the repetition that covers most, and of these the shortest. `(1, 1)`
/// without one.
fn longest_repetition(launches: &[TracedLaunch]) -> (usize, usize) {
    let mut best = (1, 1);
    for period in 1..=launches.len() / 2 {
        let times = 1 + launches.iter().zip(launches.iter().skip(period)).take_while(|(a, b)| a == b).count()
            / period;
        if times > 1 && period * times > best.0 * best.1 {
            best = (period, times);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mlx::{Array, Dtype};
    use omnibus_model::{DraftHead, DraftStates, HiddenPlace, HiddenRows, StepLaunches};

    use super::*;

    /// The groups of launches of these names.
    fn check(names: &str, expected: &str) {
        let launch = |name: &str| TracedLaunch { name: name.to_owned(), grid: None, bytes: 0 };
        let launches: Vec<TracedLaunch> = names.split(' ').map(launch).collect();
        assert_eq!(shown(&grouped(&launches)), expected);
    }

    fn shown(groups: &[LaunchGroup<'_>]) -> String {
        let show = |group: &LaunchGroup<'_>| match group {
            LaunchGroup::One(launch) => launch.name.clone(),
            LaunchGroup::Repeated { times, groups } => format!("{times}({})", shown(groups)),
        };
        groups.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn layers_that_are_alike_are_one_group() {
        check("embed norm a b c a b c a b c head", "embed norm 3(a b c) head");
        check("a b", "a b");
        check("a", "a");
    }

    #[test]
    fn groups_are_within_groups() {
        check("s s s f s s s f end", "2(3(s) f) end");
        check("a a b a a b a a", "2(2(a) b) 2(a)");
    }

    const CONFIG: &str = include_str!("../../model/tests/fixtures/qwen3/config.json");

    #[test]
    fn a_decode_step_is_listed_without_a_gpu() {
        let weights = RandomWeights::new("qwen3", CONFIG, None).unwrap();
        let step = plan_step(&weights, PlannedGpu::Nvidia, 3, 100).unwrap();
        assert_eq!(
            (step.rows, step.layers),
            (4, weights.config()["num_hidden_layers"].as_u64().unwrap() as usize)
        );
        let count = |name: &str| step.pass.iter().filter(|launch| launch.name == name).count();
        assert_eq!(count("embed"), 1, "{:#?}", step.pass);
        assert_eq!(step.choice.len(), 1, "{:#?}", step.choice);
    }

    /// Sizes that all kernels have.
    const OF_KERNELS: &str = r#"{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 6,
        "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
        "vocab_size": 1024, "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "torch_dtype": "bfloat16"}"#;

    /// An EAGLE-3 head reads the streams of three layers, an MTP head the final norm.
    #[test]
    fn a_step_that_a_draft_head_reads_is_a_graph() {
        let weights = RandomWeights::new("llama", OF_KERNELS, None).unwrap();
        let heads = [
            vec![HiddenPlace::Layer(1), HiddenPlace::Layer(2), HiddenPlace::Layer(4)],
            vec![HiddenPlace::FinalNorm],
        ];
        for places in heads {
            let launches = mlx::on_planned_gpu(|| {
                let model = Model::load(&Source::Random(weights.clone()), Kernels::fastest()).unwrap();
                let storage = KvStorage::from(KvFormat::Float(model.kv_float()));
                let input = PassInput { sequences: 3, len: 1, context: 100, rows: 4 };
                let (mut batch, mut cache) = input.build(&model, storage).unwrap();
                batch.hidden = Some(HiddenRows { rows: vec![0, 1, 2], places: places.clone() });
                model.step_launches(&batch, &mut cache).unwrap()
            });
            let operations: Vec<&str> =
                launches.pass.iter().filter(|of| of.grid.is_none()).map(|of| of.name.as_str()).collect();
            assert!(launches.graphs.is_some(), "{places:?}: {operations:?}");
        }
    }

    /// The weights of an EAGLE-3 head for [`OF_KERNELS`], all zero.
    fn eagle3_head(at: &Path) -> Source {
        let shapes: [(&str, &[i32]); 14] = [
            ("fc.weight", &[512, 1536]),
            ("midlayer.input_layernorm.weight", &[512]),
            ("midlayer.hidden_norm.weight", &[512]),
            ("midlayer.post_attention_layernorm.weight", &[512]),
            ("midlayer.self_attn.q_proj.weight", &[512, 1024]),
            ("midlayer.self_attn.k_proj.weight", &[256, 1024]),
            ("midlayer.self_attn.v_proj.weight", &[256, 1024]),
            ("midlayer.self_attn.o_proj.weight", &[512, 512]),
            ("midlayer.mlp.gate_proj.weight", &[1024, 512]),
            ("midlayer.mlp.up_proj.weight", &[1024, 512]),
            ("midlayer.mlp.down_proj.weight", &[512, 1024]),
            ("norm.weight", &[512]),
            ("lm_head.weight", &[256, 512]),
            ("d2t", &[256]),
        ];
        std::fs::create_dir_all(at).unwrap();
        let zeros = shapes.map(|(name, shape)| {
            let dtype = if name == "d2t" { Dtype::I32 } else { Dtype::Bf16 };
            (name, Array::zeros(shape, dtype).unwrap())
        });
        let tensors = zeros.iter().map(|(name, tensor)| (*name, tensor));
        mlx::io::save_safetensors(at.join("model.safetensors"), tensors, []).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(OF_KERNELS).unwrap();
        config["architectures"] = serde_json::json!(["LlamaForCausalLMEagle3"]);
        config["num_hidden_layers"] = 1.into();
        config["draft_vocab_size"] = 256.into();
        std::fs::write(at.join("config.json"), config.to_string()).unwrap();
        Source::Directory(at.to_owned())
    }

    /// Its first pass reads the target's states, later ones its own.
    #[test]
    fn passes_of_a_draft_head_are_graphs() {
        let folder = std::env::temp_dir().join(format!("omnibus-planned-head-{}", std::process::id()));
        let eagle3 = eagle3_head(&folder);
        let weights = Source::Random(RandomWeights::new("llama", OF_KERNELS, None).unwrap());
        let launches = mlx::on_planned_gpu(|| {
            let target = Model::load(&weights, Kernels::fastest()).unwrap();
            let mtp = DraftHead::of_checkpoint(&weights, &target).unwrap().unwrap();
            let heads = [("mtp", mtp), ("eagle3", DraftHead::eagle3(&eagle3, &target).unwrap())];
            let passes = heads.iter().flat_map(|(name, head)| [(*name, head, true), (*name, head, false)]);
            let launches = passes.map(|(name, head, is_first)| {
                let storage = KvStorage::from(KvFormat::Float(head.network().kv_float()));
                let input = PassInput { sequences: 3, len: 1, context: 100, rows: 4 };
                let (batch, mut cache) = input.build(head.network(), storage).unwrap();
                let streams = if is_first { head.places().len() as i32 } else { 1 };
                let states = Array::zeros(&[4, streams * 512], target.dtype()).unwrap();
                let states =
                    if is_first { DraftStates::OfTarget(&states) } else { DraftStates::OfHead(&states) };
                (name, is_first, head.pass_launches(&target, states, &batch, &mut cache).unwrap())
            });
            launches.collect::<Vec<_>>()
        });
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(launches.len(), 4);
        for (name, is_first, StepLaunches { pass, graphs, .. }) in launches {
            let operations = pass.iter().filter(|of| of.grid.is_none()).map(|of| of.name.as_str());
            let operations: Vec<&str> = operations.collect();
            // Logits of a head with the target's output matrix become float32 at the end.
            let expected = if name == "mtp" { vec!["AsType"] } else { Vec::new() };
            assert_eq!((graphs, operations), (Some(1), expected), "{name}, {is_first}");
        }
    }

    #[test]
    fn a_step_on_a_mac_has_the_kernels_that_metal_has() {
        let weights = RandomWeights::new("qwen3", CONFIG, Some(4)).unwrap();
        let step = plan_step(&weights, PlannedGpu::Mac, 3, 100).unwrap();
        let has = |name: &str| step.pass.iter().any(|launch| launch.name == name && launch.grid.is_some());
        for kernel in ["embed", "qk_rope_write", "attn_rows", "add_norm", "gated"] {
            assert!(has(kernel), "{kernel}: {:#?}", step.pass);
        }
        let of_tensor_cores =
            |launch: &&TracedLaunch| launch.name.contains("mma") || launch.name.contains("wmm");
        assert_eq!(step.pass.iter().find(of_tensor_cores), None);
        assert_eq!(step.graphs, None);
    }
}
