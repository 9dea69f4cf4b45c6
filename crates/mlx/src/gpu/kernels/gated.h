// y = act(gate) * up. gate, up: row r begins at r * STRIDE, up's UP elements later (both may be one array); y [rows, F]
// of T; F a multiple of 8; both may be parts (gk_operand). ACT 0 silu, 1 gelu, 2 gelu with tanh, 3 sigmoid.
// groups (F / 8 / NT rounded up, rows), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < F / 8) {
  const int parts = gate_shape[0];
  const gk_long all = (gk_long)GK_GROUPS_Y * STRIDE;
  gk_fv<8> a = gk_operand<T, PARTS>::eight(gate + row * STRIDE + i * 8, parts, all);
  const gk_fv<8> c = gk_operand<T, PARTS>::eight(up + row * STRIDE + UP + i * 8, parts, all);
  GK_UNROLL for (int k = 0; k < 8; ++k) {
    const float x = a.v[k];
    float f;
    if (ACT == 0) f = x / (1.0f + gk_exp(-x));
    else if (ACT == 1) f = 0.5f * x * (1.0f + gk_erf(x * 0.70710678f));
    else if (ACT == 2) {  // x * sigmoid(2 z) is 0.5 x (1 + tanh(z))
      const float z = 0.79788456f * (x + 0.044715f * x * x * x);
      f = x / (1.0f + gk_exp(-2.0f * z));
    } else f = 1.0f / (1.0f + gk_exp(-x));
    a.v[k] = gk_round<T>(f) * c.v[k];
  }
  gk_store8<T>::at(y + row * F + i * 8, a);
}
