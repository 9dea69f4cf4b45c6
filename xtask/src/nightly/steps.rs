//! The steps of `cargo xtask nightly`: the jobs of each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Scale;
use crate::jobs::Job;
use crate::process::{cargo, own, python, run};
use crate::test_programs::Program;
use crate::{environment, kernel_texts, paths};

/// The longest that a job may print nothing.
pub const LIMIT: Duration = Duration::from_secs(3 * 3600);

pub struct Step {
    pub name: &'static str,
    pub start: Start,
}

/// When the jobs of a step can start.
#[derive(Clone, Copy)]
pub enum Start {
    /// When all test programs are built.
    WithTests(fn(&[Program], Scale) -> Result<Vec<Job>, String>),
    /// When the server is there that users install: its path.
    WithServer(fn(&Path, Scale) -> Result<Vec<Job>, String>),
    Alone(fn(Scale) -> Result<Vec<Job>, String>),
}

/// What takes longest comes first, and before it what is built in a minute and runs for long: cargo builds one thing at a time.
pub const STEPS: &[Step] = &[
    Step { name: "worlds", start: Start::Alone(worlds) },
    Step { name: "mutations", start: Start::WithTests(mutations) },
    Step { name: "second-seed", start: Start::WithTests(second_seed) },
    Step { name: "gpu-kernels", start: Start::WithTests(gpu_kernels) },
    Step { name: "clients", start: Start::WithServer(clients) },
    Step { name: "soak", start: Start::WithServer(soak) },
    Step { name: "packages", start: Start::WithServer(packages) },
    Step { name: "parity", start: Start::Alone(parity) },
    Step { name: "fuzz", start: Start::Alone(fuzz) },
    Step { name: "macos", start: Start::Alone(macos) },
];

/// Random inputs of tests: the program, the tests by a part of their names, the variable with how many, how many.
const MUTATIONS: [(&str, &str, &str, u32); 6] = [
    ("omnibus-engine it", "equal_bits", "OMNIBUS_FUZZ_DRAFTS", 2_000),
    ("omnibus-server http", "loops_with_random_faults", "OMNIBUS_FUZZ_LOOPS", 10_000),
    ("omnibus-engine it", "random_schemas", "OMNIBUS_FUZZ_SCHEMAS", 10_000),
    ("omnibus-engine mutated_models", "mutated", "OMNIBUS_FUZZ_MODELS", 6_000),
    ("omnibus-server http", "mutated", "OMNIBUS_FUZZ_REQUESTS", 40_000),
    ("omnibus-jinja it", "_or_fail_in_one_line", "OMNIBUS_FUZZ_TEMPLATES", 100_000),
];

fn mutations(programs: &[Program], scale: Scale) -> Result<Vec<Job>, String> {
    let job = |(program, filter, variable, count)| {
        let mut tests = tests(programs, program, &[filter])?;
        tests.command.env(variable, scale.of(count));
        Ok(tests)
    };
    MUTATIONS.into_iter().map(job).collect()
}

/// Tests of a program. A filter that no test has is an error.
fn tests(programs: &[Program], name: &str, arguments: &[&str]) -> Result<Job, String> {
    let program = programs.iter().find(|program| program.name == name);
    let program = program.ok_or_else(|| format!("cargo built no test program `{name}`"))?;
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let named = format!("{name}: {}", arguments.join(" "));
    let none = format!("{named}: there is no such test");
    Ok(Job::new(named, program.command(&arguments)).then(move |ended| {
        match ended.output.contains("ok. 0 passed") {
            true => Err(none),
            false => Ok(Vec::new()),
        }
    }))
}

/// Kernels that are broken on purpose, which tests have to notice; and all texts of kernels, for all architectures.
fn gpu_kernels(programs: &[Program], _: Scale) -> Result<Vec<Job>, String> {
    kernel_texts::forget()?;
    let compiled = own(&["cuda-kernels", "--all"])?;
    let gpu = tests(programs, "omnibus-mlx gpu", &["--include-ignored"])?;
    Ok(vec![gpu.limited(LIMIT).then(|_| Ok(vec![Job::new("cuda-kernels --all", compiled)]))])
}

/// The reference of embedders, beside the repository: it makes fixtures with weights of any seed.
const EMBEDDERS: &str = "../shared/oracle-embed/oracle_embed.py";
const SECOND_SEED: &str = "1000003";

/// Models with weights of another seed, and the other tests of all fixtures that no submission runs.
fn second_seed(programs: &[Program], _: Scale) -> Result<Vec<Job>, String> {
    let mut jobs = vec![tests(programs, "omnibus-model models", &["--ignored"])?];
    let script = paths::root().join(EMBEDDERS);
    if !script.is_file() {
        let missing = format!("{} does not exist", script.display());
        if environment::variable("OMNIBUS_REQUIRE_REFERENCES").is_some() {
            return Err(missing);
        }
        println!("== embedders are skipped: {missing}");
        return Ok(jobs);
    }
    let fixtures = paths::target()?.join("nightly/embedders");
    let mut reference = python();
    reference.arg(&script).args(["--seed", SECOND_SEED, "--out"]).arg(&fixtures);
    let compared = [("omnibus-model models", "embedders"), ("omnibus-engine it", "pooling")]
        .into_iter()
        .map(|(program, filter)| {
            let mut tests = tests(programs, program, &[filter])?;
            tests.command.env("OMNIBUS_EMBEDDER_FIXTURES", &fixtures);
            Ok(tests.limited(LIMIT))
        })
        .collect::<Result<Vec<_>, String>>()?;
    let name =
        "reference of embedders, which needs torch, transformers==5.24.0 and sentence-transformers==6.2.0";
    jobs.push(Job::new(name, reference).then(|_| Ok(compared)));
    Ok(jobs)
}

