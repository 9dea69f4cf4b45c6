// y = x + the row of bias that each row chose. x [rows, H] of T, chosen [rows] uint, bias [_, H] of T, y [rows, H] of T; H a multiple of
// 8. groups (H / 8 / NT rounded up, rows), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < H / 8) {
  gk_fv<8> a = gk_load<8>(x + row * H + i * 8);
  const gk_fv<8> b = gk_load<8>(bias + (gk_long)chosen[row] * H + i * 8);
  GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] += b.v[k];
  gk_store8<T>::at(y + row * H + i * 8, a);
}
