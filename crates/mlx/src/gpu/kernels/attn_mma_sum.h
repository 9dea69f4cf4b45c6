// What SHARES simd groups with different keys left in red of row r, added up, four elements from e on: x, its weight w and the
// largest score top.
const int r = i / (D / 4), e = i % (D / 4) * 4;
float top = -1e30f, w = 0, x[4] = {0, 0, 0, 0};
GK_UNROLL for (int j = 0; j < SHARES; ++j) top = red[(j * R + r) * RS + D] > top ? red[(j * R + r) * RS + D] : top;
GK_UNROLL for (int j = 0; j < SHARES; ++j) {
  const float a = gk_exp2(red[(j * R + r) * RS + D] - top);
  const gk_vec<float, 4> v = *reinterpret_cast<const gk_vec<float, 4>*>(red + (j * R + r) * RS + e);
  w += red[(j * R + r) * RS + D + 1] * a;
  GK_UNROLL for (int k = 0; k < 4; ++k) x[k] += v.v[k] * a;
}
