//! Our CPU kernels.
//!
//! Invariant: the instruction set is a setting of the process. A test of kernels runs in [`with_each_isa`] or holds
//! [`with_this_isa`].

mod attention;
mod experts;
mod latent;
mod products;
mod rwkv;

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use mlx::Result;
use mlx::cpu::{self, Isa};

static ISA: RwLock<()> = RwLock::new(());

/// Runs `test` with each instruction set that this machine has, while no other test of kernels runs.
fn with_each_isa(test: impl Fn(Isa) -> Result<()>) -> Result<()> {
    // A failed test poisons the lock, and may leave another limit.
    let _guard = ISA.write().unwrap_or_else(PoisonError::into_inner);
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
        if cpu::limit_isa(isa) == isa {
            test(isa)?;
        }
    }
    cpu::limit_isa(Isa::Avx512);
    Ok(())
}

/// While the guard lives, the instruction set stays what it is.
fn with_this_isa() -> RwLockReadGuard<'static, ()> {
    ISA.read().unwrap_or_else(PoisonError::into_inner)
}
