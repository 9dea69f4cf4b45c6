// The results that groups left in part, added up by the last of them where the dialect can tell which one that is.
#ifdef GK_FUSED
if (GK_GROUPS_X > 1) {
  GK_SHARED(int, last, 1);
  GK_FENCE();
  GK_BARRIER();
  if (GK_TID == 0) last[0] = gk_atomic_inc(GK_WRITABLE(gk_uint, counter) + ITEM * HK + hk, GK_GROUPS_X - 1) == (gk_uint)(GK_GROUPS_X - 1);
  GK_BARRIER();
  if (last[0] == 1) {
    GK_FENCE();
    for (int i = GK_TID; i < R * D; i += NS * 32) {
      const int r = i / D, e = i % D;
      const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;
      const GK_DEV float* p = part + (((gk_long)ITEM * HK + hk) * GK_GROUPS_X * R + r) * RS;
      float top = -1e30f, w = 0, x = 0;
      for (int j = 0; j < GK_GROUPS_X; ++j) top = p[j * R * RS + D] > top ? p[j * R * RS + D] : top;
      for (int j = 0; j < GK_GROUPS_X; ++j) {
        const float a = gk_exp2(p[j * R * RS + D] - top);
        w += p[j * R * RS + D + 1] * a;
        x += p[j * R * RS + e] * a;
      }
      if (r / G < rows) out[((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e] = gk_to<T>::of(gk_weighted<SINK_LOGITS>(x, w, top, sink));
    }
  }
}
#endif
