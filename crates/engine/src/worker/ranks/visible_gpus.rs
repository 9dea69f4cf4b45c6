//! Which GPU a rank computes on: the first one that its process sees.

/// The variable by which CUDA chooses the GPUs that a process sees, and their order.
pub(super) const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// The GPUs that a rank sees: all that this process sees, so that it reaches their memory, its own first.
pub(super) fn visible_from(rank: usize) -> String {
    let visible = std::env::var(VISIBLE_GPUS).ok();
    rotated(visible.as_deref(), mlx::device::gpu_count(), rank)
}

/// `visible`: the variable of the first rank, which sees `count` GPUs.
fn rotated(visible: Option<&str>, count: usize, rank: usize) -> String {
    let mut gpus: Vec<String> = match visible {
        Some(gpus) => gpus.split(',').take(count).map(|gpu| gpu.trim().to_owned()).collect(),
        None => (0..count).map(|gpu| gpu.to_string()).collect(),
    };
    let first = rank.min(gpus.len());
    gpus.rotate_left(first);
    gpus.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_sees_its_own_gpu_first_and_all_others() {
        assert_eq!(rotated(None, 4, 0), "0,1,2,3");
        assert_eq!(rotated(None, 4, 3), "3,0,1,2");
        assert_eq!(rotated(Some("GPU-a, GPU-b,-1"), 2, 1), "GPU-b,GPU-a");
        assert_eq!(rotated(Some(""), 0, 1), "");
    }
}
