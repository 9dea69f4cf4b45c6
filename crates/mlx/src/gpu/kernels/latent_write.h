// The norm of latents, the rotation of the keys beside them and of the last part of each query head, and the write of latents
// and keys into their blocks, in place.
// in:  q [rows, HQ (N + RD)] of T; kv [rows, L + RD] of T; w [L] floats; freq [RD / 2] float, radians per position;
//      pos, slot [rows or more] int (below zero: not written); lpool [blocks, block size, 1, L], kpool [.., RD] of TP:
//      WRITTEN although inputs
// out: turned [rows, HQ, RD] of T: what reads the pools next must read turned, too, which is the dependency;
//      counter [rows * HK] uint: zeros, which the attention kernel counts with
// One simd group per query head of a row, and one for its latent and key. groups ((HQ + 1) / NS rounded up, rows), NS simd
// groups
constexpr int PAIRS = RD / 2, PER = (PAIRS + 31) / 32;
const int lane = GK_LANE, row = GK_GROUP_Y, h = GK_GROUP_X * NS + GK_SIMD;
if (h <= HQ) {
  const bool query = h < HQ;
  const GK_DEV T* x = query ? q + ((gk_long)row * HQ + h) * (N + RD) + N : kv + (gk_long)row * (L + RD) + L;
  const gk_long at = slot[row];
  GK_DEV TP* key = GK_WRITABLE(TP, kpool) + (at > 0 ? at * RD : 0);
  const float position = (float)pos[row];
  GK_UNROLL for (int j = 0; j < PER; ++j) {
    const int p = lane + 32 * j;
    if (p < PAIRS) {
      const int i0 = INTERLEAVED ? 2 * p : p, i1 = INTERLEAVED ? 2 * p + 1 : p + PAIRS;
      const float angle = TURNS ? position * gk_f(freq[p]) : 0, a = gk_f(x[i0]), b = gk_f(x[i1]);
      const float c = TURNS ? gk_cos(angle) * GK_FLOAT(MAGNITUDE) : 1, s = TURNS ? gk_sin(angle) * GK_FLOAT(MAGNITUDE) : 0;
      if (query) {
        turned[((gk_long)row * HQ + h) * RD + i0] = gk_to<T>::of(a * c - b * s);
        turned[((gk_long)row * HQ + h) * RD + i1] = gk_to<T>::of(a * s + b * c);
      } else if (at >= 0) {
        key[i0] = gk_to<TP>::of(gk_round<T>(a * c - b * s));
        key[i1] = gk_to<TP>::of(gk_round<T>(a * s + b * c));
      }
    }
  }
  if (!query) {
    const GK_DEV T* from = kv + (gk_long)row * (L + RD);
    GK_DEV TP* latent = GK_WRITABLE(TP, lpool) + (at > 0 ? at * L : 0);
    float sum = 0;
    for (int i = lane; i < L; i += 32) { const float v = gk_f(from[i]); sum += v * v; }
    sum = gk_rsqrt(gk_sum(sum) / L + GK_FLOAT(EPS));
    if (at >= 0) {
      for (int i = lane; i < L; i += 32) {
        const float v = gk_round<T>(gk_round<T>(gk_f(from[i]) * sum) * gk_f(w[i]));
        latent[i] = gk_to<TP>::of(gk_round<T>(v * GK_FLOAT(FACTOR)));
      }
    }
  }
  if (h < HK && lane == 0) counter[row * HK + h] = 0;
}
