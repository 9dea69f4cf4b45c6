// Heads of keys and values as they are stored: codes of BITS bits in words, then a scale for each GROUP elements, then a
// bias for each; without BITS floats. e0: the first of eight elements.
template <typename TP, int BITS, int GROUP, int D> struct gk_head {
  enum { WORDS = BITS / 4, CODES = D * BITS / 32, GROUPS = D / GROUP, WIDTH = CODES + 2 * GROUPS };
  struct Eight { gk_vec<gk_uint, WORDS> w; float scale, bias; };
  static GK_FN Eight read(const GK_DEV TP* p, int e0) {
    Eight x;
    x.w = gk_read<gk_vec<gk_uint, WORDS>>(p + e0 * BITS / 32);
    x.scale = GK_FLOAT(p[CODES + e0 / GROUP]);
    x.bias = GK_FLOAT(p[CODES + GROUPS + e0 / GROUP]);
    return x;
  }
  static GK_FN gk_fv<8> floats(Eight x) {
    gk_fv<8> y;
    GK_UNROLL for (int i = 0; i < 8; ++i) {
      // A float from 2^23 on has its code as its last bits.
      const gk_uint code = (x.w.v[i * BITS / 32] >> (i * BITS % 32)) & ((1u << BITS) - 1);
      y.v[i] = (GK_FLOAT(code | 0x4b000000u) - 8388608.0f) * x.scale + x.bias;
    }
    return y;
  }
  static GK_FN gk_fv<8> load(const GK_DEV TP* p, int e0) { return floats(read(p, e0)); }
};
template <typename TP, int GROUP, int D> struct gk_head<TP, 0, GROUP, D> {
  enum { WIDTH = D };
  static GK_FN gk_fv<8> load(const GK_DEV TP* p, int e0) { return gk_load<8>(p + e0); }
};
// A head of D floats to where it is stored in codes, by a simd group. The end of a group's range that is further from zero
// is kept exactly, as MLX's affine quantization does.
template <int BITS, int GROUP, int D> GK_FN void gk_pack(GK_DEV gk_uint* to, const GK_TGP float* from, int lane) {
  typedef gk_head<gk_uint, BITS, GROUP, D> Head;
  const float most = (float)((1u << BITS) - 1);
  for (int first = 0; first < D; first += 256) {
    const int e0 = first + lane * 8;
    float low = 3e38f, high = -3e38f;
    GK_UNROLL for (int i = 0; i < 8; ++i) {
      const float x = e0 < D ? from[e0 + i] : 0;
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
    GK_UNROLL for (int o = 1; o < GROUP / 8; o <<= 1) {
      const float l = gk_shfl_xor(low, o), h = gk_shfl_xor(high, o);
      low = l < low ? l : low;
      high = h > high ? h : high;
    }
    if (e0 >= D) continue;
    const bool from_low = (low < 0 ? -low : low) > (high < 0 ? -high : high);
    float step = (high - low) / most;
    step = step > 1e-7f ? step : 1e-7f;
    step = from_low ? step : -step;
    const float edge = from_low ? low : high, at_edge = gk_rint(edge / step);
    const float scale = at_edge == 0 ? step : edge / at_edge, bias = at_edge == 0 ? 0 : edge;
    gk_vec<gk_uint, Head::WORDS> words;
    GK_UNROLL for (int i = 0; i < Head::WORDS; ++i) words.v[i] = 0;
    GK_UNROLL for (int i = 0; i < 8; ++i) {
      float code = gk_rint((from[e0 + i] - bias) / scale);
      code = code < 0 ? 0 : code > most ? most : code;
      words.v[i * BITS / 32] |= (gk_uint)code << (i * BITS % 32);
    }
    gk_write(to + e0 * BITS / 32, words);
    if (e0 % GROUP == 0) {
      GK_DEV float* numbers = reinterpret_cast<GK_DEV float*>(to + Head::CODES);
      numbers[e0 / GROUP] = scale;
      numbers[Head::GROUPS + e0 / GROUP] = bias;
    }
  }
}
template <int BITS, int GROUP, int D> struct gk_store_head {
  static GK_FN void packed(GK_DEV gk_uint* to, const GK_TGP float* from, int lane) { gk_pack<BITS, GROUP, D>(to, from, lane); }
};
template <int GROUP, int D> struct gk_store_head<0, GROUP, D> {
  static GK_FN void packed(GK_DEV gk_uint*, const GK_TGP float*, int) {}
};
