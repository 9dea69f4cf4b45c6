// xIELU: above zero p x^2 + b x, below n (e^m - 1 - x) + b x with m the smaller of x and eps; p = softplus(alpha_p), b = beta,
// n = b + softplus(alpha_n). x (gk_operand), y [rows, F] of T; F a multiple of 8; the four numbers [1] float.
// groups (F / 8 / NT rounded up, rows), NT threads. Source: arXiv 2411.13010 section 3.
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < F / 8) {
  gk_fv<8> a = gk_operand<T, PARTS>::eight(x + row * F + i * 8, x_shape[0], (gk_long)GK_GROUPS_Y * F);
  const float ap = alpha_p[0], an = alpha_n[0], b = beta[0], most = eps[0];
  const float p = (ap > 0 ? ap : 0) + gk_log(1.0f + gk_exp(ap > 0 ? -ap : ap));
  const float n = b + (an > 0 ? an : 0) + gk_log(1.0f + gk_exp(an > 0 ? -an : an));
  GK_UNROLL for (int k = 0; k < 8; ++k) {
    const float v = a.v[k], m = v < most ? v : most;
    // Close to zero the difference of the exponential and one would lose its digits.
    const float less = m > -0.02f && m < 0.02f ? m * (1.0f + m * (0.5f + m * 0.16666667f)) : gk_exp(m) - 1.0f;
    a.v[k] = v > 0 ? p * v * v + b * v : n * (less - v) + b * v;
  }
  gk_store8<T>::at(y + row * F + i * 8, a);
}
