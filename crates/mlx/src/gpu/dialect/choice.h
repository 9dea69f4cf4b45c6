// of 64 bits, which no simd function takes
GK_FN gk_ulong gk_shfl_long(gk_ulong x, int lane) {
  return (gk_ulong)gk_shfl((gk_uint)(x >> 32), lane) << 32 | gk_shfl((gk_uint)x, lane);
}
GK_FN gk_ulong gk_sum_long(gk_ulong x) {
  for (int i = 16; i > 0; i >>= 1) x += (gk_ulong)gk_shfl_xor((gk_uint)(x >> 32), i) << 32 | gk_shfl_xor((gk_uint)x, i);
  return x;
}
// the share of whole that x in [0, 1) is, below whole; whole below 2^63
GK_FN gk_ulong gk_part(gk_ulong whole, float x) {
  const gk_ulong u = (gk_ulong)(gk_uint)(x * 16777216.0f);
  return (whole >> 24) * u + (((whole & 0xffffffu) * u) >> 24);
}
// exp((x - top) / temperature) in units of 2^-30; 0 for what is not a number
GK_FN gk_uint gk_weight(float x, float top, float inverse) {
  const float power = (x - top) * inverse;
  return power > -21.0f ? (gk_uint)(gk_exp(power) * 1073741824.0f) : 0u;
}
// where x stands among ascending numbers, below 0 if it does not
GK_FN int gk_find(const GK_DEV int* numbers, int from, int to, int x) {
  const int end = to;
  while (from < to) {
    const int middle = (from + to) / 2;
    if (numbers[middle] < x) from = middle + 1; else to = middle;
  }
  return from < end && numbers[from] == x ? from : -1;
}
// a logit with the change at this place: a bias, a repetition penalty, a penalty that is subtracted
GK_FN float gk_edited(float x, const GK_DEV float* changes, int at) {
  if (at < 0) return x;
  const float biased = x + changes[at * 3], penalty = changes[at * 3 + 1];
  return (biased > 0 ? biased / penalty : biased * penalty) - changes[at * 3 + 2];
}
