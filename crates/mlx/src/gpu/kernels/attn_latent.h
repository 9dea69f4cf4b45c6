// Attention of one row per item to latents, which are values, too, and to the rotated keys beside them; all heads share both.
// In plain arithmetic: any float type; the keys are split over groups.
// in:  q [rows, HQ, L] of T: queries to latents; turned [rows, HQ, RD] of T; lpool [blocks, BS, 1, L], kpool [blocks, BS, 1, RD]
//      of TP, items [items, 8] int (attn_item.h), table int, counter uint: zeros, counted in where the dialect is GK_FUSED
// out: out [rows, HQ, L] of T (not written if the keys are split and the dialect is not GK_FUSED: attn_reduce.h follows),
//      part [items, HK, splits, HQ / HK, L + 4] float: sums, maximum (base 2), weight
// groups (splits, HK, items), NS simd groups of GH heads: HQ = HK NS GH; L and RD multiples of 8, RD up to 256
constexpr int D = L, G = NS * GH, R = G, RS = D + 4, PARTS = (L + 255) / 256;
constexpr int WINDOW = 0, SINK = 0;
constexpr bool SINK_LOGITS = false;
const GK_DEV float* sinks = nullptr;   // which attn_last.h reads where there are any
const int lane = GK_LANE, hk = GK_GROUP_Y, e0 = lane * 8;
const int ITEM = GK_GROUP_Z;
//@include attn_item.h
const int per = (hi + GK_GROUPS_X - 1) / GK_GROUPS_X, first = per * GK_GROUP_X;
const int last_key = first + per < hi ? first + per : hi;
gk_fv<8> ql[GH][PARTS], qr[GH], acc[GH][PARTS];
float m[GH], l[GH];
GK_UNROLL for (int g = 0; g < GH; ++g) {
  const gk_long head = (gk_long)row0 * HQ + hk * G + GK_SIMD * GH + g;
  m[g] = -1e30f;
  l[g] = 0;
  GK_UNROLL for (int c = 0; c < PARTS; ++c) {
    GK_UNROLL for (int i = 0; i < 8; ++i) { ql[g][c].v[i] = 0; acc[g][c].v[i] = 0; }
    if (c * 256 + e0 < L) ql[g][c] = gk_load<8>(q + head * L + c * 256 + e0);
    GK_UNROLL for (int i = 0; i < 8; ++i) ql[g][c].v[i] *= GK_FLOAT(SCALE);
  }
  GK_UNROLL for (int i = 0; i < 8; ++i) qr[g].v[i] = 0;
  if (e0 < RD) qr[g] = gk_load<8>(turned + head * RD + e0);
  GK_UNROLL for (int i = 0; i < 8; ++i) qr[g].v[i] *= GK_FLOAT(SCALE);
}
for (int key = first; key < last_key; key += U) {
  gk_fv<8> kl[U][PARTS], kr[U];
  GK_UNROLL for (int u = 0; u < U; ++u) {
    const int k = key + u;
    GK_UNROLL for (int i = 0; i < 8; ++i) {
      kr[u].v[i] = 0;
      GK_UNROLL for (int c = 0; c < PARTS; ++c) kl[u][c].v[i] = 0;
    }
    if (k < last_key) {
      const gk_long at = (gk_long)table[tab + k / BS] * BS + k % BS;
      GK_UNROLL for (int c = 0; c < PARTS; ++c)
        if (c * 256 + e0 < L) kl[u][c] = gk_load<8>(lpool + at * L + c * 256 + e0);
      if (e0 < RD) kr[u] = gk_load<8>(kpool + at * RD + e0);
    }
  }
  float s[U][GH];
  GK_UNROLL for (int u = 0; u < U; ++u)
    GK_UNROLL for (int g = 0; g < GH; ++g) {
      float d = 0;
      GK_UNROLL for (int i = 0; i < 8; ++i) {
        d += kr[u].v[i] * qr[g].v[i];
        GK_UNROLL for (int c = 0; c < PARTS; ++c) d += kl[u][c].v[i] * ql[g][c].v[i];
      }
      s[u][g] = d;
    }
  GK_UNROLL for (int o = 16; o > 0; o >>= 1)
    GK_UNROLL for (int u = 0; u < U; ++u)
      GK_UNROLL for (int g = 0; g < GH; ++g) s[u][g] += gk_shfl_xor(s[u][g], o);
  GK_UNROLL for (int g = 0; g < GH; ++g) {
    float top = m[g];
    GK_UNROLL for (int u = 0; u < U; ++u) {
      s[u][g] = key + u < last_key ? s[u][g] : -3e38f;
      top = s[u][g] > top ? s[u][g] : top;
    }
    if (top > m[g]) {
      const float a = gk_exp2(m[g] - top);
      m[g] = top;
      l[g] *= a;
      GK_UNROLL for (int c = 0; c < PARTS; ++c)
        GK_UNROLL for (int i = 0; i < 8; ++i) acc[g][c].v[i] *= a;
    }
    GK_UNROLL for (int u = 0; u < U; ++u) {
      const float weight = gk_exp2(s[u][g] - top);
      l[g] += weight;
      GK_UNROLL for (int c = 0; c < PARTS; ++c)
        GK_UNROLL for (int i = 0; i < 8; ++i) acc[g][c].v[i] += weight * kl[u][c].v[i];
    }
  }
}
GK_UNROLL for (int g = 0; g < GH; ++g) {
  const int r = GK_SIMD * GH + g;
  GK_DEV float* p = part + ((((gk_long)ITEM * HK + hk) * GK_GROUPS_X + GK_GROUP_X) * G + r) * RS;
  GK_UNROLL for (int c = 0; c < PARTS; ++c) {
    if (c * 256 + e0 >= L) continue;
    if (GK_GROUPS_X == 1) {
      gk_fv<8> y = acc[g][c];
      GK_UNROLL for (int i = 0; i < 8; ++i) y.v[i] = gk_weighted<false>(y.v[i], l[g], m[g], 0);
      if (rows > 0) gk_store8<T>::at(out + ((gk_long)row0 * HQ + hk * G + r) * L + c * 256 + e0, y);
    } else {
      gk_store8<float>::at(p + c * 256 + e0, acc[g][c]);
    }
  }
  if (GK_GROUPS_X > 1 && lane == 0) { p[D] = m[g]; p[D + 1] = l[g]; }
}
//@include attn_last.h
