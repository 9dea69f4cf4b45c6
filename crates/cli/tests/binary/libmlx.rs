//! The binary without libmlx, and where it finds one.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::process::{omnibus, run, text};

const NOWHERE: [&str; 2] = ["--mlx-lib-dir", "/nowhere"];

/// A check of `doctor`: its verdict, detail and advice.
fn finding(command: &mut Command, check: &str) -> [String; 3] {
    let output = command.output().unwrap();
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = findings.as_array().unwrap().iter().find(|finding| finding["check"] == check).unwrap();
    ["verdict", "detail", "advice"].map(|field| finding[field].as_str().unwrap().to_owned())
}

/// The folder that holds `mlx/lib` with the libmlx of this build.
fn packages() -> PathBuf {
    let [_, detail, _] = finding(&mut omnibus(&["doctor", "--json"]), "libmlx");
    let (_, file) = detail.split_once(" at ").unwrap();
    Path::new(file).ancestors().nth(3).unwrap().to_owned()
}

/// An environment of Python with this binary and, as links, the packages of this build.
fn environment(folder: &str) -> TempDir {
    let prefix = tempfile::tempdir().unwrap();
    std::fs::create_dir(prefix.path().join("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_omnibus"), program(&prefix)).unwrap();
    std::fs::create_dir_all(prefix.path().join(folder)).unwrap();
    for entry in packages().read_dir().unwrap() {
        let entry = entry.unwrap();
        symlink(entry.path(), prefix.path().join(folder).join(entry.file_name())).unwrap();
    }
    prefix
}

fn program(prefix: &TempDir) -> PathBuf {
    prefix.path().join("bin/omnibus")
}

/// What `doctor` says of libmlx where it is started by this path.
fn found_by(program: &Path) -> String {
    let mut command = Command::new(program);
    command.args(["doctor", "--json"]).env("HOME", std::env::temp_dir()).env_remove("LD_LIBRARY_PATH");
    let [verdict, detail, advice] = finding(&mut command, "libmlx");
    assert_eq!(verdict, "ok", "{detail} {advice}");
    detail
}

#[test]
fn without_libmlx_doctor_says_what_to_install_and_ends_with_1() {
    let mut doctor = omnibus(&["doctor", "--json"]);
    doctor.args(NOWHERE);
    let [verdict, detail, advice] = finding(&mut doctor, "libmlx");
    assert_eq!(verdict, "broken");
    assert!(detail.contains("/nowhere"), "{detail}");
    assert!(advice.contains("pip install mlx-"), "{advice}");
    assert_eq!(finding(&mut doctor, "engine")[0], "broken");
    assert_eq!(doctor.status().unwrap().code(), Some(1));
}

#[test]
fn commands_that_compute_name_what_is_missing_in_one_line() {
    for command in ["serve", "generate", "chat", "convert", "perplexity"] {
        let output = omnibus(&[command]).args(NOWHERE).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {stderr}");
        assert!(stderr.starts_with("error: this command needs libmlx: "), "{command}: {stderr}");
        assert!(stderr.contains("pip install mlx-") && stderr.lines().count() == 1, "{command}: {stderr}");
    }
}

#[test]
fn commands_that_compute_nothing_need_no_libmlx() {
    // None of these loads it: a call into libmlx would end the process by a signal.
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    for (arguments, code) in [
        (&["--version"][..], 0),
        (&["--help"], 0),
        (&["serve", "--help"], 0),
        (&["serve", "--print-config"], 0),
        (&["models"], 0),
        (&["completions", "bash"], 0),
        (&["bench", "sim", "--num-prompts", "4"], 0),
        (&["cache", "ls", "--cache-dir", empty], 0),
        (&["ps", "--url", "http://127.0.0.1:9"], 1),
        (&["replay", "--url", "http://127.0.0.1:9", empty], 1),
        (&["launch", "claude", "--url", "http://127.0.0.1:9"], 1),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_file_that_is_no_libmlx_is_named_with_the_loaders_reason() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libmlx.so"), "text").unwrap();
    let mut command = omnibus(&["generate", "-p", "a", "--mlx-lib-dir"]);
    let output = command.arg(folder.path()).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("libmlx.so cannot be used: ") && stderr.contains("file too short"), "{stderr}");
}

#[test]
fn libmlx_is_found_in_the_packages_of_python_beside_the_binary() {
    let prefix = environment("lib/python3.13/site-packages");
    let expected = "lib/python3.13/site-packages/mlx/lib/libmlx.so";
    assert!(found_by(&program(&prefix)).ends_with(expected));
    // As `uv tool` and `pipx` install programs.
    let link = tempfile::tempdir().unwrap().path().join("omnibus");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(program(&prefix), &link).unwrap();
    assert!(found_by(&link).ends_with(expected));
    let mut generate = Command::new(&link);
    let output = generate.args(["generate", "-p", "Hello", "--max-tokens", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::remove_dir_all(link.parent().unwrap()).unwrap();
}

#[test]
fn libmlx_is_found_in_a_folder_with_spaces_and_beside_the_binary() {
    let prefix = environment("my env");
    let folder = prefix.path().join("my env/mlx/lib");
    let mut doctor = omnibus(&["doctor", "--json", "--mlx-lib-dir"]);
    let [verdict, detail, _] = finding(doctor.arg(&folder), "libmlx");
    assert_eq!(verdict, "ok");
    assert!(detail.ends_with("my env/mlx/lib/libmlx.so"), "{detail}");
    // The layout of archives: `bin` and `mlx` side by side.
    let prefix = environment(".");
    assert!(found_by(&program(&prefix)).ends_with(&format!("{}/mlx/lib/libmlx.so", prefix.path().display())));
}

#[test]
fn other_programs_get_the_loaders_variables_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = folder.path().join("compiler");
    let script = "#!/bin/sh\necho \"[$LD_PRELOAD] [$LD_LIBRARY_PATH] [$OMNIBUS_LIBMLX_FOLDER]\"\n";
    std::fs::write(&compiler, script).unwrap();
    std::fs::set_permissions(&compiler, PermissionsExt::from_mode(0o755)).unwrap();
    for (paths, expected) in [(None, "[] [] []"), (Some("/one:/two"), "[] [/one:/two] []")] {
        let mut doctor = omnibus(&["doctor", "--json"]);
        doctor
            .env("CXX", &compiler)
            .env_remove("LD_LIBRARY_PATH")
            .envs(paths.map(|paths| ("LD_LIBRARY_PATH", paths)));
        let [_, detail, _] = finding(&mut doctor, "compiler");
        assert_eq!(detail, expected);
        assert_eq!(finding(&mut doctor, "engine")[0], "ok");
    }
}
