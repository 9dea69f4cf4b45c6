//! Compiles texts for the CPU. What is made is kept by its text and its compiler, beside libmlx where that has a folder, so that
//! a second clone need not compile it again.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use mlx::gpu::Dialect;

use crate::environment;

/// Compiling takes longer than running.
const FLAGS: [&str; 3] = ["-std=c++17", "-Og", "-w"];

/// What a compiler makes of a text.
struct Kind {
    /// How the names of texts end.
    text: &'static str,
    /// How the names of results end.
    result: &'static str,
    flags: &'static [&'static str],
}

const PROGRAM: Kind = Kind { text: "cpp", result: "bin", flags: &[] };
/// The compiler finds it beside the header.
const PRECOMPILED: Kind = Kind { text: "h", result: "h.gch", flags: &["-x", "c++-header"] };

/// The program of a text that goes behind the emulator's.
pub fn program(name: &str, dialect: Dialect, text: &str) -> PathBuf {
    static CUDA: LazyLock<String> = LazyLock::new(|| header("cuda"));
    static METAL: LazyLock<String> = LazyLock::new(|| header("metal"));
    let header = match dialect {
        Dialect::Cuda => &CUDA,
        Dialect::Metal => &METAL,
    };
    PROGRAM.made(name, &format!("#include \"{}\"\n{text}", **header))
}

/// The name of the emulator's header for a dialect, which is compiled once for all programs.
fn header(dialect: &str) -> String {
    let text = format!("#define EMULATE_{}\n{}", dialect.to_uppercase(), include_str!("emulator.h"));
    let compiled = PRECOMPILED.made(&format!("emulator_{dialect}"), &text);
    compiled.file_stem().unwrap().to_str().unwrap().to_owned()
}

impl Kind {
    fn made(&self, name: &str, text: &str) -> PathBuf {
        static VERSION: LazyLock<Vec<u8>> =
            LazyLock::new(|| Command::new(environment::compiler()).arg("--version").output().unwrap().stdout);
        let mut hasher = DefaultHasher::new();
        (text, &*VERSION, FLAGS).hash(&mut hasher);
        let folder = environment::kept_folder().map_or_else(own_folder, |folder| folder.join("emulator"));
        fs::create_dir_all(&folder).unwrap();
        let key = format!("{name}-{:016x}", hasher.finish());
        let [result, source] = [self.result, self.text].map(|kind| folder.join(format!("{key}.{kind}")));
        // Hashes of two texts may be equal.
        if result.exists() && fs::read_to_string(&source).is_ok_and(|old| old == text) {
            return result;
        }
        let partial = format!("{key}.{}.{:?}", std::process::id(), std::thread::current().id());
        let [made, written] = [self.result, self.text].map(|kind| folder.join(format!("{partial}.{kind}")));
        fs::write(&written, text).unwrap();
        let mut compiler = Command::new(environment::compiler());
        let output =
            compiler.args(FLAGS).args(self.flags).arg("-o").args([&made, &written]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} does not compile: {}", &errors[..errors.len().min(4000)]);
        // Another run finds all of a file or nothing.
        fs::rename(&made, &result).unwrap();
        fs::rename(&written, &source).unwrap();
        result
    }
}

/// The folder of this run's files.
pub fn own_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu");
    fs::create_dir_all(&folder).unwrap();
    folder
}
