//! Prompt chunks by simdgroup matrices.

use mlx::Dtype::{Bf16, F16, F32};
use mlx::gpu::{Dialect, PagedAttention};

use super::{Case, World, all_noticed, attention, capped, packed, windowed, with_sinks, worst};

fn matrix_chunks() -> Vec<Case> {
    let chunks = |attention: PagedAttention, segments: &[(usize, usize)]| {
        super::chunks(Dialect::Metal, &World::new(attention, segments))
    };
    let cases = vec![
        chunks(attention(Bf16, [8, 2, 128], 16), &[(0, 45), (40, 1), (13, 5)]),
        chunks(attention(F32, [5, 1, 40], 8), &[(0, 2), (3, 33)]),
        chunks(attention(F16, [2, 2, 64], 16), &[(0, 150)]),
        chunks(windowed(attention(F16, [4, 2, 64], 16), 19, 3), &[(50, 70), (2, 20)]),
        chunks(windowed(attention(Bf16, [4, 2, 256], 32), 33, 0), &[(7, 61)]),
        chunks(packed(attention(F32, [4, 2, 128], 16), 8, 64), &[(0, 45), (40, 1), (13, 5)]),
        chunks(packed(attention(Bf16, [4, 2, 64], 16), 4, 32), &[(50, 70)]),
        chunks(with_sinks(attention(Bf16, [8, 2, 64], 16)), &[(0, 2), (9, 40)]),
        chunks(capped(with_sinks(attention(F16, [4, 2, 256], 16)), 1.5), &[(9, 40)]),
        chunks(attention(F32, [40, 1, 8], 4), &[(3, 20), (0, 2)]),
    ];
    assert!(cases.iter().all(|case| case.plans[0].kernel.name == "attn_chunk_matrix"));
    cases
}

#[test]
fn matrix_chunks_equal_their_reference() {
    let worst = worst("chunk_matrix_metal", Dialect::Metal, &matrix_chunks());
    assert!(worst < 1.0, "{worst}");
}

#[test]
fn broken_matrix_chunks_are_noticed() {
    let breaks = [
        (0, "GK_BARRIER();\nfor (int i = GK_TID; i < KT", "for (int i = GK_TID; i < KT"),
        (0, "GK_BARRIER();\nif (k0 >= most)", "if (k0 >= most)"),
        (2, "k < seen &&", ""),
        (2, "k0 + KT <= least", "k0 + KT <= most"),
        (3, "k + WINDOW >= seen || k < SINK", "k + WINDOW >= seen"),
        (3, "b : b - freed", "b : b"),
        (4, "k0 + WINDOW >= most", "k0 + WINDOW >= least"),
        (2, "gk_shfl_xor(higher, 8)", "gk_shfl_xor(higher, 2)"),
        (2, "weight *= less;", ""),
        (2, "acc[d].v[0] *= less;", ""),
        (7, "top * scale, sink", "top, sink"),
        (0, "(j * 8 + row) * PITCH + d * 8 + column", "(j * 8 + column) * PITCH + d * 8 + row"),
        (1, "last_row < rows ? last_row : rows - 1", "first_row"),
    ];
    all_noticed("chunk_matrix_broken", Dialect::Metal, &matrix_chunks(), &breaks);
}
