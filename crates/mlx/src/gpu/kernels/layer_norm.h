// y = (x - mean) / sqrt(variance + EPS) * w + b. x [rows, H] of T, w and b [H] floats (b read if BIAS); H a multiple of 8.
// One group of NS simd groups per row. groups (1, rows)
GK_SHARED(float, red, 2 * NS);
constexpr int V = H / 8, IT = (V + NS * 32 - 1) / (NS * 32);
const gk_long row = GK_GROUP_Y;
gk_fv<8> z[IT];
float s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    z[j] = gk_load<8>(x + row * H + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) s += z[j].v[k];
  }
}
{
constexpr int RED = 0;
//@include group_sum.h
}
const float mean = s / H;
s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  if (j * NS * 32 + GK_TID < V) {
    GK_UNROLL for (int k = 0; k < 8; ++k) {
      z[j].v[k] -= mean;
      s += z[j].v[k] * z[j].v[k];
    }
  }
}
{
constexpr int RED = NS;
//@include group_sum.h
}
s = gk_rsqrt(s / H + GK_FLOAT(EPS));
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    gk_fv<8> a = gk_load<8>(w + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] *= z[j].v[k] * s;
    if (BIAS) {
      const gk_fv<8> c = gk_load<8>(b + i * 8);
      GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] += c.v[k];
    }
    gk_store8<T>::at(y + row * H + i * 8, a);
  }
}
