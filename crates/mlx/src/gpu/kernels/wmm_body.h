// The product of M rows of x with N rows of w from row W0 on, of this group's split of k. What includes it defines M, K, N
// (int), W0 (gk_long), SPLIT and SPLITS (int), x_row(m) and y_row(m): where row m of the product reads and writes, and
// biased(v, n): what is written for output n. Rows of x are PITCH elements apart, K for 0.
// Weights are the A operand (16 rows), rows of x the B operand (8 columns).  A lane of a fragment takes k that lie
// together in memory: the order of k inside an instruction is free as long as A and B agree.
//   4 bits: of 64 k, lane t: k = 16 t + 8 j + {i, i + 4}, j = 0, 1; instruction (j, h): i = 2 h and 2 h + 1
//   8 bits: of 64 k, lane t: k = 16 t + 4 j + {0, 1} and {2, 3}, j = 0 .. 3
//   16 bits: 32 k, lane t: k = 8 t + 4 h + {0, 1} and {2, 3}
// In groups of 32, instructions do not cross one: of 64 k, 4 bits: k = 32 j + 8 t + {i, i + 4}; 8 bits: k = 32 (j / 2) + 8 t +
// 4 (j % 2) + ...
// GROUP: weights that share a scale, 32, 64 or 128. FLOAT4: codes are floats of 4 bits (E2M1), scales powers of two in a byte
// (E8M0), and there are no biases: MLX's mxfp4, in groups of 32.
// A warp takes 16 RT rows of w and reads x itself (L1/L2); WK warps split k and add up in shared memory.
// K is a multiple of 256 (WHOLE) or of 64: zeros fill the last unit. N is a multiple of 16 RT (EVEN) or any: rows beyond the
// last are read as the last, and not written.
const int lane = GK_LANE, simd = GK_SIMD, g = lane >> 2, t = lane & 3;
const int wn = simd % WN, wk = simd / WN;
const int KU = WHOLE ? K / 256 : (K + 255) / 256, parts = SPLITS * WK, mine = SPLIT * WK + wk;  // units of 256 k
const int u0 = KU * mine / parts, u1 = KU * (mine + 1) / parts;
const int n0 = (GK_GROUP_X * WN + wn) * 16 * RT;
const bool live = n0 < N;
auto w_row = [&](int row) { return EVEN || n0 + row < N ? row : N - 1 - n0; };  // behind row n0
constexpr int ST = 3, RING = BITS == 4 ? WN * WK * ST * 128 * RT : 0, RED = WN * WK * RT * MT * 32;
GK_SHARED(uint4, ring, (RING > RED ? RING : RED));
float acc[RT][MT][4];
GK_UNROLL for (int r = 0; r < RT; ++r)
  GK_UNROLL for (int i = 0; i < MT; ++i) { acc[r][i][0] = acc[r][i][1] = acc[r][i][2] = acc[r][i][3] = 0; }
