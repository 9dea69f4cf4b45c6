// Second half of split attention where no group can tell that it is the last one.
// in: part [items, HK, SPLITS, R, D + 4] float, items as attn_item.h, sinks as attn_rows.h; out: out [rows, HQ, D] of T, all rows of all items
// groups (items, HK), NT threads
constexpr int G = HQ / HK, R = QN * G, RS = D + 4;
const int item = GK_GROUP_X, hk = GK_GROUP_Y, row0 = items[item * 8], rows = items[item * 8 + 1];
const int splits = part_shape[2];
for (int i = GK_TID; i < R * D; i += NT) {
  const int r = i / D, e = i % D;
  const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;
  const GK_DEV float* p = part + (((gk_long)item * HK + hk) * splits * R + r) * RS;
  float top = -1e30f, w = 0, x = 0;
  for (int j = 0; j < splits; ++j) top = p[j * R * RS + D] > top ? p[j * R * RS + D] : top;
  for (int j = 0; j < splits; ++j) {
    const float a = gk_exp2(p[j * R * RS + D] - top);
    w += p[j * R * RS + D + 1] * a;
    x += p[j * R * RS + e] * a;
  }
  if (r / G < rows) out[((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e] = gk_to<T>::of(gk_weighted<SINK_LOGITS>(x, w, top, sink));
}
