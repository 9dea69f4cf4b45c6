//! `SHA256SUMS`: the checksums of all artefacts, as `sha256sum --check` reads them.

use sha2::{Digest as _, Sha256};

use super::contents::files;
use super::{Dist, read};

const FILE: &str = "SHA256SUMS";

/// Writes the sums of everything that was made.
pub fn write(dist: &Dist) -> Result<(), String> {
    let mut lines = String::new();
    for file in files(&dist.out)? {
        let name = file.strip_prefix(&dist.out).unwrap_or(&file).display().to_string();
        if name != FILE {
            lines += &format!("{}  {name}\n", of(&read(&file)?));
        }
    }
    dist.write(FILE, lines.as_bytes())
}

/// The checksum of some bytes, in hexadecimal digits.
pub fn of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_checksum_is_that_of_sha256sum() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::of(b"abc"), expected);
    }
}
