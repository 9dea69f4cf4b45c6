// Norm of each query and key head and, without weights, of each value head, rotation, and the write of keys and values into their blocks, in place.
// With LATE the norm of queries and keys comes behind the rotation. With CLIPPED projected elements are limited to CLIP first.
// in:  qkv [rows, COLUMNS D] of T (gk_operand): queries, then keys if PROJECTED is 1, which are the values, too, before their norm
//      and rotation, and keys and values if it is 2; if it is 0 nothing is written; qw, kw [D] floats (read if NORM; VALUE_NORM: of values); freq [R / 2] float, radians per position;
//      axis [R / 2] int, the position that a pair turns by (read if AXES); pos [rows] int, or [3, rows] if AXES;
//      slot [rows or more] int (block * block size + offset; below zero: not written);
//      kpool, vpool [blocks, block size, HK, W] of TP (gk_head): WRITTEN although inputs
//      with TEMPERED, queries are multiplied by 1 + BETA log(1 + (pos + SHIFT) / PERIOD rounded down)
// out: q [rows, HQ, D] of T: what reads the pools next must read q, too, which is the dependency;
//      counter [rows * HK] uint: zeros, which the attention kernel counts with
// One simd group per head of a row. groups (H / NS rounded up, rows), NS simd groups
constexpr int H = PROJECTED > 0 ? HQ + 2 * HK : HQ, COLUMNS = HQ + PROJECTED * HK;
constexpr int PAIRS = D / 2, PER = (PAIRS + 31) / 32;
constexpr bool PACKS = BITS > 0 && PROJECTED > 0;
GK_SHARED(float, heads, PACKS ? NS * D : 1);   // what is packed
const int lane = GK_LANE, row = GK_GROUP_Y, h = GK_GROUP_X * NS + GK_SIMD;
float a[PER], b[PER];                     // the two elements of a pair
if (h < H) {
  const int column = PROJECTED == 1 && h >= HQ + HK ? h - HK : h;
  const auto x = qkv + ((gk_long)row * COLUMNS + column) * D;
  const int parts = qkv_shape[0];
  const gk_long all = (gk_long)GK_GROUPS_Y * COLUMNS * D;
  GK_UNROLL for (int j = 0; j < PER; ++j) {
    const int p = lane + 32 * j;
    const bool near = INTERLEAVED || p >= R / 2;  // behind the rotated part pairs are neighbours in any case
    a[j] = p < PAIRS ? gk_operand<T, PARTS>::one(x + (near ? 2 * p : p), parts, all) : 0;
    b[j] = p < PAIRS ? gk_operand<T, PARTS>::one(x + (near ? 2 * p + 1 : p + R / 2), parts, all) : 0;
    if (CLIPPED) {
      const float most = gk_round<T>(GK_FLOAT(CLIP));
      a[j] = a[j] < -most ? -most : a[j] > most ? most : a[j];
      b[j] = b[j] < -most ? -most : b[j] > most ? most : b[j];
    }
  }
  if (VALUE_NORM && h >= HQ + HK) {
    float s = 0;
    GK_UNROLL for (int j = 0; j < PER; ++j) s += a[j] * a[j] + b[j] * b[j];
    s = gk_rsqrt(gk_sum(s) / D + GK_FLOAT(VALUE_EPS));
    GK_UNROLL for (int j = 0; j < PER; ++j) { a[j] = gk_round<T>(a[j] * s); b[j] = gk_round<T>(b[j] * s); }
  }
  if (h < HQ + HK) {
    if (NORM && !LATE) {
      //@include head_norm.h
    }
    GK_UNROLL for (int j = 0; j < PER; ++j) {
      const int p = lane + 32 * j;
      if (p < R / 2) {
        const float angle = (float)pos[(AXES ? axis[p] * GK_GROUPS_Y : 0) + row] * gk_f(freq[p]);
        const float c = gk_cos(angle) * GK_FLOAT(MAGNITUDE), s = gk_sin(angle) * GK_FLOAT(MAGNITUDE);
        const float x0 = a[j], x1 = b[j];
        a[j] = x0 * c - x1 * s;
        b[j] = x0 * s + x1 * c;
      }
    }
    if (NORM && LATE) {
      GK_UNROLL for (int j = 0; j < PER; ++j) { a[j] = gk_round<T>(a[j]); b[j] = gk_round<T>(b[j]); }
      //@include head_norm.h
    }
    if (TEMPERED && h < HQ) {
      const float t = gk_round<T>(1.0f + GK_FLOAT(BETA) * gk_log(1.0f + (float)((pos[row] + SHIFT) / PERIOD)));
      GK_UNROLL for (int j = 0; j < PER; ++j) { a[j] = gk_round<T>(a[j]) * t; b[j] = gk_round<T>(b[j]) * t; }
    }
  }
}
const gk_long at = slot[row];
const bool writes = h >= HQ && h < H && at >= 0;
typedef gk_head<TP, BITS, GROUP, D> Head;
const gk_long to = h < HQ + HK ? (at * HK + (h - HQ)) * Head::WIDTH : (at * HK + (h - HQ - HK)) * Head::WIDTH;
GK_DEV TP* pool = (h < HQ + HK ? GK_WRITABLE(TP, kpool) : GK_WRITABLE(TP, vpool)) + (writes ? to : 0);
GK_UNROLL for (int j = 0; j < PER; ++j) {
  const int p = lane + 32 * j;
  const bool near = INTERLEAVED || p >= R / 2;
  const int i0 = near ? 2 * p : p, i1 = near ? 2 * p + 1 : p + R / 2;
  if (p < PAIRS && h < HQ) {
    q[((gk_long)row * HQ + h) * D + i0] = gk_to<T>::of(a[j]);
    q[((gk_long)row * HQ + h) * D + i1] = gk_to<T>::of(b[j]);
  } else if (p < PAIRS && writes && BITS == 0) {
    pool[i0] = gk_to<TP>::of(a[j]);
    pool[i1] = gk_to<TP>::of(b[j]);
  } else if (p < PAIRS && writes) {
    heads[PACKS ? GK_SIMD * D + i0 : 0] = gk_round<T>(a[j]);
    heads[PACKS ? GK_SIMD * D + i1 : 0] = gk_round<T>(b[j]);
  }
}
if (PACKS) {
  GK_BARRIER();
  if (writes) gk_store_head<BITS, GROUP, D>::packed(reinterpret_cast<GK_DEV gk_uint*>(pool), heads + (PACKS ? GK_SIMD * D : 0), lane);
}
if (h < HK && lane == 0) counter[row * HK + h] = 0;
