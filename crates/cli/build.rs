//! Lets the binary and its tests find libmlx: where it was built against, or beside an installed binary.
fn main() {
    println!("cargo::rerun-if-env-changed=DEP_OMNIBUS_ENGINE_LIBDIR");
    if let Ok(dir) = std::env::var("DEP_OMNIBUS_ENGINE_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{dir}");
    }
    let here = if cfg!(target_os = "macos") { "@loader_path" } else { "$ORIGIN" };
    println!("cargo::rustc-link-arg=-Wl,-rpath,{here}/../lib");
}