if (live && u0 < u1) {
  constexpr bool NARROW_GROUPS = BITS < 16 && GROUP == 32;
  constexpr int HALVES = NARROW_GROUPS ? 2 : 1, HALF = NARROW_GROUPS ? 32 : 8;  // groups in 64 k at most; k between a lane's two pieces of x
  const char* xp[MT];                                         // where this lane's columns of B begin
  GK_UNROLL for (int c = 0; c < MT; ++c)
    xp[c] = (const char*)x + ((gk_long)(c * 8 + g < M ? x_row(c * 8 + g) : 0) * (PITCH > 0 ? PITCH : K) + (BITS < 16 && !NARROW_GROUPS ? t * 16 : t * 8)) * 2;
  // lane t of a row's four: scales of row g, biases of row g, scales of row g + 8, biases of row g + 8
  typedef gk_unit_scales<TX, GROUP, FLOAT4> Scales;
  typedef gk_codes<TX> Codes;
  constexpr float TIMES = FLOAT4 ? 1 : Codes::TIMES;
  const char* sp = Scales::row((t & 1) && !FLOAT4 ? sb : ss, W0 + n0, K);
  auto unit_scales = [&](int r, int u) { return Scales::template load<WHOLE>(Scales::row(sp, w_row(r * 16 + g + (t & 2) * 4), K), u, K); };
  const gk_uint one[4] = {Codes::ONES, Codes::ONES, Codes::ONES, Codes::ONES};
  if (BITS == 4) {
    const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::SUM_MAGIC);
    // weights pass through a ring of ST units in shared memory, each warp its own: 16 RT rows of 128 bytes, chunks of a row shuffled (banks)
    uint4* own = ring + simd * ST * 128 * RT;
    const char* rows = (const char*)w + (W0 + n0) * (K / 2);
    Scales sr[RT], sx[RT];
    auto fetch = [&](int u) {
      if (u < u1) {
        GK_UNROLL for (int i = 0; i < 4 * RT; ++i) {
          const int at = lane + 32 * i, row = at / 8, chunk = at % 8;
          gk_copy16(own + (u - u0) % ST * 128 * RT + row * 8 + (chunk ^ (row & 3) * 2), rows + (gk_long)w_row(row) * (K / 2) + u * 128 + chunk * 16, WHOLE || u * 256 + chunk * 32 < K);
        }
      }
      gk_commit();
    };
    auto scales = [&](int u) { GK_UNROLL for (int r = 0; r < RT; ++r) sx[r] = unit_scales(r, u); };
    scales(u0);
    GK_UNROLL for (int i = 0; i < ST - 1; ++i) fetch(u0 + i);
    uint4 xv[MT][4], xn[MT][4];                               // half a unit of x, now and next
    auto xs = [&](int half) {
      GK_UNROLL for (int c = 0; c < MT; ++c)
        GK_UNROLL for (int j = 0; j < 4; ++j) {
          uint4 v = {0, 0, 0, 0};
          const bool some = half < 2 * u1 && (WHOLE || half * 128 + (j >> 1) * 64 < K);
          if (c * 8 + g < M && some) v = gk_cached4(xp[c] + (half * 128 + (j >> 1) * 64 + (j & 1) * HALF) * 2);
          xn[c][j] = v;
        }
    };
    GK_WAIT();                                                // x is there
    xs(2 * u0);
    for (int u = u0; u < u1; ++u) {
      GK_UNROLL for (int r = 0; r < RT; ++r) sr[r] = sx[r];
      if (u + 1 < u1) scales(u + 1);
      gk_wait<ST - 2>();
      GK_SIMD_BARRIER();                                      // this unit is there for all lanes, and the one before is read
      fetch(u + ST - 1);
      const gk_uint* unit = (const gk_uint*)(own + (u - u0) % ST * 128 * RT);
      GK_UNROLL for (int i = 0; i < 4; ++i) {                 // 64 k
        if ((i & 1) == 0) {
          GK_UNROLL for (int c = 0; c < MT; ++c)
            GK_UNROLL for (int j = 0; j < 4; ++j) xv[c][j] = xn[c][j];
          xs(2 * u + i / 2 + 1);
        }
        gk_uint p[MT][2][4];
        GK_UNROLL for (int c = 0; c < MT; ++c)
          GK_UNROLL for (int j = 0; j < 2; ++j) {
            const uint4 v = xv[c][(i & 1) * 2 + j];
            p[c][j][0] = gk_bytes(v.x, v.z, 0x5410); p[c][j][1] = gk_bytes(v.x, v.z, 0x7632);
            p[c][j][2] = gk_bytes(v.y, v.w, 0x5410); p[c][j][3] = gk_bytes(v.y, v.w, 0x7632);
          }
        GK_UNROLL for (int half = 0; half < HALVES; ++half) {  // groups, or all of the 64
          constexpr int OF_GROUP = 4 / HALVES;                // instructions
          float e[MT][4];                                     // sums of x, for the biases
          GK_UNROLL for (int c = 0; c < MT; ++c) {
            e[c][0] = e[c][1] = e[c][2] = e[c][3] = 0;
            GK_UNROLL for (int j = half * OF_GROUP; j < (half + 1) * OF_GROUP && !FLOAT4; ++j)
              gk_tensor<TX>::mma(e[c], one, p[c][j >> 1][(j & 1) * 2], p[c][j >> 1][(j & 1) * 2 + 1]);
          }
          GK_UNROLL for (int r = 0; r < RT; ++r) {
            const float sv = sr[r].of((i * 64 + half * 32) / GROUP);
            const float s0 = gk_shfl(sv, g * 4), s1 = gk_shfl(sv, g * 4 + 2);
            const float b0 = FLOAT4 ? 0 : gk_shfl(sv, g * 4 + 1) - Codes::ABOVE * s0, b1 = FLOAT4 ? 0 : gk_shfl(sv, g * 4 + 3) - Codes::ABOVE * s1;
            gk_uint wa[2], wb[2];                             // words of rows g and g + 8
            GK_UNROLL for (int j = 0; j < 2; ++j) {
              // in a row chunk 2 i + .. of 16 bytes, and a word of it
              const int chunk = NARROW_GROUPS ? 2 * i + j : 2 * i + (t >> 1), word = NARROW_GROUPS ? t : (t & 1) * 2 + j;
              const int at = ((r * 16 + g) * 8 + (chunk ^ (g & 3) * 2)) * 4 + word;
              wa[j] = unit[at];
              wb[j] = unit[at + 256];
            }
            float d[MT][4];
            GK_UNROLL for (int c = 0; c < MT; ++c) { d[c][0] = d[c][1] = d[c][2] = d[c][3] = 0; }
            GK_UNROLL for (int j = half * OF_GROUP; j < (half + 1) * OF_GROUP; ++j) {
              const gk_uint w0 = wa[j >> 1], w1 = wb[j >> 1];
              const int h = (j & 1) * 8;
              gk_uint a[4];
              if (FLOAT4) {
                a[0] = Codes::floats(w0 >> h); a[1] = Codes::floats(w1 >> h); a[2] = Codes::floats(w0 >> (h + 4)); a[3] = Codes::floats(w1 >> (h + 4));
              } else {
                a[0] = gk_nibbles(w0 >> h, mask, magic); a[1] = gk_nibbles(w1 >> h, mask, magic);
                a[2] = gk_nibbles(w0 >> (h + 4), mask, magic); a[3] = gk_nibbles(w1 >> (h + 4), mask, magic);
              }
              GK_UNROLL for (int c = 0; c < MT; ++c) gk_tensor<TX>::mma(d[c], a, p[c][j >> 1][(j & 1) * 2], p[c][j >> 1][(j & 1) * 2 + 1]);
            }
            GK_UNROLL for (int c = 0; c < MT; ++c) {
              acc[r][c][0] = fmaf(TIMES * s0, d[c][0], fmaf(b0, e[c][0], acc[r][c][0]));
              acc[r][c][1] = fmaf(TIMES * s0, d[c][1], fmaf(b0, e[c][1], acc[r][c][1]));
              acc[r][c][2] = fmaf(TIMES * s1, d[c][2], fmaf(b1, e[c][2], acc[r][c][2]));
              acc[r][c][3] = fmaf(TIMES * s1, d[c][3], fmaf(b1, e[c][3], acc[r][c][3]));
            }
          }
        }
      }
    }
  } else if (BITS == 8) {
    const char* wp = (const char*)w + (W0 + n0) * K + (NARROW_GROUPS ? t * 8 : t * 16);
    uint4 wr[RT][2][4], wx[RT][2][4];                         // a unit of rows g and g + 8, now and next
    Scales sr[RT], sx[RT];
    auto piece = [&](const char* p) {
      if (!NARROW_GROUPS) return gk_stream4(p);
      const uint2 a = gk_stream2(p), b = gk_stream2(p + 32);
      return uint4{a.x, a.y, b.x, b.y};
    };
    auto fetch = [&](int u) {
      GK_UNROLL for (int r = 0; r < RT; ++r) {
        GK_UNROLL for (int i = 0; i < 4; ++i) {
          wx[r][0][i] = wx[r][1][i] = {0, 0, 0, 0};
          if (!WHOLE && u * 256 + i * 64 >= K) continue;
          wx[r][0][i] = piece(wp + (gk_long)w_row(r * 16 + g) * K + u * 256 + i * 64);
          wx[r][1][i] = piece(wp + (gk_long)w_row(r * 16 + g + 8) * K + u * 256 + i * 64);
        }
        sx[r] = unit_scales(r, u);
      }
    };
    fetch(u0);
    GK_WAIT();                                                // x is there
    for (int u = u0; u < u1; ++u) {
      GK_UNROLL for (int r = 0; r < RT; ++r) {
        GK_UNROLL for (int i = 0; i < 4; ++i) { wr[r][0][i] = wx[r][0][i]; wr[r][1][i] = wx[r][1][i]; }
        sr[r] = sx[r];
      }
      if (u + 1 < u1) fetch(u + 1);
      GK_UNROLL for (int i = 0; i < 4; ++i)                   // 64 k
        GK_UNROLL for (int half = 0; half < HALVES; ++half) {  // groups, or all of the 64
          constexpr int OF_GROUP = 4 / HALVES;                // instructions
          float s[RT][2], b[RT][2];
          GK_UNROLL for (int r = 0; r < RT; ++r) {
            const float sv = sr[r].of((i * 64 + half * 32) / GROUP);
            GK_UNROLL for (int h = 0; h < 2; ++h) {
              s[r][h] = TIMES * gk_shfl(sv, g * 4 + 2 * h);
              b[r][h] = gk_shfl(sv, g * 4 + 2 * h + 1);
            }
          }
          GK_UNROLL for (int c = 0; c < MT; ++c) {
            uint4 v[2];
            GK_UNROLL for (int h = 0; h < 2; ++h) {
              v[h] = {0, 0, 0, 0};
              const bool used = HALVES == 1 || h == half;
              if (used && c * 8 + g < M && (WHOLE || u * 256 + i * 64 < K)) v[h] = gk_cached4(xp[c] + (u * 256 + i * 64 + h * HALF) * 2);
            }
            float e[4] = {0, 0, 0, 0};                        // sums of x, for the biases
            GK_UNROLL for (int j = half * OF_GROUP; j < (half + 1) * OF_GROUP; ++j)
              gk_tensor<TX>::mma(e, one, gk_word(v[j >> 1], (j & 1) * 2), gk_word(v[j >> 1], (j & 1) * 2 + 1));
            GK_UNROLL for (int r = 0; r < RT; ++r) {
              float d[4] = {0, 0, 0, 0};
              GK_UNROLL for (int j = half * OF_GROUP; j < (half + 1) * OF_GROUP; ++j) {
                const gk_uint wa = gk_word(wr[r][0][i], j), wb = gk_word(wr[r][1][i], j);
                const gk_uint a[4] = {Codes::eight(wa, 0), Codes::eight(wb, 0), Codes::eight(wa, 2), Codes::eight(wb, 2)};
                gk_tensor<TX>::mma(d, a, gk_word(v[j >> 1], (j & 1) * 2), gk_word(v[j >> 1], (j & 1) * 2 + 1));
              }
              acc[r][c][0] = fmaf(s[r][0], d[0], fmaf(b[r][0], e[0], acc[r][c][0]));
              acc[r][c][1] = fmaf(s[r][0], d[1], fmaf(b[r][0], e[1], acc[r][c][1]));
              acc[r][c][2] = fmaf(s[r][1], d[2], fmaf(b[r][1], e[2], acc[r][c][2]));
              acc[r][c][3] = fmaf(s[r][1], d[3], fmaf(b[r][1], e[3], acc[r][c][3]));
            }
          }
        }
    }
  } else {
    const char* wp = (const char*)w + ((W0 + n0) * K + t * 8) * 2;
    uint4 wr[RT][2][4], wx[RT][2][4];
    auto fetch = [&](int u) {
      GK_UNROLL for (int r = 0; r < RT; ++r)
        GK_UNROLL for (int i = 0; i < 4; ++i) {
          wx[r][0][i] = wx[r][1][i] = {0, 0, 0, 0};
          if (!WHOLE && u * 128 + i * 32 >= K) continue;
          wx[r][0][i] = gk_stream4(wp + (gk_long)w_row(r * 16 + g) * K * 2 + u * 256 + i * 64);
          wx[r][1][i] = gk_stream4(wp + (gk_long)w_row(r * 16 + g + 8) * K * 2 + u * 256 + i * 64);
        }
    };
    fetch(2 * u0);
    GK_WAIT();                                                // x is there
    for (int u = 2 * u0; u < 2 * u1; ++u) {                   // 128 k
      uint4 xv[MT][4];
      GK_UNROLL for (int c = 0; c < MT; ++c)
        GK_UNROLL for (int i = 0; i < 4; ++i) {
          uint4 v = {0, 0, 0, 0};
          if (c * 8 + g < M && (WHOLE || u * 128 + i * 32 < K)) v = gk_cached4(xp[c] + (u * 128 + i * 32) * 2);
          xv[c][i] = v;
        }
      GK_UNROLL for (int r = 0; r < RT; ++r)
        GK_UNROLL for (int i = 0; i < 4; ++i) { wr[r][0][i] = wx[r][0][i]; wr[r][1][i] = wx[r][1][i]; }
      if (u + 1 < 2 * u1) fetch(u + 1);
      GK_UNROLL for (int i = 0; i < 4; ++i)                   // 32 k
        GK_UNROLL for (int r = 0; r < RT; ++r) {
          const gk_uint a0[4] = {wr[r][0][i].x, wr[r][1][i].x, wr[r][0][i].y, wr[r][1][i].y};
          const gk_uint a1[4] = {wr[r][0][i].z, wr[r][1][i].z, wr[r][0][i].w, wr[r][1][i].w};
          GK_UNROLL for (int c = 0; c < MT; ++c) {
            gk_tensor<TX>::mma(acc[r][c], a0, xv[c][i].x, xv[c][i].y);
            gk_tensor<TX>::mma(acc[r][c], a1, xv[c][i].z, xv[c][i].w);
          }
        }
    }
  }
}
if (WK > 1) {
  constexpr int S = RT * MT * 128;
  float* red = (float*)ring;
  if (BITS == 4) { gk_wait_all(); GK_BARRIER(); }
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c)
      GK_UNROLL for (int i = 0; i < 4; ++i)                   // [wk][wn][m][n]
        red[((wk * WN + wn) * MT * 8 + c * 8 + t * 2 + (i & 1)) * 16 * RT + r * 16 + g + (i >> 1) * 8] = acc[r][c][i];
  GK_BARRIER();
  for (int i = GK_TID; i < WN * S; i += WN * WK * 32) {
    const int n = (GK_GROUP_X * WN + i / S) * 16 * RT + i % (16 * RT), m = i / (16 * RT) % (MT * 8);
    float s = 0;
    GK_UNROLL for (int j = 0; j < WK; ++j) s += red[j * WN * S + i];
    if (m < M && n < N) y[y_row(m) * N + n] = gk_to<TO>::of(biased(s, n));
  }
} else if (live) {
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c)
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const int m = c * 8 + t * 2 + (i & 1);
        const int n = n0 + r * 16 + g + (i >> 1) * 8;
        if (m < M && (EVEN || n < N)) y[y_row(m) * N + n] = gk_to<TO>::of(biased(acc[r][c][i], n));
      }
}
