//! Where the system says how short memory is: macOS' own level, and Linux' pressure stall information.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::PressureSource;
use crate::memory_response::Pressure;

/// The source of the system that this runs on; `None` where there is none.
pub(crate) fn of_this_machine() -> Option<Box<dyn PressureSource>> {
    if cfg!(target_os = "macos") {
        return Some(Box::new(MacLevel));
    }
    let own = control_group_file().filter(|path| path.is_file());
    let path = own.unwrap_or_else(|| "/proc/pressure/memory".into());
    std::fs::read_to_string(&path).is_ok().then(|| Box::new(StallTimes(path)) as Box<dyn PressureSource>)
}

/// The file of this process's control group.
fn control_group_file() -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(format!("/sys/fs/cgroup{path}/memory.pressure").into())
}

/// The level that macOS notifies programs of.
struct MacLevel;

impl PressureSource for MacLevel {
    fn read(&mut self) -> Pressure {
        let mut sysctl = Command::new("/usr/sbin/sysctl");
        sysctl.args(["-n", "kern.memorystatus_vm_pressure_level"]).stdin(Stdio::null());
        let output = sysctl.output().ok().filter(|output| output.status.success());
        output.map(|output| of_level(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
    }
}

/// 1, 2 and 4, as `DISPATCH_MEMORYPRESSURE_NORMAL`, `_WARN` and `_CRITICAL` of libdispatch.
fn of_level(text: &str) -> Pressure {
    match text.trim() {
        "2" => Pressure::Warning,
        "4" => Pressure::Critical,
        _ => Pressure::Normal,
    }
}

/// A file of pressure stall information (Linux' Documentation/accounting/psi.rst).
struct StallTimes(PathBuf);

impl PressureSource for StallTimes {
    fn read(&mut self) -> Pressure {
        std::fs::read_to_string(&self.0).map(|text| of_stall_times(&text)).unwrap_or_default()
    }
}

/// Percent of ten seconds in which some program waited for memory, from which on it is short.
const SOME_WARNING: f64 = 20.0;
/// Percent of ten seconds in which all programs waited for memory.
const FULL_CRITICAL: f64 = 20.0;

fn of_stall_times(text: &str) -> Pressure {
    let average = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let value = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
        value.parse::<f64>().ok()
    };
    match (average("some"), average("full")) {
        (_, Some(full)) if full >= FULL_CRITICAL => Pressure::Critical,
        (Some(some), _) if some >= SOME_WARNING => Pressure::Warning,
        _ => Pressure::Normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_libdispatch() {
        let levels = ["1\n", "2\n", "4\n", "", "no"].map(of_level);
        let (normal, warning, critical) = (Pressure::Normal, Pressure::Warning, Pressure::Critical);
        assert_eq!(levels, [normal, warning, critical, normal, normal]);
    }

    #[test]
    fn stall_times_are_averages_of_ten_seconds() {
        let text = |some: &str, full: &str| {
            let rest = "avg60=99.00 avg300=99.00 total=5";
            of_stall_times(&format!("some avg10={some} {rest}\nfull avg10={full} {rest}\n"))
        };
        assert_eq!(text("19.99", "0.00"), Pressure::Normal);
        assert_eq!(text("20.00", "19.99"), Pressure::Warning);
        assert_eq!(text("60.00", "20.00"), Pressure::Critical);
        assert_eq!(of_stall_times("some avg10=nan"), Pressure::Normal);
        assert_eq!(of_stall_times(""), Pressure::Normal);
    }
}
