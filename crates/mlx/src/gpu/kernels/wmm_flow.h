// CUDA alone: the product of wmm.h for up to 8 MT rows, by persistent groups: each takes every GK_GROUPS_X-th tile of 16 RT rows of w.
// WK simd groups split k. Each has its own ring of ST units of w in shared memory, which runs on from tile to tile, and begins
// before x is there; so memory is busy while the kernels before this one end, while tiles are added up, and at their borders.
// A simd group has at most HELD units of k, and keeps what it needs of x: in registers (KEPT, for few units), or in shared memory, each
// lane its own words. HELD is 0: any number of units, and x passes through the ring as well.
// Weights are the A operand (16 rows), rows of x the B operand (8 columns), k in the order of wmm_body.h. MR: rows of x among the
// eight columns. Beside them other columns have the rows of other pieces of k, with zeros for the pieces that an instruction
// does not have; so scales are used once for 8 / MR pieces, and x takes that many registers less.
// BITS, GROUP, FLOAT4, PITCH, WHOLE, EVEN as in wmm_body.h. groups (up to N / (16 RT), SPLITS), WK simd groups, SHARED bytes of
// threadgroup memory
const int M = x_shape[0], K = x_shape[1], N = w_shape[0], SPLIT = GK_GROUP_Y, SPLITS = GK_GROUPS_Y;
auto biased = [&](float v, int n) { return BIASED && SPLIT == 0 ? v + gk_f(bias[n]) : v; };
constexpr bool NARROW_GROUPS = BITS < 16 && GROUP == 32, BIASES = BITS < 16 && !FLOAT4;
constexpr int UNIT = BITS == 16 ? 128 : 256;                  // k of a stage of the ring
constexpr int ROW = UNIT * BITS / 128;                        // its 16-byte chunks of a row of w
constexpr int PIECE = NARROW_GROUPS || BITS == 16 ? 32 : 64;  // k of instructions that share a scale
constexpr int SIDE = 8 / MR, BLOCKS = UNIT / (PIECE * SIDE), PRODUCTS = PIECE / 16;
constexpr int WORDS = PIECE * BITS / 128, XWORDS = PIECE / 8;  // a lane's of a row's piece
constexpr int NUMBERS = BITS == 16 ? 0 : FLOAT4 ? 256 / GROUP : 512 / GROUP;  // bytes of a row's scales in a unit
constexpr int OF_W = 16 * RT * ROW, OF_X = HELD > 0 ? 0 : MT * UNIT, STAGE = OF_W + OF_X + 2 * RT * NUMBERS;
constexpr int RM = MT * MR, RN = 16 * RT + 4;                 // of partial results; with a pad (banks)
constexpr int WORDS_OF_X = KEPT ? 0 : HELD * BLOCKS * MT * XWORDS * 8;  // in chunks, of a simd group
constexpr int SUMS = BIASES ? WK * HELD * BLOCKS * MT * 2 : 0, RED = WK > 1 ? WK * RM * RN / 2 : 0;
constexpr int NT = WK * 32;
static_assert((WK * (ST * STAGE + WORDS_OF_X) + SUMS + RED) * 16 <= SHARED, "shared memory");
static_assert(ST >= 3 && BLOCKS > 0 && (MR == 8 || (MT == 1 && HELD > 0)), "a way that there is");
GK_SHARED_LARGE(uint4, flow, SHARED / 16);
float* const red = (float*)(flow + WK * ST * STAGE), *const sums = (float*)(flow + WK * ST * STAGE + RED);
const int lane = GK_LANE, wk = GK_SIMD, g = lane >> 2, t = lane & 3;
const int KU = WHOLE ? K / UNIT : (K + UNIT - 1) / UNIT, parts = SPLITS * WK, mine = SPLIT * WK + wk;
const int u0 = KU * mine / parts, u1 = KU * (mine + 1) / parts, tiles = EVEN ? N / (16 * RT) : (N + 16 * RT - 1) / (16 * RT);
const gk_long RB = (gk_long)K * BITS / 8;                     // bytes of a row
uint4* const own = flow + wk * ST * STAGE, *const held = flow + WK * ST * STAGE + RED + SUMS + wk * WORDS_OF_X + lane;
// Where a chunk of a row lies, so that the lanes of a load find different banks.
auto shuffled = [](int row, int chunk) { return chunk ^ (WORDS == 4 ? (row & 1) * 4 : WORDS == 2 ? (row & 3) * 2 : row & 7); };
auto x_shuffled = [](int row, int chunk) { return chunk ^ (PIECE == 64 ? row & 1 : (row & 1) * 4); };
// The unit that is fetched next, and its stage.
typedef gk_unit_scales<TX, GROUP, FLOAT4> Scales;
typedef gk_codes<TX> Codes;
Scales sx[RT];                                                // on their way, where rows of scales are not aligned
uint4* sx_to = own;                                           // own: nowhere
int ft = u0 < u1 ? GK_GROUP_X : tiles, fu = u0, fs = 0;
// Where this lane reads, if rows are what they seem to be: pointers that move take fewer registers than sums.
const char* from_w = (const char*)w + ((gk_long)ft * 16 * RT + lane / ROW) * RB + (fu * ROW + lane % ROW) * 16;
const char* from_s = Scales::row(lane % 2 ? sb : ss, (gk_long)ft * 16 * RT + lane / 2, K) + fu * NUMBERS;
const gk_long next_rows = 32 / ROW * RB, next_tile = (gk_long)GK_GROUPS_X * 16 * RT * RB - (u1 - u0) * ROW * 16;
const gk_long next_scales = (gk_long)16 * KU * NUMBERS;       // of whole units
auto settle = [&]() {
  if (WHOLE || BITS == 16 || sx_to == own) return;
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int i = 0; i < NUMBERS / 4; ++i) ((gk_uint*)sx_to)[(r * 32 + lane) * NUMBERS / 4 + i] = sx[r].words[i];
  sx_to = own;
};
auto fetch_w = [&]() {
  const int n0 = ft * 16 * RT;
  uint4* const to = own + fs * STAGE;
  auto w_row = [&](int row) { return (gk_long)(EVEN || n0 + row < N ? n0 + row : N - 1); };
  GK_UNROLL for (int i = 0; i < OF_W / 32; ++i) {
    const int row = (lane + 32 * i) / ROW, chunk = (lane + 32 * i) % ROW;
    const char* from = EVEN ? from_w + i * next_rows : (const char*)w + w_row(row) * RB + (fu * ROW + chunk) * 16;
    gk_copy16(to + row * ROW + shuffled(row, chunk), from, WHOLE || fu * UNIT + chunk * (128 / BITS) < K);
  }
  if (BITS < 16) {
    // a lane has the scales (even lanes) or the biases of a row
    uint4* const at = to + OF_W + OF_X;
    settle();
    sx_to = at;
    GK_UNROLL for (int r = 0; r < RT; ++r)
      if (BIASES || lane % 2 == 0) {
        const char* row = Scales::row(lane % 2 ? sb : ss, w_row(r * 16 + lane / 2), K);
        if (WHOLE) gk_copy<(NUMBERS > 0 ? NUMBERS : 4)>((char*)at + (r * 32 + lane) * NUMBERS, EVEN ? from_s + r * next_scales : row + fu * NUMBERS);
        else sx[r] = Scales::template load<WHOLE>(row, fu, K);
      }
  }
};
auto fetch_x = [&](int u, int stage) {
  uint4* const to = own + stage * STAGE + OF_W;
  GK_UNROLL for (int i = 0; i < OF_X / 32; ++i) {
    const int m = (lane + 32 * i) / (UNIT / 8), chunk = (lane + 32 * i) % (UNIT / 8), k = u * UNIT + chunk * 8;
    const bool some = m < M && (WHOLE || k < K);
    gk_copy16(to + m * (UNIT / 8) + x_shuffled(m, chunk), (const char*)x + (some ? (gk_long)m * (PITCH > 0 ? PITCH : K) + k : 0) * 2, some);
  }
};
auto advance = [&]() {
  from_w += ROW * 16;
  from_s += NUMBERS;
  if (++fu == u1) {
    fu = u0;
    ft += GK_GROUPS_X;
    from_w += next_tile;
    from_s += GK_GROUPS_X * RT * next_scales - (u1 - u0) * NUMBERS;
  }
  fs = fs + 1 == ST ? 0 : fs + 1;
};
auto fetch = [&]() {
  if (ft < tiles) {
    fetch_w();
    if (HELD == 0) fetch_x(fu, fs);
    advance();
  } else {
    settle();
  }
  gk_commit();
};
// A lane's words of a piece of x in the order of instructions.
auto arranged = [](gk_uint* to, uint4 v) {
  if (BITS == 4) v = {gk_bytes(v.x, v.z, 0x5410), gk_bytes(v.x, v.z, 0x7632), gk_bytes(v.y, v.w, 0x5410), gk_bytes(v.y, v.w, 0x7632)};
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
};
const gk_uint one[4] = {Codes::ONES, Codes::ONES, Codes::ONES, Codes::ONES};
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::SUM_MAGIC);
gk_uint is[SIDE];                                             // whether this lane's column has a piece; times is cheaper than and
GK_UNROLL for (int i = 0; i < SIDE; ++i) is[i] = gk_opaque(g / MR == i ? 1 : 0);
gk_uint xr[KEPT ? HELD : 1][BLOCKS][MT][XWORDS];
auto held_at = [&](int j, int b, int c, int h) { return (((j * BLOCKS + b) * MT + c) * (XWORDS / 4) + h) * 32; };
if (HELD > 0) {
  GK_UNROLL for (int i = 0; i < ST - 1; ++i) fetch();
  GK_WAIT();                                                  // x is there
  GK_UNROLL for (int j = 0; j < HELD; ++j)
    GK_UNROLL for (int b = 0; b < BLOCKS; ++b)
      GK_UNROLL for (int c = 0; c < MT; ++c) {
        gk_uint words[XWORDS];
        GK_UNROLL for (int h = 0; h < XWORDS / 4; ++h) {
          const int m = c * 8 + g % MR, k = (u0 + j) * UNIT + (b * SIDE + g / MR) * PIECE + t * (PIECE / 4) + h * 8;
          uint4 v = {0, 0, 0, 0};
          if (m < M && u0 + j < u1 && (WHOLE || k < K)) v = gk_cached4(x + (gk_long)m * (PITCH > 0 ? PITCH : K) + k);
          arranged(words + h * 4, v);
        }
        if (KEPT) { GK_UNROLL for (int i = 0; i < XWORDS; ++i) xr[KEPT ? j : 0][b][c][i] = words[i]; }
        else { GK_UNROLL for (int h = 0; h < XWORDS / 4; ++h) held[held_at(j, b, c, h)] = {words[h * 4], words[h * 4 + 1], words[h * 4 + 2], words[h * 4 + 3]}; }
        if (BIASES) {                                         // what biases are multiplied with: sums of pieces of x
          float e[4] = {0, 0, 0, 0};
          GK_UNROLL for (int q = 0; q < PRODUCTS; ++q) gk_tensor<TX>::mma(e, one, words[2 * q], words[2 * q + 1]);
          float* to = sums + (((wk * HELD + j) * BLOCKS + b) * MT + c) * 8 + 2 * t;
          if (g == 0) { to[0] = e[0]; to[1] = e[1]; }
        }
      }
} else {
  // The first units' x comes behind the first units of w.
  const int first = ft;
  GK_UNROLL for (int i = 0; i < ST - 1; ++i)
    if (ft < tiles) { fetch_w(); advance(); }
  if (ft >= tiles) settle();
  GK_WAIT();
  int u = u0, tile = first;
  GK_UNROLL for (int i = 0; i < ST - 1; ++i) {
    if (tile < tiles) fetch_x(u, i);
    if (++u == u1) { u = u0; tile += GK_GROUPS_X; }
    gk_commit();
  }
}
float acc[RT][MT][4];
// A unit: xs(b, c, to) gives a lane's words of x, es(b, c, e) the sums of a block in columns 2 t and 2 t + 1.
auto multiply = [&](const uint4* unit, auto xs, auto es) {
  const char* numbers = (const char*)(unit + OF_W + OF_X);
  auto number = [&](int row, int kind, int group) {
    const char* p = numbers + (row * 2 + kind) * NUMBERS;
    if (!FLOAT4) return Codes::low(*(const unsigned short*)(p + group * 2));
    const gk_uint power = *(const unsigned char*)(p + group);
    return gk_bits(power == 0 ? 0x00400000u : power << 23);
  };
  GK_UNROLL for (int b = 0; b < BLOCKS; ++b) {
    constexpr int CHAINS = SIDE > 1 ? 2 : 1;                  // of products that wait for each other
    float d[RT][MT][CHAINS][4];
    GK_UNROLL for (int r = 0; r < RT; ++r)
      GK_UNROLL for (int c = 0; c < MT; ++c)
        GK_UNROLL for (int j = 0; j < CHAINS; ++j) { d[r][c][j][0] = d[r][c][j][1] = d[r][c][j][2] = d[r][c][j][3] = 0; }
    gk_uint xw[MT][XWORDS];
    GK_UNROLL for (int c = 0; c < MT; ++c) xs(b, c, xw[c]);
    GK_UNROLL for (int i = 0; i < SIDE; ++i) {
      gk_uint wv[RT][2][WORDS];                               // of rows g and g + 8
      GK_UNROLL for (int r = 0; r < RT; ++r)
        GK_UNROLL for (int h = 0; h < 2; ++h) {
          const int row = r * 16 + h * 8 + g, at = (b * SIDE + i) * (WORDS * 4) + t * WORDS;  // in words
          const gk_uint* p = (const gk_uint*)(unit + row * ROW + shuffled(g, at / 4)) + at % 4;
          if (WORDS == 4) { const uint4 v = *(const uint4*)p; wv[r][h][0] = v.x; wv[r][h][1 % WORDS] = v.y; wv[r][h][2 % WORDS] = v.z; wv[r][h][3 % WORDS] = v.w; }
          else if (WORDS == 2) { const uint2 v = *(const uint2*)p; wv[r][h][0] = v.x; wv[r][h][1 % WORDS] = v.y; }
          else wv[r][h][0] = *p;
        }
      GK_UNROLL for (int q = 0; q < PRODUCTS; ++q) {
        gk_uint a[RT][4];
        GK_UNROLL for (int r = 0; r < RT; ++r)
          GK_UNROLL for (int h = 0; h < 2; ++h) {
            if (BITS == 4) {
              const gk_uint word = wv[r][h][q / 2 % WORDS];
              const int shift = (q & 1) * 8;
              a[r][h] = FLOAT4 ? Codes::floats(word >> shift) : gk_nibbles(word >> shift, mask, magic);
              a[r][h + 2] = FLOAT4 ? Codes::floats(word >> (shift + 4)) : gk_nibbles(word >> (shift + 4), mask, magic);
            } else if (BITS == 8) {
              const gk_uint word = wv[r][h][q % WORDS];
              a[r][h] = Codes::eight(word, 0);
              a[r][h + 2] = Codes::eight(word, 2);
            } else {
              a[r][h] = wv[r][h][2 * q % WORDS];
              a[r][h + 2] = wv[r][h][(2 * q + 1) % WORDS];
            }
          }
        GK_UNROLL for (int c = 0; c < MT; ++c) {
          const gk_uint b0 = SIDE > 1 ? xw[c][2 * q] * is[i] : xw[c][2 * q], b1 = SIDE > 1 ? xw[c][2 * q + 1] * is[i] : xw[c][2 * q + 1];
          GK_UNROLL for (int r = 0; r < RT; ++r) gk_tensor<TX>::mma(BITS == 16 ? acc[r][c] : d[r][c][q % CHAINS], a[r], b0, b1);
        }
      }
    }
    if (BITS < 16) {
      const int group = (b * SIDE + 2 * t / MR) * PIECE / GROUP;  // of this lane's columns
      float e[MT][2];
      GK_UNROLL for (int c = 0; c < MT; ++c) es(b, c, xw[c], e[c]);
      GK_UNROLL for (int r = 0; r < RT; ++r)
        GK_UNROLL for (int h = 0; h < 2; ++h) {
          const float scale = number(r * 16 + h * 8 + g, 0, group), s = BIASES ? Codes::TIMES * scale : scale;
          const float bias = BIASES ? number(r * 16 + h * 8 + g, 1, group) - (BITS == 4 ? Codes::ABOVE * scale : 0) : 0;
          GK_UNROLL for (int c = 0; c < MT; ++c)
            GK_UNROLL for (int j = 0; j < 2; ++j) {
              float& to = acc[r][c][h * 2 + j];
              const float product = CHAINS == 2 ? d[r][c][0][h * 2 + j] + d[r][c][CHAINS - 1][h * 2 + j] : d[r][c][0][h * 2 + j];
              to = fmaf(s, product, BIASES ? fmaf(bias, e[c][j], to) : to);
            }
        }
    }
  }
};
int stage = 0, odd = 0, first_simd = wk;                      // which simd group adds up a tile's first results: they take turns
for (int tile = GK_GROUP_X; tile < tiles; tile += GK_GROUPS_X) {
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c) { acc[r][c][0] = acc[r][c][1] = acc[r][c][2] = acc[r][c][3] = 0; }
  auto next = [&]() {                                         // the next unit
    gk_wait<ST - 2>();
    GK_SIMD_BARRIER();                                        // it is there for all lanes, and the one before is read
    fetch();
    const uint4* unit = own + stage * STAGE;
    stage = stage + 1 == ST ? 0 : stage + 1;
    return unit;
  };
  auto held_sums = [&](int j, int b, int c, float* e) {
    if (!BIASES) { e[0] = e[1] = 0; return; }
    const float* p = sums + (((wk * HELD + j) * BLOCKS + b) * MT + c) * 8 + 2 * t;
    e[0] = p[0];
    e[1] = p[1];
  };
  if (KEPT) {
    GK_UNROLL for (int j = 0; j < HELD; ++j)
      if (u0 + j < u1) {
        const uint4* unit = next();
        multiply(unit,
            [&](int b, int c, gk_uint* to) { GK_UNROLL for (int i = 0; i < XWORDS; ++i) to[i] = xr[KEPT ? j : 0][b][c][i]; },
            [&](int b, int c, const gk_uint*, float* e) { held_sums(j, b, c, e); });
      }
  } else if (HELD > 0) {
    for (int j = 0; j < u1 - u0; ++j) {
      const uint4* unit = next();
      multiply(unit,
          [&](int b, int c, gk_uint* to) {
            GK_UNROLL for (int h = 0; h < XWORDS / 4; ++h) {
              const uint4 v = held[held_at(j, b, c, h)];
              to[h * 4] = v.x; to[h * 4 + 1] = v.y; to[h * 4 + 2] = v.z; to[h * 4 + 3] = v.w;
            }
          },
          [&](int b, int c, const gk_uint*, float* e) { held_sums(j, b, c, e); });
    }
  } else {
    for (int u = u0; u < u1; ++u) {
      const uint4* unit = next();
      multiply(unit,
          [&](int b, int c, gk_uint* to) {
            GK_UNROLL for (int h = 0; h < XWORDS / 4; ++h)
              arranged(to + h * 4, unit[OF_W + (c * 8 + g) * (UNIT / 8) + x_shuffled(g, (b * PIECE + t * (PIECE / 4)) / 8 + h)]);
          },
          [&](int, int, const gk_uint* xw, float* e) {
            float sum[4] = {0, 0, 0, 0};
            if (BIASES) { GK_UNROLL for (int q = 0; q < PRODUCTS; ++q) gk_tensor<TX>::mma(sum, one, xw[2 * q], xw[2 * q + 1]); }
            e[0] = sum[0];
            e[1] = sum[1];
          });
    }
  }
  // Columns of other pieces, then other simd groups. Two tiles have places of their own, so that one barrier is enough.
  const int n0 = tile * 16 * RT;
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c)
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        float v = acc[r][c][i];
        if (MR == 2) v += gk_shfl_xor(v, 1);
        if (MR < 8) v += gk_shfl_xor(v, 2);
        const int m = c * 8 + 2 * t + (i & 1), n = r * 16 + g + (i >> 1) * 8;
        if (2 * t >= MR) continue;
        if (WK > 1) red[((odd * WK + wk) * RM + m) * RN + n] = v;
        else if (m < M && (EVEN || n0 + n < N)) y[((gk_long)SPLIT * M + m) * N + n0 + n] = gk_to<TO>::of(biased(v, n0 + n));
      }
  if (WK > 1) {
    GK_BARRIER();
    for (int i = first_simd * 32 + lane; i < M * 16 * RT; i += NT) {
      const int m = i / (16 * RT), n = i % (16 * RT);
      float s = 0;
      GK_UNROLL for (int j = 0; j < WK; ++j) s += red[((odd * WK + j) * RM + m) * RN + n];
      if (EVEN || n0 + n < N) y[((gk_long)SPLIT * M + m) * N + n0 + n] = gk_to<TO>::of(biased(s, n0 + n));
    }
    odd ^= 1;
    first_simd = first_simd + 1 == WK ? 0 : first_simd + 1;
  }
}
