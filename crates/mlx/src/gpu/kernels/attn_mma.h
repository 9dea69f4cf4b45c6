// CUDA alone: attention of one row per item on tensor cores, for T bf16 or f16 and pools of T or packed in groups of 64 or
// 128, up to 16 heads per key head, D 64, 128, 256 or 512, BS a multiple of 16. Arguments and results as attn_rows.h with QN = 1.
// S^T = K Q^T with 16 keys as the rows of A and eight of the heads of a key head as columns, O^T = V^T P^T with dimensions as
// rows: so half of a product is not wasted where there are no more than eight heads. P is turned in registers. A lane loads
// eight elements of a key at a time: the order of dimensions inside an instruction is free.
// Codes are multiplied as f16 (gk_eight): the scale of a key goes to its scores, that of a value to its weight, and what the
// bias adds is the bias times the sum of the queries, or of the weights. What the keys' numbers are above their codes is taken
// away by where the scores begin. Weights are 2^SHIFT larger, so that f16 holds small ones.
// Above 128 dimensions DS simd groups have the same keys, 128 dimensions each, and add up their scores.
constexpr int DS = D > 128 ? D / 128 : 1, DO = D / DS;
constexpr int G = HQ / HK, R = G, KS = NS / DS, RS = D + 4, NC = DO / 32, NV = DO / 64, HALVES = G > 8 ? 2 : 1;
constexpr int NG = BITS > 0 ? DO / GROUP : 1, OF_GROUP = DO / NG;
typedef gk_head<TP, BITS, OF_GROUP, D> Head;
typedef gk_eight<BITS> Eight;
typedef typename Eight::template product<T>::type P;
constexpr int SHIFT = BITS > 0 ? 8 : 0;
GK_SHARED(float, red, KS * G * RS);
typedef gk_vec<float, 4> Four;
GK_SHARED(Four, scores, DS > 1 ? 2 * HALVES * NS * 32 : 1);   // of slices, those of two tiles in turns
const int lane = GK_LANE, ks = GK_SIMD / DS, d0 = GK_SIMD % DS * DO, hk = GK_GROUP_Y, g = lane >> 2, t = lane & 3;
const int ITEM = GK_GROUP_Z;
//@include attn_item.h
const int n = hi;
// Tiles of 16 keys, which never cross a block; first those of the sinks, then those of the window.
int base = WINDOW > 0 && n > WINDOW ? (n - WINDOW) / 16 * 16 : 0, sink_tiles = 0;
if (SINK > 0 && base >= (SINK + 15) / 16 * 16) sink_tiles = (SINK + 15) / 16;
else if (SINK > 0) base = 0;
const int tiles = sink_tiles + (n - base + 15) / 16, per = (tiles + GK_GROUPS_X - 1) / GK_GROUPS_X;
const int t1 = per * (GK_GROUP_X + 1) < tiles ? per * (GK_GROUP_X + 1) : tiles;
auto first_key = [&](int tile) { return tile < sink_tiles ? tile * 16 : base + (tile - sink_tiles) * 16; };
auto block_at = [&](int tile) {
  const int b = first_key(tile) / BS;
  return tile < t1 ? table[tab + (b < SB ? b : b - freed)] : 0;
};
// As columns, a lane has dimensions of head g of eight; of scores and results it has heads 2 t and 2 t + 1.
uint2 qf[HALVES][NC][2];
GK_UNROLL for (int o = 0; o < HALVES; ++o)
  GK_UNROLL for (int c = 0; c < NC; ++c) {
    GK_UNROLL for (int h = 0; h < 2; ++h) {
      uint2 v = {0, 0};
      if (g + 8 * o < G) v = gk_cached2(q + ((gk_long)row0 * HQ + hk * G + g + 8 * o) * D + d0 + c * 32 + t * 8 + h * 4);
      qf[o][c][h] = v;
    }
    Eight::template queries<T>(qf[o][c]);
  }
float sums[HALVES][NG][2], biased[HALVES][NG][2];             // of the queries of a group; of weights times biases
GK_UNROLL for (int o = 0; o < HALVES; ++o)
  GK_UNROLL for (int w = 0; w < NG; ++w) {
    biased[o][w][0] = biased[o][w][1] = sums[o][w][0] = sums[o][w][1] = 0;
    if (BITS > 0) {
      float sum = 0;
      GK_UNROLL for (int c = w * OF_GROUP / 32; c < (w + 1) * OF_GROUP / 32; ++c)
        GK_UNROLL for (int h = 0; h < 2; ++h) sum += gk_sum2<P>(qf[o][c][h].x) + gk_sum2<P>(qf[o][c][h].y);
      sum += gk_shfl_xor(sum, 1);
      sum += gk_shfl_xor(sum, 2);
      GK_UNROLL for (int j = 0; j < 2; ++j) sums[o][w][j] = gk_shfl(sum, (2 * t + j) * 4);
    }
  }
