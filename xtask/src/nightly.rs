//! `cargo xtask nightly [--only STEP]… [--scale SHARE]`: what takes too long for every change. Several programs run beside each
//! other; a step that fails does not stop the others. `--scale 0.01` runs a hundredth of each, to see that it works.

mod steps;

use std::time::Instant;

use crate::jobs::{Job, run_all};
use crate::process::own;
use crate::test_programs::{Program, build, print_times, width};
use steps::{LIMIT, STEPS, Start, Step, published_server};

/// How much of each step runs.
#[derive(Clone, Copy)]
pub struct Scale(f64);

impl Scale {
    /// A share of the full count, at least one.
    pub fn of(&self, full: u32) -> String {
        ((f64::from(full) * self.0).round() as u64).max(1).to_string()
    }
}

/// Runs all steps, or the named ones.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (chosen, scale) = read(arguments)?;
    let begun = Instant::now();
    let (finished, failures) = run_all(roots(&chosen, scale)?, width());
    print_times(&finished);
    match failures.as_slice() {
        [] => {
            println!("== all {} jobs passed: {:.1} s", finished.len(), begun.elapsed().as_secs_f64());
            Ok(())
        }
        _ => Err(failures.join("; ")),
    }
}

/// What runs first, in the order of the steps. The rest follows from it.
fn roots(chosen: &[&'static Step], scale: Scale) -> Result<Vec<Job>, String> {
    let (mut with_tests, mut with_server) = (Vec::new(), Vec::new());
    for step in chosen {
        match step.start {
            Start::WithTests(jobs) => with_tests.push(jobs),
            Start::WithServer(jobs) => with_server.push(jobs),
            Start::Alone(_) => (),
        }
    }
    let mut roots = Vec::new();
    for step in chosen {
        match step.start {
            Start::WithTests(_) if with_tests.is_empty() => (),
            Start::WithTests(_) => {
                let steps = std::mem::take(&mut with_tests);
                roots.push(build()?.then(move |built| {
                    let programs = Program::of(built)?;
                    collected(steps.iter().map(|jobs| jobs(&programs, scale)))
                }));
            }
            Start::WithServer(_) if with_server.is_empty() => (),
            Start::WithServer(_) => {
                let steps = std::mem::take(&mut with_server);
                let server = Job::cargo("server", own(&["dist", "--only", "archive"])?);
                roots.push(server.then(move |_| {
                    let server = published_server()?;
                    collected(steps.iter().map(|jobs| jobs(&server, scale)))
                }));
            }
            Start::Alone(jobs) => roots.extend(jobs(scale)?),
        }
    }
    Ok(roots.into_iter().map(|job| job.limited(LIMIT)).collect())
}

fn collected(jobs: impl Iterator<Item = Result<Vec<Job>, String>>) -> Result<Vec<Job>, String> {
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    Ok(jobs.into_iter().flatten().map(|job| job.limited(LIMIT)).collect())
}

/// The chosen steps and the scale.
fn read(arguments: &[String]) -> Result<(Vec<&'static Step>, Scale), String> {
    let names = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    let (mut only, mut scale) = (Vec::new(), Scale(1.0));
    for pair in arguments.chunks(2) {
        match pair {
            [option, name] if option == "--only" => {
                let step = STEPS.iter().find(|step| step.name == name);
                only.push(step.ok_or_else(|| format!("there is no step `{name}`; there are {}", names()))?);
            }
            [option, share] if option == "--scale" => {
                let share = share.parse().ok().filter(|share: &f64| *share > 0.0 && share.is_finite());
                scale = Scale(share.ok_or("--scale takes a number above 0")?);
            }
            _ => return Err(format!("takes --only STEP and --scale SHARE; the steps are {}", names())),
        }
    }
    let chosen = if only.is_empty() { STEPS.iter().collect() } else { only };
    Ok((chosen, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn names(line: &str) -> Result<Vec<&'static str>, String> {
        read(&words(line)).map(|(chosen, _)| chosen.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(names("--only worlds --scale 0.01 --only soak"), Ok(vec!["worlds", "soak"]));
        assert_eq!(names("").map(|names| names.len()), Ok(STEPS.len()));
        assert_eq!(read(&words("--scale 0.01")).map(|(_, scale)| scale.0), Ok(0.01));
        for wrong in ["--only tea", "--scale 0", "--scale x", "worlds", "--only"] {
            assert!(names(wrong).is_err(), "{wrong}");
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
