// How much of a state each channel of a key keeps, e^(-e^a softplus(x + bias)), or e^(BOUND sigmoid(e^a (x + bias))) with BOUNDED.
// x [rows, H KD] of T (gk_operand); a_log [H], bias [H KD] float; y [rows, H KD] float; KD a multiple of 8.
// groups (rows, H KD / 8 / NT rounded up), NT threads. Source: arXiv 2510.26692 section 3.
const int i = GK_GROUP_Y * NT + GK_TID;
const gk_long row = GK_GROUP_X;
constexpr int F = H * KD;
if (i < F / 8) {
  gk_fv<8> a = gk_operand<T, PARTS>::eight(x + row * F + i * 8, x_shape[0], (gk_long)GK_GROUPS_X * F);
  const gk_fv<8> b = gk_load<8>(bias + i * 8);
  const float rate = gk_exp(a_log[i * 8 / KD]);
  GK_UNROLL for (int k = 0; k < 8; ++k) {
    const float v = a.v[k] + b.v[k];
    if (BOUNDED) {
      a.v[k] = gk_exp(GK_FLOAT(BOUND) / (1.0f + gk_exp(-rate * v)));
    } else {
      const float step = v > 15.0f ? v : v < -15.0f ? gk_exp(v) : gk_log(1.0f + gk_exp(v));
      a.v[k] = gk_exp(-rate * step);
    }
  }
  gk_store8<float>::at(y + row * F + i * 8, a);
}
