//! Text models give the reference's logits of prompts with features: at once, in chunks, token by token, and in batches of
//! unequal rows with and without pictures.

use omnibus_model::{Kernels, Model, Quantization, families};

use super::encoder::encoder;
use super::fixture::{self, PictureFixture};
use crate::golden::{Prompt, ways};

/// Where rows of a picture attend to later ones, which no kernel does.
const BOTH_DIRECTIONS: &[&str] = &["gemma3", "paligemma"];

fn model(fixture: &PictureFixture, kernels: Kernels) -> Result<Model, Box<dyn std::error::Error>> {
    let blueprint = families::read(&fixture.config)?;
    let quantization = Quantization::read(&fixture.config)?;
    Ok(Model::build(blueprint, quantization, fixture.weights(), kernels)?)
}

/// The fixtures whose text model is not served with pictures.
fn check(kernels: Kernels) -> Vec<String> {
    let (mut wrong, mut skipped, mut compared) = (Vec::new(), Vec::new(), 0);
    for fixture in fixture::all() {
        let model_type = fixture.config["model_type"].as_str().unwrap();
        let known = families::FAMILIES.iter().any(|family| family.model_type == model_type);
        if !known || BOTH_DIRECTIONS.contains(&model_type) {
            skipped.push(fixture.name);
            continue;
        }
        let model = match model(&fixture, kernels) {
            Ok(model) => model,
            Err(error) => {
                wrong.push(format!("{}: {error}", fixture.name));
                continue;
            }
        };
        let encoder = encoder(&fixture, kernels);
        let prompt = |case: &String| fixture.prompt(case, encoder.as_ref());
        let prompts: Vec<Prompt> = fixture.cases.iter().filter_map(prompt).collect();
        compared += prompts.iter().filter(|prompt| prompt.media.is_some()).count();
        for found in ways::distances_of(&prompts, &model).unwrap() {
            if found.distance > fixture.bound {
                wrong.push(format!(
                    "{} {}: {:e} > {:e}",
                    fixture.name, found.way, found.distance, fixture.bound
                ));
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
