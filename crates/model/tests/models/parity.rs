//! Every family gives the reference's logits, in every way and by every kernel the engine uses.

use std::path::Path;

use crate::golden::embedders::config_of;
use crate::golden::{Fixture, Prompt, fixtures, ways};
use crate::{cores, environment};
use expect_test::expect;
use mlx::{Array, Dtype};
use omnibus_model::{Kernels, KvPath, families::FAMILIES};

fn check(kernels: Kernels) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let paths = fixtures(&directory, &[]).unwrap();
    assert!(!paths.is_empty(), "no fixtures in {}", directory.display());
    let wrong = cores::each(paths, |path| {
        let fixture = Fixture::read(&path).unwrap();
        let model = fixture.model(kernels).unwrap();
        let bound = fixture.bound_of(&model);
        let found = ways::distances(&fixture, &model).unwrap().into_iter();
        let far = found.filter(|found| found.distance > bound);
        far.map(|found| format!("{} {}: {:e} > {bound:e}", fixture.name, found.way, found.distance))
            .collect::<Vec<_>>()
    });
    let wrong = wrong.concat();
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

/// Models whose rotation takes its base from the end of each call (dynamic NTK): cached keys have an older base, so a prefix that
/// is computed at once has other logits, in the reference, too.
const DYNAMIC_NTK: &[&str] = &["internlm2", "internlm3", "llama.dynamic"];

/// Weights that the reference has not seen. MLX's operations, which give the reference's logits of the first seed, say what the
/// logits of each prefix are, computed at once.
#[test]
#[ignore = "all fixtures once more: `cargo xtask nightly --only second-seed`"]
fn weights_of_a_second_seed_give_the_same_logits_in_every_way() {
    const SEED: u64 = 1_000_003;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let wrong = cores::each(fixtures(&directory, &[]).unwrap(), |path| {
        let mut fixture = Fixture::read(&path).unwrap();
        if DYNAMIC_NTK.contains(&fixture.name.as_str()) {
            return Vec::new();
        }
        let model = |kernels| fixture.model_of(fixture.weights_of_seed(SEED).unwrap(), kernels).unwrap();
        let [reference, fastest] = [Kernels::Mlx, Kernels::fastest()].map(model);
        for prompt in &mut fixture.prompts {
            let prefixes = 0..=prompt.decode.len();
            let logits = prefixes.map(|count| {
                let tokens = [&prompt.tokens, &prompt.decode[..count]].concat();
                let prefix =
                    Prompt { tokens, decode: Vec::new(), logits: Vec::new(), adapter: None, media: None };
                ways::last_logits(&reference, &[&prefix]).unwrap().remove(0)
            });
            prompt.logits = logits.collect();
        }
        let found = [&reference, &fastest].map(|model| ways::distances(&fixture, model).unwrap());
        let bound = fixture.bound_of(&fastest);
        let far = found.concat().into_iter().filter(|found| found.distance > bound);
        far.map(|found| format!("{} {}: {:e} > {bound:e}", fixture.name, found.way, found.distance))
            .collect::<Vec<_>>()
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rotations that depend on a sequence's length, chunks, and keys that are chosen by more than positions have no kernel.
#[test]
fn keys_of_few_families_are_gathered() {
    if !mlx::cpu::available() {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut paths = fixtures(&directory, &[]).unwrap();
    paths.retain(|path| path.extension().is_none_or(|format| format != "hf"));
    let gathers = cores::each(paths, |path| {
        let fixture = Fixture::read(&path).unwrap();
        let model = fixture.model(Kernels::Cpu).unwrap();
        (model.kv_path(model.kv_float().into(), 16) == KvPath::Gather).then_some(fixture.name)
    });
    let gathers: Vec<String> = gathers.into_iter().flatten().collect();
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
    let directories = ["tests/fixtures", "tests/pictures", "tests/speech", "tests/embedders"];
    let paths = directories.map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    let paths = paths.iter().flat_map(|directory| fixtures(directory, &[]).unwrap());
    let types: Vec<_> = paths.map(|path| config_of(&path)["model_type"].clone()).collect();
    for family in FAMILIES {
        assert!(types.iter().any(|found| found == family.model_type), "{} has no fixture", family.model_type);
    }
}
