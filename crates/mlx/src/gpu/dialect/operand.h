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
