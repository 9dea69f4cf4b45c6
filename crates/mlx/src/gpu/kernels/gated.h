// y = act(gate) * up, or act(gate) if ALONE. gate, up: row r begins at r * STRIDE, up's UP elements later (both may be one
// array; up is not read if ALONE); y [rows, F] of T; F a multiple of 8; both may be parts (gk_operand). ACT 0 silu, 1 gelu, 2 gelu
// with tanh, 3 sigmoid, 4 relu, 5 squared relu, 6 x sigmoid(ALPHA x), 7 ALPHA x; with up within LIMIT: 8 silu, at most
// LIMIT, 9 silu of at most LIMIT, 10 x sigmoid(ALPHA x) (1 + up) with x at most LIMIT.
// groups (F / 8 / NT rounded up, rows), NT threads
constexpr bool LIMITED = ACT >= 8;
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < F / 8) {
  const int parts = gate_shape[0];
  const gk_long all = (gk_long)GK_GROUPS_Y * STRIDE;
  const float limit = GK_FLOAT(LIMIT), alpha = GK_FLOAT(ALPHA);
  gk_fv<8> a = gk_operand<T, PARTS>::eight(gate + row * STRIDE + i * 8, parts, all);
  gk_fv<8> c = a;
  if (!ALONE) c = gk_operand<T, PARTS>::eight(up + row * STRIDE + UP + i * 8, parts, all);
  GK_UNROLL for (int k = 0; k < 8; ++k) {
    float x = a.v[k], u = c.v[k];
    if (LIMITED) u = u > limit ? limit : u < -limit ? -limit : u;
    if (ACT >= 9) x = x > limit ? limit : x;
    float f;
    if (ACT == 0 || ACT == 8 || ACT == 9) f = x / (1.0f + gk_exp(-x));
    else if (ACT == 1) f = 0.5f * x * (1.0f + gk_erf(x * 0.70710678f));
    else if (ACT == 2) {  // x * sigmoid(2 z) is 0.5 x (1 + tanh(z))
      const float z = 0.79788456f * (x + 0.044715f * x * x * x);
      f = x / (1.0f + gk_exp(-2.0f * z));
    } else if (ACT == 3) f = 1.0f / (1.0f + gk_exp(-x));
    else if (ACT == 4) f = x < 0 ? 0 : x;
    else if (ACT == 5) f = x < 0 ? 0 : x * x;
    else if (ACT == 7) f = gk_round<T>(alpha) * x;
    else f = x / (1.0f + gk_exp(-alpha * x));
    if (ACT == 8) f = f > limit ? limit : f;
    if (ACT == 10) u = gk_round<T>(u + 1.0f);
    a.v[k] = ALONE ? f : gk_round<T>(f) * u;
  }
  gk_store8<T>::at(y + row * F + i * 8, a);
}
