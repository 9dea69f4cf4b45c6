// CUDA of compute capability 9.0 alone: the product of wmm_grouped.h with packed weights, by warpgroups, of which each has 64 rows of w in registers.
// in:  x [rows, K] of TX in the order of lane_order.h, w [E, N, ..], ss and sb as in wmm.h, order [P] and starts [E + 1] int (expert_rows.h)
// out: y [P, N] of TO; the pair p reads row p / CHOSEN of x
// BITS, GROUP, FLOAT4 and WHOLE as in wmm_body.h. N a multiple of 64 WN (EVEN) or any: rows beyond the last are read as the last, and not written.
// K a multiple of 64. groups: any number, which take turns at tiles of 64 WN outputs of parts (grouped_turns.h)
// 4 WN + PRODUCERS simd groups; SHARED bytes of threadgroup memory
constexpr int TILE = 64 * WN, NP = PRODUCERS * 32, FREE = WN * 128 + NP, FULL = 128 + NP;
// [stage][64 k][row] of 128 bytes, in the order of gk_swizzled
constexpr int HALF = MT * 64;
static_assert(ST * 2 * HALF * 16 == SHARED && LAG <= ST - 2 && ST * (WN + 1) <= 15, "stages and their barriers");
GK_SHARED_LARGE(uint4, stage, ST * 2 * HALF);
// Barriers of a stage: one for all, behind which it is free, and one for each warpgroup, behind which it is full.
auto full = [](int step, int warpgroup) { return 1 + ST + step % ST * WN + warpgroup; };
auto free = [](int step) { return 1 + step % ST; };
const int K = x_shape[1], N = w_shape[1], tiles = (N + TILE - 1) / TILE, KU = WHOLE ? K / 256 : (K + 255) / 256;
GK_WAIT();                                                    // the pairs are sorted
//@include grouped_turns.h
int step = 0;
if (GK_SIMD >= 4 * WN) {
  gk_fewer_registers<LESS>();
  // A thread copies 16 bytes of every EACH rows, with another 16 of the next 64 k. Which row of x these are, the lanes of a simd group know together.
  constexpr int EACH = NP / 8;
  static_assert(MT * 8 == 8 * EACH, "a lane knows one row");
  const int id = GK_TID - WN * 128, first = id / 8, chunk = id % 8, lane = GK_LANE;
  auto arrive = [&](int step) {
    for (int i = 0; i < WN; ++i) gk_arrive<FULL>(full(step, i));
  };
  each_turn([&](int, int, int pair, int last) {
    const int p = pair + id / 32 * 4 + lane % 4 + lane / 4 * EACH;
    const int own = p < last ? order[p] / CHOSEN : -1;
    for (int k = chunk * 8; k < KU * 256; k += 128, ++step) {
      if (step >= ST) gk_join<FREE>(free(step));              // all have read what this stage held
      uint4* const to = stage + step % ST * 2 * HALF + first * 8 + (chunk ^ first % 8);
      GK_UNROLL for (int i = 0; i < 8; ++i) {
        const int row = gk_shfl(own, lane / 8 + 4 * i);
        const TX* const from = x + (row < 0 ? 0 : (gk_long)row * K + k);
        gk_copy16(to + i * EACH * 8, from, row >= 0 && (WHOLE || k < K));
        gk_copy16(to + HALF + i * EACH * 8, from + 64, row >= 0 && (WHOLE || k + 64 < K));
      }
      gk_commit();
      gk_wait<LAG>();
      gk_shared_written();
      if (step >= LAG) arrive(step - LAG);
    }
  });
  gk_wait<0>();
  gk_shared_written();
  for (int i = step < LAG ? 0 : step - LAG; i < step; ++i) arrive(i);
} else {
  gk_more_registers<MORE>();
  const int lane = GK_LANE, g = lane >> 2, t = lane & 3, simd = gk_shfl(GK_SIMD, 0);
  const gk_long RB = (gk_long)K * BITS / 8;                   // bytes of a row
  typedef gk_unit_scales<TX, GROUP, FLOAT4> Scales;
  typedef gk_codes<TX> Codes;
  typedef gk_pairs<TX> Pairs;
  const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::PAIR_MAGIC);
  each_turn([&](int expert, int output, int pair, int last) {
    const int n0 = output + simd * 16 + (g & ~1), u0 = 0, u1 = KU;
    auto w_row = [&](int row) {
      const int n = output + simd * 16 + row;
      return (gk_long)expert * N + (EVEN || n < N ? n : N - 1);
    };
    const char* const codes = (const char*)w + w_row(g) * RB + t * (BITS == 4 ? 8 : 16);
    const int below = EVEN ? 8 * (int)RB : (int)((w_row(g + 8) - w_row(g)) * RB);
    // Two pointers would need two more registers than there are.
    auto codes_of = [&](int k) { return codes + k * below; };
    auto stage_of = [&](int, int) { return step++; };
    auto is_behind = [&](int u, int half) { return u > 0 || half > 0; };
    const char* sp = Scales::row((t & 1) && !FLOAT4 ? sb : ss, w_row(g + (t & 2) * 4), K);
    auto columns = [&](int step, int i, int j) {
      return gk_further(gk_swizzled(stage + (step % ST * 2 + i / 2) * HALF, 128), (2 * (i % 2) + j) * 32);
    };
    auto multiply = [&](auto columns_of) {                    // of 8 pairs each
      constexpr int COLUMNS = decltype(columns_of)::COUNT;
      float acc[COLUMNS][4];
      GK_UNROLL for (int c = 0; c < COLUMNS; ++c) { acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0; }
      //@include wmm_codes.h
      weights(q[0], 0);
      sc[0] = Scales::template load<WHOLE>(sp, 0, K);
      //@include wmm_code_products.h
      gk_settled(acc);
      gk_arrive<FREE>(free(step - 1));
      //@include grouped_outputs.h
    };
    //@include grouped_columns.h
  });
}
