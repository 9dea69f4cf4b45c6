//! `cargo xtask macos-shim`: compiles the C++ shim of `mlx-sys` for macOS on Arm against the headers of MLX's Metal
//! wheel, with the C++ compiler of the wheel `ziglang`. It links and runs nothing.
//!
//! Both wheels and the compiler's cache stay in `target/macos-shim`, so a second run compiles what changed. On macOS
//! there is nothing to do: the build itself compiles the same files against the same headers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::paths;
use crate::process::{cargo, output};
use crate::wheel::{self, Wheel};

/// The compiler's wheel. Pinned: a new clang may find what an old one accepts.
const ZIG_VERSION: &str = "0.17.1";
/// What the shim is compiled for.
const TARGET: &str = "aarch64-macos.14.0";
/// The target in the words of Python's wheels.
const PLATFORM: &str = "macosx_14_0_arm64";

/// The step `clippy` of `cargo xtask check`, with the messages that name the folders of build scripts.
pub const CLIPPY: [&str; 7] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--message-format=json-render-diagnostics",
    "--",
    "-D",
    "warnings",
];

/// Gets the wheels, if they are not there, and compiles every file of the shim.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let bridge = match arguments {
        [] => None,
        [option, folder] if option == "--bridge" => Some(PathBuf::from(folder)),
        _ => return Err(format!("takes `--bridge FOLDER` or nothing, not `{}`", arguments.join(" "))),
    };
    if cfg!(target_os = "macos") {
        println!("skipped: the build on macOS compiles the same files");
        return Ok(());
    }
    let folder = paths::target()?.join("macos-shim");
    let mlx_version = mlx_release()?;
    let zig = Wheel { name: "ziglang", version: ZIG_VERSION, platform: None };
    let metal = Wheel { name: "mlx-metal", version: &mlx_version, platform: Some(PLATFORM) };
    let Some([zig, metal]) = wheel::installed([zig, metal], &folder)? else { return Ok(()) };
    let build = Build {
        compiler: zig.join("ziglang/zig"),
        headers: metal.join("mlx/include"),
        bridge: match bridge {
            Some(folder) => folder,
            None => bridge_folder(&output(cargo(&CLIPPY))?)?,
        },
        folder,
    };
    let files = build.files()?;
    build.compile(&files)?;
    println!("{} files of the shim compile for {TARGET} with MLX {mlx_version} for Metal", files.len());
    Ok(())
}

