//! The C and C++ compiler of the wheel `ziglang`, which compiles for Macs.

use std::path::{Path, PathBuf};

use crate::paths;
use crate::wheel::Wheel;

/// Pinned: a new clang may find what an old one accepts.
pub const WHEEL: Wheel<'static> = Wheel { name: "ziglang", version: "0.17.1", platform: None };

/// The folder of wheels for Macs.
pub fn folder() -> Result<PathBuf, String> {
    Ok(paths::target()?.join("macos"))
}

/// The program of an unpacked wheel.
pub fn program(wheel: &Path) -> PathBuf {
    wheel.join("ziglang/zig")
}

/// The variables that keep what it caches in the folder of wheels.
pub fn caches(folder: &Path) -> [(&'static str, PathBuf); 2] {
    ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"].map(|name| (name, folder.join("cache")))
}
