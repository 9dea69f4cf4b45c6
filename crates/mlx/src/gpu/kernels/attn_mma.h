// CUDA alone: attention of one row per item on tensor cores, for T bf16 or f16 and pools of T or packed in groups of 64 or
// 128, up to 16 heads per key head, D 64 or 128, BS a multiple of 16. Arguments and results as attn_rows.h with QN = 1.
// S^T = Q K^T with the heads of a key head as the 16 rows of A, 8 keys as columns; P goes back as A without leaving its
// registers. A lane loads eight elements of a key at a time: the order of dimensions inside an instruction is free.
// Codes are multiplied as they are: the scale of a key goes to its scores, that of a value to its weight, and what the bias
// adds is the bias times the sum of the queries, or of the weights.
constexpr int G = HQ / HK, R = G, KS = NS, RS = D + 4, NC = D / 32, NV = D / 64, HALVES = G > 8 ? 2 : 1;
constexpr int NG = BITS > 0 ? D / GROUP : 1, OF_GROUP = D / NG;
typedef gk_head<TP, BITS, OF_GROUP, D> Head;
typedef gk_eight<BITS> Eight;
GK_SHARED(float, red, KS * G * RS);
const int lane = GK_LANE, ks = GK_SIMD, hk = GK_GROUP_Y, g = lane >> 2, t = lane & 3;
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
auto block_of = [&](int key) { const int b = key / BS; return table[tab + (b < SB ? b : b - freed)]; };
uint2 qf[HALVES][NC][2];
GK_UNROLL for (int o = 0; o < HALVES; ++o)
  GK_UNROLL for (int c = 0; c < NC; ++c)
    GK_UNROLL for (int h = 0; h < 2; ++h) {
      uint2 v = {0, 0};
      if (g + 8 * o < G) v = gk_cached2(q + ((gk_long)row0 * HQ + hk * G + g + 8 * o) * D + c * 32 + t * 8 + h * 4);
      qf[o][c][h] = v;
    }
float sums[HALVES][NG], biased[HALVES][NG];                   // of the queries of a group; of weights times biases
GK_UNROLL for (int o = 0; o < HALVES; ++o)
  GK_UNROLL for (int w = 0; w < NG; ++w) {
    sums[o][w] = biased[o][w] = 0;
    if (BITS > 0) {
      GK_UNROLL for (int c = w * OF_GROUP / 32; c < (w + 1) * OF_GROUP / 32; ++c)
        GK_UNROLL for (int h = 0; h < 2; ++h) sums[o][w] += gk_sum2<T>(qf[o][c][h].x) + gk_sum2<T>(qf[o][c][h].y);
      sums[o][w] += gk_shfl_xor(sums[o][w], 1);
      sums[o][w] += gk_shfl_xor(sums[o][w], 2);
    }
  }
float acc[NV][8][4];
GK_UNROLL for (int v = 0; v < NV; ++v)
  GK_UNROLL for (int j = 0; j < 8; ++j) { acc[v][j][0] = acc[v][j][1] = acc[v][j][2] = acc[v][j][3] = 0; }
