//! Which unit of a CPU computes products with dense weights.

/// A unit. Each gives a row the same bits whichever rows share the call; the two differ from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Vectors of f32.
    #[default]
    Vector,
    /// Tiles of bf16 in up to six passes, as exact as f32, where the machine has them; vectors where not.
    Matrix,
}

/// Whether this machine has a matrix unit that its system lets a process use.
pub fn has_matrix_unit() -> bool {
    #[cfg(target_arch = "x86_64")]
    return super::matrix::is_usable();
    #[cfg(not(target_arch = "x86_64"))]
    false
}
