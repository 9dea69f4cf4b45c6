// Mamba's recurrence, a row after the other, whose state is N numbers for each channel, of which L lanes hold four each:
// S = e^(dt rate) S + dt x w; y = S r + skip x.
// in:  x [rows, C], dt [rows, C], writes w and reads r [rows, N], floats; rate [C, N], skip [C] float; runs int (runs.h);
//      pool [slots, C, N] float: WRITTEN although an input
// out: y [rows, C] of T
// groups (C / (32 / L NS) rounded up, RUNS), NS simd groups; L is N / 4, a power of two up to 32
// Source: arXiv 2312.00752 section 3.
constexpr int L = N / 4;
const int RUN = GK_GROUP_Y, RUNS = GK_GROUPS_Y;
//@include runs.h
const int lane = GK_LANE, sub = lane % L, c = (GK_GROUP_X * NS + GK_SIMD) * (32 / L) + lane / L;
const bool on = c < C;
if (idle) {
  for (int r = first; r < first + length; ++r)
    if (on && sub == 0) y[(gk_long)r * C + c] = gk_to<T>::of(0);
} else {
  gk_fv<4> s, a;
  GK_UNROLL for (int i = 0; i < 4; ++i) s.v[i] = a.v[i] = 0;
  if (on) a = gk_load<4>(rate + (gk_long)c * N + sub * 4);
  if (on && from >= 0) s = gk_load<4>(pool + ((gk_long)from * C + c) * N + sub * 4);
  const float through = on ? skip[c] : 0;
  int row = first;
  for (int r = RUN; r <= LAST; ++r) {
    for (const int end = row + runs[r * 4 + 1]; row < end; ++row) {
      const float value = on ? gk_f(x[(gk_long)row * C + c]) : 0, step = on ? gk_f(dt[(gk_long)row * C + c]) : 0;
      const gk_fv<4> w = gk_load<4>(writes + (gk_long)row * N + sub * 4), q = gk_load<4>(reads + (gk_long)row * N + sub * 4);
      float read = 0;
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        s.v[i] = gk_exp(step * a.v[i]) * s.v[i] + step * value * w.v[i];
        read += s.v[i] * q.v[i];
      }
      GK_UNROLL for (int o = 1; o < L; o <<= 1) read += gk_shfl_xor(read, o);
      if (on && sub == 0) y[(gk_long)row * C + c] = gk_to<T>::of(read + through * value);
    }
    gk_vec<float, 4> out;
    GK_UNROLL for (int i = 0; i < 4; ++i) out.v[i] = s.v[i];
    const gk_long at = ((gk_long)runs[r * 4 + 2] * C + c) * N + sub * 4;
    if (on) gk_write(GK_WRITABLE(float, pool) + at, out);
  }
}
