// acc [COLUMNS][4] += 64 rows of packed weights times COLUMNS tiles of 8 rows of x, by a warpgroup, for units u0 to u1 of 256 k. The weights
// become TX in registers; x passes through stages of 128 k, in the order in which lanes take k (lane_order.h).
// What includes it has q[0] and sc[0] of the unit u0 (wmm_codes.h); sp, where a lane's scales or biases begin; stage_of(u, half), the number of the
// stage with half of a unit; is_behind(u, half), whether it is not the first; columns(step, i, j), where product j of the 32 k at i of a stage finds x; barriers free(step) of FREE threads
// and full(step, warpgroup) of FULL; mask, magic, lane, g and t.
gk_uint a[2][2][4], s0, s1, b0, b1;                           // scales and biases of rows g and g + 8
for (int pair = u0; pair < u1; pair += 2) {
  GK_UNROLL for (int odd = 0; odd < 2; ++odd) {
    const int u = pair + odd;
    if (u >= u1) break;
    if (u + 1 < u1) sc[1 - odd] = Scales::template load<WHOLE>(sp, u + 1, K);
    GK_UNROLL for (int half = 0; half < 2; ++half) {            // stages
      const int step = stage_of(u, half);
      GK_UNROLL for (int i = 0; i < 4; ++i) {                   // 32 k: two products, prepared while the two before them run
        const int quarter = half * 2 + i / 2, at = quarter % QUARTERS;
        const int now = BITS == 4 ? odd : half;
        if (i == 0 && at == 0) {
          const int next = (u * 4 + quarter) / QUARTERS + 1;
          if (next * QUARTERS < u1 * 4) weights(q[1 - now], next);
        }
        // Of 64 k, lanes 0 and 1 have the first group of 32, lanes 2 and 3 the second.
        if (i % 2 == 0) {
          const gk_uint low = sc[odd].pair(quarter * 64 / GROUP), high = GROUP == 32 ? sc[odd].pair(quarter * 2 + 1) : low;
          const auto of_row = [&](int lane) {
            const gk_uint v = gk_shfl(low, lane), w = GROUP == 32 ? gk_shfl(high, lane) : v;
            return t < 2 ? v : w;
          };
          s0 = of_row(g * 4);
          s1 = of_row(g * 4 + 2);
          b0 = FLOAT4 ? 0 : of_row(g * 4 + 1);
          b1 = FLOAT4 ? 0 : of_row(g * 4 + 3);
        }
        gk_warpgroup_wait<1>();                                 // the products that read these registers are done
        if (i == 1 && is_behind(u, half)) gk_arrive<FREE>(free(step - 1));  // so are those of the stage before
        GK_UNROLL for (int j = 0; j < 2; ++j)
          GK_UNROLL for (int e = 0; e < 2; ++e) {               // elements of B's first and second chunk
            gk_uint* to = a[i & 1][j] + 2 * e;
            if (BITS == 4) {
              const int word = 2 * at + (i & 1), shift = 8 * j + 4 * e;
              to[0] = FLOAT4 ? Pairs::times(Codes::floats(q[now][0][word] >> shift), s0) : gk_affine2<TX>(gk_nibbles(q[now][0][word] >> shift, mask, magic), s0, b0);
              to[1] = FLOAT4 ? Pairs::times(Codes::floats(q[now][1][word] >> shift), s1) : gk_affine2<TX>(gk_nibbles(q[now][1][word] >> shift, mask, magic), s1, b1);
            } else {
              const int word = 4 * at + 2 * (i & 1) + j;
              to[0] = Pairs::fma(Codes::eight_itself(q[now][0][word], 2 * e), s0, b0);
              to[1] = Pairs::fma(Codes::eight_itself(q[now][1][word], 2 * e), s1, b1);
            }
          }
        if (i == 0) gk_join<FULL>(full(step, GK_SIMD / 4));
        gk_warpgroup_begin();
        GK_UNROLL for (int j = 0; j < 2; ++j)
          gk_warpgroup<TX, COLUMNS>::mma(acc, a[i & 1][j], columns(step, i, j));
        gk_warpgroup_commit();
      }
    }
  }
}
gk_warpgroup_wait<0>();
