// CUDA alone: y[split][m][n] = sum over the split's k of x[m][k] w[n][k], for up to 8 MT rows of TX, bf16 or f16.
// BITS 4: w [N, K / 8] uint (MLX's affine packing: nibble i of a word is k = 8 word + i), ss sb [N, K / 64] of TX
// BITS 16: w [N, K] of TX (ss, sb unread)
// in: x [M, K], w, ss (scales), sb (biases), bias [N], floats: added to y if BIASED; out: y [SPLITS, M, N] of TO
// K a multiple of 256 (WHOLE) or of 64, N of 16 RT (EVEN) or any.
// groups (N / (16 RT WN) rounded up, SPLITS), WN WK simd groups
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], SPLIT = GK_GROUP_Y, SPLITS = GK_GROUPS_Y;
const gk_long W0 = 0;
auto x_row = [](int m) { return m; };
auto y_row = [&](int m) { return (gk_long)SPLIT * M + m; };
auto biased = [&](float v, int n) { return BIASED && SPLIT == 0 ? v + gk_f(bias[n]) : v; };
//@include wmm_body.h
