// Helpers written in the common dialect itself; they go behind either spelling of it.
template <typename T, int N> struct alignas(sizeof(T) * N) gk_vec { T v[N]; };
template <int N> struct gk_fv { float v[N]; };
// A structure in device memory.
template <typename V, typename T> GK_FN V gk_read(const GK_DEV T* p) { return *reinterpret_cast<const GK_DEV V*>(p); }
template <typename V, typename T> GK_FN void gk_write(GK_DEV T* p, V x) { *reinterpret_cast<GK_DEV V*>(p) = x; }
template <int N, typename T> GK_FN gk_fv<N> gk_load(const GK_DEV T* p) {
  const gk_vec<T, N> x = gk_read<gk_vec<T, N>>(p);
  gk_fv<N> r;
  GK_UNROLL for (int i = 0; i < N; ++i) r.v[i] = gk_f(x.v[i]);
  return r;
}
// Eight floats come as two loads of 16 bytes.
template <> GK_FN gk_fv<8> gk_load<8, float>(const GK_DEV float* p) {
  const gk_vec<float, 4> a = gk_read<gk_vec<float, 4>>(p), b = gk_read<gk_vec<float, 4>>(p + 4);
  gk_fv<8> r;
  GK_UNROLL for (int i = 0; i < 4; ++i) { r.v[i] = a.v[i]; r.v[i + 4] = b.v[i]; }
  return r;
}
template <typename T> struct gk_store8 {
  static GK_FN void at(GK_DEV T* p, gk_fv<8> x) {
    gk_vec<T, 8> y;
    GK_UNROLL for (int i = 0; i < 8; ++i) y.v[i] = gk_to<T>::of(x.v[i]);
    gk_write(p, y);
  }
};
template <> struct gk_store8<float> {
  static GK_FN void at(GK_DEV float* p, gk_fv<8> x) {
    gk_vec<float, 4> a, b;
    GK_UNROLL for (int i = 0; i < 4; ++i) { a.v[i] = x.v[i]; b.v[i] = x.v[i + 4]; }
    gk_write(p, a);
    gk_write(p + 4, b);
  }
};
// x as a T holds it
template <typename T> GK_FN float gk_round(float x) { return gk_f(gk_to<T>::of(x)); }
// Rows that a kernel reads: of T, or the parts of a product that another has left, [parts, rows, ..] float, which are added
// up and rounded once.
template <typename T, bool PARTS> struct gk_operand {
  static GK_FN gk_fv<8> eight(const GK_DEV T* p, int, gk_long) { return gk_load<8>(p); }
  static GK_FN float one(const GK_DEV T* p, int, gk_long) { return gk_f(*p); }
};
template <typename T> struct gk_operand<T, true> {
  static GK_FN gk_fv<8> eight(const GK_DEV float* p, int parts, gk_long all) {
    gk_fv<8> s = gk_load<8>(p);
    for (int j = 1; j < parts; ++j) {
      const gk_fv<8> a = gk_load<8>(p + j * all);
      GK_UNROLL for (int k = 0; k < 8; ++k) s.v[k] += a.v[k];
    }
    GK_UNROLL for (int k = 0; k < 8; ++k) s.v[k] = gk_round<T>(s.v[k]);
    return s;
  }
  static GK_FN float one(const GK_DEV float* p, int parts, gk_long all) {
    float s = *p;
    for (int j = 1; j < parts; ++j) s += p[j * all];
    return gk_round<T>(s);
  }
};
// Eight elements of a table from element `at` on: floats, or codes of BITS bits with a scale and a bias for each group.
template <int BITS> struct gk_table {
  template <typename S> static GK_FN gk_fv<8> eight(const GK_DEV gk_uint* table, const GK_DEV S* ss, const GK_DEV S* sb, gk_long at, int group) {
    const float scale = gk_f(ss[at / group]), bias = gk_f(sb[at / group]);
    const gk_vec<gk_uint, BITS / 4> words = gk_read<gk_vec<gk_uint, BITS / 4>>(table + at * BITS / 32);
    gk_fv<8> r;
    GK_UNROLL for (int i = 0; i < 8; ++i)
      r.v[i] = (float)((words.v[i * BITS / 32] >> (i * BITS % 32)) & ((1u << BITS) - 1)) * scale + bias;
    return r;
  }
};
template <> struct gk_table<0> {
  template <typename X, typename S> static GK_FN gk_fv<8> eight(const GK_DEV X* table, const GK_DEV S*, const GK_DEV S*, gk_long at, int) {
    return gk_load<8>(table + at);
  }
};
// A number as the type of an argument.
template <int N> struct gk_count { static constexpr int COUNT = N; };
// erf to 1.5e-7. Source: Abramowitz and Stegun 7.1.26; Metal has none.
GK_FN float gk_erf(float x) {
  const float a = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3275911f * a);
  const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float y = 1.0f - p * gk_exp(-a * a);
  return x < 0 ? -y : y;
}
// of 64 bits, which no simd function takes
GK_FN gk_ulong gk_shfl_long(gk_ulong x, int lane) {
  return (gk_ulong)gk_shfl((gk_uint)(x >> 32), lane) << 32 | gk_shfl((gk_uint)x, lane);
}
GK_FN gk_ulong gk_sum_long(gk_ulong x) {
  for (int i = 16; i > 0; i >>= 1) x += (gk_ulong)gk_shfl_xor((gk_uint)(x >> 32), i) << 32 | gk_shfl_xor((gk_uint)x, i);
  return x;
}
// the share of whole that x in [0, 1) is, below whole; whole below 2^63
GK_FN gk_ulong gk_part(gk_ulong whole, float x) {
  const gk_ulong u = (gk_ulong)(gk_uint)(x * 16777216.0f);
  return (whole >> 24) * u + (((whole & 0xffffffu) * u) >> 24);
}
// exp((x - top) / temperature) in units of 2^-30; 0 for what is not a number
GK_FN gk_uint gk_weight(float x, float top, float inverse) {
  const float power = (x - top) * inverse;
  return power > -21.0f ? (gk_uint)(gk_exp(power) * 1073741824.0f) : 0u;
}
// where x stands among ascending numbers, below 0 if it does not
GK_FN int gk_find(const GK_DEV int* numbers, int from, int to, int x) {
  const int end = to;
  while (from < to) {
    const int middle = (from + to) / 2;
    if (numbers[middle] < x) from = middle + 1; else to = middle;
  }
  return from < end && numbers[from] == x ? from : -1;
}
// a logit with the change at this place: a bias, a repetition penalty, a penalty that is subtracted
GK_FN float gk_edited(float x, const GK_DEV float* changes, int at) {
  if (at < 0) return x;
  const float biased = x + changes[at * 3], penalty = changes[at * 3 + 1];
  return (biased > 0 ? biased / penalty : biased * penalty) - changes[at * 3 + 2];
}
// cap * tanh(x / cap) for the bits of a cap; x for 0
template <int CAP> GK_FN float gk_capped(float x) {
  if (CAP == 0) return x;
  const float cap = GK_FLOAT(CAP);
  return cap - 2 * cap / (gk_exp(2 * x / cap) + 1);
}
// A sum x of values with weight w, the largest score top (base 2), over all weight; sink: the score of a key without a
// value, if there is one.
template <bool SINK> GK_FN float gk_weighted(float x, float w, float top, float sink) {
  if (!SINK) return w > 0 ? x / w : 0;
  const float most = sink > top ? sink : top, a = gk_exp2(top - most);
  return x * a / (w * a + gk_exp2(sink - most));
}
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
