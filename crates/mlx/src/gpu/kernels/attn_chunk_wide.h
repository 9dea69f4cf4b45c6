// CUDA of compute capability 9.0 alone: attention of prompt chunks by warpgroups, for T bf16 or f16, pools of T, D 64 or 128, up to
// 64 WN heads per key head. A warpgroup has 64 pairs of a row and one of the heads that share a key head,
// with their queries in registers; WN of them share keys and values, which four simd groups copy to ST stages of KT keys. While
// a tile's weights are computed, the product of the weights before them with their values is on its way.
// Arguments as attn_chunk_mma.h; an item has up to 64 WN HK / HQ rows.
// groups: any number, which take turns at items times key heads; 4 WN + 4 simd groups; SHARED bytes of threadgroup memory
// Source: arXiv 2307.08691 (the loop over keys with a running maximum), arXiv 2407.08608 (producers, products during softmax).
constexpr int G = HQ / HK, ND = D / 8, TILE = KT * ND;
constexpr int EACH = TILE / 128;          // pieces of 16 bytes of a tile's keys that a producer copies, and of its values
static_assert(2 * ST * TILE * 16 == SHARED, "memory of the stages");
// LAG: stages that a producer has on its way before it waits for one, at least two fewer than there are: a consumer releases
// its last but one.
static_assert(LAG <= ST - 2 && ST * (WN + 1) <= 15, "stages and their barriers");
// [stage][keys, values][dimensions / 64][key] of 128 bytes, in the order of gk_swizzled
GK_SHARED_LARGE(uint4, stage, 2 * ST * TILE);
const int lane = GK_LANE, g = lane >> 2, t = lane & 3;
const int count = items_shape[0] * items_shape[1] / 8, works = count * HK;
// Turns: the last rows of a prompt see the most keys, so they begin first; every other turn is in the opposite order.
auto work_of = [&](int turn) { return turn * GK_GROUPS_X + (turn & 1 ? GK_GROUPS_X - 1 - GK_GROUP_X : GK_GROUP_X); };
auto item_of = [&](int work) { return count - 1 - work / HK; };
// Barriers of a stage: one for all, behind which it is free, and one for each warpgroup, behind which it is full.
constexpr int ALL = WN * 128 + 128;
auto full = [&](int tile, int warpgroup) { return 1 + ST + tile % ST * WN + warpgroup; };
int n = 0;                                // tiles so far
if (GK_SIMD >= 4 * WN) {
  gk_fewer_registers<PRODUCER_REGISTERS>();
  auto filled = [&](int tile) { GK_UNROLL for (int i = 0; i < WN; ++i) gk_arrive<256>(full(tile, i)); };
  // A thread copies 16 bytes of every KEYS keys of a tile, whose blocks are looked up a tile before.
  constexpr int KEYS = 128 / ND;
  constexpr bool WHOLE = KT % BS == 0 && BS % KEYS == 0;      // tiles are blocks
  const int tid = GK_TID - WN * 128, chunk = tid % ND, key = tid / ND;
  const int place = (chunk / 8 * KT + key) * 8 + (chunk % 8 ^ key % 8);
  for (int turn = 0; turn * GK_GROUPS_X < works; ++turn) {
    const int work = work_of(turn), hk = work % HK;
    if (work >= works) continue;
    const int ITEM = item_of(work);
    //@include attn_item.h
    //@include attn_span.h
    if (items[ITEM * 8 + 5] == 1) continue;
    const gk_long mine = ((gk_long)key * HK + hk) * D + chunk * 8;
    int blocks[WHOLE ? KT / BS : EACH];   // of a tile's keys, or slots; below zero: no key
    auto look_up = [&](int tile) {
      const int k0 = first_key(tile), end = tile < tiles ? (tile < sink_tiles ? SINK : hi) : 0, b0 = k0 / BS;
      if (WHOLE) {
        GK_UNROLL for (int i = 0; i < KT / BS; ++i)
          blocks[i] = k0 + i * BS < end ? table[tab + (b0 + i < SB ? b0 + i : b0 + i - freed)] : 0;
      } else {
        GK_UNROLL for (int j = 0; j < EACH; ++j) {
          const int k = k0 + j * KEYS + key, b = k / BS;
          blocks[j] = k < end ? table[tab + (b < SB ? b : b - freed)] * BS + k % BS - key : -KEYS;
        }
      }
    };
    auto copy = [&](uint4* to, int keys) {                    // of a tile with so many keys
      GK_UNROLL for (int j = 0; j < EACH; ++j) {
        const bool some = WHOLE ? keys >= KT || j * KEYS + key < keys : blocks[j] >= -key;
        const gk_long slot = WHOLE ? (gk_long)blocks[j * KEYS / BS] * BS + j * KEYS % BS : some ? blocks[j] : 0;
        gk_copy16(to + j * KEYS * 8, kpool + mine + slot * HK * D, some);
        gk_copy16(to + TILE + j * KEYS * 8, vpool + mine + slot * HK * D, some);
      }
    };
    look_up(0);
    for (int tile = 0; tile < tiles; ++tile, ++n) {
      if (n >= ST) gk_join<ALL>(1 + n % ST);                  // all have read what this stage held
      const int keys = (tile < sink_tiles ? SINK : hi) - first_key(tile);
      uint4* const to = stage + n % ST * 2 * TILE + place;
      if (keys >= KT) copy(to, KT); else copy(to, keys);
      gk_commit();
      look_up(tile + 1);
      gk_wait<LAG>();
      gk_shared_written();
      if (n >= LAG) filled(n - LAG);
    }
  }
  gk_wait<0>();
  gk_shared_written();
  for (int i = n < LAG ? 0 : n - LAG; i < n; ++i) filled(i);
} else {
  gk_more_registers<REGISTERS>();
  const int warpgroup = GK_SIMD / 4;
  for (int turn = 0; turn * GK_GROUPS_X < works; ++turn) {
    const int work = work_of(turn), hk = work % HK;
    if (work >= works) continue;
    const int ITEM = item_of(work);
    //@include attn_item.h
    if (items[ITEM * 8 + 5] == 1) {
      for (int i = GK_TID; i < rows * G * ND; i += WN * 128) {
        const gk_long at = ((gk_long)(row0 + i / (G * ND)) * HQ + hk * G) * D + i % (G * ND) * 8;
        *reinterpret_cast<gk_vec<T, 8>*>(out + at) = *reinterpret_cast<const gk_vec<T, 8>*>(other + at);
      }
      continue;
    }
    //@include attn_span.h
    // A lane has pairs g and g + 8 of its simd group's 16.
    int seen[2];
    gk_long at[2];
    gk_uint qf[D / 16][4];
    GK_UNROLL for (int o = 0; o < 2; ++o) {
      const int r = GK_SIMD * 16 + g + 8 * o;
      const bool live = r / G < rows;
      seen[o] = live ? pos0 + r / G + 1 : 0;
      at[o] = ((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D;
      GK_UNROLL for (int c = 0; c < D / 16; ++c)
        GK_UNROLL for (int h = 0; h < 2; ++h)
          qf[c][2 * h + o] = live ? *reinterpret_cast<const gk_uint*>(q + at[o] + c * 16 + h * 8 + 2 * t) : 0;
    }
    // keys that the simd group's first and last pair see
    const int least = GK_SIMD * 16 + 15 < rows * G ? pos0 + GK_SIMD * 16 / G + 1 : 0;
    const int most = pos0 + (GK_SIMD * 16 + 15) / G + 1;
    const float scale = CAP == 0 ? GK_FLOAT(SCALE) : 1.0f;    // capped scores are scaled before
    float acc[ND][4], s[KT / 8][4], m[2] = {-1e30f, -1e30f}, l[2] = {0, 0}, a[2];
    gk_uint p[KT / 16][4];
    GK_UNROLL for (int d = 0; d < ND; ++d) { acc[d][0] = acc[d][1] = acc[d][2] = acc[d][3] = 0; }
    auto scores = [&](int i) {
      const gk_ulong keys = gk_swizzled(stage + i % ST * 2 * TILE, KT * 128);
      gk_warpgroup<T, KT / 8>::start(s, qf[0], keys);
      GK_UNROLL for (int c = 1; c < D / 16; ++c) gk_warpgroup<T, KT / 8>::mma(s, qf[c], gk_further(keys, c / 4 * KT * 128 + c % 4 * 32));
      gk_warpgroup_commit();
    };
    auto add_values = [&](int i) {
      const gk_ulong values = gk_swizzled(stage + (i % ST * 2 + 1) * TILE, KT * 128);
      GK_UNROLL for (int j = 0; j < KT / 16; ++j) gk_warpgroup<T, ND>::mma_t(acc, p[j], gk_further(values, j * 2048));
      gk_warpgroup_commit();
    };
    auto weigh = [&](int tile) {          // scores become weights; a: what they shrink earlier ones by
      const int k0 = first_key(tile), end = tile < sink_tiles ? SINK : hi;
      if (CAP != 0) {
        GK_UNROLL for (int j = 0; j < KT / 8; ++j)
          GK_UNROLL for (int i = 0; i < 4; ++i) s[j][i] = gk_capped<CAP>(s[j][i] * GK_FLOAT(SCALE));
      }
      if (k0 + KT > end || k0 + KT > least || (WINDOW != 0 && k0 + WINDOW < most)) {
        GK_UNROLL for (int j = 0; j < KT / 8; ++j)
          GK_UNROLL for (int i = 0; i < 4; ++i) {
            const int keys_seen = seen[i >> 1], k = k0 + j * 8 + 2 * t + (i & 1);
            const bool is_seen = k < end && k < keys_seen && (WINDOW == 0 || k + WINDOW >= keys_seen || k < SINK);
            s[j][i] = is_seen ? s[j][i] : -3e38f;
          }
      }
      GK_UNROLL for (int o = 0; o < 2; ++o) {
        float top = m[o];
        GK_UNROLL for (int j = 0; j < KT / 8; ++j)
          GK_UNROLL for (int i = 0; i < 2; ++i) top = fmaxf(top, s[j][2 * o + i]);
        top = fmaxf(top, gk_shfl_xor(top, 1));
        top = fmaxf(top, gk_shfl_xor(top, 2));
        a[o] = gk_exp2((m[o] - top) * scale);
        m[o] = top;
        l[o] *= a[o];
        const float less = top * scale;
        GK_UNROLL for (int j = 0; j < KT / 8; ++j)
          GK_UNROLL for (int i = 0; i < 2; ++i) {
            s[j][2 * o + i] = gk_exp2(fmaf(s[j][2 * o + i], scale, -less));
            l[o] += s[j][2 * o + i];
          }
      }
    };
    auto pack = [&]() {
      GK_UNROLL for (int j = 0; j < KT / 16; ++j)
        GK_UNROLL for (int i = 0; i < 4; ++i)
          p[j][i] = gk_tensor<T>::pair(s[2 * j + (i >> 1)][2 * (i & 1)], s[2 * j + (i >> 1)][2 * (i & 1) + 1]);
    };
    if (tiles > 0) {
      gk_join<256>(full(n, warpgroup));
      gk_warpgroup_begin();
      scores(n);
      gk_warpgroup_wait<0>();
      gk_settled(s);
      weigh(0);
      pack();
      for (int tile = 1; tile < tiles; ++tile) {
        ++n;
        gk_join<256>(full(n, warpgroup));
        gk_warpgroup_begin();
        scores(n);
        add_values(n - 1);
        gk_warpgroup_wait<1>();
        gk_settled(s);
        weigh(tile);
        gk_before_wait(l[0] + l[1]);
        gk_warpgroup_wait<0>();
        gk_settled(acc);
        gk_arrive<ALL>(1 + (n - 1) % ST);                     // that stage is read
        GK_UNROLL for (int d = 0; d < ND; ++d)
          GK_UNROLL for (int i = 0; i < 4; ++i) acc[d][i] *= a[i >> 1];
        pack();
      }
      gk_warpgroup_begin();
      add_values(n);
      gk_warpgroup_wait<0>();
      gk_settled(acc);
      gk_arrive<ALL>(1 + n % ST);
      ++n;
    }
    GK_UNROLL for (int o = 0; o < 2; ++o) {
      l[o] += gk_shfl_xor(l[o], 1);
      l[o] += gk_shfl_xor(l[o], 2);
      const int r = GK_SIMD * 16 + g + 8 * o;
      const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;
      const float w = gk_weighted<SINK_LOGITS>(1.0f, l[o], m[o] * scale, sink);
      if (r / G < rows) {
        GK_UNROLL for (int d = 0; d < ND; ++d)
          *reinterpret_cast<gk_uint*>(out + at[o] + d * 8 + 2 * t) = gk_tensor<T>::pair(acc[d][2 * o] * w, acc[d][2 * o + 1] * w);
      }
    }
  }
}
