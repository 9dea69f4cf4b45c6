//! Every encoder gives the reference's features, of every picture and video whose pixels a fixture has.

use mlx::Array;
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
    if !fixture.name.starts_with("gemma3") {
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
