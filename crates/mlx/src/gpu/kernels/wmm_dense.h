// CUDA of compute capability 9.0 alone: the product of wmm.h for an even MT from 4 to 16 and weights that are not packed, of 8 MT rows of x, by
// warpgroups, of which each multiplies 64 rows of w. Both sides pass through ST stages of 64 k, which PRODUCERS simd groups
// copy: 64 WN rows of w, then 8 MT rows of x. Groups take turns at tiles of 64 WN rows, while their stages run on. The grid splits k.
// LAG: stages that a producer has on its way before it waits for one, at least two fewer than there are: a consumer releases
// its last but one.
// N a multiple of 64 WN (EVEN) or any: rows beyond the last are read as the last, and not written. K a multiple of 64.
// groups (any number, SPLITS, blocks of rows of x), 4 WN + PRODUCERS simd groups, SHARED bytes of threadgroup memory
constexpr int TILE = 64 * WN, ROWS = TILE + 8 * MT, NP = PRODUCERS * 32, ALL = WN * 128 + NP;
static_assert(ST * ROWS * 128 == SHARED && LAG <= ST - 2 && 2 * ST <= 15, "stages and their barriers");
// [stage][row] of 128 bytes, in the order of gk_swizzled
constexpr int STAGE = ROWS * 8;
GK_SHARED_LARGE(uint4, stage, ST * STAGE);
auto full = [](int step) { return 1 + step % ST; };
auto free = [](int step) { return 1 + ST + step % ST; };
const int M = x_shape[0], M0 = GK_GROUP_Z * 8 * MT, K = x_shape[1], N = w_shape[0], KU = K / 64;
auto biased = [&](float v, int n) { return BIASED && GK_GROUP_Y == 0 ? v + gk_f(bias[n]) : v; };
const int u0 = KU * GK_GROUP_Y / GK_GROUPS_Y, units = KU * (GK_GROUP_Y + 1) / GK_GROUPS_Y - u0;
const int tiles = (N + TILE - 1) / TILE, turns = (tiles - GK_GROUP_X + GK_GROUPS_X - 1) / GK_GROUPS_X;
if (GK_SIMD >= 4 * WN) {
  // A thread copies 16 bytes of every EACH rows.
  constexpr int EACH = NP / 8;
  static_assert(MT * 8 % EACH == 0 && TILE % EACH == 0, "rows are copied by whole turns");
  const int id = GK_TID - WN * 128, first = id / 8, chunk = id % 8, steps = turns * units;
  auto place = [&](int step, int row) { return stage + step % ST * STAGE + row * 8 + (chunk ^ row % 8); };
  auto copy_w = [&](int step) {
    const int row = (GK_GROUP_X + step / units * GK_GROUPS_X) * TILE + first;
    const TX* from = w + (gk_long)row * K + (u0 + step % units) * 64 + chunk * 8;
    GK_UNROLL for (int i = 0; i < TILE / EACH; ++i) {
      const int behind = EVEN || row + i * EACH < N ? i * EACH : N - 1 - row;
      gk_copy16_on(place(step, first + i * EACH), from + (gk_long)behind * K);
    }
  };
  auto copy_x = [&](int step) {
    const TX* from = x + (u0 + step % units) * 64 + chunk * 8;
    GK_UNROLL for (int i = 0; i < MT * 8 / EACH; ++i) {
      const int m = M0 + first + i * EACH;
      gk_copy16(place(step, TILE + first + i * EACH), from + (m < M ? (gk_long)m * K : 0), m < M);
    }
  };
  GK_UNROLL for (int i = 0; i < ST; ++i)
    if (i < steps) copy_w(i);
  GK_WAIT();                                                  // x is there
  for (int step = 0; step < steps; ++step) {
    if (step >= ST) {
      gk_join<ALL>(free(step));                               // all have read what this stage held
      copy_w(step);
    }
    copy_x(step);
    gk_commit();
    gk_wait<LAG>();
    gk_shared_written();
    if (step >= LAG) gk_arrive<ALL>(full(step - LAG));
  }
  gk_wait<0>();
  gk_shared_written();
  for (int i = steps < LAG ? 0 : steps - LAG; i < steps; ++i) gk_arrive<ALL>(full(i));
} else {
  const int lane = GK_LANE, g = lane >> 2, t = lane & 3, simd = gk_shfl(GK_SIMD, 0);
  GK_WAIT();                                                  // y is not read any more
  int step = 0;
  for (int turn = 0; turn < turns; ++turn) {
    constexpr int COLUMNS = MT;
    //@include wmm_stages.h
    const int n0 = (GK_GROUP_X + turn * GK_GROUPS_X) * TILE + simd * 16 + g;
    GK_UNROLL for (int c = 0; c < MT; ++c)
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const int m = M0 + c * 8 + t * 2 + (i & 1), n = n0 + (i >> 1) * 8;
        if (m < M && (EVEN || n < N)) y[((gk_long)GK_GROUP_Y * M + m) * N + n] = gk_to<TO>::of(biased(acc[c][i], n));
      }
  }
}
