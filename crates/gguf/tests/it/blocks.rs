//! Blocks of every type, compared with what llama.cpp's Python package reads from them.

use serde_json::Value;

use super::file::Folder;
use super::writer::{File, base};

const CASES: &str = include_str!("../blocks.json");
/// Elements of a case.
const COLUMNS: usize = 256;

struct Case {
    kind: String,
    number: u32,
    bytes: Vec<u8>,
    floats: Vec<f32>,
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn cases() -> Vec<Case> {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let case = |case: &Value| Case {
        kind: case["kind"].as_str().unwrap().to_owned(),
        number: case["number"].as_u64().unwrap() as u32,
        bytes: hex(case["bytes"].as_str().unwrap()),
        floats: hex(case["floats"].as_str().unwrap())
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect(),
    };
    cases.iter().map(case).collect()
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|bytes| half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f32()).collect()
}

/// Codes of a stream of bits, low bits first.
fn codes(bytes: &[u8], bits: usize) -> Vec<f32> {
    let bit = |at: usize| u32::from(bytes[at / 8] >> (at % 8) & 1);
    let code = |at: usize| (0..bits).map(|i| bit(at * bits + i) << i).sum::<u32>();
    (0..COLUMNS).map(|at| code(at) as f32).collect()
}

fn e8m0(scale: u8) -> f32 {
    2.0_f32.powi(i32::from(scale) - 127)
}

/// Four bits of exponent, three of fraction.
fn e4m3(scale: u8) -> f32 {
    let (exponent, fraction) = (i32::from(scale >> 3), f32::from(scale & 7) / 8.0);
    match exponent {
        0 => fraction * 2.0_f32.powi(-6),
        exponent => (1.0 + fraction) * 2.0_f32.powi(exponent - 7),
    }
}

/// MLX's numbers of a packed weight.
fn unpacked(folder: &Folder, module: &str) -> Vec<f32> {
    let [weight, scales] = ["weight", "scales"].map(|part| folder.tensor(&format!("{module}.{part}")).2);
    let bits = weight.len() * 8 / COLUMNS;
    let codes = codes(&weight, bits);
    let mode = folder.json("config.json")["quantization"]["mode"].clone();
    if mode != "affine" {
        let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let number = |code: f32| if code < 8.0 { e2m1[code as usize] } else { -e2m1[code as usize - 8] };
        let group = COLUMNS / scales.len();
        let scale = |at: usize| if mode == "mxfp4" { e8m0(scales[at]) } else { e4m3(scales[at]) };
        return codes.iter().enumerate().map(|(at, code)| number(*code) * scale(at / group)).collect();
    }
    let (scales, biases) = (halves(&scales), halves(&folder.tensor(&format!("{module}.biases")).2));
    codes.iter().enumerate().map(|(at, code)| scales[at / 32] * code + biases[at / 32]).collect()
}

fn check(case: &Case, most_steps: f32, said: &str) {
    let file: File =
        base("qwen2").tensor("token_embd.weight", &[1, COLUMNS as u64], case.number, case.bytes.clone());
    let file = file.write();
    let (folder, written) = file.convert();
    let numbers = unpacked(&folder, "model.embed_tokens");
    let largest = case.floats.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
    for (at, (found, expected)) in numbers.iter().zip(&case.floats).enumerate() {
        let error = (found - expected).abs() / largest;
        assert!(error <= most_steps, "{} {at}: {found} for {expected}", case.kind);
    }
    assert_eq!(written.changes.join("; "), said, "{}", case.kind);
}

