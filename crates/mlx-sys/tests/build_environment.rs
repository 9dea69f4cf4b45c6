//! The environment variables of the build script. Each case runs this test again in a process with its own environment.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail, and its child process reports"
)]

#[path = "../build/environment.rs"]
mod environment;

use std::process::Command;

const CHILD: &str = "BUILD_ENVIRONMENT_CHILD";

fn check(variables: &[(&str, &str)], expected: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["an_empty_variable_counts_as_unset", "--exact", "--nocapture"]).env(CHILD, "1");
    for name in ["MLX_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "PYTHON", "MLX_DIR"] {
        child.env_remove(name);
    }
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line = stdout.lines().find(|line| line.starts_with("found ")).unwrap();
    assert_eq!(line, format!("found {expected}"), "{variables:?}");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    if environment::variable(CHILD).is_some() {
        let (folder, python) = (environment::cache_folder(), environment::python());
        println!("\nfound {folder:?} {python:?} {:?}", environment::variable("MLX_DIR"));
        println!("made in {:?} for {:?}", environment::out_folder(), environment::foreign_target());
        return;
    }
    check(&[], r#"None "python3" None"#);
    check(
        &[("MLX_CACHE_DIR", ""), ("XDG_CACHE_HOME", ""), ("HOME", ""), ("PYTHON", ""), ("MLX_DIR", "")],
        r#"None "python3" None"#,
    );
    check(&[("MLX_CACHE_DIR", ""), ("HOME", "/h")], r#"Some("/h/.cache/mlx-omnibus") "python3" None"#);
    check(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")], r#"Some("/c/mlx-omnibus") "python3" None"#);
    check(&[("MLX_CACHE_DIR", "/m"), ("PYTHON", "p"), ("MLX_DIR", "/d")], r#"Some("/m") "p" Some("/d")"#);
}

#[test]
fn a_target_is_foreign_where_it_is_not_the_host() {
    for (host, target, expected) in [
        ("x86_64-linux", "x86_64-linux", "None"),
        ("x86_64-linux", "aarch64-macos", r#"Some("aarch64-macos")"#),
        ("x86_64-linux", "", "None"),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["an_empty_variable_counts_as_unset", "--exact", "--nocapture"]).env(CHILD, "1");
        child.envs([("HOST", host), ("TARGET", target), ("OUT_DIR", "/out")]);
        let stdout = String::from_utf8(child.output().unwrap().stdout).unwrap();
        let expected = format!("made in \"/out\" for {expected}");
        assert!(stdout.lines().any(|line| line == expected), "{stdout}");
    }
}
