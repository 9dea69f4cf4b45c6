// CUDA alone: attn_latent.h on tensor cores, for T bf16 or f16 and pools of T. A group has the heads of a tile of 16 rows, of
// which HQ / HK are heads, and a split of the keys; each piece of KT keys is read once into shared memory, ST pieces at a time.
// The NS = 16 simd groups divide a piece three times: eight keys and a part of the dimensions each for the scores, a head each
// for the weights, and 16 dimensions in turn for the sums.
// in, out: as attn_latent.h; groups (splits, HK, items). L a multiple of 64, above 128 of 128; L + RD and RD multiples of 32.
constexpr int G = HQ / HK, R = G, D = L, DS = D > 128 ? D / 128 : 1, DO = D / DS, RS = D + 4;
constexpr int K = L + RD, W = K + 8, PAIRS = K / 32;          // of steps of 16 dimensions
constexpr int COLS = KT / 8, KP = NS / COLS, MOST = (PAIRS + KP - 1) / KP, SS = KT + 4, PS = KT + 8;
constexpr int PIECES_D = L / 16, PER = (PIECES_D + NS - 1) / NS;
constexpr bool SINK_LOGITS = false, TWICE = ST > 1;
constexpr int WINDOW = 0, SINK = 0;
const float* sinks = nullptr;                                 // which attn_mma_out.h reads where there are any
GK_SHARED_LARGE(T, memory, SHARED / 2);
GK_SHARED(float, scores, KP * 16 * SS);
GK_SHARED(T, weights, 16 * PS);
GK_SHARED(float, factors, 16);
GK_SHARED(float, stats, 32);                                  // the largest score and the weight of each head
T* const queries = memory;
T* const stages = memory + 16 * W;
float* const red = reinterpret_cast<float*>(memory);          // behind the last piece
const int lane = GK_LANE, simd = GK_SIMD, hk = GK_GROUP_Y, g = lane >> 2, t = lane & 3;
const int ITEM = GK_GROUP_Z;
//@include attn_item.h
// Splits begin at multiples of 16 keys.
const int per = ((hi + 15) / 16 + GK_GROUPS_X - 1) / GK_GROUPS_X * 16, first = per * GK_GROUP_X;
const int end = first + per < hi ? first + per : hi, pieces = end > first ? (end - first + KT - 1) / KT : 0;
auto keys_from = [&](int piece) {                             // up to the next multiple of 16
  const int left = (end - first - piece * KT + 15) / 16 * 16;
  return left < KT ? left : KT;
};
auto fetch = [&](int piece) {
  T* const to = stages + (TWICE ? piece % ST : 0) * KT * W;
  const int count = keys_from(piece) * (K / 8);
  for (int i = GK_TID; i < count; i += NS * 32) {
    const int key = i / (K / 8), e = i % (K / 8) * 8, k = first + piece * KT + key;
    const bool some = k < end;
    const gk_long at = some ? (gk_long)table[tab + k / BS] * BS + k % BS : 0;
    gk_copy16(to + key * W + e, e < L ? lpool + at * L + e : kpool + at * RD + (e - L), some);
  }
};
if (pieces > 0) {
  fetch(0);
  for (int i = GK_TID; i < 16 * (K / 8); i += NS * 32) {
    const int r = i / (K / 8), e = i % (K / 8) * 8;
    const gk_long head = (gk_long)row0 * HQ + hk * G + (r < G ? r : 0);
    gk_copy16(queries + r * W + e, e < L ? q + head * L + e : turned + head * RD + (e - L), r < G);
  }
}
float acc[PER][2][4];
GK_UNROLL for (int p = 0; p < PER; ++p)
  GK_UNROLL for (int i = 0; i < 2; ++i) acc[p][i][0] = acc[p][i][1] = acc[p][i][2] = acc[p][i][3] = 0;
