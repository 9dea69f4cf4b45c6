// Metal alone: attention of prompt chunks over keys and values in blocks, by simdgroup matrices. A simd group has 8 pairs of row
// and head; keys and values pass through threadgroup memory in tiles of KT.
// in:  q [rows, HQ, D] of T, kpool vpool [blocks, BS, HK, W] of TP (gk_head), items [items, 8] int (attn_item.h), table int,
//      other [rows, HQ, D] of T (attn_copy.h); sinks as attn_rows.h
// out: out [rows, HQ, D] of T
// groups (items, HK), NS simd groups; an item has up to 8 NS HK / HQ rows. Rows of a tile are D + PAD elements apart, which keeps
// banks apart.
// Source: arXiv 2307.08691 (the loop over keys with a running maximum).
constexpr int G = HQ / HK, ND = D / 8, PITCH = D + PAD, NT = NS * 32;
typedef gk_head<TP, BITS, GROUP, D> Head;
GK_SHARED(T, keys, KT * PITCH);
GK_SHARED(T, values, KT * PITCH);
const int hk = GK_GROUP_Y, row = gk_matrix_row(GK_LANE), column = gk_matrix_column(GK_LANE);
const int ITEM = GK_GROUPS_X - 1 - GK_GROUP_X;  // the last rows of a prompt see the most keys: they begin first
//@include attn_item.h
//@include attn_copy.h
int lo = WINDOW > 0 && pos0 + 1 > WINDOW ? pos0 + 1 - WINDOW : 0, sink_tiles = 0;
if (SINK > 0 && lo > SINK) sink_tiles = (SINK + KT - 1) / KT;
else if (SINK > 0) lo = 0;
const int tiles = sink_tiles + (hi - lo + KT - 1) / KT;
// This lane's pair, and what the rows of its simd group see: at least and at most so many keys.
const int pair = GK_SIMD * 8 + row, first_row = GK_SIMD * 8 / G, last_row = (GK_SIMD * 8 + 7) / G;
const bool live = pair / G < rows;
const int seen = live ? pos0 + pair / G + 1 : 0;
const int least = pos0 + first_row + 1, most = first_row < rows ? pos0 + (last_row < rows ? last_row : rows - 1) + 1 : 0;
const gk_long at = ((gk_long)(row0 + pair / G) * HQ + hk * G + pair % G) * D + column;
gk_vec<T, 2> queries[ND];
gk_fv<2> acc[ND];
GK_UNROLL for (int d = 0; d < ND; ++d) {
  queries[d].v[0] = queries[d].v[1] = gk_to<T>::of(0.0f);
  if (live) queries[d] = gk_read<gk_vec<T, 2>>(q + at + d * 8);
  acc[d].v[0] = acc[d].v[1] = 0;
}
const float scale = CAP == 0 ? GK_FLOAT(SCALE) : 1.0f;  // capped scores are scaled before
float top = -1e29f, weight = 0;
for (int tile = 0; tile < tiles; ++tile) {
  const bool sinks_first = tile < sink_tiles;
  const int k0 = sinks_first ? tile * KT : lo + (tile - sink_tiles) * KT, end = sinks_first ? SINK : hi;
  GK_BARRIER();                           // all have read the tile before
  for (int i = GK_TID; i < KT * ND; i += NT) {
    const int k = k0 + i / ND, b = k / BS, e0 = i % ND * 8;
    gk_fv<8> key, value;
    GK_UNROLL for (int e = 0; e < 8; ++e) key.v[e] = value.v[e] = 0;
    if (k < end) {
      const gk_long from = (((gk_long)table[tab + (b < SB ? b : b - freed)] * BS + k % BS) * HK + hk) * Head::WIDTH;
      key = Head::load(kpool + from, e0);
      value = Head::load(vpool + from, e0);
    }
    gk_put8(keys + i / ND * PITCH + e0, key);
    gk_put8(values + i / ND * PITCH + e0, value);
  }
  GK_BARRIER();                           // this tile is there for all
  if (k0 >= most) continue;
  gk_fv<2> s[KT / 8];
  GK_UNROLL for (int j = 0; j < KT / 8; ++j) s[j].v[0] = s[j].v[1] = 0;
  GK_UNROLL for (int d = 0; d < ND; ++d) {
    const gk_fv<2> a = {{gk_f(queries[d].v[0]), gk_f(queries[d].v[1])}};
    GK_UNROLL for (int j = 0; j < KT / 8; ++j) s[j] = gk_multiply(a, gk_pair(keys + (j * 8 + column) * PITCH + d * 8 + row, PITCH), s[j]);
  }
  if (CAP != 0) {
    GK_UNROLL for (int j = 0; j < KT / 8; ++j)
      GK_UNROLL for (int i = 0; i < 2; ++i) s[j].v[i] = gk_capped<CAP>(s[j].v[i] * GK_FLOAT(SCALE));
  }
  const bool all = k0 + KT <= end && k0 + KT <= least && (WINDOW == 0 || k0 + WINDOW >= most);
  if (!all) {
    GK_UNROLL for (int j = 0; j < KT / 8; ++j)
      GK_UNROLL for (int i = 0; i < 2; ++i) {
        const int k = k0 + j * 8 + column + i;
        const bool is_seen = k < end && k < seen && (WINDOW == 0 || k + WINDOW >= seen || k < SINK);
        s[j].v[i] = is_seen ? s[j].v[i] : -1e30f;
      }
  }
  float higher = top;
  GK_UNROLL for (int j = 0; j < KT / 8; ++j)
    GK_UNROLL for (int i = 0; i < 2; ++i) higher = s[j].v[i] > higher ? s[j].v[i] : higher;
  // The lanes of a row.
  { const float other = gk_shfl_xor(higher, 1); higher = other > higher ? other : higher; }
  { const float other = gk_shfl_xor(higher, 8); higher = other > higher ? other : higher; }
  const float less = gk_exp2((top - higher) * scale);
  top = higher;
  weight *= less;
  GK_UNROLL for (int d = 0; d < ND; ++d) { acc[d].v[0] *= less; acc[d].v[1] *= less; }
  GK_UNROLL for (int j = 0; j < KT / 8; ++j)
    GK_UNROLL for (int i = 0; i < 2; ++i) {
      s[j].v[i] = gk_exp2((s[j].v[i] - top) * scale);
      weight += s[j].v[i];
    }
  GK_UNROLL for (int d = 0; d < ND; ++d)
    GK_UNROLL for (int j = 0; j < KT / 8; ++j) acc[d] = gk_multiply(s[j], gk_pair(values + (j * 8 + row) * PITCH + d * 8 + column), acc[d]);
}
weight += gk_shfl_xor(weight, 1);
weight += gk_shfl_xor(weight, 8);
if (live) {
  const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + pair % G]) * 1.44269504f : 0;  // to powers of two
  const float share = gk_weighted<SINK_LOGITS>(1.0f, weight, top * scale, sink);
  GK_UNROLL for (int d = 0; d < ND; ++d) {
    gk_vec<T, 2> y;
    GK_UNROLL for (int i = 0; i < 2; ++i) y.v[i] = gk_to<T>::of(acc[d].v[i] * share);
    gk_write(out + at + d * 8, y);
  }
}
