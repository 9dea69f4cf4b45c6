// What a group's simd groups (KS of them with different keys) left in red, added up: written, or, if the keys are split
// over groups, left in part for attn_last.h.
GK_BARRIER();
for (int i = GK_TID; i < R * D; i += NS * 32) {
  const int r = i / D, e = i % D;
  const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;  // to powers of two
  float top = -1e30f, w = 0, x = 0;
  GK_UNROLL for (int j = 0; j < KS; ++j) top = red[(j * R + r) * RS + D] > top ? red[(j * R + r) * RS + D] : top;
  GK_UNROLL for (int j = 0; j < KS; ++j) {
    const float a = gk_exp2(red[(j * R + r) * RS + D] - top);
    w += red[(j * R + r) * RS + D + 1] * a;
    x += red[(j * R + r) * RS + e] * a;
  }
  if (GK_GROUPS_X == 1) {
    if (r / G < rows) out[((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e] = gk_to<T>::of(gk_weighted<SINK_LOGITS>(x, w, top, sink));
  } else {
    GK_DEV float* p = part + ((((gk_long)ITEM * HK + hk) * GK_GROUPS_X + GK_GROUP_X) * R + r) * RS;
    p[e] = x;
    if (e == 0) { p[D] = top; p[D + 1] = w; }
  }
}
