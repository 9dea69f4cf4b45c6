//! Links what is built here with libmlx, and hands the arguments on; see `crates/mlx/build.rs`.
fn main() {
    let arguments = std::env::var("DEP_MLX_SAFE_LINK_ARGS").unwrap_or_default();
    for argument in arguments.split(';').filter(|argument| !argument.is_empty()) {
        println!("cargo::rustc-link-arg={argument}");
    }
}
