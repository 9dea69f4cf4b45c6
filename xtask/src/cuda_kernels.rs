//! `cargo xtask cuda-kernels [--all]`: compiles the CUDA kernels with NVIDIA's compiler, which needs no GPU. It links and runs
//! nothing.
//!
//! The texts are those of the kernels that `crates/mlx/tests/gpu` runs in the emulator: run its tests first. A kernel has
//! several texts. Each kernel is compiled for all architectures, a few texts for each; with `--all` each text is. The compiler's
//! wheels stay in `target/cuda-kernels`.

use std::path::{Path, PathBuf};

use crate::kernel_texts;
use crate::paths;
use crate::process::{python, run as finish};
use crate::wheel::{self, Wheel};

/// The wheels' version: a release of CUDA 13, which MLX's wheel for Linux is built for.
const VERSION: &str = "13.5.37";
const WHEELS: [&str; 3] = ["nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt"];
const COMPILER: &str = include_str!("cuda_kernels.py");
/// Hopper, Ampere and Blackwell.
const ARCHITECTURES: [&str; 3] = [HOPPER, "sm_80", "sm_120a"];
const HOPPER: &str = "sm_90a";
/// Kernels with warpgroups' instructions, which Hopper alone has.
const OF_HOPPER: [&str; 6] =
    ["attn_chunk_wide", "wmm_dense", "wmm_grouped", "wmm_grouped_packed", "wmm_tiled", "wmm_wide"];

/// Gets the wheels, if they are not there, and compiles every text.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let coverage = match arguments {
        [] => Coverage::Kernels,
        [option] if option == "--all" => Coverage::Texts,
        _ => return Err(format!("takes --all or nothing, not `{}`", arguments.join(" "))),
    };
    if !cfg!(target_os = "linux") {
        println!("skipped: NVIDIA's compiler comes for Linux");
        return Ok(());
    }
    let texts = kernel_texts::of("cuda")?;
    let folder = paths::target()?.join("cuda-kernels");
    let wheels = WHEELS.map(|name| Wheel { name, version: VERSION, platform: None });
    let Some([compiler, runtime, crt]) = wheel::installed(wheels, &folder)? else { return Ok(()) };
    let inside = |wheel: &Path, name: &str| wheel.join("nvidia/cu13").join(name);
    let mut compile = python();
    compile.args(["-c", COMPILER]).arg(inside(&compiler, "lib/libnvrtc.so.13"));
    let includes = [inside(&runtime, "include"), inside(&crt, "include")];
    compile.arg(std::env::join_paths(includes).map_err(|error| error.to_string())?);
    let compilations = compilations(&texts, coverage);
    compile
        .args(compilations.iter().map(|(architecture, text)| format!("{architecture}={}", text.display())));
    finish(compile).map_err(|_| "CUDA kernels do not compile, see above".to_owned())?;
    println!(
        "CUDA kernels compile for {}: {} times, from {} texts",
        ARCHITECTURES.join(", "),
        compilations.len(),
        texts.len()
    );
    Ok(())
}

/// What is compiled for all architectures.
#[derive(Clone, Copy)]
enum Coverage {
    /// Each kernel, by up to [`TEXTS`] other texts for each architecture.
    Kernels,
    /// Each text.
    Texts,
}

/// Texts of a kernel for each architecture.
const TEXTS: usize = 2;

/// What is compiled, and the architecture. `texts` are in order, so that those of a kernel follow each other.
fn compilations(texts: &[PathBuf], coverage: Coverage) -> Vec<(&'static str, &Path)> {
    let of_kernels = texts.chunk_by(|a, b| kernel(a) == kernel(b));
    let pairs = of_kernels.flat_map(|texts| {
        let of_hopper = texts.first().is_some_and(|text| OF_HOPPER.contains(&kernel(text).as_str()));
        let architectures = if of_hopper { &ARCHITECTURES[..1] } else { &ARCHITECTURES };
        let each = match coverage {
            Coverage::Kernels => texts.len().min(TEXTS),
            Coverage::Texts => texts.len(),
        };
        let all = each * architectures.len();
        architectures.iter().enumerate().flat_map(move |(at, architecture)| {
            // From anywhere in the list, and another one for each architecture where there are enough.
            let place = move |turn| (turn * architectures.len() + at) * texts.len() / all;
            (0..each).filter_map(move |turn| Some((*architecture, texts.get(place(turn))?.as_path())))
        })
    });
    pairs.collect()
}

/// What the name of a text begins with.
fn kernel(text: &Path) -> String {
    let name = text.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_or_each_text_is_compiled_for_all_its_architectures() {
        let names =
            ["wmm.a.0.cu", "wmm.a.1.cu", "wmm.a.2.cu", "wmm.b.0.cu", "wmm_sum.a.0.cu", "wmm_wide.a.0.cu"];
        let texts = names.map(|name| Path::new("/t").join(name));
        let compiled = |coverage| {
            let named = |(architecture, text): (&'static str, &Path)| {
                (architecture, text.file_name().unwrap().to_str().unwrap().to_owned())
            };
            compilations(&texts, coverage).into_iter().map(named).collect::<Vec<_>>()
        };
        let expected = [
            ("sm_90a", "wmm.a.0.cu"),
            ("sm_90a", "wmm.a.2.cu"),
            ("sm_80", "wmm.a.0.cu"),
            ("sm_80", "wmm.a.2.cu"),
            ("sm_120a", "wmm.a.1.cu"),
            ("sm_120a", "wmm.b.0.cu"),
            ("sm_90a", "wmm_sum.a.0.cu"),
            ("sm_80", "wmm_sum.a.0.cu"),
            ("sm_120a", "wmm_sum.a.0.cu"),
            ("sm_90a", "wmm_wide.a.0.cu"),
        ];
        assert_eq!(compiled(Coverage::Kernels), expected.map(|(of, text)| (of, text.to_owned())));
        let all = compiled(Coverage::Texts);
        for text in &names[..5] {
            let of: Vec<&str> = all.iter().filter(|(_, name)| name == text).map(|(of, _)| *of).collect();
            assert_eq!(of, ARCHITECTURES);
        }
        assert_eq!(all.len(), 5 * 3 + 1);
    }
}
