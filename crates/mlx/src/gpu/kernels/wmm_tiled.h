// CUDA of compute capability 9.0 alone: the product of wmm.h for packed weights and many rows, by warpgroups. Each has 64 rows of w, which become
// TX in registers, and multiplies them with 8 MT rows of x in shared memory, which WN warpgroups share. The grid splits k.
// x [4 KU, M, 64] comes from row_tiles.h, so that a stage of 128 k is two copies by the memory system. The simd group that reads a stage last has it
// filled again: no thread waits for room, and none is there only to copy.
// GROUP and FLOAT4 as in wmm_body.h. K a multiple of 256 (WHOLE) or of GROUP. groups (N / (64 WN) rounded up, SPLITS, M / (8 MT) rounded up), 4 WN simd groups,
// SHARED bytes of threadgroup memory
constexpr int HALF = MT * 64;                                 // 64 k of a stage, in chunks of 16 bytes
static_assert(ST * 2 * HALF * 16 == SHARED, "stages");
GK_SHARED_LARGE(uint4, stage, ST * 2 * HALF);
GK_SHARED(gk_arrival, there, ST);
GK_SHARED(gk_uint, readers, ST);                              // simd groups that have read a stage
const int M = x_shape[1], M0 = GK_GROUP_Z * 8 * MT, N = w_shape[0], K = w_shape[1] * 32 / BITS, KU = x_shape[0] / 4;
const int u0 = KU * GK_GROUP_Y / GK_GROUPS_Y, u1 = KU * (GK_GROUP_Y + 1) / GK_GROUPS_Y, steps = 2 * (u1 - u0);
auto fetch = [&](int step) {
  if (step >= steps) return;
  const int bytes = (M - M0 < 8 * MT ? M - M0 : 8 * MT) * 128;
  gk_expect(there + step % ST, 2 * bytes);
  GK_UNROLL for (int i = 0; i < 2; ++i)
    gk_fetch(stage + (step % ST * 2 + i) * HALF, x + ((gk_long)(u0 * 4 + step * 2 + i) * M + M0) * 64, bytes, there + step % ST);
};
if (GK_TID == 0) {
  GK_UNROLL for (int i = 0; i < ST; ++i) readers[i] = 0;
  gk_no_arrivals(there, ST);
  GK_WAIT();                                                  // x is there
  for (int i = 0; i < ST; ++i) fetch(i);
}
GK_BARRIER();
const int lane = GK_LANE, g = lane >> 2, t = lane & 3, n0 = (GK_GROUP_X * 4 * WN + gk_shfl(GK_SIMD, 0)) * 16;
auto was_read = [&](int step) {
  if (lane == 0 && gk_is_last(readers + step % ST, 4 * WN)) fetch(step + ST);
};
typedef gk_unit_scales<TX, GROUP, FLOAT4> Scales;
typedef gk_codes<TX> Codes;
typedef gk_pairs<TX> Pairs;
auto w_row = [&](int row) { return (gk_long)(n0 + row < N ? n0 + row : N - 1); };
const int RB = w_shape[1] * 4;                                // bytes of a row
const char* const codes = (const char*)w + w_row(g) * RB + t * 16;
const int below = (int)(w_row(g + 8) - w_row(g)) * RB;        // from a lane's codes to those of its second row
const char* const sp = Scales::row((t & 1) && !FLOAT4 ? sb : ss, w_row(g + (t & 2) * 4), K);
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::PAIR_MAGIC);
float acc[MT][4];
GK_UNROLL for (int c = 0; c < MT; ++c) { acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0; }
// Codes of a piece of rows g and g + 8, of which a lane has 16 bytes: those in use and the next ones, which change places.
constexpr int PIECE = 512 / BITS, OF_UNIT = 256 / PIECE;      // k of a piece, and pieces of a unit
uint4 q[2][2];
auto load = [&](uint4 (&to)[2], int piece) {
  GK_UNROLL for (int k = 0; k < 2; ++k) {
    to[k] = {0, 0, 0, 0};
    if (WHOLE || piece * PIECE + t * (PIECE / 4) < K) to[k] = gk_early4(codes + k * below + (gk_long)piece * 64);
  }
};
load(q[0], u0 * OF_UNIT);
Scales now = Scales::template load<WHOLE>(sp, u0, K);
gk_uint a[4][4];
int step = 0, u = u0;
do {                                                          // at least once: else compilers wait for each product
  const int ahead = u + 1 < u1 ? u + 1 : u;
  const Scales next = Scales::template load<WHOLE>(sp, ahead, K);
  GK_UNROLL for (int piece = 0; piece < OF_UNIT; ++piece) {
    load(q[1 - piece % 2], piece + 1 < OF_UNIT ? u * OF_UNIT + piece + 1 : ahead * OF_UNIT);
    // A lane has a quarter of a piece's k. Its quad has scales and biases of both rows.
    constexpr int GROUPS = PIECE > GROUP ? PIECE / GROUP : 1;
    auto of = [&](int lane) {
      gk_uint own = 0;
      GK_UNROLL for (int i = 0; i < GROUPS; ++i) {
        const gk_uint v = gk_shfl(now.pair(piece * PIECE / GROUP + i), lane);
        if (t * GROUPS / 4 == i) own = v;
      }
      return own;
    };
    const gk_uint s0 = of(g * 4), s1 = of(g * 4 + 2), b0 = FLOAT4 ? 0 : of(g * 4 + 1), b1 = FLOAT4 ? 0 : of(g * 4 + 3);
    GK_UNROLL for (int i = 0; i < PIECE / 16; ++i) {          // products, of which four are under way or prepared
      const int p = (piece * PIECE / 16 + i) % 8;             // of a stage
      gk_warpgroup_wait<3>();
      if (p == 4 && step > 0) was_read(step - 1);
      GK_UNROLL for (int e = 0; e < 2; ++e) {                 // elements of B's first and second chunk
        gk_uint* const to = a[p & 3] + 2 * e;
        auto numbers = [&](uint4 codes, gk_uint s, gk_uint b) {
          if (BITS == 8) return Pairs::fma(Codes::eight_itself(gk_word(codes, i), 2 * e), s, b);
          const gk_uint four = gk_word(codes, i / 2) >> (8 * (i & 1) + 4 * e);
          return FLOAT4 ? Pairs::times(Codes::floats(four), s) : gk_affine2<TX>(gk_nibbles(four, mask, magic), s, b);
        };
        to[0] = numbers(q[piece % 2][0], s0, b0);
        to[1] = numbers(q[piece % 2][1], s1, b1);
      }
      if (p == 0) gk_fetched(there + step % ST, step / ST);
      gk_warpgroup_begin();
      gk_warpgroup<TX, MT>::mma(acc, a[p & 3], gk_further(gk_swizzled(stage + (step % ST * 2 + p / 4) * HALF, 128), p % 4 * 32));
      gk_warpgroup_commit();
      if (p == 7) ++step;
    }
  }
  now = next;
} while (++u < u1);
gk_warpgroup_wait<0>();
gk_settled(acc);
// A lane has outputs g and g + 8 of two rows. Of these two it takes one, with output g ^ 1 from its neighbour.
struct alignas(2 * sizeof(TO)) Two { TO first, second; };     // are written at once
GK_UNROLL for (int c = 0; c < MT; ++c) {
  const int m = M0 + c * 8 + t * 2 + (g & 1);
  TO* const to = y + ((gk_long)GK_GROUP_Y * M + m) * N;
  GK_UNROLL for (int i = 0; i < 2; ++i) {
    const float low = acc[c][2 * i], high = acc[c][2 * i + 1], other = gk_shfl_xor(g & 1 ? low : high, 4);
    const int n = n0 + (g & ~1) + i * 8;
    auto biased = [&](float v, int n) { return gk_to<TO>::of(BIASED && GK_GROUP_Y == 0 && n < N ? v + gk_f(bias[n]) : v); };
    const TO first = biased(g & 1 ? other : low, n), second = biased(g & 1 ? high : other, n + 1);
    if (m >= M) continue;
    if (EVEN && n < N) *(Two*)(to + n) = {first, second};
    if (!EVEN && n < N) to[n] = first;
    if (!EVEN && n + 1 < N) to[n + 1] = second;
  }
}
