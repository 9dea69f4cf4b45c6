//! What a step reads and computes at least, from a model's config.
//!
//! Invariant: a bound from below. Activations and writes are left out; each weight is read once a step.

use omnibus_engine::{DeviceChoice, StartError};
use omnibus_kv::{CacheKind, FloatType, KvCacheSpec, KvFormat};
use omnibus_model::{AttentionSpan, Mixer, RandomWeights, families};

use super::DeviceLimits;

/// What one step reads and computes at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepWork {
    /// Bytes read.
    pub bytes: f64,
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: f64,
}

impl StepWork {
    /// Seconds that a device needs at least: for the bytes or for the operations, whichever takes longer.
    pub fn limit_s(&self, device: &DeviceLimits) -> f64 {
        (self.bytes / device.read_bytes_per_s).max(self.flops / device.matmul_flops)
    }
}

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheFormat {
    /// In the floats of this device.
    Float(DeviceChoice),
    /// In codes.
    Packed {
        /// Bits of a code.
        bits: usize,
        /// Most elements that share a scale.
        group_size: usize,
    },
}

/// The sizes of a model that work depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelWork {
    /// Bytes that every step reads, whatever its rows: all weights but experts and embeddings that are not the head.
    dense_bytes: f64,
    /// Bytes of all routed experts.
    expert_bytes: f64,
    /// Elements of the matrices that every row meets, the head's aside.
    dense_elements: f64,
    /// Elements of the head.
    head_elements: f64,
    /// Elements of all routed experts.
    expert_elements: f64,
    /// The share of the routed experts that a row meets; zero without any.
    expert_share: f64,
    layers: usize,
    /// What each layer group caches.
    groups: Vec<KvCacheSpec>,
    /// Of each attention layer: the width of its queries, and how many positions a row sees at most.
    attention: Vec<(usize, usize)>,
}

impl ModelWork {
    /// `weights_bytes`: what the loaded weights take, `cache`: how keys and values are stored.
    pub(super) fn of(
        config: &RandomWeights,
        weights_bytes: u64,
        cache: CacheFormat,
    ) -> Result<Self, StartError> {
        let blueprint = families::read(config.config()).map_err(StartError::new)?;
        // Some backends store another dtype than the checkpoint's.
        let scale = weights_bytes as f64 / config.bytes().max(1) as f64;
        let format = match cache {
            CacheFormat::Float(device) => KvFormat::Float(kv_float(config, device)),
            CacheFormat::Packed { bits, group_size } => {
                blueprint.quantized_kv_format(bits, group_size).map_err(StartError::new)?
            }
        };
        let groups = blueprint.kv_cache_groups(format);
        let mut work = Self {
            dense_bytes: 0.0,
            expert_bytes: 0.0,
            dense_elements: 0.0,
            head_elements: 0.0,
            expert_elements: 0.0,
            expert_share: blueprint.expert_share(),
            layers: blueprint.layers.len().max(1),
            groups: groups.into_iter().map(|group| group.spec).collect(),
            attention: blueprint.layers.iter().filter_map(|layer| attention(&layer.mixer)).collect(),
        };
        let embedding = format!("{}.{}.weight", blueprint.names.root, blueprint.names.embed);
        let per_layer = format!("{}.embed_tokens_per_layer.weight", blueprint.names.root);
        let manifest = blueprint.manifest().0;
        let is_tied = !manifest.contains_key("lm_head.weight");
        for (name, shape) in &manifest {
            let elements = shape.iter().product::<usize>() as f64;
            let bytes = scale * config.tensor_bytes(name, shape) as f64;
            match shape.as_slice() {
                // A step reads a few of their rows.
                _ if *name == per_layer || *name == embedding && !is_tied => {}
                _ if *name == embedding || name == "lm_head.weight" => {
                    (work.head_elements, work.dense_bytes) = (elements, work.dense_bytes + bytes);
                }
                // Convolutions have one input for each output.
                [_, _, inputs] if *inputs > 1 => {
                    work.expert_elements += elements;
                    work.expert_bytes += bytes;
                }
                [_, _] => {
                    work.dense_elements += elements;
                    work.dense_bytes += bytes;
                }
                _ => work.dense_bytes += bytes,
            }
        }
        Ok(work)
    }

    /// Layers of the model, at least one.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// A step in which so many streams with so many tokens each decode.
    pub fn decode(&self, streams: usize, context: usize) -> StepWork {
        let rows = streams as f64;
        // Experts that at least one row meets, if every row chooses at random.
        let met = 1.0 - (1.0 - self.expert_share).powf(rows);
        let cached: f64 = self.groups.iter().map(|spec| cached_bytes(spec, context)).sum();
        let attended: f64 =
            self.attention.iter().map(|(width, most)| 4.0 * (width * context.min(*most)) as f64).sum();
        StepWork {
            bytes: self.dense_bytes + met * self.expert_bytes + rows * cached,
            flops: rows * (2.0 * (self.row_elements() + self.head_elements) + attended),
        }
    }

    /// All steps of a prompt of so many tokens together, as if it were one step.
    pub fn prefill(&self, tokens: usize) -> StepWork {
        let attended = self.attention.iter().map(|(width, most)| {
            let (all, seen) = (tokens as f64, tokens.min(*most) as f64);
            4.0 * *width as f64 * (seen * seen / 2.0 + (all - seen) * seen)
        });
        let met = 1.0 - (1.0 - self.expert_share).powf(tokens as f64);
        StepWork {
            bytes: self.dense_bytes + met * self.expert_bytes,
            flops: 2.0 * (tokens as f64 * self.row_elements() + self.head_elements) + attended.sum::<f64>(),
        }
    }

