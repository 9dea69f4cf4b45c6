// RMS norm of a head of queries or keys, whose pairs are in a and b.
float s = 0;
GK_UNROLL for (int j = 0; j < PER; ++j) s += a[j] * a[j] + b[j] * b[j];
s = gk_rsqrt(gk_sum(s) / D + GK_FLOAT(EPS));
GK_UNROLL for (int j = 0; j < PER; ++j) {
  const int p = lane + 32 * j;
  const bool near = INTERLEAVED || p >= R / 2;
  const int i0 = near ? 2 * p : p, i1 = near ? 2 * p + 1 : p + R / 2;
  if (p < PAIRS) {
    a[j] = gk_round<T>(gk_round<T>(a[j] * s) * (h < HQ ? gk_f(qw[i0]) : gk_f(kw[i0])));
    b[j] = gk_round<T>(gk_round<T>(b[j] * s) * (h < HQ ? gk_f(qw[i1]) : gk_f(kw[i1])));
  }
}
