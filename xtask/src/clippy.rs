//! Commands of cargo by which clippy's compiler compiles the crates of the workspace: one pass lints a crate and builds it.
//!
//! Invariant: such commands share what they have made with each other and with `cargo clippy -- -D warnings`, and not with
//! other commands.

use std::path::Path;
use std::process::Command;

use crate::process::output;

/// Makes a command of cargo lint the workspace's crates. Warnings are errors.
pub fn lint(command: &mut Command) -> Result<(), String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir(crate::paths::root());
    let driver = Path::new(output(rustc)?.trim()).join("bin/clippy-driver");
    if !driver.exists() {
        return Err(format!("there is no {}: `rustup component add clippy` installs it", driver.display()));
    }
    // As `cargo clippy` writes its arguments.
    let arguments = ["-D", "warnings"].map(|word| format!("{word}__CLIPPY_HACKERY__")).concat();
    command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", arguments);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clippy_denies_fails_a_build() {
        let folder = std::env::temp_dir().join(format!("omnibus-xtask-clippy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = folder.join("lib.rs");
        std::fs::write(&source, "pub fn found(is: bool) -> bool { is == true }\n").unwrap();
        let mut cargo = Command::new("unused");
        lint(&mut cargo).unwrap();
        let set = |name: &str| {
            cargo.get_envs().find(|(variable, _)| *variable == name).and_then(|(_, value)| value).unwrap()
        };
        let mut compile = Command::new(set("RUSTC_WORKSPACE_WRAPPER"));
        compile.args(["rustc", "--crate-type=lib"]).arg(&source).arg("--out-dir").arg(&folder);
        compile.env("CLIPPY_ARGS", set("CLIPPY_ARGS"));
        let result = compile.output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!result.status.success());
        assert!(String::from_utf8_lossy(&result.stderr).contains("bool_comparison"), "{result:?}");
    }
}
