// y = the sum of a row's TOPK parts, each times its weight. x [rows TOPK, H] of T, weights [rows, TOPK] float,
// y [rows, H] of T; H a multiple of 8. groups (H / 8 / NT rounded up, rows), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < H / 8) {
  gk_fv<8> s;
  GK_UNROLL for (int k = 0; k < 8; ++k) s.v[k] = 0;
  for (int j = 0; j < TOPK; ++j) {
    const float w = weights[row * TOPK + j];
    const gk_fv<8> a = gk_load<8>(x + (row * TOPK + j) * H + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) s.v[k] += w * a.v[k];
  }
  gk_store8<T>::at(y + row * H + i * 8, s);
}
