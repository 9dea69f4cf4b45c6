//! `cargo xtask macos [--all-targets]`: clippy and rustdoc over libraries and binaries, or over tests and examples as well,
//! for macOS on Arm, on any machine. Build scripts compile the C++ shim of `mlx-sys` against the headers of MLX's Metal wheel,
//! with the C++ compiler of the wheel `ziglang`. Nothing is linked or run.
//!
//! Both wheels and the compiler's cache stay in `target/macos`, so a second run checks what changed. Documentation has what
//! clippy has made.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clippy;
use crate::environment;
use crate::paths;
use crate::process::{cargo, run as finish, write_program};
use crate::wheel::{self, Wheel};
use crate::zig;

/// What is checked.
const TARGET: &str = "aarch64-apple-darwin";
/// The oldest macOS that MLX's wheels support.
const MACOS: &str = "14.0";
/// The target in the words of Python's wheels.
const PLATFORM: &str = "macosx_14_0_arm64";

/// Tests and examples.
const ALL: &str = "--all-targets";

/// Gets the wheels, if they are not there, and runs clippy and rustdoc.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let own = ["--lib", "--bins"];
    let (checked, documented) = match arguments {
        [] => (own.as_slice(), own.as_slice()),
        [option] if option == ALL => ([ALL].as_slice(), ["--lib", "--bins", "--examples"].as_slice()),
        _ => return Err(format!("takes {ALL} or nothing, not `{}`", arguments.join(" "))),
    };
    let Some(machine) = Machine::prepare()? else { return Ok(()) };
    let mut check = cargo(&["check", "--workspace"]);
    check.args(checked);
    let mut doc = cargo(&["doc", "--no-deps", "--workspace"]);
    doc.args(documented).env("RUSTDOCFLAGS", "-D warnings");
    for mut command in [check, doc] {
        clippy::lint(&mut command)?;
        machine.set(&mut command);
        finish(command)?;
    }
    println!(
        "the workspace and its documentation pass clippy and rustdoc for {TARGET}, and its shim compiles for Metal"
    );
    Ok(())
}

/// What stands for a Mac.
enum Machine {
    /// This one is a Mac.
    Own,
    /// Wheels in a folder: a compiler, and MLX.
    Wheels { folder: PathBuf, zig: PathBuf, metal: PathBuf, tools: Tools },
}

impl Machine {
    /// `None` where something is missing, which was said.
    fn prepare() -> Result<Option<Self>, String> {
        if cfg!(target_os = "macos") {
            return Ok(Some(Self::Own));
        }
        if !has_target()? {
            return Ok(None);
        }
        let folder = zig::folder()?;
        let mlx_version = mlx_release()?;
        let metal = Wheel { name: "mlx-metal", version: &mlx_version, platform: Some(PLATFORM) };
        let Some([zig, metal]) = wheel::installed([zig::WHEEL, metal], &folder)? else { return Ok(None) };
        let tools = Tools::write(&folder)?;
        Ok(Some(Self::Wheels { folder, zig, metal, tools }))
    }

    /// Makes a command of cargo compile for it.
    fn set(&self, command: &mut Command) {
        let Self::Wheels { folder, zig, metal, tools } = self else { return };
        tools.set(command);
        command
            .args(["--target", TARGET])
            .env("ZIG", zig::program(zig))
            .envs(zig::caches(folder))
            .env("MLX_DIR", metal.join("mlx"))
            .env("MACOSX_DEPLOYMENT_TARGET", MACOS);
    }
}

/// Whether the toolchain has the target's standard library. In CI a missing one is an error: no step may pass that has done
/// nothing.
fn has_target() -> Result<bool, String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(paths::root());
    let out = rustc.stdin(Stdio::null()).output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let folder = String::from_utf8_lossy(&out.stdout);
    if Path::new(folder.trim()).is_dir() {
        return Ok(true);
    }
    let why = format!("no standard library for {TARGET}: `rustup target add {TARGET}` installs it");
    if environment::variable("CI").is_some() {
        return Err(why);
    }
    println!("skipped, nothing was checked: {why}");
    Ok(false)
}

/// Programs that build scripts call. Their paths and texts are stable, or scripts would run again.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    const FILES: [(&str, &str); 3] = [
        ("cc", include_str!("macos/compiler.sh")),
        ("c++", include_str!("macos/compiler.sh")),
        ("ar", include_str!("macos/archiver.sh")),
    ];

    fn write(folder: &Path) -> Result<Self, String> {
        let folder = folder.join("bin");
        for (name, text) in Self::FILES {
            write_program(&folder.join(name), text)?;
        }
        Ok(Self { folder })
    }

    /// The variables by which the crate `cc` finds them.
    fn set(&self, command: &mut Command) {
        let variables = [("CC", "cc"), ("CXX", "c++"), ("AR", "ar")];
        for (variable, name) in variables {
            command.env(format!("{variable}_{}", TARGET.replace('-', "_")), self.folder.join(name));
        }
    }
}

/// The release of MLX that the shim is written against.
pub fn mlx_release() -> Result<String, String> {
    let path = paths::root().join("crates/mlx-sys/build.rs");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    mlx_version(&text)
}

/// The release of MLX, from the text of the shim's build script.
fn mlx_version(script: &str) -> Result<String, String> {
    let value = |line: &str| {
        let text = line.strip_prefix("const MLX_VERSION: &str = \"")?.strip_suffix("\";")?;
        Some(text.to_owned())
    };
    script.lines().find_map(value).ok_or_else(|| "crates/mlx-sys/build.rs has no MLX_VERSION".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_build_scripts() {
        let script = "//! Text.\nconst MLX_VERSION: &str = \"1.2.3\";\n";
        assert_eq!(mlx_version(script), Ok("1.2.3".to_owned()));
        assert!(mlx_version("const OTHER: &str = \"1.2.3\";").is_err());
        assert!(mlx_release().is_ok());
    }

    /// The words that the compiler is called with, or nothing where it is not.
    fn compiled(name: &str, words: &[&str]) -> String {
        let folder = std::env::temp_dir().join(format!("omnibus-xtask-macos-{}-{name}", std::process::id()));
        let tools = Tools::write(&folder).unwrap();
        let mut compiler = Command::new(tools.folder.join(name));
        let out = compiler.args(words).env("ZIG", "echo").current_dir(&folder).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn the_shim_is_compiled_and_dependencies_are_not() {
        let arch = ["-arch", "arm64", "--target=arm64-apple-macosx", "-mmacosx-version-min=14.0", "-O0"];
        let of = |file: &'static str| [&arch[..], &["-o", "x.o", "-c", file]].concat();
        let own = "-target aarch64-macos.14.0 -fno-sanitize=all -g0 -O0 -o x.o -c";
        assert_eq!(compiled("c++", &of("/w/mlx-sys/shim/a.cc")), format!("c++ {own} /w/mlx-sys/shim/a.cc"));
        assert_eq!(compiled("cc", &of("/registry/ring/a.c")), "");
        assert_eq!(compiled("c++", &["--version"]), "version");
        // How the crate cc finds out which compiler it is.
        assert!(compiled("cc", &["-E", "probe.c"]).ends_with("-E probe.c"));
    }
}
