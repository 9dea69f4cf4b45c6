//! GGUF files as models, through the binary: the file of a package that has one, where it is, and what is refused.

use std::path::PathBuf;

use super::process::{omnibus, text};

/// A file that is named by the variable, so that the test needs no network.
const VARIABLE: &str = "SMOLLM2_GGUF";

fn generate(model: &str, cache: &std::path::Path) -> (String, String) {
    let arguments =
        ["generate", "-m", model, "-p", "What is the capital of France?", "--max-tokens", "8", "--temp", "0"];
    let output = omnibus(&arguments).env("XDG_CACHE_HOME", cache).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_file_and_its_converted_folder_say_the_same() {
    let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (cache, to) = (folder.path().join("cache"), folder.path().join("converted"));
    let (file, to) = (file.display().to_string(), to.display().to_string());
    let output = omnibus(&["convert", "--hf-path", &file, "--mlx-path", &to])
        .env("XDG_CACHE_HOME", &cache)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (direct, _) = generate(&file, &cache);
    assert_eq!(generate(&to, &cache).0, direct);
    assert!(direct.contains("Paris"), "{direct}");
}

#[test]
fn a_folder_with_several_files_wants_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tiny-Q4_0.gguf", "tiny-Q8_0.gguf"] {
        std::fs::write(folder.path().join(name), b"GGUF").unwrap();
    }
    let output = omnibus(&["generate", "-m", &folder.path().display().to_string(), "hi"]).output().unwrap();
    assert!(text(&output.stderr).contains("holds 2 GGUF files: name one of them"), "{output:?}");
}
