//! `omnibus doctor`: checks the machine and suggests fixes.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use omnibus_engine::{Event, MemoryPlan, Settings};
use serde_json::{Value, json};

use crate::error::Error;
use crate::libmlx::{self, Problem};
use crate::settings::{Config, Output};
use crate::{completion_output, environment, model, output};

/// The result of a check.
pub struct Finding {
    name: &'static str,
    verdict: Verdict,
    detail: String,
    /// The suggested fix; empty when none is needed.
    advice: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Warning,
    Broken,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}

/// The checks, in the order in which they are printed. Those of libmlx get why it is missing, if it is.
const CHECKS: &[fn(Option<&Problem>) -> Finding] =
    &[|_| machine(), libmlx_finding, gpu, |_| memory(), |_| compiler(), |_| python(), |_| folders(), engine];

/// Runs every check. Exit code 1 when one is broken.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let missing = libmlx::load(&config.isolation, config.engine.device).err();
    let findings = findings(missing.as_ref());
    match config.output {
        Output::Json => output::line(Value::Array(findings.iter().map(as_json).collect()).to_string()),
        Output::Text => findings.iter().for_each(|finding| output::line(finding.text())),
    }
    let broken = findings.iter().any(Finding::is_broken);
    Ok(ExitCode::from(u8::from(broken)))
}

/// Runs every check. `missing`: why there is no libmlx, if there is none.
pub fn findings(missing: Option<&Problem>) -> Vec<Finding> {
    CHECKS.iter().map(|check| check(missing)).collect()
}

impl Finding {
    /// A line, and one below it with what to do, if anything.
    pub fn text(&self) -> String {
        let line = format!("{:<8} {:<9} {}", self.verdict.word(), self.name, self.detail);
        match self.advice.as_str() {
            "" => line,
            advice => format!("{line}\n{:18} → {advice}", ""),
        }
    }

    /// Whether models cannot run before it is mended.
    pub fn is_broken(&self) -> bool {
        self.verdict == Verdict::Broken
    }
}

fn as_json(finding: &Finding) -> Value {
    json!({
        "check": finding.name,
        "verdict": finding.verdict.word(),
        "detail": finding.detail,
        "advice": finding.advice,
    })
}

fn fine(name: &'static str, detail: impl Into<String>) -> Finding {
    Finding { name, verdict: Verdict::Fine, detail: detail.into(), advice: String::new() }
}

fn warning(name: &'static str, detail: impl Into<String>, advice: &str) -> Finding {
    Finding { name, verdict: Verdict::Warning, detail: detail.into(), advice: advice.into() }
}

fn broken(name: &'static str, detail: impl Into<String>, advice: &str) -> Finding {
    Finding { name, verdict: Verdict::Broken, detail: detail.into(), advice: advice.into() }
}

fn machine() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    fine("machine", format!("{system} {architecture}, {cores} cores, omnibus {}", env!("CARGO_PKG_VERSION")))
}

/// Which libmlx is loaded.
fn libmlx_finding(missing: Option<&Problem>) -> Finding {
    if let Some(Problem { detail, advice }) = missing {
        return broken("libmlx", detail, advice);
    }
    let omnibus_engine::Machine { mlx_version, backend, .. } = omnibus_engine::machine();
    let at = omnibus_engine::library_path().map(|path| format!(" at {}", path.display())).unwrap_or_default();
    fine("libmlx", format!("{mlx_version} for {backend}{at}"))
}

fn gpu(missing: Option<&Problem>) -> Finding {
    if let Some(gpu) = missing.is_none().then(|| omnibus_engine::machine().gpu).flatten() {
        let memory = gpu.memory_bytes.map(|bytes| format!(", {}", gigabytes(bytes))).unwrap_or_default();
        return fine("gpu", format!("{}{memory}", gpu.name));
    }
    match first_line(Command::new("nvidia-smi").arg("-L")) {
        Some(gpu) => warning(
            "gpu",
            format!("{gpu}, without a libmlx that supports it: models run on the CPU"),
            "install mlx-cuda-13 in place of mlx-cpu, or name the folder of a CUDA libmlx with --mlx-lib-cuda",
        ),
        None => warning(
            "gpu",
            "none found: models run on the CPU",
            "with an NVIDIA GPU, install its driver, and mlx-cuda-13 in place of mlx-cpu",
        ),
    }
}

fn memory() -> Finding {
    const TIGHT_BYTES: u64 = 4_000_000_000;
    match memory_bytes() {
        None => warning("memory", "unknown", "set --kv-cache-memory"),
        Some(bytes) if bytes < TIGHT_BYTES => {
            warning("memory", gigabytes(bytes), "only small models fit; set --kv-cache-memory")
        }
        Some(bytes) => fine("memory", gigabytes(bytes)),
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

fn memory_bytes() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return first_line(Command::new("sysctl").args(["-n", "hw.memsize"]))?.parse().ok();
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A build from source needs one, and MLX's CPU backend compiles fused operations with it where it is there.
fn compiler() -> Finding {
    let compiler = environment::text("CXX").unwrap_or_else(|| "c++".into());
    match first_line(Command::new(&compiler).arg("--version")) {
        Some(version) => fine("compiler", version),
        None => fine("compiler", format!("`{compiler}` does not run: only a build from source needs one")),
    }
}

fn python() -> Finding {
    match first_line(Command::new("python3").args(["-m", "pip", "--version"])) {
        Some(version) => fine("python", version),
        None => fine("python", "no python3 with pip: only a build that downloads libmlx needs it"),
    }
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}

fn folders() -> Finding {
    let Some(cache) = environment::user_folder("XDG_CACHE_HOME", ".cache") else {
        return warning("cache", "neither XDG_CACHE_HOME nor HOME is set", "set one of them");
    };
    let folder = nearest(&cache.join("omnibus"));
    let writable = std::fs::metadata(&folder).is_ok_and(|metadata| !metadata.permissions().readonly());
    if writable {
        fine("cache", cache.join("omnibus").display().to_string())
    } else {
        warning(
            "cache",
            format!("{} is not writable", folder.display()),
            "set XDG_CACHE_HOME to a writable folder",
        )
    }
}

/// The folder, or its nearest existing parent.
fn nearest(folder: &Path) -> PathBuf {
    folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Generates tokens with the embedded model.
fn engine(missing: Option<&Problem>) -> Finding {
    if missing.is_some() {
        return broken("engine", "not started without libmlx", "");
    }
    match generate() {
        Ok((tokens, memory)) => {
            fine("engine", format!("the embedded model generated {tokens} tokens; memory: {memory}"))
        }
        Err(error) => broken(
            "engine",
            error.to_string(),
            "this is a bug, or this libmlx does not support the machine: please report it with this output",
        ),
    }
}

fn generate() -> Result<(usize, MemoryPlan), Error> {
    let config = Config::default();
    let source = model::source(None, &[])?;
    let handle = omnibus_engine::start(vec![source], Settings::default()).map_err(Error::failed)?;
    let mut request = completion_output::request(&config, omnibus_engine::Input::Text("Hello".into()));
    request.max_new_tokens = Some(4);
    let mut events = handle.submit(request).map_err(Error::failed)?;
    while let Some(event) = events.blocking_next() {
        match event {
            Event::Finished { usage, .. } => {
                let memory = handle.details().map(|details| details.memory);
                return Ok((usage.completion_tokens, memory.unwrap_or_default()));
            }
            Event::Failed(failure) => return Err(Error::failed(failure)),
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. }
            | Event::Delta { .. } => {}
        }
    }
    Err(Error::failed("the engine stopped before the completion was finished"))
}
