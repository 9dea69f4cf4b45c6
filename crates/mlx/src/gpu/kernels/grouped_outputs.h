// Writes acc [COLUMNS][4], by a warpgroup: outputs from n0 on, which is the even one of g and g ^ 1, of the pairs from `pair` up to `last`.
struct alignas(2 * sizeof(TO)) Two { TO first, second; };       // are written at once
// A lane has outputs g and g + 8 of two pairs. Of these two it takes one, with output g ^ 1 from its neighbour.
GK_UNROLL for (int c = 0; c < COLUMNS; ++c) {
  const int p = pair + c * 8 + t * 2 + (g & 1);
  TO* const to = y + (p < last ? (gk_long)order[p] * N : 0);
  GK_UNROLL for (int i = 0; i < 2; ++i) {
    const float low = acc[c][2 * i], high = acc[c][2 * i + 1], other = gk_shfl_xor(g & 1 ? low : high, 4);
    const TO first = gk_to<TO>::of(g & 1 ? other : low), second = gk_to<TO>::of(g & 1 ? high : other);
    const int n = n0 + i * 8;
    if (p >= last) continue;
    if (EVEN) *(Two*)(to + n) = {first, second};
    if (!EVEN && n < N) to[n] = first;
    if (!EVEN && n + 1 < N) to[n + 1] = second;
  }
}
