//! How much memory the machine has to spare, as its system says.

use std::process::{Command, Stdio};

/// Less is what other programs take and give back.
const LEAST_MISSING_BYTES: u64 = 1 << 30;

/// How many bytes fewer are available than before. `None` below a GiB.
pub(crate) fn missing_bytes(before: u64, now: u64) -> Option<u64> {
    before.checked_sub(now).filter(|bytes| *bytes >= LEAST_MISSING_BYTES)
}

/// Bytes that programs can still take without others being paged out. `None` where the system does not say.
pub(crate) fn available_bytes() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return of_level(&sysctl("kern.memorystatus_level")?, &sysctl("hw.memsize")?);
    }
    of_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The value of a name, as `sysctl -n` prints it.
fn sysctl(name: &str) -> Option<String> {
    let mut command = Command::new("/usr/sbin/sysctl");
    let output = command.args(["-n", name]).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// macOS: the percentage of the memory that is free, which `memory_pressure` prints, and all bytes.
fn of_level(level: &str, all: &str) -> Option<u64> {
    let level: u64 = level.trim().parse().ok().filter(|level| *level <= 100)?;
    Some(all.trim().parse::<u64>().ok()? / 100 * level)
}

/// Linux: `MemAvailable`.
fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_systems_are_read() {
        assert_eq!(of_meminfo("MemTotal:  9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(of_meminfo("MemAvailable: many kB"), None);
        assert_eq!(of_level("37\n", "17179869184\n"), Some(17_179_869_184 / 100 * 37));
        for (level, all) in [("101", "8"), ("", "8"), ("5", "lots")] {
            assert_eq!(of_level(level, all), None, "{level} {all}");
        }
    }
}
