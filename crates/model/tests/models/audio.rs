//! Audio encoders give the reference's features, of every sound whose spectrum a fixture has. The logits of prompts with
//! sound are compared with those of prompts with pictures.

use omnibus_model::encoders::audio::{self, AudioEncoder, AudioInput};
use omnibus_model::{Kernels, Quantization};

use crate::golden::pictures::{PictureFixture, distance};
use crate::pictures::fixtures;

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
            let want = fixture.features(case).unwrap();
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
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "gemma4").unwrap();
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
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "gemma4").unwrap();
    let encoder = encoder(&fixture, Kernels::fastest()).unwrap();
    for (shape, frames) in [([12, 80], 12), ([12, 128], 0), ([12, 128], 13)] {
        let spectrum = mlx::Array::from_slice(&vec![0f32; (shape[0] * shape[1]) as usize], &shape).unwrap();
        assert!(encoder.encode(&AudioInput { spectrum, frames }).is_err(), "{shape:?}, {frames} frames");
    }
}
