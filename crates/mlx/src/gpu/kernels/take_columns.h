// y[r][j] = x[r][at[j]], and OTHER where at[j] is not below W. x [rows, W] floats, at [n] int, y [rows, n] float.
// groups (n / NT rounded up, rows), NT threads
const int j = GK_GROUP_X * NT + GK_TID, n = at_shape[0];
const gk_long row = GK_GROUP_Y;
if (j < n) {
  const int from = at[j];
  y[row * n + j] = from < W ? gk_f(x[row * W + from]) : GK_FLOAT(OTHER);
}
