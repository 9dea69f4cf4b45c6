//! Every encoder gives the reference's features, of every picture and video whose pixels a fixture has.

use mlx::{Array, QuantMode};
use omnibus_model::encoders::{self, Encoder, Features};
use omnibus_model::{Kernels, Quantization};

use super::fixture::{self, PictureFixture, distance};

pub fn encoder(fixture: &PictureFixture, kernels: Kernels) -> Option<Encoder> {
    let blueprint =
        encoders::read(&fixture.config).unwrap_or_else(|error| panic!("{}: {error}", fixture.name))?;
    let quantization = Quantization::read(&fixture.config).unwrap();
    let encoder = Encoder::build(blueprint, quantization, fixture.weights(), kernels);
    Some(encoder.unwrap_or_else(|error| panic!("{}: {error}", fixture.name)))
}

/// The reference's features, as they are before the text model scales its own embeddings.
fn golden(fixture: &PictureFixture, case: &str) -> Option<Array> {
    let features = fixture.array("features", case)?;
    if !["gemma3", "paligemma"].iter().any(|name| fixture.name.starts_with(name)) {
        return Some(features.clone());
    }
    let hidden = features.dim(-1).unwrap() as f32;
    Some(features * hidden.sqrt())
}

/// The fixtures whose family has no encoder.
fn check(kernels: Kernels) -> Vec<String> {
    let (mut wrong, mut skipped, mut compared) = (Vec::new(), Vec::new(), 0);
    for fixture in fixture::all() {
        let Some(encoder) = encoder(&fixture, kernels) else {
            skipped.push(fixture.name);
            continue;
        };
        for case in &fixture.cases {
            let Some(input) = fixture.input(case, encoder.blueprint()) else { continue };
            let Some(want) = golden(&fixture, case) else { continue };
            let Features { rows, deepstack } = encoder.encode(&input).unwrap();
            let mut distances = vec![distance(&rows, &want)];
            if let Some(deep) = fixture.array("deepstack_visual_embeds", case) {
                let found = mlx::stack(&deepstack.iter().collect::<Vec<_>>(), 0).unwrap();
                distances.push(distance(&found, deep));
            }
            compared += 1;
            let furthest = distances.into_iter().fold(0f32, f32::max);
            if furthest > fixture.features_bound {
                wrong.push(format!("{} {case}: {furthest:e} > {:e}", fixture.name, fixture.features_bound));
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
    let fixture = fixture::all().into_iter().find(|fixture| fixture.name == "qwen3_vl").unwrap();
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
    let found = distance(&encoder.encode(&input).unwrap().rows, &golden(&fixture, "one").unwrap());
    assert!(found < NEAR && found > fixture.bound, "{found:e}");
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
