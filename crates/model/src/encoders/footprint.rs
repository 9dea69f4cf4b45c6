//! Memory that encoders take while they encode, from their blueprints alone.
//!
//! Invariant: an estimate from above of the widest layer, because an encoder is evaluated layer by layer.

use super::audio::{AudioBlueprint, AudioLayer, Conformer, KERNEL, PlaneNorm, Stem};
use super::blueprint::{EncoderBlueprint, EncoderLayer};

/// Rows as wide as the stream that a layer has besides its MLP: the stream before and behind both parts, two norms, queries,
/// keys and values before and behind their rotation, what attention gives, and its projection.
const ROWS_OF_LAYER: usize = 12;

/// Planes of a stem's first convolution that are held at once, as measured: one graph has both convolutions with their norms.
const PLANES_OF_STEM: usize = 7;

impl EncoderBlueprint {
    /// Bytes of intermediate results, at most, of a picture of so many patches, in activations of `element` bytes. Scores of
    /// attention are not counted: kernels hold a few of them.
    pub fn scratch_bytes(&self, patches: usize, element: usize) -> u64 {
        let layer = self.layers.iter().map(|layer| row_elements(layer, self.hidden)).max().unwrap_or(0);
        // Rows of layers that become features are kept to the end.
        let kept = (self.deepstack.len() + self.joined.len()) * self.hidden;
        // Pixels come in 32 bits, and are cut into patches in theirs.
        let pixels = self.patches.elements() * (size_of::<f32>() + element);
        let row = pixels.max((layer + kept) * element);
        (patches as u64).saturating_mul(row as u64)
    }
}

impl AudioBlueprint {
    /// Scratch memory of the encoder for a window of so many frames, in bytes.
    pub fn scratch_bytes(&self, frames: usize, element: usize) -> u64 {
        let of_layer = |layer: &AudioLayer| match layer {
            AudioLayer::Transformer(layer) => row_elements(layer, self.hidden),
            AudioLayer::Conformer(layer) => conformer_elements(layer, self.hidden),
        };
        let layer = self.layers.iter().map(of_layer).max().unwrap_or(0);
        let rows = (self.stem.rows(frames) * layer * element) as u64;
        rows.max(self.stem_bytes(frames, element))
    }

    /// Of the stem: what convolutions read, and what they give before and behind their norms and activations.
    fn stem_bytes(&self, frames: usize, element: usize) -> u64 {
        let bytes = match self.stem {
            Stem::Frames(_) => frames * (self.bands + 2 * self.hidden) * element,
            Stem::Planes { channels: [first, _], norm, .. } => {
                let plane = frames.div_ceil(2) * self.bands.div_ceil(2) * first;
                // The places that the second convolution reads, a quarter as many, are laid end to end.
                let read = frames * self.bands + KERNEL * KERNEL * plane.div_ceil(4);
                let element_of_norm = match norm {
                    PlaneNorm::Channels(_) => element,
                    PlaneNorm::Cumulative { .. } => element.max(size_of::<f32>()),
                };
                read * element + PLANES_OF_STEM * plane * element_of_norm
            }
        };
        bytes as u64
    }
}

fn row_elements(layer: &EncoderLayer, hidden: usize) -> usize {
    ROWS_OF_LAYER * hidden + layer.mlp.spec().row_elements(hidden)
}

fn conformer_elements(layer: &Conformer, hidden: usize) -> usize {
    // A part is evaluated behind the one before it; all of a layer's are in one graph.
    let feed_forward = 2 * 2 * layer.width;
    let convolution = 4 * hidden;
    let attention = &layer.attention;
    let scores = 3 * attention.heads * (attention.past + attention.chunk + attention.future);
    ROWS_OF_LAYER * hidden + feed_forward + convolution + scores
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::encoders::{audio, read};

    fn config(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
        value.as_object().unwrap().clone()
    }

    fn fixture(name: &str) -> serde_json::Map<String, serde_json::Value> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures").join(name);
        serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap()
    }

    /// The vision tower of Qwen3-VL-4B on a picture of 2,048 × 2,048 pixels.
    #[test]
    fn the_footprint_of_a_published_tower_grows_with_patches_and_width() {
        let mut published = fixture("qwen3_vl");
        published["vision_config"] = json!({
            "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "in_channels": 3,
            "out_hidden_size": 64, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "num_position_embeddings": 2304, "hidden_act": "gelu_pytorch_tanh", "model_type": "qwen3_vl",
            "deepstack_visual_indexes": [5, 11, 17],
        });
        let blueprint = read(&published).unwrap().unwrap();
        let bytes = blueprint.scratch_bytes(16_384, 2);
        // 16,384 rows; twelve of the stream, two of the MLP, three kept.
        assert_eq!(bytes, 16_384 * (12 * 1024 + 2 * 4096 + 1024 + 3 * 1024) * 2);
        assert_eq!(blueprint.scratch_bytes(32_768, 2), 2 * bytes);
        assert_eq!(blueprint.scratch_bytes(16_384, 4), 2 * bytes);
        let small = read(&fixture("qwen3_vl")).unwrap().unwrap();
        // Narrow layers take less than the pixels.
        assert_eq!(small.scratch_bytes(10, 4), 10 * 1536 * 8);
    }

    #[test]
    fn the_footprint_of_sound_is_that_of_its_stem_or_its_layers() {
        let wide =
            config(json!({"model_type": "gemma4", "text_config": {"hidden_size": 64}, "audio_config": {
                "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
            }}));
        let blueprint = audio::read(&wide).unwrap().unwrap();
        // 30 s: 3,000 frames become 750 rows; the first convolution has 128 channels of 1,500 × 64, and the second one
        // 24,000 places that read nine of these.
        let stem = 3000 * 128 + 7 * 1500 * 64 * 128 + 24_000 * 9 * 128;
        assert_eq!(blueprint.scratch_bytes(3000, 2), stem * 2);
        assert!(blueprint.scratch_bytes(6000, 2) > blueprint.scratch_bytes(3000, 2));
    }
}
