// What a group's simd groups (KS of them with different keys) left in red, added up, four elements at a time: written, or, if
// the keys are split over groups, left in part for attn_mma_last.h.
GK_BARRIER();
for (int i = GK_TID; i < R * D / 4; i += NS * 32) {
  const int r = i / (D / 4), e = i % (D / 4) * 4;
  float top = -1e30f, w = 0, x[4] = {0, 0, 0, 0};
  GK_UNROLL for (int j = 0; j < KS; ++j) top = red[(j * R + r) * RS + D] > top ? red[(j * R + r) * RS + D] : top;
  GK_UNROLL for (int j = 0; j < KS; ++j) {
    const float a = gk_exp2(red[(j * R + r) * RS + D] - top);
    const gk_vec<float, 4> v = *reinterpret_cast<const gk_vec<float, 4>*>(red + (j * R + r) * RS + e);
    w += red[(j * R + r) * RS + D + 1] * a;
    GK_UNROLL for (int k = 0; k < 4; ++k) x[k] += v.v[k] * a;
  }
  if (GK_GROUPS_X == 1) {
    const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;  // to powers of two
    gk_vec<T, 4> o;
    GK_UNROLL for (int k = 0; k < 4; ++k) o.v[k] = gk_to<T>::of(gk_weighted<SINK_LOGITS>(x[k], w, top, sink));
    if (r / G < rows) *reinterpret_cast<gk_vec<T, 4>*>(out + ((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e) = o;
  } else {
    float* p = part + ((((gk_long)ITEM * HK + hk) * GK_GROUPS_X + GK_GROUP_X) * R + r) * RS;
    *reinterpret_cast<gk_vec<float, 4>*>(p + e) = gk_vec<float, 4>{{x[0], x[1], x[2], x[3]}};
    if (e == 0) *reinterpret_cast<gk_vec<float, 2>*>(p + D) = gk_vec<float, 2>{{top, w}};
  }
}
