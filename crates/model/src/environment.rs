//! The environment variables that this crate reads. An empty one counts as unset.

/// `OMNIBUS_KERNELS`: `mlx` for MLX's operations where our GPU kernels would be used, `launch` for decode steps whose kernels
/// are launched one by one.
pub(crate) fn kernels() -> Option<String> {
    std::env::var("OMNIBUS_KERNELS").ok().filter(|value| !value.is_empty())
}
