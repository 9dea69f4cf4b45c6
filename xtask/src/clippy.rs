//! Commands of cargo by which clippy's compiler compiles the crates of the workspace: one pass lints a crate and builds it.
//!
//! A library is compiled twice where tests are built, for what depends on it and with its own tests. The second lints it.
//!
//! Invariant: commands of one function share what they have made with each other, and not with other commands.

use std::path::PathBuf;
use std::process::Command;

use crate::paths;
use crate::process::{output, write_program};

/// What compiles where tests are built.
const COMPILER: &str = include_str!("clippy/compiler.sh");

/// Makes a command of cargo that builds tests lint the workspace's crates. Warnings are errors.
pub fn lint_tests(command: &mut Command) -> Result<(), String> {
    let driver = driver()?;
    let wrapper = paths::target()?.join("clippy/compiler.sh");
    write_program(&wrapper, COMPILER)?;
    command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env("CLIPPY_DRIVER", driver);
    deny_warnings(command);
    Ok(())
}

/// Makes a command of cargo that builds no tests lint the workspace's crates. Warnings are errors.
pub fn lint(command: &mut Command) -> Result<(), String> {
    command.env("RUSTC_WORKSPACE_WRAPPER", driver()?);
    deny_warnings(command);
    Ok(())
}

/// As `cargo clippy` writes its arguments.
fn deny_warnings(command: &mut Command) {
    command.env("CLIPPY_ARGS", ["-D", "warnings"].map(|word| format!("{word}__CLIPPY_HACKERY__")).concat());
}

/// Clippy's compiler.
fn driver() -> Result<PathBuf, String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir(paths::root());
    let driver = PathBuf::from(output(rustc)?.trim()).join("bin/clippy-driver");
    if driver.exists() {
        Ok(driver)
    } else {
        Err(format!("there is no {}: `rustup component add clippy` installs it", driver.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// What only clippy denies.
    const BOOL: &str = "pub fn found(is: bool) -> bool { is == true }\n";

    /// What a compiler that was set for cargo says of a crate that does not compile.
    fn said(set: fn(&mut Command) -> Result<(), String>, text: &str, arguments: &[&str]) -> Option<String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("omnibus-xtask-clippy-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = folder.join("lib.rs");
        std::fs::write(&source, text).unwrap();
        let mut cargo = Command::new("unused");
        set(&mut cargo).unwrap();
        let variables: HashMap<_, _> =
            cargo.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?))).collect();
        let mut compile = Command::new(variables["RUSTC_WORKSPACE_WRAPPER"]);
        compile.arg("rustc").args(arguments).arg(&source).arg("--out-dir").arg(&folder).envs(&variables);
        let result = compile.output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        (!result.status.success()).then(|| String::from_utf8_lossy(&result.stderr).into_owned())
    }

    #[test]
    fn what_clippy_denies_fails_a_build() {
        let is_denied = |set, text: &str, arguments: &[&str]| {
            said(set, text, arguments).is_some_and(|why| why.contains("bool_comparison"))
        };
        assert!(is_denied(lint, BOOL, &["--crate-type=lib"]));
        assert!(is_denied(lint_tests, BOOL, &["--crate-type", "lib", "--test"]));
        assert!(is_denied(lint_tests, &format!("{BOOL}fn main() {{}}"), &["--crate-type", "bin"]));
    }

    #[test]
    fn a_library_is_linted_where_its_tests_are_built() {
        let library = ["--crate-type", "lib"];
        assert_eq!(said(lint_tests, BOOL, &library), None);
        let unused = said(lint_tests, "fn unused() {}\n", &library);
        assert!(unused.is_some_and(|why| why.contains("never used")));
    }
}
