// CUDA of compute capability 9.0 alone: the product of wmm.h for MT = 4 or 8 (17 to 64 rows) by warpgroups. A warpgroup
// takes 64 rows of w, which become bf16 in registers, and multiplies them with x in shared memory; WN share that, in two
// stages of 128 k; the grid splits k.
// A lane takes k as in wmm_body.h, so x is stored in that order: chunk 4 a + i of a stage (16 bytes of a row) has word i
// (of 4 bits: elements i and i + 4) of four pieces of eight elements.
// GROUP and FLOAT4 as in wmm_body.h. K a multiple of 256 (WHOLE) or of 64, N of 16. groups (N / (64 WN) rounded up, SPLITS), 4 WN simd groups; WN at least 2
constexpr int CHUNKS = 16, QUARTERS = 16 / BITS;              // chunks of a row in a stage; 64 k in a load of weights (128 bytes a row)
GK_SHARED(uint4, stage, 2 * CHUNKS * MT * 8);
const int lane = GK_LANE, g = lane >> 2, t = lane & 3;
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], KU = WHOLE ? K / 256 : (K + 255) / 256;
const int u0 = KU * GK_GROUP_Y / GK_GROUPS_Y, u1 = KU * (GK_GROUP_Y + 1) / GK_GROUPS_Y;
const int n0 = (GK_GROUP_X * 4 * WN + GK_SIMD) * 16;
const int nl = n0 < N ? n0 : 0;                               // a simd group past the end computes on row 0 and writes nothing
const gk_long RB = (gk_long)K * BITS / 8;                     // bytes of a row
const char* wp = (const char*)w + (nl + g) * RB + t * (BITS == 4 ? 8 : 16);
typedef gk_unit_scales<GROUP, FLOAT4> Scales;
const char* sp = Scales::row((t & 1) && !FLOAT4 ? sb : ss, nl + g + (t & 2) * 4, K);
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(0x43004300u);
float acc[MT][4];
GK_UNROLL for (int c = 0; c < MT; ++c) { acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0; }
gk_uint q[2][8], qx[2][8];                                    // rows g and g + 8, now and next
Scales sc, sx;                                                // or biases, now and next
auto weights = [&](int load) {                                // of 64 QUARTERS k
  GK_UNROLL for (int k = 0; k < 2; ++k) {
    const char* p = wp + k * 8 * RB + (gk_long)load * 128;
    GK_UNROLL for (int i = 0; i < 8; ++i) qx[k][i] = 0;
    if (BITS == 4) {
      GK_UNROLL for (int i = 0; i < 4; ++i)
        if (WHOLE || (load * 4 + i) * 64 < K) { const uint2 v = gk_stream2(p + i * 32); qx[k][2 * i] = v.x; qx[k][2 * i + 1] = v.y; }
    } else {
      GK_UNROLL for (int i = 0; i < 2; ++i)
        if (WHOLE || load * QUARTERS * 64 + (BITS == 8 ? i * 64 : 0) < K) {
          const uint4 v = gk_stream4(p + i * 64);
          qx[k][4 * i] = v.x; qx[k][4 * i + 1] = v.y; qx[k][4 * i + 2] = v.z; qx[k][4 * i + 3] = v.w;
        }
    }
  }
};
auto scales = [&](int u) { if (BITS < 16) sx = Scales::template load<WHOLE>(sp, u, K); };
// This thread's part of a stage: four pieces of one row.
const int xm = GK_TID >> 5 << 3 | (GK_TID & 7), xa = GK_TID >> 3 & 3;
const int piece = BITS == 16 ? 8 : 16, x0 = BITS == 16 ? xa * 32 : (xa >> 1) * 64 + (xa & 1) * 8;
uint4 v[4];
auto load_x = [&](int step) {
  GK_UNROLL for (int i = 0; i < 4; ++i) {
    const int k = step * 128 + x0 + i * piece;
    v[i] = {0, 0, 0, 0};
    if (xm < M && step < 2 * u1 && (WHOLE || k < K)) v[i] = gk_cached4((const char*)x + ((gk_long)xm * K + k) * 2);
  }
};
auto store_x = [&](uint4* to) {
  if (xm >= MT * 8) return;
  GK_UNROLL for (int i = 0; i < 4; ++i) {
    if (BITS == 4)
      v[i] = {gk_bytes(v[i].x, v[i].z, 0x5410), gk_bytes(v[i].x, v[i].z, 0x7632), gk_bytes(v[i].y, v[i].w, 0x5410), gk_bytes(v[i].y, v[i].w, 0x7632)};
  }
  GK_UNROLL for (int i = 0; i < 4; ++i)
    to[((xa * 4 + i) * MT + (xm >> 3)) * 8 + (xm & 7)] = {gk_word(v[0], i), gk_word(v[1], i), gk_word(v[2], i), gk_word(v[3], i)};
};
if (u0 < u1) { weights(u0 * 4 / QUARTERS); scales(u0); }
GK_WAIT();                                                    // x is there
load_x(2 * u0);
store_x(stage);
load_x(2 * u0 + 1);
gk_shared_written();
GK_BARRIER();
for (int u = u0; u < u1; ++u) {
  sc = sx;
  if (u + 1 < u1) scales(u + 1);
  GK_UNROLL for (int half = 0; half < 2; ++half) {            // stages
    store_x(stage + (half ^ 1) * CHUNKS * MT * 8);            // of the next step
    load_x(2 * u + half + 2);
    gk_uint a[2][2][4];                                       // one pair of products is prepared while the other runs
    GK_UNROLL for (int i = 0; i < 4; ++i) {                   // 32 k
      const int quarter = half * 2 + i / 2;
      if (i % 2 == 0 && quarter % QUARTERS == 0) {
        if (BITS == 16) gk_warpgroup_wait<0>();               // products read these registers themselves
        GK_UNROLL for (int k = 0; k < 2; ++k)
          GK_UNROLL for (int j = 0; j < 8; ++j) q[k][j] = qx[k][j];
        const int next = (u * 4 + quarter) / QUARTERS + 1;
        if (next * QUARTERS < u1 * 4) weights(next);
      }
      const int at = quarter % QUARTERS;
      gk_uint s0 = 0, b0 = 0, s1 = 0, b1 = 0;
      if (BITS < 16) {
        // Of 64 k, lanes 0 and 1 have the first group of 32, lanes 2 and 3 the second.
        const gk_uint low = sc.pair(quarter * 64 / GROUP), high = GROUP == 32 ? sc.pair(quarter * 2 + 1) : low;
        const auto of_row = [&](int lane) {
          const gk_uint v = gk_shfl(low, lane), w = GROUP == 32 ? gk_shfl(high, lane) : v;
          return t < 2 ? v : w;
        };
        s0 = of_row(g * 4); s1 = of_row(g * 4 + 2);
        if (!FLOAT4) { b0 = of_row(g * 4 + 1); b1 = of_row(g * 4 + 3); }
      }
      if (BITS < 16 && i >= 2) gk_warpgroup_wait<1>();        // the products that read these registers are done
      GK_UNROLL for (int j = 0; j < 2; ++j)
        GK_UNROLL for (int e = 0; e < 2; ++e) {               // elements of B's first and second chunk
          gk_uint* to = a[i & 1][j] + 2 * e;
          if (BITS == 4) {
            const int word = 2 * at + (i & 1), shift = 8 * j + 4 * e;
            to[0] = FLOAT4 ? gk_times2(gk_floats4(q[0][word] >> shift), s0) : gk_affine2(gk_nibbles(q[0][word] >> shift, mask, magic), s0, b0);
            to[1] = FLOAT4 ? gk_times2(gk_floats4(q[1][word] >> shift), s1) : gk_affine2(gk_nibbles(q[1][word] >> shift, mask, magic), s1, b1);
          } else if (BITS == 8) {
            const int word = 4 * at + 2 * (i & 1) + j;
            to[0] = gk_scaled2(gk_codes8(q[0][word], 2 * e), s0, b0);
            to[1] = gk_scaled2(gk_codes8(q[1][word], 2 * e), s1, b1);
          } else {
            const int word = 4 * (i & 1) + 2 * j + e;
            to[0] = q[0][word];
            to[1] = q[1][word];
          }
        }
      gk_warpgroup_begin();
      GK_UNROLL for (int j = 0; j < 2; ++j)
        gk_warpgroup<MT>::mma(acc, a[i & 1][j], gk_tiles(stage + (half * CHUNKS + 4 * i + 2 * j) * MT * 8, MT * 128, 128));
      gk_warpgroup_commit();
    }
    gk_warpgroup_wait<0>();
    gk_shared_written();
    GK_BARRIER();                                             // the next stage is full, and this one is read
  }
}
if (n0 < N) {
  GK_UNROLL for (int c = 0; c < MT; ++c)
    GK_UNROLL for (int i = 0; i < 4; ++i) {
      const int m = c * 8 + t * 2 + (i & 1);
      if (m < M) y[((gk_long)GK_GROUP_Y * M + m) * N + n0 + g + (i >> 1) * 8] = gk_to<TO>::of(acc[c][i]);
    }
}
