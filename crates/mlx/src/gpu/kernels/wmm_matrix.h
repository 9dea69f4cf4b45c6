// Metal alone: y[split][m][n] = sum over the split's k of x[m][k] w[n][k], for up to 8 MT rows of TX, bf16 or f16, by simdgroup
// matrices.
// in: x [M, K], w [N, K BITS / 32] words, as MLX packs affine codes, ss (scales) and sb (biases) [N, K / GROUP] of TX, bias [N],
//     floats: added to y if BIASED; out: y [SPLITS, M, N] of TO
// K a multiple of 64, N any.
// groups (N / 32 rounded up, SPLITS), four simd groups: two halves of the rows by two halves of the 32 outputs. Rows and weights
// pass through threadgroup memory, 32 k at a time; weights as floats, so that nothing of a scale is rounded.
constexpr int ROWS = MT * 8, XPITCH = 40, WPITCH = 36, HALF = MT / 2;  // pitches keep banks apart
GK_SHARED(TX, xs, ROWS * XPITCH);
GK_SHARED(float, ws, 32 * WPITCH);
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], SPLIT = GK_GROUP_Y, SPLITS = GK_GROUPS_Y, n0 = GK_GROUP_X * 32;
const int row = gk_matrix_row(GK_LANE), column = gk_matrix_column(GK_LANE);
const int m1 = GK_SIMD / 2 * HALF * 8, n1 = GK_SIMD % 2 * 16;  // of this simd group in the group's rows and outputs
const int units = K / 32, from = units * SPLIT / SPLITS, to = units * (SPLIT + 1) / SPLITS;
gk_fv<2> acc[HALF][2];
GK_UNROLL for (int i = 0; i < HALF; ++i)
  GK_UNROLL for (int j = 0; j < 2; ++j) acc[i][j].v[0] = acc[i][j].v[1] = 0;
// The weights that this thread unpacks: eight of a row.
const int own = GK_TID / 4, n = n0 + own < N ? n0 + own : N - 1;
for (int unit = from; unit < to; ++unit) {
  GK_BARRIER();                           // all have read the unit before
  for (int i = GK_TID; i < ROWS * 4; i += 128) {
    gk_fv<8> x8;
    GK_UNROLL for (int e = 0; e < 8; ++e) x8.v[e] = 0;
    if (i / 4 < M) x8 = gk_load<8>(x + (gk_long)(i / 4) * K + unit * 32 + i % 4 * 8);
    gk_put8(xs + i / 4 * XPITCH + i % 4 * 8, x8);
  }
  gk_put8(ws + own * WPITCH + GK_TID % 4 * 8, gk_table<BITS>::eight(w, ss, sb, (gk_long)n * K + unit * 32 + GK_TID % 4 * 8, GROUP));
  GK_BARRIER();                           // this unit is there for all
  GK_UNROLL for (int k = 0; k < 32; k += 8) {
    gk_fv<2> b[2];
    GK_UNROLL for (int j = 0; j < 2; ++j) b[j] = gk_pair(ws + (n1 + j * 8 + column) * WPITCH + k + row, WPITCH);
    GK_UNROLL for (int i = 0; i < HALF; ++i) {
      const gk_fv<2> a = gk_pair(xs + (m1 + i * 8 + row) * XPITCH + k + column);
      GK_UNROLL for (int j = 0; j < 2; ++j) acc[i][j] = gk_multiply(a, b[j], acc[i][j]);
    }
  }
}
GK_UNROLL for (int i = 0; i < HALF; ++i)
  GK_UNROLL for (int j = 0; j < 2; ++j)
    GK_UNROLL for (int e = 0; e < 2; ++e) {
      const int at_m = m1 + i * 8 + row, at_n = n0 + n1 + j * 8 + column + e;
      if (at_m < M && at_n < N) {
        const float v = BIASED && SPLIT == 0 ? acc[i][j].v[e] + gk_f(bias[at_n]) : acc[i][j].v[e];
        y[((gk_long)SPLIT * M + at_m) * N + at_n] = gk_to<TO>::of(v);
      }
    }
