// The results that groups left in part, added up by the last of them. A simd group has up to 128 dimensions of a row, or shares
// them with others; it reads what sixteen groups left at once, with the largest scores and the weights.
#ifdef GK_FUSED
if (GK_GROUPS_X > 1) {
  GK_SHARED(int, last, 1);
  GK_BARRIER();                                               // all have written; what one thread fences is what it has seen
  if (GK_TID == 0) {
    GK_FENCE();
    last[0] = gk_atomic_inc(GK_WRITABLE(gk_uint, counter) + ITEM * HK + hk, GK_GROUPS_X - 1) == (gk_uint)(GK_GROUPS_X - 1);
    GK_FENCE();
  }
  GK_BARRIER();
  if (last[0] == 1) {
    constexpr int PIECES = R * DS;                            // of rows
    constexpr int SHARE = NS >= 2 * PIECES ? NS / PIECES : 1, LANES = DO / 4, SIDES = 32 / LANES, BATCH = 16;
    const int side = GK_LANE / LANES, share = SHARE > 1 ? GK_SIMD / PIECES : 0;
    const float* p = part + ((gk_long)ITEM * HK + hk) * GK_GROUPS_X * R * RS;
    const int j0 = GK_GROUPS_X * share / SHARE, j1 = GK_GROUPS_X * (share + 1) / SHARE;
    for (int piece = SHARE > 1 ? GK_SIMD % PIECES : GK_SIMD; piece < PIECES && share < SHARE; piece += NS) {
      const int r = piece / DS, e = piece % DS * DO + GK_LANE % LANES * 4;
      float top = -1e30f, w = 0, x[4] = {0, 0, 0, 0};
      for (int from = j0; from < j1; from += BATCH * SIDES) {
        gk_vec<float, 2> n = {{-1e30f, 0}};                   // a lane has those of one group
        gk_vec<float, 4> v[BATCH];
        if (GK_LANE < BATCH * SIDES && from + GK_LANE < j1)
          n = *reinterpret_cast<const gk_vec<float, 2>*>(p + ((gk_long)(from + GK_LANE) * R + r) * RS + D);
        GK_UNROLL for (int i = 0; i < BATCH; ++i) {
          const int j = from + i * SIDES + side;
          v[i] = gk_vec<float, 4>{{0, 0, 0, 0}};
          if (j < j1) v[i] = *reinterpret_cast<const gk_vec<float, 4>*>(p + ((gk_long)j * R + r) * RS + e);
        }
        float most = n.v[0] > top ? n.v[0] : top;
        GK_UNROLL for (int d = 1; d < 32; d <<= 1) { const float y = gk_shfl_xor(most, d); most = y > most ? y : most; }
        const float old = gk_exp2(top - most), a = gk_exp2(n.v[0] - most);
        w = w * old + gk_sum(a * n.v[1]);
        GK_UNROLL for (int k = 0; k < 4; ++k) x[k] *= old;
        GK_UNROLL for (int i = 0; i < BATCH; ++i) {
          const float b = gk_shfl(a, i * SIDES + side);
          GK_UNROLL for (int k = 0; k < 4; ++k) x[k] += b * v[i].v[k];
        }
        top = most;
      }
      if (SIDES == 2) { GK_UNROLL for (int k = 0; k < 4; ++k) x[k] += gk_shfl_xor(x[k], 16); }
      if (SHARE > 1) {
        float* to = red + (share * R + r) * RS;
        if (side == 0) *reinterpret_cast<gk_vec<float, 4>*>(to + e) = gk_vec<float, 4>{{x[0], x[1], x[2], x[3]}};
        if (GK_LANE == 0) { to[D] = top; to[D + 1] = w; }
      } else if (side == 0) {
//@include attn_mma_out.h
      }
    }
    if (SHARE > 1) {
      GK_BARRIER();
      for (int i = GK_TID; i < R * D / 4; i += NS * 32) {
        constexpr int SHARES = SHARE;
//@include attn_mma_sum.h
//@include attn_mma_out.h
      }
    }
  }
}
#endif
