//! `cargo xtask test [ARGUMENT…]`: the programs and examples of `cargo test --workspace`, several beside each other, each with
//! its time, and a limit for each test.
//!
//! The arguments go to each test program: `cargo xtask test spans` runs the tests whose names have this word.

use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Duration;

use serde_json::Value;

use crate::clippy;
use crate::jobs::{self, Finished, Job};
use crate::process::cargo;

/// The build of the test programs.
const BUILD: &str = "build of the tests";

/// The longest a test may run. The slowest takes a minute where nothing runs beside it.
const TEST_LIMIT: Duration = Duration::from_secs(600);

/// What takes longest comes first, so that no core is idle at the end.
const SLOWEST: [&str; 6] = [
    GPU,
    "omnibus-model models",
    "mlx-omnibus binary",
    "omnibus-engine alone",
    "omnibus-engine it",
    "omnibus-core it",
];

/// They compute models, rows and texts; servers and what calls them have all cores, so that threads do run at once.
const ON_ONE_CORE: [&str; 9] = [
    GPU,
    "omnibus-model models",
    "omnibus-engine alone",
    "omnibus-engine it",
    "omnibus-engine unit tests",
    "omnibus-engine memory_plan",
    "omnibus-core it",
    "omnibus-grammar it",
    "omnibus-text it",
];

/// It writes the texts that `cargo xtask cuda-kernels` and `metal-kernels` compile.
const GPU: &str = "omnibus-mlx gpu";

/// Builds and runs the test programs and the examples in documentation.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.to_owned();
    let build = build()?.then(move |built| {
        Ok(programs(built, &arguments)?.into_iter().chain([examples(&arguments)?]).collect())
    });
    print_times(&jobs::run(vec![build], width())?);
    Ok(())
}

/// How many programs run at a time. Each test program has a thread for each core, and some wait more than they compute.
pub fn width() -> usize {
    (available_parallelism().map_or(1, usize::from) / 4).max(2) + 1
}

/// The seconds of each job and those of the processors, longest first.
pub fn print_times(finished: &[Finished]) {
    let mut jobs: Vec<&Finished> = finished.iter().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.time));
    println!("== seconds, of which several ran beside each other, and seconds of the processors");
    let seconds = |time: Duration| format!("{:7.1}", time.as_secs_f64());
    for job in &jobs {
        let of_processors = job.processor_time.map_or_else(|| format!("{:>7}", "-"), seconds);
        println!("{} {of_processors}  {}", seconds(job.time), job.name);
    }
    let all: Duration = jobs.iter().filter_map(|job| job.processor_time).sum();
    println!("        {}  all of them", seconds(all));
}

/// Builds and lints what `cargo test --workspace` runs, and benches and examples.
pub fn build() -> Result<Job, String> {
    let arguments =
        ["test", "--workspace", "--all-targets", "--no-run", "--message-format=json-render-diagnostics"];
    let mut command = cargo(&arguments);
    clippy::lint_tests(&mut command)?;
    Ok(Job::cargo(BUILD, command).live())
}

/// A job for each program that was built. The first is [`GPU`], the others that take longest follow.
pub fn programs(build: &Finished, arguments: &[String]) -> Result<Vec<Job>, String> {
    let mut programs = Program::of(build)?;
    if let Some(name) = SLOWEST.iter().find(|name| programs.iter().all(|program| program.name != **name)) {
        return Err(format!("cargo built no test program `{name}`"));
    }
    let rank =
        |program: &Program| SLOWEST.iter().position(|name| *name == program.name).unwrap_or(SLOWEST.len());
    programs.sort_by_key(rank);
    let job = |program: &Program| {
        let job = Job::new(&program.name, program.command(arguments)).limited(TEST_LIMIT);
        if ON_ONE_CORE.contains(&program.name.as_str()) { job.on_one_core() } else { job }
    };
    Ok(programs.iter().map(job).collect())
}

/// The examples in documentation.
pub fn examples(arguments: &[String]) -> Result<Job, String> {
    let mut command = cargo(&["test", "--workspace", "--doc", "--"]);
    command.args(arguments);
    clippy::lint_tests(&mut command)?;
    Ok(Job::cargo("examples in documentation", command).limited(TEST_LIMIT))
}

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The package, and the target if it is not the package itself.
    pub name: String,
    path: String,
    /// The folder of its package, where it runs.
    folder: String,
}

impl Program {
    /// What a build with cargo's messages has made.
    pub fn of(build: &Finished) -> Result<Vec<Self>, String> {
        let programs: Vec<Self> = build.output.lines().filter_map(Self::read).collect();
        if programs.is_empty() { Err("cargo built no test program".to_owned()) } else { Ok(programs) }
    }

    /// The test program that a message of cargo names, if it does.
    fn read(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let path = message["executable"].as_str()?.to_owned();
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_str()?.to_owned();
        // path+file:///folder/kv#omnibus-kv@0.1.0, or ….#0.1.0 where the folder has the package's name.
        let (place, version) = message["package_id"].as_str()?.rsplit_once('#')?;
        let package = version.split_once('@').map_or(place.rsplit('/').next()?, |(name, _)| name);
        let target = message["target"]["name"].as_str()?;
        let what = match message["target"]["kind"][0].as_str()? {
            "bench" | "example" => return None,
            "test" => target,
            _ => "unit tests",
        };
        Some(Self { name: format!("{package} {what}"), path, folder })
    }

    /// As cargo runs it.
    pub fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).args(arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, kind: &str, profile: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/crates/{id}","manifest_path":"/w/crates/kv/Cargo.toml",
            "target":{{"kind":["{kind}"],"name":"arithmetic"}},"profile":{{"test":{profile}}},"executable":"/t/a-1"}}"#
        )
    }

    #[test]
    fn only_test_programs_are_read() {
        let named =
            |id: &str, kind: &str| Program::read(&message(id, kind, "true")).map(|program| program.name);
        assert_eq!(named("kv#omnibus-kv@0.1.0", "test").as_deref(), Some("omnibus-kv arithmetic"));
        assert_eq!(named("mlx#0.1.0", "lib").as_deref(), Some("mlx unit tests"));
        assert_eq!(Program::read(&message("mlx#0.1.0", "bin", "false")), None);
        assert_eq!(Program::read(&message("mlx#0.1.0", "bench", "true")), None);
        assert_eq!(Program::read("warning: not JSON"), None);
    }

    /// The programs of a build of these packages and targets.
    fn built(names: &[&str]) -> Result<Vec<String>, String> {
        let message = |name: &&str| {
            let (package, target) = name.split_once(' ').unwrap_or_default();
            let id = format!("p#{package}@0.1.0");
            message(&id, "test", "true").replace("arithmetic", target).replace('\n', " ")
        };
        let output = names.iter().map(message).collect::<Vec<_>>().join("\n");
        let build = Finished { name: BUILD.to_owned(), time: Duration::ZERO, processor_time: None, output };
        Ok(programs(&build, &[])?.into_iter().map(|job| job.name).collect())
    }

    #[test]
    fn the_slowest_come_first_and_none_of_them_is_missing() {
        let all = [&["omnibus-kv arithmetic"], SLOWEST.as_slice()].concat();
        assert_eq!(
            built(&all),
            Ok([SLOWEST.as_slice(), &["omnibus-kv arithmetic"]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect())
        );
        assert!(built(&all[..all.len() - 1]).is_err_and(|why| why.contains("omnibus-core it")));
        assert!(built(&[]).is_err());
    }
}
