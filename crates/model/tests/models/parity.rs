//! Every family gives the reference's logits, in every way and by every kernel the engine uses.

use std::path::{Path, PathBuf};

use crate::environment;
use crate::golden::{Fixture, fixtures, ways};
use expect_test::expect;
use mlx::{Array, Dtype};
use omnibus_model::{Kernels, KvPath, families::FAMILIES};

fn check(kernels: Kernels) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let paths = fixtures(&directory, &[]).unwrap();
    assert!(!paths.is_empty(), "no fixtures in {}", directory.display());
    let mut wrong = Vec::new();
    for path in paths {
        let fixture = Fixture::read(&path).unwrap();
        let model = fixture.model(kernels).unwrap();
        let bound = fixture.bound_of(&model);
        for found in ways::distances(&fixture, &model).unwrap() {
            if found.distance > bound {
                wrong.push(format!("{} {}: {:e} > {bound:e}", fixture.name, found.way, found.distance));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_path_gives_the_golden_logits() {
    check(Kernels::Mlx);
}

#[test]
fn the_cpu_primitives_give_the_golden_logits() {
    if mlx::cpu::available() {
        check(Kernels::Cpu);
    }
}

/// Rotations that depend on a sequence's length, chunks, and keys that are chosen by more than positions have no kernel.
#[test]
fn keys_of_few_families_are_gathered() {
    if !mlx::cpu::available() {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut gathers = Vec::new();
    for path in fixtures(&directory, &[]).unwrap() {
        let fixture = Fixture::read(&path).unwrap();
        let model = fixture.model(Kernels::Cpu).unwrap();
        let is_converted = !fixture.name.ends_with(".hf");
        if is_converted && model.kv_path(model.kv_float().into(), 16) == KvPath::Gather {
            gathers.push(fixture.name);
        }
    }
    let expected = expect![[r#"
        deepseek_v32
        deepseek_v32.dense
        deepseek_v41
        deepseek_v41_text
        glm_moe_dsa
        internlm2
        internlm3
        llama.dynamic
        llama4
        minimax_m3_vl
        phi3small
    "#]];
    expected.assert_eq(&(gathers.join("\n") + "\n"));
}

/// On CUDA, MLX rounds operands of float32 products to TF32 unless `MLX_ENABLE_TF32=0`.
#[test]
fn the_gpu_kernels_give_the_golden_logits() {
    if mlx::gpu::available() && !environment::has_exact_products() {
        println!("skipped: the golden logits need MLX_ENABLE_TF32=0");
    } else if mlx::gpu::available() {
        check(Kernels::Gpu);
    }
}

/// Published weights are mostly half as wide as the goldens'; rounding moves the logits a little.
/// (Routed experts stay out of bfloat16 here: it is coarse enough to choose others for these random routers.)
#[test]
fn half_width_weights_give_nearly_the_golden_logits() {
    const NEAR: f32 = 0.06;
    for (name, dtype) in [
        ("llama", Dtype::Bf16),
        ("llama", Dtype::F16),
        ("qwen3", Dtype::Bf16),
        ("qwen3_moe", Dtype::F16),
        ("gemma3_text", Dtype::Bf16),
        ("llama.q-4bit", Dtype::Bf16),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let fixture = Fixture::read(&path).unwrap();
        let halve = |array: Array| match array.dtype().unwrap() {
            Dtype::F32 => array.astype(dtype).unwrap(),
            _ => array,
        };
        let weights =
            fixture.weights().unwrap().into_iter().map(|(name, array)| (name, halve(array))).collect();
        let model = fixture.model_of(weights, Kernels::fastest()).unwrap();
        for found in ways::distances(&fixture, &model).unwrap() {
            assert!(found.distance < NEAR, "{name} in {dtype:?}, {}: {:e}", found.way, found.distance);
        }
    }
}

/// Tiny layers average little of the rounding away; docs/measurements/2026-11-26-performance.md has the difference of a real model.
#[test]
fn activations_in_8_bits_give_nearly_the_golden_logits_in_every_way() {
    const NEAR: f32 = 0.06;
    if !mlx::cpu::available() {
        return;
    }
    for name in ["llama.q-4bit", "llama.q-8bit32", "qwen3_moe.q-4bit"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let fixture = Fixture::read(&path).unwrap();
        let model = fixture.model(Kernels::CpuInt8).unwrap();
        let found = ways::distances(&fixture, &model).unwrap();
        for way in &found {
            assert!(way.distance < NEAR, "{name}, {}: {:e}", way.way, way.distance);
            assert!(way.distance > fixture.bound, "{name}, {}: not rounded", way.way);
        }
        // Of each prompt: computed at once, then a token at a time; then in parts.
        for prompt in found.chunk_by(|_, next| next.way != "prefill") {
            let [prefill, decode, parts, ..] = prompt else { panic!("{name}: a prompt has three ways") };
            assert_eq!(prefill.distance.max(decode.distance), parts.distance, "{name}: {}", parts.way);
        }
    }
}

#[test]
fn every_family_has_a_fixture() {
    let directories = ["tests/fixtures", "tests/pictures", "tests/speech"];
    let paths = directories.map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    let paths = paths.iter().flat_map(|directory| fixtures(directory, &[]).unwrap());
    let config = |path: PathBuf| std::fs::read(path.join("config.json")).unwrap();
    let config = |path| serde_json::from_slice::<serde_json::Value>(&config(path)).unwrap();
    let types: Vec<_> = paths.map(|path| config(path)["model_type"].clone()).collect();
    for family in FAMILIES {
        assert!(types.iter().any(|found| found == family.model_type), "{} has no fixture", family.model_type);
    }
}
