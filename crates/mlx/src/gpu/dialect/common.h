// Helpers written in the common dialect itself; they go behind either spelling of it.
template <typename T, int N> struct alignas(sizeof(T) * N) gk_vec { T v[N]; };
template <int N> struct gk_fv { float v[N]; };
template <int N, typename T> GK_FN gk_fv<N> gk_load(const GK_DEV T* p) {
  gk_vec<T, N> x = *reinterpret_cast<const GK_DEV gk_vec<T, N>*>(p);
  gk_fv<N> r;
  GK_UNROLL for (int i = 0; i < N; ++i) r.v[i] = gk_f(x.v[i]);
  return r;
}
// Eight floats come as two loads of 16 bytes.
template <> GK_FN gk_fv<8> gk_load<8, float>(const GK_DEV float* p) {
  gk_vec<float, 4> a = *reinterpret_cast<const GK_DEV gk_vec<float, 4>*>(p);
  gk_vec<float, 4> b = *reinterpret_cast<const GK_DEV gk_vec<float, 4>*>(p + 4);
  gk_fv<8> r;
  GK_UNROLL for (int i = 0; i < 4; ++i) { r.v[i] = a.v[i]; r.v[i + 4] = b.v[i]; }
  return r;
}
template <typename T> struct gk_store8 {
  static GK_FN void at(GK_DEV T* p, gk_fv<8> x) {
    gk_vec<T, 8> y;
    GK_UNROLL for (int i = 0; i < 8; ++i) y.v[i] = gk_to<T>::of(x.v[i]);
    *reinterpret_cast<GK_DEV gk_vec<T, 8>*>(p) = y;
  }
};
template <> struct gk_store8<float> {
  static GK_FN void at(GK_DEV float* p, gk_fv<8> x) {
    gk_vec<float, 4> a, b;
    GK_UNROLL for (int i = 0; i < 4; ++i) { a.v[i] = x.v[i]; b.v[i] = x.v[i + 4]; }
    *reinterpret_cast<GK_DEV gk_vec<float, 4>*>(p) = a;
    *reinterpret_cast<GK_DEV gk_vec<float, 4>*>(p + 4) = b;
  }
};
// x as a T holds it
template <typename T> GK_FN float gk_round(float x) { return gk_f(gk_to<T>::of(x)); }
// erf to 1.5e-7. Source: Abramowitz and Stegun 7.1.26; Metal has none.
GK_FN float gk_erf(float x) {
  const float a = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3275911f * a);
  const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float y = 1.0f - p * gk_exp(-a * a);
  return x < 0 ? -y : y;
}
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
