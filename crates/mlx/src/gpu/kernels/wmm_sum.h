// The partial products of a split matmul, added up and rounded once. x [SPLITS, M, N] float, y [M, N] of T; N a multiple
// of 8. groups (M N / 8 / 128 rounded up), 128 threads
const int splits = x_shape[0];
const gk_long all = (gk_long)x_shape[1] * x_shape[2], at = ((gk_long)GK_GROUP_X * 128 + GK_TID) * 8;
if (at < all) {
  gk_fv<8> s = gk_load<8>(x + at);
  for (int j = 1; j < splits; ++j) {
    const gk_fv<8> a = gk_load<8>(x + j * all + at);
    GK_UNROLL for (int k = 0; k < 8; ++k) s.v[k] += a.v[k];
  }
  gk_store8<T>::at(y + at, s);
}
