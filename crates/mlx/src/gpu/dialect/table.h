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
