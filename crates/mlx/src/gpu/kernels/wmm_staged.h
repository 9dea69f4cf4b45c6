// CUDA alone: the product of wmm.h for MT = 4 or 8 (17 to 64 rows). x passes through shared memory in two stages; WN simd
// groups of 16 RT rows of w each share it, the grid splits k. 4-bit weights become TX in registers.
// K a multiple of 256 (WHOLE) or of 64, N of 16 RT. groups (N / (16 RT WN) rounded up, SPLITS), WN simd groups
constexpr int KW = BITS == 4 ? 256 : 64;                      // k of one load of weights: 128 bytes a row
constexpr int KX = BITS == 4 ? 128 : 64, SUB = KW / KX;
constexpr int UX = KX / 8, ROW = UX + (BITS == 4 ? 1 : 4);     // 16-byte units of a staged row, and with a pad (banks)
constexpr int NT = WN * 32, PER = MT * 8 * UX / NT, NI = KX / 32;
GK_SHARED(uint4, stage, 2 * MT * 8 * ROW);
const int lane = GK_LANE, g = lane >> 2, t = lane & 3;
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], KU = WHOLE ? K / KW : (K + KW - 1) / KW;
auto biased = [&](float v, int n) { return BIASED && GK_GROUP_Y == 0 ? v + gk_f(bias[n]) : v; };
const int u0 = KU * GK_GROUP_Y / GK_GROUPS_Y, u1 = KU * (GK_GROUP_Y + 1) / GK_GROUPS_Y;
const int n0 = (GK_GROUP_X * WN + GK_SIMD) * 16 * RT;
const int nl = n0 < N ? n0 : 0;                               // a warp past the end computes on row 0 and writes nothing
const gk_long RB = BITS == 4 ? K / 2 : K * 2;             // bytes of a row
const char* wp = (const char*)w + (nl + g) * RB + t * (BITS == 4 ? 8 : 16);
const char* sp = (const char*)((t & 1) ? sb : ss) + (gk_long)(nl + g + (t & 2) * 4) * (K / 32);
float acc[RT][MT][4];
GK_UNROLL for (int r = 0; r < RT; ++r)
  GK_UNROLL for (int i = 0; i < MT; ++i) { acc[r][i][0] = acc[r][i][1] = acc[r][i][2] = acc[r][i][3] = 0; }
