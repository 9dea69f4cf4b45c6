// y = x * act(gate of the head), act the sigmoid, or softplus if SOFTPLUS. x [rows, H D] of T, gate [rows, H] of T, y [rows, H D] of T; D a
// multiple of 8. groups (H D / 8 / NT rounded up, rows), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < H * D / 8) {
  gk_fv<8> a = gk_load<8>(x + row * H * D + i * 8);
  const float z = gk_f(gate[row * H + i * 8 / D]), e = gk_exp(z > 0 ? -z : z);
  const float f = gk_round<T>(SOFTPLUS ? (z > 0 ? z : 0) + gk_log(1.0f + e) : (z > 0 ? 1.0f : e) / (1.0f + e));
  GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] *= f;
  gk_store8<T>::at(y + row * H * D + i * 8, a);
}
