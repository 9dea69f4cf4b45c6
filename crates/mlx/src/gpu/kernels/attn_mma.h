// CUDA alone: attention of one row per item on tensor cores, for pools of T (bf16 or f16), up to 16 heads per key head,
// D 64 or 128, BS a multiple of 16. Arguments and results as attn_rows.h with QN = 1.
// S^T = Q K^T with the heads of a key head as the 16 rows of A, 8 keys as columns; P goes back as A without leaving its
// registers. A lane loads 16 bytes of a key at a time: the order of dimensions inside an instruction is free.
constexpr int G = HQ / HK, R = G, KS = NS, RS = D + 4, NC = D / 32, NV = D / 64, HALVES = G > 8 ? 2 : 1;
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
float acc[NV][8][4];
GK_UNROLL for (int v = 0; v < NV; ++v)
  GK_UNROLL for (int j = 0; j < 8; ++j) { acc[v][j][0] = acc[v][j][1] = acc[v][j][2] = acc[v][j][3] = 0; }
float m[HALVES], l[HALVES];
GK_UNROLL for (int o = 0; o < HALVES; ++o) { m[o] = -1e30f; l[o] = 0; }
int tile = per * GK_GROUP_X + ks;
int block = tile < t1 ? block_of(first_key(tile)) : 0;
for (; tile < t1; tile += KS) {
  const int k0 = first_key(tile);
  const gk_long at = (((gk_long)block * BS + k0 % BS) * HK + hk) * D;
  block = tile + KS < t1 ? block_of(first_key(tile + KS)) : 0;
  uint4 kr[2][NC], vr[2][2][NV];
  GK_UNROLL for (int i = 0; i < 2; ++i)                       // keys i * 8 + g
    GK_UNROLL for (int c = 0; c < NC; ++c) {
      uint4 v = {0, 0, 0, 0};
      if (k0 + i * 8 + g < n) v = gk_kv4(kpool + at + (gk_long)(i * 8 + g) * HK * D + c * 32 + t * 8);
      kr[i][c] = v;
    }
  GK_UNROLL for (int i = 0; i < 2; ++i)                       // keys i * 8 + 2 t + j
    GK_UNROLL for (int j = 0; j < 2; ++j)
      GK_UNROLL for (int h = 0; h < NV; ++h) {
        uint4 v = {0, 0, 0, 0};
        if (k0 + i * 8 + 2 * t + j < n) v = gk_kv4(vpool + at + (gk_long)(i * 8 + 2 * t + j) * HK * D + h * 64 + g * 8);
        vr[i][j][h] = v;
      }
  float s[2][4];
  GK_UNROLL for (int i = 0; i < 2; ++i) {
    s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
    GK_UNROLL for (int c = 0; c < NC; ++c) {
      const gk_uint a0[4] = {qf[0][c][0].x, HALVES > 1 ? qf[HALVES - 1][c][0].x : 0, qf[0][c][0].y, HALVES > 1 ? qf[HALVES - 1][c][0].y : 0};
      const gk_uint a1[4] = {qf[0][c][1].x, HALVES > 1 ? qf[HALVES - 1][c][1].x : 0, qf[0][c][1].y, HALVES > 1 ? qf[HALVES - 1][c][1].y : 0};
      gk_tensor<T>::mma(s[i], a0, kr[i][c].x, kr[i][c].y);
      gk_tensor<T>::mma(s[i], a1, kr[i][c].z, kr[i][c].w);
    }
  }
  GK_UNROLL for (int o = 0; o < HALVES; ++o) {
    float top = m[o];
    GK_UNROLL for (int i = 0; i < 2; ++i)
      GK_UNROLL for (int j = 0; j < 2; ++j) {
        const int k = k0 + i * 8 + 2 * t + j;
        const bool seen = k < n && (WINDOW == 0 || k + WINDOW >= n || k < SINK);
        s[i][2 * o + j] = seen ? s[i][2 * o + j] * GK_FLOAT(SCALE) : -3e38f;
        top = s[i][2 * o + j] > top ? s[i][2 * o + j] : top;
      }
    { float x = gk_shfl_xor(top, 1); top = x > top ? x : top; x = gk_shfl_xor(top, 2); top = x > top ? x : top; }
    if (top > m[o]) {
      const float a = gk_exp2(m[o] - top);
      m[o] = top;
      l[o] *= a;
      GK_UNROLL for (int v = 0; v < NV; ++v)
        GK_UNROLL for (int j = 0; j < 8; ++j) { acc[v][j][2 * o] *= a; acc[v][j][2 * o + 1] *= a; }
    }
    GK_UNROLL for (int i = 0; i < 2; ++i)
      GK_UNROLL for (int j = 0; j < 2; ++j) { s[i][2 * o + j] = gk_exp2(s[i][2 * o + j] - top); l[o] += s[i][2 * o + j]; }
  }
  const gk_uint p[4] = {gk_tensor<T>::pair(s[0][0], s[0][1]), HALVES > 1 ? gk_tensor<T>::pair(s[0][2], s[0][3]) : 0,
                        gk_tensor<T>::pair(s[1][0], s[1][1]), HALVES > 1 ? gk_tensor<T>::pair(s[1][2], s[1][3]) : 0};
  GK_UNROLL for (int h = 0; h < NV; ++h)
    GK_UNROLL for (int w = 0; w < 4; ++w) {
      const gk_uint v00 = gk_word(vr[0][0][h], w), v01 = gk_word(vr[0][1][h], w), v10 = gk_word(vr[1][0][h], w), v11 = gk_word(vr[1][1][h], w);
      gk_tensor<T>::mma(acc[h][2 * w], p, gk_bytes(v00, v01, 0x5410), gk_bytes(v10, v11, 0x5410));
      gk_tensor<T>::mma(acc[h][2 * w + 1], p, gk_bytes(v00, v01, 0x7632), gk_bytes(v10, v11, 0x7632));
    }
}
GK_UNROLL for (int o = 0; o < HALVES; ++o) {
  l[o] += gk_shfl_xor(l[o], 1);
  l[o] += gk_shfl_xor(l[o], 2);
  if (g + 8 * o < G) {
    float* r = red + (ks * G + g + 8 * o) * RS;
    GK_UNROLL for (int h = 0; h < NV; ++h)
      GK_UNROLL for (int j = 0; j < 8; ++j) {
        r[h * 64 + 16 * t + j] = acc[h][j][2 * o];
        r[h * 64 + 16 * t + 8 + j] = acc[h][j][2 * o + 1];
      }
    if (t == 0) { r[D] = m[o]; r[D + 1] = l[o]; }
  }
}
//@include attn_tail.h
