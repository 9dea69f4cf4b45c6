//! Every encoder gives the reference's features, of every picture and video whose pixels a fixture has.

use mlx::{Array, QuantMode};
use omnibus_model::encoders::{self, Encoder};
use omnibus_model::{Kernels, Quantization, Weights};

use super::fixtures;
use crate::golden::pictures::distance;

/// The fixtures whose family has no encoder.
fn check(kernels: Kernels) -> Vec<String> {
    let (mut wrong, mut skipped, mut compared) = (Vec::new(), Vec::new(), 0);
    for fixture in fixtures() {
        let Some(encoder) = fixture.encoder(kernels).unwrap() else {
            skipped.push(fixture.name);
            continue;
        };
        for found in fixture.distances_of_features(&encoder).unwrap() {
            compared += 1;
            if found.distance > fixture.features_bound {
                wrong.push(format!("{}: {:e} > {:e}", fixture.name, found.distance, fixture.features_bound));
            }
        }
    }
    assert!(compared > 0 && wrong.is_empty(), "of {compared}:\n{}", wrong.join("\n"));
    skipped
}

/// A module whose inputs are whole groups is packed, as conversions do.
#[test]
fn packed_weights_give_nearly_the_golden_features() {
    const NEAR: f32 = 0.02;
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "qwen3_vl").unwrap();
    let mut config = fixture.config.clone();
    config.insert("quantization".to_owned(), serde_json::json!({ "group_size": 64, "bits": 8 }));
    let mut weights = fixture.weights();
    let module = "vision_tower.merger.linear_fc1";
    let packed = weights[&format!("{module}.weight")].quantize(64, 8, QuantMode::Affine).unwrap();
    weights.insert(format!("{module}.weight"), packed.weight);
    weights.insert(format!("{module}.scales"), packed.scales);
    weights.insert(format!("{module}.biases"), packed.biases.unwrap());
    let blueprint = encoders::read(&config).unwrap().unwrap();
    let quantization = Quantization::read(&config).unwrap();
    let encoder = Encoder::build(blueprint, quantization, weights, Kernels::fastest()).unwrap();
    let input = fixture.input("one", encoder.blueprint()).unwrap();
    let found = distance(&encoder.encode(&input).unwrap().rows, &fixture.features("one").unwrap());
    assert!(found < NEAR && found > fixture.bound, "{found:e}");
}

/// mlx-vlm's checkpoints have the channels of convolutions last, and lack the outer module's name.
#[test]
fn a_converted_tower_of_convolutions_is_the_published_one() {
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "gemma3n.hf").unwrap();
    let channels_last = |weight: &Array| weight.transpose(&[0, 2, 3, 1]).unwrap().contiguous().unwrap();
    let convert = |(name, weight): (String, Array)| {
        let is_convolution = name.contains("timm_model") && weight.ndim() == 4;
        let weight = if is_convolution { channels_last(&weight) } else { weight };
        (name.trim_start_matches("model.").to_owned(), weight)
    };
    let weights: Weights = fixture.weights().into_iter().map(convert).collect();
    assert_eq!(weights["vision_tower.timm_model.conv_stem.conv.weight"].shape(), [8, 3, 3, 3]);
    let blueprint = encoders::read(&fixture.config).unwrap().unwrap();
    let encoder = Encoder::build(blueprint, Quantization::default(), weights, Kernels::Mlx).unwrap();
    let found = fixture.encoded("one", &encoder).unwrap().rows;
    assert!(distance(&found, &fixture.features("one").unwrap()) < fixture.features_bound);
}

#[test]
fn mlx_gives_the_golden_features() {
    println!("skipped, without an encoder: {:?}", check(Kernels::Mlx));
}

#[test]
fn the_cpu_primitives_give_the_golden_features() {
    if mlx::cpu::available() {
        println!("skipped, without an encoder: {:?}", check(Kernels::Cpu));
    }
}
