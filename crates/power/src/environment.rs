//! Environment variables. An empty one counts as unset.

/// The GPUs that CUDA shows to this process.
pub(crate) fn visible_gpus() -> Option<String> {
    std::env::var("CUDA_VISIBLE_DEVICES").ok().filter(|text| !text.is_empty())
}
