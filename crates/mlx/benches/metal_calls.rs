//! What a call of a Metal kernel costs the host, on any machine with a C++ compiler: `cargo bench -p omnibus-mlx --bench
//! metal_calls`.
//!
//! One launch of attention, with its constants as arguments of a template and as declarations in front of the body, in one run.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use mlx::Dtype;
use mlx::fast::TemplateValue;
use mlx::gpu::{Dialect, HeadShape, MatrixUnit, PagedAttention, Plan, PoolFormat, SinkLogits};

/// Microseconds of a call, and of the hash that evaluation makes of its text.
fn microseconds(program: &Path, header: &Path, body: &str, constants: &[String]) -> [f64; 2] {
    let path = header.with_extension("body");
    fs::write(&path, body).unwrap();
    let output = Command::new(program).arg(header).arg(&path).args(constants).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn attention() -> Plan {
    let attention = PagedAttention {
        dtype: Dtype::Bf16,
        pool: PoolFormat::Float(Dtype::Bf16),
        shape: HeadShape { heads: 32, kv_heads: 8, head_dim: 128 },
        block_size: 16,
        window: None,
        sink_tokens: 0,
        scale: 0.1,
        softcap: None,
        sink_logits: SinkLogits::Absent,
        unit: MatrixUnit::SimdGroup,
    };
    attention.decode_split(Dialect::Metal, 1, 1, 1).remove(0)
}

fn main() {
    let library = mlx::library::path().unwrap();
    let folder = library.parent().unwrap();
    let own = std::env::temp_dir().join(format!("omnibus-metal-calls-{}", std::process::id()));
    fs::create_dir_all(&own).unwrap();
    let program = own.join("metal_calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/metal_calls.cpp");
    let mut compile = Command::new("c++");
    compile.args(["-O2", "-std=c++20", "-I"]).arg(folder.join("../include")).arg(source);
    compile.arg("-L").arg(folder).arg("-lmlx").arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compile.arg("-o").arg(&program).status().unwrap().success());

    let plan = attention();
    let source = plan.kernel.source(Dialect::Metal);
    let header = own.join("header");
    fs::write(&header, &source.header).unwrap();
    let argument = |(name, value): &(&str, TemplateValue)| match value {
        TemplateValue::Int(value) => format!("{name}={value}"),
        TemplateValue::Bool(value) => format!("{name}={}", i32::from(*value)),
        TemplateValue::Dtype(dtype) => format!("{name}={}", *dtype as i32),
    };
    let arguments: Vec<String> = plan.constants.iter().map(argument).collect();
    let declared = plan.declarations(Dialect::Metal) + &source.body;
    let bytes = source.header.len() + declared.len();
    println!("{} of {bytes} bytes with {} constants", plan.kernel.name, arguments.len());
    println!("| constants | us a call | us of the hash |\n| --- | ---: | ---: |");
    for (label, body, constants) in
        [("of a template", source.body.as_str(), arguments.as_slice()), ("declared", &declared, &[])]
    {
        let [call, hash] = microseconds(&program, &header, body, constants);
        println!("| {label} | {call:.2} | {hash:.2} |");
    }
    fs::remove_dir_all(&own).unwrap();
}
