//! The environment variables that these tests read.

/// Whether MLX multiplies float32 numbers on CUDA as they are, without rounding them to TF32 first.
pub fn has_exact_products() -> bool {
    std::env::var("MLX_ENABLE_TF32").as_deref() == Ok("0")
}

/// A directory with more fixtures of models with pictures than the repository has, if there is one.
pub fn picture_fixtures() -> Option<std::path::PathBuf> {
    std::env::var_os("OMNIBUS_PICTURE_FIXTURES").map(Into::into)
}
