//! Numbers that stand for names chosen by clients.
//!
//! Invariant: distinct names have distinct numbers. Clients choose names, so the hash must resist them: half of SHA-256,
//! as for block hashes.

use sha2::{Digest, Sha256};

/// Half of SHA-256 over length-prefixed parts. The first part names the purpose.
pub(crate) fn digest(parts: &[&[u8]]) -> u128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let bytes = hash.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&bytes[..16]);
    u128::from_le_bytes(half)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The 20 bytes that give tenant `key-1`, as its salt, the FNV-1a number of tenant `key-2` without a salt.
    const SALT: &str = "\0\u{1}\0\n\u{3}\u{16}\u{6}\0\0\t\u{16}\u{3}\u{5}\u{19}\r\t{\u{3}\0\u{3}";
    /// The 20 bytes that give tenant `key-1` and a session name the FNV-1a number of session `talk` of tenant `key-2`.
    const SESSION: &str = "\0\u{f}\u{2}\u{3}\n\t\u{6}\0\u{1}\u{e}\n\u{5}\u{1}}\u{16}\u{4};\u{8}\u{f}\u{c}";
    /// The 20 bytes that give a tenant's name the FNV-1a number of tenant `key-2`.
    const TENANT: &str =
        "\0\0\u{f}\u{5}\r\u{17}\0\u{8}\0\u{5}\u{e}\u{7}\u{1f}\u{5}\u{4}\u{1a}\u{2}\u{3}\u{b}9";

    /// A tenant, a salt of its choice, and the tenant without a salt that FNV-1a mixes it up with.
    pub(crate) fn salt_collision() -> [&'static str; 3] {
        let [tenant, salt, victim] = ["key-1", SALT, "key-2"];
        assert_eq!(fnv(&[tenant.as_bytes(), salt.as_bytes()]), fnv(&[victim.as_bytes(), b""]));
        [tenant, salt, victim]
    }

    /// Tenant and session name, and those that FNV-1a mixes them up with.
    pub(crate) fn session_collision() -> [(&'static str, &'static str); 2] {
        let pair = [("key-1", SESSION), ("key-2", "talk")];
        let [one, other] = pair.map(|(tenant, name)| fnv(&[b"session", tenant.as_bytes(), name.as_bytes()]));
        assert_eq!(one, other);
        pair
    }

    /// FNV-1a over length-prefixed parts, whose input can be chosen for any result.
    fn fnv(parts: &[&[u8]]) -> u64 {
        let part = |part: &&[u8]| [&(part.len() as u64).to_le_bytes(), *part].concat();
        let bytes = parts.iter().flat_map(part);
        bytes
            .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
    }

    #[test]
    fn tenants_that_collide_under_fnv_are_distinct() {
        let [one, other] = [TENANT, "key-2"].map(str::as_bytes);
        assert_eq!(fnv(&[one]), fnv(&[other]));
        assert_ne!(digest(&[b"tenant", one]) as u64, digest(&[b"tenant", other]) as u64);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(digest(&[b"salt", b"ab", b"c"]), digest(&[b"salt", b"a", b"bc"]));
        assert_ne!(digest(&[b"salt", b"a"]), digest(&[b"session", b"a"]));
    }
}
