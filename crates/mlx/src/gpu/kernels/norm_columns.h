// y = x, with its first QN columns and the KN behind them divided by the root of their mean square and multiplied with weights.
// x [rows, W] (gk_operand), qw [QN], kw [KN] floats, y [rows, W] of T; QN, KN and W multiples of 8.
// One group of NS simd groups for each of a row's three parts. groups (3, rows)
GK_SHARED(float, red, NS);
constexpr int REST = W - QN - KN, WIDER = QN > KN ? QN : KN, WIDEST = WIDER > REST ? WIDER : REST;
constexpr int IT = (WIDEST / 8 + NS * 32 - 1) / (NS * 32);
const int part = GK_GROUP_X, first = part == 0 ? 0 : part == 1 ? QN : QN + KN, width = part == 0 ? QN : part == 1 ? KN : REST;
const gk_long row = GK_GROUP_Y, at = row * W + first;
gk_fv<8> z[IT];
float s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i * 8 < width) {
    z[j] = gk_operand<T, PARTS>::eight(x + at + i * 8, x_shape[0], (gk_long)GK_GROUPS_Y * W);
    GK_UNROLL for (int k = 0; k < 8; ++k) s += z[j].v[k] * z[j].v[k];
  }
}
{
constexpr int RED = 0;
//@include group_sum.h
}
s = gk_rsqrt(s / width + GK_FLOAT(EPS));
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i * 8 < width) {
    gk_fv<8> a = z[j];
    if (part < 2) {
      a = part == 0 ? gk_load<8>(qw + i * 8) : gk_load<8>(kw + i * 8);
      GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] *= gk_round<T>(z[j].v[k] * s);
    }
    gk_store8<T>::at(y + at + i * 8, a);
  }
}
