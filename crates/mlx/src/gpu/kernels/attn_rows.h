// Attention over keys and values in blocks, in plain arithmetic: any float type, any head size up to 512 that is a
// multiple of 8, above 256 of 16,
// one row (QN = 1) or several rows of a prompt per item; the keys are split over groups.
// in:  q [rows, HQ, D] of T, kpool vpool [blocks, BS, HK, W] of TP (gk_head), items [items, 8] int (attn_item.h), table int,
//      counter uint, zeros, counted in where the dialect is GK_FUSED; other [rows, HQ, D] of T (attn_copy.h);
//      sinks [HQ], floats: logits of a key without a value (read if SINK_LOGITS)
// out: out [rows, HQ, D] of T (not written if the keys are split and the dialect is not GK_FUSED: attn_reduce.h follows),
//      part [items, HK, splits, QN HQ / HK, D + 4] float: sums, maximum (base 2), weight
// groups (splits, HK, items), NS simd groups. A simd group takes GH of the item's QN HQ / HK pairs of row and head.
constexpr int G = HQ / HK, R = QN * G;
constexpr int HS = (R + GH - 1) / GH;  // slices of rows
constexpr int KS = NS / HS;            // slices of keys
constexpr int E = D > 256 ? 16 : 8;    // elements of a key that a lane has
constexpr int LPK = D <= 8 ? 1 : D <= 16 ? 2 : D <= 32 ? 4 : D <= 64 ? 8 : D <= 128 ? 16 : 32;  // lanes of a key
constexpr int KPL = 32 / LPK;          // keys of one load of a simd group
constexpr int TILE = KPL * U;
constexpr int RS = D + 4;
typedef gk_head<TP, BITS, GROUP, D> Head;
GK_SHARED(float, red, KS * R * RS);
const int lane = GK_LANE, simd = GK_SIMD, hk = GK_GROUP_Y;
const int ITEM = GK_GROUP_Z;
//@include attn_item.h
//@include attn_copy.h
const int hs = simd % HS, ks = simd / HS, sub = lane / LPK, e0 = (lane % LPK) * E;
const bool on = e0 < D;
int lo = WINDOW > 0 && pos0 + 1 > WINDOW ? pos0 + 1 - WINDOW : 0, sink_tiles = 0;
if (SINK > 0 && lo > SINK) sink_tiles = (SINK + TILE - 1) / TILE;
else if (SINK > 0) lo = 0;
const int tiles = sink_tiles + (hi - lo + TILE - 1) / TILE, per = (tiles + GK_GROUPS_X - 1) / GK_GROUPS_X;
const int t1 = per * (GK_GROUP_X + 1) < tiles ? per * (GK_GROUP_X + 1) : tiles;
gk_fv<E> qv[GH], acc[GH];
float m[GH], l[GH];
int n[GH];                             // keys that a row sees
GK_UNROLL for (int g = 0; g < GH; ++g) {
  const int r = hs * GH + g;
  const bool live = r < R && r / G < rows;
  n[g] = live ? pos0 + r / G + 1 : 0;
  m[g] = -1e30f;
  l[g] = 0;
  GK_UNROLL for (int i = 0; i < E; ++i) { qv[g].v[i] = 0; acc[g].v[i] = 0; }
  if (on && live) {
    GK_UNROLL for (int c = 0; c < E; c += 8) {
      const gk_fv<8> qc = gk_load<8>(q + ((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e0 + c);
      GK_UNROLL for (int i = 0; i < 8; ++i) qv[g].v[c + i] = qc.v[i];
    }
  }
  GK_UNROLL for (int i = 0; i < E; ++i) qv[g].v[i] *= GK_FLOAT(SCALE);
}
for (int tile = per * GK_GROUP_X + ks; tile < t1; tile += KS) {
  const bool sinks = tile < sink_tiles;
  const int key = (sinks ? tile * TILE : lo + (tile - sink_tiles) * TILE) + sub, end = sinks ? SINK : hi;
  gk_fv<E> kr[U], vr[U];
  GK_UNROLL for (int u = 0; u < U; ++u) {
    const int k = key + u * KPL, b = k / BS;
    GK_UNROLL for (int i = 0; i < E; ++i) { kr[u].v[i] = 0; vr[u].v[i] = 0; }
    if (on && k < end) {
      const gk_long at = (((gk_long)table[tab + (b < SB ? b : b - freed)] * BS + k % BS) * HK + hk) * Head::WIDTH;
      GK_UNROLL for (int c = 0; c < E; c += 8) {
        const gk_fv<8> kc = Head::load(kpool + at, e0 + c), vc = Head::load(vpool + at, e0 + c);
        GK_UNROLL for (int i = 0; i < 8; ++i) { kr[u].v[c + i] = kc.v[i]; vr[u].v[c + i] = vc.v[i]; }
      }
    }
  }
  float s[U][GH];
  GK_UNROLL for (int u = 0; u < U; ++u)
    GK_UNROLL for (int g = 0; g < GH; ++g) {
      float d = 0;
      GK_UNROLL for (int i = 0; i < E; ++i) d += kr[u].v[i] * qv[g].v[i];
      s[u][g] = d;
    }
  GK_UNROLL for (int o = LPK / 2; o > 0; o >>= 1)
    GK_UNROLL for (int u = 0; u < U; ++u)
      GK_UNROLL for (int g = 0; g < GH; ++g) s[u][g] += gk_shfl_xor(s[u][g], o);
  GK_UNROLL for (int g = 0; g < GH; ++g) {
    float top = m[g];
    GK_UNROLL for (int u = 0; u < U; ++u) {
      const int k = key + u * KPL;
      const bool seen = k < end && k < n[g] && (WINDOW == 0 || k + WINDOW >= n[g] || k < SINK);
      s[u][g] = seen ? gk_capped<CAP>(s[u][g]) : -3e38f;
      top = s[u][g] > top ? s[u][g] : top;
    }
    if (top > m[g]) {
      const float a = gk_exp2(m[g] - top);
      m[g] = top;
      l[g] *= a;
      GK_UNROLL for (int i = 0; i < E; ++i) acc[g].v[i] *= a;
    }
    GK_UNROLL for (int u = 0; u < U; ++u) { s[u][g] = gk_exp2(s[u][g] - top); l[g] += s[u][g]; }
  }
  GK_UNROLL for (int u = 0; u < U; ++u)
    GK_UNROLL for (int g = 0; g < GH; ++g)
      GK_UNROLL for (int i = 0; i < E; ++i) acc[g].v[i] += s[u][g] * vr[u].v[i];
}
// The lanes with other keys, then (attn_tail.h) the simd groups with other keys.
GK_UNROLL for (int g = 0; g < GH; ++g) {
  GK_UNROLL for (int o = LPK; o < 32; o <<= 1) {
    const float mo = gk_shfl_xor(m[g], o), other = gk_shfl_xor(l[g], o), top = mo > m[g] ? mo : m[g];
    const float a = gk_exp2(m[g] - top), c = gk_exp2(mo - top);
    m[g] = top;
    l[g] = l[g] * a + other * c;
    GK_UNROLL for (int i = 0; i < E; ++i) acc[g].v[i] = acc[g].v[i] * a + gk_shfl_xor(acc[g].v[i], o) * c;
  }
  if (hs * GH + g < R && ks < KS) {
    GK_TGP float* r = red + (ks * R + hs * GH + g) * RS;
    if (sub == 0 && on) {
      GK_UNROLL for (int i = 0; i < E; ++i) r[e0 + i] = acc[g].v[i];
    }
    if (lane == 0) { r[D] = m[g]; r[D + 1] = l[g]; }
  }
}
//@include attn_tail.h
//@include attn_last.h
