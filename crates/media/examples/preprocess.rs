//! `cargo xtask parity --preprocess DIR`: what processors make otherwise than the golden sets of a directory, as a table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/media/golden.rs"]
#[allow(dead_code, unused_imports, reason = "its tests use more")]
mod golden;
#[path = "../tests/media/safetensors.rs"]
mod safetensors;
#[path = "../tests/media/sound.rs"]
#[allow(dead_code, unused_imports, reason = "its tests use more")]
mod sound;
#[path = "../tests/media/support.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use more")]
mod support;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        eprintln!("preprocess: takes one directory");
        return ExitCode::from(2);
    };
    let mut rows: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for (set, kind) in golden::SETS.iter().filter(|(set, _)| directory.join(set).is_dir()) {
        rows.push((set, kind, golden::differences(&directory.join(set), kind)));
    }
    for (set, kind, tolerance) in sound::SETS.iter().filter(|(set, ..)| directory.join(set).is_dir()) {
        rows.push((set, kind, sound::differences(&directory.join(set), kind, *tolerance)));
    }
    if directory.join("resize").is_dir() {
        rows.push(("resize", "Pillow", golden::resized_otherwise(&directory.join("resize")).1));
    }
    println!("{:26} {:18} differences", "set", "kind");
    for (set, kind, wrong) in &rows {
        println!("{set:26} {kind:18} {}", wrong.len());
        wrong.iter().for_each(|line| println!("    {line}"));
    }
    match rows.is_empty() || rows.iter().any(|(.., wrong)| !wrong.is_empty()) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
