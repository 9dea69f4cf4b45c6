//! The energy counters of a CPU: RAPL, as Linux shows it in `powercap`.
//!
//! A package has a counter that includes its cores; its memory may have one of its own. Both begin again at zero behind a
//! limit that the kernel names. Source: Documentation/power/powercap/powercap.rst of Linux.

use std::path::{Path, PathBuf};

use crate::sensor::{EnergySource, Sensor, SensorError};

/// The folder with the counters.
pub(crate) const POWERCAP: &str = "/sys/class/powercap";

/// All packages of a machine.
#[derive(Debug)]
pub(crate) struct Rapl {
    zones: Vec<Zone>,
}

/// One counter.
#[derive(Debug)]
struct Zone {
    file: PathBuf,
    /// Its largest value, in microjoules.
    range: u64,
    last: u64,
    /// Microjoules since it was opened.
    sum: u64,
}

impl Rapl {
    /// The packages and memories in this folder. Fails where there is no package, or none that may be read.
    pub(crate) fn open(powercap: impl AsRef<Path>) -> Result<Self, SensorError> {
        let powercap = powercap.as_ref();
        let folder = std::fs::read_dir(powercap).map_err(|error| file_error(powercap, &error))?;
        let mut names: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
        names.sort();
        let mut zones = Vec::new();
        for path in names.iter().filter(|path| is_counted(path)) {
            zones.push(Zone::open(path)?);
        }
        match zones.is_empty() {
            true => Err(SensorError::NoPackage(powercap.display().to_string())),
            false => Ok(Self { zones }),
        }
    }
}

/// True for packages and memory. `core`, `uncore` and `psys` count what a package counts already.
fn is_counted(zone: &Path) -> bool {
    let name = std::fs::read_to_string(zone.join("name")).unwrap_or_default();
    let name = name.trim();
    name.starts_with("package") || name == "dram"
}

impl Zone {
    fn open(path: &Path) -> Result<Self, SensorError> {
        let file = path.join("energy_uj");
        let range = number(&path.join("max_energy_range_uj"))?;
        Ok(Self { last: number(&file)?, file, range, sum: 0 })
    }

    fn read(&mut self) -> Result<u64, SensorError> {
        let now = number(&self.file)?;
        self.sum += since(self.last, now, self.range);
        self.last = now;
        Ok(self.sum)
    }
}

/// What a counter counted between two readings.
fn since(last: u64, now: u64, range: u64) -> u64 {
    match now.checked_sub(last) {
        Some(counted) => counted,
        // It began again at zero in between.
        None => range.saturating_sub(last).saturating_add(now),
    }
}

fn number(path: &Path) -> Result<u64, SensorError> {
    let text = std::fs::read_to_string(path).map_err(|error| file_error(path, &error))?;
    text.trim().parse().map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, why: &dyn std::fmt::Display) -> SensorError {
    SensorError::File { path: path.display().to_string(), why: why.to_string() }
}

impl Sensor for Rapl {
    fn source(&self) -> EnergySource {
        EnergySource::Rapl
    }

    fn microjoules(&mut self) -> Result<u64, SensorError> {
        self.zones.iter_mut().map(Zone::read).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone(folder: &Path, zone: &str, name: &str, energy: u64) {
        let path = folder.join(zone);
        std::fs::create_dir_all(&path).unwrap();
        let files = [("name", name.to_owned()), ("energy_uj", energy.to_string())];
        for (file, text) in files {
            std::fs::write(path.join(file), text + "\n").unwrap();
        }
        std::fs::write(path.join("max_energy_range_uj"), "1000\n").unwrap();
    }

    #[test]
    fn packages_and_memory_count_and_wrap() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let zones = |package, memory| {
            zone(folder, "intel-rapl:0", "package-0", package);
            zone(folder, "intel-rapl:0:0", "core", 500);
            zone(folder, "intel-rapl:0:1", "dram", memory);
            zone(folder, "intel-rapl:1", "psys", 500);
        };
        zones(900, 10);
        let mut rapl = Rapl::open(folder).unwrap();
        assert_eq!(rapl.microjoules(), Ok(0));
        zones(950, 30);
        assert_eq!(rapl.microjoules(), Ok(70));
        zones(20, 30);
        assert_eq!(rapl.microjoules(), Ok(140));
    }

    #[test]
    fn a_machine_without_counters_has_no_sensor() {
        let folder = tempfile::tempdir().unwrap();
        let none = Rapl::open(folder.path()).unwrap_err();
        assert!(none.to_string().ends_with("has no package"), "{none}");
        let missing = Rapl::open(folder.path().join("missing")).unwrap_err();
        assert!(missing.to_string().starts_with("cannot read"), "{missing}");
    }

    proptest! {
        #[test]
        fn a_counter_that_wraps_once_counts_the_same(range in 1u64.., start: u64, counted: u64) {
            let (start, counted) = (start % range, counted % range);
            let now = ((u128::from(start) + u128::from(counted)) % u128::from(range)) as u64;
            prop_assert_eq!(since(start, now, range), counted);
        }
    }
}
