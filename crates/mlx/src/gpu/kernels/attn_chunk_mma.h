// CUDA alone: attention of prompt chunks on tensor cores, for T bf16 or f16 and pools of T or packed, D a multiple of 16 up
// to 256, or of 32 up to 512. The rows of A are pairs of a row and one of the heads that share a key head, 16 NS / DS of them a
// group; keys and values pass through shared memory in tiles of KT, while the next tile is on its way. Above 256 two simd groups
// share rows: each has half of the dimensions, and they add up their scores.
// in:  q [rows, HQ, D] of T, kpool vpool [blocks, BS, HK, W] of TP (gk_head), items [items, 8] int (attn_item.h; the sixth is 1 for
//      rows that are copied from `other`), table int, other [rows, HQ, D] of T: what another kernel computed;
//      sinks as attn_rows.h
// out: out [rows, HQ, D] of T
// groups (items, HK), NS simd groups; an item has up to 16 NS HK / (HQ DS) rows. SHARED bytes of threadgroup memory where the
// launch gives it, 0 where the kernel has its own, up to 48 KB
// Source: arXiv 2307.08691 (the loop over keys with a running maximum).
constexpr int DS = D > 256 ? 2 : 1, DO = D / DS, ND = DO / 8;  // slices of the dimensions
constexpr int G = HQ / HK, PITCH = D + 8, TILE = KT * PITCH, CHUNKS = D / 8, NT = NS * 32;
typedef gk_head<TP, BITS, GROUP, D> Head;
constexpr int PER = (KT * CHUNKS + NT - 1) / NT;  // pieces of 16 bytes of a tile's keys that a thread copies, and of its values
// [buffer][keys, values][KT][PITCH], the pitch keeps banks apart; then scores of slices, [NS][32][KT / 2]
constexpr int STAGES = 4 * TILE / 8, MEMORY = STAGES + (DS > 1 ? NS * 32 * KT / 8 : 0);
static_assert(SHARED == 0 || MEMORY * 16 == SHARED, "threadgroup memory");
GK_SHARED(uint4, own, SHARED > 0 ? 1 : MEMORY);
GK_SHARED_LARGE(uint4, given, SHARED > 0 ? MEMORY : 1);
uint4* const stage = SHARED > 0 ? given : own;
const int lane = GK_LANE, simd = GK_SIMD / DS, d0 = GK_SIMD % DS * DO, hk = GK_GROUP_Y, g = lane >> 2, t = lane & 3;
const int ITEM = GK_GROUPS_X - 1 - GK_GROUP_X;  // the last rows of a prompt see the most keys: they begin first
//@include attn_item.h
//@include attn_copy.h
//@include attn_span.h
T* const staged = reinterpret_cast<T*>(stage);
// Slots of a tile's keys, looked up a tile before they are copied; below zero: no key.
int slots[PER];
auto look_up = [&](int tile) {
  const int k0 = first_key(tile), end = tile < tiles ? (tile < sink_tiles ? SINK : hi) : 0;
  GK_UNROLL for (int j = 0; j < PER; ++j) {
    const int i = GK_TID + j * NT, k = k0 + i / CHUNKS, b = k / BS;
    slots[j] = i < KT * CHUNKS && k < end ? table[tab + (b < SB ? b : b - freed)] * BS + k % BS : -1;
  }
};
gk_stage<Head, T, BITS, PER> pieces;      // packed ones wait in registers while the tile before them is computed
auto fetch = [&](int tile) {
  GK_UNROLL for (int j = 0; j < PER; ++j) {
    const int i = GK_TID + j * NT;
    if (i < KT * CHUNKS) {
      const bool some = slots[j] >= 0;
      const gk_long from = some ? ((gk_long)slots[j] * HK + hk) * Head::WIDTH : 0;
      T* const to = staged + (tile & 1) * 2 * TILE + i / CHUNKS * PITCH + i % CHUNKS * 8;
      pieces.fetch(j, to, to + TILE, kpool + from, vpool + from, i % CHUNKS * 8, some);
    }
  }
};
auto store = [&](int tile) {
  GK_UNROLL for (int j = 0; j < PER; ++j) {
    const int i = GK_TID + j * NT;
    T* const to = staged + (tile & 1) * 2 * TILE + i / CHUNKS * PITCH + i % CHUNKS * 8;
    if (i < KT * CHUNKS) pieces.store(j, to, to + TILE);
  }
};
// A lane has rows g and g + 8 of its simd group's 16.
int n[2];
gk_long at[2];
gk_uint qf[DO / 16][4];
GK_UNROLL for (int o = 0; o < 2; ++o) {
  const int r = simd * 16 + g + 8 * o;
  const bool live = r / G < rows;
  n[o] = live ? pos0 + r / G + 1 : 0;
  at[o] = ((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + d0;
  GK_UNROLL for (int c = 0; c < DO / 16; ++c)
    GK_UNROLL for (int h = 0; h < 2; ++h)
      qf[c][2 * h + o] = live ? *reinterpret_cast<const gk_uint*>(q + at[o] + c * 16 + h * 8 + 2 * t) : 0;
}
int least = 1 << 30, most = 0;            // keys that a row of this simd group sees
GK_UNROLL for (int i = 0; i < 16; ++i) {
  const int r = simd * 16 + i, keys = r / G < rows ? pos0 + r / G + 1 : 0;
  least = keys < least ? keys : least;
  most = keys > most ? keys : most;
}
const float scale = CAP == 0 ? GK_FLOAT(SCALE) : 1.0f;  // capped scores are scaled before
float acc[ND][4], m[2] = {-1e30f, -1e30f}, l[2] = {0, 0};
GK_UNROLL for (int d = 0; d < ND; ++d) { acc[d][0] = acc[d][1] = acc[d][2] = acc[d][3] = 0; }
look_up(0);
fetch(0);
gk_commit();
look_up(1);
store(0);
for (int tile = 0; tile < tiles; ++tile) {
  fetch(tile + 1);
  gk_commit();
  look_up(tile + 2);
  gk_wait<1>();
  GK_BARRIER();                           // this tile is there for all
  const int k0 = first_key(tile), end = tile < sink_tiles ? SINK : hi;
  if (k0 < most) {
    const T* keys = staged + (tile & 1) * 2 * TILE + d0;
    const T* values = keys + TILE;
    float s[KT / 8][4];
    GK_UNROLL for (int j = 0; j < KT / 8; j += 2) {
      GK_UNROLL for (int i = 0; i < 4; ++i) { s[j][i] = 0; s[j + 1][i] = 0; }
      GK_UNROLL for (int c = 0; c < DO / 16; ++c) {
        gk_uint b[4];
        gk_matrices(b, keys + ((j + (lane >> 4)) * 8 + (lane & 7)) * PITCH + c * 16 + ((lane >> 3) & 1) * 8);
        gk_tensor<T>::mma(s[j], qf[c], b[0], b[1]);
        gk_tensor<T>::mma(s[j + 1], qf[c], b[2], b[3]);
      }
    }
    if (DS > 1) {
      // [simd group][piece][lane]
      typedef gk_vec<float, 4> Four;
      Four* const scores = reinterpret_cast<Four*>(stage + STAGES) + lane;
      GK_UNROLL for (int j = 0; j < KT / 8; ++j) scores[(GK_SIMD * KT / 8 + j) * 32] = Four{{s[j][0], s[j][1], s[j][2], s[j][3]}};
      gk_join<DS * 32>(1 + simd);
      GK_UNROLL for (int j = 0; j < KT / 8; ++j) {
        const Four other = scores[((GK_SIMD ^ 1) * KT / 8 + j) * 32];
        GK_UNROLL for (int i = 0; i < 4; ++i) s[j][i] += other.v[i];
      }
    }
    if (CAP != 0) {
      GK_UNROLL for (int j = 0; j < KT / 8; ++j)
        GK_UNROLL for (int i = 0; i < 4; ++i) s[j][i] = gk_capped<CAP>(s[j][i] * GK_FLOAT(SCALE));
    }
    const bool all = k0 + KT <= end && k0 + KT <= least && (WINDOW == 0 || k0 + WINDOW >= most);
    if (!all) {
      GK_UNROLL for (int j = 0; j < KT / 8; ++j)
        GK_UNROLL for (int i = 0; i < 4; ++i) {
          const int keys_seen = n[i >> 1], k = k0 + j * 8 + 2 * t + (i & 1);
          const bool seen = k < end && k < keys_seen && (WINDOW == 0 || k + WINDOW >= keys_seen || k < SINK);
          s[j][i] = seen ? s[j][i] : -3e38f;
        }
    }
    GK_UNROLL for (int o = 0; o < 2; ++o) {
      float top = m[o];
      GK_UNROLL for (int j = 0; j < KT / 8; ++j)
        GK_UNROLL for (int i = 0; i < 2; ++i) top = s[j][2 * o + i] > top ? s[j][2 * o + i] : top;
      { float x = gk_shfl_xor(top, 1); top = x > top ? x : top; x = gk_shfl_xor(top, 2); top = x > top ? x : top; }
      const float a = gk_exp2((m[o] - top) * scale), less = top * scale;
      m[o] = top;
      l[o] *= a;
      GK_UNROLL for (int d = 0; d < ND; ++d) { acc[d][2 * o] *= a; acc[d][2 * o + 1] *= a; }
      GK_UNROLL for (int j = 0; j < KT / 8; ++j)
        GK_UNROLL for (int i = 0; i < 2; ++i) {
          s[j][2 * o + i] = gk_exp2(fmaf(s[j][2 * o + i], scale, -less));
          l[o] += s[j][2 * o + i];
        }
    }
    GK_UNROLL for (int j = 0; j < KT / 8; j += 2) {
      const gk_uint p[4] = {gk_tensor<T>::pair(s[j][0], s[j][1]), gk_tensor<T>::pair(s[j][2], s[j][3]),
                            gk_tensor<T>::pair(s[j + 1][0], s[j + 1][1]), gk_tensor<T>::pair(s[j + 1][2], s[j + 1][3])};
      GK_UNROLL for (int d = 0; d < ND; d += 2) {
        gk_uint b[4];
        gk_matrices_t(b, values + (j * 8 + ((lane >> 3) & 1) * 8 + (lane & 7)) * PITCH + (d + (lane >> 4)) * 8);
        gk_tensor<T>::mma(acc[d], p, b[0], b[1]);
        gk_tensor<T>::mma(acc[d + 1], p, b[2], b[3]);
      }
    }
  }
  if (tile + 1 < tiles) store(tile + 1);
  GK_BARRIER();                           // all have read this tile: its buffer is free
}
GK_UNROLL for (int o = 0; o < 2; ++o) {
  l[o] += gk_shfl_xor(l[o], 1);
  l[o] += gk_shfl_xor(l[o], 2);
  const int r = simd * 16 + g + 8 * o;
  const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;
  const float w = gk_weighted<SINK_LOGITS>(1.0f, l[o], m[o] * scale, sink);
  if (r / G < rows) {
    GK_UNROLL for (int d = 0; d < ND; ++d)
      *reinterpret_cast<gk_uint*>(out + at[o] + d * 8 + 2 * t) = gk_tensor<T>::pair(acc[d][2 * o] * w, acc[d][2 * o + 1] * w);
  }
}