float acc[HALVES][NV][4][4], m[HALVES][2], l[HALVES][2];
GK_UNROLL for (int o = 0; o < HALVES; ++o) {
  m[o][0] = m[o][1] = -1e30f;
  l[o][0] = l[o][1] = 0;
  GK_UNROLL for (int h = 0; h < NV; ++h)
    GK_UNROLL for (int e = 0; e < 4; ++e) { acc[o][h][e][0] = acc[o][h][e][1] = acc[o][h][e][2] = acc[o][h][e][3] = 0; }
}
struct Tile {
  Eight k[2][NC], v[2][2][NV];                                // keys i * 8 + g; i * 8 + 2 t + j
  float kscale[2][NG], kbias[2][NG], vscale[2][NG], vbias[2][NG];
};
auto load = [&](Tile& x, int tile, int block) {
  const int k0 = first_key(tile);
  const gk_long at = (((gk_long)block * BS + k0 % BS) * HK + hk) * Head::WIDTH;
  GK_UNROLL for (int i = 0; i < 2; ++i) {
    const bool some = k0 + i * 8 + g < n;
    const gk_long key = at + (gk_long)(i * 8 + g) * HK * Head::WIDTH;
    GK_UNROLL for (int c = 0; c < NC; ++c) x.k[i][c].read(kpool + key, d0 + c * 32 + t * 8, some);
    Eight::template numbers<Head, NG * DS>(kpool + key, d0 / OF_GROUP, x.kscale[i], x.kbias[i], some);
    Eight::template numbers<Head, NG * DS>(vpool + key, d0 / OF_GROUP, x.vscale[i], x.vbias[i], some);
  }
  GK_UNROLL for (int i = 0; i < 2; ++i)
    GK_UNROLL for (int j = 0; j < 2; ++j)
      GK_UNROLL for (int h = 0; h < NV; ++h)
        x.v[i][j][h].read(vpool + at + (gk_long)(i * 8 + 2 * t + j) * HK * Head::WIDTH, d0 + h * 64 + g * 8, k0 + i * 8 + 2 * t + j < n);
};
int turn = 0;
auto attend = [&](const Tile& x, int k0) {
  GK_UNROLL for (int o = 0; o < HALVES; ++o) {
    float s[4] = {0, 0, 0, 0};                                // keys g and g + 8 of two heads
    GK_UNROLL for (int w = 0; w < NG; ++w) {
      const float s0 = -Eight::ABOVE * sums[o][w][0], s1 = -Eight::ABOVE * sums[o][w][1];
      float part[4] = {s0, s1, s0, s1};
      GK_UNROLL for (int c = w * OF_GROUP / 32; c < (w + 1) * OF_GROUP / 32; ++c)
        GK_UNROLL for (int h = 0; h < 2; ++h) {
          const gk_uint a[4] = {x.k[0][c].template pair<P>(2 * h), x.k[1][c].template pair<P>(2 * h),
                                x.k[0][c].template pair<P>(2 * h + 1), x.k[1][c].template pair<P>(2 * h + 1)};
          gk_tensor<P>::mma(part, a, qf[o][c][h].x, qf[o][c][h].y);
        }
      GK_UNROLL for (int e = 0; e < 4; ++e)
        s[e] = BITS > 0 ? fmaf(part[e], x.kscale[e >> 1][w], fmaf(x.kbias[e >> 1][w], sums[o][w][e & 1], s[e])) : part[e];
    }
    if (DS > 1) {
      Four* const own = scores + ((turn * HALVES + o) * NS + ks * DS) * 32 + lane;
      own[GK_SIMD % DS * 32] = Four{{s[0], s[1], s[2], s[3]}};
      gk_join<DS * 32>(1 + ks);
      s[0] = s[1] = s[2] = s[3] = 0;
      GK_UNROLL for (int i = 0; i < DS; ++i)
        GK_UNROLL for (int e = 0; e < 4; ++e) s[e] += own[i * 32].v[e];
    }
    float a[2];
    GK_UNROLL for (int j = 0; j < 2; ++j) {
      float top = m[o][j];
      GK_UNROLL for (int i = 0; i < 2; ++i) {
        const int k = k0 + i * 8 + g;
        const bool seen = k < n && (WINDOW == 0 || k + WINDOW >= n || k < SINK);
        s[2 * i + j] = seen ? gk_capped<CAP>(s[2 * i + j] * GK_FLOAT(SCALE)) : -3e38f;
        top = s[2 * i + j] > top ? s[2 * i + j] : top;
      }
      GK_UNROLL for (int d = 4; d < 32; d <<= 1) { const float y = gk_shfl_xor(top, d); top = y > top ? y : top; }
      a[j] = gk_exp2(m[o][j] - top);
      m[o][j] = top;
      l[o][j] *= a[j];
      GK_UNROLL for (int i = 0; i < 2; ++i) { s[2 * i + j] = gk_exp2(s[2 * i + j] - (top - SHIFT)); l[o][j] += s[2 * i + j]; }
    }
    if (a[0] != 1 || a[1] != 1) {
      GK_UNROLL for (int w = 0; w < NG; ++w)
        GK_UNROLL for (int j = 0; j < 2; ++j) biased[o][w][j] *= a[j];
      GK_UNROLL for (int h = 0; h < NV; ++h)
        GK_UNROLL for (int e = 0; e < 4; ++e)
          GK_UNROLL for (int i = 0; i < 4; ++i) acc[o][h][e][i] *= a[i & 1];
    }
    GK_UNROLL for (int w = 0; w < NG; ++w) {
      gk_uint p[2];
      GK_UNROLL for (int i = 0; i < 2; ++i) {
        if (BITS > 0) {
          p[i] = gk_tensor<P>::pair(s[2 * i] * x.vscale[i][w], s[2 * i + 1] * x.vscale[i][w]);
          const float bias = fmaf(x.vscale[i][w], (float)Eight::MIDDLE, x.vbias[i][w]);
          GK_UNROLL for (int j = 0; j < 2; ++j) biased[o][w][j] = fmaf(s[2 * i + j], bias, biased[o][w][j]);
        } else {
          p[i] = gk_tensor<P>::pair(s[2 * i], s[2 * i + 1]);
        }
        p[i] = gk_turned(p[i]);
      }
      GK_UNROLL for (int h = w * OF_GROUP / 64; h < (w + 1) * OF_GROUP / 64; ++h)
        GK_UNROLL for (int e = 0; e < 4; ++e) {               // rows: dimensions 2 e and 2 e + 1 of eight
          const gk_uint v[4] = {Eight::template across<P>(x.v[0][0][h], x.v[0][1][h], 2 * e), Eight::template across<P>(x.v[0][0][h], x.v[0][1][h], 2 * e + 1),
                                Eight::template across<P>(x.v[1][0][h], x.v[1][1][h], 2 * e), Eight::template across<P>(x.v[1][0][h], x.v[1][1][h], 2 * e + 1)};
          gk_tensor<P>::mma(acc[o][h][e], v, p[0], p[1]);
        }
    }
  }
  turn ^= 1;
};
int tile = per * GK_GROUP_X + ks;
if (BITS > 0) {                                               // tiles are read one ahead: they are fewer bytes on their way
  Tile x[2];
  if (tile < t1) load(x[0], tile, block_at(tile));
  int block = block_at(tile + KS);
  for (; tile < t1; tile += 2 * KS) {
    GK_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const int now = tile + odd * KS;
      if (now >= t1) break;
      if (now + KS < t1) load(x[1 - odd], now + KS, block);
      block = block_at(now + 2 * KS);
      attend(x[odd], first_key(now));
    }
  }
} else {
  int block = block_at(tile);
  for (; tile < t1; tile += KS) {
    Tile x;
    load(x, tile, block);
    block = block_at(tile + KS);
    attend(x, first_key(tile));
  }
}
GK_UNROLL for (int o = 0; o < HALVES; ++o)
  GK_UNROLL for (int j = 0; j < 2; ++j) {
    GK_UNROLL for (int d = 4; d < 32; d <<= 1) {
      l[o][j] += gk_shfl_xor(l[o][j], d);
      if (BITS > 0) { GK_UNROLL for (int w = 0; w < NG; ++w) biased[o][w][j] += gk_shfl_xor(biased[o][w][j], d); }
    }
    const int head = 8 * o + 2 * t + j;
    if (head < G) {
      float* r = red + (ks * G + head) * RS;
      GK_UNROLL for (int h = 0; h < NV; ++h)
        GK_UNROLL for (int e = 0; e < 4; e += 2) {
          const float bias = biased[o][h * 64 / OF_GROUP][j];
          const gk_vec<float, 4> v = {{acc[o][h][e][j] + bias, acc[o][h][e][2 + j] + bias, acc[o][h][e + 1][j] + bias, acc[o][h][e + 1][2 + j] + bias}};
          *reinterpret_cast<gk_vec<float, 4>*>(r + d0 + h * 64 + g * 8 + 2 * e) = v;
        }
      if (g == 0 && d0 == 0) { r[D] = m[o][j] - SHIFT; r[D + 1] = l[o][j]; }
    }
  }
//@include attn_mma_tail.h
//@include attn_mma_last.h
