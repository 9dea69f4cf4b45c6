// The experts of each row: the TOPK largest of the softmax over its logits, the largest first, equal ones by their number.
// in:  logits [rows, E] of T
// out: experts [rows, TOPK] uint; weights [rows, TOPK] float: their probabilities, divided by their sum if RENORM
// groups (rows / NS rounded up), NS simd groups: one a row. TOPK up to 32
constexpr int IT = (E + 31) / 32;
const int row = GK_GROUP_X * NS + GK_SIMD, lane = GK_LANE;
if (row < logits_shape[0]) {
  // By element: Metal has small inputs in another address space.
  float v[IT], top = -3e38f, sum = 0;
  GK_UNROLL for (int i = 0; i < IT; ++i) {
    v[i] = lane + 32 * i < E ? gk_f(logits[(gk_long)row * E + lane + 32 * i]) : -3e38f;
    top = v[i] > top ? v[i] : top;
  }
  GK_UNROLL for (int i = 16; i > 0; i >>= 1) { const float x = gk_shfl_xor(top, i); top = x > top ? x : top; }
  GK_UNROLL for (int i = 0; i < IT; ++i) sum += gk_exp(v[i] - top);
  sum = gk_sum(sum);
  float weight = 0;                       // lane j has the j-th expert
  int expert = 0;
  for (int j = 0; j < TOPK; ++j) {
    float best = -3e38f;
    int at = E;
    GK_UNROLL for (int i = 0; i < IT; ++i)
      if (v[i] > best) { best = v[i]; at = lane + 32 * i; }
    GK_UNROLL for (int i = 16; i > 0; i >>= 1) {
      const float x = gk_shfl_xor(best, i);
      const int other = gk_shfl_xor(at, i);
      if (x > best || (x == best && other < at)) { best = x; at = other; }
    }
    // Logits that are not finite choose some expert that there is.
    if (lane == j) { weight = gk_exp(best - top); expert = at < E ? at : j % E; }
    GK_UNROLL for (int i = 0; i < IT; ++i)
      if (lane + 32 * i == at) v[i] = -3e38f;
  }
  const float chosen = gk_sum(weight);
  if (lane < TOPK) {
    experts[(gk_long)row * TOPK + lane] = expert;
    weights[(gk_long)row * TOPK + lane] = weight / (RENORM ? chosen : sum);
  }
}
