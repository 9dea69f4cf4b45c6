//! The environment variables that these tests read.

/// Whether MLX multiplies float32 numbers on CUDA as they are, without rounding them to TF32 first.
pub fn has_exact_products() -> bool {
    std::env::var("MLX_ENABLE_TF32").as_deref() == Ok("0")
}
