//! Text models give the reference's logits of prompts with features: at once, in chunks, token by token, and in batches of
//! unequal rows with and without pictures.

use omnibus_model::{Kernels, families};

use super::fixtures;
use crate::golden::ways;

/// Of encoder and text model together, whose activations transformers computes with torch.
const BOTH_BOUND: f32 = 2e-4;

/// The fixtures whose text model is not served with pictures.
fn check(kernels: Kernels) -> Vec<String> {
    let (mut wrong, mut skipped, mut compared) = (Vec::new(), Vec::new(), 0);
    for fixture in fixtures() {
        let model_type = fixture.config["model_type"].as_str().unwrap();
        if !families::FAMILIES.iter().any(|family| family.model_type == model_type) {
            skipped.push(fixture.name);
            continue;
        }
        let model = match fixture.model(kernels) {
            Ok(model) => model,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        let encoder = fixture.encoder(kernels).unwrap();
        // Features of earlier layers are the encoder's own where a fixture has none.
        let of_logits = fixture.distances_of_logits(&model, encoder.as_ref()).unwrap();
        let of_both = encoder.map(|encoder| fixture.distances_of_both(&model, &encoder).unwrap());
        let bounds = [fixture.features_bound, BOTH_BOUND];
        for (found, bound) in [of_logits, of_both.unwrap_or_default()].iter().zip(bounds) {
            compared += found.len();
            for far in found.iter().filter(|found| found.distance > bound) {
                wrong.push(format!("{} {}: {:e} > {bound:e}", fixture.name, far.way, far.distance));
            }
        }
    }
    assert!(compared > 0 && wrong.is_empty(), "of {compared}:\n{}", wrong.join("\n"));
    skipped
}

#[test]
fn mlx_gives_the_golden_logits_of_pictures() {
    println!("skipped, without pictures: {:?}", check(Kernels::Mlx));
}

#[test]
fn the_cpu_primitives_give_the_golden_logits_of_pictures() {
    if mlx::cpu::available() {
        println!("skipped, without pictures: {:?}", check(Kernels::Cpu));
    }
}

#[test]
fn rows_of_text_have_the_same_bits_beside_pictures() {
    if !mlx::cpu::available() {
        return;
    }
    for fixture in fixtures().into_iter().filter(|fixture| fixture.name.starts_with("qwen")) {
        let model = fixture.model(Kernels::Cpu).unwrap();
        let encoder = fixture.encoder(Kernels::Cpu).unwrap();
        let prompts = fixture.cases.iter().filter_map(|case| fixture.prompt(case, encoder.as_ref()));
        let (text, pictures): (Vec<_>, Vec<_>) = prompts.partition(|prompt| prompt.media.is_none());
        let (Some(text), Some(picture)) = (text.first(), pictures.first()) else {
            panic!("{} has a prompt without pictures and one with some", fixture.name)
        };
        let alone = ways::last_logits(&model, &[text]).unwrap();
        let beside = ways::last_logits(&model, &[text, picture]).unwrap();
        assert_eq!(beside[0], alone[0], "{}", fixture.name);
    }
}
