//! Published configs are read without a field left over, or refused for a reason that is listed here.
//!
//! The configs lie outside the repository, in `shared/real-configs`; without them this test says
//! that it skips.

use std::path::Path;

use omnibus_model::{Quantization, families};
use serde_json::{Map, Value};

/// Notes in the index that mark files which are not what a publisher shipped.
const MARKS: &[&str] = &["TRANSCRIBED", "ABRIDGED", "stub", "companion"];

/// What we refuse, by file and by a part of the message, and why that is right.
const REFUSED: &[(&str, &str)] = &[
    // Quantization formats of other libraries.
    ("Genz-70b-GPTQ.json", "gptq"),
    ("Meta-Llama3.1-8B-Instruct-assessment.json", "bitsandbytes"),
    ("llama3_1_405b.json", "fbgemm_fp8"),
    ("Qwen--Qwen3-32B-FP8.json", "fp8"),
    ("Qwen--Qwen3-32B-FP8-Static-PerTensor.json", "`quantization_config`"),
    ("qwen3_8b_fp8.json", "fp8"),
    ("Qwen--Qwen3-235B-A22B-FP8.json", "fp8"),
    ("Qwen--Qwen3-30B-A3B-FP8.json", "fp8"),
    // Experts under a type that has none, in a research repository's history.
    ("hf_llama_moe.json", "num_local_experts"),
    // A test file without the size of its MLP.
    ("afmv7_dummy_model.json", "`intermediate_size` is missing"),
    // An encoder that sees both ways; a decoder would compute other numbers.
    ("gte_qwen2_7b.json", "is_causal"),
];

#[test]
fn published_configs_are_read_whole() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/real-configs");
    let Ok(index) = std::fs::read_to_string(directory.join("INDEX.tsv")) else {
        println!("skipped: no {}", directory.display());
        return;
    };
    let (mut read, mut problems) = (0, Vec::new());
    for line in index.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (model_type, name, note) = (columns[0], columns[1], columns.get(4).copied().unwrap_or(""));
        let ours = families::FAMILIES.iter().any(|family| family.model_type == model_type);
        if !ours || MARKS.iter().any(|mark| note.contains(mark)) {
            continue;
        }
        let path = directory.join(model_type).join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let config: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let result = Quantization::read(&config).and_then(|_| families::read(&config));
        let expected = REFUSED.iter().find(|(file, _)| *file == name);
        match (result, expected) {
            (Ok(_), None) => read += 1,
            (Ok(_), Some(_)) => problems.push(format!("{name}: read, though listed as refused")),
            (Err(error), Some((_, part))) if error.to_string().contains(part) => {}
            (Err(error), _) => problems.push(format!("{model_type}/{name}: {error}")),
        }
    }
    println!("{read} configs read, {} refused", REFUSED.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(read > 0);
}
