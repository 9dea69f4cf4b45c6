//! Which core a program runs on.
//!
//! The threads of a model's step wake each other all the time. Where there are more programs than cores, a program that has one core
//! for itself and its threads takes a quarter less time of the processors.

use std::process::{Command, Stdio};
use std::thread::available_parallelism;

/// Tests of a program that run at a time on its core: some wait.
const TESTS_AT_A_TIME: &str = "2";

/// What of the machine a program needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    /// Whatever is free.
    All,
    /// One, where more programs run than there are cores.
    One,
}

/// The cores that programs are bound to; none where nothing is bound.
pub struct Bound(Vec<usize>);

impl Bound {
    /// Where `width` programs run at a time.
    pub fn beside(width: usize) -> Self {
        let is_narrow = available_parallelism().is_ok_and(|cores| cores.get() < width);
        let cores = match is_narrow && has_taskset() {
            true => {
                std::fs::read_to_string("/proc/self/status").map_or(Vec::new(), |status| allowed(&status))
            }
            false => Vec::new(),
        };
        Self(cores)
    }

    /// The core with the fewest of these programs.
    pub fn quietest(&self, taken: &[usize]) -> Option<usize> {
        let programs = |core: &usize| taken.iter().filter(|other| *other == core).count();
        self.0.iter().copied().min_by_key(programs)
    }
}

/// Whether the program is there that binds others.
fn has_taskset() -> bool {
    let mut taskset = Command::new("taskset");
    taskset.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    taskset.status().is_ok_and(|status| status.success())
}

/// The cores that a process may use, by its `/proc/self/status`.
fn allowed(status: &str) -> Vec<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// The command, bound to a core.
pub fn bound(command: &Command, core: usize) -> Command {
    let mut bound = Command::new("taskset");
    bound.args(["-c", &core.to_string()]).arg(command.get_program()).args(command.get_args());
    bound.env("RUST_TEST_THREADS", TESTS_AT_A_TIME);
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_those_of_the_process() {
        assert_eq!(allowed("Name:\tx\nCpus_allowed:\tf0\nCpus_allowed_list:\t4-6,9\n"), [4, 5, 6, 9]);
        assert_eq!(allowed("Name:\tx\n"), [0_usize; 0]);
    }

    #[test]
    fn a_program_gets_the_core_with_the_fewest() {
        let cores = Bound(vec![4, 5]);
        assert_eq!(
            [&[][..], &[4], &[4, 5], &[5, 4, 4]].map(|taken| cores.quietest(taken)),
            [Some(4), Some(5), Some(4), Some(5)]
        );
        assert_eq!(Bound(Vec::new()).quietest(&[]), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bound_command_is_otherwise_as_before() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $A-$B; pwd; grep Cpus_allowed_list /proc/self/status"]);
        command.current_dir("/").env("A", "a").env_remove("B");
        let core = allowed(&std::fs::read_to_string("/proc/self/status").unwrap()).pop().unwrap();
        let out = bound(&command, core).env("C", "c").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("a-\n/\nCpus_allowed_list:\t{core}\n"));
    }
}
