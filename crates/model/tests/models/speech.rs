//! Models that write down speech give the reference's features of a sound and its logits, in every way a sequence is computed.

use std::path::Path;
use std::rc::Rc;

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::encoders::audio::{self, AudioEncoder, AudioInput};
use omnibus_model::{
    Batch, CrossHead, CrossRows, CrossWeights, Kernels, KvCache, Model, MultimodalRows, Quantization,
    Segment, families,
};

use crate::golden::pictures::{PictureFixture, distance};
use crate::golden::ways::distances_of;
use crate::golden::{Prompt, PromptMedia};

fn fixture() -> PictureFixture {
    PictureFixture::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speech/whisper"))
}

fn encoder(fixture: &PictureFixture, kernels: Kernels) -> AudioEncoder {
    let blueprint = audio::read(&fixture.config).unwrap().unwrap();
    AudioEncoder::build(blueprint, Quantization::default(), fixture.weights(), kernels).unwrap()
}

fn features(fixture: &PictureFixture, encoder: &AudioEncoder, case: &str) -> Array {
    let spectrum = fixture.array("spectrum", case).unwrap().clone();
    let frames = spectrum.dim(0).unwrap() as usize;
    encoder.encode(&AudioInput { spectrum, frames }).unwrap().rows
}

/// A prompt all of whose rows attend to the sound.
fn prompt(fixture: &PictureFixture, encoder: &AudioEncoder, case: &str) -> Prompt {
    let numbers = |what| fixture.array(what, case).unwrap().to_vec::<i32>().unwrap();
    let logits = fixture.array("logits", case).unwrap();
    let width = logits.dim(1).unwrap() as usize;
    let media = PromptMedia {
        positions: None,
        places: Vec::new(),
        features: Array::from_slice(&[0f32], &[1, 1]).unwrap(),
        deepstack: Vec::new(),
        crossed: std::iter::once((0..usize::MAX, features(fixture, encoder, case))).collect(),
    };
    Prompt {
        adapter: None,
        tokens: numbers("prompt"),
        decode: numbers("decode"),
        logits: logits.to_vec::<f32>().unwrap().chunks(width).map(<[f32]>::to_vec).collect(),
        media: Some(media),
    }
}

fn check(kernels: Kernels) {
    let fixture = fixture();
    let encoder = encoder(&fixture, kernels);
    for case in &fixture.cases {
        let off = distance(&features(&fixture, &encoder, case), fixture.array("features", case).unwrap());
        assert!(off < fixture.features_bound, "features of {case}: {off:e}");
    }
    let blueprint = families::read(&fixture.config).unwrap();
    let model = Model::build(blueprint, Quantization::default(), fixture.weights(), kernels).unwrap();
    let prompts: Vec<Prompt> = fixture.cases.iter().map(|case| prompt(&fixture, &encoder, case)).collect();
    for way in distances_of(&prompts, &model).unwrap() {
        assert!(way.distance < fixture.bound, "{}: {:e}", way.way, way.distance);
    }
}

#[test]
fn mlx_gives_the_golden_logits_of_speech() {
    check(Kernels::Mlx);
}

/// What the heads of the reference attend to, of a text in chunks beside a sound.
fn check_weights(kernels: Kernels) {
    const HEADS: [(usize, usize); 3] = [(0, 1), (1, 2), (1, 3)];
    const BLOCK_SIZE: usize = 8;
    let fixture = fixture();
    let encoder = encoder(&fixture, kernels);
    let blueprint = families::read(&fixture.config).unwrap();
    let model = Model::build(blueprint, Quantization::default(), fixture.weights(), kernels).unwrap();
    for case in &fixture.cases {
        let expected = fixture.array("weights", case).unwrap();
        let [heads, count, keys] = expected.dims().unwrap();
        let text: Vec<i32> = fixture.array("text", case).unwrap().to_vec().unwrap();
        let blocks = text.len().div_ceil(BLOCK_SIZE);
        let mut cache = KvCache::new(model.blueprint(), &[blocks + 1], BLOCK_SIZE, model.kv_float()).unwrap();
        let mut table = BlockTable::new(cache.groups()[0].spec.kind, BLOCK_SIZE);
        table.blocks.extend((0..blocks as u32).map(|block| BlockId(block + 1)));
        let states = model.cross_states(&features(&fixture, &encoder, case)).unwrap().unwrap();
        let mut parts = Vec::new();
        for (context, tokens) in [(0, &text[..11]), (11, &text[11..])] {
            let of_heads = HEADS.map(|(layer, head)| CrossHead { layer, head });
            let weights = Rc::new(CrossWeights::new(of_heads.into(), keys as usize));
            let segment = Segment {
                first: 0,
                len: tokens.len(),
                context,
                prompt: text.len(),
                samples: 1,
                adapter: None,
                tables: vec![table.clone()],
            };
            let (rows, states) = (0..tokens.len(), states.clone());
            let cross = vec![CrossRows { rows, states, weights: Some(Rc::clone(&weights)) }];
            let batch = Batch {
                tokens: Array::from_slice(tokens, &[tokens.len() as i32]).unwrap(),
                segments: vec![segment],
                logits_at: Vec::new(),
                multimodal: Some(MultimodalRows { cross, ..MultimodalRows::default() }),
                hidden: None,
            };
            assert!(model.forward(&batch, &mut cache).unwrap().logits.is_none());
            parts.push(weights.take().unwrap());
            assert!(weights.take().is_err(), "they are taken");
        }
        let found = mlx::concatenate(&parts.iter().collect::<Vec<_>>(), 1).unwrap();
        assert_eq!(found.dims().unwrap(), [heads, count, keys]);
        let off = distance(&found, expected);
        assert!(off < fixture.features_bound, "weights of {case}: {off:e}");
    }
}

#[test]
fn mlx_gives_the_golden_weights_of_cross_attention() {
    check_weights(Kernels::Mlx);
}

#[test]
fn the_cpu_primitives_give_the_golden_weights_of_cross_attention() {
    if mlx::cpu::available() {
        check_weights(Kernels::Cpu);
    }
}

#[test]
fn the_cpu_primitives_give_the_golden_logits_of_speech() {
    if mlx::cpu::available() {
        check(Kernels::Cpu);
    }
}

#[test]
fn a_config_of_another_layout_is_refused_with_what_is_supported() {
    let config = serde_json::json!({ "model_type": "whisper", "n_audio_state": 384, "n_mels": 80 });
    let error = families::read(config.as_object().unwrap()).unwrap_err().to_string();
    assert!(error.contains("n_audio_state") && error.contains("transformers"), "{error}");
}