float m[HALVES], l[HALVES];
GK_UNROLL for (int o = 0; o < HALVES; ++o) { m[o] = -1e30f; l[o] = 0; }
int tile = per * GK_GROUP_X + ks;
int block = tile < t1 ? block_of(first_key(tile)) : 0;
for (; tile < t1; tile += KS) {
  const int k0 = first_key(tile);
  const gk_long at = (((gk_long)block * BS + k0 % BS) * HK + hk) * Head::WIDTH;
  block = tile + KS < t1 ? block_of(first_key(tile + KS)) : 0;
  Eight kr[2][NC], vr[2][2][NV];
  float kscale[2][2][NG], kbias[2][2][NG], vscale[2][2][NG], vbias[2][2][NG];
  GK_UNROLL for (int i = 0; i < 2; ++i)                       // keys i * 8 + g
    GK_UNROLL for (int c = 0; c < NC; ++c)
      kr[i][c].read(kpool + at + (gk_long)(i * 8 + g) * HK * Head::WIDTH, c * 32 + t * 8, k0 + i * 8 + g < n);
  GK_UNROLL for (int i = 0; i < 2; ++i)                       // keys i * 8 + 2 t + j
    GK_UNROLL for (int j = 0; j < 2; ++j) {
      const bool some = k0 + i * 8 + 2 * t + j < n;
      const gk_long key = at + (gk_long)(i * 8 + 2 * t + j) * HK * Head::WIDTH;
      GK_UNROLL for (int h = 0; h < NV; ++h) vr[i][j][h].read(vpool + key, h * 64 + g * 8, some);
      Eight::template numbers<Head>(kpool + key, kscale[i][j], kbias[i][j], some);
      Eight::template numbers<Head>(vpool + key, vscale[i][j], vbias[i][j], some);
    }
  float s[2][4];
  GK_UNROLL for (int i = 0; i < 2; ++i) {
    s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
    GK_UNROLL for (int w = 0; w < NG; ++w) {
      float part[4] = {0, 0, 0, 0};
      GK_UNROLL for (int c = w * OF_GROUP / 32; c < (w + 1) * OF_GROUP / 32; ++c)
        GK_UNROLL for (int h = 0; h < 2; ++h) {
          const uint2 low = qf[0][c][h], high = qf[HALVES - 1][c][h];
          const gk_uint a[4] = {low.x, HALVES > 1 ? high.x : 0, low.y, HALVES > 1 ? high.y : 0};
          gk_tensor<T>::mma(part, a, kr[i][c].template pair<T>(2 * h), kr[i][c].template pair<T>(2 * h + 1));
        }
      GK_UNROLL for (int e = 0; e < 4; ++e) {
        const float bias = BITS > 0 ? kbias[i][e & 1][w] * sums[HALVES > 1 ? e >> 1 : 0][w] : 0;
        s[i][e] += BITS > 0 ? part[e] * kscale[i][e & 1][w] + bias : part[e];
      }
    }
  }
  GK_UNROLL for (int o = 0; o < HALVES; ++o) {
    float top = m[o];
    GK_UNROLL for (int i = 0; i < 2; ++i)
      GK_UNROLL for (int j = 0; j < 2; ++j) {
        const int k = k0 + i * 8 + 2 * t + j;
        const bool seen = k < n && (WINDOW == 0 || k + WINDOW >= n || k < SINK);
        s[i][2 * o + j] = seen ? gk_capped<CAP>(s[i][2 * o + j] * GK_FLOAT(SCALE)) : -3e38f;
        top = s[i][2 * o + j] > top ? s[i][2 * o + j] : top;
      }
    { float x = gk_shfl_xor(top, 1); top = x > top ? x : top; x = gk_shfl_xor(top, 2); top = x > top ? x : top; }
    if (top > m[o]) {
      const float a = gk_exp2(m[o] - top);
      m[o] = top;
      l[o] *= a;
      GK_UNROLL for (int w = 0; w < NG; ++w) biased[o][w] *= a;
      GK_UNROLL for (int v = 0; v < NV; ++v)
        GK_UNROLL for (int j = 0; j < 8; ++j) { acc[v][j][2 * o] *= a; acc[v][j][2 * o + 1] *= a; }
    }
    GK_UNROLL for (int i = 0; i < 2; ++i)
      GK_UNROLL for (int j = 0; j < 2; ++j) { s[i][2 * o + j] = gk_exp2(s[i][2 * o + j] - top); l[o] += s[i][2 * o + j]; }
  }
  GK_UNROLL for (int w = 0; w < NG; ++w) {
    gk_uint p[4] = {0, 0, 0, 0};
    GK_UNROLL for (int o = 0; o < HALVES; ++o)
      GK_UNROLL for (int i = 0; i < 2; ++i) {
        if (BITS > 0) {
          p[2 * i + o] = gk_tensor<T>::pair(s[i][2 * o] * vscale[i][0][w], s[i][2 * o + 1] * vscale[i][1][w]);
          biased[o][w] += s[i][2 * o] * vbias[i][0][w] + s[i][2 * o + 1] * vbias[i][1][w];
        } else {
          p[2 * i + o] = gk_tensor<T>::pair(s[i][2 * o], s[i][2 * o + 1]);
        }
      }
    GK_UNROLL for (int h = w * OF_GROUP / 64; h < (w + 1) * OF_GROUP / 64; ++h)
      GK_UNROLL for (int e = 0; e < 8; ++e)
        gk_tensor<T>::mma(acc[h][e], p, Eight::template across<T>(vr[0][0][h], vr[0][1][h], e),
                          Eight::template across<T>(vr[1][0][h], vr[1][1][h], e));
  }
}
GK_UNROLL for (int o = 0; o < HALVES; ++o) {
  l[o] += gk_shfl_xor(l[o], 1);
  l[o] += gk_shfl_xor(l[o], 2);
  if (BITS > 0) {
    GK_UNROLL for (int w = 0; w < NG; ++w) {
      biased[o][w] += gk_shfl_xor(biased[o][w], 1);
      biased[o][w] += gk_shfl_xor(biased[o][w], 2);
    }
  }
  if (g + 8 * o < G) {
    float* r = red + (ks * G + g + 8 * o) * RS;
    GK_UNROLL for (int h = 0; h < NV; ++h)
      GK_UNROLL for (int j = 0; j < 8; ++j) {
        r[h * 64 + 16 * t + j] = acc[h][j][2 * o] + biased[o][h * 64 / OF_GROUP];
        r[h * 64 + 16 * t + 8 + j] = acc[h][j][2 * o + 1] + biased[o][h * 64 / OF_GROUP];
      }
    if (t == 0) { r[D] = m[o]; r[D + 1] = l[o]; }
  }
}
//@include attn_tail.h
//@include attn_last.h
