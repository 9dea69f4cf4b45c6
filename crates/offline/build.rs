//! The rpath of this crate's tests; see `crates/mlx/build.rs`.
fn main() {
    println!("cargo::rerun-if-env-changed=DEP_OMNIBUS_ENGINE_LIBDIR");
    if let Ok(dir) = std::env::var("DEP_OMNIBUS_ENGINE_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
