//! Audio encoders give the reference's features, of every sound whose spectrum a fixture has. The logits of prompts with
//! sound are compared with those of prompts with pictures.

use mlx::{Array, QuantMode};
use omnibus_model::encoders::audio::{self, AudioEncoder, AudioInput};
use omnibus_model::{Kernels, Model, Quantization, Weights, families};

use crate::golden::pictures::{Medium, PictureFixture, distance};
use crate::pictures::fixtures;

fn named(name: &str) -> PictureFixture {
    fixtures().into_iter().find(|fixture| fixture.name == name).unwrap()
}

/// `None` if its family has no audio encoder here.
fn encoder(fixture: &PictureFixture, kernels: Kernels) -> Option<AudioEncoder> {
    let blueprint = audio::read(&fixture.config).unwrap()?;
    let quantization = Quantization::read(&fixture.config).unwrap();
    Some(AudioEncoder::build(blueprint, quantization, fixture.weights(), kernels).unwrap())
}

/// What the encoder takes of a case, if the fixture has its spectrum.
fn input(fixture: &PictureFixture, case: &str) -> Option<AudioInput> {
    let spectrum = fixture.array("input_features", case)?.squeeze(&[0]).unwrap();
    let mask = fixture.array("input_features_mask", case)?.astype(mlx::Dtype::I32).unwrap();
    let sound = mask.to_vec::<i32>().unwrap().iter().filter(|of| **of != 0).count();
    Some(AudioInput { spectrum, frames: sound })
}

fn check(kernels: Kernels) {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for fixture in fixtures() {
        let Some(encoder) = encoder(&fixture, kernels) else { continue };
        for case in &fixture.cases {
            let Some(input) = input(&fixture, case) else { continue };
            let want = fixture.features_of(Medium::Sound, case).unwrap();
            let found = distance(&encoder.encode(&input).unwrap().rows, &want);
            compared += 1;
            if found > fixture.features_bound {
                wrong.push(format!("{} {case}: {found:e} > {:e}", fixture.name, fixture.features_bound));
            }
        }
    }
    assert!(compared > 0 && wrong.is_empty(), "of {compared}:\n{}", wrong.join("\n"));
}

#[test]
fn mlx_gives_the_golden_features_of_sound() {
    check(Kernels::Mlx);
}

#[test]
fn the_cpu_primitives_give_the_golden_features_of_sound() {
    if mlx::cpu::available() {
        check(Kernels::Cpu);
    }
}

/// The frames that only fill a window up, and their values, change nothing.
#[test]
fn frames_behind_the_end_are_left_out() {
    let fixture = named("gemma4");
    let encoder = encoder(&fixture, Kernels::fastest()).unwrap();
    let input = input(&fixture, "sound").unwrap();
    let [frames, _] = input.spectrum.dims().unwrap();
    let padded = input.spectrum.pad(&[(0, 29), (0, 0)], 3.0).unwrap();
    let padded = AudioInput { spectrum: padded, frames: frames as usize };
    let [alone, padded] = [input, padded].map(|input| encoder.encode(&input).unwrap().rows);
    assert_eq!(alone.to_vec::<f32>().unwrap(), padded.to_vec::<f32>().unwrap());
}

#[test]
fn a_spectrum_of_another_shape_is_an_error() {
    let fixture = named("gemma4");
    let encoder = encoder(&fixture, Kernels::fastest()).unwrap();
    for (shape, frames) in [([12, 80], 12), ([12, 128], 0), ([12, 128], 13)] {
        let spectrum = mlx::Array::from_slice(&vec![0f32; (shape[0] * shape[1]) as usize], &shape).unwrap();
        assert!(encoder.encode(&AudioInput { spectrum, frames }).is_err(), "{shape:?}, {frames} frames");
    }
}

/// In float32, with logarithms of small energies: the bound is that of the golden spectra.
#[test]
fn processors_make_the_golden_spectra() {
    let mut compared = 0;
    for fixture in fixtures() {
        for case in &fixture.cases {
            for made in fixture.spectra(case) {
                let golden = fixture.array("input_features", case).unwrap();
                let found = distance(&made, golden);
                assert!(found < 5e-5, "{} {case}: {found:e}", fixture.name);
                compared += 1;
            }
        }
    }
    assert!(compared > 1);
}

/// The names and layouts that mlx-vlm writes: without the outer module, channels of convolutions last.
fn converted(weights: Weights) -> Weights {
    let convert = |(name, weight): (String, Array)| {
        let weight = match (name.contains("audio_tower"), weight.ndim()) {
            (true, 4) => weight.transpose(&[0, 2, 3, 1]).unwrap().contiguous().unwrap(),
            (true, 3) => weight.transpose(&[0, 2, 1]).unwrap().contiguous().unwrap(),
            _ => weight,
        };
        (name.trim_start_matches("model.").to_owned(), weight)
    };
    weights.into_iter().map(convert).collect()
}

