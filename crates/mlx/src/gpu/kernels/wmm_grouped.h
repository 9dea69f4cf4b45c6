// CUDA of compute capability 9.0 alone: products of many rows with the weights of the experts that were chosen for them, which are
// not packed, by warpgroups, of which each multiplies 64 rows of w. Both sides pass through stages as in wmm_dense.h.
// in:  x [rows, K] of TX, w [E, N, K] of TX, order [P] and starts [E + 1] int (expert_rows.h)
// out: y [P, N] of TO; the pair p reads row p / CHOSEN of x
// N a multiple of 64 WN (EVEN) or any: rows beyond the last are read as the last, and not written. K a multiple of 64.
// groups: any number, which take turns at tiles of 64 WN outputs of parts (grouped_turns.h)
// 4 WN + PRODUCERS simd groups; SHARED bytes of threadgroup memory
constexpr int TILE = 64 * WN, ROWS = TILE + 8 * MT, NP = PRODUCERS * 32, ALL = WN * 128 + NP;
static_assert(ST * ROWS * 128 == SHARED && LAG <= ST - 2 && 2 * ST <= 15, "stages and their barriers");
// [stage][row] of 128 bytes, in the order of gk_swizzled
constexpr int STAGE = ROWS * 8;
GK_SHARED_LARGE(uint4, stage, ST * STAGE);
auto full = [](int step) { return 1 + step % ST; };
auto free = [](int step) { return 1 + ST + step % ST; };
const int K = x_shape[1], N = w_shape[1], units = K / 64, tiles = (N + TILE - 1) / TILE;
GK_WAIT();                                                    // the pairs are sorted
//@include grouped_turns.h
int step = 0;
if (GK_SIMD >= 4 * WN) {
  // A thread copies 16 bytes of every EACH rows.
  constexpr int EACH = NP / 8;
  const int id = GK_TID - WN * 128, first = id / 8, chunk = id % 8;
  auto place = [&](int row) { return stage + step % ST * STAGE + row * 8 + (chunk ^ row % 8); };
  each_turn([&](int expert, int output, int pair, int last) {
    const int row = output + first;
    const TX* const of_expert = w + (gk_long)expert * N * K + chunk * 8;
    const TX* rows[MT * 8 / EACH];
    GK_UNROLL for (int i = 0; i < MT * 8 / EACH; ++i) {
      const int p = pair + first + i * EACH;
      rows[i] = x + (p < last ? (gk_long)(order[p] / CHOSEN) * K : 0) + chunk * 8;
    }
    for (int unit = 0; unit < units; ++unit, ++step) {
      if (step >= ST) gk_join<ALL>(free(step));               // all have read what this stage held
      GK_UNROLL for (int i = 0; i < TILE / EACH; ++i) {
        const int n = EVEN || row + i * EACH < N ? row + i * EACH : N - 1;
        gk_copy16_on(place(first + i * EACH), of_expert + (gk_long)n * K + unit * 64);
      }
      GK_UNROLL for (int i = 0; i < MT * 8 / EACH; ++i)
        gk_copy16(place(TILE + first + i * EACH), rows[i] + unit * 64, pair + first + i * EACH < last);
      gk_commit();
      gk_wait<LAG>();
      gk_shared_written();
      if (step >= LAG) gk_arrive<ALL>(full(step - LAG));
    }
  });
  gk_wait<0>();
  gk_shared_written();
  for (int i = step < LAG ? 0 : step - LAG; i < step; ++i) gk_arrive<ALL>(full(i));
} else {
  const int lane = GK_LANE, g = lane >> 2, t = lane & 3, simd = gk_shfl(GK_SIMD, 0);
  each_turn([&](int, int output, int pair, int last) {
    const int n0 = output + simd * 16 + (g & ~1);
    auto multiply = [&](auto columns_of) {                    // of 8 pairs each
      constexpr int COLUMNS = decltype(columns_of)::COUNT;
      //@include wmm_stages.h
      //@include grouped_outputs.h
    };
    //@include grouped_columns.h
  });
}
