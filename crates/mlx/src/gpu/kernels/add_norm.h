// sum = r + term, y = rms_norm(sum) * w; term is x, FACTOR x if FACTORED, rms_norm(x) * xw if NORMED. x (gk_operand), r [rows, H] of T,
// w, xw [H] floats (xw read if NORMED); H a multiple of 8. One group of NS simd groups per row. groups (1, rows)
GK_SHARED(float, red, NORMED ? 2 * NS : NS);
constexpr int V = H / 8, IT = (V + NS * 32 - 1) / (NS * 32);
const gk_long row = GK_GROUP_Y, w_row = 0;
gk_fv<8> z[IT];
if (NORMED) {
//@include norm_term.h
}
float s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    const gk_fv<8> c = gk_load<8>(r + row * H + i * 8);
    gk_fv<8> a = z[j];
    if (!NORMED) a = gk_operand<T, PARTS>::eight(x + row * H + i * 8, x_shape[0], (gk_long)GK_GROUPS_Y * H);
    GK_UNROLL for (int k = 0; k < 8; ++k) {
      if (FACTORED) a.v[k] = gk_round<T>(gk_round<T>(GK_FLOAT(FACTOR)) * a.v[k]);
      z[j].v[k] = gk_round<T>(c.v[k] + a.v[k]);
      s += z[j].v[k] * z[j].v[k];
    }
    gk_store8<T>::at(sum + row * H + i * 8, z[j]);
  }
}
//@include norm_tail.h