uint2 q[RT][2][4], qx[RT][2][4], sc[RT], sx[RT];              // 4 bits: rows g and g + 8, four groups, now and next
uint4 f[RT][2][2], fx[RT][2][2];                              // 16 bits
const int steps = (u1 - u0) * SUB;
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(gk_codes<TX>::PAIR_MAGIC);
auto weights = [&](int u) {
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int k = 0; k < 2; ++k) {
      const char* p = wp + (r * 16 + k * 8) * RB + u * 128;
      if (BITS == 4) {
        GK_UNROLL for (int i = 0; i < 4; ++i) {
          qx[r][k][i] = {0, 0};
          if (WHOLE || u * 256 + i * 64 < K) qx[r][k][i] = gk_stream2(p + i * 32);
        }
      }
      else { GK_UNROLL for (int i = 0; i < 2; ++i) fx[r][k][i] = gk_stream4(p + i * 64); }
    }
  if (BITS == 4) {
    GK_UNROLL for (int r = 0; r < RT; ++r) {
      const char* p = sp + (gk_long)r * (K / 2) + u * 8;
      sx[r] = WHOLE ? gk_cached2(p) : gk_cached_some(p, K / 64 - u * 4);
    }
  }
};
auto copy = [&](int step) {
  GK_UNROLL for (int i = 0; i < PER; ++i) {
    const int at = GK_TID + i * NT, m = at / UX;
    const int k = u0 * KW + step * KX + at % UX * 8;
    const bool some = m < M && (WHOLE || k < K);
    gk_copy16(stage + ((step & 1) * MT * 8 + m) * ROW + at % UX, (const char*)x + (some ? (gk_long)m * K + k : 0) * 2, some);
  }
};
if (steps > 0) weights(u0);
GK_WAIT();                                                    // x is there
if (steps > 0) copy(0);
for (int u = u0; u < u1; ++u) {
  GK_UNROLL for (int r = 0; r < RT; ++r) {
    GK_UNROLL for (int k = 0; k < 2; ++k) {
      GK_UNROLL for (int i = 0; i < 4; ++i) q[r][k][i] = qx[r][k][i];
      GK_UNROLL for (int i = 0; i < 2; ++i) f[r][k][i] = fx[r][k][i];
    }
    sc[r] = sx[r];
  }
  if (u + 1 < u1) weights(u + 1);
  GK_UNROLL for (int sub = 0; sub < SUB; ++sub) {
    const int step = (u - u0) * SUB + sub;
    gk_wait_all();
    GK_BARRIER();                                             // this stage is full, and no simd group reads the other
    if (step + 1 < steps) copy(step + 1);
    const uint4* xp = stage + ((step & 1) * MT * 8 + g) * ROW;
    GK_UNROLL for (int i = 0; i < NI; ++i) {                  // 32 k: of 16 bits, or half a group of 4 bits (word j = i & 1)
      gk_uint a0[RT][4], a1[RT][4];
      GK_UNROLL for (int r = 0; r < RT; ++r) {
        if (BITS == 4) {
          const int gr = sub * 2 + i / 2;
          const gk_uint p = gr < 2 ? sc[r].x : sc[r].y, v = gk_bytes(p, p, (gr & 1) ? 0x3232 : 0x1010);
          const gk_uint s0 = gk_shfl(v, g * 4), b0 = gk_shfl(v, g * 4 + 1), s1 = gk_shfl(v, g * 4 + 2), b1 = gk_shfl(v, g * 4 + 3);
          const gk_uint w0 = (i & 1) ? q[r][0][gr].y : q[r][0][gr].x, w1 = (i & 1) ? q[r][1][gr].y : q[r][1][gr].x;
          a0[r][0] = gk_affine2<TX>(gk_nibbles(w0, mask, magic), s0, b0);
          a0[r][1] = gk_affine2<TX>(gk_nibbles(w1, mask, magic), s1, b1);
          a0[r][2] = gk_affine2<TX>(gk_nibbles(w0 >> 4, mask, magic), s0, b0);
          a0[r][3] = gk_affine2<TX>(gk_nibbles(w1 >> 4, mask, magic), s1, b1);
          a1[r][0] = gk_affine2<TX>(gk_nibbles(w0 >> 8, mask, magic), s0, b0);
          a1[r][1] = gk_affine2<TX>(gk_nibbles(w1 >> 8, mask, magic), s1, b1);
          a1[r][2] = gk_affine2<TX>(gk_nibbles(w0 >> 12, mask, magic), s0, b0);
          a1[r][3] = gk_affine2<TX>(gk_nibbles(w1 >> 12, mask, magic), s1, b1);
        } else {
          a0[r][0] = f[r][0][i].x; a0[r][1] = f[r][1][i].x; a0[r][2] = f[r][0][i].y; a0[r][3] = f[r][1][i].y;
          a1[r][0] = f[r][0][i].z; a1[r][1] = f[r][1][i].z; a1[r][2] = f[r][0][i].w; a1[r][3] = f[r][1][i].w;
        }
      }
      GK_UNROLL for (int c = 0; c < MT; ++c) {
        uint4 v = xp[c * 8 * ROW + (BITS == 4 ? i / 2 * 8 + t * 2 + (i & 1) : i * 4 + t)];
        if (BITS == 4)
          v = {gk_bytes(v.x, v.z, 0x5410), gk_bytes(v.x, v.z, 0x7632), gk_bytes(v.y, v.w, 0x5410), gk_bytes(v.y, v.w, 0x7632)};
        GK_UNROLL for (int r = 0; r < RT; ++r) {
          gk_tensor<TX>::mma(acc[r][c], a0[r], v.x, v.y);
          gk_tensor<TX>::mma(acc[r][c], a1[r], v.z, v.w);
        }
      }
    }
  }
}
if (n0 < N) {
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c)
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const int m = c * 8 + t * 2 + (i & 1), n = n0 + r * 16 + g + (i >> 1) * 8;
        if (m < M) y[((gk_long)GK_GROUP_Y * M + m) * N + n] = gk_to<TO>::of(biased(acc[r][c][i], n));
      }
}
