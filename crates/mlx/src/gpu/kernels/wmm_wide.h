// CUDA of compute capability 9.0 alone: the product of wmm.h for an even MT from 4 to 16 (17 to 256 rows) and packed weights, by
// warpgroups. Each group has 8 MT rows of x. A warpgroup takes 64 rows of w, which become TX in registers, and multiplies them with x in shared memory. WN
// of them share x, in ST stages of 128 k, which PRODUCERS simd groups fill. The grid splits k.
// A lane takes k as in wmm_body.h, so x is stored in that order: chunk 4 a + i of a stage (16 bytes of a row) has word i
// (of 4 bits: elements i and i + 4) of four pieces of eight elements. So producers have x copied as it is, RAW - 1 stages ahead,
// and put it in order from there: through registers alone, each stage would wait for the one before it and for its own loads.
// GROUP, FLOAT4 and EVEN as in wmm_body.h. K a multiple of 256 (WHOLE) or of 64. groups (N / (64 WN) rounded up, SPLITS, rows / (8 MT) rounded up),
// 4 WN + PRODUCERS simd groups, SHARED bytes of threadgroup memory
constexpr int CHUNKS = 16;                                    // of a row in a stage
constexpr int QUARTERS = BITS == 4 ? 4 : 2;                   // 64 k in a load of weights, which is 128 bytes of a row
static_assert((ST + RAW) * CHUNKS * MT * 128 == SHARED && ST * (WN + 1) < 15, "stages and their barriers");
GK_SHARED_LARGE(uint4, stage, (ST + RAW) * CHUNKS * MT * 8);
// Barriers of a stage: one for all, behind which it is free, and one for each warpgroup, behind which it is full.
constexpr int FREE = PRODUCERS * 32 + WN * 128, FULL = PRODUCERS * 32 + 128;
auto full = [&](int step, int warpgroup) { return 1 + ST + step % ST * WN + warpgroup; };
const int lane = GK_LANE, g = lane >> 2, t = lane & 3;
const int M = x_shape[0], M0 = GK_GROUP_Z * 8 * MT, K = x_shape[1], N = w_shape[0], KU = WHOLE ? K / 256 : (K + 255) / 256;
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
// Weights of rows g and g + 8, and scales or biases: those in use and the next ones, which change places. Copies from one to
// the other would wait for what was just requested.
gk_uint q[2][2][8];
Scales sc[2];
auto weights = [&](gk_uint (&to)[2][8], int load) {           // of 64 QUARTERS k
  GK_UNROLL for (int k = 0; k < 2; ++k) {
    const char* p = wp[k] + (gk_long)load * 128;
    GK_UNROLL for (int i = 0; i < 8; ++i) to[k][i] = 0;
    if (BITS == 4) {
      GK_UNROLL for (int i = 0; i < 4; ++i)
        if (WHOLE || (load * 4 + i) * 64 < K) { const uint2 v = gk_early2(p + i * 32); to[k][2 * i] = v.x; to[k][2 * i + 1] = v.y; }
    } else {
      GK_UNROLL for (int i = 0; i < 2; ++i)
        if (WHOLE || (load * 2 + i) * 64 < K) {
          const uint4 v = gk_early4(p + i * 64);
          to[k][4 * i] = v.x; to[k][4 * i + 1] = v.y; to[k][4 * i + 2] = v.z; to[k][4 * i + 3] = v.w;
        }
    }
  }
};
if (GK_SIMD >= 4 * WN) {
  // What x has for a stage, [row][16 bytes] with those at c at c ^ row % 8, is copied RAW - 1 stages ahead.
  constexpr int NP = PRODUCERS * 32, PARTS = (MT * 32 + NP - 1) / NP, PIECES = MT * 8 * CHUNKS / NP;
  static_assert(PIECES * NP == MT * 8 * CHUNKS, "a stage is copied by whole turns");
  uint4* const raw = stage + ST * CHUNKS * MT * 8;
  const int id = GK_TID - WN * 128, steps = 2 * (u1 - u0);
  auto copy = [&](int step) {
    GK_UNROLL for (int j = 0; j < PIECES; ++j) {
      const int m = (id + j * NP) / CHUNKS, c = (id + j * NP) % CHUNKS, k = (2 * u0 + step) * 128 + c * 8;
      const bool some = M0 + m < M && step < steps && (WHOLE || k < K);
      gk_copy16(raw + (step % RAW * MT * 8 + m) * CHUNKS + (c ^ (m & 7)), (const char*)x + (some ? (gk_long)(M0 + m) * K + k : 0) * 2, some);
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
    if (step >= ST) gk_join<FREE>(1 + step % ST);
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
if (u0 < u1) {
  weights(q[0], u0 * 4 / QUARTERS);
  sc[0] = Scales::template load<WHOLE>(sp, u0, K);
}
GK_WAIT();
gk_uint a[2][2][4], s0, s1, b0, b1;                           // scales and biases of rows g and g + 8
for (int pair = u0; pair < u1; pair += 2) {
  GK_UNROLL for (int odd = 0; odd < 2; ++odd) {
    const int u = pair + odd;
    if (u >= u1) break;
    if (u + 1 < u1) sc[1 - odd] = Scales::template load<WHOLE>(sp, u + 1, K);
    GK_UNROLL for (int half = 0; half < 2; ++half) {            // stages
      const int step = (u - u0) * 2 + half;
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
        if (i == 1 && step > 0) gk_arrive<FREE>(1 + (step - 1) % ST);  // so are those of the stage before
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
          gk_warpgroup<TX, MT>::mma(acc, a[i & 1][j], gk_tiles(stage + (step % ST * CHUNKS + 4 * i + 2 * j) * MT * 8, MT * 128, 128));
        gk_warpgroup_commit();
      }
    }
  }
}
gk_warpgroup_wait<0>();
if (n0 < N) {
  GK_UNROLL for (int c = 0; c < MT; ++c)
    GK_UNROLL for (int i = 0; i < 4; ++i) {
      const int m = M0 + c * 8 + t * 2 + (i & 1);
      const int n = n0 + g + (i >> 1) * 8;
      if (m < M && (EVEN || n < N)) y[((gk_long)GK_GROUP_Y * M + m) * N + n] = gk_to<TO>::of(biased(acc[c][i], n));
    }
}
}
