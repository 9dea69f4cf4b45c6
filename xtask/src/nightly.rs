//! `cargo xtask nightly [--only STEP]… [--scale SHARE]`: what takes too long for every change: all simulated worlds, all
//! mutations, fuzzing, weights of a second seed, every client, a long soak, tests for macOS, packages.
//!
//! A step that fails does not stop the others. `--scale 0.01` runs a hundredth of each, to see that it works.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{cargo, python, run as finish};
use crate::{dist, macos, paths, scripts};

struct Step {
    name: &'static str,
    run: fn(&Scale) -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step { name: "worlds", run: worlds },
    Step { name: "mutations", run: mutations },
    Step { name: "second-seed", run: second_seed },
    Step { name: "parity", run: |_| scripts::parity(&[]) },
    Step { name: "fuzz", run: fuzz },
    Step { name: "clients", run: clients },
    Step { name: "soak", run: soak },
    Step { name: "macos", run: |_| macos::run(&["--all-targets".to_owned()]) },
    Step { name: "packages", run: packages },
];

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

const SOAK_MINUTES: u32 = 15;

/// Largest input of a fuzz target, in bytes.
const INPUT_MAX: u32 = 65_536;

/// How much of each step runs.
struct Scale(f64);

impl Scale {
    /// A share of the full count, at least one.
    fn of(&self, full: u32) -> String {
        ((f64::from(full) * self.0).round() as u64).max(1).to_string()
    }
}

/// Runs all steps, or the named ones.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (only, scale) = read(arguments)?;
    let chosen = STEPS.iter().filter(|step| only.is_empty() || only.contains(&step.name));
    let mut results: Vec<(&str, Duration, Result<(), String>)> = Vec::new();
    for step in chosen {
        println!("== {}", step.name);
        let since = Instant::now();
        let result = (step.run)(&scale);
        if let Err(why) = &result {
            println!("== {} failed: {why}", step.name);
        }
        results.push((step.name, since.elapsed(), result));
    }
    println!("== seconds");
    for (name, time, result) in &results {
        println!("{:8.1}  {name}{}", time.as_secs_f64(), if result.is_ok() { "" } else { ", failed" });
    }
    let failed: Vec<&str> =
        results.iter().filter(|(_, _, result)| result.is_err()).map(|(name, ..)| *name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Makes what is published, builds the crates from their packages, installs the others as another user, and sends each server a
/// request.
fn packages(_: &Scale) -> Result<(), String> {
    let unpublished = ["xtask", "omnibus-testing"].map(|name| ["--exclude", name]).concat();
    finish(cargo(&[["package", "--workspace"].as_slice(), &unpublished].concat()))?;
    dist::run(&[])?;
    let mut command = python();
    command.arg("tests/packages/installed.py").arg(paths::target()?.join("dist/out"));
    finish(command)
}

/// The chosen steps and the scale.
fn read(arguments: &[String]) -> Result<(Vec<&'static str>, Scale), String> {
    let names = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    let (mut only, mut scale) = (Vec::new(), Scale(1.0));
    for pair in arguments.chunks(2) {
        match pair {
            [option, name] if option == "--only" => {
                let step = STEPS.iter().find(|step| step.name == name);
                only.push(
                    step.ok_or_else(|| format!("there is no step `{name}`; there are {}", names()))?.name,
                );
            }
            [option, share] if option == "--scale" => {
                let share = share.parse().ok().filter(|share: &f64| *share > 0.0 && share.is_finite());
                scale = Scale(share.ok_or("--scale takes a number above 0")?);
            }
            _ => return Err(format!("takes --only STEP and --scale SHARE; the steps are {}", names())),
        }
    }
    Ok((only, scale))
}

fn worlds(scale: &Scale) -> Result<(), String> {
    let name = "every_world_holds_its_invariants";
    let mut test =
        cargo(&["test", "--release", "-p", "omnibus-core", "--test", "it", name, "--", "--nocapture"]);
    test.env("WORLDS", scale.of(2_000_000));
    finish(test)
}

fn mutations(scale: &Scale) -> Result<(), String> {
    let counts = [
        ("it", "_or_fail_in_one_line", "OMNIBUS_FUZZ_TEMPLATES", 100_000),
        ("it", "random_schemas", "OMNIBUS_FUZZ_SCHEMAS", 10_000),
        ("it", "equal_bits", "OMNIBUS_FUZZ_DRAFTS", 2_000),
        ("http", "mutated", "OMNIBUS_FUZZ_REQUESTS", 40_000),
        ("http", "loops_with_random_faults", "OMNIBUS_FUZZ_LOOPS", 10_000),
        ("mutated_models", "mutated", "OMNIBUS_FUZZ_MODELS", 6_000),
    ];
    for (program, filter, variable, count) in counts {
        let mut test = cargo(&["test", "--workspace", "--test", program, filter]);
        test.env(variable, scale.of(count));
        finish(test)?;
    }
    Ok(())
}

/// With the other tests of all fixtures that no submission runs.
fn second_seed(_: &Scale) -> Result<(), String> {
    finish(cargo(&["test", "--workspace", "--test", "models", "--", "--ignored"]))?;
    scripts::second_seed_of_embedders()
}

fn fuzz(scale: &Scale) -> Result<(), String> {
    let corpus = |target: &str| paths::root().join("fuzz/corpus").join(target);
    let mut seeds = python();
    seeds.arg("fuzz/seeds.py").arg(corpus("sound"));
    finish(seeds)?;
    for (target, inputs) in TARGETS {
        let own = corpus(target);
        std::fs::create_dir_all(&own).map_err(|error| format!("cannot create {}: {error}", own.display()))?;
        // Sanitizers are options of a nightly compiler, which a stable one takes with this variable.
        let mut fuzz = cargo(&["fuzz", "run", target]);
        fuzz.env("RUSTC_BOOTSTRAP", "1").arg(own);
        fuzz.args(inputs.iter().map(|folder| format!("crates/media/tests/fixtures/{folder}")));
        fuzz.args(["--", &format!("-max_total_time={}", scale.of(FUZZ_S)), &format!("-max_len={INPUT_MAX}")]);
        finish(fuzz).map_err(|why| format!("{why}; it needs `cargo install cargo-fuzz`"))?;
    }
    Ok(())
}

fn clients(_: &Scale) -> Result<(), String> {
    finish(cargo(&["build", "--release", "-p", "mlx-omnibus"]))?;
    for suite in ["tests/sdk/run.sh", "tests/clients/run.sh", "tests/suites/run.sh", "tests/page/run.sh"] {
        let mut command = Command::new(paths::root().join(suite));
        command.arg(paths::target()?.join("release/omnibus")).current_dir(paths::root());
        finish(command)?;
    }
    Ok(())
}

fn soak(scale: &Scale) -> Result<(), String> {
    scripts::soak(&["--minutes".to_owned(), scale.of(SOAK_MINUTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn steps_are_chosen_by_name() {
        let found = read(&words("--only worlds --scale 0.01 --only soak")).ok();
        assert_eq!(found.map(|(only, scale)| (only, scale.0)), Some((vec!["worlds", "soak"], 0.01)));
        for wrong in ["--only tea", "--scale 0", "--scale x", "worlds", "--only"] {
            assert!(read(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_scale_leaves_something() {
        assert_eq!(
            [Scale(0.5).of(6_000), Scale(1e-9).of(60), Scale(1.0).of(2_000_000)],
            ["3000", "1", "2000000"]
        );
    }
}
