// Helpers written in the common dialect itself; they go behind either spelling of it.
template <typename T, int N> struct alignas(sizeof(T) * N) gk_vec { T v[N]; };
template <int N> struct gk_fv { float v[N]; };
// A structure in device memory.
template <typename V, typename T> GK_FN V gk_read(const GK_DEV T* p) { return *reinterpret_cast<const GK_DEV V*>(p); }
template <typename V, typename T> GK_FN void gk_write(GK_DEV T* p, V x) { *reinterpret_cast<GK_DEV V*>(p) = x; }
template <int N, typename T> GK_FN gk_fv<N> gk_load(const GK_DEV T* p) {
  const gk_vec<T, N> x = gk_read<gk_vec<T, N>>(p);
  gk_fv<N> r;
  GK_UNROLL for (int i = 0; i < N; ++i) r.v[i] = gk_f(x.v[i]);
  return r;
}
// Eight floats come as two loads of 16 bytes.
template <> GK_FN gk_fv<8> gk_load<8, float>(const GK_DEV float* p) {
  const gk_vec<float, 4> a = gk_read<gk_vec<float, 4>>(p), b = gk_read<gk_vec<float, 4>>(p + 4);
  gk_fv<8> r;
  GK_UNROLL for (int i = 0; i < 4; ++i) { r.v[i] = a.v[i]; r.v[i + 4] = b.v[i]; }
  return r;
}
template <typename T> struct gk_store8 {
  static GK_FN void at(GK_DEV T* p, gk_fv<8> x) {
    gk_vec<T, 8> y;
    GK_UNROLL for (int i = 0; i < 8; ++i) y.v[i] = gk_to<T>::of(x.v[i]);
    gk_write(p, y);
  }
};
template <> struct gk_store8<float> {
  static GK_FN void at(GK_DEV float* p, gk_fv<8> x) {
    gk_vec<float, 4> a, b;
    GK_UNROLL for (int i = 0; i < 4; ++i) { a.v[i] = x.v[i]; b.v[i] = x.v[i + 4]; }
    gk_write(p, a);
    gk_write(p + 4, b);
  }
};
// x as a T holds it
template <typename T> GK_FN float gk_round(float x) { return gk_f(gk_to<T>::of(x)); }
// A number as the type of an argument.
template <int N> struct gk_count { static constexpr int COUNT = N; };
