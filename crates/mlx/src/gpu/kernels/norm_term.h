// z = rms_norm(x) * xw of a row, with XEPS; red has NS floats from NS on for it.
float s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    z[j] = gk_operand<T, PARTS>::eight(x + row * H + i * 8, x_shape[0], (gk_long)GK_GROUPS_Y * H);
    GK_UNROLL for (int k = 0; k < 8; ++k) s += z[j].v[k] * z[j].v[k];
  }
}
{
constexpr int RED = NS;
//@include group_sum.h
}
s = gk_rsqrt(s / H + GK_FLOAT(XEPS));
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    const gk_fv<8> a = gk_load<8>(xw + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) z[j].v[k] = gk_round<T>(a.v[k] * gk_round<T>(z[j].v[k] * s));
  }
}
