//! The matrix unit of x86-64 (AMX): eight tile registers of 16 rows of 64 bytes.
//!
//! Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights. The compiler uses none of them.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use super::{COLUMNS, TILE};
use crate::gemm::Merge;

/// Asks the system for the tile registers. False where the machine has none, or the system refuses.
pub(super) fn enable() -> bool {
    /// Bits of leaf 7: bf16 products and tiles.
    const NEEDED: u32 = 1 << 22 | 1 << 24;
    let has_unit = __cpuid_count(7, 0).edx & NEEDED == NEEDED;
    cfg!(target_os = "linux") && has_unit && request_registers()
}

/// Linux gives a process the state of tiles when it is requested.
fn request_registers() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: the call changes what the process may use, and writes no memory.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

/// All registers as whole tiles; given back when dropped.
pub(super) struct Tiles(());

#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static SHAPE: Shape = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (row_bytes[tile], rows[tile]) = (64, TILE as u8);
        tile += 1;
    }
    Shape { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` was called on a machine that has them.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Two tiles of weights.
macro_rules! weights {
    ($at:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {line} + ",
            $at,
            "]\n",
            "tileloadd tmm7, [{b} + {line} + ",
            $at,
            " + 1024]\n",
        )
    };
}

/// A part of one tile of rows, times the weights.
macro_rules! one {
    ($at:literal) => {
        concat!(
            "tileloadd tmm4, [{a0} + {line} + ",
            $at,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
        )
    };
}

/// A part of two tiles of rows, times the weights.
macro_rules! two {
    ($at:literal) => {
        concat!(
            "tileloadd tmm4, [{a0} + {line} + ",
            $at,
            "]\n",
            "tileloadd tmm5, [{a1} + {line} + ",
            $at,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
}

/// Sums over some steps: `$rows` for each pair of parts, the largest products last.
macro_rules! sum {
    ($rows:ident, three, $($operand:tt)*) => {
        sum!(@ concat!(
            weights!("4096"), $rows!("0"),
            weights!("2048"), $rows!("1024"), $rows!("0"),
            weights!("0"), $rows!("2048"), $rows!("1024"), $rows!("0"),
        ), "6144", $($operand)*)
    };
    ($rows:ident, one, $($operand:tt)*) => {
        sum!(@ concat!(weights!("0"), $rows!("2048"), $rows!("1024"), $rows!("0")), "2048", $($operand)*)
    };
    (@ $step:expr, $bytes:literal, ($a0:expr, $a1:expr), $b:expr, $steps:expr, $sums:expr, $merge:expr) => {
        asm!(
            "test {merge:l}, {merge:l}",
            "jnz 2f",
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{c} + {stride}]", "tileloadd tmm1, [{c} + {stride} + 64]",
            "tileloadd tmm2, [{c} + {stride} + 2048]", "tileloadd tmm3, [{c} + {stride} + 2112]",
            "3:",
            $step,
            "add {a0}, 3072", "add {a1}, 3072", concat!("add {b}, ", $bytes),
            "dec {steps}",
            "jnz 3b",
            "tilestored [{c} + {stride}], tmm0", "tilestored [{c} + {stride} + 64], tmm1",
            "tilestored [{c} + {stride} + 2048], tmm2", "tilestored [{c} + {stride} + 2112], tmm3",
            a0 = inout(reg) $a0 => _,
            a1 = inout(reg) $a1 => _,
            b = inout(reg) $b => _,
            steps = inout(reg) $steps => _,
            c = in(reg) $sums,
            merge = in(reg) u64::from($merge == Merge::Add),
            line = in(reg) 64_usize,
            stride = in(reg) COLUMNS * 4,
            options(nostack),
        )
    };
}

impl Tiles {
    /// # Safety
    /// [`enable`] has returned true.
    pub unsafe fn configure() -> Self {
        asm!("ldtilecfg [{}]", in(reg) &raw const SHAPE, options(nostack, readonly));
        Self(())
    }

    /// Sums of two tiles of rows, `[32][COLUMNS]`, with a panel of so many steps and parts.
    ///
    /// # Safety
    /// The rows and the panel have at least one step, and the sums are writable.
    pub unsafe fn two(
        &self,
        rows: [*mut u8; 2],
        panel: *mut u8,
        (steps, parts): (usize, usize),
        sums: *mut f32,
        merge: Merge,
    ) {
        match parts {
            1 => sum!(two, one, (rows[0], rows[1]), panel, steps, sums, merge),
            _ => sum!(two, three, (rows[0], rows[1]), panel, steps, sums, merge),
        }
    }

    /// As [`Tiles::two`], of one tile of rows. The 16 rows of sums after it are overwritten.
    ///
    /// # Safety
    /// As for [`Tiles::two`].
    pub unsafe fn one(
        &self,
        rows: *mut u8,
        panel: *mut u8,
        (steps, parts): (usize, usize),
        sums: *mut f32,
        merge: Merge,
    ) {
        match parts {
            1 => sum!(one, one, (rows, rows), panel, steps, sums, merge),
            _ => sum!(one, three, (rows, rows), panel, steps, sums, merge),
        }
    }
}