float top = -1e30f, weight = 0;                               // of head `simd`; the weight of a lane's keys
for (int piece = 0; piece < pieces; ++piece) {
  gk_wait_all();
  GK_BARRIER();                                               // it is there, and nothing reads what was before it
  if (TWICE && piece + 1 < pieces) fetch(piece + 1);
  const T* const keys = stages + (TWICE ? piece % ST : 0) * KT * W;
  const int live = keys_from(piece), left = end - first - piece * KT;
  const int col = simd % COLS, part_of = simd / COLS;
  if (col * 8 < live) {
    float s[4][4];
    GK_UNROLL for (int i = 0; i < 4; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
    const int from = part_of * PAIRS / KP, to = (part_of + 1) * PAIRS / KP;
    GK_UNROLL for (int p = 0; p < MOST; ++p) {
      const int pair = from + p;
      if (pair >= to) break;
      gk_uint a[2][4], b[4];
      gk_matrices(b, keys + (col * 8 + lane % 8) * W + pair * 32 + lane / 8 * 8);
      GK_UNROLL for (int i = 0; i < 2; ++i) gk_matrices(a[i], queries + lane % 16 * W + pair * 32 + i * 16 + lane / 16 * 8);
      gk_tensor<T>::mma(s[p % 2 * 2], a[0], b[0], b[1]);
      gk_tensor<T>::mma(s[p % 2 * 2 + 1], a[1], b[2], b[3]);
    }
    GK_UNROLL for (int i = 0; i < 2; ++i) {
      const gk_vec<float, 2> v = {{(s[0][2 * i] + s[1][2 * i]) + (s[2][2 * i] + s[3][2 * i]),
                                   (s[0][2 * i + 1] + s[1][2 * i + 1]) + (s[2][2 * i + 1] + s[3][2 * i + 1])}};
      *reinterpret_cast<gk_vec<float, 2>*>(scores + (part_of * 16 + g + 8 * i) * SS + col * 8 + 2 * t) = v;
    }
  }
  GK_BARRIER();
  float x[KT / 32], most = top;
  GK_UNROLL for (int i = 0; i < KT / 32; ++i) {
    const int k = i * 32 + lane;
    float sum = 0;
    GK_UNROLL for (int p = 0; p < KP; ++p) sum += scores[(p * 16 + simd) * SS + k];
    x[i] = k < left ? sum * GK_FLOAT(SCALE) : -3e38f;         // powers of two
    most = x[i] > most ? x[i] : most;
  }
  GK_UNROLL for (int d = 1; d < 32; d <<= 1) { const float y = gk_shfl_xor(most, d); most = y > most ? y : most; }
  const float factor = gk_exp2(top - most);
  top = most;
  weight *= factor;
  GK_UNROLL for (int i = 0; i < KT / 32; ++i) {
    const float w = gk_exp2(x[i] - most);
    weight += w;
    weights[simd * PS + i * 32 + lane] = gk_to<T>::of(w);
  }
  if (lane == 0) factors[simd] = factor;
  GK_BARRIER();
  const float f0 = factors[g], f1 = factors[g + 8];
  if (f0 != 1 || f1 != 1) {
    GK_UNROLL for (int p = 0; p < PER; ++p)
      GK_UNROLL for (int i = 0; i < 2; ++i) { acc[p][i][0] *= f0; acc[p][i][1] *= f0; acc[p][i][2] *= f1; acc[p][i][3] *= f1; }
  }
  GK_UNROLL for (int k = 0; k < KT; k += 16) {
    if (k >= live) break;
    gk_uint w[4];
    gk_matrices(w, weights + lane % 16 * PS + k + lane / 16 * 8);
    GK_UNROLL for (int p = 0; p < PER; ++p) {
      const int at = simd + p * NS;
      if (at >= PIECES_D) break;
      gk_uint v[4];
      gk_matrices_t(v, keys + (k + lane % 16) * W + at * 16 + lane / 16 * 8);
      gk_tensor<T>::mma(acc[p][0], w, v[0], v[1]);
      gk_tensor<T>::mma(acc[p][1], w, v[2], v[3]);
    }
  }
  if (!TWICE && piece + 1 < pieces) {
    GK_BARRIER();
    fetch(piece + 1);
  }
}
weight = gk_sum(weight);
if (lane == 0) { stats[2 * simd] = top; stats[2 * simd + 1] = weight; }
GK_BARRIER();
GK_UNROLL for (int i = 0; i < 2; ++i) {
  const int r = g + 8 * i;
  if (r >= G) continue;
  float* const p = part + ((((gk_long)ITEM * HK + hk) * GK_GROUPS_X + GK_GROUP_X) * R + r) * RS;
  GK_UNROLL for (int d = 0; d < PER; ++d) {
    const int at = (simd + d * NS) * 16 + 2 * t;
    if (at >= L) break;
    GK_UNROLL for (int h = 0; h < 2; ++h) {
      const float lo = acc[d][h][2 * i], hi_of = acc[d][h][2 * i + 1], w = stats[2 * r + 1];
      if (GK_GROUPS_X > 1) {
        *reinterpret_cast<gk_vec<float, 2>*>(p + at + 8 * h) = gk_vec<float, 2>{{lo, hi_of}};
      } else if (rows > 0) {
        const gk_vec<T, 2> y = {{gk_to<T>::of(gk_weighted<false>(lo, w, 0, 0)), gk_to<T>::of(gk_weighted<false>(hi_of, w, 0, 0))}};
        *reinterpret_cast<gk_vec<T, 2>*>(out + ((gk_long)row0 * HQ + hk * G + r) * L + at + 8 * h) = y;
      }
    }
  }
  if (GK_GROUPS_X > 1 && simd == 0 && t == 0) *reinterpret_cast<gk_vec<float, 2>*>(p + D) = gk_vec<float, 2>{{stats[2 * r], stats[2 * r + 1]}};
}
//@include attn_mma_last.h
