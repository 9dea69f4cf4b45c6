// What splits of the keys left in part for the item ITEM and its heads hk, added up and written by NS simd groups.
for (int i = GK_TID; i < R * D; i += NS * 32) {
  const int r = i / D, e = i % D;
  const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;
  const GK_DEV float* p = part + (((gk_long)ITEM * HK + hk) * splits * R + r) * RS;
  float top = -1e30f, w = 0, x = 0;
  for (int j = 0; j < splits; ++j) top = p[j * R * RS + D] > top ? p[j * R * RS + D] : top;
  for (int j = 0; j < splits; ++j) {
    const float a = gk_exp2(p[j * R * RS + D] - top);
    w += p[j * R * RS + D + 1] * a;
    x += p[j * R * RS + e] * a;
  }
  if (r / G < rows) out[((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e] = gk_to<T>::of(gk_weighted<SINK_LOGITS>(x, w, top, sink));
}