    fn row_elements(&self) -> f64 {
        self.dense_elements + self.expert_share * self.expert_elements
    }
}

/// Unquantized keys and values have the dtype of activations, which is float32 on the CPU.
fn kv_float(config: &RandomWeights, device: DeviceChoice) -> FloatType {
    let is_cpu = device == DeviceChoice::Cpu || !mlx::device::gpu_available();
    if is_cpu || config.is_float32() { FloatType::F32 } else { FloatType::Bf16 }
}

/// Bytes that a row reads of its sequence's cache; a state is read and written.
fn cached_bytes(spec: &KvCacheSpec, context: usize) -> f64 {
    let tokens = match spec.kind {
        CacheKind::Full | CacheKind::Latent => context,
        CacheKind::SlidingWindow { tokens, sinks } => context.min(tokens + sinks),
        CacheKind::State => 2,
        CacheKind::UnquantizedPrefix { .. } => 0,
    };
    (tokens * spec.format.bytes(spec.elements)) as f64
}

/// The width of an attention layer's queries, and how many positions a row sees at most.
fn attention(mixer: &Mixer) -> Option<(usize, usize)> {
    let Mixer::Attention(attention) = mixer else { return None };
    let seen = match attention.span {
        AttentionSpan::Full => usize::MAX,
        AttentionSpan::Window(tokens) | AttentionSpan::Chunk(tokens) => tokens,
        AttentionSpan::Sinks { tokens, sink_tokens } => tokens + sink_tokens,
    };
    Some((attention.heads * attention.head_dim, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENSE: &str = r#"{"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 160, "rms_norm_eps": 1e-6,
        "rope_theta": 1e4, "max_position_embeddings": 256, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}"#;

    /// Elements of the matrices of both layers, of the head, and of the norms.
    const MATRICES: f64 = 2.0 * (3.0 * 64.0 * 128.0 + 3.0 * 64.0 * 96.0);
    const HEAD: f64 = 160.0 * 64.0;
    const NORMS: f64 = 2.0 * (64.0 + 64.0 + 32.0 + 32.0) + 64.0;

    fn work(config: &str) -> ModelWork {
        let random = RandomWeights::new("tiny", config, None).unwrap();
        let cache = CacheFormat::Float(DeviceChoice::Cpu);
        ModelWork::of(&random, random.bytes(), cache).unwrap()
    }

    #[test]
    fn a_decode_step_reads_the_weights_once_and_each_cache() {
        let StepWork { bytes, flops } = work(DENSE).decode(3, 10);
        let cached = 3.0 * 10.0 * f64::from(2 * 2 * 2 * 32) * 4.0;
        assert_eq!(bytes, 2.0 * (MATRICES + HEAD + NORMS) + cached);
        let attention = 2.0 * 4.0 * 128.0 * 10.0;
        assert_eq!(flops, 3.0 * (2.0 * (MATRICES + HEAD) + attention));
        let blueprint = families::read(&serde_json::from_str(DENSE).unwrap()).unwrap();
        assert_eq!(blueprint.row_elements(), MATRICES);
    }

    #[test]
    fn prefill_samples_one_row_and_attends_to_half_of_the_square() {
        let StepWork { bytes, flops } = work(DENSE).prefill(10);
        assert_eq!(bytes, 2.0 * (MATRICES + HEAD + NORMS));
        assert_eq!(flops, 2.0 * (10.0 * MATRICES + HEAD) + 2.0 * 4.0 * 128.0 * 50.0);
    }

    #[test]
    fn an_embedding_beside_a_head_is_not_read() {
        let own = DENSE.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
        assert_eq!(work(&own).decode(1, 10), work(DENSE).decode(1, 10));
    }

    #[test]
    fn embeddings_of_layers_are_not_read() {
        let gemma = |per_layer: usize| {
            let config = DENSE.replace("\"qwen3\"", "\"gemma4_text\"").replace(
                "\"hidden_size\"",
                &format!(
                    "\"hidden_size_per_layer_input\": {per_layer}, \"vocab_size_per_layer_input\": 160, \
                     \"num_kv_shared_layers\": 0, \"hidden_size\""
                ),
            );
            work(&config).decode(1, 10).bytes
        };
        // Without the table of 160 rows: a projection for both layers, two matrices in each, and their norms.
        let (two, one) = (gemma(16), gemma(8));
        assert_eq!(two - one, 2.0 * (2.0 * 64.0 * 8.0 + 2.0 * 2.0 * 64.0 * 8.0 + 8.0));
    }

    #[test]
    fn a_row_meets_some_of_the_experts() {
        let moe = DENSE.replace("qwen3", "qwen3_moe").replace(
            "\"hidden_size\"",
            "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, \
             \"norm_topk_prob\": true, \"hidden_size\"",
        );
        let moe = work(&moe);
        let experts = 2.0 * 4.0 * 3.0 * 64.0 * 64.0;
        let (one, two) = (moe.decode(1, 10).bytes, moe.decode(2, 10).bytes);
        let cached = 10.0 * f64::from(2 * 2 * 2 * 32) * 4.0;
        assert_eq!(two - one, cached + (0.75 - 0.5) * experts * 2.0);
        let (one, two) = (moe.decode(1, 10).flops, moe.decode(2, 10).flops);
        assert_eq!(two, 2.0 * one);
    }
}
