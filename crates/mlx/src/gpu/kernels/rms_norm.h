// y = rms_norm(x) * w. x [rows, H] of T, w [W, H] floats, of which row r has row r mod W; H a multiple of 8.
// One group of NS simd groups per row. groups (1, rows)
GK_SHARED(float, red, NS);
constexpr int V = H / 8, IT = (V + NS * 32 - 1) / (NS * 32);
const gk_long row = GK_GROUP_Y, w_row = W > 1 ? row % W : 0;
gk_fv<8> z[IT];
float s = 0;
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    z[j] = gk_load<8>(x + row * H + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) s += z[j].v[k] * z[j].v[k];
  }
}
//@include norm_tail.h
