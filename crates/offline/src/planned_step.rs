//! The kernels of a decode step, found without a GPU: what `omnibus doctor --plan` prints.
//!
//! Invariant: no weight is computed. Kernels that a loaded model would give up, because they fail their check on the device, are
//! listed as if they held.

use omnibus_engine::{Padding, StartError};
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
    use omnibus_model::{HiddenPlace, HiddenRows};

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