#[test]
fn a_converted_audio_tower_is_the_published_one() {
    let fixture = named("gemma3n.hf");
    let weights = converted(fixture.weights());
    assert_eq!(weights["audio_tower.subsample_conv_projection.conv_1.conv.weight"].shape(), [6, 3, 3, 8]);
    assert_eq!(weights["audio_tower.conformer.0.lconv1d.depthwise_conv1d.weight"].shape(), [32, 4, 1]);
    assert!(off(&fixture, Quantization::default(), weights) < fixture.features_bound);
}

/// How far the features of the case `sound` are from the reference's, with other weights.
fn off(fixture: &PictureFixture, quantization: Quantization, weights: Weights) -> f32 {
    let blueprint = audio::read(&fixture.config).unwrap().unwrap();
    let encoder = AudioEncoder::build(blueprint, quantization, weights, Kernels::fastest()).unwrap();
    let found = encoder.encode(&input(fixture, "sound").unwrap()).unwrap().rows;
    distance(&found, &fixture.features_of(Medium::Sound, "sound").unwrap())
}

/// Linear layers and embeddings below these modules packed, where their inputs are whole groups.
fn packed(weights: Weights, modules: &[&str]) -> Weights {
    let mut packed = Weights::new();
    for (name, weight) in weights {
        let is_matrix = weight.ndim() == 2 && weight.dim(1).unwrap() % GROUP == 0;
        let module = name.strip_suffix(".weight").filter(|_| is_matrix);
        let module = module.filter(|name| modules.iter().any(|module| name.contains(module)));
        let Some(module) = module else {
            packed.insert(name, weight);
            continue;
        };
        let made = weight.quantize(GROUP, 8, QuantMode::Affine).unwrap();
        packed.insert(format!("{module}.scales"), made.scales);
        packed.insert(format!("{module}.biases"), made.biases.unwrap());
        packed.insert(name, made.weight);
    }
    packed
}

const GROUP: i32 = 32;

#[test]
fn a_packed_text_model_leaves_the_features_of_sound_and_a_packed_tower_nearly() {
    const NEAR: f32 = 0.03;
    let fixture = named("gemma3n.hf");
    let mut config = fixture.config.clone();
    config.insert("quantization".to_owned(), serde_json::json!({ "group_size": GROUP, "bits": 8 }));
    let quantization = || Quantization::read(&config).unwrap();
    let text = packed(converted(fixture.weights()), &["language_model"]);
    assert!(text.contains_key("language_model.layers.0.mlp.up_proj.scales"));
    assert!(off(&fixture, quantization(), text.clone()) < fixture.features_bound);
    let both = packed(text, &["audio_tower", "embed_audio"]);
    assert!(both.contains_key("embed_audio.embedding.scales"));
    let blueprint = families::read(&config).unwrap();
    Model::build(blueprint, quantization(), both.clone(), Kernels::fastest()).unwrap();
    let found = off(&fixture, quantization(), both);
    assert!(found < NEAR && found > fixture.features_bound, "{found:e}");
}

#[test]
fn a_sound_with_more_features_than_its_prompt_has_tokens_is_an_error() {
    let fixture = named("gemma3n.hf");
    let encoder = encoder(&fixture, Kernels::fastest()).unwrap();
    let encode = |frames: i32| {
        let spectrum = Array::zeros(&[frames, 22], mlx::Dtype::F32).unwrap();
        encoder.encode(&AudioInput { spectrum, frames: frames as usize })
    };
    // Four frames make a row, and three rows a feature.
    assert_eq!(encode(144).unwrap().rows.shape(), [12, 64]);
    assert!(encode(145).is_err_and(|error| error.to_string().contains("13 features")));
}

#[test]
fn a_config_that_is_not_computed_is_refused_by_its_field() {
    let fixture = named("gemma3n.hf");
    let cases = [
        ("sscp_conv_kernel_size", serde_json::json!([[3, 3], [5, 3]])),
        ("sscp_conv_stride_size", serde_json::json!([[2, 2], [1, 2]])),
        ("vocab_offset", 142.into()),
        ("vocab_size", 8.into()),
        ("conf_reduction_factor", 0.into()),
        ("conf_num_attention_heads", 5.into()),
        ("conf_attention_context_left", 0.into()),
        ("conf_new_field", 1.into()),
    ];
    for (field, value) in cases {
        let mut config = fixture.config.clone();
        config["audio_config"][field] = value;
        let error = audio::read(&config).unwrap_err().to_string();
        let name = match field {
            "vocab_size" => "token that fills up",
            "conf_reduction_factor" => "rows that become one",
            _ => field.trim_start_matches("conf_"),
        };
        assert!(error.contains(name), "{field}: {error}");
    }
    let mut config = fixture.config;
    config.insert("audio_soft_tokens_per_image".to_owned(), 1_000_000_000.into());
    assert!(audio::read(&config).is_err());
}