/// The crate whose build script compiles the shim for this machine.
fn shim_crate() -> PathBuf {
    paths::root().join("crates/mlx-sys")
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The release of MLX that the shim is written against.
pub fn mlx_release() -> Result<String, String> {
    mlx_version(&read(&shim_crate().join("build.rs"))?)
}

/// The release of MLX, from the text of the shim's build script.
fn mlx_version(script: &str) -> Result<String, String> {
    let value = |line: &str| {
        let text = line.strip_prefix("const MLX_VERSION: &str = \"")?.strip_suffix("\";")?;
        Some(text.to_owned())
    };
    script.lines().find_map(value).ok_or_else(|| "crates/mlx-sys/build.rs has no MLX_VERSION".into())
}

/// Where the build script of `mlx-sys` puts the generated half of the bridge, by the messages of clippy.
pub fn bridge_folder(messages: &str) -> Result<PathBuf, String> {
    let folder = messages.lines().filter_map(out_folder).next_back();
    folder.map(|folder| folder.join("cxxbridge")).ok_or_else(|| "cargo ran no build script of mlx-sys".into())
}

/// The output folder that a message of cargo names, if it is about the build script of `mlx-sys`.
fn out_folder(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is = |key: &str, expected: &str| message[key].as_str().is_some_and(|text| text.contains(expected));
    let ours = is("reason", "build-script-executed") && is("package_id", "crates/mlx-sys");
    ours.then(|| message["out_dir"].as_str().map(PathBuf::from))?
}

/// Everything a compiler needs.
struct Build {
    compiler: PathBuf,
    /// MLX's headers.
    headers: PathBuf,
    /// Generated headers and sources.
    bridge: PathBuf,
    /// For objects and the compiler's cache.
    folder: PathBuf,
}

impl Build {
    /// The shim and the generated sources, in a fixed order.
    fn files(&self) -> Result<Vec<PathBuf>, String> {
        let mut found = Vec::new();
        let mut folders = vec![shim_crate().join("shim"), self.bridge.join("sources")];
        while let Some(folder) = folders.pop() {
            let cannot_read = |error| format!("cannot read {}: {error}", folder.display());
            for entry in std::fs::read_dir(&folder).map_err(cannot_read)? {
                let path = entry.map_err(cannot_read)?.path();
                match path.extension() {
                    _ if path.is_dir() => folders.push(path),
                    Some(extension) if extension == "cc" => found.push(path),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Compiles the files, one per core at a time. The error holds the messages of all that fail.
    fn compile(&self, files: &[PathBuf]) -> Result<(), String> {
        let objects = self.folder.join("objects");
        std::fs::create_dir_all(&objects)
            .map_err(|error| format!("cannot create {}: {error}", objects.display()))?;
        let (queue, failures) = (Mutex::new(files.iter().enumerate()), Mutex::new(Vec::new()));
        let next = || queue.lock().ok()?.next();
        let worker = || {
            while let Some((number, file)) = next() {
                let object = objects.join(format!("{number}.o"));
                if let (Err(why), Ok(mut failures)) = (self.compile_one(file, &object), failures.lock()) {
                    failures.push(why);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(worker);
            }
        });
        let failures = failures.into_inner().map_err(|_| "a thread panicked while it compiled")?;
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
    }

    fn compile_one(&self, file: &Path, object: &Path) -> Result<(), String> {
        let cache = self.folder.join("cache");
        let mut compiler = Command::new(&self.compiler);
        compiler
            .envs([("ZIG_GLOBAL_CACHE_DIR", &cache), ("ZIG_LOCAL_CACHE_DIR", &cache)])
            // Nothing runs it: code for sanitizers and debuggers would only take time.
            .args(["c++", "-target", TARGET, "-std=c++20", "-fno-sanitize=all", "-g0"])
            .arg("-I")
            .arg(self.bridge.join("include"))
            .arg("-I")
            .arg(self.bridge.join("crate"))
            // As in the build script: a system folder, because MLX's headers are not free of warnings.
            .arg("-isystem")
            .arg(&self.headers)
            .arg("-c")
            .arg(file)
            .arg("-o")
            .arg(object);
        let out = compiler.stdin(Stdio::null()).output();
        let out = out.map_err(|error| format!("cannot run {}: {error}", self.compiler.display()))?;
        match out.status.success() {
            true => Ok(()),
            false => Err(format!(
                "{} does not compile for {TARGET}:\n{}",
                file.display(),
                String::from_utf8_lossy(&out.stderr)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_build_scripts() {
        let script = "//! Text.\nconst MLX_VERSION: &str = \"1.2.3\";\n";
        assert_eq!(mlx_version(script), Ok("1.2.3".to_owned()));
        assert!(mlx_version("const OTHER: &str = \"1.2.3\";").is_err());
        assert!(read(&shim_crate().join("build.rs")).and_then(|text| mlx_version(&text)).is_ok());
    }

    #[test]
    fn only_the_shims_build_script_names_the_folder() {
        let message = |reason: &str, package: &str| {
            out_folder(&format!(
                r#"{{"reason":"{reason}","package_id":"path+file:///w/crates/{package}#0.1.0","out_dir":"/o"}}"#
            ))
        };
        assert_eq!(message("build-script-executed", "mlx-sys"), Some(PathBuf::from("/o")));
        assert_eq!(message("build-script-executed", "mlx"), None);
        assert_eq!(message("compiler-artifact", "mlx-sys"), None);
        assert_eq!(out_folder("warning: not JSON"), None);
    }
}
