//! Links the binary so that it starts without libmlx, which it loads when a command needs it.
fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        println!("cargo::rustc-link-arg=-Wl,-weak-lmlx");
        for folder in ["../mlx/lib", "../lib"] {
            println!("cargo::rustc-link-arg=-Wl,-rpath,@loader_path/{folder}");
        }
    } else {
        // References that are empty at the link can be filled when the program starts.
        println!("cargo::rustc-link-arg=-Wl,-z,dynamic-undefined-weak");
    }
    println!("cargo::rerun-if-env-changed=DEP_OMNIBUS_ENGINE_LIBDIR");
    // None in a build for other machines.
    if let Ok(folder) = std::env::var("DEP_OMNIBUS_ENGINE_LIBDIR")
        && !folder.is_empty()
    {
        println!("cargo::rustc-env=LIBMLX_BUILT_WITH={folder}");
    }
}