/// Unpacks the archive that was made, and returns its server.
pub fn published_server() -> Result<PathBuf, String> {
    let target = paths::target()?;
    let (made, folder) = (target.join("dist/out"), target.join("nightly/server"));
    let cannot = |error: std::io::Error| format!("cannot unpack the server: {error}");
    let names = std::fs::read_dir(&made).map_err(cannot)?.filter_map(|entry| Some(entry.ok()?.path()));
    let archive = names.into_iter().find(|path| path.to_string_lossy().ends_with(".tar.xz"));
    let archive = archive.ok_or_else(|| format!("there is no archive in {}", made.display()))?;
    std::fs::create_dir_all(&folder).map_err(cannot)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(archive).arg("-C").arg(&folder).arg("--strip-components=1");
    run(unpack)?;
    Ok(folder.join("bin/omnibus"))
}

fn clients(server: &Path, _: Scale) -> Result<Vec<Job>, String> {
    let suites = ["tests/sdk/run.sh", "tests/clients/run.sh", "tests/suites/run.sh", "tests/page/run.sh"];
    let job = |suite: &str| {
        let mut command = Command::new(paths::root().join(suite));
        command.arg(server).current_dir(paths::root());
        Job::new(suite, command)
    };
    Ok(suites.map(job).into())
}

const SOAK_MINUTES: u32 = 15;

fn soak(server: &Path, scale: Scale) -> Result<Vec<Job>, String> {
    let mut soak = python();
    soak.args(["bench/soak.py", "--minutes", &scale.of(SOAK_MINUTES)]).env("OMNIBUS", server);
    Ok(vec![Job::new("soak", soak)])
}

/// Builds the crates from their packages, makes all that is published and installs it as another user: each server answers a request.
fn packages(_: &Path, _: Scale) -> Result<Vec<Job>, String> {
    let unpublished = ["xtask", "omnibus-testing"].map(|name| ["--exclude", name]).concat();
    let mut installed = python();
    installed.arg("tests/packages/installed.py").arg(paths::target()?.join("dist/out"));
    let installed = Job::new("installed packages", installed).limited(LIMIT);
    let crates = cargo(&[["package", "--workspace"].as_slice(), &unpublished].concat());
    Ok(vec![
        Job::cargo("dist", own(&["dist"])?).then(|_| Ok(vec![installed])),
        Job::cargo("packages of crates", crates),
    ])
}

fn worlds(scale: Scale) -> Result<Vec<Job>, String> {
    let build = ["test", "--release", "-p", "omnibus-core", "--test", "it", "--no-run"];
    let build = cargo(&[build.as_slice(), &["--message-format=json-render-diagnostics"]].concat());
    let job = Job::cargo("build of the worlds", build).live().then(move |built| {
        let mut worlds = tests(
            &Program::of(built)?,
            "omnibus-core it",
            &["every_world_holds_its_invariants", "--nocapture"],
        )?;
        worlds.command.env("WORLDS", scale.of(2_000_000));
        Ok(vec![worlds.limited(LIMIT)])
    });
    Ok(vec![job])
}

fn parity(_: Scale) -> Result<Vec<Job>, String> {
    let build = cargo(&["build", "--release", "-p", "omnibus-model", "--example", "parity"]);
    let mut parity = Command::new(paths::target()?.join("release/examples/parity"));
    parity.current_dir(paths::root());
    Ok(vec![
        Job::cargo("build of parity", build).then(|_| Ok(vec![Job::new("parity", parity).limited(LIMIT)])),
    ])
}

/// A fuzz target, and the folders of its first inputs.
const TARGETS: &[(&str, &[&str])] = &[
    ("jinja", &[]),
    ("image", &["images"]),
    ("video", &["video", "images"]),
    ("sound", &["sound"]),
    ("gguf", &[]),
];
/// Seconds of each fuzz target.
const FUZZ_S: u32 = 300;
/// Largest input of a fuzz target, in bytes.
const INPUT_MAX: u32 = 65_536;

fn fuzz(scale: Scale) -> Result<Vec<Job>, String> {
    let corpus = |target: &str| paths::root().join("fuzz/corpus").join(target);
    let mut seeds = python();
    seeds.arg("fuzz/seeds.py").arg(corpus("sound"));
    let mut runs = Vec::new();
    for (target, inputs) in TARGETS {
        let own = corpus(target);
        std::fs::create_dir_all(&own).map_err(|error| format!("cannot create {}: {error}", own.display()))?;
        let mut fuzz = cargo_fuzz(&["run", target]);
        fuzz.arg(own);
        fuzz.args(inputs.iter().map(|folder| format!("crates/media/tests/fixtures/{folder}")));
        fuzz.args(["--", &format!("-max_total_time={}", scale.of(FUZZ_S)), &format!("-max_len={INPUT_MAX}")]);
        runs.push(Job::new(format!("fuzz {target}"), fuzz).limited(LIMIT));
    }
    let build = Job::cargo(
        "build of the fuzz targets, which needs `cargo install cargo-fuzz`",
        cargo_fuzz(&["build"]),
    );
    let build = build.then(|_| Ok(runs)).limited(LIMIT);
    Ok(vec![Job::new("seeds of the fuzz targets", seeds).then(|_| Ok(vec![build]))])
}

fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut command = cargo(&["fuzz"]);
    // Sanitizers are options of a nightly compiler, which a stable one takes with this variable.
    command.args(arguments).env("RUSTC_BOOTSTRAP", "1");
    command
}

fn macos(_: Scale) -> Result<Vec<Job>, String> {
    Ok(vec![Job::cargo("macos --all-targets", own(&["macos", "--all-targets"])?)])
}
