// sum = r + x, y = rms_norm(sum) * w. x (gk_operand), r [rows, H] of T, w [H] floats; H a multiple of 8.
// One group of NS simd groups per row. groups (1, rows)
GK_SHARED(float, red, NS);
constexpr int V = H / 8, IT = (V + NS * 32 - 1) / (NS * 32);
const gk_long row = GK_GROUP_Y, w_row = 0;
gk_fv<8> z[IT];
float s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    z[j] = gk_load<8>(r + row * H + i * 8);
    const gk_fv<8> a = gk_operand<T, PARTS>::eight(x + row * H + i * 8, x_shape[0], (gk_long)GK_GROUPS_Y * H);
    GK_UNROLL for (int k = 0; k < 8; ++k) {
      z[j].v[k] = gk_round<T>(z[j].v[k] + a.v[k]);
      s += z[j].v[k] * z[j].v[k];
    }
    gk_store8<T>::at(sum + row * H + i * 8, z[j]);
  }
}
//@include norm_tail.h
