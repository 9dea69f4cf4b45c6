// y = r + x, with GATE r + sigmoid(z) x for one z per row, with SCALE (r + x) z for one z, with SAME the same x for all rows. r [rows, H] of T,
// x [rows, H] or [H] of T, z [rows] or [1] of T (read if GATE or SCALE), y [rows, H] of T; H a multiple of 8. groups (H / 8 / NT rounded up, rows), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < H / 8) {
  const float scale = GATE ? gk_round<T>(1.0f / (1.0f + gk_exp(-gk_f(z[row])))) : 1.0f;
  gk_fv<8> a = gk_load<8>(r + row * H + i * 8);
  const gk_fv<8> b = gk_load<8>(x + (SAME ? 0 : row * H) + i * 8);
  GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] += gk_round<T>(scale * b.v[k]);
  if (SCALE) { GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] = gk_round<T>(a.v[k]) * gk_f(z[0]); }
  gk_store8<T>::at(y + row * H + i * 8, a);
}
