//! The rpath of what links libmlx here, and the folder for those above; see `crates/mlx/build.rs`.
fn main() {
    if let Ok(dir) = std::env::var("DEP_MLX_SAFE_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
