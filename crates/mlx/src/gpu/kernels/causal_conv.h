// A causal convolution of each channel, with silu behind it if SILU. The state is the last K - 1 inputs. If GATED, inputs are
// first multiplied with the channels of x from GATE_IN on, and results with those from GATE_OUT on.
// in:  x [rows, _] of T, its channels from OFFSET on; weight [K, C] float, the oldest row first; bias [C], floats (read if
//      BIAS); runs int (runs.h); pool [slots, K - 1, C] float: WRITTEN although an input
// out: y [rows, C] of TO
// groups (C / NT rounded up, RUNS, the longest run / TILE rounded up), NT threads
#define GK_CONV_INPUT(row) (GATED ? gk_round<T>(gk_f(x[(gk_long)(row) * X + GATE_IN + c]) * gk_f(x[(gk_long)(row) * X + OFFSET + c])) \
                                  : gk_f(x[(gk_long)(row) * X + OFFSET + c]))
const int RUN = GK_GROUP_Y, RUNS = GK_GROUPS_Y;
//@include runs.h
const int c = GK_GROUP_X * NT + GK_TID, X = x_shape[1], begin = GK_GROUP_Z * TILE;
const int end = begin + TILE < length ? begin + TILE : length;
if (c < C && idle) {
  for (int p = begin; p < end; ++p) y[(gk_long)(first + p) * C + c] = gk_to<TO>::of(0);
} else if (c < C && begin < length) {
  // The inputs before a row. Only the first rows see the state, and their group is the one that replaces it.
  float w[K], old[K], before[K];
  GK_UNROLL for (int j = 0; j < K; ++j) w[j] = weight[j * C + c];
  GK_UNROLL for (int j = 0; j < K - 1; ++j) {
    const int p = begin - (K - 1) + j;
    old[j] = from >= 0 && begin == 0 ? pool[((gk_long)from * (K - 1) + j) * C + c] : 0;
    before[j] = p >= 0 ? GK_CONV_INPUT(first + p) : old[j];
  }
  const float base = BIAS ? gk_f(bias[c]) : 0;
  for (int p = begin; p < end; ++p) {
    before[K - 1] = GK_CONV_INPUT(first + p);
    float sum = base;
    GK_UNROLL for (int j = 0; j < K; ++j) sum += w[j] * before[j];
    GK_UNROLL for (int j = 0; j < K - 1; ++j) before[j] = before[j + 1];
    if (SILU) sum = sum / (1.0f + gk_exp(-sum));
    if (GATED) sum = gk_round<TO>(sum) * gk_f(x[(gk_long)(first + p) * X + GATE_OUT + c]);
    y[(gk_long)(first + p) * C + c] = gk_to<TO>::of(sum);
  }
  if (begin == 0) {
    int after = 0;
    for (int r = RUN; r <= LAST; ++r) {
      after += runs[r * 4 + 1];
      for (int j = 0; j < K - 1; ++j) {
        const int p = after - (K - 1) + j;
        float value = 0;
        GK_UNROLL for (int i = 0; i < K - 1; ++i) value = p == i - (K - 1) ? old[i] : value;
        if (p >= 0) value = GK_CONV_INPUT(first + p);
        GK_WRITABLE(float, pool)[((gk_long)runs[r * 4 + 2] * (K - 1) + j) * C + c] = value;
      }
    }
  }
}
#undef GK_CONV_INPUT
