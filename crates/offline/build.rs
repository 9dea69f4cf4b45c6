//! Links the tests of this crate with libmlx; see `crates/mlx/build.rs`.
fn main() {
    let arguments = std::env::var("DEP_OMNIBUS_ENGINE_LINK_ARGS").unwrap_or_default();
    for argument in arguments.split(';').filter(|argument| !argument.is_empty()) {
        println!("cargo::rustc-link-arg={argument}");
    }
}
