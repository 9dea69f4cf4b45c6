// cap * tanh(x / cap) for the bits of a cap; x for 0
template <int CAP> GK_FN float gk_capped(float x) {
  if (CAP == 0) return x;
  const float cap = GK_FLOAT(CAP);
  return cap - 2 * cap / (gk_exp(2 * x / cap) + 1);
}
// A sum x of values with weight w, the largest score top (base 2), over all weight; sink: the score of a key without a
// value, if there is one.
template <bool SINK> GK_FN float gk_weighted(float x, float w, float top, float sink) {
  if (!SINK) return w > 0 ? x / w : 0;
  const float most = sink > top ? sink : top, a = gk_exp2(top - most);
  return x * a / (w * a + gk_exp2(sink - most));
}