#[test]
fn blocks_hold_the_numbers_that_llama_cpp_reads() {
    for case in cases() {
        let rounded = format!("scales of 1 tensor of {} rounded to float16", case.kind);
        let anew =
            |bits: usize| format!("1 tensor of {} packed anew with {bits} bits in groups of 32", case.kind);
        match case.kind.as_str() {
            // Products with scales are computed in another order.
            "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1" | "Q8_0" | "MXFP4" | "NVFP4" => check(&case, 1e-6, ""),
            "IQ4_NL" | "TQ1_0" | "TQ2_0" => check(&case, 1e-6, ""),
            "Q4_K" | "Q5_K" | "IQ1_S" | "IQ3_S" | "IQ4_XS" => check(&case, 1e-3, &rounded),
            // Of 64 or 256 steps, half a step at most.
            "Q2_K" | "Q3_K" => check(&case, 0.02, &anew(6)),
            "IQ1_M" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ3_XXS" => check(&case, 0.02, &anew(6)),
            "Q6_K" => check(&case, 0.006, &anew(8)),
            other => panic!("{other} is not tested"),
        }
    }
}

#[test]
fn a_second_scale_of_nvfp4_multiplies_the_numbers() {
    let case = cases().into_iter().find(|case| case.kind == "NVFP4").unwrap();
    let file = |scales: &[f32]| {
        base("qwen2")
            .tensor("token_embd.weight", &[1, COLUMNS as u64], case.number, case.bytes.clone())
            .floats_tensor("token_embd.scale", &[scales.len() as u64], scales)
            .floats_tensor("token_embd.input_scale", &[1], &[3.0])
            .write()
    };
    let scaled = file(&[0.5]);
    let (folder, written) = scaled.convert();
    assert_eq!(written.changes, ["1 tensor of NVFP4 packed anew with 8 bits in groups of 32"]);
    let largest = case.floats.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
    for (found, expected) in unpacked(&folder, "model.embed_tokens").iter().zip(&case.floats) {
        assert!((found - 0.5 * expected).abs() <= 0.006 * largest, "{found} for half of {expected}");
    }
    assert!(file(&[1.0]).convert().1.changes.is_empty());
    assert!(file(&[1.0, 2.0]).error().contains("tensor `token_embd.scale` has 2 numbers"));
}

#[test]
fn scales_of_experts_multiply_each_its_own() {
    let case = cases().into_iter().find(|case| case.kind == "NVFP4").unwrap();
    let file = ["expert_count", "expert_used_count"]
        .iter()
        .fold(base("llama"), |file, key| file.number(&format!("llama.{key}"), 2));
    let file = file
        .floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512])
        .tensor("blk.0.ffn_up_exps.weight", &[2, 1, 128], case.number, case.bytes.clone())
        .floats_tensor("blk.0.ffn_up_exps.scale", &[2], &[0.5, 2.0])
        .write();
    let (folder, _) = file.convert();
    let found = unpacked(&folder, "model.layers.0.block_sparse_moe.switch_mlp.up_proj");
    let largest = case.floats.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
    for (at, (found, number)) in found.iter().zip(&case.floats).enumerate() {
        let expected = number * if at < 128 { 0.5 } else { 2.0 };
        assert!((found - expected).abs() <= 0.012 * largest, "{at}: {found} for {expected}");
    }
}

#[test]
fn a_model_of_several_types_names_them_by_module() {
    let cases = cases();
    let of = |kind: &str| cases.iter().find(|case| case.kind == kind).unwrap();
    let tensor =
        |file: File, name: &str, case: &Case| file.tensor(name, &[1, 256], case.number, case.bytes.clone());
    let file = tensor(base("qwen2"), "token_embd.weight", of("Q6_K"));
    let file = tensor(file, "blk.0.attn_v.weight", of("Q4_K"));
    let file = tensor(file, "blk.0.ffn_up.weight", of("Q4_K")).write();
    let quantization = file.convert().0.json("config.json")["quantization"].clone();
    assert_eq!((&quantization["bits"], &quantization["group_size"]), (&Value::from(4), &Value::from(32)));
    assert_eq!(quantization["model.embed_tokens"]["bits"], 8);
    assert_eq!(quantization.as_object().unwrap().len(), 4);
}
