// Products of simdgroup matrices, 8 x 8 floats, for Metal alone: behind common.h. A lane holds two neighbours of a row. Apple does
// not say which; MLX's own kernels rely on the same places.
#ifndef GK_EMU
#include <metal_simdgroup_matrix>
#endif
GK_FN int gk_matrix_row(int lane) { return (lane & 16) / 4 + (lane / 2 & 3); }
GK_FN int gk_matrix_column(int lane) { return (lane & 8) / 2 + (lane & 1) * 2; }
// a b + c
GK_FN gk_fv<2> gk_multiply(gk_fv<2> a, gk_fv<2> b, gk_fv<2> c) {
  simdgroup_matrix<float, 8, 8> left, right, sum;
  GK_UNROLL for (int i = 0; i < 2; ++i) {
    left.thread_elements()[i] = a.v[i];
    right.thread_elements()[i] = b.v[i];
    sum.thread_elements()[i] = c.v[i];
  }
  simdgroup_multiply_accumulate(sum, left, right, sum);
  return gk_fv<2>{{sum.thread_elements()[0], sum.thread_elements()[1]}};
}
// A structure in threadgroup memory.
template <typename V, typename T> GK_FN V gk_read_shared(const GK_TGP T* p) { return *reinterpret_cast<const GK_TGP V*>(p); }
template <typename V, typename T> GK_FN void gk_write_shared(GK_TGP T* p, V x) { *reinterpret_cast<GK_TGP V*>(p) = x; }
// Two neighbours in threadgroup memory, and two that are `pitch` apart.
template <typename T> GK_FN gk_fv<2> gk_pair(const GK_TGP T* p) {
  const gk_vec<T, 2> x = gk_read_shared<gk_vec<T, 2>>(p);
  return gk_fv<2>{{gk_f(x.v[0]), gk_f(x.v[1])}};
}
template <typename T> GK_FN gk_fv<2> gk_pair(const GK_TGP T* p, int pitch) { return gk_fv<2>{{gk_f(p[0]), gk_f(p[pitch])}}; }
// Eight numbers to threadgroup memory.
template <typename T> GK_FN void gk_put8(GK_TGP T* p, gk_fv<8> x) {
  GK_UNROLL for (int h = 0; h < 8; h += 4) {
    gk_vec<T, 4> y;
    GK_UNROLL for (int i = 0; i < 4; ++i) y.v[i] = gk_to<T>::of(x.v[h + i]);
    gk_write_shared(p + h, y);
  }
}
