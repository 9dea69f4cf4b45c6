// CUDA of compute capability 9.0 alone: the product of wmm.h for an even MT from 4 to 8 (17 to 64 rows) and packed weights, by
// warpgroups. More rows have wmm_tiled.h. A warpgroup takes 64 rows of w, which become TX in registers, and multiplies them with x in shared memory. WN
// of them share x, in ST stages of 128 k, which PRODUCERS simd groups fill. The grid splits k.
// A lane takes k as in wmm_body.h, so x is stored in that order: chunk 4 a + i of a stage (16 bytes of a row) has word i
// (of 4 bits: elements i and i + 4) of four pieces of eight elements. So producers have x copied as it is, RAW - 1 stages ahead,
// and put it in order from there: through registers alone, each stage would wait for the one before it and for its own loads.
// GROUP, FLOAT4 and EVEN as in wmm_body.h. K a multiple of 256 (WHOLE) or of 64. groups (N / (64 WN) rounded up, SPLITS),
// 4 WN + PRODUCERS simd groups, SHARED bytes of threadgroup memory
constexpr int CHUNKS = 16;                                    // of a row in a stage
static_assert((ST + RAW) * CHUNKS * MT * 128 == SHARED && ST * (WN + 1) < 15, "stages and their barriers");
GK_SHARED_LARGE(uint4, stage, (ST + RAW) * CHUNKS * MT * 8);
// Barriers of a stage: one for all, behind which it is free, and one for each warpgroup, behind which it is full.
constexpr int FREE = PRODUCERS * 32 + WN * 128, FULL = PRODUCERS * 32 + 128;
auto full = [&](int step, int warpgroup) { return 1 + ST + step % ST * WN + warpgroup; };
auto free = [](int step) { return 1 + step % ST; };
const int lane = GK_LANE, g = lane >> 2, t = lane & 3;
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], KU = WHOLE ? K / 256 : (K + 255) / 256;
auto biased = [&](float v, int n) { return BIASED && GK_GROUP_Y == 0 ? v + gk_f(bias[n]) : v; };
const int u0 = KU * GK_GROUP_Y / GK_GROUPS_Y, u1 = KU * (GK_GROUP_Y + 1) / GK_GROUPS_Y;
const int n0 = (GK_GROUP_X * 4 * WN + GK_SIMD) * 16;
const int nl = n0 < N ? n0 : 0;                               // a simd group past the end computes on row 0 and writes nothing
const gk_long RB = (gk_long)K * BITS / 8;                     // bytes of a row
auto w_row = [&](int row) { return EVEN || nl + row < N ? nl + row : N - 1; };
const char* wp[2] = {(const char*)w + w_row(g) * RB + t * (BITS == 4 ? 8 : 16), (const char*)w + w_row(g + 8) * RB + t * (BITS == 4 ? 8 : 16)};
typedef gk_unit_scales<TX, GROUP, FLOAT4> Scales;
typedef gk_codes<TX> Codes;
typedef gk_pairs<TX> Pairs;
const char* sp = Scales::row((t & 1) && !FLOAT4 ? sb : ss, w_row(g + (t & 2) * 4), K);
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::PAIR_MAGIC);
float acc[MT][4];
GK_UNROLL for (int c = 0; c < MT; ++c) { acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0; }
if (GK_SIMD >= 4 * WN) {
  // What x has for a stage, [row][16 bytes] with those at c at c ^ row % 8, is copied RAW - 1 stages ahead.
  constexpr int NP = PRODUCERS * 32, PARTS = (MT * 32 + NP - 1) / NP, PIECES = MT * 8 * CHUNKS / NP;
  static_assert(PIECES * NP == MT * 8 * CHUNKS, "a stage is copied by whole turns");
  uint4* const raw = stage + ST * CHUNKS * MT * 8;
  const int id = GK_TID - WN * 128, steps = 2 * (u1 - u0);
  auto copy = [&](int step) {
    GK_UNROLL for (int j = 0; j < PIECES; ++j) {
      const int m = (id + j * NP) / CHUNKS, c = (id + j * NP) % CHUNKS, k = (2 * u0 + step) * 128 + c * 8;
      const bool some = m < M && step < steps && (WHOLE || k < K);
      gk_copy16(raw + (step % RAW * MT * 8 + m) * CHUNKS + (c ^ (m & 7)), (const char*)x + (some ? (gk_long)m * K + k : 0) * 2, some);
    }
    gk_commit();
  };
  GK_WAIT();                                                  // x is there
  GK_UNROLL for (int i = 0; i < RAW - 1; ++i) copy(i);
  for (int step = 0; step < steps; ++step) {
    gk_wait<RAW - 2>();
    gk_join<NP>(15);                                          // all have copied theirs, and read the stage before
    copy(step + RAW - 1);
    uint4 v[PARTS][4];
    // Parts of a stage: four pieces of one row. Part p has rows p % 8 + 8 (p / 32), and chunks from 4 (p / 8 % 4) on.
    auto there = [](int p) { return MT % PRODUCERS == 0 || p < MT * 32; };
    GK_UNROLL for (int j = 0; j < PARTS; ++j) {
      const int p = id + j * NP, m = p >> 5 << 3 | (p & 7), a = p >> 3 & 3;
      if (!there(p)) continue;
      GK_UNROLL for (int i = 0; i < 4; ++i) v[j][i] = raw[(step % RAW * MT * 8 + m) * CHUNKS + (((a >> 1) * 8 + (a & 1) + i * 2) ^ (m & 7))];
    }
    if (step >= ST) gk_join<FREE>(free(step));
    uint4* const to = stage + step % ST * CHUNKS * MT * 8;
    GK_UNROLL for (int j = 0; j < PARTS; ++j) {
      const int p = id + j * NP, m = p >> 5 << 3 | (p & 7), a = p >> 3 & 3;
      if (!there(p)) continue;
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const uint4 w = v[j][i];
        if (BITS == 4) v[j][i] = {gk_bytes(w.x, w.z, 0x5410), gk_bytes(w.x, w.z, 0x7632), gk_bytes(w.y, w.w, 0x5410), gk_bytes(w.y, w.w, 0x7632)};
      }
      GK_UNROLL for (int i = 0; i < 4; ++i)
        to[((a * 4 + i) * MT + (m >> 3)) * 8 + (m & 7)] = {gk_word(v[j][0], i), gk_word(v[j][1], i), gk_word(v[j][2], i), gk_word(v[j][3], i)};
    }
    gk_shared_written();
    GK_UNROLL for (int i = 0; i < WN; ++i) gk_arrive<FULL>(full(step, i));
  }
} else {
  constexpr int COLUMNS = MT;
  auto columns = [&](int step, int i, int j) { return gk_tiles(stage + (step % ST * CHUNKS + 4 * i + 2 * j) * MT * 8, MT * 128, 128); };
  auto codes_of = [&](int k) { return wp[k]; };
  auto stage_of = [&](int u, int half) { return (u - u0) * 2 + half; };
  auto is_behind = [&](int u, int half) { return stage_of(u, half) > 0; };
  //@include wmm_codes.h
  if (u0 < u1) {
    weights(q[0], u0 * 4 / QUARTERS);
    sc[0] = Scales::template load<WHOLE>(sp, u0, K);
  }
  GK_WAIT();
  //@include wmm_code_products.h
if (n0 < N) {
  GK_UNROLL for (int c = 0; c < MT; ++c)
    GK_UNROLL for (int i = 0; i < 4; ++i) {
      const int m = c * 8 + t * 2 + (i & 1);
      const int n = n0 + g + (i >> 1) * 8;
      if (m < M && (EVEN || n < N)) y[((gk_long)GK_GROUP_Y * M + m) * N + n] = gk_to<TO>::of(biased(acc[c][i], n));
    }
}
}
