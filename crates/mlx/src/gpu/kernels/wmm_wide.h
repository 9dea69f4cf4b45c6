// CUDA of compute capability 9.0 alone: the product of wmm.h for MT = 4 or 8 (17 to 64 rows) and packed weights, by
// warpgroups. A warpgroup takes 64 rows of w, which become bf16 in registers, and multiplies them with x in shared memory. WN
// of them share x, in two stages of 128 k, which PRODUCERS simd groups fill: the fence behind that waits for all loads of its
// thread, and those of weights are early. The grid splits k.
// A lane takes k as in wmm_body.h, so x is stored in that order: chunk 4 a + i of a stage (16 bytes of a row) has word i
// (of 4 bits: elements i and i + 4) of four pieces of eight elements.
// GROUP, FLOAT4 and EVEN as in wmm_body.h. K a multiple of 256 (WHOLE) or of 64. groups (N / (64 WN) rounded up, SPLITS),
// 4 WN + PRODUCERS simd groups
constexpr int CHUNKS = 16;                                    // of a row in a stage
constexpr int QUARTERS = BITS == 4 ? 4 : 2;                   // 64 k in a load of weights, which is 128 bytes of a row
GK_SHARED(uint4, stage, 2 * CHUNKS * MT * 8);
const int lane = GK_LANE, g = lane >> 2, t = lane & 3;
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], KU = WHOLE ? K / 256 : (K + 255) / 256;
const int u0 = KU * GK_GROUP_Y / GK_GROUPS_Y, u1 = KU * (GK_GROUP_Y + 1) / GK_GROUPS_Y;
const int n0 = (GK_GROUP_X * 4 * WN + GK_SIMD) * 16;
const int nl = n0 < N ? n0 : 0;                               // a simd group past the end computes on row 0 and writes nothing
const gk_long RB = (gk_long)K * BITS / 8;                     // bytes of a row
auto w_row = [&](int row) { return EVEN || nl + row < N ? nl + row : N - 1; };
const char* wp[2] = {(const char*)w + w_row(g) * RB + t * (BITS == 4 ? 8 : 16), (const char*)w + w_row(g + 8) * RB + t * (BITS == 4 ? 8 : 16)};
typedef gk_unit_scales<GROUP, FLOAT4> Scales;
const char* sp = Scales::row((t & 1) && !FLOAT4 ? sb : ss, w_row(g + (t & 2) * 4), K);
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(0x43004300u);
float acc[MT][4];
GK_UNROLL for (int c = 0; c < MT; ++c) { acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0; }
gk_uint q[2][8], qx[2][8];                                    // rows g and g + 8, now and next
Scales sc, sx;                                                // or biases, now and next
auto weights = [&](int load) {                                // of 64 QUARTERS k
  GK_UNROLL for (int k = 0; k < 2; ++k) {
    const char* p = wp[k] + (gk_long)load * 128;
    GK_UNROLL for (int i = 0; i < 8; ++i) qx[k][i] = 0;
    if (BITS == 4) {
      GK_UNROLL for (int i = 0; i < 4; ++i)
        if (WHOLE || (load * 4 + i) * 64 < K) { const uint2 v = gk_early2(p + i * 32); qx[k][2 * i] = v.x; qx[k][2 * i + 1] = v.y; }
    } else {
      GK_UNROLL for (int i = 0; i < 2; ++i)
        if (WHOLE || (load * 2 + i) * 64 < K) {
          const uint4 v = gk_early4(p + i * 64);
          qx[k][4 * i] = v.x; qx[k][4 * i + 1] = v.y; qx[k][4 * i + 2] = v.z; qx[k][4 * i + 3] = v.w;
        }
    }
  }
};
auto scales = [&](int u) { sx = Scales::template load<WHOLE>(sp, u, K); };
if (GK_SIMD >= 4 * WN) {
  // Parts of a stage: four pieces of one row. Part p has rows p % 8 + 8 (p / 32), and chunks from 4 (p / 8 % 4) on.
  constexpr int PARTS = MT / PRODUCERS;
  uint4 v[PARTS][4];
  auto load_x = [&](int step) {
    GK_UNROLL for (int j = 0; j < PARTS; ++j) {
      const int p = GK_TID - WN * 128 + j * PRODUCERS * 32, m = p >> 5 << 3 | (p & 7), a = p >> 3 & 3;
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const int k = step * 128 + (a >> 1) * 64 + (a & 1) * 8 + i * 16;
        v[j][i] = {0, 0, 0, 0};
        if (m < M && step < 2 * u1 && (WHOLE || k < K)) v[j][i] = gk_cached4((const char*)x + ((gk_long)m * K + k) * 2);
      }
    }
  };
  auto store_x = [&](uint4* to) {
    GK_UNROLL for (int j = 0; j < PARTS; ++j) {
      const int p = GK_TID - WN * 128 + j * PRODUCERS * 32, m = p >> 5 << 3 | (p & 7), a = p >> 3 & 3;
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const uint4 w = v[j][i];
        if (BITS == 4) v[j][i] = {gk_bytes(w.x, w.z, 0x5410), gk_bytes(w.x, w.z, 0x7632), gk_bytes(w.y, w.w, 0x5410), gk_bytes(w.y, w.w, 0x7632)};
      }
      GK_UNROLL for (int i = 0; i < 4; ++i)
        to[((a * 4 + i) * MT + (m >> 3)) * 8 + (m & 7)] = {gk_word(v[j][0], i), gk_word(v[j][1], i), gk_word(v[j][2], i), gk_word(v[j][3], i)};
    }
    gk_shared_written();
  };
  GK_WAIT();                                                  // x is there
  load_x(2 * u0);
  for (int step = 2 * u0; step < 2 * u1; ++step) {
    store_x(stage + (step & 1) * CHUNKS * MT * 8);
    load_x(step + 1);
    GK_BARRIER();                                             // this stage is full, and the other is read
  }
} else {
if (u0 < u1) { weights(u0 * 4 / QUARTERS); scales(u0); }
GK_WAIT();
gk_uint a[2][2][4];
for (int u = u0; u < u1; ++u) {
  sc = sx;
  if (u + 1 < u1) scales(u + 1);
  GK_UNROLL for (int half = 0; half < 2; ++half) {            // stages
    GK_UNROLL for (int i = 0; i < 4; ++i) {                   // 32 k: two products, prepared while the two before them run
      const int quarter = half * 2 + i / 2, at = quarter % QUARTERS;
      if (i == 0 && at == 0) {
        GK_UNROLL for (int k = 0; k < 2; ++k)
          GK_UNROLL for (int j = 0; j < 8; ++j) q[k][j] = qx[k][j];
        const int next = (u * 4 + quarter) / QUARTERS + 1;
        if (next * QUARTERS < u1 * 4) weights(next);
      }
      // Of 64 k, lanes 0 and 1 have the first group of 32, lanes 2 and 3 the second.
      const gk_uint low = sc.pair(quarter * 64 / GROUP), high = GROUP == 32 ? sc.pair(quarter * 2 + 1) : low;
      const auto of_row = [&](int lane) {
        const gk_uint v = gk_shfl(low, lane), w = GROUP == 32 ? gk_shfl(high, lane) : v;
        return t < 2 ? v : w;
      };
      const gk_uint s0 = of_row(g * 4), s1 = of_row(g * 4 + 2);
      const gk_uint b0 = FLOAT4 ? 0 : of_row(g * 4 + 1), b1 = FLOAT4 ? 0 : of_row(g * 4 + 3);
      gk_warpgroup_wait<1>();                                 // the products that read these registers are done
      GK_UNROLL for (int j = 0; j < 2; ++j)
        GK_UNROLL for (int e = 0; e < 2; ++e) {               // elements of B's first and second chunk
          gk_uint* to = a[i & 1][j] + 2 * e;
          if (BITS == 4) {
            const int word = 2 * at + (i & 1), shift = 8 * j + 4 * e;
            to[0] = FLOAT4 ? gk_times2(gk_floats4(q[0][word] >> shift), s0) : gk_affine2(gk_nibbles(q[0][word] >> shift, mask, magic), s0, b0);
            to[1] = FLOAT4 ? gk_times2(gk_floats4(q[1][word] >> shift), s1) : gk_affine2(gk_nibbles(q[1][word] >> shift, mask, magic), s1, b1);
          } else {
            const int word = 4 * at + 2 * (i & 1) + j;
            to[0] = gk_scaled2(gk_codes8(q[0][word], 2 * e), s0, b0);
            to[1] = gk_scaled2(gk_codes8(q[1][word], 2 * e), s1, b1);
          }
        }
      if (i == 0) {
        gk_warpgroup_wait<0>();
        GK_BARRIER();                                         // this stage is full, and the other is read
      }
      gk_warpgroup_begin();
      GK_UNROLL for (int j = 0; j < 2; ++j)
        gk_warpgroup<MT>::mma(acc, a[i & 1][j], gk_tiles(stage + (half * CHUNKS + 4 * i + 2 * j) * MT * 8, MT * 128, 128));
      gk_warpgroup_commit();
    }
  }
}
gk_warpgroup_wait<0>();
if (n0 < N) {
  GK_UNROLL for (int c = 0; c < MT; ++c)
    GK_UNROLL for (int i = 0; i < 4; ++i) {
      const int m = c * 8 + t * 2 + (i & 1);
      const int n = n0 + g + (i >> 1) * 8;
      if (m < M && (EVEN || n < N)) y[((gk_long)GK_GROUP_Y * M + m) * N + n] = gk_to<TO>::of(acc[c][i]);
    }
}
}
