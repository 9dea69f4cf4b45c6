//! Macs by name: their memory, as plans for a Mac that is not there take it.
//!
//! Invariant: nothing here asks MLX or the system.

use mlx::device::Backend;

use super::DeviceMemory;
use crate::command_buffers::{Chip, ChipForm};

const GIB: u64 = 1 << 30;
/// The largest memory of which Metal recommends two thirds; of more it recommends three quarters. What a Mac reports replaces it.
const TWO_THIRDS_GIB: u64 = 32;

/// A Mac that plans can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac {
    /// Its chip and its memory, as `m4-16gb`.
    pub name: &'static str,
    /// Gibibytes of memory.
    pub memory_gib: u64,
    /// The first number of the version of macOS.
    pub macos: u32,
}

/// In the order of their memory.
pub const MACS: &[Mac] = &[
    Mac { name: "m1-8gb", memory_gib: 8, macos: 14 },
    Mac { name: "m3-8gb", memory_gib: 8, macos: 15 },
    Mac { name: "m1-16gb", memory_gib: 16, macos: 14 },
    Mac { name: "m4-16gb", memory_gib: 16, macos: 26 },
    Mac { name: "m2-24gb", memory_gib: 24, macos: 15 },
    Mac { name: "m5-32gb", memory_gib: 32, macos: 26 },
    Mac { name: "m3-pro-36gb", memory_gib: 36, macos: 15 },
    Mac { name: "m4-pro-48gb", memory_gib: 48, macos: 26 },
    Mac { name: "m1-max-64gb", memory_gib: 64, macos: 15 },
    Mac { name: "m4-max-128gb", memory_gib: 128, macos: 26 },
    Mac { name: "m2-ultra-192gb", memory_gib: 192, macos: 15 },
    Mac { name: "m3-ultra-512gb", memory_gib: 512, macos: 26 },
];

impl Mac {
    /// The Mac of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MACS.iter().find(|mac| mac.name == name)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_gib * GIB
    }

    /// Bytes that Metal recommends to use at most.
    pub fn working_set_bytes(&self) -> u64 {
        match self.memory_gib <= TWO_THIRDS_GIB {
            true => self.memory_bytes() / 3 * 2,
            false => self.memory_bytes() / 4 * 3,
        }
    }

    /// Its GPU. A name says the chip, and its form if it is not the base one.
    pub(crate) fn chip(&self) -> Chip {
        let mut words = self.name.split('-');
        let generation = words.next().and_then(|chip| chip.strip_prefix('m')?.parse().ok()).unwrap_or(1);
        let form = match words.next() {
            Some("pro") => ChipForm::Pro,
            Some("max") => ChipForm::Max,
            Some("ultra") => ChipForm::Ultra,
            _ => ChipForm::Base,
        };
        Chip { generation, form }
    }

    /// Its memory as MLX and the system would describe it. `requested_bytes` is the setting `--memory-limit`.
    pub(crate) fn device(&self, requested_bytes: Option<u64>) -> DeviceMemory {
        DeviceMemory {
            backend: Backend::Metal,
            total_bytes: Some(self.memory_bytes()),
            free_bytes: None,
            working_set_bytes: Some(self.working_set_bytes()),
            host_bytes: None,
            group_bytes: None,
            allocator_bytes: self.working_set_bytes(),
            requested_bytes,
            macos_major: Some(self.macos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_the_memory() {
        for mac in MACS {
            assert_eq!(Mac::named(mac.name), Some(mac));
            assert!(mac.name.ends_with(&format!("-{}gb", mac.memory_gib)), "{}", mac.name);
        }
        assert_eq!(Mac::named("m4"), None);
        assert!(MACS.is_sorted_by_key(|mac| mac.memory_gib));
    }

    #[test]
    fn every_mac_keeps_a_part_of_its_memory() {
        for mac in MACS {
            let limit = mac.device(None).limit().unwrap();
            let left = mac.memory_bytes() - limit.bytes;
            assert!(limit.bytes <= mac.working_set_bytes(), "{}", mac.name);
            assert!(left >= (8 * GIB).min(mac.memory_bytes() / 2), "{} keeps {left}", mac.name);
            assert!(left >= mac.memory_bytes() / 4, "{} keeps {left}", mac.name);
        }
    }
}
