// The experts of each row: those with the TOPK largest scores, the largest first, equal ones by their number, and their weights.
// SCORES 0: the softmax over a row's logits; 1: the same, but over the chosen ones alone; 2: the sigmoid of each; 3: the square
// root of the softplus of each. CORRECTED scores choose with correction added. Of GROUPS groups of experts the KEPT with the
// largest sums of their BEST scores take part; the scores of the others are zero. SCALED weights are multiplied by their expert's
// factor in the end.
// in:  logits [rows, E] of T; correction [E], floats (read if CORRECTED); factors [E], floats (read if SCALED)
// out: experts [rows, TOPK] uint; weights [rows, TOPK] float: their scores times FACTOR, divided by their sum if RENORM
// groups (rows / NS rounded up), NS simd groups: one a row. TOPK and GROUPS up to 32
constexpr int IT = (E + 31) / 32, SIZE = E / GROUPS;
constexpr bool GROUPED = GROUPS > 1 && KEPT < GROUPS;
GK_SHARED(float, scores, GROUPED ? NS * E : 1);
const int lane = GK_LANE, last = logits_shape[0] - 1, own = GK_GROUP_X * NS + GK_SIMD;
const int row = own < last ? own : last;
// By element: Metal has small inputs in another address space.
float s[IT], v[IT], top = -3e38f, sum = 0;   // what weighs, and what chooses
GK_UNROLL for (int i = 0; i < IT; ++i) {
  const int e = lane + 32 * i;
  s[i] = e < E ? gk_capped<CAP>(gk_f(logits[(gk_long)row * E + e])) : -3e38f;
  top = s[i] > top ? s[i] : top;
}
GK_UNROLL for (int i = 16; i > 0; i >>= 1) { const float x = gk_shfl_xor(top, i); top = x > top ? x : top; }
if (SCORES == 0) {
  GK_UNROLL for (int i = 0; i < IT; ++i) sum += gk_exp(s[i] - top);
  sum = gk_sum(sum);
}
GK_UNROLL for (int i = 0; i < IT; ++i) {
  const int e = lane + 32 * i;
  v[i] = s[i];
  if (SCORES < 2) s[i] = gk_exp(s[i] - top);
  if (SCORES == 2) s[i] = 1.0f / (1.0f + gk_exp(-s[i]));
  if (SCORES == 3) {
    const float x = (s[i] > 0 ? s[i] : 0) + gk_log(1.0f + gk_exp(s[i] > 0 ? -s[i] : s[i]));
    s[i] = x > 0 ? x * gk_rsqrt(x) : 0;
  }
  // Without a correction logits order experts as scores do, and are not rounded.
  if (CORRECTED || GROUPED) v[i] = SCORES == 0 ? s[i] / sum : SCORES == 1 ? v[i] : s[i];
  if (CORRECTED && e < E) v[i] += gk_f(correction[e]);
  if (GROUPED && e < E) scores[GK_SIMD * E + e] = v[i];
  if (e >= E) v[i] = -3e38f;
}
if (GROUPED) {
  GK_BARRIER();
  float of_group = -3e38f;
  if (lane < GROUPS) {
    float best[BEST];
    GK_UNROLL for (int j = 0; j < BEST; ++j) best[j] = -3e38f;
    for (int i = 0; i < SIZE; ++i) {
      float x = scores[GK_SIMD * E + lane * SIZE + i];
      GK_UNROLL for (int j = 0; j < BEST; ++j)
        if (x > best[j]) { const float less = best[j]; best[j] = x; x = less; }
    }
    of_group = 0;
    GK_UNROLL for (int j = 0; j < BEST; ++j) of_group += best[j];
  }
  int better = 0;                         // groups that come first
  GK_UNROLL for (int g = 0; g < GROUPS; ++g) {
    const float x = gk_shfl(of_group, g);
    better += x > of_group || (x == of_group && g < lane);
  }
  const int kept = lane < GROUPS && better < KEPT;
  GK_UNROLL for (int i = 0; i < IT; ++i) {
    const int e = lane + 32 * i, takes_part = gk_shfl(kept, e < E ? e / SIZE : 0);
    if (e < E && !takes_part) v[i] = 0;
  }
}
float weight = 0;                         // lane j has the j-th expert
int expert = 0;
for (int j = 0; j < TOPK; ++j) {
  float best = -3e38f, score = 0;
  int at = E;
  GK_UNROLL for (int i = 0; i < IT; ++i)
    if (v[i] > best) { best = v[i]; at = lane + 32 * i; score = s[i]; }
  GK_UNROLL for (int i = 16; i > 0; i >>= 1) {
    const float x = gk_shfl_xor(best, i), of_other = gk_shfl_xor(score, i);
    const int other = gk_shfl_xor(at, i);
    if (x > best || (x == best && other < at)) { best = x; at = other; score = of_other; }
  }
  // Logits that are not finite choose some expert that there is.
  if (lane == j) { weight = score; expert = at < E ? at : j % E; }
  GK_UNROLL for (int i = 0; i < IT; ++i)
    if (lane + 32 * i == at) v[i] = -3e38f;
}
const float chosen = gk_sum(weight), whole = RENORM || SCORES == 1 ? chosen : SCORES == 0 ? sum : 1;
if (lane < TOPK && own <= last) {
  experts[(gk_long)row * TOPK + lane] = expert;
  weight = weight / whole * GK_FLOAT(FACTOR);
  if (SCALED) weight *= gk_f(factors[expert]);
  weights[(gk_long)row * TOPK + lane] = weight;
}
