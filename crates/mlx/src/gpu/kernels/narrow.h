// y = x w^T for few outputs, of which a simd group computes one. x [rows, K], w [O, K] floats, y [rows, O] of T; K a
// multiple of 8. groups (O, rows), one simd group
const int o = GK_GROUP_X;
const gk_long row = GK_GROUP_Y;
float s = 0;
for (int i = GK_LANE; i < K / 8; i += 32) {
  const gk_fv<8> a = gk_load<8>(x + row * K + i * 8);
  const gk_fv<8> b = gk_load<8>(w + (gk_long)o * K + i * 8);
  GK_UNROLL for (int k = 0; k < 8; ++k) s += a.v[k] * b.v[k];
}
s = gk_sum(s);
if (GK_LANE == 0) y[row * O + o] = gk_to<T>::of(s);
