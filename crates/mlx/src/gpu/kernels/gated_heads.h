// What a recurrence read, times silu of the gate, or its sigmoid with SIGMOID, of each head with its RMS norm before if NORM.
// in:  x [rows, H VD] float; gates [rows, _] of T, from GATE on; w [VD], floats (read if NORM)
// out: y [rows, H VD] of T
// groups (H / NS rounded up, rows), NS simd groups
const int lane = GK_LANE, h = GK_GROUP_X * NS + GK_SIMD, P = gates_shape[1];
const gk_long row = GK_GROUP_Y;
if (h < H) {
  const gk_long at = (row * H + h) * VD;
  float scale = 1;
  if (NORM) {
    float s = 0;
    for (int i = lane; i < VD; i += 32) s += x[at + i] * x[at + i];
    scale = gk_rsqrt(gk_sum(s) / VD + GK_FLOAT(EPS));
  }
  for (int i = lane; i < VD; i += 32) {
    const float gate = gk_f(gates[row * P + GATE + h * VD + i]);
    y[at + i] = gk_to<T>::of(x[at + i] * scale * (NORM ? gk_f(w[i]) : 1.0f) * (SIGMOID ? 1.0f : gate) / (1.0f + gk_exp(-gate)));
  }
}
