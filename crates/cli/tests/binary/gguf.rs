//! GGUF files as models, through the binary: a small one that the test writes, and what is refused.

use std::path::Path;

use super::gguf_writer::{File, llama};
use super::process::{omnibus, text};

/// A file of type Q4_0 and its converted folder are the same model.
fn small_model() -> File {
    const Q4_0: u32 = 2;
    // Blocks of a small scale and 16 bytes that differ.
    let block = |at: u64| {
        [&[0x00, 0x2C][..], &(0..16).map(|i| (at * 37 + i * 101) as u8).collect::<Vec<_>>()].concat()
    };
    llama(Q4_0, |_, elements| (0..elements / 32).flat_map(block).collect())
}

fn run(arguments: &[&str], cache: &Path) -> (String, String) {
    let output = omnibus(arguments).env("XDG_CACHE_HOME", cache).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_file_and_its_converted_folder_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, file, to) =
        (folder.path().join("cache"), folder.path().join("tiny.gguf"), folder.path().join("to"));
    std::fs::write(&file, small_model().bytes()).unwrap();
    let (file, to) = (file.display().to_string(), to.display().to_string());
    let generate = |model: &str| {
        run(&["generate", "-m", model, "-p", "ab", "--raw", "--max-tokens", "8", "--temp", "0"], &cache).0
    };
    let direct = generate(&file);
    assert!(!direct.trim().is_empty(), "it generates");
    run(&["convert", "--hf-path", &file, "--mlx-path", &to], &cache);
    assert_eq!(generate(&to), direct);
    assert_eq!(generate(&folder.path().display().to_string()), direct, "a folder with one file is that file");
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
