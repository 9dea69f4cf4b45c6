// sum = r + rms_norm(x) * xw. x (gk_operand), r [rows, H] of T, xw [H] floats; H a multiple of 8.
// One group of NS simd groups per row. groups (1, rows)
GK_SHARED(float, red, 2 * NS);
constexpr int V = H / 8, IT = (V + NS * 32 - 1) / (NS * 32);
const gk_long row = GK_GROUP_Y;
gk_fv<8> z[IT];
//@include norm_term.h
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    gk_fv<8> a = gk_load<8>(r + row * H + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] += z[j].v[k];
    gk_store8<T>::at(sum + row * H + i * 8, a);
  }
}
